"""The context of a case (`CaseContext`), and what its attack is compared with.

Floors are attacks without messages, controls repeat the attack where it should not work, ceilings are upper bounds.
`CaseContext.infer` is the one way in which attacks, floors, controls and trials of a search are run and stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, disclose, records_in_question
from fedxray.adversary.view import Channel, Exchange, Grants, View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.audit import catalog
from fedxray.audit.plan import AttackPart
from fedxray.audit.restoring import restore
from fedxray.audit.run.search import AttackSearch, Recall, ask_afresh, best_answer, study_of
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

# How the view of a case is made: its role, rounds and grants


def open_channel(transcript: Transcript, truth: Truth, *, rounds: Sequence[int] | None = None) -> Channel | None:
    """Return an active server's channel to the clients, which continues after the last of these rounds.

    `rounds` defaults to all recorded ones. There is no channel to a recording of a live federation, whose clients
    cannot be asked again, and none under secure aggregation, which hides what a single client replies.
    """
    after = max(transcript.rounds() if rounds is None else rounds, default=None)
    if transcript.recorded or transcript.secure_aggregation or after is None:
        return None
    federation = Federation.of(truth)

    def channel(tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        branch = continue_run(
            federation, transcript, seed=truth.seed, after=after, clients=clients, rounds=rounds, tamper=tamper
        )
        replies = roles.server(branch.transcript, client=clients[0]).observations
        return Exchange(observations=replies, state=branch.state, rounds_spent=branch.rounds_spent)

    return channel


def grant_names(part: AttackPart, attack: Attack, aware: bool | None) -> list[str]:
    """Return the grants of this adversary: the plan's list or the attack's own, with `defence` where it is aware."""
    names = set(part.grants if part.grants is not None else declared_grants(attack))
    return sorted((names - {"defence"}) | ({"defence"} if aware else set()))


def declared_grants(attack: Attack) -> set[str]:
    """Return the grants that an attack declares, with those of its inner attacks."""
    return {name for held in catalog.held_attacks(attack) for name in held.grants}


def check_inner_kinds(attack: Attack, argument: str) -> None:
    """Refuse an inner attack that returns something else than its field is named for: a model, or labels."""
    for name, inner in catalog.attack_settings(attack).items():
        if not isinstance(inner, Attack):
            continue
        if inner.kind != name:
            raise BadInput(
                f"{argument}: {name}",
                expected=f"an attack that gives {name}",
                got=f"{inner.name}, which gives {inner.kind}",
                remedy="`fedxray list attacks` lists what each one gives.",
            )
        check_inner_kinds(inner, f"{argument}: {name}")


def adapts(attack: Attack) -> bool:
    """Return whether knowing the defence changes the attack or one of its inner attacks."""
    return any(held.adapts for held in catalog.held_attacks(attack))


def rounds_read(part: AttackPart, transcript: Transcript) -> list[int] | None:
    """Return the recorded rounds that the plan lets this attack read; None for all."""
    recorded = transcript.rounds()
    if part.rounds is None:
        return None
    if part.rounds == "first":
        return recorded[:1]
    return recorded[-1:] if part.rounds == "last" else list(part.rounds)


def root_for(seed: int, target: int | None) -> torch.Generator:
    """Return the generator from which every attack about one client forks its own, by name and settings."""
    return fork(seed, "attacks of an audit", -1 if target is None else target)


# The context of a case


class Answers:
    """The answers of attacks on one view; this one stores nothing. It is the memo of attacks that run others."""

    def load(self, attack: Attack, view: View) -> Evidence | None:
        """Return the stored answer of an attack, None where there is none."""
        return None

    def save(self, attack: Attack, view: View, evidence: Evidence) -> None:
        """Store the answer of an attack."""

    def __call__(self, attack: Attack, view: View, run: Callable[[], Evidence]) -> Evidence:
        """Return the stored answer of an inner attack, or the one that `run` computes."""
        return run()


@dataclass(frozen=True, kw_only=True)
class CaseContext:
    """The data, role, grants and stored answers that the attack, the floors and the controls of one case share."""

    part: AttackPart
    attack: Attack
    transcript: Transcript
    truth: Truth
    client: int | None  # None: all clients but the seats
    aware: bool | None
    answers: Callable[[View], Answers] = lambda view: Answers()
    recall: Recall = ask_afresh  # stored points of a search
    report: Report = silent
    unknown: tuple[str, ...] = ()  # grants that a recording does not hold
    restored: dict[str, Evidence] = field(default_factory=dict)  # by the raw evidence, spelled

    def view(self, attack: Attack, *, messages_of: int | None = None, rows: Rows = "train") -> View:
        """Return what the adversary of this case sees and is granted.

        A control reads another client's messages (`messages_of`) or asks about held-out records (`rows`).
        """
        names = [name for name in grant_names(self.part, attack, self.aware) if name not in self.unknown]
        grants = disclose(
            self.truth, names, client=self.client, seats=self.part.seats, rows=rows, transcript=self.transcript
        )
        return self.view_with(grants, self.client if messages_of is None else messages_of)

    def view_with(self, grants: Grants, client: int | None) -> View:
        """Return the view of the plan's role on a client with these grants."""
        transcript, rounds = self.transcript, rounds_read(self.part, self.transcript)
        role, seats = self.part.role, self.part.seats
        client = 0 if client is None else client  # any client is the same where only sums are seen
        if role == "curious-client":
            # The records of a fellow client in a recording are not known.
            own = [] if transcript.recorded else [copy.deepcopy(self.truth.train[seat]) for seat in seats]
            return roles.curious_client(transcript, seat=seats, own=own, grants=grants, rounds=rounds)
        if role == "secure-aggregation":
            return roles.secure_aggregation(transcript, grants=grants, rounds=rounds)
        if role == "active-server":
            channel = open_channel(transcript, self.truth, rounds=rounds)
            return roles.active_server(transcript, client=client, channel=channel, grants=grants, rounds=rounds)
        make = {"server": roles.server, "eavesdropper": roles.eavesdropper}[role]
        return make(transcript, client=client, grants=grants, rounds=rounds)

    def infer(self, attack: Attack, view: View, *, searched: bool = True, restored: bool = True) -> Evidence:
        """Return the evidence of an attack on a view, stored or computed.

        `searched`: with the best settings, where the plan searches them. `restored`: after the plan's restorer, where
        it names one.
        """
        if searched and self.part.search is not None:
            evidence = best_answer(self.search(attack, view))
        else:
            answers = self.answers(view)
            stored = answers.load(attack, view)
            if stored is None:
                root = root_for(self.truth.seed, view.target)
                # A plain function: an attack has no business with the store or the seed behind it.
                evidence = attack.run(view, generator=root, memo=lambda *asked: answers(*asked), report=self.report)
                answers.save(attack, view, evidence)
            else:
                evidence = stored
        if not restored or self.part.restore is None:
            return evidence
        key = spell(evidence.tensors)
        if key not in self.restored:
            self.restored[key] = restore(self.part, self.truth, evidence)
        return self.restored[key]

    def search(self, attack: Attack, view: View) -> AttackSearch:
        """Return the plan's search for the best settings of this attack."""
        return AttackSearch(
            attack=attack,
            study=study_of(attack, self.part.search, f"attack {self.part.title}: search"),
            run=lambda trial: self.infer(trial, view, searched=False, restored=False),
            generator=root_for(self.truth.seed, view.target),
            recall=self.recall,
        )

    def score(self, evidence: Evidence, rows: Rows = "train", *, limit: int | None = None) -> Scored:
        """Score evidence against the client's records, or the first `limit` of them."""
        scores = score(
            evidence,
            self.truth,
            client=self.client,
            seats=self.part.seats,
            rows=rows,
            limit=limit,
            **scored_with(self.part.metrics or ()),
        )
        return Scored(evidence=evidence, scores=scores, rows=rows)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Evidence with its scores, and the records that it was scored against."""

    evidence: Evidence
    scores: Scores
    rows: Rows = "train"


# Floors, controls and ceilings

FROM_NOTHING = ("images", "rows")  # kinds whose guesses are not about given records


def floors_of(context: CaseContext) -> dict[str, Scored]:
    """Return every floor of the attack that this data can supply, scored like the attack."""
    floors: dict[str, Scored] = {}
    for name in context.attack.floors:
        if name == "other-optimum":  # computed from the truth, so it is not an attack of the catalogue
            if len(context.truth.train) > 1 and context.client is not None:
                floors[name] = context.score(other_optimum(context.truth, context.client))
            continue
        floor = catalog.floor_for(name, context.attack.kind)
        grants = disclose(context.truth, floor.grants, client=context.client, seats=context.part.seats)
        view = context.view_with(grants, context.client).without_messages()
        # A curious client may use its own records or leave them: where clients differ they mislead.
        views = [view, replace(view, own=())] if view.own else [view]
        try:
            guesses = [
                context.score(context.infer(floor, variant, searched=False, restored=False)) for variant in views
            ]
        except Refused:  # no public share: the floor is missing, and the verdict states it
            continue
        means = strongest([dict(guess.scores.means) for guess in guesses])
        floors[name] = replace(guesses[0], scores=replace(guesses[0].scores, means=means))
    return floors


def strongest(guesses: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the better value of every metric: no guesser could choose like that, so it is a generous floor."""
    best = dict(guesses[0])
    for guess in guesses[1:]:
        for name, value in guess.items():
            better = min if metric_named(name).down else max
            best[name] = better(best.get(name, value), value)
    return best


