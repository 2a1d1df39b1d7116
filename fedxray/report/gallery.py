"""Originals and reconstructions as PNG inside the page."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.errors import BadInput
from fedxray.files import read_json
from fedxray.report import words

Entry = tuple[str, Mapping[str, Any]]  # where it was found, and what it holds

PUBLIC, PRIVATE = Path("gallery.json"), Path("private", "gallery.json")
LARGEST_SIDE = 1024
MOST_OF_A_KIND = 3  # cases that are shown of one attack against one defence
MOST_BYTES = 12_000_000  # of all pictures together
SHOWN_SIZE = 96  # pixels of the page


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An original and its guess as data addresses, with the size at which they are shown."""

    original: str
    guess: str
    caption: str
    width: int
    height: int
    quality: float | None = None  # the larger the nearer


@dataclass(frozen=True, kw_only=True)
class Told:
    """One value of a record, what was guessed, and whether that counts as told."""

    record: str
    column: str
    original: str
    guess: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The pairs of pictures, or the values, of one case."""

    case: str
    title: str
    pairs: tuple[Pair, ...] = ()
    told: tuple[Told, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Exhibition:
    """The galleries to show, and how many were left out."""

    galleries: tuple[Gallery, ...]
    private: int  # left out because their data is private
    beyond: int  # left out because there are too many


def read_galleries(folder: Path, *, show_private: bool, kinds: Mapping[str, str] | None = None) -> Exhibition:
    """The galleries of an audit, a few of every kind of case; private ones only where they are asked for."""
    entries = _entries(folder / PUBLIC)
    shown = [(place, entry) for place, entry in entries if show_private or not entry.get("private")]
    hidden = len(entries) - len(shown)
    if show_private:
        shown += _entries(folder / PRIVATE)
    elif (folder / PRIVATE).is_file():
        # Only that they exist is said: the file itself is not opened.
        hidden += 1
    galleries, size = [], 0
    for place, entry in _few_of_each(shown, kinds or {}):
        made = _gallery(entry, place)
        size += sum(len(pair.original) + len(pair.guess) for pair in made.pairs)
        if size > MOST_BYTES:
            break
        galleries.append(made)
    return Exhibition(galleries=tuple(galleries), private=hidden, beyond=len(shown) - len(galleries))


def _few_of_each(entries: Sequence[Entry], kinds: Mapping[str, str]) -> list[Entry]:
    """The first entries of every kind, in their order; a case of no known kind is one of its own."""
    seen: dict[str, int] = {}
    found = []
    for place, entry in entries:
        case = str(entry.get("case", ""))
        kind = kinds.get(case, case)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= MOST_OF_A_KIND:
            found.append((place, entry))
    return found


def _entries(source: Path) -> list[Entry]:
    """Entries of a file with the place each was found at; none where there is no file."""
    if not source.is_file():
        return []
    found = read_json(source)
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
        raise _malformed(str(source), "a list of galleries")
    return [(f"{source}[{index}]", entry) for index, entry in enumerate(found)]


def _gallery(entry: Mapping[str, Any], place: str) -> Gallery:
    images, records = (_tables(entry, key, place) for key in ("images", "records"))
    pairs = [_pair(image, f"{place}.images[{index}]") for index, image in enumerate(images)]
    told = [one for index, record in enumerate(records) for one in _told(record, f"{place}.records[{index}]")]
    return Gallery(
        case=str(entry.get("case", "")),
        title=str(entry.get("title", "")),
        pairs=tuple(pairs),
        told=tuple(told),
    )


def _tables(entry: Mapping[str, Any], key: str, place: str) -> Sequence[Mapping[str, Any]]:
    found = entry.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise _malformed(place, f"a list of {key}")
    return found


def _told(record: Mapping[str, Any], place: str) -> list[Told]:
    """The values of one record."""
    values = record.get("values")
    if not isinstance(values, list) or not all(isinstance(one, list) and len(one) == 4 for one in values):
        raise _malformed(place, "column, value, guess and whether it is right")
    number = str(record.get("record", ""))
    return [
        Told(record=number, column=str(column), original=str(original), guess=str(guess), right=right is True)
        for column, original, guess, right in values
    ]


def _pair(image: Mapping[str, Any], place: str) -> Pair:
    original, guess = (_pixels(image.get(key), f"{place}.{key}") for key in ("original", "guess"))
    scale, quality = SHOWN_SIZE / max(original.shape[:2]), image.get("quality")
    return Pair(
        original=data_address(original),
        guess=data_address(guess),
        caption=str(image.get("caption", "")),
        width=round(original.shape[1] * scale),
        height=round(original.shape[0] * scale),
        quality=float(quality) if isinstance(quality, int | float) else None,
    )


def _pixels(rows: Any, place: str) -> NDArray[np.uint8]:
    """Numbers 0..1 as bytes, [height, width] or [height, width, 3]."""
    try:
        array = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise _malformed(place, "rows of numbers, all equally long") from None
    right = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    if not right or not min(array.shape) >= 1 or max(array.shape) > LARGEST_SIDE:
        raise _malformed(place, f"[height][width] or [height][width][3], sides up to {LARGEST_SIDE}")
    finite = np.nan_to_num(array, nan=0.0, posinf=1.0, neginf=0.0)
    pixels: NDArray[np.uint8] = np.rint(255 * np.clip(finite, 0.0, 1.0)).astype(np.uint8)
    return pixels


def data_address(pixels: NDArray[np.uint8]) -> str:
    """A data address that holds the image as PNG."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An 8-bit PNG of a grey [height, width] or coloured [height, width, 3] image."""
    height, width = pixels.shape[:2]
    colour_type = 0 if pixels.ndim == 2 else 2
    flat = pixels.reshape(height, math.prod(pixels.shape[1:]))
    lines = b"".join(b"\x00" + line.tobytes() for line in flat)
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _malformed(place: str, expected: str) -> BadInput:
    return BadInput(
        place, expected=expected, got="something else", remedy="Run the audit again to write it anew."
    )


