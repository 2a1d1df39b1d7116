"""What an attack is compared with: floors, which work without messages, and controls, where it should not work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, disclose, records_in_question
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.global_model import GlobalModel
from fedxray.audit import catalog
from fedxray.audit.bench import Bench, grant_names, guess_on, make_view, run_on, score_on, take_seat
from fedxray.audit.plan import AttackPart
from fedxray.errors import Refused
from fedxray.metrics.scores import Scores
from fedxray.metrics.scoring import other_optimum, same_client_other_seed
from fedxray.metrics.table import metric as metric_named

FROM_NOTHING = ("images", "rows")  # kinds whose guesses are about no records in particular


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A guess with its scores, and which records it was held against."""

    evidence: Evidence
    scores: Scores
    rows: Rows = "train"


def floors_of(bench: Bench) -> dict[str, Scored]:
    """Every floor of the attack that this data can supply, scored like the attack."""
    found: dict[str, Scored] = {}
    for name in bench.attack.floors:
        if name == "other-optimum":  # needs the truth, so it is made where scores are
            if len(bench.truth.train) > 1 and bench.client is not None:
                found[name] = _scored(bench, other_optimum(bench.truth, bench.client))
            continue
        floor = catalog.floor_for(name, bench.attack.kind)
        grants = disclose(bench.truth, floor.grants, client=bench.client, seats=bench.part.seats)
        view = take_seat(bench, grants, bench.client).without_messages()
        # A curious client may use its own records or leave them: where clients differ they mislead.
        views = [view, replace(view, own=())] if view.own else [view]
        try:
            guesses = [_scored(bench, run_on(bench, floor, one)) for one in views]
            means = strongest([dict(guess.scores.means) for guess in guesses])
            found[name] = replace(guesses[0], scores=replace(guesses[0].scores, means=means))
        except Refused:  # no public share: the floor is missing, and the verdict says so
            continue
    return found


def strongest(guesses: Sequence[dict[str, float]]) -> dict[str, float]:
    """The better value of every metric: no guesser could choose like that, so it is a generous floor."""
    found = dict(guesses[0])
    for guess in guesses[1:]:
        for name, value in guess.items():
            better = min if metric_named(name).down else max
            found[name] = better(found.get(name, value), value)
    return found


def controls_of(bench: Bench) -> dict[str, Scored]:
    """The attack repeated where it should not work."""
    makers: dict[str, Callable[[Bench], Scored | None]] = {
        "held-out": _held_out,
        "other-client": _other_client,
        "global-model": _global_model,
    }
    made = {name: makers[name](bench) for name in chosen_controls(bench.part, bench.attack)}
    return {name: one for name, one in made.items() if one is not None}


def _scored(bench: Bench, evidence: Evidence, rows: Rows = "train") -> Scored:
    return Scored(evidence=evidence, scores=score_on(bench, evidence, rows), rows=rows)


def chosen_controls(part: AttackPart, attack: Attack) -> list[str]:
    """The controls that are run: those of the plan, else all that the attack has."""
    return [name for name in attack.controls if part.controls is None or name in part.controls]


def ceilings_of(bench: Bench) -> dict[str, dict[str, float]]:
    """What no guess can be asked to beat, where the truth itself gives it: of models, an equally good one."""
    if bench.attack.kind != "model" or bench.client is None:
        return {}
    return {"same-client-other-seed": dict(same_client_other_seed(bench.truth, bench.client).means)}


def _held_out(bench: Bench) -> Scored | None:
    """The same attack on records of the same client that nobody trained on."""
    held = [len(one) for client, one in enumerate(bench.truth.holdout) if client not in bench.part.seats]
    seats = bench.part.seats
    if not len(records_in_question(bench.truth, bench.client, seats, "holdout")):
        return None
    if bench.attack.kind == "sources" and sum(map(bool, held)) < 2:  # nobody's to tell them from
        return None
    if any(name.startswith("oracle-") for name in grant_names(bench.part, bench.attack, bench.aware)):
        return None  # whoever holds the records in question would hold these too
    if bench.attack.kind in FROM_NOTHING:
        # The same guesses, held against as many records that nobody trained on.
        same = guess_on(bench, bench.attack, make_view(bench, bench.attack))
        limit = len(records_in_question(bench.truth, bench.client, seats))
        found = score_on(bench, same, "holdout", limit=limit)
        return Scored(evidence=same, scores=found, rows="holdout")
    view = make_view(bench, bench.attack, rows="holdout")
    return _scored(bench, guess_on(bench, bench.attack, view), "holdout")


def _other_client(bench: Bench) -> Scored | None:
    """The same attack with the messages of the next client, about the same records."""
    if bench.client is None or not _reads_single_replies(bench):
        return None
    other = next_client(bench.client, len(bench.truth.train), bench.part.seats)
    if other is None:
        return None
    if bench.attack.kind == "sources":
        return _scored(bench, _under_other_names(bench))
    view = make_view(bench, bench.attack, messages_of=other)
    try:
        return _scored(bench, guess_on(bench, bench.attack, view))
    except Refused:  # the other client never took part in a round that was read
        return None


def _under_other_names(bench: Bench) -> Evidence:
    """The guess about sources if the messages of every client had come from the one before it."""
    found = guess_on(bench, bench.attack, make_view(bench, bench.attack))
    count = len(bench.truth.train)
    others = [next_client(client, count, bench.part.seats) for client in range(count)]
    names = [client if other is None else other for client, other in enumerate(others)]
    owners = found.tensors["owners"]
    renamed = torch.tensor(names, dtype=owners.dtype, device=owners.device)[owners]
    return replace(found, tensors={**found.tensors, "owners": renamed})


def _global_model(bench: Bench) -> Scored | None:
    """The same attack with the global model in place of the client's."""
    plain = without_client_model(bench.attack)
    if plain is None or plain == bench.attack:
        return None
    return _scored(bench, guess_on(bench, plain, make_view(bench, plain)))


def without_client_model(attack: Attack) -> Attack | None:
    """The attack with the global model wherever it would use one of the client; None where it uses none."""
    if attack.kind == "model":
        return GlobalModel()
    models = [
        field.name
        for field in fields(attack)  # type: ignore[arg-type]
        if isinstance(getattr(attack, field.name), Attack) and getattr(attack, field.name).kind == "model"
    ]
    return replace(attack, **dict.fromkeys(models, GlobalModel())) if models else None  # type: ignore[type-var]


def next_client(client: int, clients: int, seats: Sequence[int]) -> int | None:
    """The next client after this one, none of the seats; None where there is no other."""
    others = [(client + step) % clients for step in range(1, clients)]
    return next((other for other in others if other not in seats), None)


def _reads_single_replies(bench: Bench) -> bool:
    hidden = bench.transcript.secure_aggregation
    return roles.ROLES[bench.part.role].single_replies and not hidden
