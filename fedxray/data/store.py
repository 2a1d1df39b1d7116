"""Data files on disk: the folder named by FEDXRAY_DATA, then the cache that `fedxray data get` fills.

Also the weights of LPIPS, which are found there, checked and never executed, or built from their sources.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import read_bytes
from fedxray.data.own_arrays import read_arrays
from fedxray.errors import BadInput, MissingData


def cache_folder() -> Path:
    """The folder for downloads: FEDXRAY_CACHE, or ~/.cache/fedxray."""
    named = os.environ.get("FEDXRAY_CACHE", "").strip()
    return Path(os.path.expanduser(named)) if named else Path.home() / ".cache" / "fedxray"


def folders() -> list[Path]:
    """The folders to look into, in this order."""
    named = os.environ.get("FEDXRAY_DATA", "").strip()
    return [*([Path(os.path.expanduser(named))] if named else []), cache_folder()]


def locate(name: str, relative: str, *, remedy: str = "") -> Path:
    """The first path that holds a file of a data set, packed as .gz or not; `remedy` replaces the usual one."""
    for folder in folders():
        for spelled in (relative, relative.removesuffix(".gz")):
            if (folder / spelled).exists():
                return folder / spelled
    raise MissingData(
        f"data set {name}",
        expected=f"the file {relative}",
        got=f"none in {' or '.join(str(folder) for folder in folders())}",
        remedy=remedy or f"Run `fedxray data get {name}`, or set FEDXRAY_DATA to a folder that has it.",
    )


def read_table(name: str, relative: str, *, remedy: str = "") -> dict[str, NDArray[Any]]:
    """The columns of a CSV file with a header, each as text [n]."""
    content = read_bytes(locate(name, relative, remedy=remedy))
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode(), newline="")) if line]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise wrong_content(name, f"a CSV file {relative}", problem) from problem
    return as_columns(name, lines[0] if lines else (), lines[1:])


def as_columns(name: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> dict[str, NDArray[Any]]:
    """Rows of text as columns of text, each [n]."""
    if not lines or any(len(line) != len(header) for line in lines):
        raise wrong_content(name, f"{len(header)} values in every row", "a shorter or longer row")
    return {column: np.array(values) for column, values in zip(header, zip(*lines, strict=True), strict=True)}


def read_named_arrays(name: str, relative: str, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file, which must hold the needed ones."""
    arrays = read_arrays(locate(name, relative))
    for key in needed:
        if key not in arrays:
            raise wrong_content(name, f"an array {key} in {relative}", f"only {', '.join(sorted(arrays))}")
    return arrays


def wrong_content(name: str, expected: str, got: object) -> BadInput:
    """The refusal of a file of the catalogue that is not what it should be."""
    remedy = f"Delete the file and run `fedxray data get {name}`."
    return BadInput(f"data set {name}", expected=expected, got=got, remedy=remedy)


# The weights of LPIPS

PLACE = "lpips/lpips_alex_v0.1.npz"
REMEDY = (
    "Run `fedxray data get lpips`, or put the file into a folder that FEDXRAY_DATA names; "
    "without it ask for psnr, ssim and retrieval."
)
# Channels in, channels out and side of the kernel, by layer
CHANNELS = ((3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3))
IN_ALEXNET = (0, 3, 6, 8, 10)  # indices of the convolutions among its layers


def lpips_weights(path: Path | None = None) -> dict[str, Tensor]:
    """The arrays conv0_w, conv0_b, lin0, ... of an NPZ file: the given one, or the one of the data folder."""
    file = locate("lpips", PLACE, remedy=REMEDY) if path is None else path
    if not file.is_file():
        raise BadInput("lpips", expected="a file of weights", got=f"no file {file}", remedy=REMEDY)
    arrays = read_arrays(file)
    for name, shape in shapes().items():
        array = arrays.get(name)
        if array is None or array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            raise BadInput(
                f"lpips: {file}",
                expected=f"an array {name} of shape {shape}, finite float32",
                got="none" if array is None else f"shape {array.shape} of {array.dtype}, or values not finite",
                remedy=REMEDY,
            )
    return {name: torch.from_numpy(arrays[name].copy()) for name in shapes()}


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays that the file must hold."""
    expected: dict[str, tuple[int, ...]] = {}
    for layer, (before, after, side) in enumerate(CHANNELS):
        expected |= {f"conv{layer}_w": (after, before, side, side), f"conv{layer}_b": (after,)}
        expected[f"lin{layer}"] = (after,)
    return expected


def build(files: Sequence[Path]) -> Mapping[str, Mapping[str, NDArray[Any]]]:
    """The file of weights from torchvision's AlexNet and the wheel of lpips 0.1.4."""
    alexnet = _tensors(files[0].read_bytes())
    with zipfile.ZipFile(files[1]) as wheel:
        linear = _tensors(wheel.read("lpips/weights/v0.1/alex.pth"))
    arrays = {}
    for layer, index in enumerate(IN_ALEXNET):
        arrays[f"conv{layer}_w"] = alexnet[f"features.{index}.weight"].numpy()
        arrays[f"conv{layer}_b"] = alexnet[f"features.{index}.bias"].numpy()
        arrays[f"lin{layer}"] = linear[f"lin{layer}.model.1.weight"].flatten().numpy()
    return {PLACE: arrays}


def _tensors(content: bytes) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return tensors
