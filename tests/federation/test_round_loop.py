"""The round loop: against a federation by hand, its messages, its settings, the same bits from the same seed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.data.dataset import Records
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, in_dtype, participants, recorded_rounds
from fedxray.federation.transcript import SERVER, WIRE, Transcript, client_reader
from fedxray.progress import Step
from tests.federation.loops import by_hand, relative_difference
from tests.federation.runs import federation, network


def final(transcript: Transcript, rounds: int) -> dict[str, Tensor]:
    return transcript.shelf.get(transcript.outcome(rounds - 1).parts).params


def server_by_hand(run: Federation, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The whole federation once more, with modules and optimisers."""
    truth, model = run.truth(seed), copy.deepcopy(run.model)
    own: dict[int, dict[str, Tensor]] = {}
    for round in range(run.rounds):
        total: dict[str, Tensor] = {}
        buffer_total: dict[str, Tensor] = {}
        clients = participants(run, seed, round)
        weights = [
            1.0 if truth.recipe.weighting == "uniform" else float(len(truth.train[client])) for client in clients
        ]
        for client, weight in zip(clients, weights, strict=True):
            local = copy.deepcopy(model)
            if run.recipe.batch_norm == "local" and client in own:
                local.load_state_dict({**local.state_dict(), **own[client]})
            update, buffers = by_hand(local, run.clients[client], truth.schedule(client, round), run.recipe)
            own[client] = copy.deepcopy(buffers)
            for name, value in update.items():
                total[name] = total.get(name, 0) + value * weight / sum(weights)
            for name, value in buffers.items():
                buffer_total[name] = buffer_total.get(name, 0) + value * weight / sum(weights)
        rate = run.recipe.server_learning_rate * (run.recipe.learning_rate if run.recipe.kind == "gradient" else 1)
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name in total:
                    value += rate * total[name]
            if run.recipe.batch_norm == "shared":
                for name, buffer in model.named_buffers():
                    buffer.copy_(buffer_total[name].round() if buffer.dtype == torch.int64 else buffer_total[name])
    return {n: v.detach() for n, v in model.named_parameters() if v.requires_grad}, dict(model.named_buffers())


@pytest.mark.parametrize(
    ("model", "recipe", "more"),
    [
        ("mlp", {}, {}),
        ("mlp", {"epochs": 2, "momentum": 0.5}, {}),
        ("mlp", {"algorithm": "fedsgd"}, {}),
        ("mlp", {"algorithm": "fedprox", "mu": 1.0, "epochs": 2}, {}),
        ("mlp", {"weighting": "uniform"}, {}),
        ("mlp", {"server_learning_rate": 0.3}, {}),
        ("mlp", {"algorithm": "fedsgd", "server_learning_rate": 0.3}, {}),
        ("mlp", {}, {"participation": 0.5}),
        ("norm", {"batch_size": 4}, {}),
        ("norm", {"batch_size": 4, "weighting": "uniform"}, {"participation": 0.6}),
        ("norm", {"batch_size": 4, "batch_norm": "local"}, {}),
        ("norm", {"batch_size": 4, "batch_norm": "local"}, {"participation": 0.6}),
    ],
    ids=str,
)
def test_equals_a_federation_by_hand(model: str, recipe: dict[str, Any], more: dict[str, Any]) -> None:
    run = federation((8, 4, 6, 10), model=model, recipe=recipe, rounds=3, dtype=torch.float64, **more)
    transcript, truth = simulate(run, seed=4)
    params, buffers = server_by_hand(run, 4)
    assert relative_difference(final(transcript, 3), params) < 1e-9
    end = transcript.shelf.get(transcript.outcome(2).parts)
    for name, value in buffers.items():
        torch.testing.assert_close(end.buffers[name], value, rtol=1e-9, atol=1e-9)
    assert truth.seed == 4 and truth.train == run.clients


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    for model in ("mlp", "norm", "dropout"):
        run = federation((8, 4), model=model, recipe={"batch_size": 4})
        first, again, other = (final(simulate(run, seed=seed)[0], 2) for seed in (1, 1, 2))
        assert all(torch.equal(value, again[name]) for name, value in first.items())
        assert any(not torch.equal(value, other[name]) for name, value in first.items())


