"""Draws two attacked pairs of images, of one class and of two classes: python docs/pairs.py.

Each panel has the two images, their mean and their difference: originals above, reconstructions below. It is the pair
of the first client of `awa-pairs-attacked`, rows -lenet, seed 0. Half a minute.
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure

from fedxray.attacks.inversion.awa import Awa
from fedxray.reproduce import awa
from fedxray.reproduce.base import Request
from fedxray.reproduce.measurements import landscape_federation, pair_attacked, pair_correlations

TARGET = Path(__file__).resolve().parent / "images" / "awa-pairs.png"
COLUMNS = ("first image", "second image", "mean", "difference")


def parts(pair: torch.Tensor) -> list[torch.Tensor]:
    """Return both images [2, 3, h, w], their mean and their difference (grey is 0) as pictures [h, w, 3]."""
    pictures = [pair[0], pair[1], pair.mean(0), (pair[0] - pair[1] + 1) / 2]
    return [picture.permute(1, 2, 0).clamp(0, 1) for picture in pictures]


def draw() -> None:
    """Attack both pairs and write the picture."""
    federation = landscape_federation(awa.pairs_plan(Request(), awa.PAIR_NETWORKS["-lenet"]), 0)
    attack = Awa(preset="ramp", decay="cosine", total_variation=1e-3, steps=awa.PAIR_STEPS)
    figure = Figure(figsize=(8.4, 2.7), dpi=110, layout="constrained")
    panels = figure.subfigures(1, 2, wspace=0.05)
    for panel, (row, alike) in zip(panels, awa.PAIR_ROWS.items(), strict=True):
        true, guess = pair_attacked(federation, 0, 0, attack, alike=alike)
        found = pair_correlations(true, guess)
        words = f"{row.replace('-', ' ')}: correlation of the sum {found['sum']:.2f}, "
        panel.suptitle(f"{words}of the difference {found['difference']:.2f}", fontsize=8.5)
        axes = panel.subplots(2, len(COLUMNS))
        for line, (name, pair) in enumerate((("original", true), ("reconstructed", guess))):
            for place, picture in enumerate(parts(pair)):
                axes[line, place].imshow(picture.numpy())
                axes[line, place].set(xticks=[], yticks=[])
                if line == 0:
                    axes[line, place].set_title(COLUMNS[place], fontsize=8)
            axes[line, 0].set_ylabel(name, fontsize=8)
    figure.savefig(TARGET)


if __name__ == "__main__":
    draw()
