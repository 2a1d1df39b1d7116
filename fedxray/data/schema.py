"""Made-up records by a schema: the easiest case for an attacker that such columns, or such images, allow.

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

Worst in three ways, all of them on purpose: the columns are independent, so that nothing can be filled in from the
others; the secret changes the target strongly, and at every other client the other way round, so that a client's model
must hold it; there is little noise. Images are smooth, of high contrast, and no two are alike.
"""

from __future__ import annotations

import math
import re
import tomllib
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
from fedxray.seeds import derive_seed

# --- The text of a schema: read where that ends soon, and what is wrong with a key in words.


LARGEST = 100_000  # bytes of a schema
MOST_DOTS = 100  # in one key: reading a key takes the square of its parts
_QUOTED = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL
)


def parse(content: bytes) -> dict[str, Any]:
    """The tables of a TOML text; ValueError says why it is none."""
    text = content.decode("utf-8")
    bare = _QUOTED.sub(lambda found: "" if found[0].startswith("#") else "q", text)
    keys = re.findall(r"[\w.\-]+", bare.replace(" ", "").replace("\t", ""))
    if max((key.count(".") for key in keys), default=0) > MOST_DOTS:
        raise ValueError(f"a key with more than {MOST_DOTS} dots")
    return tomllib.loads(text)


def bad_field(where: str, problem: ValidationError, known: dict[int, Iterable[str]], remedy: str) -> BadInput:
    """The first thing that is wrong; `known` holds the keys of the whole (at 1) and of a column (at 3)."""
    found = problem.errors(include_url=False, include_context=False)
    # A misspelt key is missing too: tell the spelling.
    first = min(found, key=lambda one: one["type"] != "extra_forbidden")
    steps = [str(step) for step in first["loc"]]
    if first["type"] == "extra_forbidden":
        place = ": ".join([where, ".".join(steps[:-1])]) if steps[:-1] else where
        return unknown_key(place, steps[-1], known.get(len(steps), ()))
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


SECRET_EFFECT = 2.0  # of the secret on the target, in deviations of what the other columns do to it
NOISE = 0.1
LARGEST_NUMBER = 1e15  # up to which whole numbers are exact
NARROWEST = 1e-9  # range of a column, against the size of its numbers
WAVES = 3  # of a smooth image, along each side
REMEDY = "docs/data.md shows what a schema holds."
NOTE = "Made up by a schema: no person is in it, and what is usual in your data is not."

Count = Annotated[int, Field(ge=2, le=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ColumnForm(_Strict):
    """One column: a range, or values with perhaps their shares."""

    low: float | None = None
    high: float | None = None
    whole: bool = False
    values: Annotated[list[Name], Field(min_length=2, max_length=1000)] | None = None
    shares: list[Annotated[float, Field(gt=0)]] | None = None


class TableForm(_Strict):
    """A table of such columns, one of which is learned."""

    kind: Literal["table"] = "table"
    records: Count = 200
    target: Name
    columns: Annotated[dict[Name, ColumnForm], Field(min_length=2, max_length=10_000)]


class ImageForm(_Strict):
    """Images of one shape in so many classes."""

    kind: Literal["image"]
    records: Count = 50
    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=3)]
    classes: Annotated[int, Field(ge=2, le=10_000)]


def by_schema(path: Path, *, clients: int = 1, sensitive: str | None = None, seed: int = 0) -> Dataset:
    """`records` made-up records for each of so many clients."""
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
        plain = parse(content)
        form: TableForm | ImageForm = (
            ImageForm.model_validate(plain)
            if plain.get("kind") == "image"
            else TableForm.model_validate(plain)
        )
    except ValidationError as problem:
        whole = ImageForm if plain.get("kind") == "image" else TableForm
        known: dict[int, Iterable[str]] = {1: whole.model_fields, 3: ColumnForm.model_fields}
        raise bad_field(_title(path), problem, known, REMEDY) from problem
    except (ValueError, RecursionError) as problem:
        raise _bad(path, "valid TOML in UTF-8", str(problem)) from problem
    if isinstance(form, TableForm):
        _check_table(path, form)
    return form


def _check_table(path: Path, form: TableForm) -> None:
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
        if column.values is not None and len(set(column.values)) < len(column.values):
            raise _bad(path, f"different values in {shown(name)}", "one of them twice")


def _check_range(path: Path, name: str, low: float, high: float, whole: bool) -> None:
    got = f"{low:g} and {high:g}"
    if not low < high:
        raise _bad(path, f"low below high in column {shown(name)}", got)
    size = max(abs(low), abs(high))
    if size > LARGEST_NUMBER:
        raise _bad(path, f"numbers up to {LARGEST_NUMBER:g} in size in column {shown(name)}", got)
    if high - low < NARROWEST * size:
        raise _bad(
            path, f"a range that holds different numbers in column {shown(name)}", f"{low!r} and {high!r}"
        )
    if whole and math.floor(high) <= math.ceil(low):
        raise _bad(path, f"at least two whole numbers from low to high in column {shown(name)}", got)


