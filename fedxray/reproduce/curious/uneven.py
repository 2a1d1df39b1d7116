"""Figure 12: the same images divided evenly and unevenly among the clients, at three local steps."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.curious.setting import METRICS, STAND_IN, attack, data, federation, network, paper

SIZES = {"even": (16,), "uneven": (21, 11)}
COUNTS = (2, 4, 6, 8)
ROWS = tuple(f"{clients}-{division}" for clients in COUNTS for division in SIZES)
COLUMN = "all-images"


def plan(request: Request, row: str) -> dict[str, Any]:
    """Everyone's images as a server under secure aggregation sees them: the same ones in both divisions."""
    clients, division = row.split("-")
    return {
        "seeds": request.pick_seeds(small=4, paper=5),
        "data": data(request, int(clients), SIZES[division]),
        "model": network("lenet", request),
        "federation": federation(),
        "attack": [attack(request, COLUMN, role="secure-aggregation")],
    }


UNEVEN = Reproduction(
    name="curious-uneven",
    shows="That it hides nothing when clients hold different numbers of images.",
    paper=paper("Figure 12", "no difference between even and uneven divisions of the same number of images"),
    rows=ROWS,
    small_rows=ROWS[:2],
    columns=columns_of({COLUMN: "Ours"}, METRICS),
    differences=tuple(
        Difference(left=COLUMN, right=COLUMN, rows=(f"{clients}-uneven", f"{clients}-even"))
        for clients in COUNTS
    ),
    plan=plan,
    why=f"{STAND_IN}; here the seat is a server under secure aggregation, so that the images scored are the same in "
    "both divisions; 32 to 128 images in all (the paper: 256)",
)
