"""FedInverse: steps taken by hand, its choice among guesses, what each term does, what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.fedinverse import FedInverse, learn_generator
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.errors import BadInput, Refused
from fedxray.params import parameters_of
from fedxray.priors import hsic
from fedxray.progress import silent
from fedxray.seeds import fork, normal_like, spell
from tests.attacks.views import view_of_update

SHAPE, CLASSES = (1, 4, 4), 3


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES))


def public(count: int = 20) -> Tensor:
    return torch.rand((count, *SHAPE), generator=fork(0, "public"))


def view(model: nn.Module, images: Tensor | None) -> View:
    nothing = {name: torch.zeros_like(value) for name, value in parameters_of(model).items()}
    found = view_of_update(model, nothing, shape=SHAPE, classes=CLASSES, kind="weights")
    if images is None:
        return found
    return replace(found, grants=replace(found.grants, names=("public-images",), public_images=images))


QUICK = FedInverse(model=LastReturned(), steps=5, guesses=2, generator_steps=2, width=4, entries=6)


def test_steps_taken_by_hand() -> None:
    """Momentum, the critic, the doubt, the HSIC of the halves and the box, one step after the other."""
    model, seen = network(), view(network(), public())
    own = fork(fork(7), "attack", "fedinverse", spell(QUICK))
    generator = learn_generator(
        public(), entries=6, width=4, steps=2, batch=32, draws=fork(own, "generator"), report=silent
    )
    codes = normal_like(torch.zeros(6, generator.entries), own).clamp(-1, 1)
    labels, speed = torch.tensor([0, 1, 2, 0, 1, 2]), torch.zeros_like(codes)
    curve, points = [], []

    def cost(point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pixels = generator.pixels(point)
        doubt = nn.functional.cross_entropy(model(pixels), labels, reduction="none")
        each = -generator.realness(pixels) + 100 * doubt
        return each.mean() + 0.05 * hsic(pixels[:3], pixels[3:], 5.0), each, pixels

    for step in range(6):
        leaf = codes.clone().requires_grad_()
        value = cost(leaf)[0]
        curve.append(float(value.detach()))
        points.append(codes)
        if step < 5:
            (slope,) = torch.autograd.grad(value, leaf)
            speed = 0.9 * speed + slope
            codes = (codes - 0.02 * speed).clamp(-1, 1)
    found = QUICK.run(seen, generator=fork(7))
    assert found.curve == pytest.approx(curve, rel=1e-4)
    best = points[curve.index(min(curve))]
    _, each, pixels = cost(best)
    for label in range(CLASSES):
        place = label if each[label] <= each[label + 3] else label + 3
        torch.testing.assert_close(found.tensors["inputs"][label], pixels[place].detach(), atol=1e-5, rtol=1e-4)
    assert found.tensors["labels"].tolist() == [0, 1, 2]


def test_images_are_surer_than_any_public_one() -> None:
    model = network()
    longer = replace(QUICK, steps=150, generator_steps=0, independence=0.0, box=3.0)
    found = longer.run(view(model, public()), generator=fork(0))
    with torch.no_grad():
        sure = torch.softmax(model(found.tensors["inputs"]), -1).diagonal()
        public_sure = torch.softmax(model(public()), -1).max(0).values
    assert bool((sure > public_sure).all()) and found.curve[-1] < found.curve[0]
    assert float(found.tensors["inputs"].min()) >= 0 and float(found.tensors["inputs"].max()) <= 1


def test_the_hsic_term_makes_guesses_differ() -> None:
    """With a large weight, the halves end less dependent than without it."""
    seen = view(network(), public())

    def dependence(weight: float) -> float:
        attack = replace(QUICK, steps=60, guesses=4, independence=weight, doubt=1.0, sigma=0.3)
        return float(attack.run(seen, generator=fork(0)).facts["dependence"])

    assert dependence(5.0) < dependence(0.0)


def test_pixels_are_standardised_for_the_model() -> None:
    seen = view(network(), (public() - 0.5) / 0.25)
    seen = replace(seen, space=replace(seen.space, mean=(0.5,), std=(0.25,)))
    found = QUICK.run(seen, generator=fork(0)).tensors["inputs"]
    assert float(found.min()) >= -2 and float(found.max()) <= 2 and float(found.abs().max()) > 1


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(Refused, match="public images"):
        QUICK.run(view(network(), None), generator=fork(0))
    with pytest.raises(Refused, match="at least 10 public images"):
        QUICK.run(view(network(), public(9)), generator=fork(0))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0), ("learning_rate", 0.0), ("guesses", 3), ("guesses", 0), ("entries", 0), ("width", 0),
        ("generator_steps", -1), ("doubt", -1.0), ("independence", math.inf), ("sigma", 0.0), ("box", 0.0),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(setting: str, value: object) -> None:
    with pytest.raises(BadInput, match=setting):
        FedInverse(**{setting: value})  # type: ignore[arg-type]
