"""Code of the user's in a process of its own: it changes nothing of the audit, and its memory holds no truth.

An attack that is not part of fedxray runs in a process that was forked from one without any data (`forkserver`): it is
sent its view, and nothing else was ever in its memory. Its guess comes back as plain tensors and JSON, so that scoring
never calls its code; all else it sends is treated as the user's. An active server's requests are served through the
same pipe. Where a process cannot be forked, the attack runs in this one. docs/security.md states what this prevents and
what it does not.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedxray.adversary.view import Channel, Exchange, View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.own_code import forkserver
from fedxray.audit.own_code.carry import Packed, Parts, Unpacked, evidence_of, plain_facts, table_of
from fedxray.audit.own_code.forkserver import Child, hang_up, kill_group
from fedxray.audit.plan.schema import AttackPart, DefencePart, ModelPart
from fedxray.audit.workers.engines import DEADLINE_PASSED, signal_name
from fedxray.data.checks import max_bytes
from fedxray.errors import BadInput, Diverged, FedxrayError, Refused, printable
from fedxray.federation.tamper import Tamper
from fedxray.files import close_locks
from fedxray.lookup import place_of
from fedxray.params import Late, Params


class OwnCodeError(FedxrayError):
    """An error in a user's own code that ran in another process; a note holds its traceback."""


class OwnRefusal(OwnCodeError, Refused):
    """A refusal by a user's own code."""

    def __init__(self, text: str) -> None:
        """Use the text as it is."""
        Exception.__init__(self, text)


class OwnDivergence(OwnCodeError, Diverged):
    """A training with a user's own code that diverged, as reported by its process."""

    def __init__(self, text: str) -> None:
        """Use the text as it is."""
        Diverged.__init__(self, "learning_rate", expected="a training that stays finite", got=text, remedy=LOWER)


class OutOfTime(OwnCodeError):
    """A user's own code that was stopped because the time of --budget was over."""


LOWER = "Lower learning_rate."


def can_separate() -> bool:
    """Return whether attacks can get a process of their own: not on Windows."""
    return hasattr(os, "fork")


def can_fork() -> bool:
    """Return whether this process can be forked: not on Windows, nor once CUDA is in use."""
    return hasattr(os, "fork") and not torch.cuda.is_initialized()


# How long it may take

LIMIT = 3600.0  # seconds that an attack of the user's may take on one view
VARIABLE = "FEDXRAY_ATTACK_SECONDS"  # changes that
LONGEST = 1000  # characters of a text of the user's on the terminal


def seconds_allowed(variable: str, usual: float) -> float:
    """Return a time limit in seconds from an environment variable."""
    text = os.environ.get(variable, str(usual))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise BadInput(variable, expected="a number of seconds above 0", got=repr(text), remedy=f"Try {usual:g}.")
    return seconds


# The process of an attack


def run_apart(
    attack: Attack, view: View, root: torch.Generator, parts: Parts, base: Attack, until: float = math.inf
) -> Evidence:
    """Return the answer of an attack on a view, from a process that holds nothing else; it gets no stored answers.

    `parts` of the plan make it there, `base` is what they make here, from which a trial of a search differs. `until` is
    when the audit's time is over.
    """
    if not can_separate():
        evidence = attack.run(view, generator=root)
        return _as_seen(evidence_of(load(_packed(evidence.tensors)), plain_facts(evidence)), view)
    task = {"root": root.initial_seed(), **_task(attack, parts, base)}
    return _as_seen(_answer_of(task, view, until), view)


def check_apart(attack: Attack, view: View, parts: Parts, base: Attack) -> None:
    """Refuse a view that lacks something which a user's attack needs; its needs are code of the user's too."""
    if not can_separate():
        attack.check(view)
        return
    _answer_of({"root": None, **_task(attack, parts, base)}, view, math.inf, quoting=True)


