"""What an attack is compared with: floors, which work without messages, and controls, where it should not work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, disclose, records_in_question
from fedxray.adversary.view import Channel, Exchange, Grants, View
from fedxray.attacks.base import Attack, Memo
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.audit import catalog
from fedxray.audit.plan import AttackPart
from fedxray.audit.restoring import restored
from fedxray.audit.run.search import Recall, Search, afresh, studied, study_of
from fedxray.errors import BadInput, Refused
from fedxray.federation.round_loop import continue_run
from fedxray.federation.setting import Federation
from fedxray.federation.tamper import Tamper
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.optional import scored_with
from fedxray.metrics.scores import Scores
from fedxray.metrics.scoring import other_optimum, same_client_other_seed, score
from fedxray.metrics.table import metric as metric_named
from fedxray.progress import Report, silent
from fedxray.seeds import fork, spell

# --- An active server's line to the clients of a simulated run, which it continues from a recorded round.


def open_channel(
    transcript: Transcript, truth: Truth, *, rounds: Sequence[int] | None = None
) -> Channel | None:
    """A channel that goes on after the last of these rounds (or of all recorded ones).

    There is none to a recording of a live federation, whose clients cannot be asked again, and none under secure
    aggregation, which hides what a single client replies.
    """
    after = max(transcript.rounds() if rounds is None else rounds, default=None)
    if transcript.recorded or transcript.secure_aggregation or after is None:
        return None
    federation = Federation(
        space=truth.space,
        clients=truth.train,
        holdout=truth.holdout,
        public=truth.public,
        model=truth.model,
        recipe=truth.recipe,
        defence=truth.defence,
        rounds=truth.rounds,
    )

    def channel(tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        branch = continue_run(
            federation,
            transcript,
            seed=truth.seed,
            after=after,
            clients=clients,
            rounds=rounds,
            tamper=tamper,
        )
        replies = roles.server(branch.transcript, client=clients[0]).observations
        return Exchange(observations=replies, state=branch.state, rounds_spent=branch.rounds_spent)

    return channel


# --- What all parts of one case share: whose seat it is, what was seen and granted, how an attack is run
# and scored.


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
