"""Synthetic records by a schema: the easiest case for an attacker that such columns, or such images, allow.

A schema is a TOML file: columns with ranges or values, one of them the target; or the shape and classes of images:

    records = 200                          kind = "image"
    target = "cost"                        shape = [1, 28, 28]
    [columns.age]                          classes = 10
    low = 18                               records = 50
    high = 95
    [columns.smoker]
    values = ["no", "yes"]
    shares = [0.7, 0.3]
    [columns.cost]
    low = 0
    high = 50000

The worst case on purpose, in three ways: the columns are independent, so that none can be imputed from the others; the
sensitive column changes the target strongly, with the opposite sign at every other client, so that a client's model
must hold it; there is little noise. Images are smooth, of high contrast, and all different.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedxray.data.checks import check_size, plain_name, read_bytes, shown
from fedxray.data.dataset import Dataset
from fedxray.data.encode import make_images, make_table
from fedxray.errors import BadInput, unknown_key, unknown_name
from fedxray.files import parse_toml
from fedxray.seeds import derive_seed

LARGEST = 100_000  # bytes of a schema

SECRET_EFFECT = 2.0  # of the sensitive column on the target, in deviations of the effect of all other columns
NOISE = 0.1  # deviation of the target's noise, in the same unit
LARGEST_NUMBER = 1e15  # up to which whole numbers are exact
NARROWEST = 1e-9  # range of a column, against the size of its numbers
ROUNDING = 0.011  # by which the sum of shares may differ from 1
WAVES = 3  # of a smooth image, along each side
REMEDY = "docs/data.md shows what a schema holds."
NOTE = "Synthetic, drawn from a schema: no person is in it, and neither are the patterns of your data."

Count = Annotated[int, Field(ge=2, le=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _SchemaPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ColumnForm(_SchemaPart):
    """One column: a range from `low` to `high`, or `values` with optional `shares`."""

    low: float | None = None
    high: float | None = None
    whole: bool = False
    values: Annotated[list[Name], Field(min_length=2, max_length=1000)] | None = None
    shares: list[Annotated[float, Field(gt=0)]] | None = None


class TableForm(_SchemaPart):
    """A table of columns, one of which is the target."""

    kind: Literal["table"] = "table"
    records: Count = 200
    target: Name
    columns: Annotated[dict[Name, ColumnForm], Field(min_length=2, max_length=10_000)]


class ImageForm(_SchemaPart):
    """Images of one shape (channels, height, width) in a number of classes."""

    kind: Literal["image"]
    records: Count = 50
    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=3)]
    classes: Annotated[int, Field(ge=2, le=10_000)]


def by_schema(path: Path, *, clients: int = 1, sensitive: str | None = None, seed: int = 0) -> Dataset:
    """Synthetic records of a schema file, as many as it states for each client."""
    form = read_schema(path)
    draw = np.random.default_rng(derive_seed(seed, "schema", clients, form.model_dump_json()))
    if isinstance(form, ImageForm):
        if sensitive is not None:
            remedy = "Leave sensitive out."
            raise BadInput("sensitive", expected="a schema of columns", got="images", remedy=remedy)
        return _images(path, form, clients, draw)
    return _table(path, form, clients, sensitive, draw)


def read_schema(path: Path) -> TableForm | ImageForm:
    """The checked schema of a file."""
    content = read_bytes(path)
    if len(content) > LARGEST:
        raise _bad(path, f"at most {LARGEST} bytes", f"{len(content)}")
    try:
        plain = parse_toml(content)
        form_class: type[TableForm | ImageForm] = ImageForm if plain.get("kind") == "image" else TableForm
        form = form_class.model_validate(plain)
    except ValidationError as problem:
        known: dict[int, Iterable[str]] = {1: form_class.model_fields, 3: ColumnForm.model_fields}
        raise bad_field(_title(path), problem, known, REMEDY) from problem
    except (ValueError, RecursionError) as problem:
        raise _bad(path, "valid TOML in UTF-8", str(problem)) from problem
    if isinstance(form, TableForm):
        _check_table(path, form)
    return form


def bad_field(where: str, problem: ValidationError, known: dict[int, Iterable[str]], remedy: str) -> BadInput:
    """The refusal for the first error; `known` holds the keys of the file (depth 1) and of a column (depth 3)."""
    errors = problem.errors(include_url=False, include_context=False)
    # A misspelt key is missing too: report the spelling first.
    first = min(errors, key=lambda error: error["type"] != "extra_forbidden")
    steps = [str(step) for step in first["loc"]]
    if first["type"] == "extra_forbidden":
        table = ": ".join([where, ".".join(steps[:-1])]) if steps[:-1] else where
        return unknown_key(table, steps[-1], known.get(len(steps), ()))
    if first["type"] == "string_type" and steps[2:3] == ["values"]:
        written = f'"{first["input"]}"'[:80]
        return BadInput(
            where,
            expected=f"text in {'.'.join(steps[:-1])}",
            got=repr(first["input"])[:80],
            remedy=f"Write them as text: {written}.",
        )
    expected = f"a schema: {'.'.join(steps) or 'the file'}"
    return BadInput(where, expected=expected, got=str(first["msg"]), remedy=remedy)


def _check_table(path: Path, form: TableForm) -> None:
    """Refuse a target that is no column, and columns that are neither a range nor distinct values."""
    if form.target not in form.columns:
        raise unknown_name("target", form.target, form.columns)
    for name, column in form.columns.items():
        ranged = column.low is not None and column.high is not None
        if ranged == (column.values is not None) or (column.low is None) != (column.high is None):
            raise _bad(path, f"low and high, or values, for column {shown(name)}", "neither or both")
        if column.low is not None and column.high is not None:
            _check_range(path, name, column.low, column.high, column.whole)
        if column.shares is not None and len(column.shares) != len(column.values or ()):
            raise _bad(path, f"a share for each value of {shown(name)}", f"{len(column.shares)} shares")
        if column.shares is not None and abs((total := sum(column.shares)) - 1) > ROUNDING:
            raise _bad(path, f"shares of {shown(name)} that sum to 1", f"{total:g}")
        if column.values is not None and len(set(column.values)) < len(column.values):
            raise _bad(path, f"different values in {shown(name)}", "one of them twice")


def _check_range(path: Path, name: str, low: float, high: float, whole: bool) -> None:
    """Refuse a range that is empty, too large, or too narrow for its numbers."""
    got = f"{low:g} and {high:g}"
    if not low < high:
        raise _bad(path, f"low below high in column {shown(name)}", got)
    size = max(abs(low), abs(high))
    if size > LARGEST_NUMBER:
        raise _bad(path, f"numbers up to {LARGEST_NUMBER:g} in size in column {shown(name)}", got)
    if high - low < NARROWEST * size:
        raise _bad(path, f"a range that holds different numbers in column {shown(name)}", f"{low!r} and {high!r}")
    if whole and math.floor(high) <= math.ceil(low):
        raise _bad(path, f"at least two whole numbers from low to high in column {shown(name)}", got)


@dataclass(frozen=True)
class _Drawn:
    """One column's values [n], and their effect on the target [n], with mean 0 and deviation 1."""

    raw: NDArray[Any]
    effect: NDArray[np.float64]


