from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.labels.geng import LabelsGengEnd, LabelsGengStart
from fedxray.attacks.labels.last_layer import (
    DummyStatistics,
    HeadGradient,
    HeadStatistics,
    _doubt,
    raw_counts,
    statistics,
)
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head
from fedxray.params import add, parameters_of
from fedxray.seeds import fork, normal_like
from tests.attacks.labels.heads import INPUTS, SameFeatures, as_sum, net, slow_gradient, told_view
from tests.attacks.views import view_of_update

CLASSES = 7
ALL: list[type[Attack]] = [LabelsGengStart, LabelsGengEnd, LabelsDlf]
FEDAVG = Recipe(epochs=3, batch_size=4, learning_rate=0.05)


def run(attack: Attack, view: Any, seed: int = 0) -> Evidence:
    return attack.run(view, generator=fork(seed, "test"))


def labels(count: int, classes: int, seed: int) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def exact(prediction: Tensor, activation: float) -> DummyStatistics:
    one = torch.tensor(activation, dtype=torch.float64)
    return DummyStatistics(prediction=prediction.double(), activation=one, error=0 * one)


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 9), examples=st.integers(1, 30))
@settings(max_examples=15, deadline=None)
def test_exact_where_all_enter_the_head_alike(seed: int, classes: int, examples: int) -> None:
    model, y = SameFeatures(seed, classes), labels(examples, classes, seed)
    view = told_view(model, y, Recipe(algorithm="fedsgd"))
    for attack in (LabelsGengStart(samples=5), LabelsGengEnd(samples=5), LabelsDlf(samples=5)):
        assert run(attack, view).tensors["counts"].tolist() == torch.bincount(y, minlength=classes).tolist()


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 9), examples=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_rows_are_exact_given_predictions_where_activations_have_one_sum(
    seed: int, classes: int, examples: int
) -> None:
    draw, y = torch.Generator().manual_seed(seed), labels(examples, classes, seed)
    features = torch.rand(examples, 6, generator=draw, dtype=torch.float64)
    features = 3 * features / features.sum(1, keepdim=True)
    logits = 2 * torch.randn(examples, classes, generator=draw, dtype=torch.float64)
    gradient = slow_gradient(features, logits, y)
    dummies = exact(logits.softmax(1).mean(0), 3.0)
    found = raw_counts(gradient, dummies, dummies, [0.0], "rows")
    assert torch.allclose(found, torch.bincount(y, minlength=classes).double(), atol=1e-9)


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 9), examples=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_the_bias_is_always_exact_given_predictions(seed: int, classes: int, examples: int) -> None:
    draw, y = torch.Generator().manual_seed(seed), labels(examples, classes, seed)
    features = torch.randn(examples, 6, generator=draw, dtype=torch.float64)
    logits = 2 * torch.randn(examples, classes, generator=draw, dtype=torch.float64)
    dummies = exact(logits.softmax(1).mean(0), -0.1)  # the activation does not enter
    found = raw_counts(slow_gradient(features, logits, y), dummies, dummies, [0.0], "bias")
    assert torch.allclose(found, torch.bincount(y, minlength=classes).double(), atol=1e-9)


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 9), examples=st.integers(1, 30), steps=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_raw_counts_sum_to_the_examples_whatever_the_statistics(
    seed: int, classes: int, examples: int, steps: int
) -> None:
    draw, y = torch.Generator().manual_seed(seed), labels(examples, classes, seed)
    features, logits = (torch.randn(examples, 6, generator=draw), torch.randn(examples, classes, generator=draw))
    gradient = slow_gradient(features, logits, y)
    pulls = torch.rand(steps, generator=draw, dtype=torch.float64) + 0.1
    gradient = replace(gradient, pulls=pulls)
    start, end = (
        exact(torch.rand(classes, generator=draw).double().softmax(0), float(5 * torch.rand((), generator=draw)) + 1)
        for _ in range(2)
    )
    for source in ("rows", "bias"):
        found = raw_counts(gradient, start, end, LabelsDlf().places(steps), source)  # type: ignore[arg-type]
        assert float(found.sum()) == pytest.approx(examples, abs=1e-6)


