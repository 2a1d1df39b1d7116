"""The recorder for Flower, through a grid in this process."""

from __future__ import annotations

import copy
import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.error import Error
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid

from fedxray.adversary import roles
from fedxray.audit.recorded.prepare import holdings
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.federation.recording import writer
from fedxray.federation.recording.reader import Recording, read_recording
from fedxray.federation.recording.transcribe import choose, fit, transcribe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.integrations.flower import record, record_grid
from tests.integrations.flower_run import NODES, InProcessGrid, client_app, network, records, run

RECIPE = Recipe(batch_size=4, learning_rate=0.1, epochs=2)
CLIENTS = tuple(records(count, seed) for seed, count in enumerate((8, 7, 10)))
SPACE = Space(kind="table", shape=(4,), target="classification", classes=("a", "b", "c"))


def recorded(folder: Path, *, mods: Callable[[Any], list[Any]] = lambda mine: [mine], **settings: Any) -> Any:
    """Record both sides of one run; returns Flower's result."""
    mine = record(folder / "client")
    rounds = settings.pop("rounds", 2)
    secure = settings.pop("secure", False)
    strategy = settings.pop("strategy", {})
    app = client_app(CLIENTS, RECIPE, mods=mods(mine), **settings.pop("app", {}))
    grid: Any = record_grid(InProcessGrid(app), folder / "server", secure_aggregation=secure)
    assert isinstance(grid, Grid)
    result = run(grid, rounds=rounds, **strategy)
    mine.writer.wait()
    grid.writer.wait()
    assert (mine.writer.stopped, grid.writer.stopped) == (None, None)
    return result


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Recording]:
    """The two sides of one run of two rounds."""
    folder = tmp_path_factory.mktemp("run")
    recorded(folder)
    return read_recording(folder / "client"), read_recording(folder / "server")


def transcript(recording: Recording, place: int = 0, **settings: Any) -> Transcript:
    chosen = choose(recording, node=str(NODES[place]))
    return transcribe(chosen, model=network(), space=SPACE, recipe=settings.pop("recipe", RECIPE), **settings)


def test_both_sides_are_equal_to_the_bit(both: tuple[Recording, Recording]) -> None:
    def facts(side: Recording) -> set[Any]:
        return {
            (one.what, one.node, one.run, one.round, one.sent.sha256, one.reply and one.reply.sha256, one.examples)
            for one in side.messages
        }

    client, server = both
    assert facts(client) == facts(server)
    assert len(facts(client)) == 3 * 2 * 2
    assert {one.partition for one in client.messages} == {0, 1, 2}
    assert {tuple(one.config.items()) for one in client.messages if one.what == "train"} == {
        (("lr", 0.1), ("server-round", 1)),
        (("lr", 0.1), ("server-round", 2)),
    }


def test_equal_models_are_kept_once(both: tuple[Recording, Recording]) -> None:
    # Two models to train on, one more after the last round, and six replies.
    assert len(list((both[1].folder / "arrays").iterdir())) == 3 + 6


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
def test_the_transcript_is_that_of_a_simulation(both: tuple[Recording, Recording], side: int) -> None:
    start = transcript(both[side]).shelf.get("sent/0")
    model = network()
    model.load_state_dict({**start.params, **start.buffers})
    federation = Federation(space=SPACE, clients=CLIENTS, model=model, recipe=RECIPE, rounds=2)
    simulated, _ = simulate(federation, seed=0)
    for client in range(3):
        view = roles.server(transcript(both[side], client), client=0)
        wanted = roles.server(simulated, client=client).of(client)
        assert [one.round for one in view.of(0)] == [0, 1]
        for mine, theirs in zip(view.of(0), wanted, strict=True):
            assert mine.examples == theirs.examples == len(CLIENTS[client])
            for part in ("start", "update", "buffers", "buffers_after"):
                for name, value in getattr(theirs, part).items():
                    if value.is_floating_point():  # a mean of counters is cut by torch and rounded by us
                        torch.testing.assert_close(getattr(mine, part)[name], value, rtol=1e-4, atol=1e-6)