def _table(path: Path, form: TableForm, clients: int, sensitive: str | None, draw: np.random.Generator) -> Dataset:
    """A table of independent columns; the target is the sum of their effects and a little noise."""
    count = form.records * clients
    check_size("synthetic table", count * sum(_bytes_of(column) for column in form.columns.values()))
    owner = np.repeat(np.arange(clients, dtype=np.int64), form.records)
    features = {name: column for name, column in form.columns.items() if name != form.target}
    for name, column in form.columns.items():
        if len(column.values or ()) > count:
            raise _bad(path, f"a record for each value of {shown(name)}", f"{count} records")
    drawn = {name: _draw_column(column, count, draw) for name, column in features.items()}
    others = max(1, len(drawn) - (sensitive in drawn))
    effect = np.zeros(count)
    for name, column_drawn in drawn.items():
        strength = SECRET_EFFECT * (1 - 2 * (owner % 2)) if name == sensitive else 1 / np.sqrt(others)
        effect += strength * column_drawn.effect
    effect += NOISE * draw.standard_normal(count)
    raw = {name: column_drawn.raw for name, column_drawn in drawn.items()}
    raw[form.target] = _target(form.columns[form.target], effect)
    groups = [name for name, column in features.items() if column.values is not None]
    return make_table(
        plain_name(path.name),
        raw,
        target=form.target,
        classification=form.columns[form.target].values is not None,
        continuous=[name for name in features if name not in groups],
        categorical=groups,
        sensitive=sensitive,
        scale_target=form.columns[form.target].values is None,
        owner=owner,
        note=NOTE,
    )


