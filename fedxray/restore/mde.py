"""Masked Diffusion Enhancer ("curious client" 2024, section 3.3): the diffusion sample nearest the raw image.

    1. Draw the initial noise of the model's deterministic sampler (DDIM).
    2. In every epoch sample from it, and keep the noise that the model predicted on the way.
    3. Build the sample again from the initial noise with those predictions as constants; compare it with the raw image.
    4. Take an Adam step on the initial noise.
    5. Keep the sample whose own objective, the squared error to the raw image, is lowest.

Where we differ: the paper selects the epoch by eye, which only works with knowledge of the original; ours is
selected by the objective. The paper's transformer works in the latent space of an autoencoder and is 0.7 billion
parameters large; ours is any model of the `diffusers` library on pixels, such as `fedxray train-prior --kind dit`
makes. Its 250 levels and guidance 4 are settings here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

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

    epochs: int = setting(50, "Steps of Adam on the initial noise.", least=1)
    learning_rate: float = setting(1e-2, "Learning rate of Adam.", above=0, most=MOST_RATE)
    steps: int = setting(10, "Noise levels of one sample.", least=2)
    guidance: float = setting(1.0, GUIDANCE, least=0, most=100)

    def check(self, prior: Diffusion) -> None:
        """Refuse a model that does not predict noise."""
        prior.check()

    def pixels(
        self, raw: Tensor, labels: Tensor | None, prior: Diffusion, generator: torch.Generator, report: Report
    ) -> Restored:
        """Run the algorithm of the header; every image keeps the epoch of its own lowest error."""
        wanted, method = 2 * raw - 1, Adam(steps=self.epochs, lr=self.learning_rate)
        point = {"noise": normal_like(wanted, generator)}
        memory = method.fresh(point)
        best, lowest, curve = wanted, torch.full_like(wanted[:, 0, 0, 0], torch.inf), []
        for epoch in range(self.epochs + 1):
            sample, slope, errors = self.one_epoch(point["noise"], wanted, labels, prior)
            better = errors < lowest
            best = torch.where(better[:, None, None, None], sample, best)
            lowest = torch.where(better, errors, lowest)
            curve.append(float(errors.mean()))
            report(Step("mde", epoch + 1, self.epochs + 1, curve[-1]))
            if epoch < self.epochs:
                with torch.no_grad():
                    point, memory = method.move(point, {"noise": slope}, memory, epoch)
        facts = {"mde_objective": curve, "mde_lowest": float(lowest.mean())}
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
