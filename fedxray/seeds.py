"""Random generators forked by name, so that a draw depends on its purpose and not on earlier draws.

`spell` turns settings into canonical text, part of every seed: catalogue names and settings, no names of our classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, SupportsInt

if TYPE_CHECKING:  # torch is imported where a generator or tensor is made: the judge of results needs only numbers
    import torch
    from torch import Tensor


def fork(root: int | torch.Generator, *names: object) -> torch.Generator:
    """A fresh CPU generator that depends only on the root's seed and the names, which say what it is for."""
    import torch

    return torch.Generator(device="cpu").manual_seed(derive_seed(root, *names))


def derive_seed(root: int | torch.Generator, *names: object) -> int:
    """A 63-bit seed that depends only on the root's seed and the names."""
    start = int(root) if isinstance(root, SupportsInt) else root.initial_seed()
    text = "\x1f".join([str(start), *(spell(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def spell(value: Any) -> str:
    """Canonical text of a setting: equal settings give equal text, also across processes and versions of Python."""
    if isinstance(value, str | float | int) or value is None:  # first, since most settings are
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{spell(k)}:{spell(value[k])}" for k in sorted(value, key=str)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(spell(item) for item in value) + "]"
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value) if not _is_as_before(field, value)}
        return f"{_label(type(value))}{spell(named)}"
    import torch

    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        digest = hashlib.sha256(plain.flatten().view(torch.uint8).numpy().data).hexdigest()
        return f"tensor({tuple(plain.shape)},{plain.dtype},{digest})"
    raise TypeError(f"a setting must be made of plain values, got {type(value).__name__}")


def _is_as_before(field: Field[Any], owner: Any) -> bool:
    """Whether a field was added later and holds its default: then texts stay as they were before it."""
    setting = field.metadata.get("setting")
    return setting is not None and setting.later and getattr(owner, field.name) == field.default


def _label(entry: type[Any]) -> str:
    """Name and kind of a catalogue entry, so that its class may be renamed; the full name of a user's own class."""
    if not entry.__module__.startswith("fedxray."):
        return f"{entry.__module__}:{entry.__qualname__}"
    labels = (getattr(entry, "name", entry.__name__), getattr(entry, "kind", None))
    return ":".join(label for label in labels if isinstance(label, str))


def normal_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal draws of the tensor's shape, made on the CPU, then moved to the tensor's device and dtype."""
    import torch

    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float32, device="cpu")
    return drawn.to(device=tensor.device, dtype=tensor.dtype)


def uniform_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform draws from [0, 1) of the tensor's shape, made on the CPU, then moved to the tensor's device and dtype."""
    import torch

    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float32, device="cpu")
    return drawn.to(device=tensor.device, dtype=tensor.dtype)


def permutation(count: int, generator: torch.Generator) -> Tensor:
    """A random order of 0..count-1 on the CPU, shape [count] int64."""
    import torch

    return torch.randperm(count, generator=generator, device="cpu")
