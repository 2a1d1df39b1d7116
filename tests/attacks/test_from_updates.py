"""Attributes from updates: a coin that no column shows, found in the client's own messages and nowhere else."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.disclose import attribute_rows, disclose
from fedxray.adversary.view import Grants, View
from fedxray.attacks.attributes.from_updates import AttributeFromUpdates, calibrated
from fedxray.attacks.evidence import Evidence
from fedxray.data.catalog import load
from fedxray.data.dataset import Records
from fedxray.data.split import split
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.metrics.records import auc
from fedxray.models import build
from fedxray.seeds import fork
from tests.contract.worlds import World

GRANTS = ("public-attributes", "public-records", "recipe")


@functools.cache
def coin_world(column: str = "smoker", **recipe: object) -> World:
    """Three clinics whose sensitive column is a coin that comes up for one patient in five."""
    dataset = load("clinic", seed=4, clients=3, records=100)
    space = replace(dataset.space, sensitive=column)
    coin, x = torch.rand(len(dataset), generator=fork(4, "coin")) < 0.2, dataset.x.clone()
    place = list(space.column(column).positions)
    if space.column(column).kind == "categorical":
        x[:, place] = space.column(column).candidates(x)[coin.long()]
    parts = split(dataset, clients=3, partition="as-given", seed=4, holdout=0.2, public=0.1)
    train, holdout = (tuple(Records(x[i], dataset.y[i]) for i in kept) for kept in (parts.train, parts.holdout))
    federation = Federation(
        space=space, clients=train, holdout=holdout, public=Records(x[parts.public], dataset.y[parts.public]),
        model=build("mlp", space, generator=fork(4, "model"), hidden=[64]), rounds=8,
        recipe=Recipe(loss="mse", learning_rate=0.05, epochs=2, batch_size=16, **recipe),  # type: ignore[arg-type]
    )  # fmt: skip
    return World(*simulate(federation, seed=4))


def view_of(world: World, *, messages_of: int = 0, rows: str = "train", grants: tuple[str, ...] = GRANTS) -> View:
    """What the server sees of one client and is granted about the first."""
    given = disclose(world.truth, grants, client=0, rows=rows)  # type: ignore[arg-type]
    return roles.server(world.transcript, client=messages_of, grants=given)


def flags(world: World, rows: str = "train") -> Tensor:
    """Whether the coin came up, in the order granted."""
    column = world.truth.space.column("smoker")
    x = attribute_rows(world.truth, 0, rows=rows).x[:, list(column.positions)]  # type: ignore[arg-type]
    return (x - column.candidates(x)[1]).abs().sum(1) < 1e-6


def run(view: View, **settings: int) -> Evidence:
    return AttributeFromUpdates(**settings).run(view, generator=fork(3, "updates"))


def separation(evidence: Evidence, world: World, rows: str = "train") -> float:
    """The AUC of the signed margins."""
    column = world.truth.space.column("smoker")
    codes = evidence.tensors["codes"]
    up = (codes - column.candidates(codes)[1]).abs().sum(1) < 1e-6
    return auc(torch.where(up, 1, -1) * evidence.tensors["margins"], flags(world, rows))


def test_a_coin_is_found_in_the_clients_own_messages_alone() -> None:
    world = coin_world()
    evidence = run(view_of(world))
    assert separation(evidence, world) > 0.97
    assert evidence.facts["shadow"] and evidence.facts["weight_of_estimate"] > 1
    assert 0.25 < separation(run(view_of(world, messages_of=1)), world) < 0.75
    assert 0.2 < separation(run(view_of(world, rows="holdout")), world, "holdout") < 0.8


def test_without_recipe_and_public_records_it_still_works() -> None:
    world = coin_world()
    evidence = run(view_of(world, grants=("public-attributes",)))
    assert evidence.facts["shadow"] is False
    assert separation(evidence, world) > 0.85


def test_one_gradient_of_all_records_is_read() -> None:
    world = coin_world(algorithm="fedsgd")
    assert separation(run(view_of(world)), world) > 0.9


def test_numbers_are_read_on_a_grid() -> None:
    world = coin_world("age")
    evidence = run(view_of(world), grid=6)
    column = world.truth.space.column("age")
    real = attribute_rows(world.truth, 0).x[:, list(column.positions)]
    near = (evidence.tensors["codes"] - real).abs() <= column.tolerance
    blind = ((real - real.median()).abs() <= column.tolerance).double().mean()
    assert near.double().mean() > blind + 0.1


def test_no_update_is_no_guess_and_too_many_values_are_refused() -> None:
    view = view_of(coin_world())
    still = tuple(
        replace(seen, update={name: torch.zeros_like(value) for name, value in seen.update.items()})
        for seen in view.observations
    )
    evidence = run(replace(view, observations=still))
    assert evidence.status == "undetermined" and bool(torch.isnan(evidence.tensors["codes"]).all())
    given = view.grants.public_attributes
    assert given is not None
    many = replace(given, x=given.x.repeat(40, 1), y=given.y.repeat(40))
    with pytest.raises(Refused, match="records times values up to 5000"):
        run(replace(view, grants=Grants(names=view.grants.names, public_attributes=many)))


def test_calibration_is_that_of_a_plain_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    draw = fork(5, "calibration")
    chance = torch.rand(400, generator=draw, dtype=torch.float64) * 0.8 + 0.1
    real = (torch.rand(400, generator=draw, dtype=torch.float64) < chance).long()
    estimate = real + 0.7 * torch.randn(400, generator=draw, dtype=torch.float64)
    known, shares = (torch.stack([1 - one, one], 1) for one in (chance, estimate))
    first, second, loss = calibrated(known.log(), shares, real)
    columns = np.stack([(known[:, 1] / known[:, 0]).log().numpy(), (shares[:, 1] - shares[:, 0]).numpy()], 1)
    plain = LogisticRegression(C=1e3, fit_intercept=False).fit(columns, real.numpy())
    assert (first, second) == pytest.approx(tuple(plain.coef_[0]), rel=0.02)
    fit = plain.predict_proba(columns)[np.arange(400), real.numpy()]
    assert loss == pytest.approx(float(-np.log(fit).mean()), rel=1e-3)
