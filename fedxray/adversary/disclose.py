"""Hands an adversary exactly what the auditor names, copied out of the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from fedxray.adversary.view import Grants, LossOracle, PublicAttributes, SourceRecords
from fedxray.data.dataset import Records, union
from fedxray.errors import BadInput, unknown_name
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth, statistics_of_round
from fedxray.models.inspect import has_batch_norm
from fedxray.seeds import fork, permutation

# --- What the auditor tells by round: the order in which a client used its records, and what follows from
# it.


def _rounds(truth: Truth, transcript: Transcript | None) -> Iterable[int]:
    """All rounds of a run; of a recording those that it holds, since the number of its last is a stranger's word."""
    return range(truth.rounds) if transcript is None or not transcript.recorded else transcript.rounds()


def _batch_labels(
    truth: Truth, client: int, transcript: Transcript | None
) -> dict[int, tuple[torch.Tensor, ...]]:
    y, found = truth.train[client].y, {}
    for round in _rounds(truth, transcript):
        schedule = truth.schedule(client, round)
        found[round] = tuple(y[schedule.used(step)] for step in range(schedule.steps))
    return found


def _bn_statistics(
    truth: Truth, client: int, transcript: Transcript | None
) -> dict[int, dict[str, torch.Tensor]]:
    """By recorded round, from the model that the client was sent in it."""
    if transcript is None or not has_batch_norm(truth.model):
        expected = "for bn-statistics a network with BatchNorm and the transcript of its run"
        lacking = ("no transcript", "Call disclose(..., transcript=transcript).")
        got, remedy = lacking if transcript is None else ("a network without BatchNorm", "Leave it out.")
        raise BadInput("grants", expected=expected, got=got, remedy=remedy)
    sent = {
        one.round: one.parts for one in transcript.messages if (one.what, one.client) == ("broadcast", client)
    }
    records = truth.train[client]
    return {
        round: statistics_of_round(
            truth.model, truth.recipe, records, transcript.shelf.get(parts), truth.schedule(client, round)
        )
        for round, parts in sent.items()
    }


def _order(truth: Truth, client: int, transcript: Transcript | None) -> dict[int, torch.Tensor]:
    return {round: truth.schedule(client, round).index for round in _rounds(truth, transcript)}


BY_ROUND: dict[str, Callable[[Truth, int, Transcript | None], Any]] = {
    "batch-labels": _batch_labels,
    "bn-statistics": _bn_statistics,
    "oracle-order": _order,
}

Rows = Literal["train", "holdout"]

GRANTS: dict[str, str] = {
    "recipe": "how clients train: epochs, batch size, learning rate, shuffling, weighting",
    "examples": "how many examples the client holds",
    "contributors": "which clients took part",
    "defence": "which defence the clients use, with its settings",
    "labels": "the labels of the client's training records, in random order",
    "label-counts": "how many records of each class the client holds",
    "batch-labels": "the labels of every local step",
    "public-attributes": "all columns but the sensitive one, and the target, of the client's training rows",
    "target-records": "complete records, some of them from the client's training set, without saying which",
    "source-records": "training records, half of them the client's and half of the others, without saying whose, "
    "and how many of each client",
    "own-data": "the records of the seat itself",
    "public-records": "records of the same kind that belong to no client",
    "public-images": "images of the same kind that belong to no client",
    "bn-statistics": "mean and variance of what enters every BatchNorm layer, for every batch of the client",
    "oracle-records": "the client's training records themselves",
    "oracle-groups": "the training records of every client, grouped",
    "oracle-loss": "the loss of any model on the client's training records",
    "oracle-order": "the order in which the client used its records",
}


