"""A user's own NPZ file with x, y and optionally client: read without pickle, headers are not trusted.

`own_npz` encodes the arrays like a table or images; `ready_npz` uses them exactly as a network got them, so that they
are the records of a recording.
"""

from __future__ import annotations

import io
import math
import re
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedxray.data.checks import (
    check_size,
    names,
    plain_name,
    read_bytes,
    read_member,
    shown,
    unknown_column,
    whole_number,
)
from fedxray.data.dataset import USE, Column, Dataset, Space, check_uses
from fedxray.data.encode import MOST_COLUMNS, check_sensitive, make_images, make_table, owners_of, spell_category
from fedxray.data.own_csv import check_names
from fedxray.data.subjects import number_subjects
from fedxray.errors import BadInput, some

MOST_CLASSES = 10_000
# What NumPy writes; matched instead of evaluated, because the file is not trusted.
HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<>|](b1|[iu][1248]|f[248]|U\d{1,6}))', 'fortran_order': (?P<order>True|False), "
    rb"'shape': \((?P<shape>|\d{1,18},|\d{1,18}(, \d{1,18}){1,7})\), \}\s*"
)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an NPZ file; sizes are checked before anything is unpacked."""
    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            check_size(f"file {shown(str(path), longest=400)}, unpacked", sum(member.file_size for member in members))
            return {_array_name(member, path): _read_array(read_member(archive, member), path) for member in members}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError) as problem:
        raise bad_npz(path, "an NPZ file", f"{type(problem).__name__}: {problem}") from problem


def _array_name(member: zipfile.ZipInfo, path: Path) -> str:
    plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not member.flag_bits & 1
    if not member.filename.endswith(".npy") or not plain:
        raise bad_npz(path, "arrays stored or deflated as NAME.npy", shown(member.filename))
    return member.filename.removesuffix(".npy")


def _read_array(content: bytes, path: Path) -> NDArray[Any]:
    """One array from the bytes of an NPY file; no objects, and its size must match the header."""
    width = 2 if content[6:8] == b"\x01\x00" else 4  # bytes of the header's length, in format 1 and 2
    start = 8 + width
    end = start + int.from_bytes(content[8:start], "little")
    header = HEADER.fullmatch(content[start:end])
    if content[:6] != b"\x93NUMPY" or header is None:
        raise bad_npz(path, "a plain NPY header of numbers or text", shown(content[:200]))
    dtype = np.dtype(header["dtype"].decode())
    shape = tuple(int(extent) for extent in header["shape"].replace(b",", b" ").split())
    if math.prod(shape) * dtype.itemsize != len(content) - end or dtype.itemsize == 0:
        raise bad_npz(path, f"{len(content) - end} bytes of values", f"shape {shape} of {dtype}")
    order: Literal["F", "C"] = "F" if header["order"] == b"True" else "C"
    array: NDArray[Any] = np.frombuffer(content, dtype=dtype, offset=end).reshape(shape, order=order)
    if dtype.kind == "U":
        codes = np.frombuffer(content, np.dtype("u4").newbyteorder(dtype.byteorder), offset=end)
        if codes.max(initial=0) > sys.maxunicode:
            raise bad_npz(path, "text of Unicode characters", f"the number {codes.max():,} as a character")
    return array


def own_npz(
    path: Path,
    *,
    sensitive: str | None = None,
    categorical: Sequence[str] = (),
    scale_target: bool | None = None,
    size: object = None,
    subject: str | None = None,
) -> Dataset:
    """Images [n, h, w], [n, h, w, c] or [n, c, h, w], or a table [n, columns] named x0, x1, ..., with y.

    `subject` names an array that identifies the person of each record.
    """
    arrays = _checked_arrays(path, ("x", "y"))
    x, y, client, people = arrays["x"], arrays["y"], arrays.get("client"), _subjects(path, arrays, subject)
    if x.ndim == 2:
        if size is not None:
            raise BadInput("size", expected="images", got="a table", remedy="Leave size out.")
        return replace(_table(path, x, y, client, sensitive, categorical, scale_target), subject=people)
    given = {"sensitive": sensitive, "categorical": categorical or None, "scale_target": scale_target}
    for argument in (key for key, value in given.items() if value is not None):
        raise BadInput(argument, expected="a table", got="images", remedy=f"Leave {argument} out.")
    classes, labels = _classes(path, y)
    pixels = _pixels(path, x)
    images = make_images(
        plain_name(path.name),
        pixels,
        labels,
        classes=classes,
        size=size,
        owner=client,
        private=True,
        note="A user's own images.",
    )
    return replace(images, subject=people)


def _subjects(path: Path, arrays: Mapping[str, NDArray[Any]], subject: str | None) -> Tensor | None:
    """The number [records] of every record's person; None where no array is named."""
    if subject is None:
        return None
    others = [name for name in arrays if name not in ("x", "y")]
    if subject not in others:
        expected, remedy = f"an array of {plain_name(path.name)} beside x and y", f"It has: {some(others) or 'none'}."
        raise BadInput("subject", expected=expected, got=shown(subject), remedy=remedy)
    values = arrays[subject]
    if values.shape != (len(arrays["x"]),) or values.dtype.kind not in "biuU":
        expected = f"one whole number or text for each of {len(arrays['x'])} records"
        got = f"{values.dtype} of shape {values.shape}"
        raise BadInput("subject", expected=expected, got=got, remedy="Number the people from 0.")
    return number_subjects(values)


