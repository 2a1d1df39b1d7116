"""Updates from several stages of training: after 0, 4 and 16 rounds.

The paper says that updates of all stages can be inverted and prints no numbers. AWA and DLG read one round, and AGIC
one (`agic`) or three in a row (`agic-rounds`), whose distances it adds up.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.awa.setting import ATTACKS, CALLED, METRICS, WHY, attack, network, paper
from fedxray.reproduce.awa.training import MANY, MOMENTUM, RATE, data, rounds
from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of

TOGETHER = 3  # rounds that AGIC reads at once
ROWS = ("after-0", "after-4", "after-16")
WAYS = {name: ATTACKS[name] for name in ("awa", "dlg-rate", "agic")} | {
    "agic-rounds": {**ATTACKS["agic"], "at": "all"}
}


def plan(request: Request, row: str) -> dict[str, Any]:
    """The rounds after a stage of training are recorded and attacked."""
    before = int(row.removeprefix("after-"))
    read = {
        label: list(range(before, before + (TOGETHER if label == "agic-rounds" else 1))) for label in WAYS
    }
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": rounds(before, TOGETHER),
        "attack": [attack(request, label, settings, rounds=read[label]) for label, settings in WAYS.items()],
    }


STAGES = Reproduction(
    name="awa-stages",
    shows="What is left of the attacks once the network has been trained for 4 and 16 rounds.",
    paper=paper(
        "its third contribution, without a table",
        trend="updates leaked at all stages of training can be inverted",
    ),
    rows=ROWS,
    small_rows=ROWS[:2],
    columns=columns_of(
        {name: CALLED.get(name, "") for name in ("awa", "dlg-rate", "agic")}
        | {"agic-rounds": f"AGIC, {TOGETHER} rounds at once"},
        METRICS,
    ),
    differences=(
        Difference(left="awa", right="dlg-rate", metrics=METRICS[:2]),
        Difference(left="awa", right="agic", metrics=METRICS[:2]),
        Difference(left="agic-rounds", right="agic", metrics=METRICS[:2]),
        *(Difference(left="awa", right="awa", rows=(ROWS[0], row), metrics=METRICS[:2]) for row in ROWS[1:]),
    ),
    plan=plan,
    why=f"the paper prints no numbers; a client with {MANY:,} images trains the network beside the groups, at a "
    f"learning rate of {RATE:g} with momentum {MOMENTUM:g}; {WHY}",
)
