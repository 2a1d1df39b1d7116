"""Denoising Diffusion Restoration Models (Kawar et al. 2022), the direct post-processing of "curious client" 2024.

A raw image is treated as block averages of the true one, each with noise of a known standard deviation:
    1. Average the raw image over blocks of `scale` pixels; `scale` 1 is denoising alone.
    2. Turn to the singular vectors of the averaging: a block's mean is measured, its other patterns are not.
    3. From the noisiest level downwards predict the clean image. Coordinates that were not measured follow DDIM;
       measured ones are held to the measurement while the level's noise is above that of the measurement, and move
       towards the predicted image below it.
Eta and eta_b are the paper's 0.85 and 1.

Where we differ: among the levels is always the first that has at least the noise of the measurement. There a
Gaussian prior's exact posterior mean is the model's own answer; the paper's further levels, down to none, move away
from it, from (c + s s_m) / (c + s^2) times the mean at a prior variance c, a level s and a measurement s_m. So
`finish = "mean"` ends there, which is best for PSNR; `finish = "sample"` continues like the paper. `draws` averages
several results. The paper repeats pixels to 256 x 256 and rounds to bytes on the way; we do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedxray.errors import BadInput
from fedxray.progress import Report, Step
from fedxray.restore.base import GUIDANCE, Diffusion, Restored, Restorer
from fedxray.seeds import fork, normal_like
from fedxray.settings import setting

# Averaging over square blocks as a linear map, in coordinates in which it is diagonal. Inside a block of scale x scale
# pixels an orthonormal cosine basis is used. Its first vector is constant: the block's mean is 1 / scale times that
# coordinate, the one singular value; all others are 0.


@dataclass(frozen=True)
class Blocks:
    """Square blocks with a side of `scale` pixels."""

    scale: int

    def check(self, shape: Sequence[int]) -> None:
        """Refuse images of a shape [..., h, w] that does not divide into blocks."""
        height, width = shape[-2:]
        if height % self.scale or width % self.scale:
            raise BadInput(
                "scale", expected=f"a number that divides {height} and {width}", got=self.scale, remedy="Try 1, 2 or 4."
            )

    def means(self, images: Tensor) -> Tensor:
        """Return the mean of every block of images [n, c, h, w]; shape [n, c, h / scale, w / scale]."""
        return F.avg_pool2d(images, self.scale) if self.scale > 1 else images

    def split(self, images: Tensor) -> Tensor:
        """Return coordinates of images [n, c, h, w]; shape [n, c, h / scale, w / scale, scale^2]."""
        s = self.scale
        n, c, h, w = images.shape
        blocks = images.reshape(n, c, h // s, s, w // s, s).permute(0, 1, 2, 4, 3, 5)
        return blocks.reshape(n, c, h // s, w // s, s * s) @ self._basis(images).T

    def join(self, coordinates: Tensor) -> Tensor:
        """Return images of coordinates, the inverse of split."""
        s = self.scale
        n, c, h, w, _ = coordinates.shape
        blocks = (coordinates @ self._basis(coordinates)).reshape(n, c, h, w, s, s)
        return blocks.permute(0, 1, 2, 4, 3, 5).reshape(n, c, h * s, w * s)

    def _basis(self, like: Tensor) -> Tensor:
        """Return orthonormal rows [scale^2, scale^2], the first constant."""
        s = self.scale
        place = torch.arange(s, dtype=like.dtype, device=like.device)
        waves = torch.cos(math.pi * place[:, None] * (2 * place[None] + 1) / (2 * s))
        waves = waves / waves.norm(dim=1, keepdim=True)
        return torch.einsum("ai,bj->abij", waves, waves).reshape(s * s, s * s)


# Maps an image with the noise of the given level of a list to a clean one.
Denoise = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, kw_only=True)
class Ddrm(Restorer[Diffusion]):
    """Super-resolution and denoising by a diffusion model, held to the raw image."""

    name: ClassVar[str] = "ddrm"
    needs: ClassVar[tuple[str, ...]] = ("diffusion",)

    scale: int = setting(1, "Side in pixels of the blocks whose means are used; 1 is denoising only.", least=1)
    noise: float = setting(
        0.1, "Standard deviation of the error of a block's mean, for pixels in 0..1.", least=0, most=1
    )
    steps: int = setting(20, "Noise levels that are used.", least=1)
    eta: float = setting(0.85, "Share of the noise of a level that is drawn anew.", least=0, most=1)
    eta_b: float = setting(1.0, "How closely a measured block follows its measurement; 1 is exactly.", least=0, most=1)
    finish: Literal["mean", "sample"] = setting(
        "mean", "Where it ends: at the posterior mean, best for pixel errors, or at a sample as in the paper."
    )
    draws: int = setting(1, "Number of results that are averaged.", least=1)
    guidance: float = setting(1.0, GUIDANCE, least=0, most=100)

    def check(self, prior: Diffusion) -> None:
        """Refuse a model without predictions, and images that do not divide into blocks."""
        prior.check()
        Blocks(self.scale).check(prior.shape)

    def pixels(
        self, raw: Tensor, labels: Tensor | None, prior: Diffusion, generator: torch.Generator, report: Report
    ) -> Restored:
        """Run the algorithm of the header."""
        blocks = Blocks(self.scale)
        blocks.check(raw.shape)
        measured = blocks.means(2 * raw - 1)
        spread = 2 * self.noise  # of values in -1..1
        chosen = chosen_levels(prior, self.steps, blocks.scale * spread, self.finish)
        found: list[Tensor] = []

        def denoise(x: Tensor, place: int) -> Tensor:
            level = chosen[place]
            seen = prior.predicted(x * float(prior.kept[level]) ** 0.5, level, labels, self.guidance)
            report(Step("ddrm", len(found) * len(chosen) + place + 1, len(chosen) * self.draws))
            return x - prior.sigma(level) * seen

        sigmas = [prior.sigma(level) for level in chosen]
        for number in range(self.draws):
            draw = partial(normal_like, generator=fork(generator, "ddrm", number))
            found.append(ddrm(denoise, sigmas, measured, spread, blocks, eta=self.eta, eta_b=self.eta_b, draw=draw))
        return Restored(pixels=(torch.stack(found).mean(0) + 1) / 2, facts={"restoring_levels": len(chosen)})


def chosen_levels(prior: Diffusion, steps: int, spread: float, finish: str) -> list[int]:
    """Return evenly spaced levels and the one at the measurement's noise, decreasing; for a mean none below it."""
    own = prior.level_above(spread)
    levels = sorted({*prior.levels(steps), own}, reverse=True)
    return [level for level in levels if finish == "sample" or level >= own]