def _table(
    path: Path,
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[Any] | None,
    sensitive: str | None,
    categorical: Sequence[str],
    scale_target: bool | None,
) -> Dataset:
    """A table x [n, columns] with y [n]; columns of two values are categories."""
    columns = [f"x{index}" for index in range(x.shape[1])]
    for name in names("categorical", categorical):
        if name not in columns:
            raise unknown_column("categorical", name, path.name, columns)
    raw: dict[str, NDArray[Any]] = {name: x[:, index].astype(np.float64) for index, name in enumerate(columns)}
    named = frozenset(categorical)
    grouped = {name: None for name in columns if name in named or len(np.unique(raw[name])) == 2}
    owner, owners = owners_of(client)
    classification = y.dtype.kind in "biuU"
    if classification:
        _classes(path, y)
    elif y.min() == y.max():
        raise bad_npz(path, "different values in y", "one")
    return make_table(
        plain_name(path.name),
        raw | {"y": y},
        target="y",
        classification=classification,
        continuous=[name for name in columns if name not in grouped],
        categorical=list(grouped),
        sensitive=sensitive,
        scale_target=bool(scale_target) if classification else scale_target is None or scale_target,
        owner=owner,
        owners=owners,
        private=True,
        note="A user's own table.",
    )


def _pixels(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    """Images with channels last, bytes or floats in 0..1."""
    if x.ndim == 4 and x.shape[1] in (1, 3):
        x = np.moveaxis(x, 1, 3)
    elif x.ndim == 4 and x.shape[3] not in (1, 3):
        raise bad_npz(path, "images of 1 or 3 channels", f"x of shape {x.shape}")
    if x.dtype != np.uint8 and (x.dtype.kind != "f" or x.min() < 0 or x.max() > 1):
        raise bad_npz(path, "image values as bytes or as floats from 0 to 1", f"{x.dtype} from {x.min()} to {x.max()}")
    return x


def _classes(path: Path, y: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names of the classes, and the class number of each record [n]."""
    if y.dtype.kind not in "biuU":
        raise bad_npz(path, "whole numbers or text as classes in y", f"dtype {y.dtype}")
    values, labels = np.unique(y, return_inverse=True)
    spelled = tuple(spell_category(value) for value in values)
    if not 2 <= len(values) <= MOST_CLASSES or not all(text.isprintable() for text in spelled):
        raise bad_npz(path, f"2 to {MOST_CLASSES} printable classes in y", f"{len(values)}")
    return spelled, labels.astype(np.int64)


def _checked_arrays(path: Path, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """All arrays of a file, refused where a needed one is missing or they are not finite records."""
    arrays = read_arrays(path)
    for name in needed:
        if name not in arrays:
            raise bad_npz(path, f"an array {name}", f"only {some(sorted(map(shown, arrays)))}")
    check_lengths(path, arrays)
    for name in ("x", "y"):
        check_values(path, name, arrays[name])
    return arrays


def check_lengths(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse arrays whose shapes are not those of records, with one entry of y and client for each."""
    x = arrays["x"]
    if x.ndim == 2 and x.shape[1] > MOST_COLUMNS:
        raise bad_npz(path, f"at most {MOST_COLUMNS:,} columns in x", f"{x.shape[1]:,}")
    if x.ndim not in (2, 3, 4) or x.dtype.kind == "U" or min(x.shape) < 1 or len(x) < 2:
        raise bad_npz(path, "x as numbers in 2 to 4 dimensions, two records or more", f"{x.dtype} of shape {x.shape}")
    for name in ("y", "client"):
        if name in arrays and arrays[name].shape != (len(x),):
            raise bad_npz(path, f"{name} of shape ({len(x)},)", f"shape {arrays[name].shape}")
        if name == "client" and name in arrays and arrays[name].dtype.kind not in "biuU":
            raise bad_npz(path, "client as whole numbers or text", f"dtype {arrays[name].dtype}")


def check_values(path: Path, name: str, values: NDArray[Any]) -> None:
    """Refuse numbers that are not finite."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise bad_npz(path, "finite numbers", f"{name}[{row}] with a value that is none")


def bad_npz(path: Path, expected: str, got: object) -> BadInput:
    """The refusal of a file that is no archive of arrays."""
    remedy = "Write it with numpy.savez(path, x=..., y=...), and client=... if known."
    return BadInput(f"file {shown(str(path), longest=400)}", expected=expected, got=got, remedy=remedy)


# Arrays as a network gets them: nothing is scaled, cut or renamed

MOST_CODES = 1000  # distinct values of one group of positions


def ready_npz(
    path: Path,
    *,
    sensitive: str | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    classes: int | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    use: str | None = None,
    subject: str | None = None,
) -> Dataset:
    """Arrays x [n, columns] or images [n, channels, height, width], and y, all used as they are.

    `groups` names positions of x that encode one raw column, as { region = [3, 4, 5] }; a table's other columns are
    called x0, x1, ... `classes` is their number where not all occur in y; `mean` and `std` are the constants by which
    images were normalised, so that pixels can be shown; `use` names an array of words of `USES`,
    `subject` one that identifies the person of each record.
    """
    for argument, value, kinds in (("groups", groups, Mapping), ("mean", mean, Sequence), ("std", std, Sequence)):
        if value is not None and not isinstance(value, kinds):
            remedy = "For instance groups = { region = [3, 4, 5] }, mean = [0.5], std = [0.2]."
            raise BadInput(argument, expected=f"a {kinds.__name__.lower()}", got=shown(value), remedy=remedy)
    arrays = _checked_arrays(path, ("x", "y", *([use] if use else [])))
    x, y, client = arrays["x"], arrays["y"], arrays.get("client")
    if x.ndim == 3:
        raise bad_npz(path, "x of shape [n, columns] or [n, channels, height, width]", f"shape {x.shape}")
    owner, owners = owners_of(client)
    space = _space(path, x, y, sensitive, groups, classes, mean, std)
    raw: dict[str, NDArray[Any]] = {} if use is None else {USE: check_uses(path, use, arrays[use], len(x))}
    return Dataset(
        name=plain_name(path.name),
        x=torch.from_numpy(np.array(x, dtype=np.float32)),
        y=torch.from_numpy(y.astype(np.int64 if space.target == "classification" else np.float32)),
        space=space,
        raw=raw,
        owner=None if owner is None else torch.from_numpy(owner),
        owners=owners,
        subject=_subjects(path, arrays, subject),
        private=True,
        note="A user's own arrays, as the network gets them.",
    )


def _space(
    path: Path, x: NDArray[Any], y: NDArray[Any], sensitive: str | None,
    groups: Mapping[str, Sequence[int]] | None, classes: int | None, mean: Sequence[float], std: Sequence[float],
) -> Space:  # fmt: skip
    """The space that the arrays themselves describe."""
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
        return Space(kind="image", shape=x.shape[1:], target=target, classes=names, mean=tuple(mean), std=tuple(std))
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
    low, high = int(y.min()), int(y.max())
    count = high + 1 if classes is None else whole_number("classes", classes, least=2, most=MOST_CLASSES)
    if low < 0 or not 2 <= count <= MOST_CLASSES or high >= count:
        raise bad_npz(path, f"class numbers from 0 to {min(max(count, 2), MOST_CLASSES) - 1} in y", f"{low} to {high}")
    return tuple(str(number) for number in range(count))


def _columns(x: NDArray[Any], groups: Mapping[str, Sequence[int]]) -> tuple[Column, ...]:
    """One column per position, and one per group of positions; values that occur are the candidates."""
    width = x.shape[1]
    owner: dict[int, str] = {}
    for name, positions in groups.items():
        check_names("group", [name])
        if not isinstance(positions, list | tuple) or not all(
            _is_free(position, width, owner) for position in positions
        ):
            expected = f"positions from 0 to {width - 1}, each in one group"
            remedy = "Count the columns of x from 0."
            raise BadInput(f"groups.{name}", expected=expected, got=shown(positions), remedy=remedy)
        owner |= dict.fromkeys(positions, name)
    for position in set(range(width)) - set(owner):
        if f"x{position}" in groups:
            expected, got = "a name that no other column has", f"the name of column {position}"
            raise BadInput(f"groups.x{position}", expected=expected, got=got, remedy="Name the group otherwise.")
    columns: dict[str, Column] = {}
    for position in range(width):
        name = owner.get(position, f"x{position}")
        if name not in columns:
            columns[name] = _column(name, tuple(groups.get(name, (position,))), x, grouped=position in owner)
    return tuple(columns.values())


def _is_free(position: object, width: int, owner: Mapping[int, str]) -> bool:
    """Whether this is a position of x that no group has yet."""
    whole = isinstance(position, int) and not isinstance(position, bool)
    return whole and 0 <= position < width and position not in owner  # type: ignore[operator]


def _column(name: str, positions: tuple[int, ...], x: NDArray[Any], *, grouped: bool) -> Column:
    """One column: continuous, or categorical with the values that occur."""
    values = x[:, list(positions)].astype(np.float32)
    codes = np.unique(values, axis=0)
    if not grouped and len(codes) != 2:
        low, high = float(values.min()), float(values.max())
        return Column(name=name, kind="continuous", positions=positions, low=low, high=high)
    if len(codes) > MOST_CODES:
        expected, remedy = f"at most {MOST_CODES} different values", "Leave a column of numbers out of groups."
        raise BadInput(f"groups.{name}", expected=expected, got=len(codes), remedy=remedy)
    return Column(
        name=name,
        kind="categorical",
        positions=positions,
        categories=tuple(str(number) for number in range(len(codes))),
        codes=tuple(tuple(float(number) for number in code) for code in codes),
    )
