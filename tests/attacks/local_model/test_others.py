"""Extrapolation by hand, and the oracle against a solver."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.evidence import model_params
from fedxray.attacks.local_model.baselines import LastReturned, LocalModelExtrapolate, LocalModelOracle
from fedxray.data.dataset import Space
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.losses import losses, squared_error
from fedxray.seeds import fork
from tests.attacks.local_model.federations import least_squares, optimum, played, vector


def three_messages(kind: str = "weights", recipe: Recipe | None = None) -> View:
    """Models 0, 10, 20 with updates 1, 2, 6."""
    seen = tuple(
        Observation(
            round=round,
            start={"weight": torch.tensor([[10.0 * round]])},
            update={"weight": torch.tensor([[update]])},
            kind=kind,  # type: ignore[arg-type]
            contributors=(0,),
            examples=None,
        )
        for round, update in enumerate((1.0, 2.0, 6.0))
    )
    grants = Grants(names=("recipe",), recipe=recipe) if recipe else Grants()
    space = Space(kind="table", shape=(1,), target="regression")
    model = nn.Linear(1, 1, bias=False)
    return View(
        role="server", target=0, observations=seen, globals=(), model=model, space=space, loss="mse", grants=grants
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"multiple": 0.0}, 26.0),
        ({"multiple": 1.0}, 29.0),
        ({"multiple": 10.0}, 56.0),
        ({"multiple": 10.0, "over": 1}, 86.0),
        ({"multiple": -1.0, "over": 2}, 22.0),
    ],
)
def test_extrapolation_by_hand(settings: dict[str, float], wanted: float) -> None:
    attack = LocalModelExtrapolate(**settings)  # type: ignore[arg-type]
    found = attack.run(three_messages(), generator=fork(0))
    assert float(found.tensors["param:weight"]) == pytest.approx(wanted)


def test_gradients_are_taken_for_steps_of_the_recipe() -> None:
    view = three_messages("gradient", Recipe(algorithm="fedsgd", loss="mse", learning_rate=0.1))
    found = LocalModelExtrapolate(multiple=1.0).run(view, generator=fork(0))
    assert float(found.tensors["param:weight"]) == pytest.approx(20 + 0.6 + 0.3)
    nothing = LocalModelExtrapolate(multiple=0.0).run(view, generator=fork(0)).tensors
    last = LastReturned().run(view, generator=fork(0)).tensors
    assert torch.equal(nothing["param:weight"], last["param:weight"])


def test_extrapolation_refuses_impossible_settings() -> None:
    with pytest.raises(BadInput, match="multiple"):
        LocalModelExtrapolate(multiple=float("nan"))
    with pytest.raises(BadInput, match="over"):
        LocalModelExtrapolate(over=0)


def test_the_oracle_is_the_optimum_in_any_unit_of_the_target() -> None:
    """Its step size is chosen by the loss, so that targets in dollars need no setting."""
    for unit in (1.0, 1000.0):
        base = least_squares(4, rounds=2)
        federation = replace(base, clients=tuple(replace(one, y=one.y * unit) for one in base.clients))
        federation = replace(federation, recipe=replace(federation.recipe, learning_rate=0.01))
        transcript, truth = played(federation)
        view = roles.server(transcript, client=1, grants=disclose(truth, ["oracle-records"], client=1))
        found = LocalModelOracle(steps=600).run(view, generator=fork(0))
        right = optimum(federation.clients[1])
        assert float((vector(found.tensors) - right).norm() / right.norm()) < 1e-3
        assert view.grants.is_oracle


def test_the_oracle_settles_running_statistics() -> None:
    base = least_squares(4, rounds=1, dtype=torch.float32)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    transcript, truth = played(replace(base, model=model))
    view = roles.server(transcript, client=1, grants=disclose(truth, ["oracle-records"], client=1))
    found = LocalModelOracle(steps=200).run(view, generator=fork(0))
    params, buffers = model_params(found)
    own = truth.train[1]
    tested = float(losses(model, params, buffers, own.x, own.y, squared_error).mean())
    assert tested < 2 * found.facts["loss"] + 0.05 < float(own.y.var())


def test_the_oracle_needs_the_records() -> None:
    transcript, _ = played(least_squares(4, rounds=1))
    with pytest.raises(Refused, match="oracle-records"):
        LocalModelOracle().run(roles.server(transcript, client=1), generator=fork(0))
    with pytest.raises(BadInput, match="rates"):
        LocalModelOracle(rates=())