def test_no_other_node_is_in_the_transcript(both: tuple[Recording, Recording]) -> None:
    own = transcript(both[1])
    assert {one.client for one in own.messages if one.what == "reply"} == {0}
    view = roles.server(own, client=0)
    assert view.clients == (0,)


def test_a_fellow_client_sees_the_global_models_alone(both: tuple[Recording, Recording]) -> None:
    view = roles.curious_client(transcript(both[0]), seat=1)
    assert [one.round for one in view.globals] == [0, 1, 2]
    assert [one.contributors for one in view.observations] == [None, None]
    before, after = view.globals[0], view.globals[1]
    for name, value in view.observations[0].update.items():
        assert torch.equal(value, after.params[name] - before.params[name])


def test_under_secure_aggregation_the_server_has_no_replies(tmp_path: Path) -> None:
    recorded(tmp_path, secure=True)
    server = read_recording(tmp_path / "server")
    assert all(one.reply is None for one in server.messages)
    trained = [one for one in server.messages if one.what == "train"]
    assert {one.examples for one in trained} == {8, 7, 10}, "which a server sees in the clear"
    assert all(one.secure for one in trained)
    hidden = transcript(server)
    assert hidden.secure_aggregation
    view = roles.server(hidden, client=0)
    assert view.target is None and len(view.observations) == 2
    assert {(seen.contributors, seen.examples) for seen in view.observations} == {((0, 1, 2), 25)}
    own = transcribe(
        choose(read_recording(tmp_path / "client"), node=str(NODES[0])),
        model=network(),
        space=SPACE,
        recipe=RECIPE,
        secure_aggregation=True,
    )
    view = roles.server(own, client=0)
    assert view.target is None and {seen.contributors for seen in view.observations} == {None}, (
        "a node knows only itself"
    )


def test_secure_aggregation_is_noticed_by_its_protocol(tmp_path: Path) -> None:
    """A mod that adds the record of SecAgg+: the arrays count as masked, the rest is in the clear."""

    def masking(message: Message, context: Any, call_next: Any) -> Message:
        reply = call_next(message, context)
        if message.metadata.message_type == "train":
            reply.content["secaggplus_configs"] = ConfigRecord({"masked": b"secret", "stage": "collect"})
            reply.content["fitres.metrics"] = ConfigRecord({"accuracy": 0.5, "note": "text"})
        return reply

    recorded(tmp_path, mods=lambda mine: [masking, mine])
    server, inside = read_recording(tmp_path / "server"), read_recording(tmp_path / "client")
    trained = [one for one in server.messages if one.what == "train"]
    assert trained and all(one.secure and one.reply is None for one in trained)
    assert {one.examples for one in trained} == {8, 7, 10}
    assert all(one.config["metric accuracy"] == 0.5 and "stage" not in one.config for one in trained)
    own = [one for one in inside.messages if one.what == "train"]
    assert all(one.reply is not None and not one.secure for one in own), "inside the mask nothing is hidden"
    assert "sent along" in "\n".join(holdings(server)) and "secagg" not in "\n".join(holdings(server))


def test_the_position_among_other_mods_is_recorded(tmp_path: Path) -> None:
    def private(message: Message, context: Any, call_next: Any) -> Message:
        if message.metadata.message_type != "train":
            return call_next(message, context)
        return LocalDpMod(1.0, 0.1, 1.0, 0.1)(message, context, call_next)

    def sizes(message: Message, context: Any, call_next: Any) -> Message:
        return call_next(message, context)

    recorded(tmp_path / "near", mods=lambda mine: [mine, private, sizes])
    recorded(tmp_path / "far", mods=lambda mine: [private, mine])
    near, far = (read_recording(tmp_path / name / "client") for name in ("near", "far"))
    assert {(tuple(one.inside or ()), tuple(one.outside or ())) for one in near.messages} == {
        (("private", "sizes"), ())
    }
    assert {(tuple(one.inside or ()), tuple(one.outside or ())) for one in far.messages} == {((), ("private",))}
    server = read_recording(tmp_path / "near" / "server")
    assert {one.reply.sha256 for one in near.messages if one.reply} == {
        one.reply.sha256 for one in server.messages if one.reply
    }
    hidden = read_recording(tmp_path / "far" / "server")
    assert not {one.reply.sha256 for one in far.messages if one.reply} & {
        one.reply.sha256 for one in hidden.messages if one.reply
    }


