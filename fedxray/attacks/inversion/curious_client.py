"""The curious client ("Federated Learning Nodes Can Reconstruct Peers' Image Data", 2024), and its oracle.

A client that took part in two consecutive rounds holds two global models. It inverts their difference as if one client
with everyone's images had sent it:
    1. The mean reply is (W_next - W) divided by the server's step. Subtract the own contribution where its weight is
       known, (mean - (n / N) own) N / (N - n); else leave it in (see `fedxray.attacks.observations`).
    2. Take the labels of all images as granted, or as counts from a sub-attack on the same reply.
    3. Draw latent images uniformly from 0 to 1 at a fraction of the resolution; enlarged by bicubic up-sampling, which
       the gradient passes (Yue et al. 2023), they are the guess: fewer and smooth unknowns.
    4. Replay the local steps of one client that holds all N images, from W, and minimise the squared distance of its
       update from the mean reply, by Adam from 0.1 down to 0.01 along half a cosine.
    5. Of all iterates keep the one with the lowest loss, with pixels clipped to their range.
    6. With own images left in, match them to guesses of their class: those are set aside, and their quality is the
       one measure of success that an attacker has.
The role knows neither the number of clients nor their data sizes. N and the learning rate may be assumed
(`assumed_examples`, `assumed_learning_rate`); labels are then estimated anew. `search` in a plan tries such
assumptions and keeps the one under which the own images are recovered best.

`curious-client-oracle` is its upper bound (appendix F): step 4 replays every client separately, on the number of images
and with the labels that it really had (grant `oracle-groups`), and averages their updates as the server does. No
participant knows these groups: the difference of the two is the cost of reading a sum as one client's reply. Images of
the same label start from the same latent image in both, so that with one local step, of which a sum hides nothing, both
find the same.

Where we differ: the authors neither subtract the own contribution nor set their own images aside, their labels are the
true ones in the true order, and their latent images have a quarter of the resolution (`latent = 4`, suited to 128
pixels). The distance is divided by the squared norm of the reply, which does not change Adam's steps; the best iterate
is kept, not the last, and its pixels are clipped; images are scored as enlarged in the attack (the authors score
latent images enlarged by repeating pixels). The attack also works for a server under secure aggregation, which has
nothing to subtract, and on single replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need, any_update, granted, images
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.distance import BY_DEPTH, MATCHES, distance_to
from fedxray.attacks.inversion.replay import BatchNorm, Replay, replay, straight_schedule
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.observations import WHICH_UPDATE, At, OwnShare, SumAsReply, observation_at, read_sum
from fedxray.data.dataset import Records, Space
from fedxray.federation.recipe import client_weights
from fedxray.imaging import assignment, pairwise_psnr
from fedxray.optim import MOST_RATE, Adam, Cosine, restarts
from fedxray.params import Params, each, weighted_mean
from fedxray.priors import clip, total_variation
from fedxray.seeds import fork, uniform_like
from fedxray.settings import setting

# Latent images, enlarged inside the loop

LARGEST_FACTOR = 16


def enlarged(latent: Tensor, space: Space) -> Tensor:
    """Return the guess of a latent image [n, c, h / factor, w / factor] as input of the model [n, *space.shape]."""
    size = list(space.shape[1:])
    if list(latent.shape[2:]) == size:
        return space.from_pixels(latent)
    return space.from_pixels(functional.interpolate(latent, size=size, mode="bicubic", align_corners=False))


def valid(latent: Tensor, space: Space) -> Tensor:
    """Return the guess of a latent image with every pixel clipped to its range."""
    low, high = space.bounds(latent)
    return clip(enlarged(latent, space), low, high)


def latent_starts(
    view: View, like: Tensor, labels: Tensor, context: Context, restarts: int, factor: int
) -> list[dict[str, Tensor]]:
    """Draw one start per restart for images of these labels [n]: latent pixels uniformly from 0 to 1.

    Starts do not depend on the settings, so that a search compares assumptions and not starts. They are assigned by
    label and not by position: the same labels in another order start from the same images.
    """
    channels, height, width = view.space.shape
    shape = (len(labels), channels, -(-height // factor), -(-width // factor))
    blank = torch.empty(shape, dtype=like.dtype, device=like.device)
    place_of = labels.argsort(stable=True).argsort().to(like.device)
    return [
        {"latent": uniform_like(blank, fork(context.root, "latent start", number))[place_of]}
        for number in range(restarts)
    ]


# The family of both attacks

MOST_IMAGES = 100_000  # that may be assumed; more would exhaust the memory
END_OF_RATE = 0.1  # final learning rate of Adam, as a share of the initial one
ANOTHER_CLASS = 1000.0  # dB subtracted from a match between images of different classes: it is never made
SIZED = ("l2", "l1", BY_DEPTH)  # distances with the scale of the update; divided by its distance from zero

# What an attacker may have to search: the clients' learning rate, and the number of images behind the sum.
RANGES = {"assumed_learning_rate": (1e-4, 1.0, "log"), "assumed_examples": (2, 512, "int")}

Update = Callable[[Tensor], dict[str, Tensor]]  # images [n, ...] -> the update they would have caused


@dataclass(frozen=True, kw_only=True)
class CuriousFamily(Attack):
    """Base of the curious client and its oracle."""

    kind: ClassVar[Kind] = "images"
    paper: ClassVar[str] = "curious-client-2024"
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "latent": 1}
    adapts: ClassVar[bool] = True

    steps: int = setting(200, problem.STEPS, least=1)
    learning_rate: float = setting(0.1, problem.LEARNING_RATE, above=0, most=MOST_RATE)
    latent: int = setting(
        2,
        "The guess is an image smaller by this factor, enlarged inside the optimisation; 1 is full size, 4 suits "
        "images of 128 pixels.",
        least=1,
        most=LARGEST_FACTOR,
    )
    match: str = setting("l2", f"{problem.MATCH} The paper uses l2.", choices=MATCHES)
    total_variation: float = setting(0.0, problem.TOTAL_VARIATION, least=0)
    restarts: int = setting(1, problem.RESTARTS, least=1)
    own_share: OwnShare = setting(
        "subtract",
        'Treatment of the own contribution to the sum: subtract it, or ("recover") reconstruct the own images too and '
        "score them separately.",
    )
    at: At = setting("first", WHICH_UPDATE)
    batch_norm: BatchNorm = setting("batch", problem.BATCH_NORM)

    def invert(self, view: View, context: Context, update: Update, seen: Params, labels: Tensor) -> Evidence:
        """Return images of these labels [n] whose update is closest to the observed one."""
        distance, space = distance_to(seen, self.match), view.space
        # With the distance of the update from zero as its unit, a loss is the share of it that is unexplained.
        length = float(distance(each(torch.zeros_like, seen))) if self.match in SIZED else 1.0
        scale = length if length > 0 else 1.0

        def loss(point: dict[str, Tensor]) -> Tensor:
            inputs = enlarged(point["latent"], space)
            value = distance(update(inputs)) / scale
            return value + self.total_variation * total_variation(inputs) if self.total_variation else value

        starts = latent_starts(view, next(iter(seen.values())), labels, context, self.restarts, self.latent)
        method = Adam(steps=self.steps, lr=self.learning_rate, decay=Cosine(end=END_OF_RATE))
        tried = restarts(loss, starts, method, report=context.report, what=self.name)
        facts = {"own_loss": [outcome.best_loss for outcome in tried.outcomes], "restart": tried.chosen}
        return problem.images_found(valid(tried.outcome.best["latent"], space), labels, tried.outcome, facts)


def own_guesses(guess: Tensor, labels: Tensor, own: Records, space: Space) -> tuple[Tensor, dict[str, Any]]:
    """Return which guesses [n, ...] are own images, bool [n], and the quality of those.

    Own images [m, ...] are matched one to one to guesses of their class; one without such a guess counts as 0 dB, which
    is a squared error of 1. `own_error` is the mean squared error of pixels, which ranks the trials of a search.
    """
    quality = pairwise_psnr(space.to_pixels(guess), space.to_pixels(own.x.to(guess)))  # [n, m]
    same_class = labels[:, None] == own.y.to(labels.device)[None]  # [n, m]
    rows, columns = assignment(quality - ANOTHER_CLASS * (~same_class).to(quality.dtype))
    real = same_class[rows, columns]
    mine = torch.zeros(len(guess), dtype=torch.bool, device=guess.device)
    mine[rows[real]] = True
    matched = quality[rows, columns][real]
    error = float((10 ** (-matched / 10)).sum()) + len(own) - len(matched)
    facts = {"own_images": len(own), "own_found": len(matched), "own_psnr": float(matched.sum()) / len(own)}
    return mine, {**facts, "own_error": error / len(own)}


@dataclass(frozen=True, kw_only=True)
class CuriousClient(CuriousFamily):
    """What did all other clients' training images look like? Inverts the change of the global model as one reply."""

    name: ClassVar[str] = "curious-client"
    roles: ClassVar[tuple[str, ...]] = (
        "curious-client", "secure-aggregation", "server", "eavesdropper", "active-server",
    )  # fmt: skip
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = RANGES
    judged_by: ClassVar[str] = "own_error"
    unjudged: ClassVar[str] = (
        'It needs own images among the reconstructed ones: own_share = "recover" with role curious-client.'
    )

    labels: Attack = setting(LabelsDlf, problem.LABELS, check=problem.check_label_attack)
    assumed_learning_rate: float | None = setting(
        None, "The clients' learning rate, in place of the recipe's.", above=0
    )
    # No more than the own images would leave none to the others; that is read as one more than the own.
    assumed_examples: int | None = setting(
        None,
        "Number of images behind the sum, own ones included, in place of the granted number.",
        least=1,
        most=MOST_IMAGES,
    )

    def needs(self) -> tuple[Need, ...]:
        """List the needs of an image inversion, on the reply that the sum is read as."""
        return tuple(self._as_read(need) for need in problem.image_needs(self.at, self.labels))

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        reply = self._read(view)
        alone = reply.view
        observation = observation_at(alone, self.at)
        labels, facts = problem.labels_in_batches(alone, context, self.labels, self.at)
        client, seen = problem.replayed(alone, observation, len(labels), self.batch_norm)
        evidence = self.invert(alone, context, lambda inputs: client.update(inputs, labels), seen, labels)
        evidence = problem.with_averaged_pairs(alone, observation, evidence)
        facts = evidence.facts | facts | reply.facts | {"round": observation.round}
        if reply.own is None:
            return replace(evidence, facts=facts)
        mine, quality = own_guesses(evidence.tensors["inputs"], labels, reply.own, view.space)
        return replace(evidence, tensors={**evidence.tensors, "own": mine}, facts=facts | quality)

    def _read(self, view: View) -> SumAsReply:
        rate, examples = self.assumed_learning_rate, self.assumed_examples
        return read_sum(view, self.at, self.own_share, learning_rate=rate, examples=examples)

    def _as_read(self, need: Need) -> Need:
        """Return the need applied to the reply that the sum is read as."""
        return replace(need, met=lambda view: need.met(self._read(view).view))


