"""One case from its transcript to its scores: the attack, its floors and its controls, all scored alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, disclose
from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack, Memo
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.global_model import GlobalModel
from fedxray.audit import catalog
from fedxray.audit.channel import open_channel
from fedxray.audit.plan import AttackPart
from fedxray.errors import BadInput, Refused
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.scores import Scores
from fedxray.metrics.scoring import other_optimum, same_client_other_seed, score
from fedxray.metrics.table import metric as metric_named
from fedxray.progress import Report, silent
from fedxray.seeds import fork

# Hands out a memo for everything that is computed on one view.
Memos = Callable[[View], Memo]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all parts of one case share."""

    part: AttackPart
    attack: Attack
    transcript: Transcript
    truth: Truth
    client: int
    aware: bool | None
    memos: Memos
    report: Report = silent


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a case came to."""

    evidence: Evidence
    score: Scores
    ledger: dict[str, Any]
    oracle: bool
    floors: dict[str, dict[str, float]]
    controls: dict[str, dict[str, float]]
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)


def evaluate(bench: Bench) -> Outcome:
    """Run the attack, its floors and its controls."""
    view = make_view(bench, bench.attack)
    evidence = _run(bench, bench.attack, view)
    found = _score(bench, evidence)
    return Outcome(
        evidence=evidence,
        score=found,
        ledger=ledger_of(bench, view),
        oracle=view.grants.is_oracle,
        floors=_floors(bench),
        controls=_controls(bench),
        ceilings=_ceilings(bench),
    )


def grant_names(part: AttackPart, attack: Attack, aware: bool | None) -> list[str]:
    """What this adversary is told: the plan's list or the attack's own, and the defence where it is aware of one."""
    names = set(part.grants if part.grants is not None else declared_grants(attack))
    return sorted((names - {"defence"}) | ({"defence"} if aware else set()))


def declared_grants(attack: Attack) -> set[str]:
    """The grants an attack declares, with those of the attacks it is made of."""
    found = set(attack.grants)
    for inner in inner_attacks(attack):
        found |= declared_grants(inner)
    return found


def inner_attacks(attack: Attack) -> list[Attack]:
    """The attacks that an attack holds as settings."""
    settings = (getattr(attack, field.name) for field in fields(attack))  # type: ignore[arg-type]
    return [setting for setting in settings if isinstance(setting, Attack)]


def check_inner_kinds(attack: Attack, place: str) -> None:
    """Refuse an inner attack that gives something else than its field is named for: a model, or labels."""
    for setting in fields(attack):  # type: ignore[arg-type]
        inner = getattr(attack, setting.name)
        if not isinstance(inner, Attack):
            continue
        if inner.kind != setting.name:
            raise BadInput(
                f"{place}: {setting.name}",
                expected=f"an attack that gives {setting.name}",
                got=f"{inner.name}, which gives {inner.kind}",
                remedy="`fedxray list attacks` tells what each one gives.",
            )
        check_inner_kinds(inner, f"{place}: {setting.name}")


def adapts(attack: Attack) -> bool:
    """Whether knowing the defence changes anything."""
    return attack.adapts or any(adapts(inner) for inner in inner_attacks(attack))


def make_view(bench: Bench, attack: Attack, *, messages_of: int | None = None, rows: Rows = "train") -> View:
    """The view of the case; a control reads another client's messages, or asks about held-out rows."""
    names = grant_names(bench.part, attack, bench.aware)
    grants = disclose(bench.truth, names, client=bench.client, seats=bench.part.seats, rows=rows)
    return take_seat(bench, grants, bench.client if messages_of is None else messages_of)


def take_seat(bench: Bench, grants: Grants, client: int) -> View:
    """The view of the plan's role with these grants."""
    transcript, rounds = bench.transcript, rounds_read(bench.part, bench.transcript)
    role = bench.part.role
    if role == "curious-client":
        own = [bench.truth.train[seat] for seat in bench.part.seats]
        return roles.curious_client(transcript, seat=bench.part.seats, own=own, grants=grants, rounds=rounds)
    if role == "secure-aggregation":
        return roles.secure_aggregation(transcript, grants=grants, rounds=rounds)
    if role == "active-server":
        channel = open_channel(transcript, bench.truth, rounds=rounds)
        return roles.active_server(transcript, client=client, channel=channel, grants=grants, rounds=rounds)
    seat = {"server": roles.server, "eavesdropper": roles.eavesdropper}[role]
    return seat(transcript, client=client, grants=grants, rounds=rounds)


def rounds_read(part: AttackPart, transcript: Transcript) -> list[int] | None:
    """The recorded rounds that the plan lets this attack read."""
    recorded = transcript.rounds()
    if part.rounds is None:
        return None
    if part.rounds == "first":
        return recorded[:1]
    return recorded[-1:] if part.rounds == "last" else list(part.rounds)


