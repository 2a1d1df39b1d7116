"""Table 4: AWA, AGIC and DLG in the paper's four cases.

AWA has the weights that the paper tuned for the case. All three as the paper ran them stand beside the same on the
update in learning rates of the client, since the epsilon of Adam may hold back what is matched as sent: AWA in the
paper's unit (`awa-sent`) and in this one (`awa`), DLG (`dlg`, `dlg-rate`), and AGIC (`agic`), whose cosine has no unit,
with squared differences in its place (`agic-rate`). In case 4 the paper runs no DLG; ours takes the client for one that
keeps its batches.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.awa.setting import (
    ATTACKS,
    CALLED,
    CASES,
    IN_ORDER,
    METRICS,
    THEIR_STEPS,
    WHY,
    attack,
    data,
    federation,
    network,
    paper,
)
from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of

LONG = "case1-1000"
ROWS = (*CASES, LONG)
PRINTED = """
case1  14.06 0.534 0.042  15.89 0.689 0.028  22.40 0.935 0.006
case2  16.43 0.739 0.024  16.07 0.631 0.035  20.40 0.901 0.009
case3  14.05 0.505 0.044  15.63 0.718 0.029  22.47 0.936 0.006
case4  -     -     -      16.41 0.734 0.025  19.68 0.882 0.011
"""


def published(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Lines of a case, then PSNR, SSIM and MSE of DLG, AGIC and AWA; the paper compares in order, as `_by_index`."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for line in text.strip().splitlines():
        case, *cells = line.split()
        threes = {
            name: cells[3 * place : 3 * place + 3] for place, name in enumerate(("dlg", "agic", "awa-sent"))
        }
        found[case] = {
            name: {metric: float(number) for metrics in (METRICS, IN_ORDER)
                   for metric, number in zip(metrics, numbers, strict=True)}
            for name, numbers in threes.items()
            if "-" not in numbers
        }  # fmt: skip
    return found


NUMBERS = published(PRINTED)


def plan(request: Request, row: str) -> dict[str, Any]:
    """One case with all attacks."""
    steps = {"steps": THEIR_STEPS} if row == LONG else {}
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(row.partition("-")[0]),
        "attack": [attack(request, label, settings, **steps) for label, settings in ATTACKS.items()],
    }


TABLE4 = Reproduction(
    name="awa-table4",
    shows="How well three attacks rebuild four images from one update, after one or several epochs and batches.",
    paper=paper("Table 4", {**NUMBERS, LONG: NUMBERS["case1"]}),
    rows=ROWS,
    small_rows=("case1",),
    columns=columns_of({name: CALLED.get(name, "") for name in ATTACKS}, (*METRICS, *IN_ORDER)),
    differences=(
        Difference(left="awa-sent", right="dlg", metrics=METRICS[:2], expected="above"),
        Difference(left="awa-sent", right="agic", metrics=METRICS[:2], expected="above"),
        Difference(left="awa", right="awa-sent", metrics=METRICS[:2]),
        Difference(left="awa", right="dlg", metrics=METRICS[:2]),
        Difference(left="awa", right="agic", metrics=METRICS[:2]),
        Difference(left="awa", right="dlg-rate", metrics=METRICS[:2]),
        Difference(left="awa", right="agic-rate", metrics=METRICS[:2]),
        Difference(left="awa", right="awa-untuned", metrics=METRICS[:2]),
        Difference(left="agic-rate", right="awa-untuned", metrics=METRICS[:2]),
        Difference(left="dlg-rate", right="dlg", metrics=METRICS[:2]),
    ),
    plan=plan,
    why=f"{WHY}; AGIC seeks every image once, where a batch combined of several epochs holds it as often",
)
