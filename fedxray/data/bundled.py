"""Data sets without a download: digits and diabetes of scikit-learn, the synthetic `clinic`, LEAF's synthetic task."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedxray.data.checks import number, whole_number
from fedxray.data.dataset import Column, Dataset, Space
from fedxray.data.encode import check_sensitive, make_images, make_table
from fedxray.seeds import derive_seed

DIGITS_MEAN, DIGITS_STD = (0.3053,), (0.3760,)  # of all pixels


def digits(*, normalise: bool = False) -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels, in 0..1 unless normalised."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return make_images(
        "digits",
        bunch.images / 16.0,  # [1797, 8, 8]
        bunch.target,
        classes=tuple(str(digit) for digit in range(10)),
        mean=DIGITS_MEAN if normalise else (),
        std=DIGITS_STD if normalise else (),
        note="Optical recognition of handwritten digits (UCI), as bundled with scikit-learn.",
    )


def diabetes(*, sensitive: str | None = "sex", scale_target: bool | None = None) -> Dataset:
    """442 patients, ten columns, disease progression after one year (standardised unless scale_target = false)."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    names = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
    raw: dict[str, NDArray[Any]] = {name: bunch.data[:, index] for index, name in enumerate(names)}
    raw["progression"] = np.asarray(bunch.target, dtype=np.float64)
    return make_table(
        "diabetes",
        raw,
        target="progression",
        classification=False,
        continuous=[name for name in names if name != "sex"],
        categorical=["sex"],
        sensitive=sensitive,
        scale_target=scale_target is None or scale_target,
        note="Diabetes data of Efron et al. (2004), as bundled with scikit-learn.",
    )