def test_outer_mods_are_listed_from_the_network_inwards(tmp_path: Path) -> None:
    def first(message: Message, context: Any, call_next: Any) -> Message:
        return call_next(message, context)

    def second(message: Message, context: Any, call_next: Any) -> Message:
        return call_next(message, context)

    recorded(tmp_path / "r", mods=lambda mine: [first, second, mine])
    messages = read_recording(tmp_path / "r" / "client").messages
    assert {tuple(one.outside or ()) for one in messages} == {("first", "second")}


def test_an_unrecognised_position_is_recorded_as_unknown(tmp_path: Path) -> None:
    """The recorder is called by a mod of the user, or by a framework that chains mods in another way."""
    mine = record(tmp_path)

    def both(message: Message, context: Any, call_next: Any) -> Message:
        return mine(message, context, lambda *more: call_next(*more))

    run(InProcessGrid(client_app(CLIENTS, RECIPE, mods=[both])), rounds=1)
    mine.writer.wait()
    assert {(one.inside, one.outside) for one in read_recording(tmp_path).messages} == {(None, None)}


def test_a_node_that_empties_its_message(tmp_path: Path, both: tuple[Recording, Recording]) -> None:
    def load(model: torch.nn.Module, arrays: ArrayRecord) -> None:
        model.load_state_dict(arrays.to_torch_state_dict(keep_input=False))

    recorded(tmp_path, app={"load": load})
    sent, expected = (
        {(one.node, one.sent.sha256) for one in side.messages if (one.what, one.round) == ("train", 1)}
        for side in (read_recording(tmp_path / "client"), both[0])
    )
    assert sent == expected and len(sent) == 3


def weights(result: Any) -> dict[str, torch.Tensor]:
    return dict(result.arrays.to_torch_state_dict())


def no_space(*arguments: Any, **settings: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(*arguments: Any, **settings: Any) -> None:
    raise RuntimeError("a fault of the recorder")


@pytest.mark.parametrize(
    ("target", "fault", "reason"),
    [
        ("fedxray.federation.recording.writer.write_whole", no_space, "No space left"),
        ("fedxray.federation.recording.writer.write_message", broken, "a fault of the recorder"),
        ("fedxray.integrations.flower.read_sent", broken, "a fault of the recorder"),
        ("fedxray.integrations.flower.read_reply", broken, "a fault of the recorder"),
    ],
)
def test_the_training_continues_after_any_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    target: str,
    fault: Any,
    reason: str,
) -> None:
    plain = run(InProcessGrid(client_app(CLIENTS, RECIPE)))
    mine = record(tmp_path / "client")
    grid: Any = record_grid(InProcessGrid(client_app(CLIENTS, RECIPE, mods=[mine])), tmp_path / "server")
    monkeypatch.setattr(target, fault)
    with caplog.at_level(logging.WARNING, logger="fedxray.recorder"):
        result = run(grid)
        mine.writer.wait()
        grid.writer.wait()
    assert all(torch.equal(value, weights(plain)[name]) for name, value in weights(result).items())
    assert reason in str(mine.writer.stopped) and reason in str(grid.writer.stopped)
    warned = [one for one in caplog.records if "stopped recording" in one.message]
    assert len(warned) == 2, "each side warns once"


