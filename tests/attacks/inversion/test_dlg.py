"""dlg and idlg: images and labels from one update of a smooth network."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.dlg import Dlg, matching_loss
from fedxray.attacks.inversion.idlg import Idlg
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.optim import Adam, Lbfgs
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.views import view_of_update

CLASSES = 4


def net() -> nn.Module:
    torch.manual_seed(2)
    made = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(64, 12), nn.Sigmoid(),
        nn.Linear(12, CLASSES),
    )  # fmt: skip
    for value in made.parameters():
        nn.init.uniform_(value, -0.5, 0.5)
    return made


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def view_of(x: Tensor, y: Tensor, recipe: Recipe | None = None, **grants: Any) -> View:
    used = recipe or Recipe(algorithm="fedsgd")
    schedule = draw_schedule(len(x), used, torch.Generator().manual_seed(0))
    update = plain_update(net(), x, y, used, schedule)
    given = {"shape": (1, 4, 4), "classes": CLASSES, "examples": len(x), "kind": used.kind, **grants}
    return view_of_update(net(), update, recipe=used, **given)


def error(evidence: Evidence, x: Tensor) -> float:
    return float(((evidence.tensors["inputs"] - x) ** 2).mean())


def test_an_image_and_its_label_come_back_together() -> None:
    x, y = images(1), torch.tensor([2])
    evidence = Dlg(steps=150).run(view_of(x, y), generator=fork(1))
    assert evidence.kind == "images" and evidence.status == "ok"
    assert evidence.tensors["labels"].tolist() == [2] and evidence.facts["labels"] == "sought with the images"
    assert error(evidence, x) < 1e-3 < error(evidence, images(1, 9))
    assert min(evidence.curve) == evidence.facts["own_loss"][0] < 1.0


def test_idlg_reads_the_label_first() -> None:
    x, y = images(1, 3), torch.tensor([1])
    evidence = Idlg(steps=120).run(view_of(x, y), generator=fork(1))
    assert evidence.tensors["labels"].tolist() == [1] and evidence.facts["labels"] == "labels-idlg"
    assert error(evidence, x) < 1e-3


def test_two_images_with_soft_labels() -> None:
    x, y = images(2), torch.tensor([3, 0])
    evidence = Dlg(steps=300, restarts=2).run(view_of(x, y), generator=fork(1))
    order = evidence.tensors["labels"].argsort(descending=True)
    assert evidence.tensors["labels"][order].tolist() == [3, 0]
    assert float(((evidence.tensors["inputs"][order] - x) ** 2).mean()) < 1e-2


def soft_gradient(model: nn.Module, x: Tensor, probabilities: Tensor) -> dict[str, Tensor]:
    own = copy.deepcopy(model)
    rows = [-(p * functional.log_softmax(own(one[None])[0], 0)).sum() for one, p in zip(x, probabilities, strict=True)]
    torch.stack(rows).mean().backward()
    return {name: value.grad for name, value in own.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("unit", ["length", "sent", "rate"])
def test_the_loss_by_hand(unit: Any) -> None:
    view = view_of(images(2), torch.tensor([3, 0]))
    seen = view.observations[0].update
    inputs, scores = images(2, 5), torch.randn(2, CLASSES, generator=torch.Generator().manual_seed(1))
    mine = soft_gradient(net(), inputs, scores.exp() / scores.exp().sum(1, keepdim=True))
    expected = sum(float(((-mine[name] - value) ** 2).sum()) for name, value in seen.items())
    if unit == "length":
        expected /= 1e-6 * sum(float((value**2).sum()) for value in seen.values())
    loss = matching_loss(view, view.observations[0], 2, None, unit, "batch")
    assert loss({"inputs": inputs, "scores": scores}).item() == pytest.approx(expected, rel=1e-4)


def test_total_variation_is_added() -> None:
    view, guess = view_of(images(2), torch.tensor([3, 0])), {"inputs": images(2, 5)}
    y = torch.tensor([3, 0])
    plain, smooth = (
        matching_loss(view, view.observations[0], 2, y, "sent", "batch", weight)(guess).item() for weight in (0.0, 0.7)
    )
    x = guess["inputs"]
    expected = (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()
    assert smooth - plain == pytest.approx(0.7 * float(expected), rel=1e-4)


def test_the_loss_vanishes_at_the_truth() -> None:
    x, y = images(3), torch.tensor([3, 0, 3])
    view = view_of(x, y)
    loss = matching_loss(view, view.observations[0], 3, None, "length", "batch")
    sure = functional.one_hot(y, CLASSES) * 60.0
    assert loss({"inputs": x, "scores": sure}).item() < 1e-4
    assert loss({"inputs": x, "scores": sure.roll(1, 0)}).item() > 1e3


RECIPE = Recipe(epochs=2, batch_size=2, learning_rate=0.05, shuffle="never")


def test_the_reading_of_002_takes_known_labels_adam_and_several_local_steps() -> None:
    x, y = images(3), torch.tensor([0, 2, 2])
    view = view_of(x, y, RECIPE, labels=y)
    attack = Dlg(reading="song")
    assert attack.method() == Adam(steps=1000, lr=0.1) and Dlg().method() == Lbfgs(steps=1200, reach=1.0)
    short = replace(attack, steps=60).run(view, generator=fork(1))
    assert short.facts["labels"] == "granted" and short.tensors["labels"].tolist() == [0, 2, 2]
    order = Schedule(torch.tensor([[0, 1], [2, -1]] * 2))
    mine = plain_update(net(), short.tensors["inputs"], y, RECIPE, order)
    seen = view.observations[0].update
    own = sum(float(((mine[name] - value) ** 2).sum()) for name, value in seen.items())
    assert min(short.curve) == pytest.approx(own, rel=1e-3) and own < 0.2 * short.curve[0]


def test_the_rate_as_unit_takes_the_learning_rate_out() -> None:
    x, y = images(3), torch.tensor([0, 2, 2])
    view, guess = view_of(x, y, RECIPE, labels=y), {"inputs": images(3, 4)}
    sent, rate = (
        matching_loss(view, view.observations[0], 3, y, unit, "batch")(guess).item() for unit in ("sent", "rate")
    )
    assert rate == pytest.approx(sent / RECIPE.learning_rate**2, rel=1e-4)


def test_known_labels_are_only_needed_where_they_are_used() -> None:
    view = view_of(images(2), torch.tensor([3, 0]))
    headless = replace(view, model=nn.Sequential(nn.Conv2d(1, CLASSES, 4), nn.Flatten()))
    Dlg().check(headless)
    for attack in (Dlg(reading="song"), Idlg()):
        with pytest.raises(Refused, match="linear last layer"):
            attack.check(headless)
    with pytest.raises(Refused, match="classification"):
        Dlg().check(replace(view, space=replace(view.space, target="regression")))


@pytest.mark.parametrize("attack", [Dlg(steps=5), Idlg(steps=5)])
def test_an_update_that_is_not_finite_is_an_outcome(attack: Any) -> None:
    view = view_of(images(1), torch.tensor([1]))
    seen = view.observations[0]
    broken = {name: value * float("nan") if "0." in name else value for name, value in seen.update.items()}
    evidence = attack.run(replace(view, observations=(replace(seen, update=broken),)), generator=fork(1))
    assert evidence.status == "diverged" and bool(torch.isfinite(evidence.tensors["inputs"]).all())


@pytest.mark.parametrize("cls", [Dlg, Idlg])
@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("learning_rate", -1.0), ("restarts", 0), ("at", "middle"), ("batch_norm", "eval"),
     ("labels", LastReturned()), ("reading", "dlg"), ("unit", "metre")],
)  # fmt: skip
def test_wrong_settings_are_refused(cls: type, name: str, value: Any) -> None:
    if cls is Idlg and name in ("reading", "unit"):
        return
    with pytest.raises(BadInput):
        cls(**{name: value})
