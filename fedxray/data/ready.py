"""Own arrays as a network gets them: nothing is scaled, cut or renamed, so that they are those of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedxray.data.checks import plain_name, shown, whole_number
from fedxray.data.columns import check_sensitive
from fedxray.data.images import name_owners, number_owners
from fedxray.data.own_npz import bad_npz, check_lengths, check_values, read_arrays
from fedxray.data.space import Column, Dataset, Space
from fedxray.data.uses import USE, check_uses
from fedxray.errors import BadInput

MOST_CODES = 1000  # different values of one group of positions


def ready_npz(
    path: Path,
    *,
    sensitive: str | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    classes: int | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    use: str | None = None,
) -> Dataset:
    """Arrays x [n, columns] or images [n, channels, height, width], and y, all used as they are.

    `groups` names positions of x that encode one raw column, as { region = [3, 4, 5] }; a table's other columns are
    called x0, x1, ... `mean` and `std` say how images were normalised, so that pixels can be shown.
    """
    arrays = read_arrays(path)
    for needed in ("x", "y", *([use] if use else [])):
        if needed not in arrays:
            raise bad_npz(
                path, f"an array {needed}", f"only {', '.join(sorted(map(shown, arrays))) or 'none'}"
            )
    check_lengths(path, arrays)
    for name in ("x", "y"):
        check_values(path, name, arrays[name])
    x, y, client = arrays["x"], arrays["y"], arrays.get("client")
    if x.ndim == 3:
        raise bad_npz(path, "x of shape [n, columns] or [n, channels, height, width]", f"shape {x.shape}")
    space = _space(path, x, y, sensitive, groups, classes, mean, std)
    raw: dict[str, NDArray[Any]] = {} if use is None else {USE: check_uses(path, use, arrays[use], len(x))}
    return Dataset(
        name=plain_name(path.name),
        x=torch.from_numpy(np.array(x, dtype=np.float32)),
        y=torch.from_numpy(y.astype(np.int64 if space.target == "classification" else np.float32)),
        space=space,
        raw=raw,
        owner=None if client is None else torch.from_numpy(number_owners(client)),
        owners=() if client is None else name_owners(client),
        private=True,
        note="A user's own arrays, as the network gets them.",
    )


def _space(
    path: Path, x: NDArray[Any], y: NDArray[Any], sensitive: str | None,
    groups: Mapping[str, Sequence[int]] | None, classes: int | None, mean: Sequence[float], std: Sequence[float],
) -> Space:  # fmt: skip
    """What the arrays say about their own kind."""
    classification = y.dtype.kind in "biu"
    if y.dtype.kind not in "biuf":
        raise bad_npz(path, "y as class numbers or as numbers", f"dtype {y.dtype}")
    names = _class_names(path, y, classes) if classification else ()
    target: Any = "classification" if classification else "regression"
    if x.ndim == 4:
        for argument, given in (("sensitive", sensitive), ("groups", groups)):
            if given is not None:
                raise BadInput(argument, expected="a table", got="images", remedy=f"Leave {argument} out.")
        for argument, values in (("mean", mean), ("std", std)):
            if values and len(values) not in (1, x.shape[1]):
                expected = f"one number, or one for each of {x.shape[1]} channels"
                raise BadInput(argument, expected=expected, got=list(values), remedy="Give as many.")
        return Space(
            kind="image", shape=x.shape[1:], target=target, classes=names, mean=tuple(mean), std=tuple(std)
        )
    columns = _columns(x, groups or {})
    return Space(
        kind="table",
        shape=(x.shape[1],),
        target=target,
        classes=names,
        columns=columns,
        sensitive=check_sensitive(sensitive, columns),
        target_name="y",
    )


def _class_names(path: Path, y: NDArray[Any], classes: int | None) -> tuple[str, ...]:
    """Classes 0, 1, ...; a node need not hold all of them, so their number may be given."""
    count = int(y.max()) + 1 if classes is None else whole_number("classes", classes, least=2, most=10_000)
    if int(y.min()) < 0 or int(y.max()) >= count or count < 2:
        raise bad_npz(path, f"class numbers from 0 to {count - 1} in y", f"{int(y.min())} to {int(y.max())}")
    return tuple(str(number) for number in range(count))


def _columns(x: NDArray[Any], groups: Mapping[str, Sequence[int]]) -> tuple[Column, ...]:
    """One column per position, and one per group of positions; values that were seen are the candidates."""
    width, owner = x.shape[1], {}
    for name, positions in groups.items():
        for position in positions:
            if not isinstance(position, int) or not 0 <= position < width or position in owner:
                raise BadInput(
                    f"groups.{name}",
                    expected=f"positions from 0 to {width - 1}, each in one group",
                    got=shown(list(positions)),
                    remedy="Count the columns of x from 0.",
                )
            owner[position] = name
    found: dict[str, Column] = {}
    for position in range(width):
        name = owner.get(position, f"x{position}")
        if name not in found:
            found[name] = _column(name, tuple(groups.get(name, (position,))), x, grouped=position in owner)
    return tuple(found.values())


def _column(name: str, positions: tuple[int, ...], x: NDArray[Any], *, grouped: bool) -> Column:
    values = x[:, list(positions)].astype(np.float32)
    codes = np.unique(values, axis=0)
    if not grouped and len(codes) != 2:
        low, high = float(values.min()), float(values.max())
        return Column(name=name, kind="continuous", positions=positions, low=low, high=high)
    if len(codes) > MOST_CODES:
        raise BadInput(
            f"groups.{name}",
            expected=f"at most {MOST_CODES} different values",
            got=len(codes),
            remedy="Leave a column of numbers out of groups.",
        )
    return Column(
        name=name,
        kind="categorical",
        positions=positions,
        categories=tuple(str(number) for number in range(len(codes))),
        codes=tuple(tuple(float(number) for number in code) for code in codes),
    )
