"""A filter of NVFlare and a mod of Flower as defences: the same as the built-in formulas, and what cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedxray.audit.catalog import defence_from_factory
from fedxray.defences.base import Work
from fedxray.defences.foreign import as_defence
from fedxray.defences.stock import FlowerFixedClipping, NvflareExclude, NvflarePercentile
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.seeds import fork
from tests.federation.runs import federation

WORK = Work(examples=8, batch_size=4, steps=4, rounds=3)
NVFLARE = "nvflare.app_common.filters"


def update_of(scale: float = 0.1) -> dict[str, torch.Tensor]:
    return {"w": scale * torch.randn(20, 3, generator=fork(0)), "bias": scale * torch.randn(20, generator=fork(1))}


def sent(defence: Any, seed: int = 0) -> dict[str, torch.Tensor]:
    hook = defence.hooks(WORK).outgoing
    assert hook is not None
    changed: dict[str, torch.Tensor] = hook(update_of(), None, fork(seed))[0]
    return changed


@pytest.mark.parametrize(
    ("factory", "settings", "ours"),
    [
        ("percentile_privacy:PercentilePrivacy", {"percentile": 30}, NvflarePercentile(percentile=30.0)),
        ("exclude_vars:ExcludeVars", {"exclude_vars": "bias"}, NvflareExclude(names="bias")),
    ],
)
def test_a_filter_named_in_a_plan_equals_the_built_in_one(factory: str, settings: dict[str, Any], ours: Any) -> None:
    pytest.importorskip("nvflare")
    theirs = defence_from_factory(f"{NVFLARE}.{factory}", settings, Path.cwd())
    for name, value in sent(ours).items():
        torch.testing.assert_close(sent(theirs)[name], value)
    assert theirs.describe() == f"NVFlare's filter {factory.partition(':')[2]}"


def test_a_mod_named_in_a_plan_equals_the_built_in_one() -> None:
    pytest.importorskip("flwr")
    settings = {"clipping_norm": 0.2, "sensitivity": 0.0, "epsilon": 1.0, "delta": 1e-5}
    theirs = defence_from_factory("flwr.clientapp.mod:LocalDpMod", settings, Path.cwd())
    for name, value in sent(FlowerFixedClipping(clipping_norm=0.2)).items():
        torch.testing.assert_close(sent(theirs)[name], value)


def test_draws_follow_from_the_generator_and_leave_numpys_alone() -> None:
    pytest.importorskip("nvflare")
    noisy = defence_from_factory(f"{NVFLARE}.svt_privacy:SVTPrivacy", {}, Path.cwd())
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    first, again, other = sent(noisy), sent(noisy), sent(noisy, seed=1)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]
    assert first["w"].equal(again["w"]) and not first["w"].equal(other["w"])


def test_a_run_sends_every_update_through() -> None:
    pytest.importorskip("nvflare")
    from nvflare.app_common.filters.exclude_vars import ExcludeVars

    transcript, _ = simulate(federation(defence=as_defence(ExcludeVars(exclude_vars="bias"))))
    for message in transcript.messages:
        if message.what == "reply":
            update = transcript.shelf.get(message.parts).params
            assert all(bool(value.any()) is ("bias" not in name) for name, value in update.items())


def test_a_filter_that_changes_shapes_is_refused() -> None:
    pytest.importorskip("nvflare")

    class Flattened:
        def process(self, shareable: Any, context: Any) -> Any:
            from nvflare.apis.dxo import from_shareable

            data = from_shareable(shareable)
            data.data = {name: value.ravel() for name, value in data.data.items()}
            return data.update_shareable(shareable)

    with pytest.raises(BadInput, match="shape"):
        sent(as_defence(Flattened()))


def test_a_filter_that_renames_arrays_is_refused() -> None:
    pytest.importorskip("nvflare")

    class Renamed:
        def process(self, shareable: Any, context: Any) -> Any:
            from nvflare.apis.dxo import from_shareable

            data = from_shareable(shareable)
            data.data = {f"x.{name}": value for name, value in data.data.items()}
            return data.update_shareable(shareable)

    with pytest.raises(BadInput, match="arrays of the update"):
        sent(as_defence(Renamed()))


def test_anything_else_is_refused_by_name() -> None:
    assert as_defence(3) == 3
    with pytest.raises(BadInput, match="to return a Defence"):
        defence_from_factory("collections:OrderedDict", {}, Path.cwd())
