"""The round loop, written once: broadcast, local work, replies, aggregation, record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor, nn

from fedxray.data.records import Records
from fedxray.data.space import Space
from fedxray.defences.base import Defence, NoDefence, Seams, Work
from fedxray.errors import BadInput
from fedxray.federation.aggregate import apply_update, mean_update
from fedxray.federation.cohort import Job, check_batches, train
from fedxray.federation.local import LocalResult
from fedxray.federation.message import (
    Message,
    client_seat,
    readers_of_broadcast,
    readers_of_outcome,
    readers_of_reply,
    readers_of_sum,
)
from fedxray.federation.recipe import Recipe
from fedxray.federation.tamper import Tamper
from fedxray.federation.transcript import MemoryShelf, Parts, Shelf, Transcript
from fedxray.federation.truth import Truth, client_schedule
from fedxray.params import buffers_of, is_finite, parameters_of, weighted_mean
from fedxray.progress import Report, Step, silent
from fedxray.seeds import fork, permutation

Recorded = Literal["all", "last"] | str | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Everything that defines a run but its seed: who holds what, the network, the recipe, the protocol."""

    space: Space
    clients: tuple[Records, ...]
    model: nn.Module
    recipe: Recipe = field(default_factory=Recipe)
    rounds: int = 1
    participation: float = 1.0
    defence: Defence = field(default_factory=NoDefence)
    secure_aggregation: bool = False
    record: Recorded = "all"
    holdout: tuple[Records, ...] = ()
    public: Records | None = None

    def __post_init__(self) -> None:
        """Check what can be checked before anything runs."""
        if not self.clients:
            raise BadInput(
                "clients", expected="at least one client", got=0, remedy="Give clients = 2 or more."
            )
        for client, records in enumerate(self.clients):
            if len(records) == 0:
                raise BadInput(
                    "clients",
                    expected="examples at every client",
                    got=f"none at client {client}",
                    remedy="Use fewer clients, another partition, or more data.",
                )
        if self.rounds < 1:
            raise BadInput(
                "rounds", expected="a whole number of at least 1", got=self.rounds, remedy="Try rounds = 10."
            )
        if not 0 < self.participation <= 1:
            raise BadInput(
                "participation",
                expected="a share above 0 and up to 1",
                got=self.participation,
                remedy="Try 1.0.",
            )
        check_batches(self.model, [len(records) for records in self.clients], self.recipe)
        recorded_rounds(self.record, self.rounds)

    def truth(self, seed: int) -> Truth:
        """What really happens in the run of this seed."""
        empty = Records(self.clients[0].x[:0], self.clients[0].y[:0])
        return Truth(
            space=self.space,
            model=self.model,
            recipe=self.recipe,
            defence=self.defence,
            train=self.clients,
            holdout=self.holdout or (empty,) * len(self.clients),
            public=self.public or empty,
            seed=seed,
            rounds=self.rounds,
        )


def recorded_rounds(record: Recorded, rounds: int) -> set[int]:
    """The rounds that a setting of `record` keeps; the last one is always kept."""
    if isinstance(record, tuple):
        if any(not 0 <= round < rounds for round in record):
            raise BadInput(
                "record",
                expected=f"rounds from 0 to {rounds - 1}",
                got=list(record),
                remedy="Leave out what is beyond.",
            )
        return {*record, rounds - 1}
    if record == "all":
        return set(range(rounds))
    if record == "last":
        return {rounds - 1}
    gap = record.removeprefix("every-")
    if record.startswith("every-") and gap.isdigit() and int(gap) > 0:
        return {*range(0, rounds, int(gap)), rounds - 1}
    raise BadInput(
        "record",
        expected='"all", "last", "every-10" or a list of rounds',
        got=repr(record),
        remedy='Try "all".',
    )


def simulate(
    federation: Federation, *, seed: int = 0, shelf: Shelf | None = None, report: Report = silent
) -> tuple[Transcript, Truth]:
    """Run a federation from the model's own weights and record it."""
    run = _Run(federation, seed, shelf if shelf is not None else MemoryShelf())
    model = Parts(parameters_of(federation.model), buffers_of(federation.model))
    for round in range(federation.rounds):
        model = run.round(round, model)
        report(Step("federation", round + 1, federation.rounds))
    return run.transcript(), federation.truth(seed)


