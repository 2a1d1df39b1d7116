"""Records a Flower run: a mod for the ClientApp, and a proxy for the grid of the ServerApp.

    app = ClientApp(mods=[record("recording")])                                    # messages of this node
    strategy.start(grid=record_grid(grid, "recording"), initial_arrays=..., ...)   # messages of the server

A recorder never breaks the training: its own code runs inside `writer.guarded()`, which stops the recording at the
first error and lets the messages pass. Arrays travel as immutable bytes, so the training only pays for a list of
references; everything else happens on the writer's thread. The first mod of the list is the nearest to the network:
there the recorder sees what leaves the node, after local differential privacy; as the last one it sees the result of
the training. Its position is recorded.

flwr is not imported here; its messages are read by their attributes (tested with flwr 1.41).
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedxray.errors import BadInput, missing_extra
from fedxray.federation.recording.format import MOST_COUNT, MOST_KEY, MOST_ROUNDS, MOST_WHOLE, Arrays, Said
from fedxray.federation.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp.typing import ClientAppCallable
    from flwr.serverapp import Grid

What = Literal["train", "evaluate"]
Names = tuple[str, ...]
MOST_HELD = 1_000_000_000  # bytes of arrays that wait for a reply, beside those of the last push
USUAL = "arrays"  # name of the model in Flower's strategies
NUMPY = "numpy.ndarray"
ROUND = "server-round"
MODS = "flwr.client.mod.utils"  # module in which Flower chains the mods
EXAMPLES = ("num-examples", "num_examples")
MASKED = "secaggplus_configs"  # record of the protocol of secure aggregation: shares, masks, stages
LEGACY = ("fitres.metrics",)  # records of metrics in messages of the older interface
MOST_METRICS = 100
MOST_DIGITS = 7  # of a group id that is a round; a longer number is something else, such as a time
MOST_TEXT = 1000  # characters of one value of a config, and entries of a list
LONE = re.compile("[\ud800-\udfff]")  # single surrogates, which UTF-8 cannot encode
MOST_CONFIG = 300_000  # characters of all configs: fit into a recorded message however they are escaped

__all__ = ["ClientRecorder", "RecordingGrid", "record", "record_grid"]


def record(folder: str | Path, *, arrays: str | None = None) -> ClientRecorder:
    """Return a mod that records the messages of this node.

    `arrays` names the record of the model, where messages hold several.
    """
    return ClientRecorder(writer=RecordingWriter(folder, "client"), arrays=arrays)


def record_grid(grid: Grid, folder: str | Path, *, arrays: str | None = None, secure_aggregation: bool = False) -> Grid:
    """Return a proxy of the grid that records every training and evaluation.

    `arrays` names the record of the model, where messages hold several. With `secure_aggregation` replies are not
    recorded, since a server does not see them.
    """
    try:
        from flwr.serverapp import Grid
    except ModuleNotFoundError as error:
        raise missing_extra("grid", "Flower", "flower") from error
    Grid.register(RecordingGrid)
    writer = RecordingWriter(folder, "server")
    proxy: Any = RecordingGrid(grid=grid, writer=writer, arrays=arrays, secure=secure_aggregation)
    recording_grid: Grid = proxy
    return recording_grid


@dataclass(frozen=True, kw_only=True)
class ClientRecorder:
    """A mod: a callable that Flower puts between the network and the training."""

    writer: RecordingWriter
    arrays: str | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Pass the message on and record it with its reply."""
        sent: SentMessage | None = None
        with self.writer.guarded():
            sent = read_sent(message, self.arrays)
        reply = call_next(message, context)
        with self.writer.guarded():
            if sent is not None:
                self._record(sent, reply, context, call_next)
        return reply

    def _record(self, sent: SentMessage, reply: Message, context: Context, call_next: ClientAppCallable) -> None:
        answer = read_reply(sent, reply, self.arrays)
        inside, outside = mods_around(self, call_next)
        partition = node_partition(context)
        _submit(self.writer, sent, answer, partition=partition, inside=inside, outside=outside)