def slow_dlf(
    update: Tensor, start: DummyStatistics, end: DummyStatistics, *, rate: float, steps: int, examples: int
) -> list[float]:
    """Section 2.6 in loops: update of the last kernel [classes, features] as sent, no momentum."""
    counts = [0.0] * len(update)
    for i in range(steps):
        activation = (1 - i / steps) * float(start.activation) + (i / steps) * float(end.activation)
        for k in range(len(update)):
            p = (1 - i / steps) * float(start.prediction[k]) + (i / steps) * float(end.prediction[k])
            per_step = -float(update[k].double().sum()) / rate / steps
            counts[k] += (examples * p - examples * per_step / activation) / steps
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_against_loops_on_a_fedavg_client(seed: int) -> None:
    model, y = net(seed), labels(15, CLASSES, seed)
    view = told_view(model, y, FEDAVG)
    seen = view.observations[0]
    one, sent = torch.empty(1, INPUTS), parameters_of(model)
    draws = [
        statistics(model, params, {}, one, 500, fork(fork(0, "test"), "dummies of labels", 500))
        for params in (sent, add(sent, seen.update))
    ]
    raw = slow_dlf(seen.update[head(model).weight], *draws, rate=0.05, steps=12, examples=15)
    evidence = run(LabelsDlf(samples=500), view)
    assert evidence.facts["steps"] == 12 and sum(raw) == pytest.approx(15, abs=1e-3)
    assert all(abs(a - b) < 1 for a, b in zip(evidence.tensors["counts"].tolist(), raw, strict=True))
    gradient = HeadGradient(
        rows=-seen.update[head(model).weight].double() / (12 * 0.05),
        bias=None, pulls=torch.full((12,), 0.05, dtype=torch.float64), examples=15,
    )  # fmt: skip
    assert raw_counts(gradient, *draws, LabelsDlf().places(12), "rows").tolist() == pytest.approx(raw, abs=1e-6)
    for place, attack in ((0.0, LabelsGengStart(samples=500)), (11 / 12, LabelsGengEnd(samples=500))):
        direct = raw_counts(gradient, *draws, [place], "rows")
        assert all((run(attack, view).tensors["counts"] - direct).abs() < 1)


@pytest.mark.parametrize("source", ["rows", "bias"])
def test_with_one_step_all_three_are_the_same(source: str) -> None:
    for seed in range(5):
        y = labels(20, CLASSES, seed)
        for recipe in (Recipe(algorithm="fedsgd"), Recipe(batch_size="all", learning_rate=0.3)):
            view = told_view(net(seed), y, recipe)
            found = [run(attack(source=source, samples=300), view) for attack in ALL]  # type: ignore[call-arg]
            assert all(torch.equal(one.tensors["counts"], found[0].tensors["counts"]) for one in found)
            assert int(found[0].tensors["counts"].sum()) == 20


def test_counts_are_nearly_right_on_untrained_networks() -> None:
    for source, limit in (("rows", 0.12), ("bias", 0.08)):
        for recipe in (Recipe(algorithm="fedsgd"), FEDAVG):
            wrong = 0.0
            for seed in range(5):
                y = labels(20, CLASSES, seed)
                view = told_view(net(seed), y, recipe)
                found = run(LabelsDlf(source=source), view).tensors["counts"]  # type: ignore[arg-type]
                wrong += float((found - torch.bincount(y, minlength=CLASSES)).abs().sum()) / 2
            assert wrong / 100 < limit


@pytest.mark.parametrize("attack", ALL)
def test_momentum_and_the_rates_of_the_server_change_nothing_that_is_linear(attack: type[Attack]) -> None:
    y, small = labels(20, CLASSES, 1), 1e-4  # so small a rate that the network stands still
    plain = run(attack(), told_view(net(1), y, Recipe(epochs=2, batch_size="all", learning_rate=small)))
    recipe = Recipe(epochs=2, batch_size="all", learning_rate=small, momentum=0.7, server_learning_rate=0.3)
    view = told_view(net(1), y, recipe)
    assert torch.equal(run(attack(), view).tensors["counts"], plain.tensors["counts"])
    whole = as_sum(view, 4, recipe, contributors=(0, 1, 2, 3))
    found = run(attack(), whole)
    assert found.facts["steps"] == 2 and int(found.tensors["counts"].sum()) == 80
    assert float((found.tensors["counts"] / 4 - plain.tensors["counts"]).abs().max()) < 1


def test_the_end_itself_can_be_asked_for() -> None:
    y = labels(40, CLASSES, 2)
    view = told_view(net(2), y, Recipe(epochs=1, batch_size=20, learning_rate=2.0))
    early, late = run(LabelsGengEnd(), view), run(LabelsGengEnd(exactly=True), view)
    assert not torch.equal(early.tensors["counts"], late.tensors["counts"])
    assert early.facts["activation"] == late.facts["activation"]


