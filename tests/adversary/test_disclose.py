"""Every grant by hand: exactly the named values about the right clients, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedxray.adversary.disclose import (
    attribute_order,
    attribute_rows,
    disclose,
    membership_records,
    records_in_question,
    source_records,
)
from fedxray.adversary.grants import GRANTS, MOST_SOURCES
from fedxray.adversary.view import Grants
from fedxray.data.dataset import Records, union
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.federation.transcript import MemoryShelf, Message, Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.records import auc
from fedxray.params import parameters_of
from fedxray.seeds import fork, permutation, spell
from tests.adversary.clinics import SENSITIVE, federation, numbers
from tests.contract.reach import reachable

NEEDS_CLASSES = {"labels", "label-counts", "batch-labels"}


@pytest.fixture
def truth() -> Truth:
    return federation().truth(seed=3)


@pytest.fixture
def classes() -> Truth:
    return federation("classification").truth(seed=3)


def given(grants: Grants) -> set[str]:
    """The names of all values in these grants."""
    empty = Grants()
    named = {name for name in vars(empty) if name not in ("names", "oracle")}
    return {name.replace("_", "-") for name in named if getattr(grants, name) is not getattr(empty, name)} | set(
        grants.oracle
    )


@pytest.mark.parametrize("name", sorted(set(GRANTS) - {"bn-statistics", "metrics"}))
def test_named_grants_are_given_and_nothing_else(name: str, truth: Truth, classes: Truth) -> None:
    chosen = classes if name in NEEDS_CLASSES else truth
    found = disclose(chosen, [name], client=1, seats=(0,))
    assert given(found) == {name} and found.names == (name,)
    assert found.is_oracle == name.startswith("oracle-")


def test_nothing_named_nothing_given(truth: Truth) -> None:
    assert disclose(truth, [], client=1) == Grants()


def test_public_attributes_lack_the_sensitive_column_and_only_that(truth: Truth) -> None:
    found = disclose(truth, ["public-attributes"], client=1).public_attributes
    assert found is not None and sorted(numbers(found)) == list(range(100, 106))
    assert (found.x[:, SENSITIVE] == 0).all() and (found.x[:, 2] == 1).all()
    assert torch.allclose(found.y * 10, found.x[:, 0] * 100)  # a row keeps its own target
    assert (truth.train[1].x[:, SENSITIVE] != 0).all()  # the truth itself is left alone


def test_public_attributes_come_in_an_order_of_what_is_granted_alone(truth: Truth) -> None:
    """Another seed, another own order or other sensitive values of the client change nothing that is granted."""

    def granted(chosen: Truth) -> list[int]:
        found = disclose(chosen, ["public-attributes"], client=2).public_attributes
        assert found is not None and numbers(found) == numbers(attribute_rows(chosen, 2))
        return numbers(found)

    own = truth.train[2]
    turned = replace(truth, train=(*truth.train[:2], own.take(torch.arange(9, -1, -1))))
    x = own.x.clone()
    x[:, SENSITIVE] = x[:, SENSITIVE].flip(0)
    others = replace(truth, train=(*truth.train[:2], Records(x, own.y)))
    orders = [granted(chosen) for chosen in (truth, replace(truth, seed=4), turned, others)]
    assert orders[0] != sorted(orders[0]) and all(order == orders[0] for order in orders)


def test_rows_that_look_the_same_are_ordered_by_what_no_adversary_holds(truth: Truth) -> None:
    """Two values of the sensitive column behind one granted row: neither own order nor seed alone gives the first."""

    def first(seed: int, other: float) -> float:
        twins = Records(torch.tensor([[1.0, -1.0, 1.0], [1.0, 2.0, 1.0]]), torch.ones(2))
        stranger = Records(truth.train[0].x + other, truth.train[0].y)
        chosen = replace(truth, train=(stranger, twins, truth.train[2]), seed=seed)
        return float(attribute_rows(chosen, 1).x[0, SENSITIVE])

    assert {first(3, other) for other in range(12)} == {-1.0, 2.0}
    assert first(3, 0.0) == first(3, 0.0)


def test_at_most_as_many_held_out_rows_as_were_trained_on(truth: Truth) -> None:
    swapped = replace(truth, train=(truth.train[0],) * 3, holdout=(truth.train[2],) * 3)
    found = disclose(swapped, ["public-attributes"], client=1, rows="holdout").public_attributes
    assert found is not None and len(found.x) == len(truth.train[0]) < len(truth.train[2])
    assert set(numbers(found)) < set(range(200, 210)) and numbers(found) == numbers(
        attribute_rows(swapped, 1, (), "holdout")
    )


def test_held_out_rows_in_place_of_training_rows(truth: Truth) -> None:
    found = disclose(truth, ["public-attributes", "oracle-records"], client=2, rows="holdout")
    assert found.public_attributes is not None
    assert sorted(numbers(found.public_attributes)) == [250, 251, 252, 253]
    assert numbers(found.oracle["oracle-records"]) == [250, 251, 252, 253]


def test_held_out_rows_among_training_rows_and_nothing_else_changed(truth: Truth) -> None:
    names = ["public-attributes", "examples", "labels", "source-records"]
    plain, found = disclose(truth, names, client=1), disclose(truth, names, client=1, rows="mixed")
    asked = found.public_attributes
    assert asked is not None and sorted(numbers(asked)) == [*range(100, 106), 150, 151, 152]
    assert not asked.x[:, SENSITIVE].any() and numbers(asked) == numbers(attribute_rows(truth, 1, (), "mixed"))
    assert (attribute_order(truth, 1, rows="mixed") >= 6).tolist() == [number >= 150 for number in numbers(asked)]
    assert found.examples == plain.examples == 6 and spell(found.labels) == spell(plain.labels)
    first, more = plain.source_records, disclose(truth, names, client=1, rows="holdout").source_records
    assert found.source_records is not None and first is not None and more is not None
    assert sorted(numbers(found.source_records)) == sorted(numbers(first) + numbers(more))
    assert found.source_records.counts == tuple(map(sum, zip(first.counts, more.counts, strict=True)))
    few = replace(truth, holdout=(truth.train[2],) * 3)
    assert len(attribute_rows(few, 0, (), "mixed")) == 2 * len(truth.train[0])


def test_for_sums_the_records_are_those_of_all_but_the_colluding_clients(truth: Truth) -> None:
    assert numbers(records_in_question(truth, None, (0,))) == [*range(100, 106), *range(200, 210)]
    assert numbers(records_in_question(truth, None, (0, 2), "holdout")) == [150, 151, 152]
    found = disclose(truth, ["examples", "contributors", "public-attributes"], seats=(0,))
    assert found.examples == 16 and found.contributors == (0, 1, 2)
    assert found.public_attributes is not None and len(found.public_attributes.x) == 16


def test_small_facts(truth: Truth) -> None:
    found = disclose(truth, ["examples", "contributors", "recipe", "defence", "public-records"], client=1)
    assert (found.examples, found.contributors) == (6, (1,))
    assert found.recipe == truth.recipe and found.defence == truth.defence
    assert found.public_records is not None and numbers(found.public_records) == list(range(900, 905))
    assert found.names == ("contributors", "defence", "examples", "public-records", "recipe")


def test_labels_in_three_degrees(classes: Truth) -> None:
    names = ["labels", "label-counts", "batch-labels"]
    found = disclose(classes, names, client=2)
    assert found.labels is not None and found.label_counts is not None and found.batch_labels is not None
    real = classes.train[2].y
    assert found.labels.sort().values.tolist() == real.sort().values.tolist()
    turned = replace(classes, train=(*classes.train[:2], classes.train[2].take(torch.arange(9, -1, -1))), seed=9)
    again = disclose(turned, ["labels"], client=2).labels
    assert again is not None and again.tolist() == found.labels.tolist() != real.tolist()
    assert found.label_counts.tolist() == [sum(y == k for y in real.tolist()) for k in range(3)]
    assert list(found.batch_labels) == [0, 1, 2]  # by round
    for round, steps in found.batch_labels.items():
        schedule = classes.schedule(2, round)
        assert [step.tolist() for step in steps] == [
            real[schedule.used(step)].tolist() for step in range(schedule.steps)
        ]
        assert torch.cat(steps).sort().values.tolist() == real.sort().values.tolist()
    assert not torch.equal(torch.cat(found.batch_labels[0]), torch.cat(found.batch_labels[1]))


def test_target_records_are_members_and_held_out_ones_mixed(truth: Truth) -> None:
    records, inside = membership_records(truth, 1)
    assert sorted(numbers(records)) == [*range(100, 106), 150, 151, 152]
    assert [number < 150 for number in numbers(records)] == inside.tolist()
    granted = disclose(truth, ["target-records"], client=1).target_records
    assert granted is not None and numbers(granted) == numbers(records)


def test_the_order_of_target_records_is_the_same_whoever_of_them_is_a_member(truth: Truth) -> None:
    both = union((truth.train[1], truth.holdout[1]))
    granted, members = [], []
    for turn in range(9):
        moved = both.take(torch.arange(9).roll(turn))
        parts = moved.take(torch.arange(6)), moved.take(torch.arange(6, 9))
        chosen = replace(
            truth,
            train=(truth.train[0], parts[0], truth.train[2]),
            holdout=(truth.holdout[0], parts[1], truth.holdout[2]),
        )
        records, inside = membership_records(chosen, 1)
        assert [number in numbers(parts[0]) for number in numbers(records)] == inside.tolist()
        granted.append(numbers(records))
        members.append(tuple(inside.tolist()))
    assert all(order == granted[0] for order in granted) and len(set(members)) == 9


def test_the_seed_of_the_run_does_not_give_the_members(truth: Truth) -> None:
    """The seed can be found from the first model that was sent; the order in which records are granted cannot."""
    sizes = len(truth.train[2]), len(truth.holdout[2])
    for seed in range(20):
        _, inside = membership_records(replace(truth, seed=seed), 2)
        drawn = permutation(sum(sizes), fork(seed, "membership", 2)) < sizes[0]
        assert auc(drawn.double(), inside) < 1.0
    rebuilt = membership_records(replace(truth, seed=20), 2)[1]
    assert torch.equal(rebuilt, inside)  # with or without the seed


def test_grants_are_copies(truth: Truth, classes: Truth) -> None:
    """Whatever an attack writes into what it is given, the truth and the next grants stay the same."""
    for name in sorted(set(GRANTS) - {"bn-statistics", "metrics"}):
        chosen = classes if name in NEEDS_CLASSES else truth
        client = chosen.train[1].take(torch.arange(6).repeat(2))
        sliced = Records(client.x[:6], client.y[:6])  # its memory holds more than its records
        chosen = replace(chosen, train=(chosen.train[0], sliced, chosen.train[2]), public=sliced)
        before, first = chosen.checksum(), disclose(chosen, [name], client=1, seats=(0,))
        for value in reachable(first):
            if isinstance(value, torch.Tensor):
                value.zero_()
                assert value.untyped_storage().nbytes() == value.nbytes, name
        assert chosen.checksum() == before, name


@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_checksum_changes_with_every_record_and_parameter(truth: Truth, in_blocks: bool) -> None:
    truth = truth.in_blocks() if in_blocks else truth
    sums = {truth.checksum()}
    changed = [truth.train[2].x, truth.train[0].y, truth.holdout[1].x, truth.public.y, *truth.model.parameters()]
    for value in changed:
        value.detach().flatten()[-1] += 1.0
        sums.add(truth.checksum())
    truth.train[2].x[:2] = truth.train[2].x[:2].flip(0)  # the sum of all entries stays the same
    assert len({*sums, truth.checksum()}) == len(changed) + 2


def test_a_checksum_notices_every_entry_and_every_exchange_of_two(truth: Truth) -> None:
    """Also in tensors that fill many rows of the table whose sums it is made of."""
    size = 8 * 5000 + 3
    records = Records(torch.arange(size, dtype=torch.uint8), torch.zeros(size))
    whole = replace(truth, public=records)
    before = whole.checksum()
    for entry in (0, 4095, 8 * 1024, 8 * 2048 + 5, size - 1):
        records.x[entry] += 1
        assert whole.checksum() != before
        records.x[entry] -= 1
    for first, second in ((0, 8 * 1024 + 1), (3, 4), (7, 8), (size - 1, 0), (8 * 1024, 8 * 2048 + 1)):
        records.x[[first, second]] = records.x[[second, first]]
        assert whole.checksum() != before
        records.x[[first, second]] = records.x[[second, first]]
    rows = slice(0, 8 * 1024), slice(8 * 1024, 16 * 1024)
    records.x[rows[0]] += 1  # the rows differ, then change places
    moved = whole.checksum()
    records.x[rows[0]], records.x[rows[1]] = records.x[rows[1]].clone(), records.x[rows[0]].clone()
    assert len({before, moved, whole.checksum()}) == 3


def test_blocks_hold_the_records_of_all_clients_in_their_order(truth: Truth) -> None:
    whole = truth.in_blocks()
    assert [len(block) for block in whole.blocks] == [sum(map(len, part)) for part in (truth.train, truth.holdout)]
    for before, after in zip((*truth.train, *truth.holdout), (*whole.train, *whole.holdout), strict=True):
        assert torch.equal(before.x, after.x) and torch.equal(before.y, after.y)
    assert whole.checksum() == truth.checksum() and whole.secret == truth.secret


def test_non_members_are_held_out_records_alone(truth: Truth) -> None:
    """Public records would be recognised by their population."""
    none = torch.tensor([], dtype=torch.int64)
    without_holdout = replace(truth, holdout=tuple(records.take(none) for records in truth.holdout))
    assert len(without_holdout.public)
    with pytest.raises(BadInput, match="holdout"):
        disclose(without_holdout, ["target-records"], client=1)


def test_sources_are_asked_of_equally_many_records_of_every_client(
    truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, owner = source_records(truth)
    found = numbers(Records(records.x, records.y))
    assert [number // 100 for number in found] == owner.tolist() and found != sorted(found)
    assert records.counts == (4, 6, 10) and len(set(found)) == 20  # few enough to ask about all
    for client in (0, 1, None):  # the question does not show which client is scored
        granted = disclose(truth, ["source-records"], client=client).source_records
        assert granted is not None and torch.equal(granted.x, records.x) and torch.equal(granted.y, records.y)
    again = source_records(replace(truth, seed=9))[0]
    assert torch.equal(again.x, records.x)
    monkeypatch.setitem(MOST_SOURCES, "train", 16)
    assert source_records(truth)[0].counts == (4, 5, 5)
    assert sorted(numbers(source_records(truth)[0]))[9:] == [200, 202, 204, 206, 208]
    assert source_records(truth, (2,))[0].counts == (4, 6, 0)


def test_records_of_several_clients_and_a_single_client_have_no_source(truth: Truth) -> None:
    shared = replace(truth, train=(union((truth.train[0], truth.train[1])), truth.train[1], truth.train[2]))
    assert source_records(shared)[0].counts == (4, 0, 10)
    for train in (truth.train[:1], (truth.train[0], truth.train[0])):
        with pytest.raises(BadInput, match="records of two clients"):
            source_records(replace(truth, train=train))


def test_source_records_may_be_held_out_ones(truth: Truth) -> None:
    asked, owner = source_records(truth, rows="holdout")
    assert torch.bincount(owner).tolist() == list(asked.counts) == [len(one) for one in truth.holdout]
    assert sorted(numbers(Records(asked.x, asked.y))) == sorted(n for one in truth.holdout for n in numbers(one))
    granted = disclose(truth, ["source-records"], client=1, rows="holdout").source_records
    assert granted is not None and torch.equal(granted.x, asked.x)


def test_oracles_by_hand(truth: Truth) -> None:
    names = ["oracle-records", "oracle-groups", "oracle-loss", "oracle-order"]
    found = disclose(truth, names, client=1)
    assert given(found) == set(names) and found.is_oracle
    assert numbers(found.oracle["oracle-records"]) == list(range(100, 106))
    assert [len(records) for records in found.oracle["oracle-groups"]] == [4, 6, 10]
    model = nn.Linear(3, 1)
    wanted = float(((model(truth.train[1].x)[:, 0] - truth.train[1].y) ** 2).mean().detach())
    assert found.oracle["oracle-loss"].of(model, parameters_of(model)) == pytest.approx(wanted, rel=1e-6)
    assert list(found.oracle["oracle-order"]) == [0, 1, 2]
    assert torch.equal(found.oracle["oracle-order"][2], truth.schedule(1, 2).index)


def test_rounds_of_a_recording_are_those_it_holds(classes: Truth) -> None:
    """A recording may say that its last round was any, so nothing is counted up to it."""
    far = replace(classes, rounds=10**15)
    broadcast = Message(what="broadcast", round=7, client=1, parts="sent/7", readers=frozenset())
    recording = Transcript(
        messages=(broadcast,),
        shelf=MemoryShelf(),
        model=far.model,
        space=far.space,
        loss="mse",
        clients=2,
        recorded=True,
    )
    found = disclose(far, ["batch-labels", "oracle-order"], client=1, transcript=recording)
    assert list(found.oracle["oracle-order"]) == [7] and list(found.batch_labels or ()) == [7]


def test_own_data_is_for_curious_clients(truth: Truth) -> None:
    found = disclose(truth, ["own-data"], client=1, seats=(0, 2)).own_data
    assert found is not None and numbers(found) == [*range(4), *range(200, 210)]
    with pytest.raises(BadInput, match="curious-client"):
        disclose(truth, ["own-data"], client=1)


@pytest.mark.parametrize(
    ("name", "client", "words"),
    [
        ("recipes", 1, "recipe"),
        ("batch-labels", None, "one target client"),
        ("oracle-order", None, "one target client"),
        ("label-counts", 1, "classification"),
    ],
)
def test_grants_that_do_not_exist_for_this_run_are_refused(
    name: str, client: int | None, words: str, truth: Truth
) -> None:
    with pytest.raises(BadInput, match=words):
        disclose(truth, [name], client=client)


def test_without_a_sensitive_column_there_are_no_public_attributes(truth: Truth) -> None:
    plain = replace(truth, space=replace(truth.space, sensitive=None))
    with pytest.raises(BadInput, match="sensitive"):
        disclose(plain, ["public-attributes"], client=1)


def normed(**recipe: Any) -> tuple[Transcript, Truth]:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    return simulate(replace(federation(recipe=recipe), model=model, rounds=2), seed=3)


def test_norm_statistics_are_those_of_every_batch_of_the_client() -> None:
    transcript, truth = normed(epochs=2)
    found = disclose(truth, ["bn-statistics"], client=1, transcript=transcript)
    assert given(found) == {"bn-statistics"} and found.bn_statistics is not None
    assert sorted(found.bn_statistics) == [0, 1]
    for round, statistics in found.bn_statistics.items():
        sent = transcript.shelf.get(f"global/{round}").params
        schedule = truth.schedule(1, round)
        assert statistics["1.mean"].shape == statistics["1.var"].shape == (schedule.steps, 4)
        first = truth.train[1].x[schedule.used(0)] @ sent["0.weight"].T + sent["0.bias"]
        torch.testing.assert_close(statistics["1.mean"][0], first.sum(0) / len(first))
        torch.testing.assert_close(statistics["1.var"][0], ((first - first.mean(0)) ** 2).sum(0) / (len(first) - 1))


def test_running_statistics_are_made_of_the_granted_ones() -> None:
    transcript, truth = normed(epochs=2)
    statistics = disclose(truth, ["bn-statistics"], client=2, transcript=transcript).bn_statistics
    assert statistics is not None
    before, after = (transcript.shelf.get(key).buffers for key in ("global/0", "reply/0/2"))
    for ours, theirs in (("1.mean", "1.running_mean"), ("1.var", "1.running_var")):
        running = before[theirs]
        for step in statistics[0][ours]:
            running = 0.9 * running + 0.1 * step
        torch.testing.assert_close(running, after[theirs])


def test_norm_statistics_need_a_run_and_a_network_with_norm() -> None:
    transcript, truth = normed()
    with pytest.raises(BadInput, match="no transcript"):
        disclose(truth, ["bn-statistics"], client=1)
    with pytest.raises(BadInput, match="without BatchNorm"):
        disclose(federation().truth(seed=3), ["bn-statistics"], client=1, transcript=transcript)
    with pytest.raises(BadInput, match="one target client"):
        disclose(truth, ["bn-statistics"], transcript=transcript)


def test_as_many_non_members_as_members_are_asked_about(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(truth, train=tuple(records.take(torch.arange(1)) for records in truth.train))
    everyone, _ = membership_records(few, 0)
    assert len(everyone) == 1 + len(few.holdout[0])  # fewer than are enough
    monkeypatch.setattr("fedxray.adversary.disclose.ENOUGH_OTHERS", (100, 1))
    asked, inside = membership_records(few, 0)
    assert len(few.holdout[0]) > 1 and len(asked) == 2 and int(inside.sum()) == 1
    again, _ = membership_records(few, 0)
    assert torch.equal(asked.x, again.x)
    monkeypatch.setattr("fedxray.adversary.disclose.ENOUGH_OTHERS", (2, 1))  # enough for the smaller rate too
    assert len(membership_records(few, 0)[0]) == 3


def test_of_a_person_outside_all_records_are_asked_about_or_none(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part of a person's records would score less surely than all of a member's."""
    train = tuple(replace(part.take(torch.arange(1)), subject=torch.tensor([99])) for part in truth.train)
    holdout = tuple(replace(part, subject=torch.arange(len(part)) // 2) for part in truth.train)
    monkeypatch.setattr("fedxray.adversary.disclose.ENOUGH_OTHERS", (1,))
    asked, inside = membership_records(replace(truth, train=train, holdout=holdout), 0)
    assert asked.subject is not None and holdout[0].subject is not None
    outside = asked.subject[~inside]
    assert 2 <= len(outside) < len(holdout[0])
    for person in outside.unique():
        assert int((outside == person).sum()) == int((holdout[0].subject == person).sum())
