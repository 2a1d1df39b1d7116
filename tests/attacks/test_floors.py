"""Floors by hand: what can be guessed from public records, and from a seat's own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.adversary.view import Own, PublicAttributes, View
from fedxray.attacks.base import Attack
from fedxray.attacks.floors import (
    Chance,
    ClassMean,
    Imputation,
    Majority,
    Marginals,
    MeanImage,
    NearestPublicImage,
    RandomPublicImage,
    rounded_to,
)
from fedxray.audit import catalog
from fedxray.data.dataset import Column, Records, Space
from fedxray.errors import Refused
from fedxray.seeds import fork
from tests.attacks.by_hand import column, linear, table, view_with

TOO_FEW = """
import sys, torch
from fedxray.attacks.floors import impute_category
wanted = torch.tensor([0, 1] * 4)
guess = impute_category(torch.eye(8), wanted, torch.eye(8))
assert torch.equal(guess, wanted)
slow = {"sklearn.ensemble"} & set(sys.modules)
print(sorted(slow))
"""


def test_too_few_records_to_compare_models_import_none_but_the_linear_one() -> None:
    ended = subprocess.run([sys.executable, "-c", TOO_FEW], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


ASKED = PublicAttributes(x=torch.zeros(4, 2), y=torch.zeros(4))
IMAGE = (1, 2, 2)


def codes(floor: Attack, view: View) -> list[float]:
    found: list[float] = floor.run(view.without_messages(), generator=fork(0)).tensors["codes"][:, 0].tolist()
    return found


def people(*values: float) -> Records:
    """Public records with these values in the sensitive column."""
    x = torch.tensor([[0.0, value] for value in values])
    return Records(x, torch.zeros(len(x)))


def attribute_view(known: Records, sensitive: Column, *, own: Records | None = None) -> View:
    mine = () if own is None else (Own(client=0, records=own, observations=()),)
    space = table(2, sensitive)
    return view_with(linear([[0.0, 0.0]]), space, own=mine, public_attributes=ASKED, public_records=known)


def test_majority_is_the_most_frequent_public_value() -> None:
    view = attribute_view(people(-1, 2, 2, -1, 2), column((-1.0, 2.0)))
    assert codes(Majority(), view) == [2.0] * 4
    tied = attribute_view(people(2, -1), column((-1.0, 2.0)))
    assert codes(Majority(), tied) == [-1.0] * 4  # the first category


def test_majority_of_a_continuous_column_hits_most_public_records() -> None:
    """Two crowds: the median lies between them and is correct for no record, a floor of zero."""
    age = Column(name="s", kind="continuous", positions=(1,), low=0.0, high=10.0)
    values = [1.0, 1.5, 2.0, 5.0, 8.0, 8.5, 8.8, 9.2]
    view = attribute_view(people(*values), age)
    (guess,) = set(codes(Majority(), view))

    def hits(value: float) -> int:
        return sum(abs(value - other) <= 1.0 for other in values)

    assert hits(guess) == 4 == max(hits(value) for value in values) > hits(5.0)


@given(st.lists(st.floats(0, 10, width=32), min_size=1, max_size=12))
def test_no_public_value_would_have_been_a_better_guess(values: list[float]) -> None:
    age = Column(name="s", kind="continuous", positions=(1,), low=0.0, high=10.0)
    guess = codes(Majority(), attribute_view(people(*values), age))[0]
    shown = torch.tensor(values)
    hits = ((shown[:, None] - shown[None]).abs() <= age.tolerance).sum(1)
    assert guess in shown.tolist() and hits[shown.tolist().index(guess)] == hits.max()


def test_a_seat_also_learns_from_its_own_records() -> None:
    view = attribute_view(people(-1, -1, 2), column((-1.0, 2.0)), own=people(2, 2, 2))
    assert codes(Majority(), view) == [2.0] * 4
    assert codes(Majority(), attribute_view(people(-1, -1, 2), column((-1.0, 2.0)))) == [-1.0] * 4


def test_imputation_learns_what_the_public_records_show() -> None:
    """The sensitive value is whether the other column is above zero, and the target says nothing."""
    draw = fork(4, "people")
    first = torch.randn(60, generator=draw)
    known = Records(torch.stack([first, torch.where(first > 0, 2.0, -1.0)], 1), torch.zeros(60))
    asked = PublicAttributes(x=torch.tensor([[2.0, 0.0], [-2.0, 0.0], [1.5, 0.0]]), y=torch.zeros(3))
    space = table(2, column((-1.0, 2.0)))
    view = view_with(linear([[0.0, 0.0]]), space, public_attributes=asked, public_records=known)
    found = Imputation().run(view.without_messages(), generator=fork(0))
    assert found.tensors["codes"][:, 0].tolist() == [2.0, -1.0, 2.0] and found.facts == {"public_records": 60}
    assert found.tensors["codes_balanced"].shape == (3, 1)
    flipped = Own(
        client=0,
        records=Records(known.x * torch.tensor([1.0, 0.0]) - torch.tensor([0.0, 1.0]), known.y),
        observations=(),
    )
    learned = view_with(
        linear([[0.0, 0.0]]), space, own=(flipped,), public_attributes=asked, public_records=known.take(torch.arange(2))
    )
    assert codes(Imputation(), learned) == [-1.0] * 3  # its own records outvote two public ones


def test_chance_ranks_nobody() -> None:
    view = view_with(linear([[0.0]]), table(1), target_records=Records(torch.randn(5, 1), torch.zeros(5)))
    assert Chance().run(view.without_messages(), generator=fork(0)).tensors["scores"].tolist() == [0.0] * 5


def images(count: int) -> Records:
    x = torch.arange(4.0 * count).reshape(count, *IMAGE)
    return Records(x, torch.zeros(count, dtype=torch.int64))


def image_view(known: Records, examples: int) -> View:
    space = table(0, shape=IMAGE, classes=3)
    return view_with(linear([[0.0] * 4] * 3), space, examples=examples, public_records=known).without_messages()


def test_mean_image() -> None:
    found = MeanImage().run(image_view(images(3), 2), generator=fork(0)).tensors["inputs"]
    assert found.tolist() == [[[[4.0, 5.0], [6.0, 7.0]]]] * 2


def test_nearest_public_image_offers_them_all() -> None:
    known = images(3)
    found = NearestPublicImage().run(image_view(known, 2), generator=fork(0)).tensors["inputs"]
    assert torch.equal(found, known.x)
    more = NearestPublicImage().run(image_view(known, 7), generator=fork(0)).tensors["inputs"]
    assert len(more) == 9 and torch.equal(more[3:6], known.x)


def test_marginals_share_out_by_public_labels() -> None:
    known = Records(torch.zeros(4, *IMAGE), torch.tensor([0, 0, 0, 2]))
    counts = Marginals().run(image_view(known, 8), generator=fork(0)).tensors["counts"]
    assert counts.tolist() == [6, 0, 2]
    assert Marginals().run(image_view(known, 5), generator=fork(0)).tensors["counts"].tolist() == [4, 0, 1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(sum), st.integers(0, 50))
def test_shares_are_rounded_to_the_total(shares: list[float], total: int) -> None:
    values = torch.tensor(shares, dtype=torch.float64)
    values = values / values.sum() * total
    found = rounded_to(values, total)
    assert int(found.sum()) == total and (found - values).abs().max() < 1 + 1e-9


@pytest.mark.parametrize("name", sorted(set(catalog.FLOORS) - {"other-optimum"}))
def test_a_floor_reads_no_message_and_says_what_it_lacks(name: str) -> None:
    floor: Attack = catalog.resolve("floors", name)()
    assert not floor.floors and not floor.controls
    bare = view_with(linear([[0.0, 0.0]]), table(2, column())).without_messages()
    with pytest.raises(Refused):
        floor.run(bare, generator=fork(0))


def test_the_mean_of_a_class_or_of_all_where_a_class_has_no_public_image() -> None:
    """Three classes, of which the last has no public image; a seat's own images count like public ones."""
    x = torch.tensor([0.2, 0.4, 0.9]).reshape(3, 1, 1, 1).expand(3, *IMAGE)
    space = Space(kind="image", shape=IMAGE, target="classification", classes=("a", "b", "c"))
    public = Records(x, torch.tensor([0, 0, 1]))
    view = view_with(linear([[0.0]]), space, public_records=public)
    found = ClassMean().run(view.without_messages(), generator=fork(0))
    assert found.tensors["labels"].tolist() == [0, 1, 2]
    assert found.tensors["inputs"][:, 0, 0, 0].tolist() == pytest.approx([0.3, 0.9, 0.5])
    mine = (Own(client=0, records=Records(x[:1] * 0, torch.tensor([2])), observations=()),)
    known = view_with(linear([[0.0]]), space, own=mine, public_records=public)
    own = ClassMean().run(known.without_messages(), generator=fork(0))
    assert own.tensors["inputs"][2].abs().max() == 0
    with pytest.raises(Refused, match="public records"):
        ClassMean().run(view_with(linear([[0.0]]), space).without_messages(), generator=fork(0))


def test_a_random_public_image_is_one_of_its_class_and_every_one_is_drawn() -> None:
    """Of classes with two, one and no public image."""
    x = torch.tensor([0.2, 0.4, 0.9]).reshape(3, 1, 1, 1).expand(3, *IMAGE)
    space = Space(kind="image", shape=IMAGE, target="classification", classes=("a", "b", "c"))
    view = view_with(linear([[0.0]]), space, public_records=Records(x, torch.tensor([0, 0, 1]))).without_messages()
    drawn = [RandomPublicImage().run(view, generator=fork(seed)) for seed in range(40)]
    shades = torch.stack([one.tensors["inputs"][:, 0, 0, 0] for one in drawn])
    assert [sorted({round(float(value), 1) for value in column}) for column in shades.T] == [
        [0.2, 0.4], [0.9], [0.2, 0.4, 0.9],
    ]  # fmt: skip
    again = RandomPublicImage().run(view, generator=fork(3)).tensors
    assert again["labels"].tolist() == [0, 1, 2] and torch.equal(again["inputs"], drawn[3].tensors["inputs"])
