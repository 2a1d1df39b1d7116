"""Records an NVFlare job: a filter that passes every message on unchanged and keeps a copy.

    record(recipe, "recording")                            # every site; also record(job, "recording")
    record(recipe, "recording", server="at-the-server")    # and what the server sends and receives

A site records all jobs without a change to any by naming `Recorder` in its own `local/privacy.json`: as a filter of
task data and of task results, and as a component. As a component it gets an event when all filters have run, and so
records what really leaves the site; without, what the filters before it made of the result. With the event before the
filters run, it puts a probe behind each of them, which passes the message on and notes whether the filter changed it.

A filter that raises would end the job. Everything here runs inside `_safely()`: the first error is logged once, ends
the recording, and the message passes. A reply that is no model of the sent one's shapes, such as one in 8 bits, is
noted and left out. Filters that follow may write into the arrays, so they are copied at once; all else happens on the
writer's thread. Input and output filters of a job are two objects that the Job API makes from
JSON, so what was received waits in this module. The Job API copies this one file into the job: fedxray itself is
imported when the first message passes, and where it is not installed at a site a warning says so once.

Tested with NVFlare 2.9.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey

if TYPE_CHECKING:
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable

    from fedxray.federation.recording.format import Said
    from fedxray.federation.recording.writer import RecordingWriter

Arrays = dict[str, NDArray[Any]]
KINDS = ("WEIGHTS", "WEIGHT_DIFF")
VALIDATE = "validate"  # a task that sends models, also of other sites, to be scored
TASKS = ["train"]  # a filter for all tasks, "*", is never applied by NVFlare 2.9
MOST_HELD = 4_000_000_000  # bytes of models that wait for their reply
MOST_SECONDS = 30.0  # that the end of a run waits for the disk
MOST_TEXT, MOST_FACTS, MOST_STEPS, MOST_ROUNDS = 200, 1000, 2**53, 10**8
BLOCK = 65_536  # entries that are compared at a time
ROUNDING = 1e-6  # relative, of a filter that divides and multiplies by the number of steps
STEPS, METRICS, HISTORY = "NUM_STEPS_CURRENT_ROUND", "initial_metrics", "filter_history"
FORM = "PROCESSED_ALGORITHM"  # names a form that is no plain model: quantised, encrypted
HALF, TYPES = "float16", "source_datatype"  # NVFlare's quantiser by default: plain numbers of less precision

log = logging.getLogger("fedxray.recorder")

__all__ = ["Recorder", "record"]


def record(recipe: Any, folder: str, *, server: str | None = None) -> None:
    """Let every site of a recipe or job record into `folder`, and the server into `server` where it is named.

    Call it after all other filters are added. A relative folder lies in each site's own one.
    """
    places: list[tuple[str, Any]] = [("client", folder)] + ([("server", server)] if server is not None else [])
    for side, place in places:
        if not isinstance(place, str | os.PathLike):
            from fedxray.errors import BadInput

            remedy = 'For instance "/data/recording".'
            name = "folder" if side == "client" else "server"
            raise BadInput(name, expected="the path of a folder", got=repr(place)[:MOST_TEXT], remedy=remedy)
        if hasattr(recipe, "add_client_input_filter"):
            getattr(recipe, f"add_{side}_input_filter")(Recorder(str(place)), tasks=TASKS)
            getattr(recipe, f"add_{side}_output_filter")(Recorder(str(place)), tasks=TASKS)
        else:
            from nvflare.job_config.defs import FilterType

            to = recipe.to_clients if side == "client" else recipe.to_server
            for kind in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
                to(Recorder(str(place)), filter_type=kind, tasks=TASKS)


class Recorder(Filter):  # type: ignore[misc, unused-ignore]
    """A filter and listener of NVFlare that records what passes; `folder` is that of the recording."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        # The Job API writes arguments by attributes of their names.
        self.folder = str(folder) if isinstance(folder, str | os.PathLike) else ""
        if not self.folder:
            _held.refused.add(self.folder)
            log.warning("fedxray does not record: folder is a %s, not the path of a folder.", type(folder).__name__)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Keep a copy of a model that is sent or returned, and return the message itself."""
        _safely(self.folder, lambda: _pass(self.folder, shareable, fl_ctx))
        return shareable

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Record what leaves a site when all its filters have run."""
        if event_type == EventType.BEFORE_TASK_RESULT_FILTER and _held.sent:
            _safely(self.folder, lambda: _expect(self.folder, fl_ctx))
        elif event_type == EventType.AFTER_TASK_RESULT_FILTER and _held.sent:
            _safely(self.folder, lambda: _leave(self.folder, fl_ctx))
        elif event_type in LAST and self.folder in _held.writers:
            _safely(self.folder, lambda: _held.writers[self.folder].wait(MOST_SECONDS))