def ledger_of(bench: Bench, view: View) -> dict[str, Any]:
    """Who sees what and was told what, in plain values."""
    hidden = bench.transcript.secure_aggregation and roles.ROLES[view.role].single_replies
    space = bench.truth.space
    return {
        **view.ledger(),
        "sees": roles.ROLES["secure-aggregation" if hidden else view.role].sees,
        "examples_in_question": len(bench.truth.train[bench.client]),
        "floor_records": len(bench.truth.public),  # floors are always given the public share
        "defence": bench.truth.defence.describe(),
        "aware": bench.aware,
        "target": bench.client,
        "sensitive": space.sensitive,
        "target_column": space.target_name,
        "target_standardised": space.target == "regression" and space.target_std != 1.0,
        "seats": list(bench.part.seats),
        "controls_left_out": [
            name for name in bench.attack.controls if name not in chosen_controls(bench.part, bench.attack)
        ],
    }


def _run(bench: Bench, attack: Attack, view: View) -> Evidence:
    """The attack's evidence, from the store where it is there already."""
    root = fork(bench.truth.seed, "attacks of an audit", -1 if view.target is None else view.target)
    memo = bench.memos(view)
    return memo(attack, view, lambda: attack.run(view, generator=root, memo=memo, report=bench.report))


def _score(bench: Bench, evidence: Evidence, rows: Rows = "train") -> Scores:
    return score(evidence, bench.truth, client=bench.client, seats=bench.part.seats, rows=rows)


def _floors(bench: Bench) -> dict[str, dict[str, float]]:
    """Every floor of the attack that this data can supply, scored like the attack."""
    found: dict[str, dict[str, float]] = {}
    for name in bench.attack.floors:
        if name == "other-optimum":  # needs the truth, so it is made where scores are
            found[name] = dict(_score(bench, other_optimum(bench.truth, bench.client)).means)
            continue
        floor = catalog.floor_for(name, bench.attack.kind)
        grants = disclose(bench.truth, floor.grants, client=bench.client, seats=bench.part.seats)
        view = take_seat(bench, grants, bench.client).without_messages()
        # A curious client may use its own records or leave them: where clients differ they mislead.
        views = [view, replace(view, own=())] if view.own else [view]
        try:
            found[name] = strongest([dict(_score(bench, _run(bench, floor, one)).means) for one in views])
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


def _controls(bench: Bench) -> dict[str, dict[str, float]]:
    """The attack repeated where it should not work."""
    makers: dict[str, Callable[[Bench], Scores | None]] = {
        "held-out": _held_out,
        "other-client": _other_client,
        "global-model": _global_model,
    }
    found: dict[str, dict[str, float]] = {}
    for name in chosen_controls(bench.part, bench.attack):
        result = makers[name](bench)
        if result is not None:
            found[name] = dict(result.means)
    return found


def chosen_controls(part: AttackPart, attack: Attack) -> list[str]:
    """The controls that are run: those of the plan, else all that the attack has."""
    return [name for name in attack.controls if part.controls is None or name in part.controls]


def _ceilings(bench: Bench) -> dict[str, dict[str, float]]:
    """What no guess can be asked to beat, where the truth itself gives it: of models, an equally good one."""
    if bench.attack.kind != "model":
        return {}
    return {"same-client-other-seed": dict(same_client_other_seed(bench.truth, bench.client).means)}


def _held_out(bench: Bench) -> Scores | None:
    """The same attack on records of the same client that nobody trained on."""
    if not len(bench.truth.holdout[bench.client]):
        return None
    if bench.attack.kind == "images":  # the same pictures, held against as many that nobody trained on
        same = _run(bench, bench.attack, make_view(bench, bench.attack))
        return score(
            same, bench.truth, client=bench.client, rows="holdout", limit=len(bench.truth.train[bench.client])
        )
    view = make_view(bench, bench.attack, rows="holdout")
    return _score(bench, _run(bench, bench.attack, view), "holdout")


def _other_client(bench: Bench) -> Scores | None:
    """The same attack with the messages of the next client, about the same records."""
    other = next_client(bench.client, len(bench.truth.train), bench.part.seats)
    if other is None or not _reads_single_replies(bench):
        return None
    view = make_view(bench, bench.attack, messages_of=other)
    try:
        return _score(bench, _run(bench, bench.attack, view))
    except Refused:  # the other client never took part in a round that was read
        return None


def _global_model(bench: Bench) -> Scores | None:
    """The same attack with the global model in place of the client's."""
    plain = without_client_model(bench.attack)
    if plain is None or plain == bench.attack:
        return None
    return _score(bench, _run(bench, plain, make_view(bench, plain)))


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