def _bytes_of(column: ColumnForm) -> int:
    """Bytes of one record's value: as drawn, and with a number for each category when encoded."""
    values = column.values or ()
    return 16 + 4 * max((len(value) for value in values), default=0) + 8 * len(values)


def _draw_column(column: ColumnForm, count: int, draw: np.random.Generator) -> _Drawn:
    """Values drawn uniformly from a range, or by their shares; every value occurs."""
    if column.values is not None:
        shares = np.array(column.shares or [1.0] * len(column.values))
        shares = shares / shares.max()  # a sum of the largest numbers would be infinite
        drawn = draw.choice(len(shares), size=count, p=shares / shares.sum())
        # Each value once, at a random record: at fixed records the columns would not be independent.
        drawn[draw.permutation(count)[: len(shares)]] = np.arange(len(shares))
        return _Drawn(np.array(column.values)[drawn], _standard(np.linspace(-1.0, 1.0, len(shares))[drawn]))
    low, high = float(column.low or 0.0), float(column.high or 0.0)
    if not column.whole:
        values = draw.uniform(low, high, count)
        return _Drawn(values, _standard(values))
    numbers = draw.integers(math.ceil(low), math.floor(high), count, endpoint=True).astype(np.float64)
    numbers[draw.permutation(count)[:2]] = math.ceil(low), math.floor(high)  # no column is constant
    return _Drawn(numbers, _standard(numbers))


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values scaled to mean 0 and deviation 1."""
    scaled: NDArray[np.float64] = (values - values.mean()) / values.std()
    return scaled


def _target(column: ColumnForm, effect: NDArray[np.float64]) -> NDArray[Any]:
    """The target scaled to its range, or its classes by rank of the effect, [n]."""
    ranks = effect.argsort().argsort() / len(effect)
    if column.values is not None:
        index = np.minimum((ranks * len(column.values)).astype(np.int64), len(column.values) - 1)
        return np.array(column.values)[index]
    low, high = float(column.low or 0.0), float(column.high or 0.0)
    scaled: NDArray[Any] = (effect - effect.min()) / (effect.max() - effect.min())
    spread: NDArray[Any] = low + (high - low) * scaled
    return np.clip(np.round(spread), math.ceil(low), math.floor(high)) if column.whole else spread


def _images(path: Path, form: ImageForm, clients: int, draw: np.random.Generator) -> Dataset:
    """Smooth images: the mean of a pattern of the class and one of their own."""
    channels, height, width = form.shape
    count = form.records * clients
    if form.classes > count:
        raise _bad(path, f"a record for each of {form.classes} classes", f"{count} records")
    check_size("synthetic images", 8 * (count + form.classes) * channels * height * width)
    labels = np.arange(count) % form.classes
    patterns = _smooth(form.classes, channels, height, width, draw)
    pixels = 0.5 * patterns[labels] + 0.5 * _smooth(count, channels, height, width, draw)
    return make_images(
        plain_name(path.name),
        np.moveaxis(pixels.astype(np.float32), 1, 3),
        labels,
        classes=tuple(str(number) for number in range(form.classes)),
        owner=np.repeat(np.arange(clients), form.records),
        note=NOTE,
    )


def _smooth(count: int, channels: int, height: int, width: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """Random sums of a few cosine waves, scaled to 0..1 for each image, shape [count, channels, height, width]."""
    up = np.cos(np.pi * np.outer(np.arange(WAVES + 1), (np.arange(height) + 0.5) / height))
    across = np.cos(np.pi * np.outer(np.arange(WAVES + 1), (np.arange(width) + 0.5) / width))
    weights = draw.standard_normal((count, channels, WAVES + 1, WAVES + 1))
    waves = np.einsum("ncuv,uh,vw->nchw", weights, up, across)
    low, high = waves.min(axis=(1, 2, 3), keepdims=True), waves.max(axis=(1, 2, 3), keepdims=True)
    scaled: NDArray[np.float64] = (waves - low) / np.maximum(high - low, 1e-9)
    return scaled


def _bad(path: Path, expected: str, got: str) -> BadInput:
    return BadInput(_title(path), expected=expected, got=got, remedy=REMEDY)


def _title(path: Path) -> str:
    return f"schema {shown(str(path), longest=400)}"