@pytest.mark.parametrize("model", ["mlp", "norm", "dropout"])
def test_the_model_passed_in_is_not_modified(model: str) -> None:
    run = federation((8, 4), model=model, recipe={"batch_size": 4})
    run.model.eval()
    before = copy.deepcopy(run.model.state_dict())
    simulate(run)
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())
    assert not run.model.training and not any(value.grad is not None for value in run.model.parameters())


def test_start_plus_update_is_end() -> None:
    run = federation((8, 4), rounds=2)
    transcript, _ = simulate(run)
    for round in range(2):
        start = transcript.shelf.get(f"global/{round}").params
        mean = transcript.shelf.get(f"sum/{round}").params
        end = transcript.shelf.get(transcript.outcome(round).parts).params
        for name, value in start.items():
            torch.testing.assert_close(value + mean[name], end[name])


def test_messages_of_a_round_and_their_readers() -> None:
    transcript, _ = simulate(federation((8, 4), rounds=2))
    sent = [(message.what, message.client) for message in transcript.messages if message.round == 0]
    assert sent == [
        ("broadcast", 0), ("reply", 0), ("broadcast", 1), ("reply", 1), ("sum", None), ("outcome", None)
    ]  # fmt: skip
    by = {(message.what, message.client): message for message in transcript.messages if message.round == 1}
    assert by["broadcast", 0].readers == {SERVER, WIRE, client_reader(0)}
    assert by["reply", 1].readers == {SERVER, WIRE, client_reader(1)}
    assert by["reply", 1].contributors == (1,) and by["reply", 1].examples == 4
    assert by["sum", None].readers == {SERVER} and by["sum", None].examples == 12
    assert by["outcome", None].readers == {SERVER, WIRE, client_reader(0), client_reader(1)}
    assert transcript.rounds() == [0, 1]


def test_secure_aggregation_hides_single_replies_and_changes_nothing_else() -> None:
    plain, masked = (simulate(federation((8, 4), secure_aggregation=secure))[0] for secure in (False, True))
    for before, after in zip(plain.messages, masked.messages, strict=True):
        assert (before.what, before.parts) == (after.what, after.parts)
        hidden = after.what == "reply"
        assert (SERVER in after.readers) == (not hidden)
        assert after.readers == ({client_reader(after.client or 0)} if hidden else before.readers)
        left, right = plain.shelf.get(before.parts).params, masked.shelf.get(after.parts).params
        assert all(torch.equal(value, right[name]) for name, value in left.items())


def test_a_client_left_out_reads_nothing_of_that_round() -> None:
    run = federation((4, 4, 4, 4), rounds=6, participation=0.25)
    transcript, _ = simulate(run, seed=2)
    chosen = {round: participants(run, 2, round) for round in range(6)}
    assert all(len(clients) == 1 for clients in chosen.values()) and len({*map(tuple, chosen.values())}) > 1
    for message in transcript.messages:
        if message.what == "outcome" and message.round < 5:
            assert message.readers == {SERVER, WIRE, *map(client_reader, chosen[message.round + 1])}
        if message.what == "broadcast":
            assert message.client in chosen[message.round]
    assert len(transcript.outcome(5).readers) == 6


@pytest.mark.parametrize(("participation", "count"), [(1.0, 4), (0.5, 2), (0.6, 2), (0.65, 3), (0.01, 1), (0.125, 1)])
def test_share_of_participants(participation: float, count: int) -> None:
    run = federation((4, 4, 4, 4), participation=participation)
    for round in range(5):
        clients = participants(run, 0, round)
        assert len(clients) == count and clients == sorted(set(clients)) and set(clients) <= set(range(4))


