"""Distance of models against slow loops, and Zest against NumPy, Captum and cases by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedxray.data.dataset import Column, Space
from fedxray.errors import BadInput
from fedxray.metrics import models
from fedxray.metrics.models import (
    Lime,
    Question,
    ask,
    by_column,
    distance_scores,
    fit_scores,
    parameter_distance,
    segments_of,
    signature,
    similarity,
    squares,
)
from fedxray.seeds import fork

# Distance and fit


def test_parameter_distance_equals_slow_loops() -> None:
    generator = fork(0)
    truth = {"a": torch.randn(3, 2, generator=generator), "b": torch.randn(4, generator=generator)}
    guess = {name: value + torch.randn(value.shape, generator=generator) for name, value in truth.items()}
    error = sum(
        (a - b) ** 2
        for n in truth
        for a, b in zip(guess[n].flatten().tolist(), truth[n].flatten().tolist(), strict=True)
    )
    size = sum(b**2 for n in truth for b in truth[n].flatten().tolist())
    assert parameter_distance(guess, truth) == pytest.approx(math.sqrt(error / size))
    assert parameter_distance(dict(reversed(guess.items())), truth) == pytest.approx(math.sqrt(error / size))
    assert distance_scores(truth, truth) == {"parameter_distance": 0.0}
    doubled = {name: 2 * value for name, value in truth.items()}
    assert parameter_distance(doubled, truth) == pytest.approx(1.0)
    assert parameter_distance(
        {name: 7 * value for name, value in guess.items()}, {name: 7 * value for name, value in truth.items()}
    ) == pytest.approx(math.sqrt(error / size), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_parameter_distance_at_the_edges(bad: float) -> None:
    truth = {"a": torch.tensor([1.0, 2.0])}
    assert parameter_distance({"a": torch.tensor([bad, 2.0])}, truth) == 1e10
    zero = {"a": torch.zeros(2)}
    assert parameter_distance(zero, zero) == 0.0 and parameter_distance(truth, zero) == 1e10
    assert distance_scores({}, {}) == {}
    for other in ({"b": truth["a"]}, {"a": torch.zeros(3)}, {}):
        with pytest.raises(BadInput, match="architecture"):
            parameter_distance(other, truth)


def test_fit_of_classes_by_hand() -> None:
    space = Space(kind="table", shape=(1,), target="classification", classes=("a", "b"))
    output, y = (torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [math.nan, 0.0]]), torch.tensor([0, 0, 0, 0]))
    found = fit_scores(output[:3], y[:3], "cross-entropy", space, y)
    soft = [math.log(2), math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))]
    assert found == pytest.approx({"training_loss": sum(soft) / 3, "training_accuracy": 2 / 3}, rel=1e-6)
    broken = fit_scores(output, y, "cross-entropy", space, y)
    assert broken == {"training_loss": 1e10, "training_accuracy": 0.5}
    assert fit_scores(output[:0], y[:0], "cross-entropy", space, y) == {}


def test_fit_of_a_value_by_hand() -> None:
    """The loss is a share of the variance of everyone's targets; percentages are of raw and positive targets."""
    y, everyone = torch.tensor([1.0, -1.0]), torch.tensor([2.0, -2.0, 2.0, -2.0])
    output = torch.tensor([[2.0], [-1.0]])
    space = Space(kind="table", shape=(1,), target="regression", target_mean=100.0, target_std=10.0)
    found = fit_scores(output, y, "mse", space, everyone)
    assert found == pytest.approx({"training_loss": 0.5 / 4, "training_mape": (10 / 110) / 2})
    below = Space(kind="table", shape=(1,), target="regression", target_mean=10.0, target_std=10.0)
    assert fit_scores(output, y, "mse", below, y[:1]) == pytest.approx({"training_loss": 0.5})


# Zest

TABLE = Space(
    kind="table",
    shape=(6,),
    target="classification",
    classes=("a", "b", "c"),
    columns=(
        Column(name="age", kind="continuous", positions=(0,)),
        Column(name="home", kind="categorical", positions=(1, 2, 4), categories=("x", "y", "z")),
        Column(name="sum", kind="continuous", positions=(3,)),
    ),
)
IMAGE = Space(kind="image", shape=(1, 12, 10), target="classification", classes=("a", "b", "c"))


def network(space: Space, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(space.shape)), 8), nn.Tanh(), nn.Linear(8, 3))


def inputs(space: Space, count: int = 7) -> Tensor:
    return torch.rand((count, *space.shape), generator=fork(0, "inputs"))


