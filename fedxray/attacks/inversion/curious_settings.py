"""The settings that the curious client shares with its upper bound, and what both do alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.aim import At, check_at
from fedxray.attacks.base import Attack, Context
from fedxray.attacks.evidence import Evidence, of_images
from fedxray.attacks.inversion.distance import BY_DEPTH, distance_named
from fedxray.attacks.inversion.known import check_count, check_label_attack, check_weight
from fedxray.attacks.inversion.latent import check_factor, enlarged, latent_starts, valid
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.sums import Assumed, OwnShare, check_own_share
from fedxray.data.records import Records
from fedxray.data.space import Space
from fedxray.decays import Cosine
from fedxray.errors import BadInput
from fedxray.imaging import assignment, pairwise_psnr
from fedxray.methods import Adam
from fedxray.minimise import restarts
from fedxray.params import Params
from fedxray.priors import total_variation

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
