"""What gives AWA its gain over DLG: the scale of the loss, ramps, enhancement, or both. Search has `awa-search`.

From left to right one thing is added: DLG on the update as sent, DLG on the update in learning rates of the client (the
scale alone), AWA without weights (the same in case 1; in case 4 one interpolated epoch), a plain ramp up to the number
of layers, the paper's ramps, its enhancement alone, and both. The last column is AWA on the update as sent, which is
how the paper ran it.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.awa.setting import (
    ATTACKS,
    METRICS,
    WHY,
    attack,
    data,
    federation,
    network,
    paper,
)
from fedxray.reproduce.base import NO_TABLE, Difference, Reproduction, Request, columns_of

ROWS = ("case1", "case4")
FLAT = {"q_conv": 1.0, "q_norm": 1.0, "q_linear": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "dlg-sent": ATTACKS["dlg"],
    "dlg-rate": ATTACKS["dlg-rate"],
    "no-weights": {"name": "awa", "preset": "none"},
    "plain-ramp": ATTACKS["awa-untuned"],
    "ramps": {"name": "awa", "p_mean": 0.0, "p_var": 0.0},
    "enhancement": {"name": "awa", **FLAT},
    "both": ATTACKS["awa"],
    "both-sent": {"name": "awa", "unit": "sent"},
}
WORDS = {
    "dlg-sent": "DLG",
    "dlg-rate": "scale",
    "no-weights": "scale, interpolation",
    "plain-ramp": "ramps to the number of layers",
    "ramps": "tuned ramps, no enhancement",
    "enhancement": "enhancement, no ramps",
    "both": "AWA",
    "both-sent": "AWA on the update as sent",
}


def plan(request: Request, row: str) -> dict[str, Any]:
    """One case, attacked in all ways."""
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(row),
        "attack": [attack(request, label, settings) for label, settings in WAYS.items()],
    }


GAIN = Reproduction(
    name="awa-gain",
    shows="What gives AWA its gain over DLG: the scale of the loss, ramps over layers, enhancement, or both.",
    paper=paper(NO_TABLE, trend="weights and enhancement give the gain"),
    rows=ROWS,
    small_rows=ROWS[:1],
    columns=columns_of(WORDS, METRICS),
    differences=tuple(
        Difference(left=left, right=right, metrics=METRICS[:2])
        for left, right in (
            ("dlg-rate", "dlg-sent"),
            ("no-weights", "dlg-rate"),
            ("plain-ramp", "no-weights"),
            ("ramps", "no-weights"),
            ("enhancement", "no-weights"),
            ("both", "ramps"),
            ("both", "enhancement"),
            ("both", "no-weights"),
            ("both", "dlg-rate"),
            ("both", "both-sent"),
            ("both-sent", "dlg-sent"),
        )
    ),
    plan=plan,
    why=WHY,
)
