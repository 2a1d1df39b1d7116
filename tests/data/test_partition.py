"""The papers' own splits on the data they are made for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset
from fedxray.data.partition import by_number
from fedxray.data.split import split
from fedxray.errors import BadInput


@pytest.fixture(scope="module")
def adult(data_folder: object) -> Dataset:
    return load("adult")


@pytest.fixture(scope="module")
def incomes(data_folder: object) -> Dataset:
    return load("acs-income")


def test_doctors_are_divided_by_age(adult: Dataset) -> None:
    divided = split(adult, clients=10, partition="adult-doctorate", holdout=0, public=0, seed=0)
    ages = [adult.raw["age"][part.numpy()] for part in divided.train[:3]]
    assert ages[0].max() < 38
    assert ages[1].min() >= 38
    assert ages[1].max() <= 52
    assert ages[2].min() > 52
    doctor = adult.raw["education"] == "Doctorate"
    assert [bool(doctor[part.numpy()].all()) for part in divided.train] == [True] * 3 + [False] * 7
    assert sum(len(part) for part in divided.train) == 12300
    assert sum(len(part) for part in divided.train[:3]) == 544
    shares = [len(part) / 12300 for part in divided.train[3:]]
    assert min(shares) > 0.13
    assert max(shares) < 0.14
    assert divided.dropped == len(adult) - 12300


def correlation_kind(dataset: Dataset, part: torch.Tensor) -> float:
    """Share of rich men and poor women."""
    men = dataset.raw["SEX"] == "1"
    rich = dataset.y.numpy() > np.median(dataset.y.numpy())
    return float((men == rich)[part.numpy()].mean())


@pytest.mark.parametrize("heterogeneity", [0.0, 0.2, 0.4, 0.5])
def test_income_split_mixes_by_heterogeneity(incomes: Dataset, heterogeneity: float) -> None:
    divided = split(
        incomes, clients=10, partition="income-correlation", heterogeneity=heterogeneity, public=0, holdout=0, seed=0
    )
    kinds = [correlation_kind(incomes, part) for part in divided.train]
    assert np.mean(kinds[:5]) == pytest.approx(0.5 - heterogeneity, abs=1e-3)
    assert np.mean(kinds[5:]) == pytest.approx(0.5 + heterogeneity, abs=1e-3)
    assert max(len(part) for part in divided.train) - min(len(part) for part in divided.train) <= 1
    used = torch.cat(divided.train)
    assert len(used.unique()) == len(used)
    assert len(used) + divided.dropped == len(incomes)


def test_income_split_works_for_classes_and_refuses_odd_clients(data_folder: object, incomes: Dataset) -> None:
    dataset = load("acs-income", state="NE")
    divided = split(dataset, clients=2, partition="income-correlation", heterogeneity=0.5, seed=0)
    men = (dataset.raw["SEX"] == 1)[divided.train[1].numpy()]
    assert np.array_equal(men, dataset.y[divided.train[1]].numpy() == 1)
    with pytest.raises(BadInput, match="an even number"):
        split(incomes, clients=3, partition="income-correlation", seed=0)
    with pytest.raises(BadInput, match="heterogeneity"):
        split(incomes, clients=2, partition="income-correlation", heterogeneity=0.6, seed=0)


def test_faces_are_shared_but_never_held_out_or_public(data_folder: object) -> None:
    faces = load("att-faces")
    divided = split(faces, clients=10, partition="att-faces", holdout=0, public=0, seed=0)
    for part in divided.train:
        counts = torch.bincount(faces.y[part], minlength=40)
        assert int((counts == 10).sum()) == 4
        assert set(counts.tolist()) <= {3, 4, 10}
        assert len(part.unique()) == len(part)
    owned = [set(torch.nonzero(torch.bincount(faces.y[part]) == 10)[:, 0].tolist()) for part in divided.train]
    assert set.union(*owned) == set(range(40))
    shares = split(faces, clients=10, partition="att-faces", seed=0)
    trained = set(torch.cat(shares.train).tolist())
    held = torch.cat(shares.holdout).tolist()
    assert len(held) == len(set(held))
    assert not trained & set(held)
    assert not trained & set(shares.public.tolist())
    assert not set(held) & set(shares.public.tolist())
    assert len(trained | set(held) | set(shares.public.tolist())) + shares.dropped == 400


def test_members_by_number_are_those_that_a_mask_per_number_gives() -> None:
    members, number = torch.arange(10, 40), torch.randint(0, 6, (30,), generator=torch.Generator().manual_seed(0))
    number[number == 3] = 5  # a number without members
    groups = by_number(members, number, 8)
    assert len(groups) == 8
    for value, group in enumerate(groups):
        assert torch.equal(group, members[number == value])
