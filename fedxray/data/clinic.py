"""The synthetic table `clinic`: at each of several clinics, smoking changes the bill in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import number, whole_number
from fedxray.data.columns import make_table
from fedxray.data.space import Dataset
from fedxray.seeds import derive_seed

# name, mean, spread, effect of one spread on the bill
MEASURES = (
    ("age", 52.0, 14.0, 0.5),
    ("bmi", 27.0, 4.5, 0.35),
    ("blood_pressure", 131.0, 16.0, 0.3),
    ("cholesterol", 5.2, 1.0, -0.2),
    ("glucose", 5.9, 1.1, 0.3),
    ("heart_rate", 73.0, 10.0, 0.1),
    ("creatinine", 84.0, 15.0, -0.15),
)
# name, {value: (share, effect)}
GROUPS: tuple[tuple[str, dict[str, tuple[float, float]]], ...] = (
    ("sex", {"female": (0.52, 0.0), "male": (0.48, 0.2)}),
    ("diabetic", {"no": (0.85, 0.0), "yes": (0.15, 0.4)}),
    ("region", {"east": (0.3, 0.0), "north": (0.2, 0.15), "south": (0.3, -0.1), "west": (0.2, 0.1)}),
    ("insurance", {"basic": (0.5, 0.0), "none": (0.1, -0.2), "private": (0.4, 0.25)}),
)
SMOKERS = 0.4  # share, the same at every clinic and independent of every public column


def clinic(
    *,
    clients: int = 4,
    records: int = 250,
    noise: float = 0.15,
    sensitive: str | None = "smoker",
    scale_target: bool | None = None,
    seed: int = 0,
) -> Dataset:
    """`records` visits to each of `clients` clinics; every other one charges smokers more, the rest less."""
    whole_number("clients", clients, most=100_000)
    whole_number("records", records, most=1_000_000)
    number("noise", noise, least=0.0, most=100.0)
    draw = np.random.default_rng(derive_seed(seed, "clinic", clients, records))
    owner = np.repeat(np.arange(clients, dtype=np.int64), records)
    raw, bill = _visits(owner, clients, draw)
    strength = draw.uniform(1.0, 1.6, clients) * np.where(np.arange(clients) % 2 == 0, 1.0, -1.0)
    smokes = draw.random(len(owner)) < SMOKERS
    raw["smoker"] = np.where(smokes, "yes", "no")
    bill += (
        draw.normal(0.0, 0.2, clients)[owner] + strength[owner] * smokes + draw.normal(0.0, noise, len(owner))
    )
    raw["bill"] = 1000.0 * (6.0 + bill)
    return make_table(
        "clinic",
        raw,
        target="bill",
        classification=False,
        continuous=[measure[0] for measure in MEASURES],
        categorical=[*(group[0] for group in GROUPS), "smoker"],
        sensitive=sensitive,
        scale_target=scale_target is None or scale_target,
        owner=owner,
        note="Synthetic: drawn from a formula, no person is in it. Partition as-given keeps the clinics.",
    )


def _visits(
    owner: NDArray[np.int64], clients: int, draw: np.random.Generator
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64]]:
    """The public columns [n] each, and their part of the bill [n] in thousands."""
    raw: dict[str, NDArray[Any]] = {}
    bill = np.zeros(len(owner))
    for name, mean, spread, effect in MEASURES:
        shift = draw.normal(0.0, 0.3, clients)  # clinics see different patients
        slope = effect + draw.normal(0.0, 0.05, clients)  # and bill a little differently
        values = shift[owner] + draw.standard_normal(len(owner))
        raw[name] = np.round(mean + spread * values, 1)
        bill += slope[owner] * values
    for name, values_of in GROUPS:
        shares = np.array([share for share, _ in values_of.values()])
        drawn = draw.choice(len(shares), size=len(owner), p=shares)
        raw[name] = np.array(list(values_of))[drawn]
        bill += np.array([effect for _, effect in values_of.values()])[drawn]
    return raw, bill