@dataclass(frozen=True)
class Branch:
    """What an active server got: its own messages, the state of its tampering, and the rounds it spent."""

    transcript: Transcript
    state: Any
    rounds_spent: int


def continue_run(
    federation: Federation,
    transcript: Transcript,
    *,
    seed: int,
    after: int,
    clients: Sequence[int],
    rounds: int,
    tamper: Tamper,
    shelf: Shelf | None = None,
    report: Report = silent,
) -> Branch:
    """Go on from a recorded round for the attacked clients alone, with a server that tampers.

    Tampered replies do not enter the aggregate, so what these clients are sent is the tamper's business from here on.
    """
    if transcript.recorded:
        raise BadInput(
            "transcript",
            expected="a simulated run",
            got="a recording of a live federation",
            remedy="An active attack must ask the clients again; use a passive one on a recording.",
        )
    run = _Run(federation, seed, shelf if shelf is not None else MemoryShelf())
    run.local_buffers.update(_recorded_states(transcript, after))
    model = transcript.shelf.get(transcript.outcome(after).parts)
    state = tamper.start()
    for step, round in enumerate(range(after + 1, after + 1 + rounds)):
        starts = {}
        for client in clients:
            sent, state = tamper.send(state, round, client, model.params)
            starts[client] = Parts(sent, model.buffers)
        replies = run.replies(round, starts)
        run.write(round, starts, replies, tampered=True)
        for client, reply in replies.items():
            state = tamper.receive(state, round, client, reply.update)
        report(Step("active rounds", step + 1, rounds))
    return Branch(run.transcript(), state, rounds * len(clients))


def _recorded_states(transcript: Transcript, round: int) -> dict[int, dict[str, Tensor]]:
    """The clients' own buffers as they were at the end of a round, where they are kept local."""
    found: dict[int, tuple[int, str]] = {}
    for message in transcript.messages:
        if message.what == "state" and message.client is not None and message.round <= round:
            found[message.client] = max(found.get(message.client, (-1, "")), (message.round, message.parts))
    return {client: transcript.shelf.get(parts).buffers for client, (_, parts) in found.items()}


