"""Figures of paper 004 that need a prior: clients whose images no prior has seen, raw beside restored, FedInverse."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.run.prepare import prepare
from fedxray.cli.prior import images_of_data
from fedxray.reproduce.base import Request, find
from fedxray.reproduce.curious import PRIORS, RESTORERS, prior_commands
from fedxray.restore.loading import record_hashes


def plan_of(name: str, row: str, scale: str = "small") -> Plan:
    made = find(name)
    assert made.plan is not None
    return make_plan({**made.plan(Request(scale=scale), row), "name": "x"}, Path.cwd())


@pytest.mark.parametrize("name", ["curious-restoration", "curious-fedinverse"])
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_plan_is_valid_and_gives_every_column(name: str, scale: str) -> None:
    made = find(name)
    for row in made.rows:
        labels = {part.title for part in plan_of(name, row, scale).attacks}
        assert labels == {column.attack for column in made.columns}


def test_raw_comes_with_every_restorer() -> None:
    titles = [part.title for part in plan_of("curious-restoration", "cifar10-2").attacks]
    names = [one.get("label", one["name"]) for one in RESTORERS]
    assert titles == ["raw", *(f"raw+{name}" for name in names)]
    assert {one["name"] for one in RESTORERS} == {"ddrm", "gan", "mde"}


def test_no_prior_has_seen_a_client(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The priors' command trains on images of which none is in any client's hands."""
    seen = set(record_hashes(images_of_data("cifar10").pixels))
    assert len(seen) > 4900
    for row in ("cifar10-4", "imagenet-2"):
        plan = plan_of("curious-restoration", row)
        for seed in plan.seeds:
            one = prepare(plan, "none", seed).federation
            for records in (*one.clients, *one.holdout):
                assert not seen & set(record_hashes(one.space.to_pixels(records.x)))
            assert [len(records) for records in one.clients] == [16] * int(row[-1])


def test_the_commands_for_priors_are_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is parsed by the command itself, with its settings."""
    from fedxray.cli import app, prior
    from fedxray.restore.training import Training

    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(prior, "run_training", lambda *given: asked.append(given))
    for line in prior_commands():
        assert CliRunner().invoke(app, shlex.split(line)[1:]).exit_code == 0, line
    assert [Training(**given[6]).kind for given in asked] == ["ddpm", "gan", "dit"]
    places = {str(given[5]) for given in asked}
    assert places == {f"priors/{name}" for name in PRIORS} == {str(Path(one["prior"])) for one in RESTORERS}
    assert {given[0] for given in asked} == {"cifar10"}


def test_fedinverse_is_seen_from_a_clients_seat() -> None:
    plan = plan_of("curious-fedinverse", "mnist")
    assert {part.role for part in plan.attacks} == {"curious-client"}
    made = {part.title: part.make(plan.folder) for part in plan.attacks}
    weights = {name: getattr(made[name], "independence") for name in ("mi", "mi-hsic")}  # noqa: B009
    assert weights == {"mi": 0.0, "mi-hsic": 0.05}