LAST = (EventType.END_RUN, EventType.SWAP_OUT)  # the process may end after these


class Probe(Filter):  # type: ignore[misc, unused-ignore]
    """Notes what a filter made of a reply; where `behind` names none, what the first filter gets."""

    def __init__(self, folder: str, behind: str = "") -> None:
        super().__init__()
        self.folder, self.behind = folder, behind

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Compare the message with the one before the filter, and return it itself."""
        _safely(self.folder, lambda: _note(self.folder, self.behind, shareable, fl_ctx))
        return shareable


def _put_probes(folder: str, fl_ctx: FLContext) -> None:
    """Put a probe behind every filter of results, those of the site first; none where NVFlare keeps them elsewhere."""
    task = f"{fl_ctx.get_prop(FLContextKey.TASK_NAME)}{FilterKey.DELIMITER}{FilterKey.OUT}"
    chains = []
    for owner, key in ((FLContextKey.SCOPE_OBJECT, FilterKey.OUT), (FLContextKey.RUNNER, task)):
        table = getattr(fl_ctx.get_prop(owner), "task_result_filters", None)
        chains.append(table.get(key) if isinstance(table, dict) else None)
    names = Counter[str]()
    with _held.lock:  # a site may run several tasks at once
        if any(chain and not isinstance(chain, list) for chain in chains):
            return
        for chain in filter(None, chains):
            probed = _probed(folder, chain, names)
            if not any(isinstance(one, Probe) and one.folder == folder for one in chain):
                chain[:] = probed


def _probed(folder: str, chain: list[Any], names: Counter[str]) -> list[Any]:
    """Return a chain of filters with probes; `names` counts those of one class, over all chains."""
    probed: list[Any] = [Probe(folder)]
    for one in chain:
        probed.append(one)
        if not isinstance(one, Probe | Recorder):
            name = _text(type(one).__name__)
            names[name] += 1
            probed.append(Probe(folder, f"{name} {names[name]}" if names[name] > 1 else name))
    return probed


def _note(folder: str, name: str, shareable: Shareable, fl_ctx: FLContext) -> None:
    """Keep a reply as a filter left it, and whether that is what the filter got."""
    key = _key(folder, fl_ctx, "client")
    sent = _held.sent.get(key)
    if sent is None or not sent.expected:
        return
    filters, idle, reply = sent.filters or (), sent.idle, sent.trained
    if name or reply is None:
        reply = _copy_of(shareable)
    if name:
        filters = (*filters, name)
        idle = (*idle, name) if sent.trained and reply and same(sent.trained, reply) else idle
    with _held.lock:
        if key in _held.sent:
            _held.sent[key] = replace(_held.sent[key], trained=reply, filters=filters, idle=idle)


def _copy_of(shareable: Shareable | None, *, fetch: bool = True) -> tuple[str, Arrays] | None:
    """Return kind and arrays of a reply; None where it is no plain model, or an external trainer still holds it."""
    data = None if shareable is None else _model(shareable)
    try:
        return None if data is None else (data.data_kind, copied(data.data, fetch=fetch))
    except TypeError:
        return None


def _safely(folder: str, work: Callable[[], None]) -> None:
    """Do a part of the recorder's work inside the job: an error in it ends the recording, never the job."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  (the job must continue)
        try:
            _end(folder, error)
        except Exception:  # noqa: BLE001  (an error that cannot be written down)
            _held.refused.add(folder)
            log.warning("fedxray stopped recording to %s: %s.", folder, type(error).__name__)


