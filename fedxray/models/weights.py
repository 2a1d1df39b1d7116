"""Initial weights of a network from a file: safetensors or NPZ, by the network's own names or as flax names them."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from fedxray.data.checks import missing_file, read_bytes, shown
from fedxray.data.own_arrays import read_arrays
from fedxray.data.store import folders
from fedxray.errors import BadInput, some

ARGUMENT = "model.weights"
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
REMEDY = "Save `model.state_dict()` with safetensors, or as an NPZ of its arrays."


def weights_path(named: str, folder: Path) -> Path:
    """Return the file beside the plan, or else in a data folder (FEDXRAY_DATA)."""
    named = os.path.expanduser(named)
    candidates = [(place / named).absolute() for place in (folder, *folders())]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise missing_file(candidates[0])
    return found


def load_weights(model: nn.Module, path: Path) -> None:
    """Replace the parameters (and the buffers that the file names) of a network; dtype and device stay."""
    given = _read(path)
    if any(name.endswith("/kernel") for name in given):
        given = _from_flax(given, model)
    own = model.state_dict()
    missing = [name for name, _ in model.named_parameters() if name not in given]
    unknown = [name for name in given if name not in own]
    if missing or unknown:
        got = (
            f"without {some(list(map(shown, missing)))}"
            if missing
            else f"with {some(list(map(shown, unknown)))} beside them"
        )
        raise _bad(path, f"the parameters {some(list(own))}", got)
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise _bad(path, f"{name} of shape {list(own[name].shape)}", f"shape {list(value.shape)}")
        if own[name].is_floating_point() and value.dtype not in REAL:
            raise _bad(path, f"real numbers in {name}", str(value.dtype).removeprefix("torch."))
        given[name] = value.to(own[name].dtype)
        if not given[name].isfinite().all():
            raise _bad(path, f"finite numbers as {own[name].dtype}".replace("torch.", ""), f"others in {name}")
    model.load_state_dict({**own, **given})


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        wrong = [name for name, array in arrays.items() if array.dtype.kind not in "fiub"]
        if wrong:
            raise _bad(path, "arrays of numbers", f"{arrays[wrong[0]].dtype} in {shown(wrong[0])}")
        return {name: torch.tensor(array.astype(array.dtype.newbyteorder("="))) for name, array in arrays.items()}
    try:
        return load(read_bytes(path))
    except (SafetensorError, ValueError, KeyError) as problem:  # a KeyError for a dtype that torch lacks
        raise _bad(path, "a safetensors or .npz file", f"{type(problem).__name__}: {problem}") from problem


def _from_flax(given: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Weights of flax layers (`Conv_0/kernel`, `Conv_0/bias`, ...) under the names of our layers, taken in order.

    Kernels are turned from [height, width, in, out] and [in, out]; a dense layer behind a convolution reads its inputs
    as (height, width, channels) in flax and as (channels, height, width) here.
    """
    theirs = [name.removesuffix("/kernel") for name in given if name.endswith("/kernel")]
    ours = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    converted: dict[str, Tensor] = {}
    channels = 0  # of the convolution before
    for name, (own, layer) in zip(theirs, ours, strict=False):
        kernel = given[f"{name}/kernel"]
        if kernel.ndim == 4:
            channels = kernel.shape[3]
            converted[f"{own}.weight"] = kernel.permute(3, 2, 0, 1)
        elif kernel.ndim == 2:
            area = kernel.shape[0] // channels if channels and kernel.shape[0] % channels == 0 else 0
            if area:
                kernel = kernel.view(area, channels, -1).transpose(0, 1).reshape(kernel.shape)
            converted[f"{own}.weight"], channels = kernel.T, 0
        if f"{name}/bias" in given and layer.bias is not None:
            converted[f"{own}.bias"] = given[f"{name}/bias"]
    return converted


def _bad(path: Path, expected: str, got: str) -> BadInput:
    return BadInput(ARGUMENT, expected=f"{expected} in {shown(path.name)}", got=got, remedy=REMEDY)