def test_every_client_gets_its_turn() -> None:
    run = federation((4, 4, 4, 4), participation=0.5)
    assert {client for round in range(20) for client in participants(run, 0, round)} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        ("all", {0, 1, 2, 3, 4}),
        ("last", {4}),
        ("every-2", {0, 2, 4}),
        ("every-3", {0, 3, 4}),
        ((1,), {1, 4}),
        ((), {4}),
    ],
)
def test_recorded_rounds(record: Any, kept: set[int]) -> None:
    assert recorded_rounds(record, 5) == kept
    run = federation((4, 4), rounds=5, record=record)
    some, everything = simulate(run)[0], simulate(federation((4, 4), rounds=5))[0]
    assert set(some.rounds()) == kept
    assert all(torch.equal(value, final(everything, 5)[name]) for name, value in final(some, 5).items())
    for round in set(range(5)) - kept:
        with pytest.raises(BadInput, match="a recorded round"):
            some.outcome(round)


def test_own_buffers_are_recorded_also_for_rounds_that_were_not() -> None:
    """With local BatchNorm the state of every client is there, so that a run can go on from a recorded round."""
    recipe = {"batch_size": 4, "batch_norm": "local"}
    run = federation((8, 4, 4), model="norm", recipe=recipe, rounds=6, participation=0.34, record="last")
    transcript, _ = simulate(run)
    chosen = {client for round in range(6) for client in participants(run, 0, round)}
    states = [message for message in transcript.messages if message.what == "state"]
    assert {message.client for message in states} == chosen and len(chosen) > 1
    assert all(message.readers == {client_reader(message.client or 0)} for message in states)
    replies = [message for message in transcript.messages if message.what == "reply"]
    assert all(not transcript.shelf.get(message.parts).buffers for message in replies)


def test_progress_is_reported() -> None:
    steps: list[Step] = []
    simulate(federation((4, 4), rounds=3), report=steps.append)
    assert [(step.done, step.total) for step in steps] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16"])
def test_a_run_in_another_type(name: str) -> None:
    dtype = getattr(torch, name)
    run = in_dtype(federation((8, 4), recipe={"learning_rate": 0.01}), name)
    params = final(simulate(run)[0], 2)
    assert all(value.dtype == dtype for value in params.values())
    exact = final(simulate(federation((8, 4), recipe={"learning_rate": 0.01}))[0], 2)
    for key, value in params.items():
        torch.testing.assert_close(value.float(), exact[key], rtol=0.02, atol=0.02)
    with pytest.raises(BadInput, match=r"dtype.*Did you mean float32"):
        in_dtype(run, "float3")


def test_a_run_that_diverges_is_refused_with_a_remedy() -> None:
    data = Records(1e20 * torch.ones(4, 5), torch.tensor([1e20] * 4))
    run = federation((4, 4), recipe={"loss": "mse", "learning_rate": 10.0}, model=nn.Linear(5, 1))
    with pytest.raises(BadInput, match=r"stays finite.*NaN entries after round 0.*Lower learning_rate \(10\)"):
        simulate(Federation(space=run.space, clients=(data, data), model=run.model, recipe=run.recipe, rounds=3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": ()}, "at least one client"),
        ({"sizes": (4, 0)}, "none at client 1"),
        ({"rounds": 0}, "rounds: expected a whole number of at least 1"),
        ({"rounds": 1.5}, "rounds"),
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.01}, "participation"),
        ({"participation": float("nan")}, "participation"),
        ({"record": "every-0"}, "record"),
        ({"record": "sometimes"}, "record"),
        ({"record": (2,)}, "rounds from 0 to 1"),
        ({"model": nn.Identity()}, "trainable parameters"),
        ({"model": network("mlp", torch.float64)}, "inputs of torch.float64 like the model"),
        ({"holdout": (Records(torch.zeros(1, 5), torch.zeros(1)),)}, "held-out records for 2 clients"),
    ],
    ids=str,
)
def test_a_federation_that_cannot_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        if "clients" in change:
            base = federation()
            Federation(space=base.space, model=base.model, **change)
        else:
            federation(**change)


def test_clients_of_different_shapes_are_refused() -> None:
    base = federation()
    odd = (base.clients[0], Records(torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64)))
    with pytest.raises(BadInput, match=r"of shape \[5\].*\[4\] at client 1"):
        Federation(space=base.space, model=base.model, clients=odd)
    lame = (base.clients[0], Records(torch.zeros(3, 5), torch.zeros(2, dtype=torch.int64)))
    with pytest.raises(BadInput, match="2 targets"):
        Federation(space=base.space, model=base.model, clients=lame)
