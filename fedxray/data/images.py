"""Arrays of images as a data set: pixels in 0..1, channels first, resized and normalised where asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import plain_name, shown, whole_number
from fedxray.data.space import Dataset, Space
from fedxray.errors import BadInput, unknown_name


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
    """Images [n, height, width] or [n, height, width, channels], bytes or floats in 0..1, as a data set."""
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
    owners = None if owner is None else torch.from_numpy(number_owners(owner))
    return Dataset(
        name=name,
        x=space.from_pixels(x) if mean or std else x,
        y=torch.from_numpy(labels.astype(np.int64)),
        space=space,
        owner=owners,
        owners=() if owner is None else name_owners(owner),
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
    resized = torch.nn.functional.interpolate(
        x, size=size, mode="bilinear", align_corners=False, antialias=True
    )
    return resized.clamp(0.0, 1.0)


def image_size(size: object) -> tuple[int, int]:
    """Height and width from one number or a pair."""
    pair = size if isinstance(size, list | tuple) else (size, size)
    if len(pair) != 2:
        raise BadInput(
            "size",
            expected="one number or [height, width]",
            got=shown(size),
            remedy="For instance size = 32.",
        )
    return whole_number("size", pair[0], most=4096), whole_number("size", pair[1], most=4096)


def check_part(part: object) -> None:
    """Refuse a part that is neither train nor test."""
    if part not in ("train", "test"):
        raise unknown_name("part", str(part), ("train", "test"))


def number_owners(owner: NDArray[Any]) -> NDArray[np.int64]:
    """Owners numbered 0.. in sorted order, [n]."""
    index: NDArray[np.int64] = np.unique(owner, return_inverse=True)[1].astype(np.int64)
    return index


def name_owners(owner: NDArray[Any]) -> tuple[str, ...]:
    """What the owners of `number_owners` are called, in their order."""
    return tuple(plain_name(str(value)) for value in np.unique(owner))
