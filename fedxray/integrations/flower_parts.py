"""The parts of Flower's messages that a recorder needs, asked for without importing flwr."""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedxray.errors import BadInput
from fedxray.federation.recording.form import MOST_COUNT, MOST_KEY, MOST_ROUNDS, MOST_WHOLE, Arrays

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

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