# The synthetic table `clinic`: smoking changes the bill differently at each clinic

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
    rare_diagnosis: float = 0.0,
    sensitive: str | None = "smoker",
    scale_target: bool | None = None,
    seed: int = 0,
) -> Dataset:
    """`records` visits to each of `clients` clinics; every other one charges smokers more, the rest less.

    A share `rare_diagnosis` above 0 adds the column of that name: a flag that no other column, nor the bill, reveals.
    """
    whole_number("clients", clients, most=100_000)
    whole_number("records", records, most=1_000_000)
    number("noise", noise, least=0.0, most=100.0)
    number("rare_diagnosis", rare_diagnosis, least=0.0, most=0.5)
    draw = np.random.default_rng(derive_seed(seed, "clinic", clients, records))
    owner = np.repeat(np.arange(clients, dtype=np.int64), records)
    raw, bill = _visits(owner, clients, draw)
    strength = draw.uniform(1.0, 1.6, clients) * np.where(np.arange(clients) % 2 == 0, 1.0, -1.0)
    smokes = draw.random(len(owner)) < SMOKERS
    raw["smoker"] = np.where(smokes, "yes", "no")
    bill += draw.normal(0.0, 0.2, clients)[owner] + strength[owner] * smokes + draw.normal(0.0, noise, len(owner))
    raw["bill"] = 1000.0 * (6.0 + bill)
    flags = ["smoker"]
    if rare_diagnosis:
        flags.append("rare_diagnosis")
        coins = np.random.default_rng(derive_seed(seed, "clinic", "rare diagnosis", clients, records))
        raw["rare_diagnosis"] = np.where(coins.random(len(owner)) < rare_diagnosis, "yes", "no")
    return make_table(
        "clinic",
        raw,
        target="bill",
        classification=False,
        continuous=[measure[0] for measure in MEASURES],
        categorical=[*(group[0] for group in GROUPS), *flags],
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
        shift = draw.normal(0.0, 0.3, clients)  # the patients of clinics differ
        slope = effect + draw.normal(0.0, 0.05, clients)  # and so do their bills, a little
        values = shift[owner] + draw.standard_normal(len(owner))
        raw[name] = np.round(mean + spread * values, 1)
        bill += slope[owner] * values
    for name, values_of in GROUPS:
        shares = np.array([share for share, _ in values_of.values()])
        drawn = draw.choice(len(shares), size=len(owner), p=shares)
        raw[name] = np.array(list(values_of))[drawn]
        bill += np.array([effect for _, effect in values_of.values()])[drawn]
    return raw, bill


# The synthetic task of LEAF (Caldas et al. 2018), as Driouich et al. (LMRA) use it

Floats = NDArray[np.float64]


def leaf_synthetic(
    *,
    clients: int = 10,
    samples: int = 2000,
    dims: int = 100,
    classes: int = 5,
    clusters: int = 5,
    sensitive: str | None = "attribute",
    seed: int = 0,
) -> Dataset:
    """Gaussian features with a mean per client, and labels from a linear model per client.

    LEAF has no binary column, which Driouich et al. need: here the last of the `dims` columns is drawn from {0, 1}
    with equal odds before the labels are made, so it enters them like any other. Draws follow LEAF's order
    (its README has seed 931231). `samples = 0` draws LEAF's own uneven client sizes.
    """
    _check(clients, samples, dims, classes, clusters)
    sizes = _sizes(clients, samples, seed)
    blocks, labels = _draw(sizes, dims, classes, clusters, seed)
    x = np.concatenate(blocks).astype(np.float32)
    y = np.concatenate(labels)
    columns = _columns(x)
    space = Space(
        kind="table",
        shape=(dims,),
        target="classification",
        classes=tuple(str(label) for label in range(classes)),
        columns=columns,
        sensitive=check_sensitive(sensitive, columns),
    )
    shares = [np.bincount(part, minlength=classes).max() / len(part) for part in labels]
    return Dataset(
        name="leaf-synthetic",
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        space=space,
        raw={column.name: x[:, column.positions[0]] for column in columns} | {"label": y},
        owner=torch.from_numpy(np.repeat(np.arange(clients, dtype=np.int64), sizes)),
        note=f"Synthetic (LEAF). The largest label of a client has {min(shares):.2f} to {max(shares):.2f}.",
    )


def _check(clients: int, samples: int, dims: int, classes: int, clusters: int) -> None:
    whole_number("clients", clients, most=100_000)
    whole_number("samples", samples, least=0, most=1_000_000)
    whole_number("dims", dims, least=2, most=10_000)
    whole_number("classes", classes, least=2, most=1000)
    whole_number("clusters", clusters, most=1000)


def _sizes(clients: int, samples: int, seed: int) -> NDArray[np.int64]:
    if samples:
        return np.full(clients, samples, dtype=np.int64)
    drawn = np.random.RandomState(seed).lognormal(3, 2, clients).astype(np.int64) + 5
    return np.minimum(drawn, 1000)


def _draw(
    sizes: NDArray[np.int64], dims: int, classes: int, clusters: int, seed: int
) -> tuple[list[Floats], list[NDArray[np.int64]]]:
    """Features [n, dims] and labels [n] of every client, drawn in LEAF's order from one legacy generator."""
    draw = np.random.RandomState(seed)
    coin = np.random.RandomState(derive_seed(seed, "leaf", "attribute") % 2**32)
    weights = draw.normal(0.0, 1.0, (dims + 1, classes, clusters))
    covariance = np.diag(np.arange(1, dims + 1) ** -1.2)
    centres = [draw.normal(draw.normal(0.0, 1.0), 1.0, clusters) for _ in range(clusters)]
    blocks, labels = [], []
    for size in sizes:
        cluster = draw.choice(clusters, p=np.full(clusters, 1.0 / clusters))
        mean = draw.normal(draw.normal(0.0, 1.0), 1.0, dims)
        x = draw.multivariate_normal(mean, covariance, size)  # [size, dims]
        x[:, -1] = coin.randint(0, 2, size)
        model = weights @ draw.normal(centres[cluster], 0.1)  # [dims + 1, classes]
        scores = model[0] + x @ model[1:] + draw.normal(0.0, 0.1, (size, classes))
        blocks.append(x)
        labels.append(np.argmax(scores, axis=1).astype(np.int64))
    return blocks, labels


def _columns(x: NDArray[np.float32]) -> tuple[Column, ...]:
    """The continuous columns, and the binary attribute as the last one."""
    last = x.shape[1] - 1
    numbers = tuple(
        Column(
            name=f"x{index}",
            kind="continuous",
            positions=(index,),
            low=float(x[:, index].min()),
            high=float(x[:, index].max()),
        )
        for index in range(last)
    )
    binary = Column(
        name="attribute", kind="categorical", positions=(last,), categories=("0", "1"), codes=((0.0,), (1.0,))
    )
    return (*numbers, binary)