@dataclass(kw_only=True)
class RecordingGrid:
    """A grid that passes everything on and records messages and replies."""

    grid: Grid
    writer: RecordingWriter
    arrays: str | None
    secure: bool
    most_held: int = MOST_HELD

    def __post_init__(self) -> None:
        """Start without pending messages."""
        self._pending: dict[str, SentMessage] = {}

    def __getattr__(self, name: str) -> Any:
        """Return everything else from the grid."""
        if name == "grid" or name.startswith("__"):  # looked up while a copy is made, before it has a grid
            raise AttributeError(name)
        return getattr(self.grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, wait for the replies, and record both."""
        listed = list(messages)
        sent = [self._take(message) for message in listed]
        replies = list(self.grid.send_and_receive(listed, timeout=timeout))
        with self.writer.guarded():
            self._record_all(
                [(message.metadata.message_id, taken) for message, taken in zip(listed, sent, strict=True)], replies
            )
        return replies

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, and hold references to them until their replies are pulled."""
        listed = list(messages)
        sent = [self._take(message) for message in listed]
        ids = list(self.grid.push_messages(listed))
        with self.writer.guarded():
            fresh = {key: taken for key, taken in zip(ids, sent, strict=True) if key and taken is not None}
            self._drop_unanswered(fresh)
            self._pending.update(fresh if self.writer.stopped is None else {})
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch replies, and record them with their messages."""
        replies = list(self.grid.pull_messages(message_ids))
        with self.writer.guarded():
            for reply in replies:
                sent = self._pending.pop(reply.metadata.reply_to_message_id, None)
                if sent is not None:
                    self._record(sent, reply)
        return replies

    def _drop_unanswered(self, fresh: Mapping[str, SentMessage]) -> None:
        """Record without a reply the messages whose node is sent a later round, and the oldest beyond the bound."""
        newest = {(sent.run, sent.node): sent.round or 0 for sent in fresh.values()}
        held: set[int] = set()
        size = 0
        dropped = []
        for key, sent in reversed([*self._pending.items(), *fresh.items()]):
            for array in sent.arrays.values():  # a model that is sent to many nodes is held once
                size += 0 if id(array.data) in held else len(array.data)
                held.add(id(array.data))
            late = sent.round is not None and sent.round < newest.get((sent.run, sent.node), 0)
            if key not in fresh and (late or size > self.most_held):
                dropped.append(key)
        with self.writer.burst():
            for key in reversed(dropped):
                self._record(self._pending.pop(key), None)

    def _take(self, message: Message) -> SentMessage | None:
        sent: SentMessage | None = None
        with self.writer.guarded():
            sent = read_sent(message, self.arrays)
        return sent

    def _record_all(self, sent: list[tuple[str, SentMessage | None]], replies: list[Message]) -> None:
        """Pair replies with their messages: by message id, or by node where a grid gives no ids."""
        by_id = {reply.metadata.reply_to_message_id: reply for reply in replies}
        by_node = {str(reply.metadata.src_node_id): reply for reply in replies}
        with self.writer.burst():
            for key, message in sent:
                if message is not None:
                    self._record(message, by_id.get(key) if key else by_node.get(message.node))

    def _record(self, sent: SentMessage, reply: Message | None) -> None:
        answer = None if reply is None else read_reply(sent, reply, self.arrays, hidden=self.secure)
        _submit(self.writer, sent, answer, secure=self.secure)


# Messages: a reference to what passed, and the form in which it is written


@dataclass(frozen=True, kw_only=True)
class SentMessage:
    """A message to train or evaluate: references to its arrays and its facts; later changes do not reach them."""

    what: What
    node: str
    run: str
    round: int | None
    arrays: Mapping[str, Any]  # the framework's own, by name
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The model that a node returned, and the number of examples and the metrics that it reports."""

    arrays: Mapping[str, Any] | None  # None where secure aggregation hides it
    examples: int | None
    metrics: Mapping[str, float]


def read_sent(message: Message, name: str | None) -> SentMessage | None:
    """Return a message to train or evaluate that holds a model; None for others."""
    category = message.metadata.message_type.partition(".")[0]
    if category not in ("train", "evaluate") or not message.has_content():
        return None
    arrays = arrays_of(message.content, name)
    if arrays is None:
        return None
    what: What = "train" if category == "train" else "evaluate"
    return SentMessage(
        what=what,
        node=str(message.metadata.dst_node_id),
        run=str(message.metadata.run_id),
        round=round_of(message),
        arrays=arrays,
        config=config_of(message.content),
    )


def read_reply(sent: SentMessage, reply: Message, name: str | None, *, hidden: bool = False) -> Reply | None:
    """Return the reply to a training; None where it failed or holds no model.

    Under secure aggregation the model is masked, but examples and metrics travel in the clear.
    """
    if sent.what != "train" or not reply.has_content():
        return None
    hidden = hidden or MASKED in reply.content.config_records
    arrays = None if hidden else arrays_of(reply.content, name)
    if arrays is None and not hidden:
        return None
    return Reply(arrays=arrays, examples=examples_of(reply.content), metrics=metrics_of(reply.content))


def _submit(writer: RecordingWriter, sent: SentMessage, answer: Reply | None, **position: Any) -> None:
    """Queue a message with its reply for the writer's thread."""
    size = size_of(sent.arrays) + size_of(answer.arrays if answer else None)
    writer.submit(partial(to_recorded, sent, answer, **position), size)


def to_recorded(sent: SentMessage, answer: Reply | None, *, secure: bool = False, **position: Any) -> Said:
    """Return a message in the form of the recording; arrays are unpacked here, on the writer's thread.

    `position` is what the side knows about itself: partition, mods inside and outside.
    """
    facts = {name: value for name, value in vars(sent).items() if name != "arrays"}
    secure = secure or (answer is not None and answer.arrays is None)
    if answer is not None:
        reply = None if answer.arrays is None else to_numpy(answer.arrays)
        facts |= {"reply": reply, "examples": answer.examples}
        facts |= {"config": {**{f"metric {name}": value for name, value in answer.metrics.items()}, **sent.config}}
    return Said(sent=to_numpy(sent.arrays), secure=secure, **facts, **position)


# The parts of Flower's messages, read without importing flwr


def arrays_of(content: RecordDict, name: str | None) -> dict[str, Any] | None:
    """Return references to the model's arrays: the record of that name, else the usual one, else the only one."""
    records = content.array_records
    if name is None:
        name = USUAL if USUAL in records else next(iter(records)) if len(records) == 1 else None
    if name is None and not records:
        return None
    if name is None or name not in records:
        expected, remedy = "the name of the record that holds the model", 'Name it: record(folder, arrays="...").'
        raise BadInput("arrays", expected=expected, got=f"{name!r} among {', '.join(records) or 'none'}", remedy=remedy)
    return dict(records[name]) or None


def size_of(arrays: Mapping[str, Any] | None) -> int:
    """Return the bytes that references to these arrays keep alive."""
    return sum(len(array.data) for array in arrays.values()) if arrays else 0


def to_numpy(arrays: Mapping[str, Any]) -> Arrays:
    """Return the arrays themselves; nothing is ever unpickled."""
    unpacked = {}
    for name, array in arrays.items():
        if array.stype != NUMPY:
            raise BadInput(
                f"array {name!r}", expected=f"serialised as {NUMPY}", got=repr(array.stype), remedy="Use NumPy."
            )
        unpacked[name] = _unpacked(array.data)
    return unpacked


def _unpacked(data: bytes) -> NDArray[Any]:
    """Return an array that `numpy.save` wrote, without a copy where its header has version 1.0."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise BadInput("array", expected="numbers", got="Python objects", remedy="Send numbers alone.")
    flat = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=stream.tell())
    return flat.reshape(shape, order="F" if by_columns else "C")


def round_of(message: Message) -> int | None:
    """Return the number of the round: from the config, else from the message's group; None where neither has it."""
    for record in message.content.config_records.values():
        value = _count(record.get(ROUND))
        if value and value < MOST_ROUNDS:
            return value
    group = message.metadata.group_id
    return int(group) or None if group.isascii() and group.isdigit() and len(group) <= MOST_DIGITS else None


def config_of(content: RecordDict) -> dict[str, Any]:
    """Return the plain values of all configs, as far as they fit; of equal names the first counts."""
    config: dict[str, Any] = {}
    room = MOST_CONFIG
    for title, record in content.config_records.items():
        for key, value in record.items() if title != MASKED else ():
            entries = value if isinstance(value, list) and len(value) <= MOST_TEXT else [value]
            plain = all(_is_plain(entry) for entry in [key, *entries])
            size = len(str(key)) + len(repr(value)) if plain else room
            if len(str(key)) <= MOST_KEY and size < room and key not in config:
                config[str(key)] = value
                room -= size
    return config


def examples_of(content: RecordDict) -> int | None:
    """Return the number of examples that the node reports."""
    for record in content.metric_records.values():
        for key in EXAMPLES:
            value = record.get(key)
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            if (count := _count(whole)) is not None:
                return count
    return None


def metrics_of(content: RecordDict) -> dict[str, float]:
    """Return the numbers that the node reports beside its model, as far as they fit."""
    found: dict[str, float] = {}
    legacy = [content.config_records[name] for name in LEGACY if name in content.config_records]
    records: list[Mapping[str, Any]] = [*content.metric_records.values(), *legacy]
    for record in records:
        for key, value in record.items():
            usable = len(str(key)) < MOST_TEXT // 2 and key not in EXAMPLES and len(found) < MOST_METRICS
            if usable and isinstance(value, int | float) and not isinstance(value, bool) and _is_plain(value):
                found.setdefault(str(key), float(value))
    return found


def node_partition(context: Context) -> int | None:
    """Return the partition of this node's configuration, None where it has none."""
    return _count(context.node_config.get("partition-id"))


def mods_around(recorder: object, call_next: Callable[..., Any]) -> tuple[Names | None, Names | None]:
    """Return the mods between recorder and training, and between network and recorder, outermost first.

    Both are None where the recorder was not called from a list of mods as Flower chains it.
    """
    outside = _mods_outside(recorder)
    return (None, None) if outside is None else (_mods_inside(call_next), outside)


def _mods_inside(call_next: Callable[..., Any]) -> Names | None:
    """Return the names of the mods that follow, None where Flower's own chain does not end in the training."""
    names, step = [], call_next
    while _chained_by_flower(step):
        inner = dict(zip(step.__code__.co_freevars, step.__closure__ or (), strict=True))
        names.append(_name(inner["_mod"].cell_contents))
        step = inner["_ffn"].cell_contents
    return None if getattr(step, "__module__", None) == MODS else tuple(names)


def _mods_outside(recorder: object) -> Names | None:
    """Return the names of the mods between the network and the recorder, from the call stack."""
    names, seen = [], False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "new_ffn" and "_mod" in frame.f_locals:
            mod = frame.f_locals["_mod"]
            if mod is recorder:
                seen = True
            else:
                names.append(_name(mod))
        frame = frame.f_back
    return tuple(reversed(names)) if seen else None


def _chained_by_flower(step: Any) -> bool:
    code = getattr(step, "__code__", None)
    return code is not None and code.co_name == "new_ffn" and {"_mod", "_ffn"} <= set(code.co_freevars)


def _name(mod: object) -> str:
    return str(getattr(mod, "__name__", type(mod).__name__))[:200]


def _count(value: object) -> int | None:
    """Return a whole number that a recording can hold, None for everything else."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT
    return value if usable and isinstance(value, int) else None


def _is_plain(value: object) -> bool:
    """Whether a recording can hold this entry of a config."""
    if isinstance(value, bool | int):
        return abs(value) < MOST_WHOLE
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= MOST_TEXT and not LONE.search(value)