def test_messages_written_before_a_fault_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = record(tmp_path / "client")
    grid = InProcessGrid(client_app(CLIENTS, RECIPE, mods=[mine]))
    run(grid, rounds=1)
    mine.writer.wait()
    monkeypatch.setattr(writer, "write_message", broken)
    run(grid, rounds=1)
    mine.writer.wait()
    assert len(read_recording(tmp_path / "client").messages) == 6
    note = next((tmp_path / "client").glob("stopped-*.txt"))
    assert "Traceback" in note.read_text() and "a fault of the recorder" in note.read_text()


def test_a_disk_slower_than_the_training_ends_the_recording(tmp_path: Path) -> None:
    mine = record(tmp_path / "client")
    slow = replace(mine, writer=writer.RecordingWriter(tmp_path / "client", "client", most_waiting=10))
    with slow.writer._lock:  # nothing is written meanwhile
        slow.writer._thread = object()  # type: ignore[assignment]
    run(InProcessGrid(client_app(CLIENTS, RECIPE, mods=[slow])), rounds=1)
    assert "slower than the training" in str(slow.writer.stopped)
    slow.writer._thread = None


def test_a_node_that_failed_has_no_reply(tmp_path: Path) -> None:
    app = client_app(CLIENTS, RECIPE)

    def fails(message: Message, context: Any, call_next: Any) -> Message:
        if context.node_config["partition-id"] == 1:
            return Message(Error(code=1, reason="no memory"), reply_to=message)
        return call_next(message, context)

    app = client_app(CLIENTS, RECIPE, mods=[fails])
    grid: Any = record_grid(InProcessGrid(app), tmp_path)
    run(grid, rounds=1)
    grid.writer.wait()
    replies = {one.node: one.reply for one in read_recording(tmp_path).messages if one.what == "train"}
    assert replies[str(NODES[1])] is None and all(replies[str(node)] for node in (NODES[0], NODES[2]))
    without = transcript(read_recording(tmp_path), 1)
    assert [one.what for one in without.messages] == ["broadcast", "broadcast", "outcome"]
    assert roles.server(without, client=0).of(0) == ()


def test_messages_that_are_pushed_and_pulled(tmp_path: Path) -> None:
    grid: Any = record_grid(InProcessGrid(client_app(CLIENTS, RECIPE)), tmp_path)
    arrays, config = ArrayRecord(network().state_dict()), {"server-round": 1}
    from flwr.app import ConfigRecord

    content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
    ids = grid.push_messages([Message(copy.deepcopy(content), node, "train") for node in NODES])
    assert len(list(grid.pull_messages(ids))) == 3
    grid.writer.wait()
    recording = read_recording(tmp_path)
    assert [one.node for one in recording.messages] == [str(node) for node in NODES]
    assert all(one.reply is not None for one in recording.messages)


class SilentGrid:
    """A grid without replies."""

    def __init__(self) -> None:
        self.pushed = 0

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.pushed += len(messages)
        return [f"{self.pushed}-{index}" for index, _ in enumerate(messages)]

    def pull_messages(self, message_ids: list[str]) -> list[Message]:
        return []


@pytest.mark.parametrize(("nodes", "most"), [([7, 7, 7, 7], 10**9), ([1, 2, 3, 4], 150)])
def test_unanswered_messages_are_written_and_not_held(tmp_path: Path, nodes: list[int], most: int) -> None:
    """A node that is sent a later round will not answer the earlier one; no more is held than the bound."""
    from flwr.app import ConfigRecord

    grid: Any = record_grid(SilentGrid(), tmp_path)  # type: ignore[arg-type]
    grid.most_held = most
    for round, node in enumerate(nodes, 1):
        content = RecordDict(
            {
                "arrays": ArrayRecord([np.full(2, round, np.float32)]),  # 136 bytes as they travel
                "config": ConfigRecord({"server-round": round}),
            }
        )
        grid.push_messages([Message(content, dst_node_id=node, message_type="train")])
        assert len(grid._pending) == 1
    grid.writer.wait()
    messages = read_recording(tmp_path).messages
    assert [(one.round, one.reply) for one in messages] == [(1, None), (2, None), (3, None)]


