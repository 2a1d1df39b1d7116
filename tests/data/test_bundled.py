"""The generated data sets: what clinic promises about its sensitive column, and LEAF's procedure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset
from fedxray.errors import BadInput


def attribute_accuracy(dataset: Dataset, trained: np.ndarray, tried: np.ndarray) -> float:
    """Share of records whose sensitive value a least-squares fit to `trained` finds by the smaller error."""
    column = dataset.space.column(str(dataset.space.sensitive))
    x = np.column_stack([dataset.x.numpy().astype(np.float64), np.ones(len(dataset))])
    y = dataset.y.numpy().astype(np.float64)
    weights = np.linalg.lstsq(x[trained], y[trained], rcond=None)[0]
    errors = []
    for code in column.codes:
        changed = x[tried].copy()
        changed[:, column.positions] = code
        errors.append((changed @ weights - y[tried]) ** 2)
    truth = (dataset.raw[column.name][tried] == column.categories[1]).astype(int)
    return float((np.argmin(errors, axis=0) == truth).mean())


def test_clinic_is_the_same_for_the_same_seed() -> None:
    first, again, other = load("clinic", seed=3), load("clinic", seed=3), load("clinic", seed=4)
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.y, other.y)


def test_clinic_shape_and_owners() -> None:
    dataset = load("clinic", clients=3, records=50)
    assert len(dataset.space.columns) == 12
    assert dataset.owner is not None
    assert torch.bincount(dataset.owner).tolist() == [50, 50, 50]
    assert "ynthetic" in dataset.note
    assert float(dataset.y.mean()) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_clinic_leaks_through_the_client_and_not_through_public_columns(seed: int) -> None:
    dataset = load("clinic", clients=4, records=250, seed=seed)
    assert dataset.owner is not None
    owner = dataset.owner.numpy()
    smokes = dataset.raw["smoker"] == "yes"
    majority = max(smokes.mean(), 1 - smokes.mean())
    place = dataset.space.column("smoker").positions[0]
    public = np.delete(dataset.x.numpy(), place, axis=1)
    correlations = [abs(np.corrcoef(column, smokes)[0, 1]) for column in public.T]
    assert max(correlations) < 0.12
    assert majority < 0.65
    everyone = np.arange(len(dataset))
    for client in range(4):
        mine = np.flatnonzero(owner == client)
        assert attribute_accuracy(dataset, mine, mine) > 0.9
    assert attribute_accuracy(dataset, everyone, everyone) < 0.75


def test_a_rare_diagnosis_is_one_in_ten_revealed_by_nothing_and_changes_no_other_column() -> None:
    plain, rare = load("clinic"), load("clinic", rare_diagnosis=0.1, sensitive="rare_diagnosis")
    assert {name for name in rare.raw if name not in plain.raw} == {"rare_diagnosis"}
    assert all(np.array_equal(plain.raw[name], rare.raw[name]) for name in plain.raw)
    flag = (rare.raw["rare_diagnosis"] == "yes").astype(float)
    assert abs(flag.mean() - 0.1) < 0.03
    others = [rare.raw[name] for name in rare.raw if rare.raw[name].dtype.kind == "f"]
    assert max(abs(np.corrcoef(flag, values)[0, 1]) for values in others) < 0.12


BAD = [
    {"clients": 0}, {"records": "many"}, {"noise": float("nan")}, {"clients": True}, {"rare_diagnosis": 0.6},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_clinic_refuses(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(bad))):
        load("clinic", **bad)


def slow_leaf(seed: int, sizes: list[int], d: int, C: int, K: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """LEAF's generator with its global state and loops; features before the binary column is put in."""
    np.random.seed(seed)
    Q = np.random.normal(size=(d + 1, C, K))
    sigma = np.zeros((d, d))
    for i in range(d):
        sigma[i, i] = (i + 1) ** (-1.2)
    means = []
    for _ in range(K):
        loc = np.random.normal(0, 1)
        means.append(np.random.normal(loc, 1, K))
    tasks = []
    for n in sizes:
        k = np.random.choice(range(K), p=[1 / K] * K)
        B = np.random.normal(0, 1)
        v = np.random.normal(B, 1, d)
        x = np.random.multivariate_normal(v, sigma, n)
        u = np.random.normal(means[k], 0.1, K)
        w = np.einsum("ack,k->ac", Q, u)
        noise = np.random.normal(0, 0.1, (n, C))
        tasks.append((x, w, noise))
    return tasks


def test_leaf_follows_the_published_order_of_draws() -> None:
    dataset = load("leaf-synthetic", clients=3, samples=20, dims=6, classes=4, clusters=2, seed=7)
    x = dataset.x.numpy()
    for client, (features, w, noise) in enumerate(slow_leaf(7, [20, 20, 20], 6, 4, 2)):
        rows = slice(20 * client, 20 * client + 20)
        assert np.allclose(x[rows, :5], features[:, :5], atol=1e-5)
        mine = np.column_stack([np.ones(20), features[:, :5], x[rows, 5]])
        assert np.array_equal(np.argmax(mine @ w + noise, axis=1), dataset.y[rows].numpy())


def test_leaf_defaults_are_the_papers() -> None:
    dataset = load("leaf-synthetic")
    assert dataset.x.shape == (20000, 100)
    assert dataset.space.sensitive == "attribute"
    assert 0.48 < float(dataset.x[:, -1].mean()) < 0.52
    assert "largest label" in dataset.note
    assert dataset.owner is not None
    assert torch.bincount(dataset.owner).tolist() == [2000] * 10


def test_leaf_own_sizes_are_uneven() -> None:
    dataset = load("leaf-synthetic", clients=20, samples=0, dims=4)
    assert dataset.owner is not None
    sizes = torch.bincount(dataset.owner)
    assert int(sizes.min()) >= 5
    assert int(sizes.max()) <= 1000
    assert len(sizes.unique()) > 5
