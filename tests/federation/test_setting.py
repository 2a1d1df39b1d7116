"""Checks before a run: batches that BatchNorm cannot use, defences that do not fit a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedxray.data.dataset import Records, Space
from fedxray.defences.dp_sgd import DpSgd
from fedxray.defences.mixup import Mixup
from fedxray.defences.noise import GaussianNoise
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, values_per_channel
from tests.federation.runs import federation


def images(sizes: tuple[int, ...], model: nn.Module, batch: int) -> Federation:
    space = Space(kind="image", shape=(1, 6, 6), target="classification", classes=("a", "b"))
    clients = tuple(Records(torch.rand(size, 1, 6, 6), torch.zeros(size, dtype=torch.int64)) for size in sizes)
    return Federation(space=space, clients=clients, model=model, recipe=Recipe(batch_size=batch))


@pytest.mark.parametrize(
    ("sizes", "batch", "client", "examples"), [((8, 5), 4, 1, 5), ((4, 4), 1, 0, 4), ((1, 4), 4, 0, 1)]
)
def test_a_batch_of_one_is_refused_with_batch_norm(
    sizes: tuple[int, ...], batch: int, client: int, examples: int
) -> None:
    with pytest.raises(BadInput, match=rf"batch_size.*layer '1'.*client {client} \({examples} examples.*norm = "):
        federation(sizes, model="norm", recipe={"batch_size": batch})
    federation(sizes, model="mlp", recipe={"batch_size": batch})


def test_a_batch_that_is_large_enough_is_taken() -> None:
    taken = [
        federation((8, 6), model="norm", recipe={"batch_size": 4}),
        federation((8, 5), model="norm", recipe={"batch_size": "all"}),
        federation((8, 5), model="norm", recipe={"batch_size": 4, "algorithm": "fedsgd"}),
    ]
    assert [one.recipe.steps(len(one.clients[1])) for one in taken] == [2, 1, 1]


def test_pairs_that_mixup_averages_count_once_for_batch_norm() -> None:
    for batch, refused in ((2, True), (3, False), (4, False)):
        settings = {"model": "norm", "recipe": {"batch_size": batch}}
        federation((12, 12), **settings)
        if refused:
            with pytest.raises(BadInput, match="at least 2 examples after mixing"):
                federation((12, 12), defence=Mixup(), **settings)
        else:
            simulate(federation((12, 12), defence=Mixup(), **settings))


def test_a_client_without_examples_is_named_with_a_remedy() -> None:
    with pytest.raises(BadInput) as caught:
        federation((8, 0), model="mlp")
    refusal = caught.value
    assert refusal.argument == "clients" and "examples at every client" in refusal.expected
    assert "client 1" in refusal.got and "fewer clients" in refusal.remedy


def test_an_image_has_several_values_per_channel() -> None:
    """A single image gives BatchNorm all its pixels, so a batch of one trains."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 2))
    run = images((3, 2), model, batch=1)
    assert values_per_channel(model, run.clients[0].x[:1]) == {"1": 16}
    simulate(run)


def test_but_not_where_one_pixel_is_left() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2)
    )
    with pytest.raises(BadInput, match="layer '3'"):
        images((3, 2), model, batch=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert values_per_channel(model, torch.rand(1, 1, 6, 6)) == {"1": 16, "3": 1}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training and not model[1]._forward_pre_hooks


def test_the_refused_batch_would_have_failed_in_torch() -> None:
    """The rule is torch's own: one value per channel cannot be normalised in train mode."""
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(4)(torch.zeros(1, 4))
    nn.BatchNorm2d(4)(torch.zeros(1, 4, 1, 2))


@pytest.mark.parametrize("defence", [DpSgd(noise_multiplier=1.0), GaussianNoise(scale=0.1, at="gradients")])
def test_example_gradients_do_not_go_with_batch_norm(defence: DpSgd | GaussianNoise) -> None:
    with pytest.raises(BadInput, match=r"defence.*mixes the examples"):
        federation((8, 4), model="norm", recipe={"batch_size": 4}, defence=defence)
    simulate(federation((8, 4), model="mlp", recipe={"batch_size": 4}, defence=defence))
    simulate(federation((8, 4), model="norm", recipe={"batch_size": 4}, defence=GaussianNoise(scale=0.1)))


def test_example_gradients_go_with_dropout_and_depend_on_the_seed_alone() -> None:
    run = federation((8, 4), model="dropout", recipe={"batch_size": 4}, defence=DpSgd(noise_multiplier=1.0))
    first, second = (simulate(run, seed=1)[0].shelf.get("global/2").params for _ in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
