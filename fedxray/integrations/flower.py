"""Records a Flower run: a mod for the ClientApp, and a proxy for the grid of the ServerApp.

    app = ClientApp(mods=[record("recording")])                                    # what this node hears and says
    strategy.start(grid=record_grid(grid, "recording"), initial_arrays=..., ...)   # what the server sees

Arrays travel as immutable bytes, so the training only pays for a list of references; everything else happens on the
writer's thread. The first mod of the list is the nearest to the network: there the recorder sees what leaves the
node, after local differential privacy; as the last one it sees what the training gave. Its place is recorded.

flwr itself is not imported here: what comes is asked for its parts (tried with flwr 1.41).
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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

# --- The parts of Flower's messages that a recorder needs, asked for without importing flwr.


USUAL = "arrays"  # the name that Flower's strategies give to the model
NUMPY = "numpy.ndarray"
ROUND = "server-round"
MODS = "flwr.client.mod.utils"  # where Flower makes the list of mods
EXAMPLES = ("num-examples", "num_examples")
MOST_DIGITS = 7  # of a round that a group is called by; a longer number is something else, such as a time
MOST_TEXT = 1000  # characters of one value of a config, and entries of a list
LONE = re.compile("[\ud800-\udfff]")  # halves of characters, which no UTF-8 holds
MOST_CONFIG = 300_000  # characters of a whole config, which a message can hold however they are escaped


def arrays_of(content: RecordDict, name: str | None) -> dict[str, Any] | None:
    """References to the model's arrays: the record of that name, else the usual one, else the only one."""
    records = content.array_records
    if name is None:
        name = USUAL if USUAL in records else next(iter(records)) if len(records) == 1 else None
    if name is None and not records:
        return None
    if name is None or name not in records:
        raise BadInput(
            "arrays",
            expected="the name of the record that holds the model",
            got=f"{name!r} among {', '.join(records) or 'none'}",
            remedy='Name it: record(folder, arrays="...").',
        )
    found = dict(records[name])
    return found or None


def size_of(arrays: Mapping[str, Any] | None) -> int:
    """Bytes that references to these arrays keep alive."""
    return sum(len(array.data) for array in arrays.values()) if arrays else 0


def to_numpy(arrays: Mapping[str, Any]) -> Arrays:
    """The arrays themselves; nothing is ever unpickled."""
    found = {}
    for name, array in arrays.items():
        if array.stype != NUMPY:
            raise BadInput(
                f"array {name!r}",
                expected=f"serialised as {NUMPY}",
                got=repr(array.stype),
                remedy="Use NumPy.",
            )
        found[name] = _unpacked(array.data)
    return found


def _unpacked(data: bytes) -> NDArray[Any]:
    """An array as `numpy.save` wrote it, without a copy where its header is one that NumPy's own reader tells."""
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
    """The number of the round: from the config, else from the message's group; None where neither tells."""
    for record in message.content.config_records.values():
        value = _count(record.get(ROUND))
        if value and value < MOST_ROUNDS:
            return value
    group = message.metadata.group_id
    return int(group) or None if group.isascii() and group.isdigit() and len(group) <= MOST_DIGITS else None


def config_of(content: RecordDict) -> dict[str, Any]:
    """The plain values of all configs, as far as they fit; the first of two of the same name is kept."""
    found: dict[str, Any] = {}
    room = MOST_CONFIG
    for record in content.config_records.values():
        for key, value in record.items():
            entries = value if isinstance(value, list) and len(value) <= MOST_TEXT else [value]
            plain = all(_is_plain(one) for one in [key, *entries])
            size = len(str(key)) + len(repr(value)) if plain else room
            if len(str(key)) <= MOST_KEY and size < room and key not in found:
                found[str(key)] = value
                room -= size
    return found


def examples_of(content: RecordDict) -> int | None:
    """How many examples the node says it trained on."""
    for record in content.metric_records.values():
        for key in EXAMPLES:
            value = record.get(key)
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            if (count := _count(whole)) is not None:
                return count
    return None


def node_partition(context: Context) -> int | None:
    """The partition that this node was configured with, where it was."""
    return _count(context.node_config.get("partition-id"))


Names = tuple[str, ...]


def mods_around(recorder: object, call_next: Callable[..., Any]) -> tuple[Names | None, Names | None]:
    """Mods between the recorder and the training, and between the network and the recorder, outermost first.

    Both are None where the recorder was not called from a list of mods as Flower makes it.
    """
    outside = _mods_outside(recorder)
    return (None, None) if outside is None else (_mods_inside(call_next), outside)