@dataclass(frozen=True, kw_only=True)
class CuriousClientOracle(CuriousFamily):
    """What could a change of the global model reveal at most? Inverts it knowing which client holds which labels."""

    name: ClassVar[str] = "curious-client-oracle"
    roles: ClassVar[tuple[str, ...]] = ("curious-client", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples", "oracle-groups")

    def needs(self) -> tuple[Need, ...]:
        """List images, an update, its recipe, and the labels of every client."""
        return (images(), any_update(), problem.replayable(self.at), granted("oracle-groups"))

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header with every client replayed separately."""
        reply = read_sum(view, self.at, self.own_share)
        observation = observation_at(reply.view, self.at)
        groups = self._groups(view, reply)
        labels = [part.to(next(iter(observation.start.values())).device) for part in groups.values()]
        sizes = [len(part) for part in labels]
        clients, seen = self._clients(reply.view, observation, sizes)
        recipe = reply.view.grants.recipe
        assert recipe is not None
        weights = client_weights(sizes, recipe)

        def update(inputs: Tensor) -> dict[str, Tensor]:
            parts = zip(clients, inputs.split(sizes), labels, strict=True)
            return weighted_mean([client.update(x, y) for client, x, y in parts], weights)

        evidence = self.invert(reply.view, context, update, seen, torch.cat(labels))
        facts = evidence.facts | reply.facts | {"round": observation.round, "clients": len(sizes)}
        if reply.own is None:
            return replace(evidence, facts=facts)
        colluding = {own.client for own in view.own}
        mine = torch.cat([torch.full_like(part, client in colluding, dtype=torch.bool)
                          for client, part in zip(groups, labels, strict=True)])  # fmt: skip
        return replace(evidence, tensors={**evidence.tensors, "own": mine}, facts=facts)

    def _groups(self, view: View, reply: SumAsReply) -> dict[int, Tensor]:
        """Return the sorted labels of every client whose images are behind the reply, by client."""
        groups = view.grants.oracle["oracle-groups"]
        out = {own.client for own in view.own} if reply.facts["own_share"] == "subtracted" else set()
        return {client: group.y.sort().values for client, group in enumerate(groups) if client not in out}

    def _clients(self, view: View, observation: Observation, sizes: Sequence[int]) -> tuple[list[Replay], Params]:
        """Return every client's round to replay, and the update that their mean should equal."""
        recipe = view.grants.recipe
        assert recipe is not None
        aim, clients = problem.aim_of(observation, recipe), []
        for size in sizes:
            client = replay(
                view.model, observation.start, recipe, straight_schedule(size, recipe),
                buffers=observation.buffers, batch_norm=self.batch_norm,
            )  # fmt: skip
            clients.append(problem.aware(view, observation, recipe, size, client, aim)[0])
        return clients, aim