def _end(folder: str, error: Exception) -> None:
    """Record nothing more in a folder, and log the reason once."""
    writer = _held.writers.get(folder)
    if writer is not None:
        writer.stop(error)
    elif folder not in _held.refused:
        _held.refused.add(folder)
        remedy = " Install fedxray at this site." if isinstance(error, ModuleNotFoundError) else ""
        log.warning("fedxray does not record to %s: %s: %s.%s", folder, type(error).__name__, error, remedy)


def _pass(folder: str, shareable: Shareable, fl_ctx: FLContext) -> None:
    """Hold a model on its way to a site, or record a reply; at a site that gets events, that waits for the last."""
    if _is_over(folder):
        return
    side: Side = "server" if str(fl_ctx.get_process_type() or "").startswith("S") else "client"
    outward = fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.OUT
    if outward == (side == "server"):
        _hold(folder, shareable, fl_ctx, side)
        return
    sent = _held.sent.get(_key(folder, fl_ctx, side))
    if sent is not None and not sent.expected:
        _answer(folder, _writer(folder, side), shareable, fl_ctx, last=False)


def _expect(folder: str, fl_ctx: FLContext) -> None:
    """Note that an event will follow when the filters have run, and what the training returned."""
    key, result = _key(folder, fl_ctx, "client"), fl_ctx.get_prop(FLContextKey.TASK_RESULT)
    if key not in _held.sent or _held.sent[key].expected or _is_over(folder):
        return
    trained = _copy_of(result, fetch=False)
    _put_probes(folder, fl_ctx)
    with _held.lock:
        if key in _held.sent:
            _held.sent[key] = replace(_held.sent[key], expected=True, trained=trained)


def _leave(folder: str, fl_ctx: FLContext) -> None:
    result = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
    if result is not None and _key(folder, fl_ctx, "client") in _held.sent:
        _answer(folder, _writer(folder, "client"), result, fl_ctx, last=True)


# What was sent, until the reply to it passes


