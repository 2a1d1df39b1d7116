"""Figure 4, and Figure 3 at its end: how good AWA's images are after how many steps.

One descent is read at several steps: what it has come to is kept every 50 steps, and a column goes on from there. The
row of the small scale ends after 250.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.awa.setting import CASES, METRICS, WHY, attack, data, federation, network, paper
from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of

KEPT_EVERY = 50
FEW = (50, 100, 150, 200, 250)
READ = (*FEW, 500, 1000, 1500, 2000, 3000)
SHORT = "case1-250"  # only the first few
LAST_SSIM = {"case1": 0.9658, "case2": 0.9613, "case3": 0.9595, "case4": 0.9135}  # Figure 3


def title(steps: int) -> str:
    """What a descent of so many steps is called."""
    return f"awa-{steps}"


def plan(request: Request, row: str) -> dict[str, Any]:
    """One case, attacked once."""
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(row.partition("-")[0]),
        "attack": [
            attack(request, title(steps), {"name": "awa", "kept_every": KEPT_EVERY}, steps=steps)
            for steps in (FEW if row == SHORT else READ)
        ],
    }


ITERATIONS = Reproduction(
    name="awa-iterations",
    shows="How good the images of AWA are after 50 to 3,000 steps.",
    paper=paper(
        "Figures 3 and 4",
        {case: {title(READ[-1]): {"ssim_002": ssim}} for case, ssim in LAST_SSIM.items()},
        "more steps keep helping, SSIM passes 0.9 within 1,500 in all cases, and case 4 stays a little behind",
    ),
    rows=(*CASES, SHORT),
    small_rows=(SHORT,),
    columns=columns_of({title(steps): f"{steps:,} steps" for steps in READ}, METRICS),
    differences=(
        Difference(left=title(250), right=title(100), metrics=METRICS[:2], expected="above"),
        Difference(left=title(1000), right=title(250), metrics=METRICS[:2], expected="above"),
        Difference(left=title(3000), right=title(1000), metrics=METRICS[:2], expected="above"),
        *(
            Difference(left=title(1000), right=title(1000), rows=("case1", case), metrics=METRICS[:2])
            for case in tuple(CASES)[1:]
        ),
    ),
    plan=plan,
    why=WHY,
)
