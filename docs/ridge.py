"""Draws the trials of `curious-unknown-lr --row search-both` by rate and number of images: python docs/ridge.py FOLDER.

FOLDER is the reproduction's. A dot is a trial of one of the runs, the darker the better its own images are
reconstructed relative to the best trial of the run; on the line the rate over the number of images is the true one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedxray.audit.judge.results import read_results
from fedxray.reproduce.curious import SEARCHED, true_settings

QUOTIENT = "true rate over images"
ROWS = {"search-both": "three local steps", "search-both-one-step": "one local step"}
TARGET = Path(__file__).resolve().parent / "images" / "curious-ridge.png"


def trials_of(results: dict[str, Any]) -> list[tuple[dict[str, float], float]]:
    """Points and losses of all runs' trials that ended, the worst first; losses in those of the run's best."""
    found = []
    for case in results["cases"]:
        if case["attack"] == SEARCHED:
            ended = [one for one in case["search"]["trials"] if one["loss"] is not None]
            best = min(one["loss"] for one in ended)
            found += [(one["point"], one["loss"] / best) for one in ended]
    return sorted(found, key=lambda one: -one[1])


def draw(folder: Path) -> None:
    """One panel for every row that the folder holds."""
    rows = {row: title for row, title in ROWS.items() if (folder / row / "results.json").is_file()}
    figure = Figure(figsize=(4.6 * len(rows), 3.8), dpi=110, layout="constrained")
    for place, (row, title) in enumerate(rows.items(), 1):
        results = read_results(folder / row)
        trials, true = trials_of(results), true_settings(results["plan"])
        images, rate = true["assumed_examples"], true["assumed_learning_rate"]
        axes = figure.add_subplot(1, len(rows), place)
        span = [images / 2, 2 * images]
        axes.plot(span, [rate * one / images for one in span], color="0.6", linewidth=1, zorder=0, label=QUOTIENT)
        dots = axes.scatter(
            [point["assumed_examples"] for point, _ in trials],
            [point["assumed_learning_rate"] for point, _ in trials],
            c=[loss for _, loss in trials],
            cmap="viridis",
            vmax=4,
            s=22,
        )
        axes.plot([images], [rate], "x", color="red", markersize=9, linestyle="none", label="true values")
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="assumed number of images, own ones included",
            ylabel="assumed learning rate",
            title=title,
        )
        axes.set_xticks([5, 8, 12, 16], ["5", "8", "12", "16"], minor=False)
        axes.set_xticks([], minor=True)
        figure.colorbar(dots, ax=axes, label="error of own images, best trial = 1", extend="max")
        if place == 1:
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(TARGET)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
