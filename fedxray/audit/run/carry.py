"""Views and settings as plain values and tensors, on their way to a process that holds nothing else; never pickled.

Parameters that a view fetches when they are first used stay with the audit and are asked for by number. Networks,
defences and attacks of the user's are made again from the plan; a network then gets the weights of the view's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.audit.plan.schema import AttackPart, DefencePart, ModelPart
from fedxray.audit.run.stated import StatedDefence
from fedxray.defences.base import Defence
from fedxray.errors import BadInput
from fedxray.lookup import load, ships
from fedxray.params import Late, Params
from fedxray.seeds import fork


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The tables of a plan from which a process makes the attack, the network and the defence of a case."""

    attack: AttackPart
    model: ModelPart
    defence: DefencePart
    folder: Path


@dataclass(frozen=True)
class Packed:
    """Plain values with the tensors and the parameters, fetched when asked for, that they refer to by number."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    late: list[Late] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # by the identity of those parameters

    def plain(self, value: Any) -> Any:
        """Return a value in the types of JSON."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Tensor):
            name = str(len(self.tensors))
            self.tensors[name] = value
            return {"tensor": name, "device": str(value.device)}
        if isinstance(value, Late):
            if id(value) not in self.numbers:
                self.numbers[id(value)] = len(self.late)
                self.late.append(value)
            return {"late": self.numbers[id(value)]}
        if isinstance(value, Mapping):
            return {"table": [[self.plain(key), self.plain(entry)] for key, entry in value.items()]}
        if isinstance(value, list | tuple):
            return {"list" if isinstance(value, list) else "tuple": [self.plain(entry) for entry in value]}
        if isinstance(value, nn.Module):
            return {"network": self._network(value)}
        if isinstance(value, StatedDefence) or (isinstance(value, Defence) and not _is_ours(value)):
            return {"defence": None}
        if is_dataclass(value) and ships(type(value)):
            return {
                "object": f"{type(value).__module__}:{type(value).__name__}",
                "fields": {entry.name: self.plain(getattr(value, entry.name)) for entry in fields(value)},
            }
        expected = "settings of numbers, texts, lists and attacks"
        raise BadInput("attack", expected=expected, got=type(value).__name__, remedy="Make it in the factory.")

    def _network(self, model: nn.Module) -> Any:
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {
            "state": self.plain(state),
            "trained": [name for name, value in model.named_parameters() if value.requires_grad],
            "modes": [module.training for module in model.modules()],
        }

    def view(self, view: View) -> dict[str, Any]:
        """Return a view; of its channel only whether there is one."""
        seen = {entry.name: getattr(view, entry.name) for entry in fields(view)}
        return {name: self.plain(value is not None if name == "channel" else value) for name, value in seen.items()}


def _is_ours(value: Any) -> bool:
    """Return whether an object of settings and all that it holds are fedxray's own."""
    if isinstance(value, list | tuple):
        return all(map(_is_ours, value))
    if not is_dataclass(value):
        return True
    return ships(type(value)) and all(_is_ours(getattr(value, entry.name)) for entry in fields(value))


@dataclass(frozen=True)
class Unpacked:
    """The way back, in the other process; `fetch` gets parameters by their number from the audit."""

    tensors: Mapping[str, Tensor]
    fetch: Callable[[int], Params]
    parts: Parts
    known: dict[int, Late] = field(default_factory=dict)

    def value(self, plain: Any) -> Any:
        """Return the value of plain ones."""
        if not isinstance(plain, dict):
            return plain
        if "tensor" in plain:
            return self.tensors[plain["tensor"]].to(plain["device"])
        if "late" in plain:
            number = plain["late"]
            return self.known.setdefault(number, Late(lambda: self.fetch(number)))
        if "table" in plain:
            return {self.value(key): self.value(entry) for key, entry in plain["table"]}
        if "list" in plain:
            return [self.value(entry) for entry in plain["list"]]
        if "tuple" in plain:
            return tuple(self.value(entry) for entry in plain["tuple"])
        if "defence" in plain:
            return self.parts.defence.make(self.parts.folder)
        return load(plain["object"])(**{name: self.value(entry) for name, entry in plain["fields"].items()})

    def view(self, plain: Mapping[str, Any], channel: Any) -> View:
        """Return the view, with this channel where it had one."""
        seen = {name: self.value(entry) for name, entry in plain.items() if name not in ("model", "channel")}
        model = self._network(plain["model"]["network"], seen["space"])
        return View(**seen, model=model, channel=channel if plain["channel"] else None)

    def _network(self, plain: Mapping[str, Any], space: Any) -> nn.Module:
        """Return the network of the plan with these weights; those that it draws itself are replaced."""
        model = self.parts.model.make(space, fork(0, "replaced"), self.parts.folder)
        state = self.value(plain["state"])
        floats = [value.dtype for value in state.values() if value.is_floating_point()]
        model = model.to(floats[0]) if floats else model
        trained = set(plain["trained"])
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.data = state[name]
                value.requires_grad_(name in trained)
            for name, buffer in model.named_buffers():
                buffer.data = state[name]
        for module, training in zip(model.modules(), plain["modes"], strict=True):
            module.training = training
        return model


def table_of(part: AttackPart | ModelPart | DefencePart) -> dict[str, Any]:
    """Return what a part of the plan is made from: its name or factory, and its settings."""
    named = {"name": part.name, "factory": part.factory}
    return {key: value for key, value in named.items() if value is not None} | part.settings