Side = Literal["client", "server"]
Key = tuple[str, Side, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A model on its way to a site, copied; later with the kind and arrays of the reply before the next filter."""

    arrays: Arrays
    round: int | None
    expected: bool = False  # an event follows when all filters have run
    trained: tuple[str, Arrays] | None = None
    filters: tuple[str, ...] | None = None  # that a probe stood behind
    idle: tuple[str, ...] = ()  # of these, that changed nothing

    @property
    def bytes(self) -> int:
        """Return the size of its arrays."""
        held = (self.arrays, {} if self.trained is None else self.trained[1])
        return sum(value.nbytes for arrays in held for value in arrays.values())


class _Held:
    """State of this process: models that wait for their reply, and writers by folder."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: OrderedDict[Key, Sent] = OrderedDict()
        self.writers: dict[str, RecordingWriter] = {}
        self.refused: set[str] = set()  # folders without a writer
        self.warned: set[tuple[str, str]] = set()

    def forked(self) -> None:
        """Replace the lock, which a thread of the parent may have held."""
        self.lock = threading.Lock()


_held = _Held()
os.register_at_fork(after_in_child=lambda: _held.forked())


def _writer(folder: str, side: Side) -> RecordingWriter:
    from fedxray.federation.recording.writer import RecordingWriter

    with _held.lock:
        if folder not in _held.writers:
            # NVFlare ends a process that has threads of its own; the end of the run waits for the disk instead.
            _held.writers[folder] = RecordingWriter(folder, side, at_exit=False)
        writer = _held.writers[folder]
    if writer.side != side:
        _warn(folder, f"the {writer.side} records here, so the {side} does not; give it a folder of its own")
    return writer


def _key(folder: str, fl_ctx: FLContext, side: Side) -> Key:
    """Return folder and side of a recorder, and run, site and task of a message."""
    peer = fl_ctx.get_peer_context() if side == "server" else fl_ctx
    site = peer.get_identity_name() if peer is not None else ""
    return folder, side, str(fl_ctx.get_job_id()), str(site), str(fl_ctx.get_prop(FLContextKey.TASK_ID))


def _is_over(folder: str) -> bool:
    """Return whether nothing more is recorded there; what waited is dropped."""
    writer = _held.writers.get(folder)
    if folder not in _held.refused and (writer is None or writer.stopped is None):
        return False
    with _held.lock:
        for key in [key for key in _held.sent if key[0] == folder]:
            del _held.sent[key]
    return True


def _hold(folder: str, shareable: Shareable, fl_ctx: FLContext, side: Side) -> None:
    data = _model(shareable)
    if data is None or fl_ctx.get_prop(FLContextKey.TASK_NAME) == VALIDATE:
        return
    if data.meta.get(FORM) not in (None, HALF):
        _warn(
            folder, f"the model comes as {_text(data.meta[FORM])}; put the recorder after the filter that undoes this"
        )
        return
    number = _number(shareable.get_header("current_round"))
    round = int(number) + 1 if number is not None and 0 <= number < MOST_ROUNDS else None
    sent = Sent(arrays=_numbers(data), round=round)
    with _held.lock:
        _held.sent[_key(folder, fl_ctx, side)] = sent
        size = sum(one.bytes for one in _held.sent.values())
        while size > MOST_HELD and len(_held.sent) > 1:
            size -= _held.sent.popitem(last=False)[1].bytes


def _answer(folder: str, writer: RecordingWriter, shareable: Shareable, fl_ctx: FLContext, *, last: bool) -> None:
    """Record a reply with the model that it answers; the first of several recorders does."""
    key = _key(folder, fl_ctx, "server" if writer.side == "server" else "client")
    with _held.lock:
        sent = _held.sent.pop(key, None)
    if sent is None or writer.stopped is not None:
        return
    data, reply, facts = _model(shareable), None, dict[str, Any]()
    if data is not None:
        facts = {"kind": data.data_kind, **_plain(data.meta)}
        reply, problem = _reply(sent.arrays, data)
        if problem:
            facts["not_recorded"] = problem
            _warn(folder, f"of a reply of {_text(key[3])}: {problem}")
    size = sent.bytes + sum(value.nbytes for value in (reply or {}).values())
    writer.submit(partial(_said, sent, reply, facts, key, last=last), size)


def _reply(sent: Arrays, data: Any) -> tuple[Arrays | None, str]:
    """Return the arrays of a reply to a model, None where they are no model like it, and what is not recorded."""
    if data.meta.get(FORM) not in (None, HALF):
        return None, f"it comes as {_text(data.meta[FORM])}, not as plain arrays, and is not recorded"
    reply = _numbers(data)
    for name, value in reply.items():
        if name in sent and value.shape != sent[name].shape:
            shapes = f"{list(value.shape)} instead of {list(sent[name].shape)}"
            return None, f"{_text(name)} has the shape {shapes}; the reply is not recorded"
    odd = sorted(reply.keys() - sent.keys())
    if not odd:
        return reply, ""
    known = {name: value for name, value in reply.items() if name in sent}
    return known, f"arrays that were not sent are not recorded: {len(odd)}, such as {_text(odd[0])}"


def _warn(folder: str, text: str) -> None:
    """Log a warning once."""
    if (folder, text) not in _held.warned and len(_held.warned) < MOST_FACTS:
        _held.warned.add((folder, text))
        log.warning("fedxray, recording to %s: %s.", folder, text)


def _said(sent: Sent, reply: Arrays | None, facts: Mapping[str, Any], key: Key, *, last: bool) -> Said:
    """Return a message in the form of the recording, on the writer's thread."""
    from fedxray.federation.recording.format import Said

    config = {name: value for name, value in facts.items() if name != HISTORY}
    filters = facts.get(HISTORY, ()) if sent.filters is None else sent.filters
    if reply is not None:
        if last and sent.filters is not None:
            config["filters_idle"] = list(sent.idle)
        elif last and sent.trained is not None:
            config["filters_changed"] = not same(sent.trained, (config["kind"], reply))
        left_out = sorted(sent.arrays.keys() - reply.keys())
        reply = whole_reply(sent.arrays, reply, config["kind"])
        config |= {"left_out": left_out} if left_out else {}
    return Said(
        what="train",
        node=_text(key[3]),
        run=_text(key[2]),
        round=sent.round,
        sent=sent.arrays,
        reply=reply,
        config=config,
        inside=tuple(reversed(filters)),  # the nearest to the network first, as for Flower
        outside=() if last else None,
    )


def same(before: tuple[str, Arrays], after: tuple[str, Arrays]) -> bool:
    """Return whether two replies have the same kind, names and, up to rounding, the same values."""
    if before[0] != after[0] or before[1].keys() != after[1].keys():
        return False
    return all(_same_values(value, after[1][name]) for name, value in before[1].items())


def _same_values(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays are equal up to rounding; block by block, as most filters change all of them."""
    if one.shape != other.shape:
        return False
    parts = (one.reshape(-1), other.reshape(-1))
    for start in range(0, one.size, BLOCK):
        first, second = (part[start : start + BLOCK] for part in parts)
        if not (np.array_equal(first, second) or np.allclose(first, second, ROUNDING, 0.0, equal_nan=True)):
            return False
    return True


def whole_reply(sent: Mapping[str, Any], reply: Mapping[str, Any], kind: str) -> Arrays:
    """Return the model that a reply stands for: what it leaves out stays as it was sent."""
    whole = {}
    for name, before in sent.items():
        if name not in reply:
            whole[name] = before
        elif kind == "WEIGHT_DIFF":
            whole[name] = np.asarray(before + reply[name])
        else:
            whole[name] = np.asarray(reply[name])
    return whole


# The parts of NVFlare's messages


def _model(shareable: Shareable) -> Any:
    """Return the data of a message that holds a model or a difference of models; None of others."""
    from nvflare.apis.dxo import from_shareable

    try:
        data = from_shareable(shareable)
    except ValueError:  # no such data, or of a task that failed
        return None
    return data if data.data_kind in KINDS and data.data else None


def _numbers(data: Any) -> Arrays:
    """Return copies of the arrays of a model; those that were cut to half precision in the type they had before."""
    arrays, types = copied(data.data), data.meta.get(TYPES)
    if data.meta.get(FORM) != HALF:
        return arrays
    known = types if isinstance(types, Mapping) else {}
    wider = {name: np.dtype(np.float64 if known.get(name) == "float64" else np.float32) for name in arrays}
    return {
        name: value.astype(wider[name]) if value.dtype == np.float16 and known.get(name) != HALF else value
        for name, value in arrays.items()
    }


def copied(arrays: Mapping[str, Any], *, fetch: bool = True) -> Arrays:
    """Return copies of NumPy arrays, tensors and numbers; what was not fetched yet is fetched, if asked."""
    return {str(name): _array(value, fetch=fetch) for name, value in arrays.items()}


def _array(value: Any, *, fetch: bool) -> NDArray[Any]:
    late: Callable[[], Any] | None = getattr(value, "materialize", None)
    value = late() if fetch and callable(late) else value
    if hasattr(value, "detach"):  # a tensor; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        value = value.numpy()
    array = np.array(value, copy=True)
    if array.dtype.hasobject:
        raise TypeError(f"{type(value).__name__} in place of an array; add the recorder as a filter too")
    return array


def _plain(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the server learns beside the arrays: steps, metrics by name, and the filters that ran.

    These come from scripts and filters of others: what is no finite number or text is left out.
    """
    history = meta.get(HISTORY)
    filters = [history] if isinstance(history, str) else history if isinstance(history, list | tuple) else []
    facts: dict[str, Any] = {HISTORY: [_text(name) for name in filters[:MOST_FACTS]]}
    steps = _number(meta.get(STEPS))
    if steps is not None and abs(steps) < MOST_STEPS:
        facts["steps"] = int(steps)
    metrics = meta.get(METRICS)
    for name, value in list(metrics.items())[:MOST_FACTS] if isinstance(metrics, Mapping) else ():
        number = _number(value)
        if number is not None:
            facts[f"metric {_text(name)}"] = number
    return facts


def _number(value: Any) -> float | None:
    """Return a number, also one in an array or tensor without dimensions, as a float; None of all else."""
    if isinstance(value, str | bytes | bool) or getattr(value, "shape", ()) != ():
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  (objects of others)
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    """Return a short text that can be written."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  (objects of others)
        text = type(value).__name__
    return text[:MOST_TEXT].encode(errors="replace").decode()
