"""Disclosure: the grants that the auditor names, copied out of the truth for one adversary.

This file and `metrics/scoring.py` are the only ones that may use `Truth`. Records are granted in the order of a hash of
what is granted of them: it shows nothing else, also to an attack that knows the seed, and scoring can undo it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import torch
from torch.func import functional_call

from fedxray.adversary.grants import GRANTS, MOST_SOURCES
from fedxray.adversary.view import Grants, LossOracle, PublicAttributes, SourceRecords
from fedxray.data.dataset import Records, union
from fedxray.errors import BadInput, unknown_name
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth, statistics_of_round
from fedxray.losses import example_loss, in_eval_mode
from fedxray.models.inspect import has_batch_norm
from fedxray.seeds import fork, permutation

# Records asked about: those trained on, held-out ones in their place, or both mixed (scored on the held-out ones); of
# membership also those set aside of people trained on and of people held out.
Rows = Literal["train", "holdout", "mixed", "others"]
ENOUGH_OTHERS = (10_000, 1_000)  # non-members asked about, where there are: rates at 0.1 % and 1 % need as many
# Grants that the rows change, where they do not change all: those of which held-out records can be a part, and those
# of memberships.
CHANGED = {"mixed": ("public-attributes", "source-records"), "others": ("target-records",)}


def disclose(
    truth: Truth,
    names: Sequence[str],
    *,
    client: int | None = None,
    seats: Sequence[int] = (),
    rows: Rows = "train",
    transcript: Transcript | None = None,
) -> Grants:
    """The named grants about one target client (or about all clients but the colluding ones), as copies.

    `seats` are the colluding clients. Controls ask about held-out records: with rows = "holdout" everything that
    describes records describes held-out ones instead, with rows = "mixed" they are among the training records asked
    about and all else is unchanged; with rows = "others" memberships are asked of records set aside.
    `bn-statistics` and `metrics` need the transcript, since they depend on the models that the client was sent.
    """
    values: dict[str, Any] = {}
    oracle: dict[str, Any] = {}
    for name in names:
        if name not in GRANTS:
            raise unknown_name("grants", name, GRANTS)
        value = (
            _metrics(truth, client, transcript)
            if name == "metrics"
            else BY_ROUND[name](truth, _single(name, client), transcript)
            if name in BY_ROUND
            else _GIVE[name](truth, client, tuple(seats), "train" if name not in CHANGED.get(rows, (name,)) else rows)
        )
        # A copy, since an attack may write into what it is given.
        given, key = (oracle, name) if name.startswith("oracle-") else (values, name.replace("-", "_"))
        given[key] = copied(value)
    return Grants(names=tuple(sorted(set(names))), oracle=oracle, **values)


def copied(value: Any) -> Any:
    """The value with copies of its tensors, each with a memory of its own that holds nothing beside it.

    Whose records are which person's is for scoring only.
    """
    if isinstance(value, Records):
        return Records(copied(value.x), copied(value.y))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(map(copied, value))
    if isinstance(value, PublicAttributes | SourceRecords | LossOracle):
        return replace(value, **{entry.name: copied(getattr(value, entry.name)) for entry in fields(value)})
    return copy.deepcopy(value)


def records_in_question(truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train") -> Records:
    """The records that an attack is about: one client's, or for sums those of all but the colluding clients.

    Mixed ones are those trained on, then the held-out ones.
    """
    if rows == "mixed":
        return union((records_in_question(truth, client, seats), records_in_question(truth, client, seats, "holdout")))
    source = {"train": truth.train, "holdout": truth.holdout, "others": truth.others}[rows]
    if client is not None:
        return source[client]
    return union(tuple(records for owner, records in enumerate(source) if owner not in seats))


def membership_records(
    truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train"
) -> tuple[Records, torch.Tensor]:
    """Members and non-members, mixed, and whether each is a member (for scoring only), [records] bool.

    Non-members are held-out records of the same client, so that a difference of populations does not help: as many as
    members, but where there are 1,000 or 10,000, no fewer than that. Of records set aside (rows = "others") members are
    those of people whose other records were trained on.
    """
    members = len(records_in_question(truth, client, seats))
    if rows == "others":
        aside, trained = records_in_question(truth, client, seats, rows), records_in_question(truth, client, seats)
        assert aside.subject is not None and trained.subject is not None
        aside = aside.take(_mixed_order(truth, aside, "set aside", -1 if client is None else client).to(aside.x.device))
        assert aside.subject is not None
        return aside, torch.isin(aside.subject, trained.subject).cpu()
    both = records_in_question(truth, client, seats, "mixed")
    if len(both) == members:
        remedy = "Set holdout = 0.1 in [data]; in Python give Federation(holdout=...)."
        raise BadInput("data.holdout", expected="held-out records as non-members", got="none", remedy=remedy)
    mixed = membership_order(truth, client, seats)
    return both.take(mixed.to(both.x.device)), mixed < members


def membership_order(truth: Truth, client: int | None, seats: tuple[int, ...] = ()) -> torch.Tensor:
    """The index [records] of each record before mixing: members first, in the client's own order; for scoring only.

    Which held-out records are asked about, where not all of them are, follows from the hash of their content; of a
    person all or none.
    """
    both = records_in_question(truth, client, seats, "mixed")
    mixed = _mixed_order(truth, both, "membership", -1 if client is None else client)
    outside = mixed >= (members := len(records_in_question(truth, client, seats)))
    count = int(outside.sum())
    most = max(members, next((enough for enough in ENOUGH_OTHERS if count >= enough), count))
    kept = ~outside | (outside.cumsum(0) <= most)
    if both.subject is not None:
        people = both.subject.cpu()[mixed]
        kept = ~outside | torch.isin(people, people[kept & outside])
    return mixed[kept]


def _mixed_order(truth: Truth, granted: Records, *purpose: object) -> torch.Tensor:
    """The order [records] of a hash of the granted content; equal content is ordered by a draw that is not granted."""
    columns = [column.detach().cpu().contiguous().numpy() for column in (granted.x, granted.y)]
    hashes = [hashlib.sha256(x.tobytes() + y.tobytes()).digest() for x, y in zip(*columns, strict=True)]
    order = list(range(len(hashes)))
    if len(set(hashes)) < len(hashes):
        order = permutation(len(hashes), fork(truth.secret, *purpose)).tolist()
    return torch.tensor(sorted(order, key=hashes.__getitem__), dtype=torch.int64, device="cpu")


def source_records(
    truth: Truth, seats: tuple[int, ...] = (), rows: Rows = "train"
) -> tuple[SourceRecords, torch.Tensor]:
    """Training (or held-out) records of all clients, mixed, and the owner of each [records], for scoring."""
    index, everyone = source_order(truth, seats, rows), records_in_question(truth, None, seats, rows)
    asked = everyone.take(index.to(everyone.x.device))
    owner = torch.cat([_holders(held, seats) for held in _held(truth, rows).values()])[index]
    counts = torch.bincount(owner, minlength=len(truth.train)).tolist()
    return SourceRecords(x=asked.x, y=asked.y, counts=tuple(counts)), owner


def source_order(truth: Truth, seats: tuple[int, ...] = (), rows: Rows = "train") -> torch.Tensor:
    """The index [records] of each of these records among those of all clients; for scoring only.

    They are equally many of every client (of a small one all that it has), spread evenly over its own for any seed.
    Records that several clients hold have no single source and are left out.
    """
    everyone, parts = records_in_question(truth, None, seats, rows), _held(truth, rows)
    alone = _held_by_one(everyone, torch.cat([_holders(held, seats) for held in parts.values()]))
    clients = [client for client in range(len(truth.train)) if client not in seats]
    chosen, first = [], 0
    for name, held in parts.items():
        holder = _holders(held, seats)
        most, single = max(1, MOST_SOURCES[name] // len(clients)), alone[first : first + len(holder)]
        chosen += [first + _spread(((holder == client) & single).nonzero()[:, 0], most) for client in clients]
        first += len(holder)
    if sum(map(bool, map(len, chosen[: len(clients)]))) < 2:
        remedy = "Give two clients records of their own."
        raise BadInput("clients", expected="records of two clients, none held by both", got="fewer", remedy=remedy)
    index = torch.cat(chosen)
    return index[_mixed_order(truth, everyone.take(index.to(everyone.x.device)), "sources", rows)]


def _held(truth: Truth, rows: Rows) -> dict[str, tuple[Records, ...]]:
    """The records of every client that are asked about; of a mixed question those trained on first."""
    parts = {"train": truth.train, "holdout": truth.holdout}
    return {name: held for name, held in parts.items() if rows in (name, "mixed")}


def _holders(held: Sequence[Records], seats: tuple[int, ...]) -> torch.Tensor:
    """The client of each record of all but the colluding ones, [records]."""
    sizes = [0 if owner in seats else len(records) for owner, records in enumerate(held)]
    return torch.arange(len(sizes), device="cpu").repeat_interleave(torch.tensor(sizes, device="cpu"))


def _spread(indices: torch.Tensor, most: int) -> torch.Tensor:
    """At most this number of the indices, evenly spread."""
    count = min(most, len(indices))
    return indices[torch.arange(count, device="cpu") * len(indices) // max(count, 1)]


def _held_by_one(records: Records, holder: torch.Tensor) -> torch.Tensor:
    """Whether no other client holds a record equal to each of these, bool [records]."""
    rows = torch.cat([records.x.flatten(1), records.y[:, None].to(records.x.dtype)], 1)
    number = torch.unique(rows, dim=0, return_inverse=True)[1].cpu()  # equal rows have equal numbers
    first, last = (
        torch.zeros_like(number).scatter_reduce(0, number, holder, reduce, include_self=False)[number]
        for reduce in ("amin", "amax")
    )
    return first == last


def attribute_rows(truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train") -> Records:
    """The records asked about, mixed, since the client's own order would show which shared a batch."""
    records = records_in_question(truth, client, seats, rows)
    return records.take(attribute_order(truth, client, seats, rows).to(records.x.device))


