"""A generator of images that is learnt from public ones, and a critic that tells whether an image looks like them.

The generator starts as the principal components of the public images: a code times their spread, plus the mean. On
top a small network is trained against the critic (least squares GAN), so that sharper images come out. A GAN from
nothing needs far more images and hours; the components alone already are a prior that few images can give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedxray.methods import Adam
from fedxray.models.building import own_surroundings
from fedxray.params import Params, parameters_of
from fedxray.progress import Report, Step
from fedxray.seeds import normal_like

MOST = 1000  # public images that are looked at
RATE = 2e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Generator:
    """Codes [n, entries] to pixels in 0..1 [n, c, h, w], and a critic of such pixels, larger where they look real."""

    entries: int
    pixels: Callable[[Tensor], Tensor]
    realness: Callable[[Tensor], Tensor]
    critic_loss: float


class Sharpener(nn.Module):
    """What is added to pixels [n, c, h, w]; nothing before training."""

    def __init__(self, channels: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        for one in self.last.parameters():
            nn.init.zeros_(one)

    def forward(self, x: Tensor) -> Tensor:
        """The pixels with what is added."""
        added: Tensor = self.last(F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2))
        return x + added


class Critic(nn.Module):
    """One number for every image [n, c, h, w]: near 1 where it looks real, near 0 where it was made."""

    def __init__(self, channels: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv2d(channels, width, 3, 2, 1)
        self.second = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.last = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The mean over all places."""
        found: Tensor = self.last(F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2))
        return found.flatten(1).mean(1)


def learn_generator(
    images: Tensor,
    *,
    entries: int,
    width: int,
    steps: int,
    batch: int,
    draws: torch.Generator,
    report: Report,
) -> Generator:
    """Learn from public pixels [n, c, h, w] in 0..1."""
    images = images[:MOST]
    mean, spread = components(images, entries)
    with own_surroundings(draws):
        nets = Sharpener(images.shape[1], width), Critic(images.shape[1], width)
    sharpener, critic = (net.to(images) for net in nets)
    made, judge = parameters_of(sharpener), parameters_of(critic)
    made_memory, judge_memory = (_adam(steps).fresh(one) for one in (made, judge))
    loss = 0.0

    def rough(codes: Tensor) -> Tensor:
        return (mean + codes @ spread).reshape(len(codes), *images.shape[1:])

    for step in range(steps):
        codes = normal_like(images.new_zeros((batch, len(spread))), draws)
        chosen = torch.randint(len(images), (batch,), generator=draws, device="cpu")
        real = images[chosen.to(images.device)]
        with torch.no_grad():
            fake = functional_call(sharpener, made, (rough(codes),))
        value, slope = _slope(judge, lambda point: _judged(critic, point, real, fake))  # noqa: B023
        judge, judge_memory = _adam(steps).move(judge, slope, judge_memory, step)
        _, slope = _slope(made, lambda point: _fooled(critic, judge, sharpener, point, rough(codes)))  # noqa: B023
        made, made_memory = _adam(steps).move(made, slope, made_memory, step)
        loss = value
        report(Step("learn a generator", step + 1, steps, value))
    return Generator(
        entries=len(spread),
        pixels=lambda codes: functional_call(sharpener, made, (rough(codes),)).clamp(0, 1),
        realness=lambda pixels: functional_call(critic, judge, (pixels,)),
        critic_loss=loss,
    )


def components(images: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The mean image [pixels] and the principal components of images [n, ...] times their spread, [k, pixels]."""
    flat = images.flatten(1)
    mean = flat.mean(0)
    centred = flat - mean
    # By the products of images, of which there are fewer than pixels more often than not.
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    kept = values > 1e-6 * values[-1].clamp(min=1e-12)
    order = torch.nonzero(kept)[:, 0].flip(0)[:most]
    return mean, (vectors[:, order].T @ centred) / len(images) ** 0.5


def _adam(steps: int) -> Adam:
    return Adam(steps=max(steps, 1), lr=RATE, betas=(0.5, 0.999))


def _slope(point: Params, loss: Callable[[dict[str, Tensor]], Tensor]) -> tuple[float, dict[str, Tensor]]:
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    with torch.enable_grad():
        value = loss(leaves)
        found = torch.autograd.grad(value, list(leaves.values()))
    return float(value.detach()), dict(zip(leaves, found, strict=True))


def _judged(critic: nn.Module, point: Params, real: Tensor, fake: Tensor) -> Tensor:
    """How wrong the critic is about real and made images."""
    right: Tensor = (functional_call(critic, dict(point), (real,)) - 1).square().mean()
    wrong: Tensor = functional_call(critic, dict(point), (fake,)).square().mean()
    return right + wrong


def _fooled(critic: nn.Module, judge: Params, sharpener: nn.Module, point: Params, rough: Tensor) -> Tensor:
    """How far the critic is from taking made images for real ones."""
    made = functional_call(sharpener, dict(point), (rough,))
    found: Tensor = (functional_call(critic, dict(judge), (made,)) - 1).square().mean()
    return found
