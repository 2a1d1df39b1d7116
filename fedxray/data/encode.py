"""Encoding of raw data: columns of a table as numbers, and arrays of pixels as images.

Numbers are standardised, categories one-hot without the first; scaling constants are taken over the whole data set, so
that they are a fact of the federation and name no client. Images are pixels in 0..1 with channels first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import check_size, plain_name, shown, whole_number
from fedxray.data.dataset import Column, Dataset, Space
from fedxray.errors import BadInput, unknown_name

Floats = NDArray[np.float64]
MOST_COLUMNS = 100_000  # of a table
BYTES_OF_CODE = 40  # of one number of a category's code


def standardise(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Values [n, k] minus their mean, divided by their deviation, and both [k]; a constant column becomes zero."""
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread = np.where(spread > 1e-12 * np.maximum(1.0, np.abs(mean)), spread, 1.0)
    return (values - mean) / spread, mean, spread


def encode_continuous(name: str, values: Floats, position: int) -> tuple[NDArray[np.float32], Column]:
    """A column of numbers, standardised, [n, 1]; `position` is its index in x."""
    encoded = scale_finite(name, values)[0][:, None]
    low, high = float(encoded.min()), float(encoded.max())
    return encoded, Column(name=name, kind="continuous", positions=(position,), low=low, high=high)


def scale_finite(name: str, values: Floats, *, scale: bool = True) -> tuple[NDArray[np.float32], float, float]:
    """Values [n] as float32, standardised or not, and their mean and deviation; refused where they overflow."""
    with np.errstate(all="ignore"):
        column = values[:, None]
        scaled, mean, spread = standardise(column) if scale else (column, np.zeros(1), np.ones(1))
        plain = scaled[:, 0].astype(np.float32)
    if not (np.isfinite(plain).all() and np.isfinite(mean).all() and np.isfinite(spread).all()):
        raise BadInput(
            f"column {shown(name)}",
            expected="numbers of ordinary size",
            got="values too large to compute with",
            remedy="Rescale the column, or leave it out with drop.",
        )
    return plain, float(mean[0]), float(spread[0])


def encode_categorical(
    name: str, values: NDArray[Any], position: int, *, keep_first: bool = False, scale: bool = True
) -> tuple[NDArray[np.float32], Column]:
    """A column of categories, one-hot without the first, standardised or 0 and 1, [n, categories - 1].

    `position` is the index of its first entry in x. At least one entry is left; `keep_first` keeps that of the first
    category too where there are more than two.
    """
    categories, index = distinct(values)
    check_size(f"column {shown(name)}, encoded", len(categories) * (BYTES_OF_CODE * len(categories) + 4 * len(values)))
    dropped = 0 if keep_first and len(categories) > 2 else 1
    table = np.eye(len(categories), dtype=np.float64)[:, dropped:]  # [categories, positions]
    if len(categories) == 1:
        table = np.zeros((1, 1), dtype=np.float64)
    if scale:
        counts = np.bincount(index, minlength=len(categories))
        mean = counts @ table / len(values)
        spread = np.sqrt(counts @ (table - mean) ** 2 / len(values))
        table = (table - mean) / np.where(spread > 0, spread, 1.0)
    codes = table.astype(np.float32)
    column = Column(
        name=name,
        kind="categorical",
        positions=tuple(range(position, position + codes.shape[1])),
        categories=tuple(spell_category(value) for value in categories),
        codes=tuple(tuple(float(number) for number in code) for code in codes),
    )
    return codes[index], column


def distinct(values: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values in order, and the index of each value among them [n]; np.unique is slow on text."""
    plain = values.tolist()
    ordered = sorted(set(plain))
    index = {value: number for number, value in enumerate(ordered)}
    return ordered, np.array([index[value] for value in plain], dtype=np.int64)


def spell_category(value: object) -> str:
    """A category as text; whole floats lose their point, so that 1.0 reads 1."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def encode_all(
    raw: Mapping[str, NDArray[Any]],
    continuous: Sequence[str],
    categorical: Sequence[str],
    *,
    keep_first: bool = False,
    unscaled: Sequence[str] = (),
) -> tuple[Tensor, tuple[Column, ...]]:
    """All features side by side, [n, width] float32, numbers first; `unscaled` categories stay 0 and 1."""
    blocks: list[NDArray[np.float32]] = []
    columns: list[Column] = []
    position = 0
    numbers = frozenset(continuous)
    for name in (*continuous, *categorical):
        if name in numbers:
            block, column = encode_continuous(name, raw[name].astype(np.float64), position)
        else:
            block, column = encode_categorical(
                name, raw[name], position, keep_first=keep_first, scale=name not in unscaled
            )
        blocks.append(block)
        columns.append(column)
        position += block.shape[1]
    return torch.from_numpy(np.concatenate(blocks, axis=1)), tuple(columns)


