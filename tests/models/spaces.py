"""Spaces that the model tests share."""

from __future__ import annotations

from fedxray.data.dataset import Space


def images(classes: int, channels: int, height: int, width: int | None = None) -> Space:
    names = tuple(str(number) for number in range(classes))
    shape = (channels, height, height if width is None else width)
    return Space(kind="image", shape=shape, target="classification", classes=names)


def table(columns: int, classes: int = 0) -> Space:
    names = tuple(str(number) for number in range(classes))
    target = "classification" if classes else "regression"
    return Space(kind="table", shape=(columns,), target=target, classes=names)
