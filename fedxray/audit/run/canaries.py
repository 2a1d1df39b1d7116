"""Canaries in a run, by which it measures its own epsilon: put in, and found again in what the server sees.

- Canary clients send a random update in every round, through the same outgoing defence and mean as any client.
- Canary gradients are examples of a client with random gradients, through the same clipping and noise as any example.
- Canary records are records of a client, perhaps with random targets, that are attacked by `membership-best`.
Gradients and records are in or out by independent coins, drawn from the run's secret and never from its seed. Runs with
canaries are runs of their own: the audit's other results do not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.attacks.membership import MembershipBest
from fedxray.audit.judge import results
from fedxray.audit.plan.schema import CanariesPart
from fedxray.audit.run.utility import REMEDY
from fedxray.data.dataset import Records, union
from fedxray.defences.base import IDENTITY, Clipped, ExampleGradients, Hooks, OnGradients, OnParams, State
from fedxray.errors import BadInput
from fedxray.federation.cohort import ClientJob, train_one
from fedxray.federation.recipe import Recipe, Schedule
from fedxray.federation.round_loop import mean_update
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Message, Parts, Transcript
from fedxray.federation.truth import Truth
from fedxray.files import read_json
from fedxray.models.inspect import has_batch_norm
from fedxray.params import Params, flatten, parameters_of, subtract, unflatten
from fedxray.seeds import fork, permutation

FILE = "canaries.json"
MOST_ENTRIES = 500_000_000  # of all canaries together
TINY = 1e-30  # instead of dividing by zero

RandomTargets = Callable[[Federation, Records, int, torch.Generator], Records]


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """The canaries of one run; called with a client's work in a round, it puts them in."""

    honest: int  # clients of the plan; canary clients come after them
    kind: str
    like: Params  # parameters that leave a client, for their names and shapes
    recipe: Recipe
    updates: Tensor  # [canary clients, entries]
    gradients: tuple[Tensor, ...]  # by client, as they change an update: [canaries, entries]
    records: tuple[Records, ...]  # by client
    inside: tuple[Tensor, ...]  # by client, the coins: [canaries] bool

    def __call__(self, job: ClientJob) -> ClientJob:
        """Return the work of a client with its canaries."""
        if job.client >= self.honest:
            update = unflatten(self.updates[job.client - self.honest], self.like)
            hooks = Hooks(outgoing=partial(_send_instead, update, job.hooks.outgoing), kept=job.hooks.kept)
            return replace(job, schedule=Schedule(job.schedule.index[:0]), hooks=hooks)  # it does not train
        if not self.gradients:
            return job
        examples, sampling = len(job.x), job.hooks.sampling
        batches = -(-examples // self.recipe.batch_length(examples))
        rate = 1 / batches if sampling is None else sampling.rate
        present = self.gradients[job.client][self.inside[job.client]]
        hook = partial(_with_gradients, -present, rate, self.like, job.hooks.gradients)
        return replace(job, hooks=replace(job.hooks, gradients=hook))


def _send_instead(
    canary: Params, then: OnParams | None, update: dict[str, Tensor], state: State, generator: torch.Generator
) -> tuple[dict[str, Tensor], State]:
    """Send a canary in place of the update, through the defence."""
    changed = {name: canary.get(name, torch.zeros_like(value)) for name, value in update.items()}
    return (changed, state) if then is None else then(changed, state, generator)


def _with_gradients(
    canaries: Tensor,
    rate: float,
    like: Params,
    then: OnGradients | None,
    value: ExampleGradients,
    state: State,
    generator: torch.Generator,
) -> tuple[ExampleGradients, State]:
    """Add canaries [canaries, entries], each by its own chance, to the examples of a step, before the defence."""
    drawn = canaries[torch.rand(len(canaries), generator=generator, device="cpu") < rate]
    pieces = dict(zip(like, drawn.split([entry.numel() for entry in like.values()], dim=1), strict=True))
    each = {
        name: torch.cat([own, pieces[name].reshape(-1, *own.shape[1:])])
        if name in pieces
        else torch.cat([own, own.new_zeros(len(drawn), *own.shape[1:])])
        for name, own in value.each.items()
    }
    value = replace(value, each=each)
    return (value, state) if then is None else then(value, state, generator)


def put_canaries(federation: Federation, part: CanariesPart, seed: int, relabel: RandomTargets) -> Federation:
    """Return the federation with canaries; `relabel` returns records with random targets."""
    check_canaries(federation, part)
    secret, honest, kept = federation.truth(seed).secret, len(federation.clients), federation.kept()
    like = {name: value for name, value in parameters_of(federation.model).items() if name not in kept.params}
    entries, first = sum(value.numel() for value in like.values()), next(iter(like.values()))

    def directions(count: int, what: Clipped, *names: object) -> Tensor:
        drawn = torch.randn(count, entries, generator=fork(secret, *names), device="cpu").to(first)
        norm = part.norm or federation.defence.clip_of(what) or 1.0
        scaled: Tensor = norm * drawn / drawn.norm(dim=1, keepdim=True)
        return scaled

    coins = [torch.rand(part.records, generator=fork(secret, "coins", client)) < 0.5 for client in range(honest)]
    by_gradient = part.kind == "gradients" and part.records > 0
    canaries = Canaries(
        honest=honest,
        kind=part.kind,
        like=like,
        recipe=federation.recipe,
        updates=directions(part.clients, "updates", "canary clients"),
        gradients=tuple(
            directions(part.records, "gradients", "gradients", client) for client in range(honest) if by_gradient
        ),
        records=(),
        inside=tuple(coins) if part.records else (),
    )
    if part.records and not by_gradient:
        federation, canaries = _with_records(federation, canaries, part, secret, relabel)
    guests = tuple(federation.clients[index % honest] for index in range(part.clients))  # for their weight in the mean
    nothing = tuple(records.take(torch.arange(0)) for records in guests) if federation.holdout else ()
    return replace(
        federation, clients=(*federation.clients, *guests), holdout=(*federation.holdout, *nothing), planted=canaries
    )


def _with_records(
    federation: Federation, canaries: Canaries, part: CanariesPart, secret: int, relabel: RandomTargets
) -> tuple[Federation, Canaries]:
    """Return the federation whose clients train on some of their canary records and hold out the others."""
    train, holdout, chosen = [], [], []
    kept_out = federation.holdout or tuple(records.take(torch.arange(0)) for records in federation.clients)
    for client, records in enumerate(federation.clients):
        order = permutation(len(records), fork(secret, "canary records", client)).to(records.x.device)
        own = records.take(order[: part.records])
        if part.kind == "random-targets":
            own = relabel(federation, own, client, fork(secret, "random targets", client))
        inside = canaries.inside[client].to(records.x.device)
        train.append(union((records.take(order[part.records :]), own.take(inside.nonzero()[:, 0]))))
        holdout.append(union((kept_out[client], own.take((~inside).nonzero()[:, 0]))))
        chosen.append(own)
    changed = replace(federation, clients=tuple(train), holdout=tuple(holdout))
    return changed, replace(canaries, records=tuple(chosen))


def check_canaries(federation: Federation, part: CanariesPart) -> None:
    """Refuse canaries that this federation cannot take."""
    if part.records and part.kind == "gradients" and has_batch_norm(federation.model):
        got, remedy = "a model with BatchNorm", 'Use kind = "records", or a model with norm = "none".'
        expected = "a model without BatchNorm, which mixes the examples of a batch"
        raise BadInput("canaries.kind", expected=expected, got=got, remedy=remedy)
    smallest = min(len(records) for records in federation.clients)
    if part.records and part.kind != "gradients" and part.records >= smallest:
        expected = f"fewer than the records of the smallest client ({smallest})"
        raise BadInput("canaries.records", expected=expected, got=part.records, remedy="Use fewer.")
    entries = sum(value.numel() for value in parameters_of(federation.model).values())
    count = part.clients + (part.records * len(federation.clients) if part.kind == "gradients" else 0)
    if count * entries > MOST_ENTRIES:
        expected = f"at most {MOST_ENTRIES // entries:,} random directions for a network of {entries:,} parameters"
        raise BadInput("canaries", expected=expected, got=f"{count:,}", remedy="Use fewer canaries.")


# What the server sees of them

CanaryScores = dict[str, Any]


def write_measured(folder: Path, federation: Federation, transcript: Transcript, truth: Truth) -> None:
    """Store how far each canary shows in the messages of a run."""
    assert isinstance(federation.planted, Canaries)
    found = results.plain(measure_canaries(federation.planted, federation, transcript, truth), "canaries")
    (folder / FILE).write_text(json.dumps(found, allow_nan=False))


def read_measured(folder: Path) -> CanaryScores:
    """Return what was stored."""
    found: CanaryScores = read_json(folder / FILE, remedy=REMEDY)
    results.check_part(found, "measured", folder / FILE, REMEDY)
    return found


def measure_canaries(canaries: Canaries, federation: Federation, transcript: Transcript, truth: Truth) -> CanaryScores:
    """Return the cosines of canaries with what is seen, and the scores of those that are in by coin, with their coins.

    Several rounds count by the sum of their directions. `most` is the largest mean cosine that canaries could have.
    """
    seen = _Seen(canaries, federation, transcript, truth)
    masked, clients = transcript.secure_aggregation, range(canaries.honest)
    found: CanaryScores = {"dimension": len(flatten(canaries.like)), "kind": canaries.kind, "most": {}}
    if count := len(canaries.updates):
        found["clients"] = {
            "aggregates": _cosines(canaries.updates, seen.aggregates()),
            "final-model": _cosines(canaries.updates, seen.final_model()),
        }
        found["most"]["clients"] = _most([canaries.updates])
        if not masked:
            own = [seen.replies(canaries.honest + index) for index in range(count)]
            found["clients"]["replies"] = [_cosines(canaries.updates[i, None], own[i])[0] for i in range(count)]
    if not canaries.inside:
        return found
    if canaries.gradients:
        sums = (
            [seen.unexplained(None)] * canaries.honest if masked else [seen.unexplained(client) for client in clients]
        )
        scores = [_cosines(canaries.gradients[client], sums[client]) for client in clients]
        present = [canaries.gradients[client][canaries.inside[client]] for client in clients]
        found["most"]["records"] = _most([torch.cat(present)] if masked else present)
    else:
        scores = [_membership(canaries, transcript, truth, client) for client in clients]
    return found | {
        "scores": [score for scores_of_client in scores for score in scores_of_client],
        "inside": [bool(coin) for coins in canaries.inside for coin in coins],
        "seen": "aggregates" if masked else "replies",
    }


@dataclass(frozen=True)
class _Seen:
    """Directions of what the server sees, each [entries] and summed over rounds; zero where it sees nothing."""

    canaries: Canaries
    federation: Federation
    transcript: Transcript
    truth: Truth

    @cached_property
    def by_client(self) -> dict[tuple[str, int | None], list[Message]]:
        """Messages by what they are and whose, in order; read once, since there are as many as clients and rounds."""
        found: dict[tuple[str, int | None], list[Message]] = {}
        for message in self.transcript.messages:
            found.setdefault((message.what, message.client), []).append(message)
        return found

    @cached_property
    def sent(self) -> dict[tuple[int | None, int], Message]:
        """The model that was sent, by client and round."""
        return {(message.client, message.round): message for message in self._messages("broadcast")}

    def replies(self, client: int) -> Tensor:
        """Return the direction of a client's replies."""
        return self._sum(self._get(message).params for message in self.by_client.get(("reply", client), ()))

    def aggregates(self) -> Tensor:
        """Return the direction of the mean updates."""
        return self._sum(self._get(message).params for message in self._messages("sum"))

    def final_model(self) -> Tensor:
        """Return how far the final model is from the initial one."""
        last = self._get(self._messages("outcome")[-1]).params
        return self._flat(subtract(last, parameters_of(self.truth.model)))

    def unexplained(self, client: int | None) -> Tensor:
        """Return the direction of a client's replies, or of the mean updates, minus what its own records explain.

        Differential privacy holds against an adversary who knows all other records and in which steps they were used.
        """
        if client is not None:
            return self._sum(self._rest(reply) for reply in self.by_client.get(("reply", client), ()))
        honest = [reply for reply in self._messages("reply") if reply.client in range(self.canaries.honest)]
        by_round: dict[int, list[Message]] = {}
        for reply in honest:
            by_round.setdefault(reply.round, []).append(reply)
        return self._sum(
            mean_update(
                [self._rest(reply) for reply in replies], [reply.examples or 1 for reply in replies], self.truth.recipe
            )
            for replies in by_round.values()
        )

    def _rest(self, reply: Message) -> Params:
        """Return a reply minus the update that the client's records give without canaries and without noise."""
        client, round = reply.client, reply.round
        assert client is not None
        start, known = (
            self._get(self.sent[client, round]),
            self.federation.defence.hooks(self.federation.work(client)).known,
        )
        job = ClientJob(
            client=client,
            start=start.params,
            buffers=start.buffers,
            x=self.truth.train[client].x,
            y=self.truth.train[client].y,
            schedule=self.truth.schedule(client, round),
            hooks=IDENTITY if known is None else known.replay,
            generator=fork(self.truth.secret, "explained", client, round),
        )
        return subtract(self._get(reply).params, train_one(self.federation.model, job, self.truth.recipe).update)

    def _messages(self, what: str) -> list[Message]:
        return [message for message in self.transcript.messages if message.what == what]

    def _get(self, message: Message) -> Parts:
        return self.transcript.shelf.get(message.parts)

    def _sum(self, updates: Iterable[Params]) -> Tensor:
        total = torch.zeros_like(flatten(self.canaries.like))
        for update in updates:
            vector = self._flat(update)
            total = total + vector / vector.norm().clamp(min=TINY)
        return total

    def _flat(self, params: Params) -> Tensor:
        return flatten({name: params[name] for name in self.canaries.like})


def _most(groups: Sequence[Tensor]) -> float:
    """Return the largest mean cosine of canaries with one vector for each group [canaries, entries]."""
    units = [group / group.norm(dim=1, keepdim=True) for group in groups]
    return sum(float(unit.sum(0).norm()) for unit in units) / max(1, sum(map(len, units)))


def _cosines(canaries: Tensor, seen: Tensor) -> list[float]:
    """Return the cosine of every canary [canaries, entries] with a vector [entries]; 0 with a zero vector."""
    lengths = (canaries.norm(dim=1) * seen.norm()).clamp(min=TINY)
    return [float(value) for value in (canaries @ seen / lengths).clamp(-1, 1)]


def _membership(canaries: Canaries, transcript: Transcript, truth: Truth, client: int) -> list[float]:
    """Return the score of every canary record of a client by the membership attack."""
    attack = MembershipBest()
    names = [name for name in attack.grants if name != "target-records"]
    grants = disclose(truth, names, client=client)
    asked = replace(grants, target_records=canaries.records[client], names=(*grants.names, "target-records"))
    view = (
        roles.secure_aggregation(transcript, grants=asked)
        if transcript.secure_aggregation
        else roles.server(transcript, client=client, grants=asked)
    )
    evidence = attack.run(view, generator=fork(truth.secret, "canaries attacked", client))
    if evidence.status != "ok":
        expected = "a finite score of every canary record"
        remedy = "Lower learning_rate, or use other canaries."
        raise BadInput("canaries", expected=expected, got=evidence.reason, remedy=remedy)
    return [float(score) for score in evidence.tensors["scores"]]