# --- Galleries under one heading per attack and defence, with what is needed to sort them.


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A pair of pictures with where it is from, and its place when the best come first."""

    pair: Pair
    place: str
    best: int


@dataclass(frozen=True, kw_only=True)
class Wall:
    """Everything that is shown of one attack against one defence."""

    title: str
    sources: tuple[str, ...]  # the cases, in words
    shown: tuple[Shown, ...]
    told: tuple[tuple[str, Told], ...]  # where it is from, and the value


def kinds_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The heading of every case by its id."""
    return {case["id"]: _title(case) for case in document["cases"]}


def walls(document: Mapping[str, Any], galleries: Sequence[Gallery]) -> list[Wall]:
    """One wall per attack and defence, those with pictures first, then in the order of the galleries."""
    kinds, cases = kinds_of(document), {case["id"]: case for case in document["cases"]}
    found: dict[str, list[Gallery]] = {}
    for gallery in galleries:
        found.setdefault(kinds.get(gallery.case, gallery.case), []).append(gallery)
    made = [_wall(title, listed, cases) for title, listed in found.items()]
    return sorted(made, key=lambda wall: not wall.shown)


def _wall(title: str, galleries: Sequence[Gallery], cases: Mapping[str, Mapping[str, Any]]) -> Wall:
    pairs = [(pair, _place(one, cases)) for one in galleries for pair in one.pairs]
    order = sorted(range(len(pairs)), key=lambda index: -_quality(pairs[index][0]))
    ranks = {index: rank for rank, index in enumerate(order)}
    return Wall(
        title=title,
        sources=tuple(f"{one.title} (case {one.case})" for one in galleries),
        shown=tuple(
            Shown(pair=pair, place=place, best=ranks[index]) for index, (pair, place) in enumerate(pairs)
        ),
        told=tuple((_place(one, cases), value) for one in galleries for value in one.told),
    )


def _quality(pair: Pair) -> float:
    return float("-inf") if pair.quality is None else pair.quality


def _place(gallery: Gallery, cases: Mapping[str, Mapping[str, Any]]) -> str:
    case = cases.get(gallery.case)
    if case is None:
        return gallery.case
    whose = "everyone" if case["client"] is None else f"client {case['client']}"
    return f"seed {case['seed']}, {whose}"


def _title(case: Mapping[str, Any]) -> str:
    aware = words.aware_words(case)
    named = [case["attack"], words.defence_words(case["defence"])]
    return ", ".join([*named, aware] if aware else named)
