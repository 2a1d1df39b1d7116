"""What can be reached from an object by whoever holds it: fields, closures, defaults, bound methods, caches.

Whatever the garbage collector knows is followed too. The walk stops at modules and classes: any code can import those.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.federation.folder import FolderShelf, Index, MessageForm, TensorPlace, _FinishedShelf
from fedxray.federation.recording.reader import Recording
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import MemoryShelf, Message, Transcript
from fedxray.federation.truth import Truth

SECRETS = (
    *(Truth, Federation, Transcript, Message, torch.Generator),
    *(MemoryShelf, FolderShelf, _FinishedShelf, Index, MessageForm, TensorPlace),
)
PLAIN = (str, bytes, int, float, complex, type(None), type, types.ModuleType, torch.dtype, torch.device)


def secrets_behind(view: View) -> list[str]:
    """The names of all things behind a view that no adversary may hold."""
    return [
        type(thing).__name__
        for thing in reachable(view)
        if isinstance(thing, SECRETS) or (isinstance(thing, Recording) and thing.messages)
    ]


def reachable(thing: Any) -> Iterator[Any]:
    """Everything that can be reached, each once; a view's channel is the one thing that may know the clients."""
    waiting, seen = [thing], {id(vars(module)): None for module in list(sys.modules.values())}
    while waiting:
        one = waiting.pop()
        if isinstance(one, PLAIN) or id(one) in seen:
            continue
        seen[id(one)] = one  # held, so that no id is given twice
        yield one
        waiting.extend(inside(one))


def texts_behind(thing: Any) -> list[str]:
    """All texts that can be reached, such as keys of messages."""
    return [text for one in reachable(thing) for text in inside(one) if isinstance(text, str)]


def inside(thing: Any) -> list[Any]:
    """What a thing refers to directly."""
    if isinstance(thing, Tensor):
        return [thing._base, thing.grad_fn] if thing.grad_fn is not None or thing._is_view() else []
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set | frozenset):
        return list(thing)
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, types.FunctionType):
        return [
            *_cells(thing),
            *(thing.__defaults__ or ()),
            *(thing.__kwdefaults__ or {}).values(),
            *vars(thing).values(),
        ]
    if isinstance(thing, weakref.ref):
        return [thing()]
    held = dict(getattr(thing, "__dict__", {}))
    if isinstance(thing, View):
        held.pop("channel")
        return list(held.values())
    slots = [getattr(thing, name, None) for kind in type(thing).__mro__ for name in _slots(kind)]
    return [*held.values(), *slots, getattr(thing, "__self__", None), *gc.get_referents(thing)]


def _cells(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a name that was never bound
            continue
    return found


def _slots(kind: type) -> tuple[str, ...]:
    named = vars(kind).get("__slots__", ())
    return (named,) if isinstance(named, str) else tuple(named)
