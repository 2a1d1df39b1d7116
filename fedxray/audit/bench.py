"""What all parts of one case share: whose seat it is, what was seen and granted, how an attack is run and scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, disclose
from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack, Memo
from fedxray.attacks.evidence import Evidence
from fedxray.audit.channel import open_channel
from fedxray.audit.extras import scored_with
from fedxray.audit.plan import AttackPart
from fedxray.audit.restoring import restored
from fedxray.audit.search import Recall, afresh
from fedxray.audit.search_table import study_of
from fedxray.audit.study import Search, studied
from fedxray.errors import BadInput
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.scores import Scores
from fedxray.metrics.scoring import score
from fedxray.progress import Report, silent
from fedxray.seeds import fork, spell

# Hands out a memo for everything that is computed on one view.
Memos = Callable[[View], Memo]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all parts of one case share."""

    part: AttackPart
    attack: Attack
    transcript: Transcript
    truth: Truth
    client: int | None  # None: everyone but the seats
    aware: bool | None
    memos: Memos
    recall: Recall = afresh  # points that a search has asked for
    report: Report = silent
    unknown: tuple[str, ...] = ()  # grants that nobody can give, as a recording does not tell them
    known: dict[str, Evidence] = field(default_factory=dict)  # restored answers by their raw ones


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
    names = [name for name in grant_names(bench.part, attack, bench.aware) if name not in bench.unknown]
    grants = disclose(
        bench.truth,
        names,
        client=bench.client,
        seats=bench.part.seats,
        rows=rows,
        transcript=bench.transcript,
    )
    return take_seat(bench, grants, bench.client if messages_of is None else messages_of)


def take_seat(bench: Bench, grants: Grants, client: int | None) -> View:
    """The view of the plan's role with these grants."""
    transcript, rounds = bench.transcript, rounds_read(bench.part, bench.transcript)
    role = bench.part.role
    client = 0 if client is None else client  # who is looked at does not matter where only sums are seen
    if role == "curious-client":
        # Of a fellow client in a recording nothing is known.
        own = [] if transcript.recorded else [bench.truth.train[seat] for seat in bench.part.seats]
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


def root_for(seed: int, target: int | None) -> torch.Generator:
    """What all attacks about one client draw from, each by its own name and settings."""
    return fork(seed, "attacks of an audit", -1 if target is None else target)


def run_on(bench: Bench, attack: Attack, view: View) -> Evidence:
    """The attack's evidence, from the store where it is there already."""
    memo, root = bench.memos(view), root_for(bench.truth.seed, view.target)
    return memo(attack, view, lambda: attack.run(view, generator=root, memo=memo, report=bench.report))


def answer_on(bench: Bench, attack: Attack, view: View) -> Evidence:
    """The same, of the best settings where the plan lets them be searched."""
    if bench.part.search is None:
        return run_on(bench, attack, view)
    return studied(search_on(bench, attack, view))


def search_on(bench: Bench, attack: Attack, view: View) -> Search:
    """The search of the plan for the best settings of this attack."""
    return Search(
        attack=attack,
        study=study_of(attack, bench.part.search, f"attack {bench.part.title}: search"),
        run=lambda one: run_on(bench, one, view),
        generator=root_for(bench.truth.seed, view.target),
        recall=bench.recall,
    )


def guess_on(bench: Bench, attack: Attack, view: View) -> Evidence:
    """The same after the plan's restorer, if it names one; floors are not restored."""
    raw = answer_on(bench, attack, view)
    if bench.part.restore is None:
        return raw
    question = spell(raw.tensors)
    if question not in bench.known:
        bench.known[question] = restored(bench.part, bench.truth, raw)
    return bench.known[question]


def score_on(bench: Bench, evidence: Evidence, rows: Rows = "train", *, limit: int | None = None) -> Scores:
    """The guess held against the client's records, or the first few of them."""
    more = scored_with(bench.part.metrics or ())
    return score(
        evidence,
        bench.truth,
        client=bench.client,
        seats=bench.part.seats,
        rows=rows,
        limit=limit,
        **more,
    )
