"""Which of the choices that the paper does not state give its numbers: case 1, one choice changed at a time.

BatchNorm (its first statistics, those of the batch, or none), the stem, how weights are drawn, whether inputs are
normalised (Adam's steps are then a quarter as long in pixels), where dummies start and whether they are clamped, what
AWA takes an undefined error for, how wide the network is, and whether it was trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedxray.reproduce.awa import training
from fedxray.reproduce.awa.setting import (
    ATTACKS,
    CALLED,
    METRICS,
    WHY,
    attack,
    data,
    federation,
    network,
    paper,
)
from fedxray.reproduce.awa.table4 import NUMBERS
from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of

BASE, NORMALISED, TRAINED = "running", "normalised", "trained-4"
UNDEFINED = "undefined-first"  # of AWA alone
FREE: dict[str, Any] = {"box": False}
NORMAL: dict[str, Any] = {"start": "normal"}
MODELS: dict[str, dict[str, Any]] = {
    BASE: {},
    "batch": {"norm": "batch"},
    "batch-normal-free": {"norm": "batch"},
    "no-norm": {"norm": "none"},
    "stem-imagenet": {"stem": "imagenet"},
    "stem-004": {"stem": "004"},
    "init-lecun": {"init": "lecun"},
    "init-he": {"init": "he"},
    NORMALISED: {},
    "normal": {},
    "uniform-free": {},
    "normal-free": {},
    UNDEFINED: {},
    "width-16": {"width": 16},
    "width-32": {"width": 32},
    TRAINED: {},
}
STARTS = {
    "batch-normal-free": NORMAL | FREE,
    "normal": NORMAL,
    "uniform-free": FREE,
    "normal-free": NORMAL | FREE,
}
ROWS = tuple(MODELS)
SOUGHT = ("awa", "dlg-rate")
PRINTED = {metric: NUMBERS["case1"]["awa-sent"][metric] for metric in METRICS}


def plan(request: Request, row: str) -> dict[str, Any]:
    """Case 1 with one choice changed."""
    trained, inputs = row == TRAINED, {"normalise": True} if row == NORMALISED else {}
    return {
        "seeds": request.pick_seeds(),
        "data": training.data() if trained else {**data(), **inputs},
        "model": network(**MODELS[row]),
        "federation": training.rounds(4) if trained else federation("case1"),
        "attack": [attack(request, label, {**ATTACKS[label], **changed(label, row)}) for label in SOUGHT],
    }


def changed(label: str, row: str) -> dict[str, Any]:
    """What a row changes in an attack."""
    if row == UNDEFINED:
        return {"undefined": "first"} if label == "awa" else {}
    return STARTS.get(row, {})


SETTINGS = Reproduction(
    name="awa-settings",
    shows="Under which of the choices that the paper leaves open its numbers come out.",
    paper=replace(paper("Table 4, case 1", {row: {"awa": PRINTED} for row in ROWS}), once=True),
    rows=ROWS,
    small_rows=(BASE, "batch", "width-16"),
    columns=columns_of({name: CALLED.get(name, "") for name in SOUGHT}, METRICS),
    differences=(
        Difference(left="awa", right="dlg-rate", metrics=METRICS[:2]),
        *(
            Difference(left="awa", right="awa", rows=(BASE, row), metrics=METRICS[:1])
            for row in ROWS
            if row not in (BASE, TRAINED)  # whose groups are others
        ),
    ),
    plan=plan,
    why=WHY,
)