def disclose(
    truth: Truth,
    names: Sequence[str],
    *,
    client: int | None = None,
    seats: Sequence[int] = (),
    rows: Rows = "train",
    transcript: Transcript | None = None,
) -> Grants:
    """The named grants about one client (or about everyone but the seats), by value.

    With rows = "holdout" everything that describes records describes held-out ones instead: a control. Only
    `bn-statistics` asks for the transcript, since they depend on the models that the client was sent.
    """
    values: dict[str, Any] = {}
    oracle: dict[str, Any] = {}
    for name in names:
        if name not in GRANTS:
            raise unknown_name("grants", name, GRANTS)
        if name in _UNBUILT:
            raise BadInput(
                "grants",
                expected="a grant that is built",
                got=repr(name),
                remedy="It belongs to attacks that are not built yet.",
            )
        value = (
            BY_ROUND[name](truth, _single(name, client), transcript)
            if name in BY_ROUND
            else _GIVE[name](truth, client, tuple(seats), rows)
        )
        if name.startswith("oracle-"):
            oracle[name] = value
        else:
            values[name.replace("-", "_")] = value
    return Grants(names=tuple(sorted(set(names))), oracle=oracle, **values)


def records_in_question(
    truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train"
) -> Records:
    """The records an attack is about: one client's, or everyone's but the seats' where only sums are seen."""
    source = truth.train if rows == "train" else truth.holdout
    if client is not None:
        return source[client]
    return union(tuple(records for owner, records in enumerate(source) if owner not in seats))


def membership_records(
    truth: Truth, client: int | None, seats: tuple[int, ...] = ()
) -> tuple[Records, torch.Tensor]:
    """Members and non-members, mixed, and which is which (for scoring only), shape [records].

    Non-members are held-out records of the same client: telling the two apart is not about the population.
    """
    members = records_in_question(truth, client, seats, "train")
    others = records_in_question(truth, client, seats, "holdout")
    if not len(others):
        raise BadInput(
            "data.holdout",
            expected="held-out records to tell members from",
            got="none",
            remedy="Set holdout = 0.1 in [data].",
        )
    mixed = membership_order(truth, client, len(members) + len(others))
    return union((members, others)).take(mixed.to(members.x.device)), mixed < len(members)


def membership_order(truth: Truth, client: int | None, count: int) -> torch.Tensor:
    """Where each record stood before the mixing: members first, in the client's own order; for scoring only."""
    return permutation(count, fork(truth.seed, "membership", -1 if client is None else client))


def source_records(
    truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train"
) -> tuple[SourceRecords, torch.Tensor]:
    """One client's training records (or held-out ones) among as many of the others, and who owns each, for scoring.

    Owners are [records, clients] of bool, by content: a record that several clients hold has several. The others'
    records are taken evenly from all of theirs, whatever the seed; without a client all records are in question.
    """
    held = truth.train if rows == "train" else truth.holdout
    sizes = [0 if owner in seats else len(one) for owner, one in enumerate(held)]
    holder = torch.arange(len(sizes), device="cpu").repeat_interleave(torch.tensor(sizes, device="cpu"))
    everyone = records_in_question(truth, None, seats, rows)
    place = torch.arange(len(holder), device="cpu")
    if client is not None:
        place = torch.cat([place[holder == client], _spread(place[holder != client], sizes[client])])
    place = place[
        permutation(len(place), fork(truth.seed, "sources", -1 if client is None else client, rows))
    ]
    asked = everyone.take(place.to(everyone.x.device))
    counts = torch.bincount(holder[place], minlength=len(sizes)).tolist()
    return SourceRecords(x=asked.x, y=asked.y, counts=tuple(counts)), _owners(asked, held)