@pytest.mark.parametrize("attack", ALL)
def test_features_that_cancel_out_are_undetermined(attack: type[Attack]) -> None:
    y = labels(20, CLASSES, 0)
    # Without a first bias, draws around zero give features around zero.
    odd = nn.Sequential(nn.Linear(INPUTS, 40, bias=False), nn.Tanh(), nn.Linear(40, CLASSES))
    view = told_view(odd, y, Recipe(algorithm="fedsgd"))
    evidence = run(attack(), view)
    assert evidence.status == "undetermined" and "zero" in evidence.reason
    assert sorted(evidence.tensors["counts"].tolist()) == [2, 3, 3, 3, 3, 3, 3]
    assert run(attack(source="bias"), view).status == "ok"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("source", "ends", "undecided"),
    [
        ("rows", (5.0, 4.0), False),
        ("rows", (-5.0, -4.0), False),
        ("rows", (5.0, -4.0), True),  # on the way from one to the other the formula divides by zero
        ("rows", (-5.0, 4.0), True),
        ("rows", (0.0, 0.0), True),
        ("bias", (5.0, -4.0), False),  # it does not divide
    ],
)
def test_activations_on_both_sides_of_zero_are_doubted(source: str, ends: tuple[float, float], undecided: bool) -> None:
    one = torch.ones(1, dtype=torch.float64)
    gradient = HeadGradient(rows=torch.ones(2, 3).double(), bias=torch.ones(2).double(), pulls=one, examples=4)
    start, end = (exact(torch.tensor([0.5, 0.5]), value) for value in ends)
    assert ("zero" in _doubt(gradient, start, end, source)) is undecided  # type: ignore[arg-type]


class Normed(nn.Module):
    """A network whose last layer is entered by what a BatchNorm layer makes of the inputs."""

    def __init__(self) -> None:
        """Both layers."""
        nn.Module.__init__(self)
        self.norm = nn.BatchNorm1d(INPUTS)
        self.head = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, classes]."""
        found: Tensor = self.head(self.norm(x).abs())
        return found


def test_the_model_returned_is_tried_with_the_statistics_that_it_returned() -> None:
    torch.manual_seed(0)
    model = Normed()
    view = told_view(model, labels(12, CLASSES, 0), FEDAVG)
    after = {"norm.running_mean": torch.full((INPUTS,), 3.0), "norm.running_var": torch.full((INPUTS,), 0.2)}
    seen = replace(view.observations[0], buffers_after=after)
    view = replace(view, observations=(seen,))
    sent, end = parameters_of(model), add(parameters_of(model), seen.update)

    def slow(params: Any, buffers: Any) -> Tensor:
        """Mean over dummies of the sum that enters the last layer, with these statistics."""
        draw = fork(fork(0, "test"), "dummies of labels", 50)
        x = normal_like(torch.empty(50, INPUTS), draw)
        mean, variance = buffers["norm.running_mean"], buffers["norm.running_var"]
        normed = (x - mean) / (variance + model.norm.eps).sqrt() * params["norm.weight"] + params["norm.bias"]
        return normed.abs().sum(1).mean()

    for place, expected in (("start", slow(sent, seen.buffers)), ("end", slow(end, seen.buffers | after))):
        found = run(HeadStatistics(place=place, samples=50, at="first"), view)  # type: ignore[arg-type]
        torch.testing.assert_close(found.tensors["activation"], expected, rtol=1e-4, atol=0)
    assert slow(end, seen.buffers | after) > 3 * slow(end, seen.buffers)


@pytest.mark.parametrize("attack", ALL)
def test_an_update_that_tells_nothing_is_undetermined(attack: type[Attack]) -> None:
    model = net(0)
    for value, reason in ((0.0, "did not change"), (float("nan"), "not finite")):
        update = {name: torch.full_like(one, value) for name, one in model.named_parameters()}
        view = view_of_update(model, update, shape=(INPUTS,), classes=CLASSES, examples=9)
        evidence = run(attack(samples=50), view)
        assert evidence.status == "undetermined" and reason in evidence.reason
        assert int(evidence.tensors["counts"].sum()) == 9


@pytest.mark.parametrize("attack", ALL)
def test_needs_are_named(attack: type[Attack]) -> None:
    view = told_view(net(0), labels(6, CLASSES, 0), FEDAVG)
    with pytest.raises(Refused, match="recipe"):
        run(attack(), replace(view, grants=replace(view.grants, recipe=None, names=())))
    bare = told_view(net(0, bias=False), labels(6, CLASSES, 0), FEDAVG)
    with pytest.raises(Refused, match="bias") as refusal:
        run(attack(source="bias"), bare)  # type: ignore[call-arg]
    assert 'source = "rows"' in refusal.value.remedy
    assert int(run(attack(samples=50), bare).tensors["counts"].sum()) == 6


@pytest.mark.parametrize("attack", ALL)
@pytest.mark.parametrize(
    "wrong", [{"samples": 1}, {"samples": 2.5}, {"samples": True}, {"source": "weights"}, {"at": "middle"}]
)
def test_wrong_settings_are_refused(attack: type[Attack], wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        attack(**wrong)
