"""Why some networks let images be matched and others do not: how soon an update stops resembling the one seen.

The true images of a group get Gaussian noise on their pixels (clipped to valid ones), and the update of case 1 is
computed from them. Its squared distance from the true update, in squared lengths of the latter, is what a matching
attack would see there: near 0 a descent is led to the images, 1 is what an update of nothing scores, and 2 what an
unrelated one of the same length does. An attack cannot compute this, since it begins at the truth.
"""

from __future__ import annotations

from fedxray.reproduce.awa.setting import NETWORK, attacked, paper
from fedxray.reproduce.awa.settings import plan as plan_of_settings
from fedxray.reproduce.base import NO_TABLE, Difference, Measured, Reproduction, Request, Unit, columns_of

NOISES = (0.01, 0.03, 0.1)  # standard deviation, of pixels from 0 to 1
ROWS = (
    "running",
    "batch",
    "no-norm",
    "stem-imagenet",
    "stem-004",
    "init-lecun",
    "init-he",
    "normalised",
    "width-16",
    "width-32",
)
METRIC = "relative_distance"


def title(noise: float) -> str:
    """What noise of this size is called."""
    return f"noise-{noise:g}"


MOST = title(NOISES[-1])


def measure(request: Request, row: str) -> list[Measured]:
    """Every group's true images with noise of every size, in the network of the row."""
    from fedxray.reproduce.awa.noise import distances, prepared

    found: dict[str, list[Unit]] = {title(noise): [] for noise in NOISES}
    plan = plan_of_settings(request, row)
    for seed in request.pick_seeds():
        federation = prepared(plan, seed)
        for client in range(attacked(request)):
            for noise, value in distances(federation, client, seed, NOISES).items():
                found[title(noise)].append(Unit(seed=seed, client=client, value=value))
    return [Measured(column=name, metric=METRIC, units=tuple(units)) for name, units in found.items()]


LANDSCAPE = Reproduction(
    name="awa-landscape",
    shows="How soon an update stops resembling the true one when the true images get a little noise.",
    paper=paper(NO_TABLE),
    rows=ROWS,
    columns=columns_of({title(noise): "" for noise in NOISES}, (METRIC,)),
    differences=tuple(Difference(left=MOST, right=MOST, rows=(row, ROWS[0])) for row in ROWS[1:]),
    measure=measure,
    why=f"this begins at the truth, which no attack can; {NETWORK}",
)