def test_one_model_pending_to_many_nodes_is_held_once(tmp_path: Path) -> None:
    grid: Any = record_grid(SilentGrid(), tmp_path)  # type: ignore[arg-type]
    grid.most_held = 150
    arrays = ArrayRecord([np.zeros(2, np.float32)])
    for node in range(1, 6):
        content = RecordDict({"arrays": arrays})
        grid.push_messages([Message(content, dst_node_id=node, message_type="train")])
    assert len(grid._pending) == 5


def test_several_sets_of_arrays_need_a_name(tmp_path: Path) -> None:
    def pack(app: ClientApp) -> None:
        @app.train()
        def train(message: Message, context: Any) -> Message:
            arrays = message.content["model"]
            metrics = MetricRecord({"num-examples": 3})
            return Message(RecordDict({"model": arrays, "momenta": arrays, "m": metrics}), reply_to=message)

    content = RecordDict({name: ArrayRecord(network().state_dict()) for name in ("model", "momenta")})
    for name, stopped in ((None, True), ("model", False)):
        mine = record(tmp_path / str(name), arrays=name)
        app = ClientApp(mods=[mine])
        pack(app)
        grid = InProcessGrid(app)
        grid.send_and_receive([Message(copy.deepcopy(content), NODES[0], "train", group_id="7")])
        mine.writer.wait()
        assert ("model, momenta" in str(mine.writer.stopped)) == stopped
    only = read_recording(tmp_path / "model").messages[0]
    assert (only.round, only.examples) == (7, 3)


def positions(model: torch.nn.Module) -> ArrayRecord:
    return ArrayRecord([value.numpy() for value in model.state_dict().values()])


def from_positions(model: torch.nn.Module, arrays: ArrayRecord) -> None:
    values = [torch.from_numpy(np.array(value)) for value in arrays.to_numpy_ndarrays()]
    model.load_state_dict(dict(zip(model.state_dict(), values, strict=True)))


def test_numpy_arrays_are_named_by_the_model(tmp_path: Path, both: tuple[Recording, Recording]) -> None:
    torch.manual_seed(3)
    recorded(tmp_path, app={"pack": positions, "load": from_positions}, strategy={"initial": positions(network())})
    unnamed, named = read_recording(tmp_path / "client"), both[0]
    assert unnamed.messages[0].sent.names == [str(index) for index in range(9)]
    for mine, theirs in zip(unnamed.messages, named.messages, strict=True):
        left = fit(unnamed.arrays(mine.sent), network())
        right = fit(named.arrays(theirs.sent), network())
        for name, value in right.params.items():
            torch.testing.assert_close(left.params[name], value)
    with pytest.raises(BadInput, match="the network, whose order names arrays"):
        fit(unnamed.arrays(unnamed.messages[0].sent), None)
    with pytest.raises(BadInput, match=r"array 0 of shape \[5, 6\] \(0.weight of the network\), got \[5, 4\]"):
        fit(unnamed.arrays(unnamed.messages[0].sent), network(inputs=6))
    with pytest.raises(BadInput, match="2 arrays, as the network has, got 9"):
        fit({str(index): torch.zeros(1) for index in range(9)}, torch.nn.BatchNorm1d(1, track_running_stats=False))


