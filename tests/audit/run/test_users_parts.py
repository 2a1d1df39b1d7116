"""A user's own defence or network that cannot work is refused before the run, in words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray.adversary import roles
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.dry_run import understood
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from tests.audit.plans import tiny

PARTS = "tests.audit.users_parts"


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a plan, which goes on Python's path where a factory is named, and off it again."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flat", r"'hidden1\.weight' as torch.float32 .* from its hook outgoing"),
        ("broken", r"defence tests.*ZeroDivisionError.*users_parts\.py:\d+"),
        ("no_hooks", "its method hooks to return a fedxray.defences.base.Hooks, got NoneType"),
        ("no_words", r"describe\(\) to return a text, got int"),
        ("keeps_nothing_known", "names of trained parameters to keep, got 'nowhere.weight'"),
    ],
)
def test_an_own_defence_is_tried_out(name: str, words: str, users_folder: Path) -> None:
    with pytest.raises(BadInput, match=words):
        preflight(make_plan(tiny(defence=[{"factory": f"{PARTS}:{name}"}]), users_folder))


def test_an_own_defence_that_draws_as_torch_does_gives_the_same_run_again(users_folder: Path) -> None:
    plan = make_plan(tiny(data={"clients": 5}, defence=[{"factory": f"{PARTS}:ambient", "label": "own"}]), users_folder)
    federation = prepare(plan, "own", 0).federation
    last = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        transcript, _ = simulate(federation, seed=0)
        assert torch.initial_seed() == seed
        last.append(transcript.shelf.get(transcript.outcome(1).parts).params)
    assert all(torch.equal(value, last[1][name]) for name, value in last[0].items())


@pytest.mark.parametrize("name", ["recurrent", "running"])
def test_a_network_without_gradients_of_examples_is_refused_with_dp_sgd_only(name: str, users_folder: Path) -> None:
    network: dict[str, Any] = {"model": {"factory": f"{PARTS}:{name}"}}
    defences = [{"name": "quantise"}, {"name": "dp-sgd", "noise_multiplier": 1.0}]
    plan = make_plan(tiny(model=None, defence=defences) | network, users_folder)
    prepare(plan, "quantise", 0)
    with pytest.raises(BadInput, match="defence: expected a network whose gradients can be taken example by example"):
        prepare(plan, "dp-sgd", 0)


def test_an_own_network_of_another_type_is_not_cast_silently(users_folder: Path) -> None:
    def prepared(name: str, dtype: str) -> Any:
        document = tiny(model=None, federation={"dtype": dtype}) | {"model": {"factory": f"{PARTS}:{name}"}}
        return prepare(make_plan(document, users_folder), "none", 0)

    with pytest.raises(BadInput, match=r'got parameters of float64 from .*Set dtype = "float64"'):
        prepared("double", "float32")
    with pytest.raises(BadInput, match=r"got parameters of float16 from .*Return a network of float32"):
        prepared("half", "float32")
    weights = prepared("double", "float64").federation.model.parameters()
    assert {one.dtype for one in weights} == {torch.float64}


def test_a_buffer_that_is_filled_from_records_is_seen_by_the_server_and_reported(users_folder: Path) -> None:
    document = tiny(model=None, attack=[{"name": "membership-loss"}]) | {"model": {"factory": f"{PARTS}:copying"}}
    plan = make_plan(document, users_folder)
    prepared = prepare(plan, "none", 0)
    assert prepared.data_buffers == ("last",)
    assert any("! the buffer last changes with the records" in line for line in understood(prepared))
    transcript, truth = simulate(prepared.federation, seed=0)
    seen = roles.server(transcript, client=1).of(1)[0].buffers_after["last"]
    assert any(torch.equal(seen, record) for record in truth.train[1].x)
    cases = run_audit(plan, users_folder / "out", engine="inline").document["cases"]
    assert all(case["ledger"]["data_buffers"] == ["last"] for case in cases)


@pytest.mark.parametrize("federation", [{}, {"batch_norm": "local"}])
def test_statistics_of_batch_norm_and_buffers_that_stay_home_need_no_notice(
    federation: dict[str, Any], users_folder: Path
) -> None:
    network = {"factory": f"{PARTS}:copying"} if federation else {"name": "mlp", "hidden": [4]}
    document = tiny(model=None, federation=federation) | {"model": network}
    assert prepare(make_plan(document, users_folder), "none", 0).data_buffers == ()
