from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.labels.idlg import LabelsIdlg, against_all_others, estimated_share, share_out
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe, draw_schedule
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.views import view_of_update

CLASSES = 7


def net(seed: int, *, bias: bool = True, activation: type[nn.Module] = nn.ReLU, classes: int = CLASSES) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 40), activation(), nn.Linear(40, classes, bias=bias))


def view_of(model: nn.Module, y: Tensor, recipe: Recipe | None = None, *, classes: int = CLASSES, **more: Any) -> View:
    x = torch.randn(len(y), 5)
    used = recipe or Recipe(algorithm="fedsgd")
    update = plain_update(model, x, y, used, draw_schedule(len(y), used, torch.Generator().manual_seed(0)))
    given = {"examples": len(y), "kind": used.kind, **more}
    return view_of_update(model, update, shape=(5,), classes=classes, **given)


def counts_of(view: View, **settings: Any) -> list[int]:
    evidence = LabelsIdlg(**settings).run(view, generator=fork(0, "test"))
    assert evidence.kind == "labels" and evidence.tensors["counts"].dtype == torch.int64
    found: list[int] = evidence.tensors["counts"].tolist()
    return found


def test_shares_by_hand() -> None:
    # Classes 1 and 3 are below zero, one each; left is [0.3, -0.3, 0.2, 0.1], so the third goes to class 1.
    assert share_out(torch.tensor([0.3, -0.5, 0.2, -0.1]), 3, 0.2).tolist() == [0, 2, 0, 1]
    assert share_out(torch.tensor([0.3, -0.4, 0.1, 0.0]), 1, 0.5).tolist() == [0, 1, 0, 0]
    assert share_out(torch.tensor([-0.1, -0.4, -0.2]), 2, 0.5).tolist() == [0, 1, 1]


def test_the_share_of_unknown_scale_by_hand() -> None:
    # Below zero are 0.5 and 0.1, of 4 classes, for 3 examples: 0.6 * 1.25 / 3.
    assert estimated_share(torch.tensor([0.3, -0.5, 0.3, -0.1]), 3) == pytest.approx(0.25)
    one = torch.full((100,), 1 / 100)  # one example of an even prediction: nearly its whole share, which is 1
    one[7] -= 1
    assert estimated_share(one, 1) == pytest.approx(1, abs=1e-3)


@given(
    counts=st.lists(st.integers(0, 6), min_size=3, max_size=9).filter(lambda values: sum(values) > 0),
    scale=st.floats(1e-3, 1e3),
)
@settings(max_examples=40)
def test_an_even_guess_of_the_network_gives_exact_counts(counts: list[int], scale: float) -> None:
    truth, examples = torch.tensor(counts), sum(counts)
    signal = scale * (1 / len(counts) - truth.to(torch.float64) / examples)
    assert share_out(signal, examples, scale / examples).tolist() == counts
    found = share_out(signal, examples, estimated_share(signal, examples))
    assert int(found.sum()) == examples and int(found.min()) >= 0


def test_the_row_against_all_others_by_hand() -> None:
    features = torch.tensor([1.0, -3.0, 0.5])  # their sum is below zero: row sums alone would point elsewhere
    factors = torch.tensor([0.2, 0.5, -0.9, 0.2])
    rows = factors[:, None] * features
    slow = [sum(float(rows[k] @ rows[j]) for j in range(4) if j != k) for k in range(4)]
    assert against_all_others(rows).tolist() == pytest.approx(slow)
    assert int(against_all_others(rows).argmin()) == 2
    assert int(rows.sum(1).argmin()) != 2


@pytest.mark.parametrize(("bias", "source"), [(True, "auto"), (True, "bias"), (True, "rows"), (False, "auto")])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Sigmoid, nn.Tanh])
def test_a_single_example_is_always_right(bias: bool, source: str, activation: type[nn.Module]) -> None:
    for seed in range(15):
        label = seed % CLASSES
        view = view_of(net(seed, bias=bias, activation=activation), torch.tensor([label]))
        assert counts_of(view, source=source) == [int(place == label) for place in range(CLASSES)]


