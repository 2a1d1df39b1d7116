"""A residual network trained against a critic: the GAN baseline of "curious client" 2024 (ROG, Yue et al. 2023).

ROG averages a class-conditional generator and an upscaling network, both trained on ImageNet. Ours is a small version
of the idea: a convolutional network that adds what a raw image lacks, trained by `fedxray train-prior --kind gan` on
public images that were averaged over blocks, enlarged and given noise, with a critic that looks at patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedxray.progress import Report, Step
from fedxray.restore.base import Restored, Restorer, Shaped, check_answer

AT_ONCE = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class RestoringNetwork(Shaped):
    """A frozen network from raw images in -1..1 to restored ones."""

    network: nn.Module


@dataclass(frozen=True, kw_only=True)
class Gan(Restorer[RestoringNetwork]):
    """Sharper images by a small network trained against a critic; it may invent detail."""

    name: ClassVar[str] = "gan"
    needs: ClassVar[tuple[str, ...]] = ("network",)

    def check(self, prior: RestoringNetwork) -> None:
        """Refuse a network that does not map images of its shape to such images."""
        check_answer(prior.network, prior.shape)

    def pixels(
        self, raw: Tensor, labels: Tensor | None, prior: RestoringNetwork, generator: torch.Generator, report: Report
    ) -> Restored:
        """Return the network's output."""
        parts = []
        with torch.no_grad():
            for part in raw.split(AT_ONCE):
                parts.append(prior.network(2 * part - 1))
                report(Step("gan", len(parts) * AT_ONCE, len(raw)))
        return Restored(pixels=(torch.cat(parts) + 1) / 2 if parts else raw)