def _task(attack: Attack, parts: Parts, base: Attack) -> dict[str, Any]:
    """Return what a process needs to make the attack, the network and the defence itself."""
    names = [entry.name for entry in fields(attack) if entry.init]  # type: ignore[arg-type]
    changed = {name: value for name in names if (value := getattr(attack, name)) is not getattr(base, name)}
    tables = {name: table_of(getattr(parts, name)) for name in ("attack", "model", "defence")}
    return {"changed": Packed().plain(changed), "parts": tables, "folder": str(parts.folder)}


def _answer_of(task: Mapping[str, Any], view: View, until: float, *, quoting: bool = False) -> Evidence:
    """Return what a process answers to a task; with `quoting` its own words may be shown."""
    packed, limit, left = Packed(), seconds_allowed(VARIABLE, LIMIT), until - time.time()
    document = {**task, "view": packed.view(view)}
    with Child(max(0.0, min(limit, left))) as child:
        line = _Line(child.pipe, packed.late)
        with suppress(_Gone):
            _send(child.pipe, document, packed.tensors)
            return _served(line, view.channel, quoting)
    if child.late and left < limit:
        raise OutOfTime(DEADLINE_PASSED)
    if child.late:
        raise OwnCodeError(f"the attack took more than {limit:g} s ({VARIABLE}), so its process was stopped")
    raise OwnCodeError(f"the attack's process {_ended(child.code)}")


def _as_seen(evidence: Evidence, view: View) -> Evidence:
    """Return the evidence about whom the view is about, whatever the attack states."""
    return replace(evidence, target=view.target, seats=tuple(client.client for client in view.own))


def _ended(code: int | None) -> str:
    if code is None:
        return "ended before it gave an answer"
    if code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"ended with code {code} before it gave an answer"


