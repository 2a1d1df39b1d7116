"""Code of the user's in a process of its own: it changes nothing of the audit, and its memory holds no truth.

An attack that is not part of fedxray runs in a forked process, in which the truth, the transcript and the data set
have been overwritten. Its guess comes back as plain tensors and JSON, so that scoring never calls its code. An active
server's requests are served through the same pipe. Where a process cannot be forked, the attack runs in this one.
docs/security.md states what this prevents and what it does not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from fedxray.adversary.view import Channel, Exchange, Observation, View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.run.answer import evidence_of, plain_facts
from fedxray.audit.run.prepare import forget_data
from fedxray.errors import BadInput, Diverged, FedxrayError, Refused
from fedxray.federation.tamper import Tamper
from fedxray.federation.transcript import Transcript
from fedxray.files import NoSpaceError
from fedxray.lookup import is_ours, without_records
from fedxray.metrics.scoring import forget_optima
from fedxray.params import Late, Params

Answer = TypeVar("Answer")


class OwnCodeError(FedxrayError):
    """An error in a user's own code that ran in another process; a note holds its traceback."""


class OwnRefusal(OwnCodeError, Refused):
    """A refusal by a user's own code."""

    def __init__(self, text: str) -> None:
        """Use the text as it is."""
        Exception.__init__(self, text)


def can_fork() -> bool:
    """Return whether a process can be forked: not on Windows, nor once CUDA is in use."""
    return hasattr(os, "fork") and not torch.cuda.is_initialized()


# The forked process


def run_apart(attack: Callable[[View], Evidence], view: View, secrets: Sequence[object]) -> Evidence:
    """Return the answer of a user's attack on a view, from a forked process that holds none of the secrets.

    `secrets` are the objects that lead to the truth. The attack gets no stored answers of others.
    """
    if not can_fork():
        evidence = attack(view)
        return _as_seen(evidence_of(load(_packed(evidence.tensors)), plain_facts(evidence)), view)
    work = partial(_answer, attack, view, secrets)
    answer, code = _in_child(work, lambda pipe: _serve(pipe, view.channel))
    if answer is None:
        raise OwnCodeError(f"the attack's process {_ended(code)}")
    return _as_seen(answer, view)


def check_apart(attack: Attack, view: View, secrets: Sequence[object]) -> None:
    """Refuse a view that lacks something which a user's attack needs; its needs are code of the user's too."""

    def check(seen: View) -> Evidence:
        attack.check(seen)
        return Evidence(kind=attack.kind, tensors={})

    run_apart(check, view, secrets)


def do_apart(work: Callable[[], None]) -> None:
    """Do work that leaves its results in files in a forked process; its error is raised here.

    Whatever code of the user's keeps in memory is gone afterwards.
    """
    if not can_fork():
        work()
        return
    _, code = _in_child(partial(_do, work), lambda pipe: _serve(pipe, None))
    if code != 0:
        raise OwnCodeError(f"its process {_ended(code)}")


def _do(work: Callable[[], None], pipe: Connection) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001  (the parent reports it)
        _send(pipe, _plain_error(error))


def _in_child(work: Callable[[Connection], None], serve: Callable[[Connection], Answer]) -> tuple[Answer, int]:
    """Do the work in a forked process and serve it here; returns the result of serving and the child's exit code."""
    here, there = Pipe()
    lifeline, held = os.pipe()  # the child exits when the parent's end is closed, however the parent ends
    pid = _fork()
    if pid == 0:
        here.close()
        os.close(held)
        _be_child(work, there, lifeline)
    there.close()
    os.close(lifeline)
    try:
        answer = serve(here)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(held)
        here.close()
        _, status = os.waitpid(pid, 0)
    return answer, os.waitstatus_to_exitcode(status)


def _be_child(work: Callable[[Connection], None], pipe: Connection, lifeline: int) -> NoReturn:
    """Do the work and exit; never returns."""
    code = 1
    try:
        threading.Thread(target=_follow, args=(lifeline,), daemon=True).start()
        torch.set_num_threads(1)  # threads of the parent's pool do not exist here
        work(pipe)
        code = 0
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):  # code of the user's may have replaced or closed them
                with suppress(Exception):
                    stream.flush()
        finally:
            os._exit(code)


