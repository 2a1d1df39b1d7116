"""The synthetic task of LEAF (Caldas et al. 2018) as the paper on local model reconstruction uses it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedxray.data.checks import whole_number
from fedxray.data.columns import check_sensitive
from fedxray.data.space import Column, Dataset, Space
from fedxray.seeds import derive_seed

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

    LEAF has no binary column, which the paper needs: here the last of the `dims` columns is drawn from {0, 1}
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
    last = x.shape[1] - 1
    numbers = tuple(
        Column(
            name=f"x{place}",
            kind="continuous",
            positions=(place,),
            low=float(x[:, place].min()),
            high=float(x[:, place].max()),
        )
        for place in range(last)
    )
    binary = Column(
        name="attribute",
        kind="categorical",
        positions=(last,),
        categories=("0", "1"),
        codes=((0.0,), (1.0,)),
    )
    return (*numbers, binary)