def controls_of(context: CaseContext) -> dict[str, Scored]:
    """Return the attack repeated where it should not work, by the name of the control."""
    makers: dict[str, Callable[[CaseContext], Scored | None]] = {
        "held-out": _held_out,
        "other-client": _other_client,
        "global-model": _global_model,
    }
    scored = {name: makers[name](context) for name in chosen_controls(context.part, context.attack)}
    return {name: control for name, control in scored.items() if control is not None}


def chosen_controls(part: AttackPart, attack: Attack) -> list[str]:
    """Return the controls that are run: those of the plan, else all that the attack has."""
    return [name for name in attack.controls if part.controls is None or name in part.controls]


def ceilings_of(context: CaseContext) -> dict[str, dict[str, float]]:
    """Return upper bounds that the truth itself gives: for models, another optimum of the same client."""
    if context.attack.kind != "model" or context.client is None:
        return {}
    return {"same-client-other-seed": dict(same_client_other_seed(context.truth, context.client).means)}


def _held_out(context: CaseContext) -> Scored | None:
    """Score the attack on records of the same client that were never trained on."""
    attack, seats = context.attack, context.part.seats
    sizes = [len(records) for client, records in enumerate(context.truth.holdout) if client not in seats]
    if not len(records_in_question(context.truth, context.client, seats, "holdout")):
        return None
    if attack.kind == "sources" and sum(map(bool, sizes)) < 2:  # a single possible source
        return None
    if any(name.startswith("oracle-") for name in grant_names(context.part, attack, context.aware)):
        return None  # an adversary that holds the records in question would hold these too
    if attack.kind in FROM_NOTHING:
        # The same guesses, scored against as many records that were never trained on.
        evidence = context.infer(attack, context.view(attack))
        limit = len(records_in_question(context.truth, context.client, seats))
        return context.score(evidence, "holdout", limit=limit)
    return context.score(context.infer(attack, context.view(attack, rows="holdout")), "holdout")


