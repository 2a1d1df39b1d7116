"""An active server: the run continues from a recorded round, with models that the server chooses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.federation.folder import FolderShelf, read_transcript, write_transcript
from fedxray.federation.round_loop import continue_run, simulate
from fedxray.params import Params, add, subtract
from tests.federation.loops import by_hand, relative_difference
from tests.federation.runs import federation, network


class SendBack:
    """Send every client the model it just returned."""

    def start(self) -> dict[int, dict[str, Tensor]]:
        return {}

    def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], Any]:
        chosen = dict(state.get(client, broadcast))
        return chosen, {**state, client: chosen}

    def receive(self, state: Any, round: int, client: int, update: Params) -> Any:
        return {**state, client: add(state[client], update)}


class Honest:
    """Send what would have been sent."""

    def start(self) -> list[int]:
        return []

    def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], Any]:
        return dict(broadcast), [*state, round]

    def receive(self, state: Any, round: int, client: int, update: Params) -> Any:
        return state


def test_send_back_is_local_training_by_hand() -> None:
    run = federation((7, 4), rounds=3, dtype=torch.float64)
    transcript, truth = simulate(run, seed=5)
    branch = continue_run(run, transcript, seed=5, after=1, clients=[1], rounds=4, tamper=SendBack())
    own = network("mlp", torch.float64)
    own.load_state_dict(transcript.shelf.get(transcript.outcome(1).parts).params)
    begin = {name: value.detach().clone() for name, value in own.named_parameters()}
    for round in range(2, 6):
        update, _ = by_hand(own, run.clients[1], truth.schedule(1, round), run.recipe)
        with torch.no_grad():
            for name, value in own.named_parameters():
                value += update[name]
    end = {name: value.detach() for name, value in own.named_parameters()}
    assert relative_difference(subtract(branch.state[1], begin), subtract(end, begin)) < 1e-9
    assert branch.rounds_spent == 4
    assert [message.round for message in branch.transcript.messages if message.what == "reply"] == [2, 3, 4, 5]


def test_a_branch_holds_only_tampered_messages_of_the_attacked_clients() -> None:
    run = federation((7, 4, 5), rounds=2)
    transcript, _ = simulate(run)
    before = transcript.messages
    branch = continue_run(run, transcript, seed=0, after=0, clients=[0, 2], rounds=2, tamper=SendBack())
    assert branch.rounds_spent == 4
    assert transcript.messages == before
    assert all(message.tampered and message.client in (0, 2) for message in branch.transcript.messages)
    for message in branch.transcript.messages:
        if message.what == "broadcast":
            assert message.parts == f"sent/{message.round}/{message.client}"
            assert message.readers == {"server", "wire", f"client:{message.client}"}


def test_an_honest_branch_repeats_the_honest_round() -> None:
    """Same model, same order, same draws: the reply is the one that was recorded."""
    for kind, recipe in (("mlp", {}), ("dropout", {}), ("norm", {"batch_size": 4, "batch_norm": "local"})):
        run = federation((8, 4), model=kind, rounds=3, recipe=recipe)
        transcript, _ = simulate(run, seed=3)
        branch = continue_run(run, transcript, seed=3, after=1, clients=[0], rounds=1, tamper=Honest())
        once, again = transcript.shelf.get("reply/2/0"), branch.transcript.shelf.get("reply/2/0")
        assert relative_difference(again.params, once.params) < 1e-5
        assert branch.state == [2]


def test_own_buffers_continue_from_the_recorded_round() -> None:
    run = federation((8, 4), model="norm", rounds=4, recipe={"batch_size": 4, "batch_norm": "local"})
    transcript, _ = simulate(run, seed=3)
    branch = continue_run(run, transcript, seed=3, after=2, clients=[1], rounds=1, tamper=Honest())
    recorded, again = (one.shelf.get("state/3/1").buffers for one in (transcript, branch.transcript))
    for name, value in recorded.items():
        torch.testing.assert_close(again[name], value)
    assert int(again["1.num_batches_tracked"]) == 4
    early = continue_run(run, transcript, seed=3, after=0, clients=[1], rounds=1, tamper=Honest())
    assert int(early.transcript.shelf.get("state/1/1").buffers["1.num_batches_tracked"]) == 2


def test_a_branch_can_start_from_a_folder(tmp_path: Any) -> None:
    run = federation((7, 4), rounds=2)
    transcript, _ = simulate(run, seed=1, shelf=FolderShelf(tmp_path / "run"))
    write_transcript(transcript, tmp_path / "run")
    read = read_transcript(tmp_path / "run", model=run.model, space=run.space)
    branches = [
        continue_run(run, source, seed=1, after=1, clients=[0], rounds=2, tamper=SendBack())
        for source in (transcript, read)
    ]
    for name, value in branches[0].state[0].items():
        assert torch.equal(value, branches[1].state[0][name])


def test_runs_that_cannot_be_continued_are_refused() -> None:
    run = federation((7, 4), rounds=3, record="last")
    transcript, _ = simulate(run)
    go: Any = lambda **more: continue_run(  # noqa: E731
        run,
        **{"transcript": transcript, "seed": 0, "after": 2, "clients": [0], "rounds": 1, "tamper": Honest(), **more},
    )
    from dataclasses import replace

    with pytest.raises(BadInput, match="recording of a live federation"):
        go(transcript=replace(transcript, recorded=True))
    with pytest.raises(BadInput, match="a recorded round"):
        go(after=1)
    for clients in ([], [2], [-1]):
        with pytest.raises(BadInput, match="clients from 0 to 1"):
            go(clients=clients)

    class Wrong(Honest):
        def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], Any]:
            return {}, state

    with pytest.raises(BadInput, match="tamper"):
        go(tamper=Wrong())
