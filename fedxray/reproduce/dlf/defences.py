"""Table 6: noise and pruning on the gradient of every example, against attackers who know it and who do not.

The appendix is not in our text; its settings are in the authors' code.
"""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Column, Difference, Reproduction, Request
from fedxray.reproduce.dlf.setting import ATTACKS, METRICS, STAND_IN, attack, federation_of, paper

ROWS = ("femnist-10x5", "femnist-5x5", "femnist-1x5")
TRIED = ("dlf", "fedsgd-inversion")
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "gaussian-0.01": {"name": "gaussian-noise", "scale": 0.01, "at": "gradients"},
    "gaussian-0.03": {"name": "gaussian-noise", "scale": 0.03, "at": "gradients"},
    "laplace-0.01": {"name": "laplace-noise", "scale": 0.01, "at": "gradients"},
    "laplace-0.02": {"name": "laplace-noise", "scale": 0.02, "at": "gradients"},
    "pruning-0.2": {"name": "pruning", "share": 0.2, "by": "random", "at": "gradients"},
    "pruning-0.5": {"name": "pruning", "share": 0.5, "by": "random", "at": "gradients"},
}
MILD_AND_STRONG = (
    ("gaussian-0.01", "gaussian-0.03"),
    ("laplace-0.01", "laplace-0.02"),
    ("pruning-0.2", "pruning-0.5"),
)


def title(name: str, defence: str, aware: bool = False) -> str:
    """What a column is called: the attack, the defence, and whether it is known."""
    if defence == "none":
        return name
    return f"{name}, {defence}" + (", aware" if aware else "")


def plan(request: Request, row: str) -> dict[str, Any]:
    """One recipe under all defences."""
    return {
        **federation_of(row, request),
        "defence": [{"label": label, **settings} for label, settings in DEFENCES.items()],
        "attack": [attack(name, row, request) for name in TRIED],
    }


def _columns() -> tuple[Column, ...]:
    found = []
    for name in TRIED:
        for defence in DEFENCES:
            for aware in (None,) if defence == "none" else (False, True):
                called, told = ATTACKS[name], title(name, defence, bool(aware))
                found += [
                    Column(
                        attack=name, metric=metric, title=told, called=called, defence=defence, aware=aware
                    )
                    for metric in METRICS
                ]
    return tuple(found)


DEFENDED = Reproduction(
    name="dlf-defences",
    shows="What noise and pruning on single gradients leave of the images that one FedAvg update gives away.",
    paper=paper("Table 6 (Appendix B)"),
    rows=ROWS,
    small_rows=("femnist-1x5",),
    columns=_columns(),
    differences=(
        *(
            Difference(left="dlf", right=title("dlf", strong), expected="above")
            for _, strong in MILD_AND_STRONG
        ),
        *(
            Difference(left=title("dlf", mild), right=title("dlf", strong), expected="above")
            for mild, strong in MILD_AND_STRONG
        ),
        *(
            Difference(left=title("dlf", strong, True), right=title("dlf", strong))
            for _, strong in MILD_AND_STRONG
        ),
    ),
    plan=plan,
    why=f"{STAND_IN}; the authors' noise is the same in every epoch and for all tensors of an example, ours is drawn "
    "anew",
)
