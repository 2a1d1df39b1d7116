"""One checkpoint as arrays: .safetensors, .pt or .pth, or an .npz in the network's order; nothing in it is executed.

Sizes are checked before anything is laid out: a tensor of one stored number may claim to be of any size.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedxray.data.limits import check_size
from fedxray.errors import BadInput
from fedxray.federation.recording.form import Arrays
from fedxray.federation.recording.writing import DTYPES
from fedxray.integrations.pickle_scan import Strange, look_through

INSIDE = ("state_dict", "model_state_dict", "model")  # where a saved dictionary may hold the weights
WRAPPED = "module."  # put before every name by DataParallel
UNNAMED = "arr_"  # put before every position by numpy.savez
AS_FLOAT = "Save the weights as float32."
STATE = "a file of tensors (torch.save(model.state_dict(), ...))"


def read_checkpoint(path: Path) -> Arrays:
    """The arrays of a checkpoint by name, or by position where they have none."""
    readers = {".safetensors": _safetensors, ".pt": _torch, ".pth": _torch, ".npz": _npz}
    if path.suffix.lower() not in readers:
        raise _bad(path, f"a file of {', '.join(readers)}", f"{path.suffix or 'no ending'}")
    if not path.is_file():
        raise _bad(path, "a file", "none", "Check the path.")
    check_size(f"checkpoint {str(path)!r}", path.stat().st_size)
    arrays = readers[path.suffix.lower()](path)
    if not arrays:
        raise _bad(path, "the weights of a network", "nothing")
    for name, value in arrays.items():
        if value.dtype.str not in DTYPES:
            raise _bad_tensor(path, name, f"numbers of {', '.join(DTYPES.values())}", value.dtype, AS_FLOAT)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            got = "NaN or infinity: the training had broken down"
            raise _bad_tensor(path, name, "finite numbers", got, "Give the checkpoint of an earlier round.")
    if all(name.startswith(WRAPPED) for name in arrays):
        arrays = {name.removeprefix(WRAPPED): value for name, value in arrays.items()}
    return arrays


def _safetensors(path: Path) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)
    except (SafetensorError, OSError, ValueError, LookupError, RuntimeError) as problem:
        raise _bad(path, "a safetensors file", problem) from problem
    return _from_torch(path, found)


def _torch(path: Path) -> Arrays:
    """Weights in a file of torch.save; anything but tensors and plain values is refused, never executed."""
    import torch
    from torch import serialization

    _check_unpacked(path)
    try:
        look_through(path)
    except Strange as problem:
        raise _bad(path, STATE, problem) from problem
    wrong: Any = serialization.pickle.UnpicklingError  # type: ignore[attr-defined]
    damaged = (RuntimeError, EOFError, OSError, ValueError, LookupError, AttributeError, TypeError)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except wrong as problem:
        foreign = re.search(r"GLOBAL (\S{1,100})", str(problem))
        got = "something else" if foreign is None else f"{foreign[1]}, which is not loaded"
        raise _bad(path, STATE, got) from problem
    except (*damaged, AssertionError, OverflowError, MemoryError) as problem:
        short = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise _bad(path, STATE, short) from problem
    for name in INSIDE:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise _bad(path, "a state dict: names and tensors", _kind(found))
    for name in found:
        if not isinstance(name, str):
            raise _bad(path, "a state dict: names and tensors", f"{name!r} in place of a name")
    return _from_torch(path, found)


def _check_unpacked(path: Path) -> None:
    """A file of torch.save is an archive, whose parts may be packed a thousandfold."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # of an older form, or damaged, which torch.load tells
    check_size(f"checkpoint {str(path)!r}, unpacked", size)


def _from_torch(path: Path, tensors: Mapping[str, Any]) -> Arrays:
    """Plain arrays of tensors; whatever is no plain tensor is refused before it is touched."""
    found: dict[str, Any] = {}
    total = 0
    for name, value in tensors.items():
        _check_plain(path, name, value)
        size = value.numel() * value.element_size()
        check_size(f"tensor {name!r} of checkpoint {str(path)!r}", size)
        total += size
    check_size(f"tensors of checkpoint {str(path)!r}", total)
    for name, value in tensors.items():
        found[name] = value.detach().resolve_neg().contiguous().numpy()
    return found


def _check_plain(path: Path, name: str, value: Any) -> None:
    import torch

    if value.is_nested or value.layout != torch.strided:
        kind = "a nested one" if value.is_nested else f"{str(value.layout).removeprefix('torch.')}"
        raise _bad_tensor(path, name, "a dense tensor", kind, "Save it dense: tensor.to_dense().")
    if value.device.type != "cpu":
        raise _bad_tensor(
            path,
            name,
            "a tensor with values",
            f"one on {value.device}",
            "Save a network that has its values.",
        )
    if value.is_quantized:
        raise _bad_tensor(path, name, "plain numbers", f"quantised ones ({value.dtype})", AS_FLOAT)
    try:
        torch.empty(0, dtype=value.dtype, device="cpu").numpy()
    except TypeError:
        raise _bad_tensor(path, name, "a dtype that NumPy knows", value.dtype, AS_FLOAT) from None
    if value.is_complex():
        raise _bad_tensor(path, name, "real numbers", value.dtype, AS_FLOAT)


def _npz(path: Path) -> Arrays:
    from fedxray.data.own_npz import read_arrays

    arrays = read_arrays(path)
    if all(name.startswith(UNNAMED) and name.removeprefix(UNNAMED).isdigit() for name in arrays):
        ordered = sorted(arrays, key=lambda name: int(name.removeprefix(UNNAMED)))
        return {str(place): np.asarray(arrays[name]) for place, name in enumerate(ordered)}
    return arrays


def _kind(found: object) -> str:
    if isinstance(found, Mapping):
        return f"a dictionary with {', '.join(str(name) for name in list(found)[:5])}"
    return type(found).__name__


def _bad(
    path: Path, expected: str, got: object, remedy: str = "Save the state dict of the network."
) -> BadInput:
    return BadInput(f"checkpoint {str(path)!r}", expected=expected, got=str(got)[:300], remedy=remedy)


def _bad_tensor(path: Path, name: str, expected: str, got: object, remedy: str) -> BadInput:
    return _bad(path, f"{expected} in tensor {name[:200]!r}", got, remedy)
