"""The weights of LPIPS: found in the data folder or the cache, checked, never executed; or built from their sources."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.own_npz import read_arrays
from fedxray.data.store import locate
from fedxray.errors import BadInput

PLACE = "lpips/lpips_alex_v0.1.npz"
REMEDY = (
    "Run `fedxray data get lpips`, or put the file into a folder that FEDXRAY_DATA names; "
    "without it ask for psnr, ssim and retrieval."
)
CHANNELS = (
    (3, 64, 11),
    (64, 192, 5),
    (192, 384, 3),
    (384, 256, 3),
    (256, 256, 3),
)  # in, out, side of the kernel
IN_ALEXNET = (0, 3, 6, 8, 10)  # places of the convolutions


def lpips_weights(path: Path | None = None) -> dict[str, Tensor]:
    """The arrays conv0_w, conv0_b, lin0, ... of an NPZ file: the given one, or the one of the data folder."""
    file = locate("lpips", PLACE, remedy=REMEDY) if path is None else path
    if not file.is_file():
        raise BadInput("lpips", expected="a file of weights", got=f"no file {file}", remedy=REMEDY)
    arrays = read_arrays(file)
    for name, shape in shapes().items():
        found = arrays.get(name)
        if found is None or found.shape != shape or found.dtype != np.float32 or not np.isfinite(found).all():
            raise BadInput(
                f"lpips: {file}",
                expected=f"an array {name} of shape {shape}, finite float32",
                got="none"
                if found is None
                else f"shape {found.shape} of {found.dtype}, or values not finite",
                remedy=REMEDY,
            )
    return {name: torch.from_numpy(arrays[name].copy()) for name in shapes()}


def shapes() -> dict[str, tuple[int, ...]]:
    """What the file must hold."""
    found: dict[str, tuple[int, ...]] = {}
    for layer, (before, after, side) in enumerate(CHANNELS):
        found |= {f"conv{layer}_w": (after, before, side, side), f"conv{layer}_b": (after,)}
        found[f"lin{layer}"] = (after,)
    return found


def build(files: Sequence[Path]) -> Mapping[str, Mapping[str, NDArray[Any]]]:
    """The file of weights from torchvision's AlexNet and the wheel of lpips 0.1.4."""
    alexnet = _tensors(files[0].read_bytes())
    with zipfile.ZipFile(files[1]) as wheel:
        linear = _tensors(wheel.read("lpips/weights/v0.1/alex.pth"))
    arrays = {}
    for layer, place in enumerate(IN_ALEXNET):
        arrays[f"conv{layer}_w"] = alexnet[f"features.{place}.weight"].numpy()
        arrays[f"conv{layer}_b"] = alexnet[f"features.{place}.bias"].numpy()
        arrays[f"lin{layer}"] = linear[f"lin{layer}.model.1.weight"].flatten().numpy()
    return {PLACE: arrays}


def _tensors(content: bytes) -> dict[str, Tensor]:
    found: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return found