def _mods_inside(call_next: Callable[..., Any]) -> Names | None:
    """Names of the mods that follow, None where Flower's own list ends in something else than the training."""
    found, step = [], call_next
    while _made_by_flower(step):
        inner = dict(zip(step.__code__.co_freevars, step.__closure__ or (), strict=True))
        found.append(_name(inner["_mod"].cell_contents))
        step = inner["_ffn"].cell_contents
    return None if getattr(step, "__module__", None) == MODS else tuple(found)


def _mods_outside(recorder: object) -> Names | None:
    """Names of the mods between the network and the recorder, from the calls that led here."""
    found, seen = [], False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "new_ffn" and "_mod" in frame.f_locals:
            mod = frame.f_locals["_mod"]
            if mod is recorder:
                seen = True
            else:
                found.append(_name(mod))
        frame = frame.f_back
    return tuple(reversed(found)) if seen else None


def _made_by_flower(step: Any) -> bool:
    code = getattr(step, "__code__", None)
    return code is not None and code.co_name == "new_ffn" and {"_mod", "_ffn"} <= set(code.co_freevars)


def _name(mod: object) -> str:
    return str(getattr(mod, "__name__", type(mod).__name__))[:200]


def _count(value: object) -> int | None:
    """A number that a recording can hold, None for everything else."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT
    return value if usable and isinstance(value, int) else None


def _is_plain(value: object) -> bool:
    """Whether a recording can hold this entry of a config."""
    if isinstance(value, bool | int):
        return abs(value) < MOST_WHOLE
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= MOST_TEXT and not LONE.search(value)


What = Literal["train", "evaluate"]
MOST_HELD = 1_000_000_000  # bytes of arrays that wait for their answer, beside those of the last push


def record(folder: str | Path, *, arrays: str | None = None) -> ClientRecorder:
    """A mod that writes what this node is sent and answers; `arrays` names the record of the model among several."""
    return ClientRecorder(writer=RecordingWriter(folder, "client"), arrays=arrays)


def record_grid(
    grid: Grid, folder: str | Path, *, arrays: str | None = None, secure_aggregation: bool = False
) -> Grid:
    """The same grid, with every training and evaluation written down; under secure aggregation without replies."""
    try:
        from flwr.serverapp import Grid
    except ModuleNotFoundError as error:
        raise missing_extra("grid", "Flower", "flower") from error
    Grid.register(RecordingGrid)
    writer = RecordingWriter(folder, "server")
    proxy: Any = RecordingGrid(grid=grid, writer=writer, arrays=arrays, secure=secure_aggregation)
    found: Grid = proxy
    return found


@dataclass(frozen=True, kw_only=True)
class Taken:
    """One message as it passed: references to its arrays and its facts; later changes do not reach them."""

    what: What
    node: str
    run: str
    round: int | None
    arrays: Mapping[str, Any]  # the framework's own, by name
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ClientRecorder:
    """The mod: a callable that Flower puts between the network and the training."""

    writer: RecordingWriter
    arrays: str | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Pass the message on and note it with its answer."""
        sent: Taken | None = None
        with self.writer.guarded():
            sent = take(message, self.arrays)
        reply = call_next(message, context)
        with self.writer.guarded():
            if sent is not None:
                self._note(sent, reply, context, call_next)
        return reply

    def _note(self, sent: Taken, reply: Message, context: Context, call_next: ClientAppCallable) -> None:
        answer = answered(sent, reply, self.arrays)
        inside, outside = mods_around(self, call_next)
        partition = node_partition(context)

        def said() -> Said:
            return written(sent, answer, partition=partition, inside=inside, outside=outside)

        self.writer.submit(said, size_of(sent.arrays) + size_of(answer.arrays if answer else None))


