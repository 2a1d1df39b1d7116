"""People with several records: a person is never on two sides of a split, and its identifier is nowhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data.catalog import load
from fedxray.data.dataset import USE, Dataset, Records, union
from fedxray.data.split import Split, split
from fedxray.data.subjects import number_subjects
from fedxray.errors import BadInput
from fedxray.seeds import spell
from tests.data.tables import labelled

PARTITIONS = {
    "iid": {},
    "dirichlet": {"alpha": 5.0},
    "by-label": {},
    "by-column": {"column": "town"},
    "sizes": {"sizes": [2, 3]},
}


def of_people(records: int, people: int, seed: int = 0) -> Dataset:
    """Records of random people, at least one of each."""
    draw = np.random.default_rng(seed)
    whose = np.concatenate([np.arange(people), draw.integers(0, people, records - people)])
    return replace(labelled(records, seed=seed), subject=number_subjects(draw.permutation(whose)))


def people_of(dataset: Dataset, rows: torch.Tensor) -> set[int]:
    assert dataset.subject is not None
    return set(dataset.subject[rows].tolist())


@given(
    partition=st.sampled_from(sorted(PARTITIONS)),
    clients=st.integers(1, 4),
    holdout=st.sampled_from([0.0, 0.2, 0.5]),
    public=st.sampled_from([0.0, 0.2]),
    aside=st.sampled_from([0.0, 0.4]),
    limit=st.sampled_from([None, 9]),
    seed=st.integers(0, 2**31),
)
def test_no_person_is_on_two_sides(
    partition: str, clients: int, holdout: float, public: float, aside: float, limit: int | None, seed: int
) -> None:
    dataset = of_people(150, 40, seed % 7)
    shares = {"holdout": holdout, "public": public, "subject_holdout": aside, "limit": limit}
    divided = split(dataset, clients=clients, partition=partition, seed=seed, **shares, **PARTITIONS[partition])
    sides = [people_of(dataset, rows) for rows in (*divided.train, *divided.holdout, divided.public)]
    assert all(not one & other for one, other in combinations(sides, 2))
    used = torch.cat([divided.public, *divided.train, *divided.holdout, *divided.others])
    assert len(used.unique()) == len(used) == len(dataset) - divided.dropped
    assert bool(divided.others) == (aside > 0)
    for train, held, others in zip(divided.train, divided.holdout, divided.others, strict=False):
        own = people_of(dataset, train) | people_of(dataset, held)
        assert limit is not None or people_of(dataset, others) <= own
    if limit is None and aside == 0 and partition != "sizes":
        assert divided.dropped == 0  # all records of a person go where the person goes


def test_the_share_set_aside_is_the_same_for_people_trained_on_and_held_out() -> None:
    dataset = replace(labelled(400), subject=number_subjects(np.repeat(np.arange(40), 10)))
    divided = split(dataset, clients=2, holdout=0.5, public=0.0, subject_holdout=0.3, seed=3)
    for train, held, others in zip(divided.train, divided.holdout, divided.others, strict=True):
        for kept in (train, held):
            for person in people_of(dataset, kept):
                assert dataset.subject is not None
                assert int((dataset.subject[kept] == person).sum()) == 7
                assert int((dataset.subject[others] == person).sum()) == 3
    assert any(bool((train.diff() < 0).any()) for train in divided.train)  # not person by person


def test_splits_without_subjects_are_as_before() -> None:
    plain = split(labelled(60), clients=3, seed=5)
    assert plain.train[0].tolist()[:5] == [39, 38, 46, 2, 36]
    assert isinstance(plain, Split) and plain.others == ()
    with pytest.raises(BadInput, match="subject_holdout"):
        split(labelled(60), clients=3, subject_holdout=0.2, seed=5)


def test_refusals_of_a_split() -> None:
    dataset = of_people(60, 7)
    with pytest.raises(BadInput, match="7 people"):
        split(dataset, clients=4, seed=0)
    with pytest.raises(BadInput, match="people at several"):
        split(replace(dataset, owner=torch.arange(60) % 2), clients=2, partition="as-given", seed=0)
    use = np.array(["train", "holdout"] * 30)
    used = replace(dataset, raw=dataset.raw | {USE: use}, owner=torch.zeros(60, dtype=torch.int64))
    with pytest.raises(BadInput, match="people with several"):
        split(used, clients=1, partition="as-given", seed=0)


def write(folder: Path, ids: list[str], header: str = "patient,age,ill") -> Path:
    lines = [f"{name},{20 + 3 * row % 50},{row % 2}" for row, name in enumerate(ids)]
    path = folder / "visits.csv"
    path.write_text("\n".join([header, *lines]))
    return path


def test_the_column_is_no_feature_and_its_values_are_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, ["zoe-77", "adam-3", "zoe-77", "bo-1", "adam-3"] * 4)
    dataset = load(path=path, target="ill", subject="patient")
    assert dataset.subject is not None and dataset.subject.tolist()[:5] == [0, 1, 0, 2, 1]
    assert [column.name for column in dataset.space.columns] == ["age"] and dataset.x.shape == (20, 1)
    assert set(dataset.raw) == {"age", "ill"}
    assert "zoe" not in repr(dataset) + repr(dataset.raw) + repr(dataset.space.columns)


@pytest.mark.parametrize(
    ("ids", "subject", "message"),
    [
        (["a", "b"] * 5, "pateint", "Did you mean patient"),
        ([f"p{row}" for row in range(10)], "patient", "Every record is a person: leave subject out"),
        (["a"] * 10, "patient", "one person only"),
        (["a", "", "b", "b"] * 3, "patient", "a person for every record.*no value"),
        (["a", "b"] * 5, "ill", "neither the target nor sensitive"),
    ],
)
def test_messages_of_a_table(tmp_path: Path, ids: list[str], subject: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"(?s){message}"):
        load(path=write(tmp_path, ids), target="ill", subject=subject, drop=[] if subject == "patient" else ["patient"])


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("shape", [(12, 3), (12, 1, 4, 4)])
def test_arrays(tmp_path: Path, ready: bool, shape: tuple[int, ...]) -> None:
    path = tmp_path / "own.npz"
    x = np.random.default_rng(0).random(shape).astype(np.float32)
    whose = np.repeat(["c", "a", "b"], 4)
    np.savez(path, x=x, y=np.arange(12) % 2, patient=whose, weight=np.ones(12), short=whose[:5])
    dataset = load(path=path, subject="patient", ready=ready)
    assert dataset.subject is not None and dataset.subject.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.x[0].numel() == np.prod(shape[1:])
    for name, message in (("nobody", "beside x and y"), ("weight", "whole number or text"), ("short", "12 records")):
        with pytest.raises(BadInput, match=message):
            load(path=path, subject=name, ready=ready)


def test_writers_are_people_and_other_data_sets_have_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="femnist"):
        load("digits", subject="writer")
    with pytest.raises(BadInput, match="femnist"):
        load("clinic", subject="smoker")


def test_records_carry_their_people_and_are_spelled_as_before_without() -> None:
    x, y = torch.zeros(3, 1), torch.arange(3)
    plain, known = Records(x, y), Records(x, y, torch.tensor([4, 4, 7]))
    assert "subject" not in spell(plain) and "subject" in spell(known)
    both = union((known, known.take(torch.tensor([2]))))
    assert both.subject is not None and both.subject.tolist() == [4, 4, 7, 7]
    assert union((known, plain)).subject is None
