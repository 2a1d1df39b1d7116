from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from fedxray.attacks.labels.ilrg import LabelsIlrg, ilrg_counts
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head
from fedxray.params import parameters_of
from fedxray.seeds import fork
from tests.attacks.labels.heads import INPUTS, SameFeatures, net, slow_gradient, told_view
from tests.attacks.views import view_of_update

CLASSES = 7
FEDSGD = Recipe(algorithm="fedsgd")


def labels(count: int, classes: int, seed: int) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def counts_of(view: object, **settings: str) -> list[int]:
    evidence = LabelsIlrg(**settings).run(view, generator=fork(0, "test"))  # type: ignore[arg-type]
    assert evidence.status == "ok"
    found: list[int] = evidence.tensors["counts"].tolist()
    return found


def slow_counts(rows: np.ndarray, slope: np.ndarray, weight: np.ndarray, bias: np.ndarray, examples: int) -> np.ndarray:
    """The equations one by one, solved by normal equations of least squares."""
    classes = len(bias)
    predictions = []
    for i in range(classes):
        feature = rows[i] / slope[i]
        outputs = [float(weight[k] @ feature + bias[k]) for k in range(classes)]
        exps = [np.exp(one - max(outputs)) for one in outputs]
        predictions.append([one / sum(exps) for one in exps])
    system, right = [[1.0] * classes], [float(examples)]
    for i in range(classes):
        system.append([predictions[j][i] - (1.0 if i == j else 0.0) for j in range(classes)])
        right.append(examples * slope[i])
    a, b = np.array(system), np.array(right)
    return np.asarray(np.linalg.solve(a.T @ a, a.T @ b))


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 8), examples=st.integers(1, 25))
@settings(max_examples=40, deadline=None)
def test_against_the_equations_one_by_one(seed: int, classes: int, examples: int) -> None:
    draw, y = torch.Generator().manual_seed(seed), labels(examples, classes, seed)
    features = torch.rand(examples, 6, generator=draw, dtype=torch.float64)
    weight = 0.3 * torch.randn(classes, 6, generator=draw, dtype=torch.float64)
    bias = 0.3 * torch.randn(classes, generator=draw, dtype=torch.float64)
    gradient = slow_gradient(features, features @ weight.T + bias, y)
    assert gradient.bias is not None
    if float(gradient.bias.abs().min()) < 1e-3:
        return  # then the restored features are anything
    found = ilrg_counts(gradient.rows, gradient.bias, weight, bias, examples)
    slow = slow_counts(gradient.rows.numpy(), gradient.bias.numpy(), weight.numpy(), bias.numpy(), examples)
    assert np.allclose(found.numpy(), slow, atol=1e-4)


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 9), examples=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_exact_where_all_have_the_same_features(seed: int, classes: int, examples: int) -> None:
    y = labels(examples, classes, seed)
    truth = torch.bincount(y, minlength=classes).tolist()
    assert counts_of(told_view(SameFeatures(seed, classes), y, FEDSGD)) == truth


def test_nearly_right_on_untrained_networks_and_for_weights() -> None:
    for recipe in (FEDSGD, Recipe(epochs=3, batch_size=4, learning_rate=0.05)):
        wrong = 0.0
        for seed in range(8):
            y = labels(20, CLASSES, seed)
            found = torch.tensor(counts_of(told_view(net(seed), y, recipe)))
            assert int(found.sum()) == 20 and int(found.min()) >= 0
            wrong += float((found - torch.bincount(y, minlength=CLASSES)).abs().sum()) / 2
        assert wrong / 160 < 0.15


def test_a_class_whose_bias_stood_still_does_no_harm() -> None:
    rows = torch.tensor([[1.0, 0.5], [-1.0, -0.5], [0.0, 0.0]], dtype=torch.float64)
    slope = torch.tensor([0.5, -0.5, 0.0], dtype=torch.float64)
    weight, bias = torch.zeros_like(rows), torch.zeros_like(slope)
    found = ilrg_counts(rows, slope, weight, bias, 6)  # predictions of 1/3: counts are 6 (1/3 - slope)
    assert found.tolist() == pytest.approx([-1.0, 5.0, 2.0])


def test_a_head_without_bias_is_refused_with_what_to_use() -> None:
    y = labels(6, CLASSES, 0)
    with pytest.raises(Refused, match="bias in the last layer") as refusal:
        counts_of(told_view(net(0, bias=False), y, FEDSGD))
    assert "labels-dlf" in refusal.value.remedy and "labels-geng-start" in refusal.value.remedy
    model = net(0)
    frozen = dict(told_view(model, y, FEDSGD).observations[0].update)
    del frozen[str(head(model).bias)]
    with pytest.raises(Refused, match="bias in the last layer"):
        counts_of(view_of_update(model, frozen, shape=(INPUTS,), classes=CLASSES, examples=6))


def test_an_update_that_tells_nothing_is_undetermined() -> None:
    model = net(0)
    for value, reason in ((0.0, "did not change"), (float("inf"), "not finite")):
        update = {name: torch.full_like(one, value) for name, one in parameters_of(model).items()}
        view = view_of_update(model, update, shape=(INPUTS,), classes=CLASSES, examples=9)
        evidence = LabelsIlrg().run(view, generator=fork(0, "test"))
        assert evidence.status == "undetermined" and reason in evidence.reason
        assert int(evidence.tensors["counts"].sum()) == 9


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="at"):
        LabelsIlrg(at="middle")  # type: ignore[arg-type]