@dataclass(kw_only=True)
class RecordingGrid:
    """A grid that passes everything on and notes what is sent and what comes back."""

    grid: Grid
    writer: RecordingWriter
    arrays: str | None
    secure: bool
    most_held: int = MOST_HELD

    def __post_init__(self) -> None:
        """No message is under way."""
        self._under_way: dict[str, Taken] = {}

    def __getattr__(self, name: str) -> Any:
        """Everything else is the grid's own."""
        if name == "grid" or name.startswith("__"):  # asked for while a copy is made, before there is a grid
            raise AttributeError(name)
        return getattr(self.grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, wait for the answers, and note both."""
        listed = list(messages)
        sent = [self._take(message) for message in listed]
        replies = list(self.grid.send_and_receive(listed, timeout=timeout))
        with self.writer.guarded():
            self._note_all(
                [(message.metadata.message_id, one) for message, one in zip(listed, sent, strict=True)],
                replies,
            )
        return replies

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send, and keep what was sent until its answer is pulled."""
        listed = list(messages)
        sent = [self._take(message) for message in listed]
        ids = list(self.grid.push_messages(listed))
        with self.writer.guarded():
            fresh = {key: one for key, one in zip(ids, sent, strict=True) if key and one is not None}
            self._give_up(fresh)
            self._under_way.update(fresh if self.writer.stopped is None else {})
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch answers, and note them with what they answer."""
        replies = list(self.grid.pull_messages(message_ids))
        with self.writer.guarded():
            for reply in replies:
                sent = self._under_way.pop(reply.metadata.reply_to_message_id, None)
                if sent is not None:
                    self._note(sent, reply)
        return replies

    def _give_up(self, fresh: Mapping[str, Taken]) -> None:
        """Note without an answer what will hardly get one: its node is sent a later round, or too much is held."""
        newest = {(one.run, one.node): one.round or 0 for one in fresh.values()}
        held: set[int] = set()
        size = 0
        old = []
        for key, one in reversed([*self._under_way.items(), *fresh.items()]):
            for array in one.arrays.values():  # one model that is sent to many is held once
                size += 0 if id(array.data) in held else len(array.data)
                held.add(id(array.data))
            late = one.round is not None and one.round < newest.get((one.run, one.node), 0)
            if key not in fresh and (late or size > self.most_held):
                old.append(key)
        with self.writer.burst():
            for key in reversed(old):
                self._note(self._under_way.pop(key), None)

    def _take(self, message: Message) -> Taken | None:
        sent: Taken | None = None
        with self.writer.guarded():
            sent = take(message, self.arrays)
        return sent

    def _note_all(self, sent: list[tuple[str, Taken | None]], replies: list[Message]) -> None:
        """Pair answers with what they answer: by message id, or by node where a grid gives no ids."""
        by_id = {reply.metadata.reply_to_message_id: reply for reply in replies}
        by_node = {str(reply.metadata.src_node_id): reply for reply in replies}
        with self.writer.burst():
            for key, one in sent:
                if one is not None:
                    self._note(one, by_id.get(key) if key else by_node.get(one.node))

    def _note(self, sent: Taken, reply: Message | None) -> None:
        hidden = self.secure or reply is None
        answer = None if hidden or reply is None else answered(sent, reply, self.arrays)
        secure = self.secure

        def said() -> Said:
            return written(sent, answer, secure=secure)

        self.writer.submit(said, size_of(sent.arrays) + size_of(answer.arrays if answer else None))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back of a training."""

    arrays: Mapping[str, Any]
    examples: int | None


def take(message: Message, name: str | None) -> Taken | None:
    """A message to train or to evaluate with a model in it; None for others."""
    category = message.metadata.message_type.partition(".")[0]
    if category not in ("train", "evaluate") or not message.has_content():
        return None
    arrays = arrays_of(message.content, name)
    if arrays is None:
        return None
    what: What = "train" if category == "train" else "evaluate"
    return Taken(
        what=what,
        node=str(message.metadata.dst_node_id),
        run=str(message.metadata.run_id),
        round=round_of(message),
        arrays=arrays,
        config=config_of(message.content),
    )


def answered(sent: Taken, reply: Message, name: str | None) -> Answer | None:
    """The model that came back of a training; None where it failed or sent none."""
    if sent.what != "train" or not reply.has_content():
        return None
    arrays = arrays_of(reply.content, name)
    return None if arrays is None else Answer(arrays=arrays, examples=examples_of(reply.content))


def written(
    sent: Taken,
    answer: Answer | None,
    *,
    partition: int | None = None,
    inside: tuple[str, ...] | None = None,
    outside: tuple[str, ...] | None = None,
    secure: bool = False,
) -> Said:
    """A message as it is written; arrays are unpacked here, on the writer's thread."""
    return Said(
        what=sent.what,
        node=sent.node,
        run=sent.run,
        round=sent.round,
        sent=to_numpy(sent.arrays),
        reply=None if answer is None else to_numpy(answer.arrays),
        examples=None if answer is None else answer.examples,
        config=sent.config,
        partition=partition,
        inside=inside,
        outside=outside,
        secure=secure,
    )


__all__ = ["ClientRecorder", "RecordingGrid", "record", "record_grid"]