@pytest.mark.parametrize("label", [0, 1])
def test_two_classes_without_a_bias_use_the_row_sums(label: int) -> None:
    for seed in range(5):
        view = view_of(net(seed, bias=False, classes=2), torch.tensor([label]), classes=2)
        assert counts_of(view) == [1 - label, label]


def test_distinct_labels_are_right_on_untrained_nets() -> None:
    for seed in range(15):
        chosen = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed))[:4]
        expected = torch.bincount(chosen, minlength=CLASSES).tolist()
        assert counts_of(view_of(net(seed), chosen), source="bias") == expected


@pytest.mark.parametrize(("source", "limit"), [("bias", 0.05), ("rows", 0.15)])
def test_repeated_labels_are_nearly_right(source: str, limit: float) -> None:
    wrong = 0.0
    for seed in range(10):
        y = torch.randint(CLASSES, (12,), generator=torch.Generator().manual_seed(seed))
        found = torch.tensor(counts_of(view_of(net(seed), y), source=source))
        assert int(found.sum()) == 12
        wrong += float((found - torch.bincount(y, minlength=CLASSES)).abs().sum()) / 2
    assert wrong / 120 < limit


def test_an_update_of_weights_serves_as_it_is() -> None:
    recipe = Recipe(epochs=2, batch_size=2, learning_rate=0.01)
    y = torch.tensor([1, 4, 6, 2])
    expected = torch.bincount(y, minlength=CLASSES).tolist()
    view = view_of(net(3), y, recipe)
    assert view.grants.recipe is None and counts_of(view) == expected
    informed_view = replace(view, grants=replace(view.grants, names=("recipe",), recipe=recipe))
    assert counts_of(informed_view) == expected


def test_a_head_that_did_not_change_is_undetermined() -> None:
    model = net(0)
    still = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    view = view_of_update(model, still, shape=(5,), classes=CLASSES, examples=9)
    evidence = LabelsIdlg().run(view, generator=fork(0, "test"))
    assert evidence.status == "undetermined" and evidence.reason
    assert sorted(evidence.tensors["counts"].tolist()) == [1, 1, 1, 1, 1, 2, 2]


def test_the_last_round_can_be_asked_for() -> None:
    view = view_of(net(1), torch.tensor([2]))
    other = view_of(net(1), torch.tensor([5]))
    both = replace(view, observations=(*view.observations, replace(other.observations[0], round=1)))
    assert counts_of(both).index(1) == 2
    assert counts_of(both, at="last").index(1) == 5


def test_needs_are_named() -> None:
    y = torch.tensor([0, 1])
    unknown = view_of(net(0), y, examples=None)
    with pytest.raises(Refused, match="number of examples") as refusal:
        counts_of(unknown)
    assert "examples" in refusal.value.remedy
    informed_view = replace(unknown, grants=replace(unknown.grants, names=("examples",), examples=2))
    assert sum(counts_of(informed_view)) == 2
    with pytest.raises(Refused, match="an update"):
        counts_of(unknown.without_messages())
    with pytest.raises(Refused, match="bias in the last layer"):
        counts_of(view_of(net(0, bias=False), y), source="bias")
    model = net(0)
    no_head = {name: value for name, value in view_of(model, y).observations[0].update.items() if name[0] != "2"}
    with pytest.raises(Refused, match="linear last layer"):
        counts_of(view_of_update(model, no_head, shape=(5,), classes=CLASSES, examples=2))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="source"):
        LabelsIdlg(source="weights")
    with pytest.raises(BadInput, match="at"):
        LabelsIdlg(at="middle")


def test_a_bias_that_was_not_sent_is_not_read() -> None:
    y = torch.tensor([0, 3, 3, 5])
    view = view_of(net(0), y)
    update = dict(view.observations[0].update)
    update["2.bias"] = torch.zeros_like(update["2.bias"])
    unsent = view_of_update(net(0), update, shape=(5,), classes=CLASSES, examples=4, kind="gradient")
    assert counts_of(unsent) == counts_of(unsent, source="rows") != counts_of(unsent, source="bias")