def ddrm(
    denoise: Denoise,
    sigmas: list[float],
    measured: Tensor,
    spread: float,
    blocks: Blocks,
    *,
    eta: float,
    eta_b: float,
    draw: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the clean image [n, c, h, w] of block means [n, c, h / scale, w / scale] with noise of deviation `spread`.

    `sigmas` fall; the step after the last goes to no noise at all. `draw` gives standard normal numbers.
    """
    # The first coordinate of a block is `scale` times its mean; the others are not measured.
    answer, floor = blocks.scale * measured, blocks.scale * spread
    state = draw(measured.new_zeros((*measured.shape, blocks.scale**2))) * sigmas[0]
    held = sigmas[0] >= floor
    if held:
        state[..., 0] = answer + (sigmas[0] ** 2 - floor**2) ** 0.5 * state[..., 0] / sigmas[0]
    with torch.no_grad():
        for place, (sigma, after) in enumerate(zip(sigmas, [*sigmas[1:], 0.0], strict=True)):
            clean = blocks.split(denoise(blocks.join(state), place))
            fresh = draw(state)
            moved = clean + (1 - eta**2) ** 0.5 * after * (state - clean) / sigma + eta * after * fresh
            moved[..., 0] = _measured_step(clean[..., 0], answer, after, floor, fresh[..., 0], eta, eta_b)
            state = moved
    return blocks.join(state)


def _measured_step(
    clean: Tensor, answer: Tensor, after: float, floor: float, fresh: Tensor, eta: float, eta_b: float
) -> Tensor:
    """Return the measured coordinates at the next level, with noise `after`, for a measurement with noise `floor`."""
    if after < floor:
        return clean + math.sqrt(1 - eta**2) * after * (answer - clean) / floor + eta * after * fresh
    rest = math.sqrt(max(after**2 - (eta_b * floor) ** 2, 0.0))
    return (1 - eta_b) * clean + eta_b * answer + rest * fresh