class _Line:
    """The pipe to the process of an attack, as the audit uses it."""

    def __init__(self, pipe: Connection, late: list[Late]) -> None:
        self.pipe, self.late = pipe, late

    def receive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the next message; requests for messages of the view are answered before."""
        while True:
            facts, tensors = _receive(self.pipe)
            if facts.get("what") != "fetch":
                return facts, tensors
            number = facts.get("number")
            if not isinstance(number, int) or not 0 <= number < len(self.late):
                raise OwnCodeError("the attack's process asked for a message that is not in its view")
            _send(self.pipe, {"what": "fetched"}, self.late[number])


def _served(line: _Line, channel: Channel | None, quoting: bool) -> Evidence:
    """Return the answer of the process, or raise its error; it may use the channel before."""
    while True:
        facts, tensors = line.receive()
        what = facts.pop("what", None)
        if what == "answer":
            return evidence_of(tensors, facts)
        if what == "open" and channel is not None:
            exchange = channel(_RemoteTamper(line), rounds=facts["rounds"], clients=facts["clients"])
            packed = Packed(late=line.late)
            done = {"what": "done", "exchange": packed.plain(replace(exchange, state=None))}
            _send(line.pipe, done, packed.tensors)
            continue
        raise _error_of(facts, quoting=quoting)


def answer(pipe: Connection) -> None:
    """Do the task that arrives, send its answer or how it failed, and wait to be killed: the process of an attack."""
    with suppress(_Gone):
        try:
            evidence = _evidence(pipe)
            _flush()
            _send(pipe, {"what": "answer", **plain_facts(evidence)}, evidence.tensors)
        except _Gone:
            raise
        except BaseException as error:  # noqa: BLE001  (the audit reports it)
            _flush()
            _send(pipe, _plain_error(error))
        _receive(pipe)


def _evidence(pipe: Connection) -> Evidence:
    task, tensors = _receive(pipe)
    tables = task["parts"]
    parts = Parts(
        attack=AttackPart.model_validate(tables["attack"]),
        model=ModelPart.model_validate(tables["model"]),
        defence=DefencePart.model_validate(tables["defence"]),
        folder=Path(task["folder"]),
    )
    talk = _Talk(pipe)
    unpacked = Unpacked(tensors, talk.fetch, parts)
    made: Any = parts.attack.make(parts.folder)
    attack = replace(made, **unpacked.value(task["changed"]))
    view = unpacked.view(task["view"], partial(talk.channel, unpacked))
    if task["root"] is None:
        attack.check(view)
        return Evidence(kind=attack.kind, tensors={})
    evidence: Evidence = attack.run(view, generator=torch.Generator("cpu").manual_seed(task["root"]))
    return evidence


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):  # code of the user's may have replaced or closed them
        with suppress(Exception):
            stream.flush()


# A simulation with code of the user's, in a fork of this process: a defence sees records by its nature


def do_apart(work: Callable[[], None], until: float = math.inf, *, quoting: bool = False) -> None:
    """Do work that leaves its results in files in a forked process; its error is raised here.

    Whatever code of the user's keeps in memory is gone afterwards, and so are its processes. `until` is when the
    audit's time is over; with `quoting` its own words may be shown.
    """
    if not can_fork():
        work()
        return
    here, there = Pipe()
    lifeline, held = os.pipe()  # the child exits when the parent's end is closed, however the parent ends
    pid = _fork()
    if pid == 0:
        here.close()
        os.close(held)
        _be_child(work, there, lifeline)
    there.close()
    os.close(lifeline)
    watch = threading.Thread(target=_watch, args=(pid, here), daemon=True)
    watch.start()
    facts, over, late = {}, threading.Event(), threading.Event()
    limit = threading.Thread(target=_stop_late, args=(pid, until, over, late), daemon=True)
    limit.start()
    try:
        with suppress(_Gone):
            facts = _receive(here)[0]
    finally:
        over.set()
        limit.join()
        kill_group(pid)
        watch.join()
        os.close(held)
        here.close()
        _, status = os.waitpid(pid, 0)
    if late.is_set() and not facts:
        raise OutOfTime(DEADLINE_PASSED)
    if facts.get("what") == "failed":
        raise _refusal_of(facts) if quoting else _error_of(facts)
    if facts.get("what") != "done":
        raise OwnCodeError(f"its process {_ended(os.waitstatus_to_exitcode(status))}")


def _stop_late(pid: int, until: float, over: threading.Event, late: threading.Event) -> None:
    """Kill the child when its time is over, also while it answers."""
    if not over.wait(None if until == math.inf else max(0.0, until - time.time())):
        late.set()
        kill_group(pid)


def _watch(pid: int, pipe: Connection) -> None:
    """Wait until the child is dead, not reaped yet; then end what it started, and all waiting on its pipe."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    kill_group(pid)
    hang_up(pipe)


def _be_child(work: Callable[[], None], pipe: Connection, lifeline: int) -> NoReturn:
    """Do the work and say so, then wait to be killed; never returns."""
    try:
        os.setsid()
        close_locks()
        forkserver.leave()
        threading.Thread(target=_follow, args=(lifeline,), daemon=True).start()
        torch.set_num_threads(1)  # threads of the parent's pool do not exist here
        with suppress(_Gone):
            try:
                work()
                ended: dict[str, Any] = {"what": "done"}
            except BaseException as error:  # noqa: BLE001  (the parent reports it)
                ended = _plain_error(error)
            _flush()
            _send(pipe, ended)
            _receive(pipe)
    finally:
        os._exit(1)