def test_half_precision_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    def pack(model: torch.nn.Module) -> ArrayRecord:
        return ArrayRecord({name: Array(value.numpy().astype(np.float16)) if value.is_floating_point()
                            else Array(value.numpy()) for name, value in model.state_dict().items()})  # fmt: skip

    recorded(tmp_path, app={"pack": pack}, rounds=1)
    recording = read_recording(tmp_path / "client")
    with pytest.raises(BadInput, match=r"reply of round 0: expected '0.weight' of float32.*half precision \(float16\)"):
        dict(roles.server(transcript(recording), client=0).of(0)[0].update)
    wide = roles.server(transcript(recording, widen=True), client=0).of(0)[0]
    assert wide.update["0.weight"].dtype == torch.float32
    back = wide.start["0.weight"] + wide.update["0.weight"]
    assert torch.allclose(back, back.half().float(), atol=1e-7)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: network(inputs=6), r"'0.weight' of shape \[5, 6\], as in the network, got \[5, 4\]"),
        (lambda: network()[:3], "arrays of the network .* got one called '3.weight'"),
        (lambda: torch.nn.Sequential(*network(), torch.nn.Linear(3, 3)), "the parameter '4.weight' of the network"),
    ],
)
def test_a_model_that_does_not_fit(both: tuple[Recording, Recording], model: Any, message: str) -> None:
    chosen = choose(both[0], node=str(NODES[0]))
    misfit = transcribe(chosen, model=model(), space=SPACE, recipe=RECIPE)
    with pytest.raises(BadInput, match=message):
        misfit.shelf.get("sent/0")


def test_gradients_are_used_unchanged(both: tuple[Recording, Recording]) -> None:
    of_gradients = transcript(both[0], recipe=Recipe(algorithm="fedsgd"))
    arrays = both[0].arrays(choose(both[0], node=str(NODES[0])).trained[0].reply)  # type: ignore[arg-type]
    reply = next(one for one in of_gradients.messages if one.what == "reply")
    assert reply.kind == "gradient"
    assert torch.equal(of_gradients.shelf.get(reply.parts).params["0.bias"], -arrays["0.bias"])


def test_wide_arrays_are_narrowed_as_loading_them_would(both: tuple[Recording, Recording]) -> None:
    state = {name: value.double() for name, value in network().state_dict().items()}
    narrowed = fit({**state, "1.num_batches_tracked": torch.tensor(2.6).double()}, network())
    assert narrowed.params["0.weight"].dtype == torch.float32
    assert narrowed.buffers["1.num_batches_tracked"].item() == 2


def test_frozen_parameters_stay_with_the_network(both: tuple[Recording, Recording]) -> None:
    model = network()
    model[0].requires_grad_(False)
    chosen = choose(both[0], node=str(NODES[0]))
    frozen = transcribe(chosen, model=model, space=SPACE, recipe=RECIPE)
    sent = both[0].arrays(chosen.trained[0].sent)
    assert torch.equal(frozen.model.state_dict()["0.weight"], sent["0.weight"])
    assert "0.weight" not in frozen.shelf.get("sent/0").params


def test_a_client_of_the_older_interface(tmp_path: Path) -> None:
    """NumPyClient: positions for names, its own names for config and example count, the round in the group."""
    from flwr.client import NumPyClient
    from flwr.common import FitIns, ndarrays_to_parameters
    from flwr.compat.common.recorddict_compat import fitins_to_recorddict

    class Doubling(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            return [2 * value for value in parameters], 12, {}

    mine = record(tmp_path)
    app = ClientApp(client_fn=lambda context: Doubling().to_client(), mods=[mine])
    weights = [np.ones((3, 4), np.float32), np.ones(3, np.float32)]
    content = fitins_to_recorddict(FitIns(ndarrays_to_parameters(weights), {"lr": 0.5}), keep_input=True)
    InProcessGrid(app).send_and_receive([Message(content, NODES[0], "train", group_id="3")])
    mine.writer.wait()
    recording = read_recording(tmp_path)
    recorded_message = recording.messages[0]
    assert (recorded_message.round, recorded_message.examples, recorded_message.config) == (3, 12, {"lr": 0.5})
    model = torch.nn.Linear(4, 3)
    update = transcribe(choose(recording), model=model, space=SPACE, recipe=RECIPE).shelf.get("reply/2")
    assert torch.equal(update.params["weight"], torch.ones(3, 4))
