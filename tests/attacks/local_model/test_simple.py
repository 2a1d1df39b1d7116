"""The two guesses that need no work: what the client returned last, and the global model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedxray.adversary.view import Observation, ObservedModel as Seen, View
from fedxray.attacks.evidence import model_params
from fedxray.attacks.local_model.baselines import GlobalModel, LastReturned
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.seeds import fork
from tests.attacks.by_hand import linear, table, view_with


def two_rounds(kind: str = "weights", **grants: Any) -> View:
    """Starts 10 and 20, updates 1 and -4, listed in the wrong order; global models 10, 20 and 25."""
    view = view_with(linear([[0.0]]), table(1), **grants)

    def seen(round: int, update: float) -> Observation:
        return Observation(
            round=round,
            start={"weight": torch.tensor([[10.0 * (round + 1)]])},
            update={"weight": torch.tensor([[update]])},
            kind=kind,  # type: ignore[arg-type]
            contributors=(0,),
            examples=None,
            buffers={"mean": torch.tensor([float(round)])},
            buffers_after={"mean": torch.tensor([round + 0.5])},
        )

    models = tuple(
        Seen(round, {"weight": torch.tensor([[value]])}, {"mean": torch.tensor([value])})
        for round, value in ((2, 25.0), (0, 10.0), (1, 20.0))
    )
    other = replace(seen(5, 100.0), contributors=(1,))
    return replace(view, observations=(seen(1, -4.0), other, seen(0, 1.0)), globals=models)


def test_the_last_returned_model_is_start_plus_update() -> None:
    found = LastReturned().run(two_rounds(), generator=fork(0))
    params, buffers = model_params(found)
    assert params["weight"].tolist() == [[16.0]] and buffers["mean"].tolist() == [1.5]
    assert found.facts == {"round": 1} and found.kind == "model"


def test_statistics_that_stayed_at_home_are_those_sent() -> None:
    view = two_rounds()
    home = tuple(replace(one, buffers_after={}) for one in view.observations)
    buffers = model_params(LastReturned().run(replace(view, observations=home), generator=fork(0)))[1]
    assert buffers["mean"].tolist() == [1.0]


def test_a_gradient_is_a_step_of_the_recipes_size() -> None:
    recipe = Recipe(algorithm="fedsgd", loss="mse", learning_rate=0.5)
    found = LastReturned().run(two_rounds("gradient", recipe=recipe), generator=fork(0))
    assert model_params(found)[0]["weight"].tolist() == [[18.0]]
    weights = LastReturned().run(two_rounds("weights", recipe=recipe), generator=fork(0))
    assert model_params(weights)[0]["weight"].tolist() == [[16.0]]


def test_a_gradient_without_a_recipe_is_refused() -> None:
    assert LastReturned.grants == ("recipe",)
    with pytest.raises(Refused, match="learning rate") as refusal:
        LastReturned().run(two_rounds("gradient"), generator=fork(0))
    assert "recipe" in refusal.value.remedy


def test_it_is_the_targets_own_reply_or_none() -> None:
    view = two_rounds()
    assert model_params(LastReturned().run(replace(view, target=1), generator=fork(0)))[0]["weight"].tolist() == [
        [160.0]
    ]
    with pytest.raises(Refused, match="client alone"):
        LastReturned().run(replace(view, target=2), generator=fork(0))
    with pytest.raises(Refused, match="client alone"):
        LastReturned().run(replace(view, target=None), generator=fork(0))


def test_the_global_model_of_the_latest_round() -> None:
    found = GlobalModel().run(two_rounds(), generator=fork(0))
    params, buffers = model_params(found)
    assert params["weight"].tolist() == [[25.0]] and buffers["mean"].tolist() == [25.0]
    assert found.facts == {"round": 2}
    with pytest.raises(Refused, match="global model"):
        GlobalModel().run(replace(two_rounds(), globals=()), generator=fork(0))