def attribute_order(
    truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train"
) -> torch.Tensor:
    """The index [records] of each of these records in the client's own order; for scoring only.

    Mixed ones are counted on after those trained on. At most as many held-out records as were trained on are asked
    about, so that the control asks a question of the same size.
    """
    records = _blanked(truth, records_in_question(truth, client, seats, rows))
    order = _mixed_order(truth, records, "public order", -1 if client is None else client, rows)
    most = len(records_in_question(truth, client, seats))
    if rows != "mixed":
        return order[:most]
    return order[(order < most) | torch.isin(order, order[order >= most][:most])]


def _blanked(truth: Truth, records: Records) -> Records:
    """The records with the sensitive column set to zero, where the data have one."""
    x = records.x.clone()
    if truth.space.sensitive is not None:
        x[:, list(truth.space.column(truth.space.sensitive).positions)] = 0.0
    return Records(x, records.y)


def _public_attributes(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> PublicAttributes:
    """The records asked about, with the sensitive column set to zero."""
    if truth.space.sensitive is None:
        remedy = 'Name it in [data], for example sensitive = "smoker".'
        raise BadInput("data.sensitive", expected="the name of the sensitive column", got="nothing", remedy=remedy)
    records = _blanked(truth, attribute_rows(truth, client, seats, rows))
    return PublicAttributes(x=records.x, y=records.y)


def _labels(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> torch.Tensor:
    """The labels in an order that depends on which labels there are and on nothing else."""
    y = records_in_question(truth, client, seats, rows).y.sort().values
    return y[permutation(len(y), fork(0, "granted labels", y)).to(y.device)]


def _label_counts(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> torch.Tensor:
    """Number of records of each class, [classes]."""
    y = records_in_question(truth, client, seats, rows).y
    if y.is_floating_point():
        expected = "a classification task for label-counts"
        raise BadInput("grants", expected=expected, got="a regression target", remedy="Leave label-counts out.")
    return torch.bincount(y, minlength=len(truth.space.classes))


def _oracle_loss(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> LossOracle:
    return LossOracle(records=records_in_question(truth, client, seats, rows), loss=truth.recipe.loss)


def _own_data(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> Records:
    """The records of the colluding clients together."""
    if not seats:
        remedy = 'Use role = "curious-client", or leave own-data out.'
        raise BadInput("grants", expected="the role curious-client for own-data", got="another role", remedy=remedy)
    return union(tuple(truth.train[seat] for seat in seats))


def _single(grant: str, client: int | None) -> int:
    """The target client, refused where the role has none."""
    if client is None:
        got, remedy = "a role that sees only sums", f"Leave {grant} out, or choose a role that sees single replies."
        raise BadInput("grants", expected=f"one target client for {grant}", got=got, remedy=remedy)
    return client


# Grants by round: the order in which a client used its records, and what follows from it


def _rounds(truth: Truth, transcript: Transcript | None) -> Iterable[int]:
    """All rounds of a run; of a recording the rounds that it holds, since its highest round number is not trusted."""
    return range(truth.rounds) if transcript is None or not transcript.recorded else transcript.rounds()


def _batch_labels(truth: Truth, client: int, transcript: Transcript | None) -> dict[int, tuple[torch.Tensor, ...]]:
    """By round, the labels of every local step."""
    y, labels = truth.train[client].y, {}
    for round in _rounds(truth, transcript):
        schedule = truth.schedule(client, round)
        labels[round] = tuple(y[schedule.used(step)] for step in range(schedule.steps))
    return labels


def _bn_statistics(truth: Truth, client: int, transcript: Transcript | None) -> dict[int, dict[str, torch.Tensor]]:
    """By recorded round, BatchNorm statistics along the client's training from the model that it was sent."""
    if transcript is None or not has_batch_norm(truth.model):
        expected = "for bn-statistics a network with BatchNorm and the transcript of its run"
        lacking = ("no transcript", "Call disclose(..., transcript=transcript).")
        got, remedy = lacking if transcript is None else ("a network without BatchNorm", "Leave it out.")
        raise BadInput("grants", expected=expected, got=got, remedy=remedy)
    records = truth.train[client]
    return {
        round: statistics_of_round(
            truth.model, truth.recipe, records, transcript.shelf.get(parts), truth.schedule(client, round)
        )
        for round, parts in transcript.sent_to(client).items()
    }


def _order(truth: Truth, client: int, transcript: Transcript | None) -> dict[int, torch.Tensor]:
    """By round, the schedule of batches [steps, batch]."""
    return {round: truth.schedule(client, round).index for round in _rounds(truth, transcript)}


def _metrics(truth: Truth, client: int | None, transcript: Transcript | None) -> dict[int, dict[str, float]]:
    """By round, what a client reports of the model that it was sent; of several clients the mean over their records.

    A recording holds what was really reported.
    """
    known = {} if transcript is None else {r: dict(by.metrics) for r, by in transcript.reported.items() if by.metrics}
    if transcript is None or (transcript.recorded and not known):
        lacking = ("no transcript", "Call disclose(..., transcript=transcript).")
        got, remedy = lacking if transcript is None else ("a recording without any", "Leave metrics out.")
        raise BadInput("grants", expected="metrics that clients reported in a run", got=got, remedy=remedy)
    if transcript.recorded:
        return known
    records, network, metrics = records_in_question(truth, client), in_eval_mode(truth.model), {}
    for round, key in transcript.sent_to(0 if client is None else client).items():
        sent = transcript.shelf.get(key)
        with torch.no_grad():
            output = functional_call(network, {**sent.params, **sent.buffers}, (records.x,))
            metrics[round] = {"loss": float(example_loss(truth.recipe.loss)(output, records.y).mean())}
        if truth.space.target == "classification":
            metrics[round]["accuracy"] = float((output.argmax(1) == records.y).double().mean())
    return metrics


BY_ROUND: dict[str, Callable[[Truth, int, Transcript | None], Any]] = {
    "batch-labels": _batch_labels,
    "bn-statistics": _bn_statistics,
    "oracle-order": _order,
}

# Grants without a round: (truth, target client, colluding clients, rows) -> value
_Give = Callable[[Truth, int | None, tuple[int, ...], Rows], Any]
_GIVE: dict[str, _Give] = {
    "recipe": lambda truth, client, seats, rows: truth.recipe,
    "examples": lambda truth, client, seats, rows: len(records_in_question(truth, client, seats)),
    "contributors": lambda truth, client, seats, rows: tuple(range(len(truth.train))) if client is None else (client,),
    "defence": lambda truth, client, seats, rows: truth.defence,
    "labels": _labels,
    "label-counts": _label_counts,
    "public-attributes": _public_attributes,
    "target-records": lambda truth, client, seats, rows: membership_records(truth, client, seats, rows)[0],
    "source-records": lambda truth, client, seats, rows: source_records(truth, seats, rows)[0],
    "own-data": _own_data,
    "public-records": lambda truth, client, seats, rows: truth.public,
    "public-images": lambda truth, client, seats, rows: truth.public.x,
    "oracle-records": lambda truth, client, seats, rows: records_in_question(truth, client, seats, rows),
    "oracle-groups": lambda truth, client, seats, rows: truth.train,
    "oracle-loss": _oracle_loss,
}