@dataclass(frozen=True)
class _Drawn:
    """One column's values, and what they do to the target, mean 0 and deviation 1."""

    raw: NDArray[Any]
    effect: NDArray[np.float64]


def _table(
    path: Path, form: TableForm, clients: int, sensitive: str | None, draw: np.random.Generator
) -> Dataset:
    count = form.records * clients
    check_size("made-up table", count * sum(_bytes_of(column) for column in form.columns.values()))
    owner = np.repeat(np.arange(clients, dtype=np.int64), form.records)
    features = {name: column for name, column in form.columns.items() if name != form.target}
    for name, column in form.columns.items():
        if len(column.values or ()) > count:
            raise _bad(path, f"a record for each value of {shown(name)}", f"{count} records")
    drawn = {name: _draw_column(column, count, draw) for name, column in features.items()}
    others = max(1, len(drawn) - (sensitive in drawn))
    effect = np.zeros(count)
    for name, one in drawn.items():
        strength = SECRET_EFFECT * (1 - 2 * (owner % 2)) if name == sensitive else 1 / np.sqrt(others)
        effect += strength * one.effect
    effect += NOISE * draw.standard_normal(count)
    raw = {name: one.raw for name, one in drawn.items()}
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
    """Of one record's value: as it was drawn, and with a number for each category when it is encoded."""
    values = column.values or ()
    return 16 + 4 * max((len(value) for value in values), default=0) + 8 * len(values)


def _draw_column(column: ColumnForm, count: int, draw: np.random.Generator) -> _Drawn:
    """Values evenly over a range, or by their shares; every value comes up."""
    if column.values is not None:
        shares = np.array(column.shares or [1.0] * len(column.values))
        shares = shares / shares.max()  # a sum of the largest numbers would be infinite
        places = draw.choice(len(shares), size=count, p=shares / shares.sum())
        # Each once, anywhere: at the same places in every column they would tell each other.
        places[draw.permutation(count)[: len(shares)]] = np.arange(len(shares))
        return _Drawn(np.array(column.values)[places], _standard(np.linspace(-1.0, 1.0, len(shares))[places]))
    low, high = float(column.low or 0.0), float(column.high or 0.0)
    if not column.whole:
        values = draw.uniform(low, high, count)
        return _Drawn(values, _standard(values))
    numbers = draw.integers(math.ceil(low), math.floor(high), count, endpoint=True).astype(np.float64)
    numbers[draw.permutation(count)[:2]] = math.ceil(low), math.floor(high)  # no column is constant
    return _Drawn(numbers, _standard(numbers))


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """With mean 0 and deviation 1 over the records that were drawn."""
    found: NDArray[np.float64] = (values - values.mean()) / values.std()
    return found


def _target(column: ColumnForm, effect: NDArray[np.float64]) -> NDArray[Any]:
    """The target in its range, or its classes by rank."""
    ranks = effect.argsort().argsort() / len(effect)
    if column.values is not None:
        places = np.minimum((ranks * len(column.values)).astype(np.int64), len(column.values) - 1)
        return np.array(column.values)[places]
    low, high = float(column.low or 0.0), float(column.high or 0.0)
    scaled: NDArray[Any] = (effect - effect.min()) / (effect.max() - effect.min())
    spread: NDArray[Any] = low + (high - low) * scaled
    return np.clip(np.round(spread), math.ceil(low), math.floor(high)) if column.whole else spread


def _images(path: Path, form: ImageForm, clients: int, draw: np.random.Generator) -> Dataset:
    """Smooth pictures: half of each is its class's pattern, half its own."""
    channels, height, width = form.shape
    count = form.records * clients
    if form.classes > count:
        raise _bad(path, f"a record for each of {form.classes} classes", f"{count} records")
    check_size("made-up images", 8 * (count + form.classes) * channels * height * width)
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


def _smooth(
    count: int, channels: int, height: int, width: int, draw: np.random.Generator
) -> NDArray[np.float64]:
    """Sums of a few waves, stretched to 0..1 for each picture, shape [count, channels, height, width]."""
    up = np.cos(np.pi * np.outer(np.arange(WAVES + 1), (np.arange(height) + 0.5) / height))
    across = np.cos(np.pi * np.outer(np.arange(WAVES + 1), (np.arange(width) + 0.5) / width))
    weights = draw.standard_normal((count, channels, WAVES + 1, WAVES + 1))
    waves = np.einsum("ncuv,uh,vw->nchw", weights, up, across)
    low, high = waves.min(axis=(1, 2, 3), keepdims=True), waves.max(axis=(1, 2, 3), keepdims=True)
    found: NDArray[np.float64] = (waves - low) / np.maximum(high - low, 1e-9)
    return found


def _bad(path: Path, expected: str, got: str) -> BadInput:
    return BadInput(_title(path), expected=expected, got=got, remedy=REMEDY)


def _title(path: Path) -> str:
    return f"schema {shown(str(path), longest=400)}"
