"""The round loop of a federation, written once: broadcast, local training, replies, aggregation, recording.

`simulate` runs a federation from the first round; `continue_run` continues a recorded run for the attacked clients of
an active server. Both draw from generators forked by client and round, so a round does not depend on earlier draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedxray.defences.base import Hooks, Kept, NoDefence
from fedxray.errors import BadInput, Diverged
from fedxray.federation import transcript as transcripts
from fedxray.federation.cohort import ClientJob, train
from fedxray.federation.local import LocalResult, in_train_mode
from fedxray.federation.recipe import Recipe, client_weights
from fedxray.federation.setting import Federation, participants, recorded_rounds
from fedxray.federation.tamper import Tamper
from fedxray.federation.truth import Truth, client_schedule
from fedxray.params import Params, add, buffers_of, is_finite, parameters_of, same_shapes, same_values, weighted_mean
from fedxray.progress import Report, Step, silent
from fedxray.seeds import fork

# Aggregation: the replies of a round become the next global model


def mean_update(updates: Sequence[Params], examples: Sequence[int], recipe: Recipe) -> dict[str, Tensor]:
    """The weighted mean of the replies, by number of examples or uniform."""
    return weighted_mean(updates, client_weights(examples, recipe))


def mean_buffers(
    before: Params, after: Sequence[Params], examples: Sequence[int], recipe: Recipe, *, kept: bool = False
) -> dict[str, Tensor]:
    """The next global buffers: the weighted mean of those returned, or unchanged where clients keep them."""
    if not before or kept or recipe.batch_norm == "local":
        return dict(before)
    return weighted_mean(after, client_weights(examples, recipe))


def apply_update(model: Params, mean: Params, recipe: Recipe) -> dict[str, Tensor]:
    """The next global model; a mean gradient takes the learning rate here, since the clients took no step."""
    rate = recipe.server_learning_rate * (recipe.learning_rate if recipe.kind == "gradient" else 1.0)
    return add(model, mean, rate)


# Recording: every message once, with its readers


class Recorder:
    """The messages of one run so far; their tensors are stored on the shelf."""

    def __init__(self, federation: Federation, seed: int, shelf: transcripts.Shelf) -> None:
        """Start without messages."""
        self._federation, self._seed, self._shelf = federation, seed, shelf
        self._messages: list[transcripts.Message] = []
        self._kept = federation.kept()
        self._written: set[str] = set()

    def exchange(self, round: int, client: int, sent: transcripts.Parts, reply: LocalResult, *, tampered: bool) -> None:
        """Record the model that one client was sent and its reply."""
        recipe = self._federation.recipe
        key = f"sent/{round}/{client}" if tampered else f"global/{round}"  # an honest model is stored once
        broadcast = transcripts.Message(
            what="broadcast",
            round=round,
            client=client,
            parts=self._put(key, sent),
            readers=transcripts.readers_of_broadcast(client),
            tampered=tampered,
        )
        shared = {} if self._kept.statistics else reply.buffers
        reply_message = transcripts.Message(
            what="reply",
            round=round,
            client=client,
            parts=self._put(f"reply/{round}/{client}", transcripts.Parts(reply.update, shared)),
            kind=recipe.kind,
            contributors=(client,),
            examples=len(self._federation.clients[client]),
            readers=transcripts.readers_of_reply(client, self._federation.secure_aggregation),
            tampered=tampered,
        )
        self._messages += [broadcast, reply_message]

    def state(self, round: int, client: int, own: transcripts.Parts) -> None:
        """Record parameters and buffers that never leave a client; parameters that do are stored as zeros."""
        like = parameters_of(self._federation.model) if own.params else {}
        params = {name: own.params.get(name, torch.zeros_like(value)) for name, value in like.items()}
        key = self._put(f"state/{round}/{client}", transcripts.Parts(params, own.buffers))
        readers = frozenset({transcripts.client_reader(client)})
        self._messages.append(transcripts.Message(what="state", round=round, client=client, parts=key, readers=readers))

    def ends(
        self, round: int, contributors: tuple[int, ...], mean: dict[str, Tensor], after: transcripts.Parts
    ) -> None:
        """Record the mean of the replies and the model that a round ended with."""
        federation = self._federation
        total = transcripts.Message(
            what="sum",
            round=round,
            client=None,
            parts=self._put(f"sum/{round}", transcripts.Parts(mean)),
            kind=federation.recipe.kind,
            examples=sum(len(federation.clients[client]) for client in contributors),
            contributors=contributors,
            readers=transcripts.readers_of_sum(),
        )
        last = round == federation.rounds - 1
        following = () if last else tuple(participants(federation, self._seed, round + 1))
        everyone = tuple(range(len(federation.clients)))
        outcome = transcripts.Message(
            what="outcome",
            round=round,
            client=None,
            parts=self._put(f"global/{round + 1}", after),
            readers=transcripts.readers_of_outcome(following, last, everyone),
        )
        self._messages += [total, outcome]

    def _put(self, key: str, parts: transcripts.Parts) -> str:
        """Store the tensors of a key the first time it occurs, and return the key."""
        if key not in self._written:
            self._shelf.put(key, parts)
            self._written.add(key)
        return key

    def transcript(self) -> transcripts.Transcript:
        """The transcript of what was recorded so far."""
        federation = self._federation
        return transcripts.Transcript(
            messages=tuple(self._messages),
            shelf=self._shelf,
            model=federation.model,
            space=federation.space,
            loss=federation.recipe.loss,
            clients=len(federation.clients),
            secure_aggregation=federation.secure_aggregation,
        )


# The loop


def simulate(
    federation: Federation, *, seed: int = 0, shelf: transcripts.Shelf | None = None, report: Report = silent
) -> tuple[transcripts.Transcript, Truth]:
    """Run a federation from the weights of its model and return its transcript and the truth behind it.

    The model itself is not changed. `shelf` is where tensors are stored (default: in memory).
    """
    run = _Run(federation, seed, shelf if shelf is not None else transcripts.MemoryShelf())
    model = transcripts.Parts(parameters_of(federation.model), buffers_of(federation.model))
    for round in range(federation.rounds):
        model = run.round(round, model)
        report(Step("federation", round + 1, federation.rounds))
    return run.recorder.transcript(), federation.truth(seed)


@dataclass(frozen=True)
class Branch:
    """The result of an active server: its own messages, the state of its tamper, and the client rounds it spent."""

    transcript: transcripts.Transcript
    state: Any
    rounds_spent: int


def continue_run(
    federation: Federation,
    transcript: transcripts.Transcript,
    *,
    seed: int,
    after: int,
    clients: Sequence[int],
    rounds: int,
    tamper: Tamper,
    shelf: transcripts.Shelf | None = None,
    report: Report = silent,
) -> Branch:
    """Continue a recorded run for the attacked clients alone, with a server that tampers.

    `after` is the recorded round from which the branch starts, `rounds` the number of rounds to run. Tampered replies
    do not enter the aggregate: the tamper alone decides what these clients are sent, and the honest model that it is
    shown stays the one after the recorded round.
    """
    _check_branch(federation, transcript, clients)
    run = _Run(federation, seed, shelf if shelf is not None else transcripts.MemoryShelf())
    run.own.update(client_states(transcript, federation.kept(), after))
    run.adapt(transcript, after)
    model = transcript.shelf.get(transcript.outcome(after).parts)
    state = tamper.start()
    for step, round in enumerate(range(after + 1, after + 1 + rounds)):
        starts = {}
        for client in clients:
            sent, state = tamper.send(state, round, client, model.params)
            starts[client] = transcripts.Parts(_checked_sent(sent, model.params), model.buffers)
        # Only the round after the branch point, with the honest model, is one of the recorded run, with its draws.
        known = step == 0 and all(same_values(start.params, model.params) for start in starts.values())
        replies = run.replies(round, starts, fresh=not known)
        run.write(round, starts, replies, tampered=True)
        for client, reply in replies.items():
            state = tamper.receive(state, round, client, reply.update)
        report(Step("active rounds", step + 1, rounds))
    return Branch(run.recorder.transcript(), state, rounds * len(clients))


def _check_branch(federation: Federation, transcript: transcripts.Transcript, clients: Sequence[int]) -> None:
    """Refuse a recording, whose clients cannot be asked again, and unknown clients."""
    if transcript.recorded:
        raise BadInput(
            "transcript",
            expected="a simulated run",
            got="a recording of a live federation",
            remedy="An active attack must ask the clients again; use a passive one on a recording.",
        )
    if not clients or any(not 0 <= client < len(federation.clients) for client in clients):
        expected = f"clients from 0 to {len(federation.clients) - 1}"
        raise BadInput("clients", expected=expected, got=list(clients), remedy="Name the attacked clients.")


def _checked_sent(sent: dict[str, Tensor], like: Params) -> dict[str, Tensor]:
    if not same_shapes(sent, like):
        remedy = "A tamper may change values only."
        raise BadInput("tamper", expected="the parameters of the model", got=list(sent), remedy=remedy)
    return sent


def client_states(transcript: transcripts.Transcript, kept: Kept, round: int) -> dict[int, transcripts.Parts]:
    """Parameters and buffers that every client kept to itself, as they were at the end of a round."""
    latest: dict[int, tuple[int, str]] = {}  # client -> round and key
    for message in transcript.messages:
        if message.what == "state" and message.client is not None and message.round <= round:
            latest[message.client] = max(latest.get(message.client, (-1, "")), (message.round, message.parts))
    own = {client: transcript.shelf.get(parts) for client, (_, parts) in latest.items()}
    return {
        client: transcripts.Parts({name: parts.params[name] for name in kept.params}, parts.buffers)
        for client, parts in own.items()
    }


class _Run:
    """The state of one run: the recorder, and the parameters and buffers that clients keep to themselves."""

    def __init__(self, federation: Federation, seed: int, shelf: transcripts.Shelf) -> None:
        self.federation, self.seed = federation, seed
        self.recorder = Recorder(federation, seed, shelf)
        self.own: dict[int, transcripts.Parts] = {}
        self._kept_by_clients = federation.kept()
        self._network = in_train_mode(federation.model)
        self._kept = recorded_rounds(federation.record, federation.rounds)
        self._defence, self._hooks = federation.defence, dict[int, Hooks]()
        # Noise that follows from the seed could be subtracted by an attack that finds it.
        self._root = seed if isinstance(federation.defence, NoDefence) else federation.truth(seed).secret
        self._unsaved: set[int] = set()  # clients whose own state changed since it was recorded

    def round(self, round: int, model: transcripts.Parts) -> transcripts.Parts:
        """Run one honest round and return the next global model."""
        federation, recipe = self.federation, self.federation.recipe
        starts = dict.fromkeys(participants(federation, self.seed, round), model)
        replies = self.replies(round, starts)
        examples = [len(federation.clients[client]) for client in replies]
        mean = mean_update([reply.update for reply in replies.values()], examples, recipe)
        returned, local = [reply.buffers for reply in replies.values()], self._kept_by_clients.statistics
        buffers = mean_buffers(model.buffers, returned, examples, recipe, kept=local)
        after = transcripts.Parts(apply_update(model.params, mean, recipe), buffers)
        _check_finite(after, round, federation)
        self._next_round([reply.update for reply in replies.values()])
        if round in self._kept:
            self.write(round, starts, replies, tampered=False)
            self.recorder.ends(round, tuple(replies), mean, after)
        return after

    def replies(
        self, round: int, starts: dict[int, transcripts.Parts], *, fresh: bool = False
    ) -> dict[int, LocalResult]:
        """The replies of the clients to the models they were sent; `fresh` draws anew, for a tampered round."""
        jobs = [self._job(round, client, start, fresh) for client, start in starts.items()]
        results = train(self._network, jobs, self.federation.recipe)
        for job, result in zip(jobs, results, strict=True):
            buffers = result.buffers if self._kept_by_clients.statistics else {}
            if buffers or result.kept:
                self.own[job.client] = transcripts.Parts(result.kept, buffers)
                self._unsaved.add(job.client)
        return {job.client: result for job, result in zip(jobs, results, strict=True)}

    def write(
        self, round: int, starts: dict[int, transcripts.Parts], replies: dict[int, LocalResult], *, tampered: bool
    ) -> None:
        """Record the messages of a round, and the own state of every client where it changed."""
        for client, reply in replies.items():
            self.recorder.exchange(round, client, starts[client], reply, tampered=tampered)
        for client in sorted(self._unsaved):
            self.recorder.state(round, client, self.own[client])
        self._unsaved.clear()

    def _job(self, round: int, client: int, start: transcripts.Parts, fresh: bool) -> ClientJob:
        """One client's work in a round, from the model it was sent and its own state."""
        records, recipe = self.federation.clients[client], self.federation.recipe
        hooks = self._hooks_of(client)
        # A server that repeats a round must not get the same noise twice, or it could subtract it.
        asked = (start.params,) if fresh else ()
        own = self.own.get(client, transcripts.Parts({}))
        job = ClientJob(
            client=client,
            start={**start.params, **own.params},
            buffers=own.buffers or start.buffers,
            x=records.x,
            y=records.y,
            schedule=client_schedule(len(records), recipe, self.seed, client, round, hooks.sampling, asked),
            hooks=hooks,
            generator=fork(self._root, "client", client, round, *asked),
        )
        return job if self.federation.planted is None else self.federation.planted(job)

    def _hooks_of(self, client: int) -> Hooks:
        if client not in self._hooks:
            self._hooks[client] = self._defence.hooks(self.federation.work(client))
        return self._hooks[client]

    def _next_round(self, updates: Sequence[Params]) -> None:
        """Let the defence change between rounds."""
        following = self._defence.after_round(updates)
        if following is not self._defence:
            self._defence, self._hooks = following, {}

    def adapt(self, transcript: transcripts.Transcript, after: int) -> None:
        """Let a defence that adapts reach the state that it had after a recorded round."""
        if not self._defence.adapts():
            return
        for round in range(after + 1):
            replies = [one for one in transcript.messages if one.what == "reply" and one.round == round]
            if not replies:
                expected, got = "all rounds, for a defence that changes with them", f"none of round {round}"
                raise BadInput("federation.record", expected=expected, got=got, remedy='Set record = "all".')
            self._next_round([transcript.shelf.get(one.parts).params for one in replies])


def _check_finite(model: transcripts.Parts, round: int, federation: Federation) -> None:
    """Raise `Diverged` where the global model is no longer finite."""
    if not is_finite(model.params) or not is_finite(model.buffers):
        noise = "" if isinstance(federation.defence, NoDefence) else " or the noise of the defence"
        scale = ", or scale the target (scale_target = true)" if federation.space.target == "regression" else ""
        raise Diverged(
            "learning_rate",
            expected="a training that stays finite",
            got=f"a model with infinite or NaN entries after round {round}",
            remedy=f"Lower learning_rate ({federation.recipe.learning_rate:g}){noise}{scale}.",
        )
