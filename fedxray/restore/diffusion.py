"""A diffusion model as restorers use it: what noise it sees in an image, and how much noise each of its levels has.

Images are in -1..1. At level t an image is sqrt(kept_t) x + sqrt(1 - kept_t) noise; divided by sqrt(kept_t) that is
x + sigma_t noise with sigma_t = sqrt((1 - kept_t) / kept_t).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.restore.base import Shaped, check_answer

AT_ONCE = 64  # images
# Images [n, c, h, w], a level, class numbers [n] or None for no class in; the noise in them out.
Noise = Callable[[Tensor, int, Tensor | None], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Diffusion(Shaped):
    """A frozen diffusion model."""

    kept: Tensor  # [levels], falling from nearly 1
    noise: Noise
    needs_classes: bool = False  # whether it cannot be asked without a class

    def check(self) -> None:
        """Refuse a model that must be told a class but does not say what its classes are called, or gives no answer."""
        if self.needs_classes and not self.classes:
            raise self._without_labels("one whose classes have no names")
        chosen = torch.zeros(1, dtype=torch.int64) if self.needs_classes else None
        check_answer(lambda blank: self.noise(blank, len(self.kept) - 1, chosen), self.shape)

    def sigma(self, level: int) -> float:
        """The noise of a level on images that keep their size."""
        kept = float(self.kept[level])
        return math.sqrt((1 - kept) / kept)

    def predicted(self, x: Tensor, level: int, labels: Tensor | None, guidance: float = 1.0) -> Tensor:
        """The noise that the model sees in x [n, c, h, w]; guidance beyond 1 goes further towards the class."""
        if self.needs_classes and labels is None:
            raise self._without_labels("none")
        parts = []
        for place in range(0, len(x), AT_ONCE):
            part = x[place : place + AT_ONCE]
            chosen = None if labels is None else labels[place : place + AT_ONCE]
            found = self.noise(part, level, chosen)
            if guidance != 1.0 and chosen is not None and not self.needs_classes:
                plain = self.noise(part, level, None)
                found = plain + guidance * (found - plain)
            parts.append(found)
        return torch.cat(parts) if parts else x

    def levels(self, steps: int) -> list[int]:
        """That many levels, evenly spread, from the noisiest to 0."""
        last = len(self.kept) - 1
        count = min(steps, last + 1)
        if count == 1:
            return [last]
        return [round(last * place / (count - 1)) for place in reversed(range(count))]

    def level_above(self, sigma: float) -> int:
        """The first level with at least this noise; the last where none has."""
        return next(
            (level for level in range(len(self.kept)) if self.sigma(level) >= sigma), len(self.kept) - 1
        )

    def _without_labels(self, got: str) -> BadInput:
        return BadInput(
            "prior",
            expected="labels that this class-conditional model knows",
            got=got,
            remedy="Use a prior that can do without, such as one of `fedxray train-prior`.",
        )
