"""Figure 6: quality against the images of a client, and against its local steps."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.curious.setting import (
    METRICS,
    STAND_IN,
    attack,
    better,
    data,
    federation,
    network,
    paper,
)

CLIENTS = (2, 4)
BATCHES = (8, 16, 32, 64, 128)
LOCAL_STEPS = (1, 3, 5, 8)
ROWS = (
    *(f"{clients}-clients-batch-{size}" for clients in CLIENTS for size in BATCHES),
    *(f"{clients}-clients-steps-{steps}" for clients in CLIENTS for steps in LOCAL_STEPS),
)
COLUMN = "curious-client"


def plan(request: Request, row: str) -> dict[str, Any]:
    """So many images at three local steps, or so many local steps on 16 images (8 at the small scale)."""
    clients, _, what, number = row.split("-")
    usual = 8 if request.is_small else 16
    size, steps = (int(number), 3) if what == "batch" else (usual, int(number))
    return {
        "seeds": request.pick_seeds(small=2, paper=3),
        "data": data(request, int(clients), (size,)),
        "model": network("lenet", request),
        "federation": federation(epochs=steps),
        "attack": [attack(request, COLUMN)],
    }


def _falls(rows: list[str]) -> list[Difference]:
    pairs = [(rows[0], row) for row in rows[1:]]
    return [one for pair in pairs for one in better(COLUMN, COLUMN, rows=pair, larger=("psnr", "ssim"))]


BATCH_AND_STEPS = Reproduction(
    name="curious-batch-and-steps",
    shows="How more images of each client and more local steps hide them.",
    paper=paper(
        "Figure 6",
        "quality falls with the images of a client and, where there are many clients, with their local steps",
    ),
    rows=ROWS,
    small_rows=("2-clients-batch-8", "2-clients-batch-16", "2-clients-batch-32",
                "2-clients-steps-1", "2-clients-steps-3", "2-clients-steps-8"),
    columns=columns_of({COLUMN: "Ours"}, METRICS),
    differences=tuple(
        one
        for clients in CLIENTS
        for what in ("batch", "steps")
        for one in _falls([row for row in ROWS if row.startswith(f"{clients}-clients-{what}")])
    ),
    plan=plan,
    why=f"{STAND_IN}; at the small scale 8 images where local steps are varied",
)  # fmt: skip