def make_table(
    name: str,
    raw: Mapping[str, NDArray[Any]],
    *,
    target: str,
    classification: bool,
    continuous: Sequence[str] = (),
    categorical: Sequence[str] = (),
    sensitive: str | None = None,
    scale_target: bool = False,
    keep_first: bool = False,
    unscaled: Sequence[str] = (),
    owner: NDArray[np.int64] | None = None,
    owners: tuple[str, ...] = (),
    private: bool = False,
    note: str = "",
) -> Dataset:
    """A table as the model gets it; scaling constants are taken over all records of the data set.

    `raw` holds every column [n] by name, the target among them; `continuous` and `categorical` name the features.
    """
    x, columns = encode_all(raw, continuous, categorical, keep_first=keep_first, unscaled=unscaled)
    y, classes, centre, spread = encode_target(raw[target], target, classification, scale_target)
    space = Space(
        kind="table",
        shape=(int(x.shape[1]),),
        target="classification" if classification else "regression",
        classes=classes,
        columns=columns,
        sensitive=check_sensitive(sensitive, columns),
        target_mean=centre,
        target_std=spread,
        target_name=target,
    )
    return Dataset(
        name=name,
        x=x,
        y=y,
        space=space,
        raw=dict(raw),
        owner=None if owner is None else torch.from_numpy(owner),
        owners=owners,
        private=private,
        note=note,
    )


def encode_target(
    values: NDArray[Any], target: str, classification: bool, scale_target: bool
) -> tuple[Tensor, tuple[str, ...], float, float]:
    """Class numbers or values [n], class names, and the mean and deviation by which the target was scaled."""
    if classification:
        if scale_target:
            expected, remedy = "a regression target", "Leave scale_target out."
            raise BadInput("scale_target", expected=expected, got=f"classes in {shown(target)}", remedy=remedy)
        classes, index = distinct(values)
        return (torch.from_numpy(index), tuple(spell_category(value) for value in classes), 0.0, 1.0)
    plain, mean, spread = scale_finite(target, values.astype(np.float64), scale=scale_target)
    return torch.from_numpy(plain), (), mean, spread


def check_sensitive(sensitive: str | None, columns: Sequence[Column]) -> str | None:
    """The sensitive column's raw name, refused where it is no feature or has one value only."""
    if sensitive is None:
        return None
    for column in columns:
        if column.name == sensitive:
            values = len(column.codes) if column.kind == "categorical" else 2 - (column.low == column.high)
            if values < 2:
                raise BadInput(
                    "sensitive",
                    expected="a column with at least two values",
                    got=f"{shown(sensitive)}, always the same",
                    remedy="Choose another column.",
                )
            return sensitive
    raise unknown_name("sensitive", sensitive, [column.name for column in columns])


# Images


def make_images(
    name: str,
    pixels: NDArray[Any],
    labels: NDArray[Any],
    *,
    classes: Sequence[str],
    size: object = None,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    owner: NDArray[Any] | None = None,
    recognised_above: float = 20.0,
    private: bool = False,
    note: str = "",
) -> Dataset:
    """Images [n, height, width] or [n, height, width, channels], bytes or floats in 0..1, as a data set.

    `size` resizes them; `mean` and `std` per channel normalise them; `owner` [n] names the client of each image.
    """
    x = as_channels_first(pixels)
    if size is not None:
        x = resize(x, image_size(size))
    channels, height, width = (int(extent) for extent in x.shape[1:])
    space = Space(
        kind="image",
        shape=(channels, height, width),
        target="classification",
        classes=tuple(classes),
        mean=mean,
        std=std,
        recognised_above=recognised_above,
    )
    index, owners = owners_of(owner)
    return Dataset(
        name=name,
        x=space.from_pixels(x) if mean or std else x,
        y=torch.from_numpy(labels.astype(np.int64)),
        space=space,
        owner=None if index is None else torch.from_numpy(index),
        owners=owners,
        raw={} if owner is None else {"owner": owner},
        private=private,
        note=note,
    )


def as_channels_first(pixels: NDArray[Any]) -> Tensor:
    """Pixels in 0..1, [n, channels, height, width] float32."""
    array = pixels.astype(np.float32)
    if pixels.dtype == np.uint8:
        array /= np.float32(255.0)
    array = array[:, None] if array.ndim == 3 else np.moveaxis(array, 3, 1)
    return torch.from_numpy(np.ascontiguousarray(array))


def resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Images [n, c, h, w] at another size, area-averaged when shrinking, kept in 0..1."""
    if tuple(x.shape[2:]) == size:
        return x
    resized = torch.nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=True)
    return resized.clamp(0.0, 1.0)


def image_size(size: object) -> tuple[int, int]:
    """Height and width from one number or a pair."""
    pair = size if isinstance(size, list | tuple) else (size, size)
    if len(pair) != 2:
        raise BadInput(
            "size", expected="one number or [height, width]", got=shown(size), remedy="For instance size = 32."
        )
    return whole_number("size", pair[0], most=4096), whole_number("size", pair[1], most=4096)


def check_part(part: object) -> None:
    """Refuse a part that is neither train nor test."""
    if part not in ("train", "test"):
        raise unknown_name("part", str(part), ("train", "test"))


def owners_of(owner: NDArray[Any] | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Owners [n] numbered 0.. in sorted order, and their names in that order; None and nothing where there are none."""
    if owner is None:
        return None, ()
    names, index = np.unique(owner, return_inverse=True)
    return index.astype(np.int64), tuple(plain_name(str(name)) for name in names)
