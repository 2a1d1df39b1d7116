"""Nothing ambient: on CPU inputs inside a meta device, and in float32 while the default type is float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedxray.defences.base import Defence, NoDefence
from fedxray.defences.dp_sgd import DpSgd
from fedxray.defences.noise import GaussianNoise
from fedxray.federation.cohort import train
from fedxray.federation.folder import FolderShelf, read_transcript, write_transcript
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import continue_run, simulate
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import fork
from tests.federation.runs import federation, network, records
from tests.federation.test_cohort import jobs_of
from tests.federation.test_continue import SendBack


@contextmanager
def meta() -> Iterator[None]:
    with torch.device("meta"):
        yield


@contextmanager
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


Updates = Callable[[], list[dict[str, Tensor]]]


def local_work(kind: str, defence: Defence, **recipe: Any) -> Updates:
    run = federation((8, 4), model=kind, recipe={"batch_size": 4, **recipe}, defence=defence)
    settings, data = run.recipe, records(8)
    batches = [Batch(x=data.x[:4], y=data.y[:4]), Batch(x=data.x[4:], y=data.y[4:])]
    start, buffers = parameters_of(run.model), buffers_of(run.model)

    def work() -> list[dict[str, Tensor]]:
        result = local_update(
            start, buffers, batches, settings, objective(run.model, settings.loss),
            hooks=defence.hooks(run.work(0)), generator=fork(0, "work"),
        )  # fmt: skip
        return [result.update, result.buffers]

    return work


def together() -> Updates:
    model, recipe = network("mlp"), Recipe(batch_size=3, learning_rate=0.1)
    jobs = jobs_of(model, [7, 5, 4], recipe)
    return lambda: [result.update for result in train(model, jobs, recipe)]


def whole_run(kind: str, defence: Defence, **more: Any) -> Updates:
    run = federation((8, 4), model=kind, recipe={"batch_size": 4}, defence=defence, participation=0.5, **more)

    def work() -> list[dict[str, Tensor]]:
        transcript, _ = simulate(run, seed=1)
        branch = continue_run(run, transcript, seed=1, after=0, clients=[0], rounds=1, tamper=SendBack())
        parts = transcript.shelf.get(transcript.outcome(1).parts)
        return [parts.params, parts.buffers, branch.state[0]]

    return work


CASES: dict[str, Updates] = {
    "local": local_work("mlp", NoDefence(), momentum=0.5),
    "local-prox": local_work("mlp", NoDefence(), algorithm="fedprox", mu=0.1),
    "local-sgd": local_work("mlp", NoDefence(), algorithm="fedsgd"),
    "local-norm": local_work("norm", NoDefence()),
    "local-dropout": local_work("dropout", NoDefence()),
    "local-noise": local_work("mlp", GaussianNoise(scale=0.1)),
    "local-example-noise": local_work("mlp", GaussianNoise(scale=0.1, at="gradients")),
    "local-clipped": local_work("mlp", DpSgd(clip=0.1, noise_multiplier=1.0)),
    "cohort": together(),
    "run": whole_run("mlp", NoDefence()),
    "run-norm": whole_run("norm", NoDefence()),
    "run-dropout": whole_run("dropout", GaussianNoise(scale=0.1)),
    "run-clipped": whole_run("mlp", DpSgd(clip=0.1, noise_multiplier=1.0)),
}


@pytest.mark.parametrize("surroundings", [meta, double])
@pytest.mark.parametrize("case", CASES)
def test_surroundings_change_nothing(case: str, surroundings: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    expected = CASES[case]()
    with surroundings():
        torch.manual_seed(0)
        found = CASES[case]()
    for before, after in zip(expected, found, strict=True):
        for name, value in before.items():
            assert after[name].dtype == value.dtype and after[name].device.type == "cpu"
            assert torch.equal(after[name], value)


@pytest.mark.parametrize("surroundings", [meta, double])
def test_a_folder_in_other_surroundings(surroundings: Callable[[], Any], tmp_path: Path) -> None:
    run = federation((8, 4), model="norm", recipe={"batch_size": 4})
    plain, _ = simulate(run)
    with surroundings():
        transcript, _ = simulate(run, shelf=FolderShelf(tmp_path / "run"))
        write_transcript(transcript, tmp_path / "run")
        read = read_transcript(tmp_path / "run", model=run.model, space=run.space)
        found = {message.parts: read.shelf.get(message.parts) for message in read.messages}
    for key, parts in found.items():
        for name, value in {**parts.params, **parts.buffers}.items():
            wanted = {**plain.shelf.get(key).params, **plain.shelf.get(key).buffers}[name]
            assert torch.equal(value, wanted) and value.dtype == wanted.dtype


@pytest.mark.parametrize("surroundings", [meta, double])
def test_a_federation_is_made_in_other_surroundings(surroundings: Callable[[], Any]) -> None:
    run = federation((8, 4), model="norm", recipe={"batch_size": 4})
    with surroundings():
        again = type(run)(space=run.space, clients=run.clients, model=run.model, recipe=run.recipe)
    assert again.recipe == run.recipe