def _other_client(context: CaseContext) -> Scored | None:
    """Score the attack on the messages of the next client, about the records of this one."""
    attack = context.attack
    hidden = context.transcript.secure_aggregation or not roles.ROLES[context.part.role].single_replies
    if context.client is None or hidden:
        return None
    neighbour = next_client(context.client, len(context.truth.train), context.part.seats)
    if neighbour is None:
        return None
    if attack.kind == "sources":
        return context.score(_under_other_names(context))
    try:
        return context.score(context.infer(attack, context.view(attack, messages_of=neighbour)))
    except Refused:  # the other client took part in none of the rounds that are read
        return None


def _under_other_names(context: CaseContext) -> Evidence:
    """Return the guess about sources as if the messages of every client had come from the one before it."""
    evidence = context.infer(context.attack, context.view(context.attack))
    count = len(context.truth.train)
    neighbours = [next_client(client, count, context.part.seats) for client in range(count)]
    names = [client if after is None else after for client, after in enumerate(neighbours)]
    owners = evidence.tensors["owners"]  # [records]
    renamed = torch.tensor(names, dtype=owners.dtype, device=owners.device)[owners]
    return replace(evidence, tensors={**evidence.tensors, "owners": renamed})


def _global_model(context: CaseContext) -> Scored | None:
    """Score the attack with the global model in place of the client's."""
    attack = without_client_model(context.attack)
    if attack is None or attack == context.attack:
        return None
    return context.score(context.infer(attack, context.view(attack)))


def without_client_model(attack: Attack) -> Attack | None:
    """Return the attack with the global model wherever it would use a client's; None where it uses none."""
    if attack.kind == "model":
        return GlobalModel()
    models = [
        name
        for name, value in catalog.attack_settings(attack).items()
        if isinstance(value, Attack) and value.kind == "model"
    ]
    return replace(attack, **dict.fromkeys(models, GlobalModel())) if models else None  # type: ignore[type-var]


def next_client(client: int, clients: int, seats: Sequence[int]) -> int | None:
    """Return the next client after this one that is no seat; None where there is none."""
    others = [(client + step) % clients for step in range(1, clients)]
    return next((other for other in others if other not in seats), None)
