"""Medical costs (Lantz 2013): 1,338 simulated insurance records."""

from __future__ import annotations

import numpy as np

from fedxray.data.columns import make_table
from fedxray.data.space import Dataset
from fedxray.data.store import read_table


def medical(*, sensitive: str | None = "smoker", scale_target: bool | None = None) -> Dataset:
    """Age, bmi, children, sex, smoker, region to charges in dollars; all eight features standardised."""
    raw = read_table("medical", "insurance/insurance.csv.gz")
    numbers = ("age", "bmi", "children")
    for name in (*numbers, "charges"):
        raw[name] = raw[name].astype(np.float64)
    return make_table(
        "medical",
        raw,
        target="charges",
        classification=False,
        continuous=numbers,
        categorical=("sex", "smoker", "region"),
        sensitive=sensitive,
        scale_target=bool(scale_target),
        note="Medical costs of Lantz (2013), simulated by the author from US statistics.",
    )