def _fork() -> int:
    """Fork; what was printed so far is written first, or both processes would write it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of the parent do not exist in the child. None of ours holds a lock that the child needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _follow(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


# Errors: whatever a process with code of the user's states is the user's, also where it looks like one of ours

WORD, PLACE = re.compile(r"[A-Za-z_]\w{0,79}"), re.compile(r" in [\w.\-/]{1,200}, line \d{1,7}")


def _plain_error(error: BaseException) -> dict[str, Any]:
    return {
        "what": "failed",
        "kind": type(error).__name__,
        "place": place_of(error),
        "text": str(error),
        "trace": "".join(traceback.format_exception(error)),
        "parts": [error.argument, error.expected, error.got, error.remedy] if isinstance(error, BadInput) else [],
    }


def _refusal_of(facts: Mapping[str, Any]) -> FedxrayError:
    """Return the refusal of bad input that a process states, in its own words."""
    parts = facts.get("parts")
    if not isinstance(parts, list) or len(parts) != 4:
        return _error_of(facts, quoting=True)
    argument, expected, got, remedy = (printable(str(part)) for part in parts)
    return BadInput(argument, expected=expected, got=got, remedy=remedy)


def _error_of(facts: Mapping[str, Any], *, quoting: bool = False) -> OwnCodeError:
    """Return the error that a process states: its type and place, and with `quoting` its text; the rest is a note."""
    kind, place, text, trace = (str(facts.get(name, "")) for name in ("kind", "place", "text", "trace"))
    stated = f"{kind if WORD.fullmatch(kind) else 'an error'}{place if PLACE.fullmatch(place) else ''}"
    if quoting:
        stated = printable(text[:LONGEST]) if kind == "Refused" else f"{stated}: {printable(text[:LONGEST])}"
    types = {"Refused": OwnRefusal, "Diverged": OwnDivergence}
    error = types.get(kind, OwnCodeError)(stated)
    error.add_note(trace or text)
    return error


# Tensors and plain values over a pipe; nothing is unpickled


class _Gone(Exception):
    """The other process has ended, or sends what is no message."""


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return save(
        {name: value.detach().as_subclass(Tensor).cpu().clone().contiguous() for name, value in tensors.items()}
    )


def _send(pipe: Connection, facts: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
    content = json.dumps(facts).encode(), _packed(tensors or {})
    try:
        for part in content:
            pipe.send_bytes(part)
    except OSError as error:
        raise _Gone from error


def _receive(pipe: Connection) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        facts, tensors = json.loads(pipe.recv_bytes(max_bytes())), load(pipe.recv_bytes(max_bytes()))
    except (EOFError, OSError, ValueError, RecursionError, SafetensorError) as error:
        raise _Gone from error
    if not isinstance(facts, dict):
        raise _Gone
    return facts, tensors


# The channel of an active server: the clients answer in the audit, the tamper decides in the attack's process


class _RemoteTamper:
    """The tamper of the attack's process as the audit's round loop sees it; its state stays there."""

    def __init__(self, line: _Line) -> None:
        self.line = line

    def start(self) -> None:
        """Start nothing: the other process has started."""

    def send(self, state: None, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], None]:
        """Ask the attack which parameters the client is sent."""
        _send(self.line.pipe, {"what": "send", "round": round, "client": client}, broadcast)
        facts, tensors = self.line.receive()
        if facts.get("what") == "failed":
            raise _error_of(facts)
        if facts.get("what") != "sent":
            raise OwnCodeError("the attack's process sent no parameters")
        return {name: tensors[name] for name in broadcast if name in tensors}, None

    def receive(self, state: None, round: int, client: int, update: Params) -> None:
        """Show the attack the client's reply."""
        _send(self.line.pipe, {"what": "receive", "round": round, "client": client}, update)


class _Talk:
    """The pipe to the audit, as the attack's process uses it: one conversation at a time."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.turn = pipe, threading.RLock()

    def fetch(self, number: int) -> Params:
        """Return the parameters of that number in the view."""
        with self.turn:
            _send(self.pipe, {"what": "fetch", "number": number})
            return _receive(self.pipe)[1]

    def channel(self, unpacked: Unpacked, tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        """Let the audit ask the clients."""
        with self.turn:
            _send(self.pipe, {"what": "open", "rounds": rounds, "clients": list(clients)})
            state = tamper.start()
            while True:
                facts, tensors = _receive(self.pipe)
                if facts["what"] == "send":
                    sent, state = tamper.send(state, facts["round"], facts["client"], tensors)
                    _send(self.pipe, {"what": "sent"}, sent)
                elif facts["what"] == "receive":
                    state = tamper.receive(state, facts["round"], facts["client"], tensors)
                else:
                    exchange: Exchange = replace(unpacked, tensors=tensors).value(facts["exchange"])
                    return replace(exchange, state=state)
