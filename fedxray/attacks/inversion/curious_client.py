"""The curious client ("Federated Learning Nodes Can Reconstruct Peers' Image Data", paper 004).

A client that took part in two rounds in a row holds two global models. It inverts their difference as if one client
with everyone's images had sent it:
    1. The mean reply is (W_next - W) over the server's step. Take the own part out where its weight is known,
       (mean - (n / N) own) N / (N - n); else leave it in (see `fedxray.attacks.observations`).
    2. Take the labels of all images as granted, or as counts from a sub-attack on the same reply.
    3. Draw small pictures evenly from 0 to 1; enlarged by bicubic up-sampling they are the guess.
    4. Replay the local steps of one client that holds all N images, from W, and descend on the squared distance
       of its update from the mean reply, by Adam from 0.1 down to 0.01 along half a cosine.
    5. Of all iterates keep the one of least loss, with pixels brought back into their range.
    6. With own images left in, match them to guesses of their class: those are put aside, and how well they came
       back is the one measure of quality that an attacker has.
The seat knows neither how many clients there are nor what each of them holds. N and the learning rate may be assumed
(`assumed_examples`, `assumed_learning_rate`); labels are then estimated anew for what is assumed. `search` in a
plan tries such assumptions and keeps the one under which the own images come back best.

Where we differ: the authors neither take out the own part nor set their own images aside, their labels are the true
ones in the true order, and their pictures are a quarter of the resolution (`latent = 4`, right for 128 pixels).
The distance is divided by the squared length of the reply, which leaves Adam's steps as they are; the best iterate is
kept, not the last, and its pixels are clipped. The same attack works from a server under secure aggregation, which
has nothing to take out, and on single replies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need, any_update, granted, images
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import BY_DEPTH, distance_named
from fedxray.attacks.inversion.problem import (
    aim_of,
    as_far_as_told,
    aware,
    check_count,
    check_label_attack,
    check_weight,
    image_needs,
    labels_in_batches,
    replayable,
    replayed,
)
from fedxray.attacks.inversion.replay import BatchNorm, Replay, check_batch_norm, replay, straight_schedule
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.observations import (
    Assumed,
    At,
    OwnShare,
    Reading,
    check_at,
    check_own_share,
    observation_at,
    read_sum,
)
from fedxray.data.dataset import Records, Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import client_weights
from fedxray.imaging import assignment, pairwise_psnr
from fedxray.optim import Adam, Cosine, restarts
from fedxray.params import Params, weighted_mean
from fedxray.priors import clip, total_variation
from fedxray.seeds import fork, uniform_like

# --- Images as smaller pictures that are enlarged inside the loop: fewer unknowns, and smooth ones.
#
# The latent picture holds pixels (0..1) at a half or a quarter of the resolution; bicubic up-sampling makes
# the guess, and the gradient flows back through it (Yue et al. 2023, paper 004). A factor of 1 is no latent
# at all.


LARGEST_FACTOR = 16


def enlarged(latent: Tensor, space: Space) -> Tensor:
    """The guess behind a latent picture [n, c, h / factor, w / factor] as the model gets it, [n, *space.shape]."""
    size = list(space.shape[1:])
    if list(latent.shape[2:]) == size:
        return space.from_pixels(latent)
    return space.from_pixels(functional.interpolate(latent, size=size, mode="bicubic", align_corners=False))


def valid(latent: Tensor, space: Space) -> Tensor:
    """The same guess with every pixel brought back into its range."""
    low, high = space.bounds(latent)
    return clip(enlarged(latent, space), low, high)


def latent_starts(
    view: View, like: Tensor, labels: Tensor, context: Context, restarts: int, factor: int
) -> list[dict[str, Tensor]]:
    """One start per restart for images of these labels [n]: every pixel of the latent picture evenly from 0 to 1.

    Whatever its settings the attack starts alike, so that a search compares what is assumed and not starts. They go
    by label and not by place: whoever has the same labels in another order starts from the same pictures.
    """
    channels, height, width = view.space.shape
    shape = (len(labels), channels, -(-height // factor), -(-width // factor))
    blank = torch.empty(shape, dtype=like.dtype, device=like.device)
    place_of = labels.argsort(stable=True).argsort().to(like.device)
    return [
        {"latent": uniform_like(blank, fork(context.root, "latent start", place))[place_of]}
        for place in range(restarts)
    ]


def check_factor(factor: object) -> None:
    """Refuse a factor that is no whole number from 1 to 16."""
    if isinstance(factor, bool) or not isinstance(factor, int) or not 1 <= factor <= LARGEST_FACTOR:
        raise BadInput(
            "latent",
            expected=f"a whole number from 1 (no latent) to {LARGEST_FACTOR}",
            got=repr(factor),
            remedy="Try 2, or 4 for images of 128 pixels.",
        )


# --- The settings that the curious client shares with its upper bound, and what both do alike.


MOST_IMAGES = 100_000  # that may be assumed; more would fill the memory before anything is learnt
END_OF_RATE = 0.1  # the share of its learning rate that Adam ends with
ANOTHER_CLASS = 1000.0  # dB taken off a match between images of different classes: it is never made
SIZED = ("l2", "l1", BY_DEPTH)  # distances in units of the update; they are divided by its own length

# What an attacker may have to find out: the clients' learning rate, and how many images stand behind the sum.
RANGES = {"assumed_learning_rate": (1e-4, 1.0, "log"), "assumed_examples": (2, 512, "int")}

Update = Callable[[Tensor], dict[str, Tensor]]  # images [n, ...] in, the update they would have caused out


@dataclass(frozen=True, kw_only=True)
class CuriousSettings:
    """Fields of both attacks."""

    steps: int = 200
    learning_rate: float = 0.1
    latent: int = 2  # the guess is a picture smaller by this factor, enlarged inside the loop; 1: no latent
    match: str = "l2"  # l2 (the paper) | l2-by-depth | cosine | cosine-by-layer | l1
    total_variation: float = 0.0
    restarts: int = 1
    own_share: OwnShare = "subtract"  # or recover: own images are sought too, and scored apart
    at: At = "first"
    batch_norm: BatchNorm = "batch"


@dataclass(frozen=True, kw_only=True)
class SearchedSettings(CuriousSettings):
    """Fields of the attack itself, with what it may take for given."""

    labels: Attack = field(default_factory=LabelsDlf)  # used when neither labels nor counts are granted
    assumed_learning_rate: float | None = None  # of the clients, in place of the recipe's
    # Images behind the sum, own ones included, in place of the granted. No more than the own ones would leave none to
    # the others, so that is read as one more than the own.
    assumed_examples: int | None = None

    @property
    def assumed(self) -> Assumed:
        """What is taken for given."""
        return Assumed(learning_rate=self.assumed_learning_rate, examples=self.assumed_examples)


def check_curious(settings: CuriousSettings) -> None:
    """Refuse settings that cannot be meant."""
    method_of(settings)
    check_factor(settings.latent)
    distance_named(settings.match, [])
    check_weight("total_variation", settings.total_variation)
    check_count("restarts", settings.restarts)
    check_own_share(settings.own_share)
    check_at(settings.at)
    check_batch_norm(settings.batch_norm)


def check_searched(settings: SearchedSettings) -> None:
    """Refuse labels and assumptions that cannot be meant."""
    check_curious(settings)
    check_label_attack(settings.labels)
    if settings.assumed_examples is not None:
        check_count("assumed_examples", settings.assumed_examples)
        if settings.assumed_examples > MOST_IMAGES:
            raise BadInput(
                "assumed_examples",
                expected=f"at most {MOST_IMAGES} images",
                got=settings.assumed_examples,
                remedy="Each image is a guess of its own: try fewer.",
            )
    rate = settings.assumed_learning_rate
    if rate is not None and not 0 < rate < math.inf:
        raise BadInput(
            "assumed_learning_rate", expected="a finite number above 0", got=repr(rate), remedy="Try 0.01."
        )


def method_of(settings: CuriousSettings) -> Adam:
    """Adam whose learning rate falls by half a cosine to a tenth."""
    return Adam(steps=settings.steps, lr=settings.learning_rate, decay=Cosine(end=END_OF_RATE))


def invert(
    settings: CuriousSettings,
    view: View,
    context: Context,
    update: Update,
    seen: Params,
    labels: Tensor,
    what: str,
) -> Evidence:
    """Images [labels] whose update comes nearest to the one seen."""
    like = next(iter(seen.values()))
    found = restarts(
        partial(_loss, settings, view.space, update, seen, _scale(settings, seen)),
        latent_starts(view, like, labels, context, settings.restarts, settings.latent),
        method_of(settings), report=context.report, what=what,
    )  # fmt: skip
    end = found.outcome
    facts = {"own_loss": [one.best_loss for one in found.outcomes], "restart": found.chosen}
    inputs = valid(end.best["latent"], view.space)
    return of_images(inputs, labels, status=end.status, reason=end.reason, curve=end.curve, facts=facts)


def _loss(
    settings: CuriousSettings,
    space: Space,
    update: Update,
    seen: Params,
    scale: float,
    point: dict[str, Tensor],
) -> Tensor:
    inputs = enlarged(point["latent"], space)
    loss = distance_named(settings.match, seen)(update(inputs), seen) / scale
    if settings.total_variation:
        loss = loss + settings.total_variation * total_variation(inputs)
    return loss


def _scale(settings: CuriousSettings, seen: Params) -> float:
    """The distance of the update from none at all, so that a loss is the share of it that is left unexplained."""
    if settings.match not in SIZED:
        return 1.0
    nothing = {name: torch.zeros_like(value) for name, value in seen.items()}
    length = float(distance_named(settings.match, seen)(nothing, seen))
    return length if length > 0 else 1.0


def own_guesses(guess: Tensor, labels: Tensor, own: Records, space: Space) -> tuple[Tensor, dict[str, Any]]:
    """Which guesses [n, ...] are the seat's own images, bool [n], and how well those came back.

    Own images [m, ...] are matched one to one to guesses of their class; one without such a guess counts as 0 dB, which
    is a squared error of 1. `own_error` is the mean squared error of pixels, by which a search judges.
    """
    quality = pairwise_psnr(space.to_pixels(guess), space.to_pixels(own.x.to(guess)))  # [n, m]
    alike = labels[:, None] == own.y.to(labels.device)[None]
    rows, columns = assignment(quality - ANOTHER_CLASS * (~alike).to(quality.dtype))
    real = alike[rows, columns]
    mine = torch.zeros(len(guess), dtype=torch.bool, device=guess.device)
    mine[rows[real]] = True
    found = quality[rows, columns][real]
    error = float((10 ** (-found / 10)).sum()) + len(own) - len(found)
    told = {"own_images": len(own), "own_found": len(found), "own_psnr": float(found.sum()) / len(own)}
    return mine, {**told, "own_error": error / len(own)}


@dataclass(frozen=True, kw_only=True)
class CuriousClient(SearchedSettings, Attack):
    """What did all the others' training images look like? The change of the global model is inverted as one reply."""

    name: ClassVar[str] = "curious-client"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = (
        "curious-client", "secure-aggregation", "server", "eavesdropper", "active-server",
    )  # fmt: skip
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "latent": 1}
    adapts: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = RANGES
    judged_by: ClassVar[str] = "own_error"
    unjudged: ClassVar[str] = (
        'It needs own images among those sought: own_share = "recover" from a client\'s seat.'
    )

    def __post_init__(self) -> None:
        """Check every setting."""
        check_searched(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return tuple(self._as_read(need) for need in image_needs(self.at, self.labels))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        reading = self._read(view)
        alone = reading.view
        observation = observation_at(alone, self.at)
        labels, facts = labels_in_batches(alone, context, self.labels, self.at)
        labels = labels.to(device=next(iter(observation.start.values())).device)
        client, seen = replayed(alone, observation, len(labels), self.batch_norm)
        found = invert(
            self, alone, context, lambda inputs: client.update(inputs, labels), seen, labels, self.name
        )
        found = as_far_as_told(alone, observation, found)
        found = replace(found, facts=found.facts | facts | reading.facts | {"round": observation.round})
        if reading.own is None:
            return found
        mine, told = own_guesses(found.tensors["inputs"], labels, reading.own, view.space)
        return replace(found, tensors={**found.tensors, "own": mine}, facts=found.facts | told)

    def _read(self, view: View) -> Reading:
        return read_sum(view, self.at, self.own_share, self.assumed)

    def _as_read(self, need: Need) -> Need:
        """A need of the reply that the sum is read as."""
        return replace(need, met=lambda view: need.met(self._read(view).view))


# --- The upper bound of the curious client (paper 004, appendix F): the true clients are simulated, one by
# one.
#
# As curious_client.py, but step 4 replays every client by itself, on as many images and with the labels
# that it really had (grant `oracle-groups`), and averages their updates as the server does. Nobody in a
# federation knows who holds which labels: what this one gains is what reading a sum as one client's reply
# costs. Images of the same label start from the same picture in both, so that with one local step, of which
# a sum hides nothing, both find the same.


@dataclass(frozen=True, kw_only=True)
class CuriousClientOracle(CuriousSettings, Attack):
    """The most that a change of the global model could tell: whoever knows who holds which labels inverts it."""

    name: ClassVar[str] = "curious-client-oracle"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("curious-client", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples", "oracle-groups")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[Mapping[str, Any]] = {"steps": 60, "latent": 1}
    adapts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every setting."""
        check_curious(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, and everyone's labels."""
        return (images(), any_update(), replayable(self.at), granted("oracle-groups"))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        reading = self._read(view)
        observation = observation_at(reading.view, self.at)
        groups = self._groups(view, reading)
        labels = [part.to(next(iter(observation.start.values())).device) for part in groups.values()]
        sizes = [len(part) for part in labels]
        clients, seen = self._clients(reading.view, observation, sizes)
        recipe = reading.view.grants.recipe
        assert recipe is not None
        weights = client_weights(sizes, recipe)

        def update(inputs: Tensor) -> dict[str, Tensor]:
            parts = zip(clients, inputs.split(sizes), labels, strict=True)
            return weighted_mean([client.update(x, y) for client, x, y in parts], weights)

        found = invert(self, reading.view, context, update, seen, torch.cat(labels), self.name)
        facts = found.facts | reading.facts | {"round": observation.round, "clients": len(sizes)}
        if reading.own is None:
            return replace(found, facts=facts)
        seats = {seat.client for seat in view.own}
        mine = torch.cat([torch.full_like(part, client in seats, dtype=torch.bool)
                          for client, part in zip(groups, labels, strict=True)])  # fmt: skip
        return replace(found, tensors={**found.tensors, "own": mine}, facts=facts)

    def _read(self, view: View) -> Reading:
        return read_sum(view, self.at, self.own_share, Assumed())

    def _groups(self, view: View, reading: Reading) -> dict[int, Tensor]:
        """The sorted labels of every client whose images the reading holds, by client."""
        groups = view.grants.oracle["oracle-groups"]
        out = {seat.client for seat in view.own} if reading.facts["own_share"] == "subtracted" else set()
        return {client: one.y.sort().values for client, one in enumerate(groups) if client not in out}

    def _clients(
        self, view: View, observation: Observation, sizes: Sequence[int]
    ) -> tuple[list[Replay], Params]:
        """Every client's round to replay, and what their mean should come to."""
        recipe = view.grants.recipe
        assert recipe is not None
        aim, found = aim_of(observation, recipe), []
        for size in sizes:
            client = replay(
                view.model, observation.start, recipe, straight_schedule(size, recipe),
                buffers=observation.buffers, batch_norm=self.batch_norm,
            )  # fmt: skip
            found.append(aware(view, observation, recipe, size, client, aim)[0])
        return found, aim