def _as_seen(evidence: Evidence, view: View) -> Evidence:
    """Return the evidence about whom the view is about, whatever the attack states."""
    return replace(evidence, target=view.target, seats=tuple(client.client for client in view.own))


def _fork() -> int:
    """Fork; what was printed so far is written first, or both processes would write it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of the parent do not exist in the child. None of ours holds a lock that the child needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code} before it gave an answer"


def _answer(attack: Callable[[View], Evidence], view: View, secrets: Sequence[object], pipe: Connection) -> None:
    """Run the attack without the secrets and send its answer, or how it failed."""
    try:
        view = replace(view, channel=None if view.channel is None else _channel_over(pipe))
        hide(secrets, view)
        evidence = attack(view)
        _send(pipe, {"what": "answer", **plain_facts(evidence)}, evidence.tensors)
    except BaseException as error:  # noqa: BLE001  (the parent reports it)
        _send(pipe, _plain_error(error))


def _follow(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _serve(pipe: Connection, channel: Channel | None) -> Evidence | None:
    """Return the answer of the child, None where it died without one; it may use the channel before."""
    while True:
        try:
            facts, tensors = _receive(pipe)
        except (EOFError, ConnectionResetError):
            return None
        what = facts.pop("what")
        if what == "answer":
            return evidence_of(tensors, facts)
        if what == "open" and channel is not None:
            exchange = channel(_RemoteTamper(pipe), rounds=facts["rounds"], clients=facts["clients"])
            _send(pipe, *_plain_exchange(exchange))
            continue
        raise _error_of(facts)


_PARTS: dict[type[FedxrayError], tuple[str, ...]] = {  # errors that keep their kind, by the parts they are made of
    Refused: ("attack", "missing", "remedy"),
    Diverged: ("argument", "expected", "got", "remedy"),
    BadInput: ("argument", "expected", "got", "remedy"),
    NoSpaceError: (),  # of its text alone
}


def _plain_error(error: BaseException) -> dict[str, Any]:
    kind = next((kind for kind in _PARTS if is_ours(error) and type(error) is kind), None)
    parts = [] if kind is None else [str(getattr(error, part)) for part in _PARTS[kind]] or [str(error)]
    plain = {"kind": type(error).__name__, "parts": parts, "text": without_records(error)}
    return {"what": "failed", "trace": traceback.format_exc(), **plain}


def _error_of(facts: Mapping[str, Any]) -> FedxrayError:
    if facts["parts"]:
        kind = next(kind for kind in _PARTS if kind.__name__ == facts["kind"])
        first, *others = [str(part) for part in facts["parts"]]
        error = kind(first, **dict(zip(_PARTS[kind][1:], others, strict=True)))
    else:
        error = OwnRefusal(str(facts["text"])) if facts["kind"] == "Refused" else OwnCodeError(str(facts["text"]))
    error.add_note(str(facts["trace"]))
    return error


# Tensors and plain values over a pipe; nothing is unpickled


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return save(
        {name: value.detach().as_subclass(Tensor).cpu().clone().contiguous() for name, value in tensors.items()}
    )


def _send(pipe: Connection, facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
    pipe.send_bytes(json.dumps(facts, allow_nan=False).encode())
    pipe.send_bytes(_packed(tensors or {}))


def _receive(pipe: Connection) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return json.loads(pipe.recv_bytes()), load(pipe.recv_bytes())


# The channel of an active server: the clients answer in the parent, the tamper decides in the child

_PARAMS = ("start", "update", "buffers", "buffers_after")


class _RemoteTamper:
    """The tamper of the child as the parent's round loop sees it; its state stays in the child."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def start(self) -> None:
        """Start nothing: the child has started."""

    def send(self, state: None, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], None]:
        """Ask the child which parameters the client is sent."""
        _send(self.pipe, {"what": "send", "round": round, "client": client}, broadcast)
        facts, tensors = _receive(self.pipe)
        if facts.get("what") != "sent":
            raise OwnCodeError(str(facts.get("text", "the attack's process sent no parameters")))
        return {name: tensors[name] for name in broadcast if name in tensors}, None

    def receive(self, state: None, round: int, client: int, update: Params) -> None:
        """Show the child the client's reply."""
        _send(self.pipe, {"what": "receive", "round": round, "client": client}, update)