def question(space: Space, lime: Lime | None = None) -> Question:
    x = inputs(space)
    return ask(x, x, space, fork(1), lime or Lime(references=5, least_masks=40))


def by_numpy(model: nn.Module, asked: Question, intercept: bool = False) -> np.ndarray:
    """The signature one mask at a time, with numpy's least squares."""
    rows = []
    for x, segments in zip(asked.references, asked.segments, strict=True):
        count = int(segments.max()) + 1
        masks = asked.masks[count].numpy()
        outputs = []
        for mask in masks:
            kept = mask[segments.numpy()]
            blanked = np.where(kept, x.numpy(), asked.blank.numpy()).astype(np.float32)
            with torch.no_grad():
                outputs.append(model(torch.from_numpy(blanked)[None])[0].double().numpy())
        design = masks.astype(np.float64)
        if intercept:
            design = np.concatenate([design, np.ones((len(design), 1))], 1)
        rows.append(np.linalg.lstsq(design, np.stack(outputs), rcond=None)[0][:count].ravel())
    return np.concatenate(rows)


@pytest.mark.parametrize("space", [TABLE, IMAGE], ids=["table", "image"])
@pytest.mark.parametrize("intercept", [False, True])
def test_weights_are_the_least_squares_of_numpy(space: Space, intercept: bool) -> None:
    asked = question(space, Lime(references=5, least_masks=40, intercept=intercept, cut="grid"))
    model = network(space)
    found = signature(model_answer(model), asked)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), by_numpy(model, asked, intercept), atol=1e-6)


def test_references_may_have_different_segments() -> None:
    asked = question(TABLE)
    segments = asked.segments.clone()
    segments[1:3] = torch.tensor([0, 0, 0, 1, 1, 1])
    masks = {**asked.masks, 2: asked.masks[4][:, :2]}
    mixed = Question(references=asked.references, segments=segments, blank=asked.blank, masks=masks)
    model = network(TABLE)
    found = signature(model_answer(model), mixed)
    assert len(found) == (3 * 4 + 2 * 2) * 3
    np.testing.assert_allclose(found.numpy(), by_numpy(model, mixed), atol=1e-6)


