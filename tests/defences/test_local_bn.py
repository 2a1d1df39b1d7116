"""Local BatchNorm: what stays never leaves, goes on from round to round, and utility is each client's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from fedxray.audit.run.utility import utility_of
from fedxray.defences.joined import Joined
from fedxray.defences.local_bn import LocalBn
from fedxray.defences.noise import GaussianNoise
from fedxray.errors import BadInput
from fedxray.federation.folder import FolderShelf, read_transcript
from fedxray.federation.round_loop import client_states, continue_run, simulate
from fedxray.federation.setting import Federation
from fedxray.params import buffers_of, parameters_of
from tests.federation.runs import federation, network, records
from tests.federation.test_continue import Honest

AFFINE = ("1.weight", "1.bias")


def run_of(keep: str, **more: Any) -> Federation:
    defence = LocalBn(keep=keep)  # type: ignore[arg-type]
    settings = {"model": "norm", "recipe": {"batch_size": 4}, "rounds": 3, "defence": defence, **more}
    return federation((8, 12), **settings)


def test_statistics_stay_and_the_rest_is_as_with_the_recipe() -> None:
    """Statistics alone are what `batch_norm = "local"` of the recipe keeps."""
    mine, _ = simulate(run_of("statistics"), seed=2)
    recipe = {"batch_size": 4, "batch_norm": "local"}
    other, _ = simulate(federation((8, 12), model="norm", recipe=recipe, rounds=3), seed=2)
    assert [one.parts for one in mine.messages] == [one.parts for one in other.messages]
    for message in mine.messages:
        left, right = mine.shelf.get(message.parts), other.shelf.get(message.parts)
        for one, two in ((left.params, right.params), (left.buffers, right.buffers)):
            assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
def test_scales_and_shifts_never_leave_and_go_on(algorithm: str) -> None:
    run = run_of("statistics-and-affine", recipe={"batch_size": 4, "algorithm": algorithm})
    transcript, truth = simulate(run, seed=2)
    start, before = parameters_of(run.model), buffers_of(run.model)
    for message in transcript.messages:
        parts = transcript.shelf.get(message.parts)
        if message.what == "reply":
            assert not any(bool(parts.params[name].any()) for name in AFFINE)
            assert bool(parts.params["0.weight"].any()) and not parts.buffers
        if message.what in ("broadcast", "outcome"):
            assert all(torch.equal(parts.params[name], start[name]) for name in AFFINE)
            assert all(torch.equal(value, before[name]) for name, value in parts.buffers.items())
    states = [client_states(transcript, truth.kept(), round) for round in range(3)]
    for client in (0, 1):
        steps = [states[round][client].params["1.weight"] for round in range(3)]
        assert not torch.equal(steps[0], steps[1]) and not torch.equal(steps[1], steps[2])
    assert not torch.equal(states[2][0].params["1.weight"], states[2][1].params["1.weight"])


def test_a_client_trains_from_what_it_kept() -> None:
    """Its second round is the one it would have with the global model and its own scales and shifts put together."""
    run = run_of("statistics-and-affine", rounds=2)
    transcript, truth = simulate(run, seed=2)
    own = client_states(transcript, truth.kept(), 0)[0]
    sent = transcript.shelf.get("global/1")
    whole = copy.deepcopy(run.model)
    whole.load_state_dict({**sent.params, **own.params, **own.buffers})
    schedule = truth.schedule(0, 1)
    data = run.clients[0]
    whole.train()
    for row in schedule.rows():
        whole.zero_grad()
        torch.nn.functional.cross_entropy(whole(data.x[row]), data.y[row]).backward()
        with torch.no_grad():
            for value in whole.parameters():
                assert value.grad is not None
                value -= 0.1 * value.grad
    kept = client_states(transcript, truth.kept(), 1)[0]
    reply = transcript.shelf.get("reply/1/0").params
    for name, value in whole.named_parameters():
        found = kept.params[name] if name in AFFINE else sent.params[name] + reply[name]
        torch.testing.assert_close(found, value.detach(), rtol=1e-4, atol=1e-6)
    for name, value in whole.named_buffers():
        torch.testing.assert_close(kept.buffers[name], value)


def test_noise_beside_it_falls_on_zeros_and_not_on_what_stays() -> None:
    parts = (GaussianNoise(scale=1.0), LocalBn(keep="statistics-and-affine"))
    noisy, truth = simulate(run_of("statistics", defence=Joined(parts=parts), rounds=1), seed=2)
    quiet, _ = simulate(run_of("statistics-and-affine", rounds=1), seed=2)
    one, two = (client_states(run, truth.kept(), 0)[0].params for run in (noisy, quiet))
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert bool(noisy.shelf.get("reply/0/0").params["1.weight"].any())


def test_a_branch_goes_on_from_what_clients_kept_also_from_a_folder(tmp_path: Any) -> None:
    run = run_of("statistics-and-affine")
    shelf = FolderShelf(tmp_path / "run")
    transcript, _ = simulate(run, seed=2, shelf=shelf)
    shelf.finish(transcript)
    again = read_transcript(tmp_path / "run", model=run.model, space=run.space)
    branch = continue_run(run, again, seed=2, after=1, clients=[0], rounds=1, tamper=Honest())
    for name, value in transcript.shelf.get("reply/2/0").params.items():
        assert torch.equal(branch.transcript.shelf.get("reply/2/0").params[name], value)


def test_utility_is_measured_with_each_clients_own_model() -> None:
    held = (records(6, 7), records(5, 8))
    run = run_of("statistics-and-affine", holdout=held)
    transcript, truth = simulate(run, seed=2)
    final, losses = transcript.shelf.get("global/3"), []
    for client, own in client_states(transcript, truth.kept(), 2).items():
        model = copy.deepcopy(run.model)
        model.load_state_dict({**final.params, **own.params, **own.buffers})
        with torch.no_grad():
            output = model.eval()(held[client].x)
        losses.append(torch.nn.functional.cross_entropy(output, held[client].y, reduction="sum"))
    assert utility_of(transcript, truth)["loss"] == pytest.approx(float(sum(losses)) / 11, rel=1e-5)


def test_refusals_and_words() -> None:
    with pytest.raises(BadInput, match="a model with BatchNorm"):
        federation((8, 12), defence=LocalBn())
    with pytest.raises(BadInput, match="keep"):
        LocalBn(keep="all")  # type: ignore[arg-type]
    assert LocalBn().describe() == "BatchNorm statistics stay with the client"
    assert "scales and shifts" in LocalBn(keep="statistics-and-affine").describe()


def test_scales_that_are_not_trained_need_not_be_kept() -> None:
    model = network("norm")
    for name, value in model.named_parameters():
        value.requires_grad_(name not in AFFINE)
    run = run_of("statistics-and-affine", model=model)
    assert run.kept().params == ()
    simulate(run, seed=0)
