"""Properties of every split: no record twice, none lost silently, equal for equal seeds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data.catalog import load
from fedxray.data.dataset import USE, Dataset
from fedxray.data.split import Split, split
from fedxray.errors import BadInput
from tests.data.tables import labelled


def everything(divided: Split) -> torch.Tensor:
    return torch.cat([divided.public, *divided.train, *divided.holdout])


def check_disjoint(dataset: Dataset, divided: Split) -> None:
    used = everything(divided)
    assert used.dtype == torch.int64
    assert len(used.unique()) == len(used)
    assert len(used) + divided.dropped == len(dataset)
    assert int(used.min()) >= 0
    assert int(used.max()) < len(dataset)
    assert all(len(part) > 0 for part in divided.train)


OPTIONS = {
    "iid": {},
    "dirichlet": {"alpha": 1.0},
    "by-label": {},
    "by-column": {"column": "town"},
    "as-given": {},
    "sizes": {"sizes": [2, 8]},
}


@given(
    partition=st.sampled_from(sorted(OPTIONS)),
    records=st.integers(60, 200),
    clients=st.integers(1, 5),
    holdout=st.sampled_from([0.0, 0.1, 0.5]),
    public=st.sampled_from([0.0, 0.1, 0.3]),
    limit=st.sampled_from([None, 1, 7]),
    seed=st.integers(0, 2**31),
)
def test_no_record_has_two_uses_and_none_is_lost(
    partition: str, records: int, clients: int, holdout: float, public: float, limit: int | None, seed: int
) -> None:
    dataset = labelled(records, owners=12)
    shares = {"holdout": holdout, "public": public, "limit": limit}
    divided = split(dataset, clients=clients, partition=partition, seed=seed, **shares, **OPTIONS[partition])
    check_disjoint(dataset, divided)
    assert len(divided.train) == len(divided.holdout) == clients
    assert len(divided.public) == round(public * records)
    if limit is None and partition not in ("as-given", "sizes"):
        assert divided.dropped == 0
    if limit is not None:
        assert max(len(part) for part in divided.train) <= limit
    for train, held in zip(divided.train, divided.holdout, strict=True):
        assert (len(held) > 0) == (holdout > 0)
        if limit is None:
            assert len(held) == pytest.approx(holdout * (len(train) + len(held)), abs=1.01)
    again = split(dataset, clients=clients, partition=partition, seed=seed, **shares, **OPTIONS[partition])
    assert torch.equal(everything(divided), everything(again))


def test_another_seed_gives_another_split() -> None:
    dataset = labelled(100)
    first, second = (split(dataset, clients=2, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.train[0], second.train[0])
    assert not torch.equal(first.public, second.public)


def test_iid_sizes_are_equal() -> None:
    divided = split(labelled(103), clients=4, holdout=0, public=0, seed=0)
    assert sorted(len(part) for part in divided.train) == [25, 26, 26, 26]


def test_a_larger_limit_keeps_the_records_of_a_smaller_one() -> None:
    dataset = labelled(300)
    small, large = (split(dataset, clients=3, limit=limit, seed=5) for limit in (10, 40))
    for few, many, held, held_again in zip(small.train, large.train, small.holdout, large.holdout, strict=True):
        assert torch.equal(few, many[:10])
        assert torch.equal(held, held_again)
    assert small.dropped == large.dropped + 90


@given(clients=st.integers(1, 4), limit=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_distinct_classes_are_the_first_of_each_in_the_same_order(clients: int, limit: int, seed: int) -> None:
    dataset = labelled(300, classes=6)
    plain, distinct = (
        split(dataset, clients=clients, seed=seed, limit=most, distinct_classes=most is not None)
        for most in (None, limit)
    )
    check_disjoint(dataset, distinct)
    assert torch.equal(plain.public, distinct.public)
    for order, chosen, held, held_again in zip(
        plain.train, distinct.train, plain.holdout, distinct.holdout, strict=True
    ):
        expected: dict[int, int] = {}
        for record in order.tolist():  # by hand: the first of every class
            expected.setdefault(int(dataset.y[record]), record)
        assert chosen.tolist() == list(expected.values())[:limit]
        assert torch.equal(held, held_again)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": None}, "no limit"),
        ({"limit": 4}, "at least 4 classes among the training records of every client, got 3 of client 0"),
    ],
)
def test_distinct_classes_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        split(labelled(60, classes=3), clients=2, distinct_classes=True, seed=0, **settings)


def test_distinct_classes_of_a_regression_are_refused() -> None:
    with pytest.raises(BadInput, match="distinct_classes: expected classes"):
        split(load("medical", seed=0), clients=2, limit=2, distinct_classes=True, seed=0)


def test_dirichlet_is_uneven_for_small_alpha_and_even_for_large() -> None:
    dataset = labelled(2000, classes=4)
    largest = {}
    for alpha in (0.1, 1000.0):
        divided = split(dataset, clients=4, partition="dirichlet", alpha=alpha, public=0, seed=0)
        counts = [torch.bincount(dataset.y[part], minlength=4) for part in divided.train]
        largest[alpha] = np.mean([float(count.max() / count.sum()) for count in counts])
    assert largest[0.1] > 0.5
    assert largest[1000.0] < 0.32


def test_dirichlet_of_a_regression_target_goes_by_tenths() -> None:
    dataset = load("diabetes")
    divided = split(dataset, clients=3, partition="dirichlet", alpha=0.2, seed=0)
    means = [float(dataset.y[part].mean()) for part in divided.train]
    assert max(means) - min(means) > 0.2


def test_dirichlet_that_leaves_a_client_empty_is_refused() -> None:
    with pytest.raises(BadInput, match="larger alpha or fewer clients"):
        split(labelled(40, classes=2), clients=20, partition="dirichlet", alpha=0.001, seed=0)


def test_by_label_gives_few_labels_to_each() -> None:
    dataset = labelled(1000, classes=10)
    divided = split(dataset, clients=5, partition="by-label", labels=2, public=0, holdout=0, seed=0)
    assert all(len(dataset.y[part].unique()) <= 4 for part in divided.train)
    assert sorted(torch.cat(divided.train).tolist()) == list(range(1000))


def test_by_column_keeps_a_category_together() -> None:
    dataset = labelled(100)
    for clients in (2, 5):
        divided = split(dataset, clients=clients, partition="by-column", column="town", seed=0)
        towns = [set(dataset.raw["town"][part.numpy()]) for part in divided.train]
        assert sum(len(town) for town in towns) == 5


def test_by_column_cuts_a_continuous_column_into_ranges() -> None:
    dataset = labelled(100)
    divided = split(dataset, clients=4, partition="by-column", column="x", seed=0)
    ranges = [(float(dataset.x[part].min()), float(dataset.x[part].max())) for part in divided.train]
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))


def test_clients_are_called_after_their_values() -> None:
    dataset = labelled(200, owners=12)
    towns = dataset.raw["town"]
    for clients in (5, 2):
        divided = split(dataset, clients=clients, partition="by-column", column="town", seed=0)
        for name, part in zip(divided.names, divided.train, strict=True):
            assert name == ", ".join(sorted(set(towns[part.numpy()])))
    assert split(dataset, clients=5, partition="by-column", column="town", seed=0).names == tuple(sorted(set(towns))), (
        "in alphabetical order"
    )
    ranges = split(dataset, clients=2, partition="by-column", column="x", seed=0)
    assert ranges.names == ("x, part 1 of 2", "x, part 2 of 2"), "the ends of a range are records' values"
    assert split(dataset, clients=3, partition="iid", seed=0).names == ("", "", "")


def test_a_client_of_many_values_is_called_after_the_first_few() -> None:
    dataset = replace(labelled(200), raw={"street": np.array([f"s{row % 8}" for row in range(200)])})
    divided = split(dataset, clients=1, partition="by-column", column="street", seed=0)
    assert divided.names == ("s0, s1, s2, s3, s4 and 3 more",)


def test_owners_keep_their_names() -> None:
    dataset = replace(labelled(200, owners=8), owners=("ann", "bob", "cid", "dan"))
    assert split(dataset, clients=3, partition="as-given", seed=0).names == ("ann", "bob", "cid")
    drawn = split(dataset, clients=4, partition="as-given", owners="random", seed=1)
    assert dataset.owner is not None
    assert list(drawn.names) == [dataset.owners[int(dataset.owner[part[0]])] for part in drawn.train]
    assert split(labelled(200, owners=8), clients=2, partition="as-given", seed=0).names == ("", "")


def test_as_given_takes_the_first_owners_with_enough_records() -> None:
    dataset = labelled(90)
    owner = torch.cat([torch.zeros(3), torch.ones(30), torch.full((27,), 2), torch.full((30,), 3)]).to(torch.int64)
    dataset = Dataset(name="small", x=dataset.x, y=dataset.y, space=dataset.space, owner=owner)
    divided = split(dataset, clients=2, partition="as-given", public=0, limit=25, minimum=28, seed=0)
    assert [int(owner[part[0]]) for part in divided.train] == [1, 3]
    assert [len(part) for part in divided.train] == [25, 25]
    assert divided.dropped == 34
    plain = split(dataset, clients=2, partition="as-given", public=0, holdout=0, seed=0)
    assert [int(owner[part[0]]) for part in plain.train] == [0, 1]
    more = split(dataset, clients=2, partition="as-given", public=0, holdout=0, minimum=28, owners="random", seed=0)
    assert {int(owner[part[0]]) for part in more.train} == {1, 3}
    with pytest.raises(BadInput, match="at most 3, the owners with 25"):
        split(dataset, clients=4, partition="as-given", public=0, minimum=25, seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 0}, "clients: expected a whole number of at least 1"),
        ({"clients": True}, "clients"),
        ({"clients": 51}, "clients: expected at most 50, the number of records"),
        ({"clients": 50}, "clients: expected records for every client, got none for client"),
        ({"clients": 2, "holdout": 1.0}, "holdout: expected a share"),
        ({"clients": 2, "public": -0.1}, "public: expected a share"),
        ({"clients": 2, "public": float("nan")}, "public: expected a share"),
        ({"clients": 2, "limit": 0}, "limit"),
        ({"clients": 2, "partition": "idd"}, "Did you mean iid"),
        ({"clients": 2, "alpha": 1.0}, "alpha: expected a setting of partition iid"),
        ({"clients": 2, "partition": "dirichlet", "alpha": 0.0}, "alpha"),
        ({"clients": 2, "partition": "dirichlet", "alpha": "x"}, "alpha"),
        ({"clients": 2, "partition": "by-column"}, "column"),
        ({"clients": 2, "partition": "by-column", "column": "twon"}, "Did you mean town"),
        ({"clients": 6, "partition": "by-column", "column": "town"}, "at most 5"),
        ({"clients": 2, "partition": "as-given"}, "data with an owner for each record"),
        ({"clients": 2, "partition": "income-correlation"}, "sensitive column"),
        ({"clients": 4, "partition": "adult-doctorate"}, "column"),
        ({"clients": 2, "partition": "sizes"}, "sizes: expected a list"),
        ({"clients": 2, "partition": "sizes", "sizes": [3, 0]}, "sizes: expected a whole number"),
        ({"clients": 2, "partition": "sizes", "sizes": [40, 20]}, "sizes: expected at most 45"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        split(labelled(50), seed=0, **settings)  # type: ignore[arg-type]


def test_sizes_are_dealt_in_turn_and_equal_totals_divide_the_same_records() -> None:
    settings = {"clients": 4, "partition": "sizes", "holdout": 0.0, "seed": 3}
    even = split(labelled(50), sizes=[6], **settings)  # type: ignore[arg-type]
    uneven = split(labelled(50), sizes=[9, 3], **settings)  # type: ignore[arg-type]
    assert [len(part) for part in even.train] == [6] * 4
    assert [len(part) for part in uneven.train] == [9, 3, 9, 3]
    assert set(torch.cat(even.train).tolist()) == set(torch.cat(uneven.train).tolist())
    assert even.dropped == 50 - 5 - 24


def used_dataset() -> Dataset:
    """Six records of two owners, whose uses are named."""
    whole = load("clinic", clients=2, records=10, seed=0)
    use = np.array(["train", "holdout", "public", "train", "train", "holdout"])
    owner = torch.tensor([1, 1, 0, 0, 1, 0])
    return replace(whole, x=whole.x[:6], y=whole.y[:6], raw={USE: use}, owner=owner, owners=("a", "b"))


def test_uses_stated_by_the_data_are_used_for_every_seed() -> None:
    for seed in (0, 7):
        found = split(used_dataset(), clients=2, partition="as-given", holdout=0.9, seed=seed)
        assert [part.tolist() for part in found.train] == [[3], [0, 4]]
        assert [part.tolist() for part in found.holdout] == [[5], [1]]
        assert found.public.tolist() == [2] and found.names == ("a", "b") and found.dropped == 0
    few = split(used_dataset(), clients=2, partition="as-given", limit=1, seed=0)
    assert [part.tolist() for part in few.train] == [[3], [0]] and few.dropped == 1


def test_named_uses_need_owners_and_their_number() -> None:
    for changes, words in (({"partition": "iid"}, "use: expected owners"), ({"clients": 3}, "clients: expected 2")):
        with pytest.raises(BadInput, match=words):
            split(used_dataset(), **{"clients": 2, "partition": "as-given", "seed": 0, **changes})
    with pytest.raises(BadInput, match="records without owners"):
        split(replace(used_dataset(), owner=None), clients=1, partition="as-given", seed=0)