def model_answer(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = model(x)
            return found

    return answer


def test_weights_are_those_of_captum(extra: Callable[[str], ModuleType]) -> None:
    """Its Lime with equal weights for all masks and a linear surrogate without penalty and intercept."""
    attr, linear = extra("captum.attr"), extra("captum._utils.models.linear_model")
    asked = question(TABLE, Lime(references=1, least_masks=40))
    model, masks = network(TABLE), asked.masks[4]
    found = signature(model_answer(model), asked).reshape(4, 3)
    for target in range(2):
        drawn = iter(masks.float()[:, None])
        lime = attr.Lime(
            model,
            interpretable_model=linear.SkLearnLinearRegression(fit_intercept=False),
            similarity_func=lambda *_, **__: 1.0,
            perturb_func=lambda *_, drawn=drawn, **__: next(drawn),
        )
        weights = lime.attribute(
            asked.references,
            baselines=asked.blank[None],
            target=target,
            feature_mask=asked.segments,
            n_samples=len(masks),
            return_input_shape=False,
        )
        torch.testing.assert_close(weights[0].double(), found[:, target], atol=1e-4, rtol=1e-4)


def test_a_linear_model_is_explained_by_what_its_inputs_add() -> None:
    """With an intercept the weight of a column is what it adds to the output over its mean: no bias leaks in."""
    layer = nn.Linear(6, 3)
    asked = question(TABLE, Lime(references=5, least_masks=40, intercept=True))
    found = signature(model_answer(layer), asked).reshape(5, 4, 3)
    added = (asked.references - asked.blank)[:, None] * layer.weight.detach()  # [references, outputs, entries]
    wanted = torch.stack([added[..., [0]].sum(-1), added[..., [1, 2, 4]].sum(-1), added[..., 3], added[..., 5]], 1)
    torch.testing.assert_close(found, wanted.double(), atol=1e-5, rtol=1e-4)


def test_similarity_of_equal_permuted_and_different_networks() -> None:
    asked, model, other = question(TABLE), network(TABLE), network(TABLE, seed=1)
    order = torch.tensor([3, 1, 0, 2, 7, 6, 4, 5])
    turned = network(TABLE)
    with torch.no_grad():
        turned[1].weight.copy_(model[1].weight[order])
        turned[1].bias.copy_(model[1].bias[order])
        turned[3].weight.copy_(model[3].weight[:, order])
    own, same, far = (signature(model_answer(one), asked) for one in (model, turned, other))
    assert similarity(own, own) == 1.0 and similarity(own, same) == pytest.approx(1.0, abs=1e-6)
    assert similarity(own, far) < 0.9 and similarity(own, far) == pytest.approx(similarity(far, own))
    assert similarity(own, -3 * own) == pytest.approx(-1.0)
    cosine = float(own @ far / (own.norm() * far.norm()))
    assert similarity(1e200 * own, far) == pytest.approx(cosine)
    assert similarity(own, 0 * own) == 0.0 and similarity(0 * own, 0 * own) == 1.0
    assert similarity(own * float("nan"), far) == similarity(own, far + float("inf")) == -1.0


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, model = question(TABLE), network(TABLE)
    whole = signature(model_answer(model), asked)
    monkeypatch.setattr(models, "ENTRIES_AT_ONCE", 1)
    torch.testing.assert_close(signature(model_answer(model), asked), whole)


def test_the_question() -> None:
    x = inputs(TABLE)
    asked = ask(x, 2 * x, TABLE, fork(1), Lime(references=3))
    assert torch.equal(asked.references, x[[0, 2, 4]])
    torch.testing.assert_close(asked.blank, 2 * x.mean(0))
    (masks,) = asked.masks.values()
    assert masks.shape == (200, 4) and bool(masks[0].all()) and 0.4 < float(masks.float().mean()) < 0.6
    assert len(ask(x, x, TABLE, fork(1), Lime(references=3, masks_per_segment=60)).masks[4]) == 240
    again = ask(x, 2 * x, TABLE, fork(1), Lime(references=3))
    assert torch.equal(again.masks[4], masks) and len(ask(x, x, TABLE, fork(1)).references) == 7
    none = ask(x[:0], x, TABLE, fork(1))
    assert len(signature(model_answer(network(TABLE)), none)) == 0
    with pytest.raises(BadInput, match="references"):
        Lime(references=0)


def test_images_are_blanked_with_the_mean_of_their_channel() -> None:
    space = Space(kind="image", shape=(2, 4, 4), target="classification", classes=("a", "b"))
    x = torch.stack([torch.zeros(3, 4, 4), torch.ones(3, 4, 4)], 1)
    asked = ask(x, x, space, fork(0), Lime(cut="grid"))
    assert torch.equal(asked.blank[0], torch.zeros(4, 4)) and torch.equal(asked.blank[1], torch.ones(4, 4))


def test_columns_and_squares() -> None:
    assert by_column(TABLE, torch.device("cpu")).tolist() == [0, 1, 1, 2, 1, 3]
    bare = Space(kind="table", shape=(3,), target="regression")
    assert by_column(bare, torch.device("cpu")).tolist() == [0, 1, 2]
    grid = squares(IMAGE, torch.device("cpu"))
    assert grid.shape == (1, 12, 10) and grid.unique().tolist() == list(range(64))
    counts = torch.bincount(grid.flatten())
    assert int(counts.min()) >= 1 and int(counts.max()) <= 4
    small = Space(kind="image", shape=(3, 2, 2), target="classification", classes=("a",))
    assert squares(small, torch.device("cpu"))[2].tolist() == [[0, 1], [2, 3]]
    with pytest.raises(BadInput, match="cut"):
        segments_of(inputs(IMAGE), IMAGE, "waves")  # type: ignore[arg-type]


def test_superpixels_follow_the_picture(extra: Callable[[str], ModuleType]) -> None:
    """Four plain quarters are four superpixels or more, none across a border; a plain picture gets the grid."""
    extra("skimage.segmentation")
    space = Space(kind="image", shape=(1, 32, 32), target="classification", classes=("a",), mean=(0.5,), std=(0.5,))
    quarters = torch.zeros(1, 32, 32)
    quarters[:, :16, 16:], quarters[:, 16:, :16], quarters[:, 16:, 16:] = 0.35, 0.7, 1.0
    x = space.from_pixels(torch.stack([quarters, torch.zeros(1, 32, 32)]))
    found = segments_of(x, space, "quickshift")
    assert found.shape == x.shape and torch.equal(found[1], squares(space, x.device))
    assert int(found[0].max()) + 1 >= 4
    for number in found[0].unique():
        assert len(quarters[found[0] == number].unique()) == 1
    assert torch.equal(found, segments_of(x, space, "auto"))


def test_without_scikit_image_the_grid_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedxray.metrics.models.find_spec", lambda _: None)
    x = inputs(IMAGE)
    assert torch.equal(segments_of(x, IMAGE)[3], squares(IMAGE, x.device))
    with pytest.raises(BadInput, match=r"\.\[images\]"):
        segments_of(x, IMAGE, "quickshift")