def _channel_over(pipe: Connection) -> Channel:
    """Return the channel of the child."""

    def channel(tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        _send(pipe, {"what": "open", "rounds": rounds, "clients": list(clients)})
        state = tamper.start()
        while True:
            facts, tensors = _receive(pipe)
            if facts["what"] == "send":
                sent, state = tamper.send(state, facts["round"], facts["client"], tensors)
                _send(pipe, {"what": "sent"}, sent)
            elif facts["what"] == "receive":
                state = tamper.receive(state, facts["round"], facts["client"], tensors)
            else:
                return Exchange(
                    observations=_observations(facts["observations"], tensors),
                    state=state,
                    rounds_spent=facts["rounds_spent"],
                )

    return channel


def _plain_exchange(exchange: Exchange) -> tuple[dict[str, Any], dict[str, Tensor]]:
    facts = [
        {entry.name: getattr(seen, entry.name) for entry in fields(seen) if entry.name not in _PARAMS}
        for seen in exchange.observations
    ]
    tensors = {
        f"{number} {part} {name}": value
        for number, seen in enumerate(exchange.observations)
        for part in _PARAMS
        for name, value in getattr(seen, part).items()
    }
    return {"what": "done", "observations": facts, "rounds_spent": exchange.rounds_spent}, tensors


def _observations(facts: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> tuple[Observation, ...]:
    parts: list[dict[str, Any]] = [{part: {} for part in _PARAMS} for _ in facts]
    for key, value in tensors.items():
        number, part, name = key.split(" ", 2)
        parts[int(number)][part][name] = value
    seen = [{**plain, "contributors": tuple(plain["contributors"])} for plain in facts]
    return tuple(Observation(**plain, **held) for plain, held in zip(seen, parts, strict=True))


# What the child must not find

_PLAIN = (str, bytes, int, float, type(None), type, ModuleType, FunctionType, Late)


def hide(secrets: Sequence[object], given: object) -> None:
    """Overwrite all tensors and arrays behind the secrets that are not among what is given, then empty the secrets.

    A given tensor gets memory of its own first, so that a slice does not keep what it was cut from. The messages of a
    transcript are left as they are, since the view fetches some of them; their list is emptied.
    """
    shown = list(_values(given, set()))
    for tensor in (value for value in shown if isinstance(value, Tensor)):
        tensor.data = tensor.data.clone()
    kept = {_memory(value) for value in shown}
    transcripts = [secret for secret in secrets if isinstance(secret, Transcript)]
    doors = [*transcripts, *(transcript.shelf for transcript in transcripts)]
    bases = [value._base for value in shown if isinstance(value, Tensor)]
    for value in _values([*secrets, bases], {id(door) for door in doors}):
        if _memory(value) not in kept:
            _blank(value)
    for secret in (*secrets, *doors):
        vars(secret).clear()
    forget_data()
    forget_optima()


def _values(thing: object, seen: set[int]) -> Iterator[Tensor | np.ndarray[Any, Any]]:
    """Yield every tensor and array in the fields and containers behind a thing, each once."""
    if isinstance(thing, _PLAIN) or id(thing) in seen:
        return
    seen.add(id(thing))
    inner: Iterable[object] = ()
    if isinstance(thing, Tensor | np.ndarray):
        yield thing
    elif isinstance(thing, nn.Module):
        inner = [*thing.parameters(), *thing.buffers()]
    elif isinstance(thing, Mapping):
        inner = thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        inner = thing
    else:
        inner = getattr(thing, "__dict__", {}).values()
    for entry in inner:
        yield from _values(entry, seen)


def _memory(value: Tensor | np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return where the memory of a tensor or array starts, and its size: the first rows are not the array."""
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    return value.ctypes.data, value.nbytes


def _blank(value: Tensor | np.ndarray[Any, Any]) -> None:
    if isinstance(value, Tensor):
        value.data.zero_()
    elif value.flags.writeable:
        value.fill(np.zeros((), value.dtype)[()])