def _spread(places: torch.Tensor, count: int) -> torch.Tensor:
    """So many of these places, evenly spread; all of them where there are fewer."""
    if not len(places):
        raise BadInput(
            "clients",
            expected="records of another client to tell the target's from",
            got="none",
            remedy="Take two clients or more.",
        )
    count = min(count, len(places))
    return places[torch.arange(count, device="cpu") * len(places) // max(count, 1)]


def _owners(asked: Records, train: Sequence[Records]) -> torch.Tensor:
    """Which client holds a record equal to each of these, shape [records, clients]."""
    rows = [torch.cat([one.x.flatten(1), one.y[:, None].to(one.x.dtype)], 1) for one in (asked, *train)]
    numbers = torch.unique(torch.cat(rows), dim=0, return_inverse=True)[1].split([len(one) for one in rows])
    return torch.stack([torch.isin(numbers[0], held) for held in numbers[1:]], 1)


def attribute_rows(
    truth: Truth, client: int | None, seats: tuple[int, ...] = (), rows: Rows = "train"
) -> Records:
    """The records in question in a drawn order, since the client's own would tell which of them shared a batch."""
    records = records_in_question(truth, client, seats, rows)
    return records.take(attribute_order(truth, client, len(records), rows).to(records.x.device))


def attribute_order(truth: Truth, client: int | None, count: int, rows: Rows = "train") -> torch.Tensor:
    """Where each of these records stands in the client's own order; for scoring only."""
    return permutation(count, fork(truth.seed, "public order", -1 if client is None else client, rows))


def _public_attributes(
    truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows
) -> PublicAttributes:
    if truth.space.sensitive is None:
        raise BadInput(
            "data.sensitive",
            expected="the name of the sensitive column",
            got="nothing",
            remedy='Name it in [data], for example sensitive = "smoker".',
        )
    records = attribute_rows(truth, client, seats, rows)
    x = records.x.clone()
    x[:, list(truth.space.column(truth.space.sensitive).positions)] = 0.0
    return PublicAttributes(x=x, y=records.y.clone())


def _labels(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> torch.Tensor:
    y = records_in_question(truth, client, seats, rows).y
    return y[
        permutation(len(y), fork(truth.seed, "granted labels", -1 if client is None else client)).to(y.device)
    ]


def _label_counts(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> torch.Tensor:
    y = records_in_question(truth, client, seats, rows).y
    if y.is_floating_point():
        raise BadInput(
            "grants",
            expected="a classification task for label-counts",
            got="a regression target",
            remedy="Leave label-counts out.",
        )
    return torch.bincount(y, minlength=len(truth.space.classes))


def _oracle_loss(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> LossOracle:
    return LossOracle(records=records_in_question(truth, client, seats, rows), loss=truth.recipe.loss)


def _contributors(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> tuple[int, ...]:
    return tuple(range(len(truth.train))) if client is None else (client,)


def _own_data(truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows) -> Records:
    if not seats:
        raise BadInput(
            "grants",
            expected="a curious client's seat for own-data",
            got="another role",
            remedy='Use role = "curious-client", or leave own-data out.',
        )
    return union(tuple(truth.train[seat] for seat in seats))


def _single(grant: str, client: int | None) -> int:
    if client is None:
        raise BadInput(
            "grants",
            expected=f"one target client for {grant}",
            got="a seat that sees only sums",
            remedy=f"Leave {grant} out, or take a role that sees single replies.",
        )
    return client


_Give = Callable[[Truth, int | None, tuple[int, ...], Rows], Any]
_GIVE: dict[str, _Give] = {
    "recipe": lambda truth, client, seats, rows: truth.recipe,
    "examples": lambda truth, client, seats, rows: len(records_in_question(truth, client, seats)),
    "contributors": _contributors,
    "defence": lambda truth, client, seats, rows: truth.defence,
    "labels": _labels,
    "label-counts": _label_counts,
    "public-attributes": _public_attributes,
    "target-records": lambda truth, client, seats, rows: membership_records(truth, client, seats)[0],
    "source-records": lambda truth, client, seats, rows: source_records(truth, client, seats, rows)[0],
    "own-data": _own_data,
    "public-records": lambda truth, client, seats, rows: truth.public,
    "public-images": lambda truth, client, seats, rows: truth.public.x,
    "oracle-records": lambda truth, client, seats, rows: records_in_question(truth, client, seats, rows),
    "oracle-groups": lambda truth, client, seats, rows: truth.train,
    "oracle-loss": _oracle_loss,
}
_UNBUILT = frozenset(GRANTS) - frozenset(_GIVE) - frozenset(BY_ROUND)
