"""Table 4: eight priors that draw the epochs together, at 10 local epochs of batches of 5."""

from __future__ import annotations

from typing import Any

from fedxray.reproduce.base import Difference, Reproduction, Request, columns_of
from fedxray.reproduce.dlf.setting import METRICS, STAND_IN, attack, federation_of, paper

PRIORS = {
    "l1-mean": "mean, l1",
    "l1-mean-conv": "conv + mean, l1",
    "l1-max": "max, l1",
    "l1-max-conv": "conv + max, l1",
    "l2-mean": "mean, l2",
    "l2-mean-conv": "conv + mean, l2",
    "l2-max": "max, l2",
    "l2-max-conv": "conv + max, l2",
}
PRINTED = {
    "femnist-10x5": (
        (61.6, 21.2), (61.5, 21.2), (36.8, 19.2), (56.0, 20.7),
        (65.5, 21.5), (64.4, 21.4), (39.6, 19.4), (63.6, 21.2),
    ),
    "cifar100-10x5": (
        (55.1, 19.5), (56.0, 19.6), (56.9, 19.6), (58.0, 19.8),
        (56.0, 19.5), (56.3, 19.6), (56.0, 19.6), (58.8, 19.8),
    ),
}  # fmt: skip
NUMBERS = {
    row: {prior: {"rec": rec / 100, "psnr": psnr} for prior, (rec, psnr) in zip(PRIORS, printed, strict=True)}
    for row, printed in PRINTED.items()
}


def plan(request: Request, row: str) -> dict[str, Any]:
    """One data set, with every prior at the authors' weight for it."""
    attacks = [attack("dlf", row, request, label=prior, prior=prior) for prior in PRIORS]
    return {**federation_of(row, request), "attack": attacks}


TABLE4 = Reproduction(
    name="dlf-table4",
    shows="Which prior over the epochs of a client helps the attack most.",
    paper=paper("Table 4", NUMBERS),
    rows=tuple(PRINTED),
    small_rows=("femnist-10x5",),
    columns=columns_of(PRIORS, METRICS),
    differences=(
        Difference(left="l2-mean", right="l2-max", expected="above"),
        Difference(left="l2-mean", right="l1-mean", expected="above"),
        Difference(left="l2-max-conv", right="l2-max", expected="above"),
        Difference(left="l2-mean", right="l2-max-conv"),
    ),
    plan=plan,
    why=STAND_IN,
)