class _Run:
    """The moving parts of one run: what was recorded so far and the clients' own buffers."""

    def __init__(self, federation: Federation, seed: int, shelf: Shelf) -> None:
        self.federation, self.seed, self.shelf = federation, seed, shelf
        self.messages: list[Message] = []
        self.local_buffers: dict[int, dict[str, Tensor]] = {}
        self.kept = recorded_rounds(federation.record, federation.rounds)
        self.seams: dict[int, Seams] = {}
        self._written: set[str] = set()

    def round(self, round: int, model: Parts) -> Parts:
        """One honest round: the next global model."""
        federation, recipe = self.federation, self.federation.recipe
        starts = dict.fromkeys(self.participants(round), model)
        replies = self.replies(round, starts)
        examples = [len(federation.clients[client]) for client in replies]
        mean = mean_update([reply.update for reply in replies.values()], examples, recipe)
        weights = [float(count) if recipe.weighting == "examples" else 1.0 for count in examples]
        buffers = model.buffers
        if buffers and recipe.batch_norm == "shared":
            buffers = weighted_mean([reply.buffers for reply in replies.values()], weights)
        after = Parts(apply_update(model.params, mean, recipe), buffers)
        _check_finite(after, round)
        if round in self.kept:
            self.write(round, starts, replies)
            self._write_ends(round, replies, mean, after)
        return after

    def participants(self, round: int) -> list[int]:
        """The clients of a round, ascending."""
        count = len(self.federation.clients)
        chosen = max(1, int(self.federation.participation * count + 0.5))
        order = permutation(count, fork(self.seed, "participation", round))
        return sorted(order[:chosen].tolist())

    def replies(self, round: int, starts: dict[int, Parts]) -> dict[int, LocalResult]:
        """What the clients send back for what they were sent."""
        jobs = [self._job(round, client, start) for client, start in starts.items()]
        results = train(self.federation.model, jobs, self.federation.recipe)
        for job, result in zip(jobs, results, strict=True):
            if self.federation.recipe.batch_norm == "local" and result.buffers:
                self.local_buffers[job.client] = result.buffers
        return {job.client: result for job, result in zip(jobs, results, strict=True)}

    def _job(self, round: int, client: int, start: Parts) -> Job:
        records, recipe = self.federation.clients[client], self.federation.recipe
        local = recipe.batch_norm == "local"
        return Job(
            client=client,
            start=start.params,
            buffers=self.local_buffers.get(client, start.buffers) if local else start.buffers,
            x=records.x,
            y=records.y,
            schedule=client_schedule(len(records), recipe, self.seed, client, round),
            seams=self._seams_of(client),
            generator=fork(self.seed, "client", client, round),
        )

    def _seams_of(self, client: int) -> Seams:
        if client not in self.seams:
            count, recipe = len(self.federation.clients[client]), self.federation.recipe
            work = Work(
                examples=count,
                batch_size=recipe.batch_length(count),
                steps=recipe.steps(count),
                rounds=self.federation.rounds,
            )
            self.seams[client] = self.federation.defence.seams(work)
        return self.seams[client]

    def write(
        self, round: int, starts: dict[int, Parts], replies: dict[int, LocalResult], tampered: bool = False
    ) -> None:
        """Record what was sent and what came back."""
        recipe = self.federation.recipe
        for client, reply in replies.items():
            sent, back = (
                f"sent/{round}/{client}" if tampered else f"global/{round}",
                f"reply/{round}/{client}",
            )
            self._put(sent, starts[client])
            shared = reply.buffers if recipe.batch_norm == "shared" else {}
            self._put(back, Parts(reply.update, shared))
            self.messages.append(
                Message(
                    what="broadcast",
                    round=round,
                    client=client,
                    parts=sent,
                    readers=readers_of_broadcast(client),
                    tampered=tampered,
                )
            )
            self.messages.append(
                Message(
                    what="reply",
                    round=round,
                    client=client,
                    parts=back,
                    kind=recipe.kind,
                    contributors=(client,),
                    examples=len(self.federation.clients[client]),
                    tampered=tampered,
                    readers=readers_of_reply(client, self.federation.secure_aggregation),
                )
            )
            if recipe.batch_norm == "local" and reply.buffers:
                self._put(f"state/{round}/{client}", Parts({}, reply.buffers))
                self.messages.append(
                    Message(
                        what="state",
                        round=round,
                        client=client,
                        parts=f"state/{round}/{client}",
                        readers=frozenset({client_seat(client)}),
                    )
                )

    def _write_ends(
        self, round: int, replies: dict[int, LocalResult], mean: dict[str, Tensor], after: Parts
    ) -> None:
        federation = self.federation
        self._put(f"sum/{round}", Parts(mean))
        self._put(f"global/{round + 1}", after)
        total = sum(len(federation.clients[client]) for client in replies)
        self.messages.append(
            Message(
                what="sum",
                round=round,
                client=None,
                parts=f"sum/{round}",
                kind=federation.recipe.kind,
                examples=total,
                contributors=tuple(replies),
                readers=readers_of_sum(),
            )
        )
        last = round == federation.rounds - 1
        following = () if last else tuple(self.participants(round + 1))
        everyone = tuple(range(len(federation.clients)))
        self.messages.append(
            Message(
                what="outcome",
                round=round,
                client=None,
                parts=f"global/{round + 1}",
                readers=readers_of_outcome(following, last, everyone),
            )
        )

    def _put(self, key: str, parts: Parts) -> None:
        if key not in self._written:
            self.shelf.put(key, parts)
            self._written.add(key)

    def transcript(self) -> Transcript:
        """What was recorded so far."""
        federation = self.federation
        return Transcript(
            messages=tuple(self.messages),
            shelf=self.shelf,
            model=federation.model,
            space=federation.space,
            loss=federation.recipe.loss,
            clients=len(federation.clients),
            secure_aggregation=federation.secure_aggregation,
        )


def _check_finite(model: Parts, round: int) -> None:
    if not is_finite(model.params):
        raise BadInput(
            "learning_rate",
            expected="a training that stays finite",
            got=f"a model with infinite or NaN entries after round {round}",
            remedy="Lower the learning rate, or scale the target (scale_target = true).",
        )


def reseeded(truth: Truth, seed: int) -> Truth:
    """The same facts under another seed, for tests of what a seed gives away."""
    return replace(truth, seed=seed)


__all__ = ["Branch", "Federation", "Recorded", "continue_run", "recorded_rounds", "reseeded", "simulate"]
