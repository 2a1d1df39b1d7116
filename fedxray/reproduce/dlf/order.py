"""Table 8: whether the labels of every batch are known, and whether the client keeps its order over the epochs."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.dlf.setting import KNOWN_COUNTS, METRICS, STAND_IN, attack, federation_of, paper

SHUFFLE = {"random": "epoch", "static": "once"}
COLUMNS = {
    "counts-known": "label counts known",
    "batches-known": "labels of every batch known",
    "shared-counts-known": "Shared, label counts known",
    "shared-batches-known": "Shared, labels of the first epoch's batches known",
}
ROWS = tuple(f"{data}-10x5-{order}" for data in ("femnist", "cifar100") for order in SHUFFLE)


def plan(request: Request, row: str) -> dict[str, Any]:
    """One order of the client; with and without knowledge of its batches."""
    batches = (*KNOWN_COUNTS, "batch-labels")
    attacks = [
        attack("dlf", row, request, label="counts-known"),
        attack("dlf", row, request, label="batches-known", grants=batches),
        attack("shared-simulation", row, request, label="shared-counts-known"),
        attack("shared-simulation", row, request, label="shared-batches-known", grants=batches),
    ]
    shuffle = SHUFFLE[row.rpartition("-")[2]]
    return {**federation_of(row, request, shuffle=shuffle), "attack": attacks}


ORDERED = Reproduction(
    name="dlf-order",
    shows="How much the attack gains from knowing the labels of every batch, and from a client that keeps its order.",
    paper=paper("Table 8 (Appendix B.3)"),
    rows=ROWS,
    small_rows=ROWS[:2],
    columns=columns_of(COLUMNS, METRICS),
    differences=(
        Difference(left="batches-known", right="counts-known"),
        Difference(left="shared-batches-known", right="shared-counts-known"),
        Difference(left="counts-known", right="counts-known", rows=(ROWS[1], ROWS[0])),
        Difference(left="batches-known", right="batches-known", rows=(ROWS[1], ROWS[0])),
    ),
    plan=plan,
    why=f"{STAND_IN}; with shared images the labels of the first epoch's batches serve all epochs, the authors' code "
    "replays the order of every epoch; their script has no CIFAR-100",
)
