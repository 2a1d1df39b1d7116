"""Masked Diffusion Enhancer ("curious client" 2024, section 3.3): the diffusion sample nearest the raw image.

    1. Draw the initial noise of the model's deterministic sampler (DDIM).
    2. In every epoch sample from it, and keep the noise that the model predicted on the way.
    3. Build the sample again from the initial noise with those predictions as constants; compare it with the raw image.
    4. Take an Adam step on the initial noise.
    5. Stop an image at the first epoch whose sample is as near to the raw image as the noise in it allows: root mean
       squared error at most `noise` (discrepancy principle, Morozov 1966). A nearer sample would follow the noise.
       Where no epoch comes that near, keep the nearest.

Where we differ: the paper selects the epoch by eye, which only works with knowledge of the original; ours stops by the
noise, estimated from the raw image alone. Adam moves a pixel of the initial noise, whose standard deviation is 1, by at
most epochs x learning rate: 1 in the paper (100 x 0.01), 5 here, since 1 does not reach the raw image. The paper's
transformer works in the latent space of an autoencoder and is 0.7 billion parameters large; ours is any model of the
`diffusers` library on pixels, such as `fedxray train-prior --kind dit` makes. Its 250 levels and guidance 4 are
settings here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.optim import MOST_RATE, Adam
from fedxray.progress import Report, Step
from fedxray.restore.base import GUIDANCE, Diffusion, Restored, Restorer
from fedxray.seeds import normal_like
from fedxray.settings import setting


@dataclass(frozen=True, kw_only=True)
class Mde(Restorer[Diffusion]):
    """A photorealistic image with the shape and colours of the raw one; meant for viewing, not for pixel errors."""

    name: ClassVar[str] = "mde"
    needs: ClassVar[tuple[str, ...]] = ("diffusion",)

    epochs: int = setting(100, "Steps of Adam on the initial noise, at most.", least=1)
    learning_rate: float = setting(0.05, "Learning rate of Adam.", above=0, most=MOST_RATE)
    noise: float | None = setting(
        None,
        "Standard deviation of the raw image's noise, in pixels of 0..1: an image stops when it is that near; default: "
        "estimated for every image.",
        least=0,
        most=1,
    )
    steps: int = setting(10, "Noise levels of one sample.", least=2)
    guidance: float = setting(1.0, GUIDANCE, least=0, most=100)

    def check(self, prior: Diffusion) -> None:
        """Refuse a model that does not predict noise."""
        prior.check()

    def pixels(
        self, raw: Tensor, labels: Tensor | None, prior: Diffusion, generator: torch.Generator, report: Report
    ) -> Restored:
        """Run the algorithm of the header; every image has its own noise and its own epoch."""
        wanted, method = 2 * raw - 1, Adam(steps=self.epochs, lr=self.learning_rate)
        noise = estimated_noise(raw) if self.noise is None else torch.full_like(raw[:, 0, 0, 0], self.noise)
        point = {"noise": normal_like(wanted, generator)}
        memory = method.fresh(point)
        best, lowest, curve = wanted, torch.full_like(noise, torch.inf), []
        for epoch in range(self.epochs + 1):
            sample, slope, errors = self.one_epoch(point["noise"], wanted, labels, prior)
            nearer = (errors < lowest) & (lowest > (2 * noise) ** 2)  # errors are of images in -1..1
            best = torch.where(nearer[:, None, None, None], sample, best)
            lowest = torch.where(nearer, errors, lowest)
            curve.append(float(errors.mean()))
            stopped = lowest <= (2 * noise) ** 2
            report(Step("mde", epoch + 1, self.epochs + 1, curve[-1]))
            if bool(stopped.all()):
                break
            if epoch < self.epochs:
                with torch.no_grad():
                    point, memory = method.move(point, {"noise": slope}, memory, epoch)
        facts = {
            "mde_objective": curve,
            "mde_lowest": float(lowest.mean()),
            "mde_noise": float(noise.mean()),
            "mde_stopped": float(stopped.to(noise).mean()),
        }
        return Restored(pixels=(best + 1) / 2, facts=facts)

    def one_epoch(
        self, noise: Tensor, wanted: Tensor, labels: Tensor | None, prior: Diffusion
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sample of an initial noise, the gradient of its squared error, and the error of each image [n]."""
        levels = prior.levels(self.steps)
        with torch.no_grad():
            _, seen = sample(prior, noise, levels, labels, self.guidance)
        with torch.enable_grad():
            leaf = noise.detach().requires_grad_()
            found = rebuilt(prior, leaf, levels, seen)
            errors = ((found - wanted) ** 2).flatten(1).mean(1)
            (slope,) = torch.autograd.grad(errors.sum(), leaf)
        return found.detach(), slope, errors.detach()


MEDIAN_OF_NORMAL = 0.6744897501960817  # median of the absolute value of a standard normal draw


def estimated_noise(pixels: Tensor) -> Tensor:
    """Return the standard deviation of the noise in every image [n, c, h, w], from the image alone, [n].

    It is the median absolute diagonal detail of 2 x 2 blocks, which edges hardly change (Donoho and Johnstone 1994), of
    the image or of its halved copy, whichever is larger: an image enlarged from a latent one has its noise there, of
    which three quarters are found.
    """
    found = [_diagonal_detail(pixels)]
    if min(pixels.shape[2:]) >= 4:
        found.append(_diagonal_detail(functional.avg_pool2d(pixels, 2)))
    return torch.stack(found).amax(0)


def _diagonal_detail(pixels: Tensor) -> Tensor:
    height, width = (side - side % 2 for side in pixels.shape[2:])
    even = pixels[..., :height, :width]
    detail = (even[..., ::2, ::2] - even[..., ::2, 1::2] - even[..., 1::2, ::2] + even[..., 1::2, 1::2]) / 2
    return detail.abs().flatten(1).median(1).values / MEDIAN_OF_NORMAL


def sample(
    prior: Diffusion, noise: Tensor, levels: list[int], labels: Tensor | None, guidance: float = 1.0
) -> tuple[Tensor, list[Tensor]]:
    """Return the deterministic sample of an initial noise [n, c, h, w], and the noise predicted at every level."""
    x, seen = noise, []
    for level, after in zip(levels, [*levels[1:], None], strict=True):
        seen.append(prior.predicted(x, level, labels, guidance))
        x = _down(prior, x, seen[-1], level, after)
    return x, seen


def rebuilt(prior: Diffusion, noise: Tensor, levels: list[int], seen: list[Tensor]) -> Tensor:
    """Return the sample from stored predictions, differentiable in the initial noise only."""
    x = noise
    for predicted, level, after in zip(seen, levels, [*levels[1:], None], strict=True):
        x = _down(prior, x, predicted, level, after)
    return x


def _down(prior: Diffusion, x: Tensor, seen: Tensor, level: int, after: int | None) -> Tensor:
    """Make one step of DDIM to the next level, or to the clean image."""
    kept = float(prior.kept[level])
    clean = (x - math.sqrt(1 - kept) * seen) / math.sqrt(kept)
    if after is None:
        return clean
    next_kept = float(prior.kept[after])
    return math.sqrt(next_kept) * clean + math.sqrt(1 - next_kept) * seen
