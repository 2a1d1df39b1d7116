"""The context of a case (`CaseContext`), and what its attack is compared with.

Floors are attacks without messages, controls repeat the attack where it should not work, ceilings are upper bounds.
`CaseContext.infer` is the one way in which attacks, floors, controls and trials of a search are run and stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import Rows, copied, disclose, records_in_question, source_records
from fedxray.adversary.grants import ROLES
from fedxray.adversary.view import Channel, Exchange, Grants, View
from fedxray.attacks.base import Attack, not_finite
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.audit import catalog
from fedxray.audit.judge.statistics import drawn_permutations
from fedxray.audit.own_code.apart import OutOfTime, run_apart
from fedxray.audit.own_code.carry import Parts, checked
from fedxray.audit.plan import AttackPart
from fedxray.audit.restoring import restore
from fedxray.audit.search import AttackSearch, Recall, ask_afresh, best_answer, study_of
from fedxray.defences.base import Defence
from fedxray.errors import BadInput, FedxrayError, Refused
from fedxray.federation.round_loop import continue_run
from fedxray.federation.setting import Federation
from fedxray.federation.tamper import Tamper
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.files import NoSpaceError
from fedxray.metrics.records import Scores, source_shares
from fedxray.metrics.scoring import assigned, other_optimum, same_client_other_seed, score
from fedxray.metrics.table import metric as metric_named, scored_with
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


def _counted(channel: Channel, served: list[int]) -> Channel:
    """Return the channel, which adds the rounds of every exchange to `served`: an attack may state others."""

    def counting(tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        exchange = channel(tamper, rounds=rounds, clients=clients)
        served.append(exchange.rounds_spent)
        return exchange

    return counting


def grant_names(part: AttackPart, attack: Attack, aware: bool | None) -> list[str]:
    """Return the grants of this adversary: the plan's list or the attack's own, with `defence` where it is aware."""
    names = set(part.grants if part.grants is not None else declared_grants(attack))
    return sorted((names - {"defence"}) | ({"defence"} if aware else set()))


def declared_grants(attack: Attack) -> set[str]:
    """Return the grants that an attack declares, with those of its inner attacks."""
    return {name for held in catalog.held_attacks(attack) for name in held.own_grants()}


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


def origin_of(part: AttackPart, attack: Attack) -> str:
    """Return which code of the user's or of plug-ins makes an attack, with its settings; empty for fedxray's own.

    The plan decides: what a factory returns is the user's, whatever its class.
    """
    if part.factory is not None:
        return f"{part.factory} {part.settings}"
    held = (catalog.plugin_of("attacks", inner.name) for inner in catalog.held_attacks(attack))
    return ", ".join(f"{plugin.spec} of {plugin.package}" for plugin in held if plugin is not None)


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

    def load(self, attack: Attack, view: View, origin: str = "") -> Evidence | None:
        """Return the stored answer of an attack, None where there is none; `origin` is that of a user's own."""
        return None

    def save(self, attack: Attack, view: View, evidence: Evidence, origin: str = "") -> None:
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
    stated: Defence | None = None  # facts of a defence of the user's, which scoring asks in its place
    parts: Parts | None = None  # of the plan, from which another process makes an attack of the user's
    until: float = math.inf  # when the audit's time is over, by time.time()
    drawn: bool = True  # whether the seed drew the held-out records
    public_alike: bool = False  # whether it drew the public ones in the same way

    def view(self, attack: Attack, *, messages_of: int | None = None, rows: Rows = "train") -> View:
        """Return what the adversary of this case sees and is granted.

        A control reads another client's messages (`messages_of`) or asks about held-out records (`rows`). Messages of
        another client state its number of examples, which must not be why an attack fails: the right one is given.
        So it is where held-out records are mixed in, since the number of records asked about is no longer that number.
        """
        names = [name for name in grant_names(self.part, attack, self.aware) if name not in self.unknown]
        if messages_of is not None and self.client is not None and ROLES[self.part.role].knows_examples:
            counts = {len(self.truth.train[client]) for client in (self.client, messages_of)}
            names += ["examples"] if len(counts) > 1 else []
        if rows == "mixed" and "examples" not in (*names, *self.unknown):
            names.append("examples")
        grants = disclose(
            self.truth, names, client=self.client, seats=self.part.seats, rows=rows, transcript=self.transcript
        )
        view = self.view_with(grants, self.client if messages_of is None else messages_of)
        # Sources are asked for all clients at once: an attack that knew which one is scored could always name it.
        return replace(view, target=None) if attack.kind == "sources" else view

    def view_with(self, grants: Grants, client: int | None) -> View:
        """Return the view of the plan's role on a client with these grants."""
        transcript, rounds = self.transcript, rounds_read(self.part, self.transcript)
        role, seats = self.part.role, self.part.seats
        client = 0 if client is None else client  # any client is the same where only sums are seen
        if role == "curious-client":
            # The records of a fellow client in a recording are not known.
            own = [] if transcript.recorded else [copied(self.truth.train[seat]) for seat in seats]
            return roles.curious_client(transcript, seat=seats, own=own, grants=grants, rounds=rounds)
        if role == "secure-aggregation":
            return roles.secure_aggregation(transcript, grants=grants, rounds=rounds)
        if role == "active-server":
            channel = open_channel(transcript, self.truth, rounds=rounds)
            return roles.active_server(transcript, client=client, channel=channel, grants=grants, rounds=rounds)
        make = {"server": roles.server, "eavesdropper": roles.eavesdropper}[role]
        return make(transcript, client=client, grants=grants, rounds=rounds)

    def infer(self, attack: Attack, view: View, *, own: bool, searched: bool = True, restored: bool = True) -> Evidence:
        """Return the evidence of an attack on a view, stored or computed.

        `own`: whether it is the attack of this case, perhaps with other settings; its class does not show it, as a
        factory may return one of fedxray's, and floors and global models are fedxray's own. `searched`: with the best
        settings, where the plan searches them. `restored`: after the plan's restorer, where it names one.
        """
        if searched and self.part.search is not None:
            evidence = best_answer(self.search(attack, view, own=own))
        else:
            answers, origin = self.answers(view), origin_of(self.part, self.attack) if own else ""
            stored = answers.load(attack, view, origin)
            if stored is not None:
                evidence = stored
            elif origin and self.parts is not None:
                evidence = self._answer_apart(attack, view, self.parts)
            else:  # `memo` is a plain function: an attack has no business with the store or the seed behind it
                root = root_for(self.truth.seed, view.target)
                evidence = attack.run(view, generator=root, memo=lambda *asked: answers(*asked), report=self.report)
            if stored is None:
                answers.save(attack, view, evidence, origin)
        if not restored or self.part.restore is None:
            return evidence
        key = spell(evidence.tensors)
        if key not in self.restored:
            self.restored[key] = restore(self.part, self.truth, evidence)
        return self.restored[key]

    @property
    def own(self) -> bool:
        """Whether the attack is the user's or a plug-in's."""
        return bool(origin_of(self.part, self.attack))

    def _answer_apart(self, attack: Attack, view: View, parts: Parts) -> Evidence:
        """Run a user's own attack in another process, without the truth and without stored answers."""
        served: list[int] = []
        view = replace(view, channel=None if view.channel is None else _counted(view.channel, served))
        answer = run_apart(attack, view, root_for(self.truth.seed, view.target), parts, self.attack, self.until)
        return replace(checked(answer, self.attack.kind, view, self._most(view)), rounds_spent=sum(served))

    def _most(self, view: View) -> int:
        """Return how many records a guess on this view can be about; messages of another client may be of more."""
        asked = len(records_in_question(self.truth, self.client, self.part.seats))
        return asked if view.target is None else max(asked, len(self.truth.train[view.target]))

    def search(self, attack: Attack, view: View, *, own: bool = True) -> AttackSearch:
        """Return the plan's search for the best settings of this attack."""
        return AttackSearch(
            attack=attack,
            study=study_of(attack, self.part.search, f"attack {self.part.title}: search"),
            run=lambda trial: self.infer(trial, view, own=own, searched=False, restored=False),
            generator=root_for(self.truth.seed, view.target),
            recall=self.recall,
        )

    def score(
        self, evidence: Evidence, rows: Rows = "train", *, limit: int | None = None, trained: bool = False
    ) -> Scored:
        """Score evidence against the client's records, or the first `limit` of them, or of mixed ones those `trained`.

        A guess of a user's attack that is not finite has no scores.
        """
        if self.own and not_finite(evidence):
            return Scored(evidence=evidence, scores=Scores(means={}, records={}), rows=rows)
        scores = score(
            evidence,
            self.truth,
            client=self.client,
            seats=self.part.seats,
            rows=rows,
            limit=limit,
            trained=trained,
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
UNEVEN = 1.1  # the largest client's records beside the smallest one's, where names of sources can be exchanged
ABOUT_ASKED = ("attributes", "sources")  # kinds that answer about given records, all of which were trained on
BY_SPLIT = ("membership", "images", "rows", "class-images")  # kinds that held-out records test against luck


def floors_of(context: CaseContext) -> dict[str, Scored]:
    """Return every floor of the attack that this data can supply, scored like the attack.

    A user's attack does not choose: it is compared with all floors of its kind, and with itself without messages.
    """
    floors: dict[str, Scored] = {}
    kind, own = context.attack.kind, context.own
    for name in catalog.floors_of_kind(kind) if own else context.attack.floors:
        if name == "other-optimum":  # computed from the truth, so it is not an attack of the catalogue
            if len(context.truth.train) > 1 and context.client is not None:
                floors[name] = context.score(other_optimum(context.truth, context.client))
            continue
        floor = catalog.floor_for(name, kind)
        grants = disclose(context.truth, floor.grants, client=context.client, seats=context.part.seats)
        view = context.view_with(grants, context.client).without_messages()
        # A curious client may use its own records or leave them: where clients differ they mislead.
        views = [view, replace(view, own=())] if view.own else [view]
        try:
            guesses = [
                context.score(context.infer(floor, variant, own=False, searched=False, restored=False))
                for variant in views
            ]
        except Refused:  # no public share: the floor is missing, and the verdict states it
            continue
        means = strongest([dict(guess.scores.means) for guess in guesses])
        floors[name] = replace(guesses[0], scores=replace(guesses[0].scores, means=means))
    alone = _without_messages(context) if own else None
    return floors if alone is None else floors | {"without-messages": alone}


def _without_messages(context: CaseContext) -> Scored | None:
    """Return the guess of the attack itself from its grants alone; None where it gives none, and for an oracle."""
    view = context.view(context.attack).without_messages()
    if view.grants.is_oracle:
        return None
    guess = _own_answer(context, view)  # None: it needs messages, as it should
    return guess if guess is not None and guess.scores.means else None


def _own_answer(context: CaseContext, view: View, rows: Rows = "train") -> Scored | None:
    """Return the answer of a user's attack to a question that it may not expect; None where it raises an error."""
    try:
        return context.score(context.infer(context.attack, view, own=True), rows)
    except (NoSpaceError, OutOfTime):
        raise
    except FedxrayError:
        return None


def strongest(guesses: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the better value of every metric: no guesser could choose like that, so it is a generous floor."""
    best = dict(guesses[0])
    for guess in guesses[1:]:
        for name, value in guess.items():
            better = min if metric_named(name).down else max
            best[name] = better(best.get(name, value), value)
    return best


def controls_of(
    context: CaseContext, swaps: Mapping[int, Scored] | None = None, rows: Rows = "train"
) -> dict[str, Scored]:
    """Return the attack repeated where it should not work, by the name of the control; `swaps` where they are known.

    With rows = "others" memberships are asked of records set aside.
    """
    makers: dict[str, Callable[[], Scored | None]] = {
        "held-out": lambda: _held_out(context),
        "other-client": lambda: _other_client(context, swaps_of(context) if swaps is None else swaps, rows),
        "global-model": lambda: _global_model(context, rows),
    }
    scored = {name: makers[name]() for name in chosen_controls(context.part, context.attack)}
    return {name: control for name, control in scored.items() if control is not None}


def chosen_controls(part: AttackPart, attack: Attack) -> list[str]:
    """Return the controls that are run: those of the plan, else all that the attack has."""
    return [name for name in possible_controls(part, attack) if part.controls is None or name in part.controls]


def possible_controls(part: AttackPart, attack: Attack) -> list[str]:
    """Return the controls that an attack has.

    A user's attack does not choose: it has those of its kind, and what it declares besides.
    """
    of_kind = catalog.controls_of_kind(attack.kind) if origin_of(part, attack) else []
    return list(dict.fromkeys([*of_kind, *attack.controls]))


def ceilings_of(context: CaseContext) -> dict[str, dict[str, float]]:
    """Return upper bounds that the truth itself gives: for models, another optimum of the same client."""
    if context.attack.kind != "model" or context.client is None:
        return {}
    return {"same-client-other-seed": dict(same_client_other_seed(context.truth, context.client).means)}


def _held_out(context: CaseContext) -> Scored | None:
    """Score the attack on records of the same client that were never trained on.

    They are mixed into the question where it is about given records: an attack may explain the messages by all of them
    together, and would fail on held-out records alone since it lacks those that were trained on.
    """
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
        evidence = context.infer(attack, context.view(attack), own=True)
        limit = len(records_in_question(context.truth, context.client, seats))
        return context.score(evidence, "holdout", limit=limit)
    rows: Rows = "mixed" if attack.kind in ABOUT_ASKED else "holdout"
    view = context.view(attack, rows=rows)
    if rows == "mixed" and not all(need.met(view) for need in attack.needs()):
        return None  # together they are too many
    if context.own:
        return _own_answer(context, view, rows)
    return context.score(context.infer(attack, view, own=True), rows)


def swaps_of(context: CaseContext) -> dict[int, Scored]:
    """Return the attack about this client with the messages of others, by their client.

    For sources it is the score as if each of them were this client, if all clients have about as many records. None
    where held-out records test the same, where only sums are seen, and where an oracle holds the truth.
    """
    part, attack, truth = context.part, context.attack, context.truth
    if not is_swapped(part, attack, held_out=any(map(len, truth.holdout))):
        return {}
    others = others_read(
        part,
        attack,
        client=context.client,
        clients=len(truth.train),
        seed=truth.seed,
        sums=context.transcript.secure_aggregation,
        swapped=True,
    )
    if attack.kind == "sources":
        # Names are exchanged, not messages: fair where messages of all clients are alike but for their records.
        sizes = [len(one) for one in truth.train if len(one)]
        return _attributed(context, others) if max(sizes) <= UNEVEN * min(sizes) + 1 else {}
    answers = {other: _with_messages_of(context, other) for other in others}
    return {other: answer for other, answer in answers.items() if answer is not None}


def is_swapped(part: AttackPart, attack: Attack, *, held_out: bool) -> bool:
    """Return whether other clients' messages test this attack against luck."""
    oracle = any(name.startswith("oracle-") for name in grant_names(part, attack, None))
    return not oracle and not (held_out and attack.kind in BY_SPLIT)


def others_read(
    part: AttackPart, attack: Attack, *, client: int | None, clients: int, seed: int, sums: bool, swapped: bool
) -> list[int]:
    """Return the clients whose messages a case reads in place of this one's: by the run's permutations, else the next.

    `clients` is their number in the run, `sums` states that no single reply is seen.
    """
    after = None if client is None else next_client(client, clients, part.seats)
    if client is None or after is None or not _reads_others(part, attack, client, sums):
        return []
    orders = _swap_orders(seed, clients, part.seats) if swapped and client not in part.seats else []
    return sorted({order[client] for order in orders} - {client}) or [after]


@lru_cache(maxsize=16)
def _swap_orders(seed: int, clients: int, seats: tuple[int, ...]) -> list[dict[int, int]]:
    """Return the permutations of a run's clients but the seats, drawn once for all of its cases."""
    return drawn_permutations(seed, [client for client in range(clients) if client not in seats])


def _reads_others(part: AttackPart, attack: Attack, client: int | None, sums: bool) -> bool:
    """Return whether a case has the control of another client's messages."""
    alone = client is not None and not sums and ROLES[part.role].single_replies
    return alone and "other-client" in chosen_controls(part, attack)


def _with_messages_of(context: CaseContext, other: int, rows: Rows = "train") -> Scored | None:
    view = context.view(context.attack, messages_of=other, rows=rows)
    try:
        return context.score(context.infer(context.attack, view, own=True), rows)
    except Refused:  # the other client took part in none of the rounds that are read
        return None


def _attributed(context: CaseContext, clients: Sequence[int]) -> dict[int, Scored]:
    """Return the score of a guess about sources as if each of these clients were the one asked about."""
    evidence = context.infer(context.attack, context.view(context.attack), own=True)
    if context.client is None or not clients or (context.own and not_finite(evidence)):
        return {}
    owner = source_records(context.truth, context.part.seats)[1]
    shares = source_shares(assigned(evidence, len(context.truth.train)), owner)[context.client].tolist()
    scored = {client: Scores(means={"accuracy": shares[client]}, records={}) for client in clients}
    return {client: Scored(evidence=evidence, scores=scores) for client, scores in scored.items()}


def _other_client(context: CaseContext, swaps: Mapping[int, Scored], rows: Rows) -> Scored | None:
    """Score the attack on the messages of other clients, about the records of this one; the mean over them."""
    part, attack, client = context.part, context.attack, context.client
    if client is None or not _reads_others(part, attack, client, context.transcript.secure_aggregation):
        return None
    after = next_client(client, len(context.truth.train), part.seats)
    if after is None:
        return None
    if attack.kind == "sources":
        return context.score(_under_other_names(context))
    if not swaps:
        return _with_messages_of(context, after, rows)
    first = next(iter(swaps.values()))
    names = set.intersection(*(set(one.scores.means) for one in swaps.values()))
    means = {name: math.fsum(one.scores.means[name] for one in swaps.values()) / len(swaps) for name in sorted(names)}
    return replace(first, scores=Scores(means=means, records={}))


def _under_other_names(context: CaseContext) -> Evidence:
    """Return the guess about sources as if the messages of every client had come from the one before it."""
    evidence = context.infer(context.attack, context.view(context.attack), own=True)
    count = len(context.truth.train)
    neighbours = [next_client(client, count, context.part.seats) for client in range(count)]
    names = [client if after is None else after for client, after in enumerate(neighbours)]
    owners = evidence.tensors["owners"]  # [records]
    renamed = torch.tensor(names, dtype=owners.dtype, device=owners.device)[owners]
    return replace(evidence, tensors={**evidence.tensors, "owners": renamed})


def _global_model(context: CaseContext, rows: Rows) -> Scored | None:
    """Score the attack with the global model in place of the client's."""
    attack = without_client_model(context.attack)
    if attack is None or attack == context.attack:
        return None
    own = attack.kind != "model"  # else it is fedxray's
    return context.score(context.infer(attack, context.view(attack, rows=rows), own=own), rows)


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
    others = ((client + step) % clients for step in range(1, clients))
    return next((other for other in others if other not in seats), None)
