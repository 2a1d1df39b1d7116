"""A filter of NVFlare and a mod of Flower as defences: the same as the built-in formulas, and what cannot be used."""

from __future__ import annotations

import random
from collections.abc import Callable
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


class Changed:
    """A filter that changes every array by a function, and its name by a prefix."""

    def __init__(self, change: Callable[[Any], Any], prefix: str = "") -> None:
        self.change, self.prefix = change, prefix

    def process(self, shareable: Any, context: Any) -> Any:
        from nvflare.apis.dxo import from_shareable

        data = from_shareable(shareable)
        data.data = {self.prefix + name: self.change(value) for name, value in data.data.items()}
        return data.update_shareable(shareable)


class Single(Changed):
    """A filter that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no copies")


@pytest.mark.parametrize(
    ("change", "refusal"),
    [(lambda value: value.ravel(), "shape"), (lambda value: value * 1j, "complex"), (lambda value: "text", "<U4")],
)
def test_a_filter_that_returns_no_such_numbers_is_refused(change: Any, refusal: str) -> None:
    pytest.importorskip("nvflare")
    with pytest.raises(BadInput, match=refusal):
        sent(as_defence(Changed(change)))


def test_a_filter_that_renames_arrays_is_refused() -> None:
    pytest.importorskip("nvflare")
    with pytest.raises(BadInput, match="arrays of the update"):
        sent(as_defence(Changed(lambda value: value, "x.")))


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[::-1].copy()[::-1],
        lambda value: value.astype(">f4"),
        lambda value: torch.tensor(value, requires_grad=True),
    ],
)
def test_arrays_of_any_layout_are_taken(change: Any) -> None:
    pytest.importorskip("nvflare")
    assert all(torch.equal(value, update_of()[name]) for name, value in sent(as_defence(Single(change))).items())


def test_draws_of_python_and_torch_follow_from_the_generator() -> None:
    pytest.importorskip("nvflare")
    noisy = as_defence(Changed(lambda value: value + random.random() + torch.randn(()).item()))
    before = random.getstate(), torch.get_rng_state()
    first, again, other = sent(noisy), sent(noisy), sent(noisy, seed=1)
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert first["w"].equal(again["w"]) and not first["w"].equal(other["w"])


def test_a_mod_that_replies_without_arrays_is_refused() -> None:
    flower = pytest.importorskip("flwr.app")

    def silent(message: Any, context: Any, call_next: Any) -> Any:
        return flower.Message(flower.RecordDict(), reply_to=message)

    with pytest.raises(BadInput, match="no array at all"):
        sent(as_defence(silent))


def test_anything_else_is_refused_by_name() -> None:
    assert as_defence(3) == 3
    with pytest.raises(BadInput, match="to return a Defence"):
        defence_from_factory("collections:OrderedDict", {}, Path.cwd())


def test_a_mod_gets_the_clients_examples_and_leaves_flowers_identity_as_it_was() -> None:
    identity: Any = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    counts, before = [], vars(identity).copy()

    def counting(message: Any, context: Any, call_next: Any) -> Any:
        answer = call_next(message, context)
        counts.append(answer.content["metrics"]["num-examples"])
        return answer

    sent(as_defence(counting))
    assert counts == [WORK.examples] and vars(identity) == before


@pytest.mark.parametrize("as_tensor", [False, True])
def test_an_update_in_bfloat16_passes_through(as_tensor: bool) -> None:
    pytest.importorskip("nvflare")
    update = {"w": torch.tensor([0.5, -2.0], dtype=torch.bfloat16)}
    halved = as_defence(Changed(lambda value: torch.tensor(value / 2).bfloat16() if as_tensor else value / 2))
    changed = halved.hooks(WORK).outgoing(update, None, fork(0))[0]["w"]
    assert changed.dtype == torch.bfloat16 and changed.tolist() == [0.25, -1.0]
