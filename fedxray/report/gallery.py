"""The examples gallery: originals beside reconstructions as PNG inside the page, and inferred values.

`read_galleries` reads what an audit stored, case by case; `gallery_groups` puts cases of one attack and defence under
one heading. Of many cases the best, the median and the worst are shown. Private records are shown on request only.
"""

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
from fedxray.metrics import units
from fedxray.report import words
from fedxray.report.rows import grouped, plan_of

Entry = tuple[str, Mapping[str, Any]]  # position in its file, and content

PUBLIC, PRIVATE = Path("gallery.json"), Path("private", "gallery.json")
LARGEST_SIDE = 1024
PLACES = ("best", "median", "worst")  # of the cases of one attack against one defence
MOST_BYTES = 12_000_000  # of all images together
SHOWN_SIZE = 96  # pixels of the page


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An original and its reconstruction as data URLs, with the size at which they are shown."""

    original: str
    guess: str
    caption: str
    width: int
    height: int
    quality: float | None = None  # larger is more similar


@dataclass(frozen=True, kw_only=True)
class InferredValue:
    """One value of a record, what the attack inferred, and whether that is correct."""

    record: str
    column: str
    original: str
    guess: str
    correct: bool


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The image pairs, or the inferred values, of one case."""

    case: str
    title: str
    place: str = ""  # among the cases of its heading, where not all are shown
    pairs: tuple[Pair, ...] = ()
    values: tuple[InferredValue, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Galleries:
    """The galleries to show, and the number that was left out."""

    shown: tuple[Gallery, ...]
    private: int  # left out because their data is private
    beyond: int  # left out because there are too many


def read_galleries(folder: Path, *, show_private: bool, document: Mapping[str, Any] | None = None) -> Galleries:
    """Return the galleries of an audit: best, median and worst case of every heading; private ones only on request."""
    entries = _entries(folder / PUBLIC)
    shown = [(where, entry) for where, entry in entries if show_private or not entry.get("private")]
    hidden = len(entries) - len(shown)
    if show_private:
        shown += _entries(folder / PRIVATE)
    elif (folder / PRIVATE).is_file():
        # The report states only that they exist: the file is not opened.
        hidden += 1
    galleries, size = [], 0
    for where, entry, place in _few_of_each(shown, document or {"cases": [], "summary": []}):
        gallery = _gallery(entry, where, place)
        size += sum(len(pair.original) + len(pair.guess) for pair in gallery.pairs)
        if size > MOST_BYTES:
            break
        galleries.append(gallery)
    return Galleries(shown=tuple(galleries), private=hidden, beyond=len(shown) - len(galleries))


def _few_of_each(entries: Sequence[Entry], document: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], str]]:
    """Return position, content and place of the entries to show: all of a few, else the best, median and worst.

    An unknown case is its own heading; cases without a score come last.
    """
    titles, scores = headings(document), _scores(document)
    selected = []
    for listed in grouped(entries, lambda entry: titles.get(case := str(entry[1].get("case", "")), case)).values():
        if len(listed) <= len(PLACES):
            selected += [(where, entry, "") for where, entry in listed]
            continue
        ranked = sorted(listed, key=lambda entry: -scores.get(str(entry[1].get("case", "")), -math.inf))
        chosen = (ranked[0], ranked[len(ranked) // 2], ranked[-1])
        places = [f"{place} of {len(listed)} cases" for place in PLACES]
        selected += [(where, entry, place) for (where, entry), place in zip(chosen, places, strict=True)]
    return selected


def _scores(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the score of every case by its id, in the primary metric of its row; larger is more leakage."""

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (plan_of(row), *(row[name] for name in ("attack", "role", "defence", "aware")))

    metrics = {key(row): row["metric"] for row in document["summary"] if row["primary"]}
    scores = {}
    for case in document["cases"]:
        metric = metrics.get(key(case))
        score = case["scores"].get(metric)
        if score is not None:
            scores[case["id"]] = -score if units.is_down(metric) else score
    return scores


def _entries(source: Path) -> list[Entry]:
    """Return the entries of a file with their position in it; none where there is no file."""
    if not source.is_file():
        return []
    entries = read_json(source)
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise _malformed(str(source), "a list of galleries")
    return [(f"{source}[{index}]", entry) for index, entry in enumerate(entries)]


def _gallery(entry: Mapping[str, Any], where: str, place: str) -> Gallery:
    images, records = (_tables(entry, key, where) for key in ("images", "records"))
    pairs = [_pair(image, f"{where}.images[{index}]") for index, image in enumerate(images)]
    values = [value for index, record in enumerate(records) for value in _inferred(record, f"{where}.records[{index}]")]
    case, title = str(entry.get("case", "")), str(entry.get("title", ""))
    return Gallery(case=case, title=title, place=place, pairs=tuple(pairs), values=tuple(values))


def _tables(entry: Mapping[str, Any], key: str, where: str) -> Sequence[Mapping[str, Any]]:
    tables = entry.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise _malformed(where, f"a list of {key}")
    return tables


def _inferred(record: Mapping[str, Any], where: str) -> list[InferredValue]:
    """Return the values of one record."""
    values = record.get("values")
    if not isinstance(values, list) or not all(isinstance(row, list) and len(row) == 4 for row in values):
        raise _malformed(where, "column, value, guess and whether it is correct")
    number = str(record.get("record", ""))
    return [
        InferredValue(
            record=number, column=str(column), original=str(original), guess=str(guess), correct=correct is True
        )
        for column, original, guess, correct in values
    ]


def _pair(image: Mapping[str, Any], where: str) -> Pair:
    original, guess = (_pixels(image.get(key), f"{where}.{key}") for key in ("original", "guess"))
    scale, quality = SHOWN_SIZE / max(original.shape[:2]), image.get("quality")
    return Pair(
        original=data_url(original),
        guess=data_url(guess),
        caption=str(image.get("caption", "")),
        width=round(original.shape[1] * scale),
        height=round(original.shape[0] * scale),
        quality=float(quality) if isinstance(quality, int | float) else None,
    )


def _pixels(rows: Any, where: str) -> NDArray[np.uint8]:
    """Return numbers 0..1 as bytes, [height, width] or [height, width, 3]."""
    try:
        array = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise _malformed(where, "rows of numbers, all equally long") from None
    image = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    if not image or not min(array.shape) >= 1 or max(array.shape) > LARGEST_SIDE:
        raise _malformed(where, f"[height][width] or [height][width][3], sides up to {LARGEST_SIDE}")
    finite = np.nan_to_num(array, nan=0.0, posinf=1.0, neginf=0.0)
    pixels: NDArray[np.uint8] = np.rint(255 * np.clip(finite, 0.0, 1.0)).astype(np.uint8)
    return pixels


def data_url(pixels: NDArray[np.uint8]) -> str:
    """Return a data URL with the image as PNG."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit PNG of a grey [height, width] or coloured [height, width, 3] image."""
    height, width = pixels.shape[:2]
    colour_type = 0 if pixels.ndim == 2 else 2
    flat = pixels.reshape(height, math.prod(pixels.shape[1:]))
    lines = b"".join(b"\x00" + line.tobytes() for line in flat)
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _malformed(where: str, expected: str) -> BadInput:
    return BadInput(where, expected=expected, got="something else", remedy="Run the audit again to rewrite it.")


# One heading per attack and defence


@dataclass(frozen=True, kw_only=True)
class ShownPair:
    """An image pair with its seed and client, and its rank when the best come first."""

    pair: Pair
    source: str
    rank: int


@dataclass(frozen=True, kw_only=True)
class GalleryGroup:
    """The examples of one attack against one defence."""

    title: str
    sources: tuple[str, ...]  # the cases, in words
    pairs: tuple[ShownPair, ...]
    values: tuple[tuple[str, InferredValue], ...]  # seed and client, and the value


def headings(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the heading of every case by its id."""
    return {case["id"]: _title(case) for case in document["cases"]}


def gallery_groups(document: Mapping[str, Any], galleries: Sequence[Gallery]) -> list[GalleryGroup]:
    """Return one group per attack and defence, those with images first, then in the order of the galleries."""
    titles, cases = headings(document), {case["id"]: case for case in document["cases"]}
    by_title = grouped(galleries, lambda gallery: titles.get(gallery.case, gallery.case))
    groups = [_group(title, listed, cases) for title, listed in by_title.items()]
    return sorted(groups, key=lambda group: not group.pairs)


def _group(title: str, galleries: Sequence[Gallery], cases: Mapping[str, Mapping[str, Any]]) -> GalleryGroup:
    pairs = [(pair, source_of(gallery, cases)) for gallery in galleries for pair in gallery.pairs]
    order = sorted(range(len(pairs)), key=lambda index: -_quality(pairs[index][0]))
    ranks = {index: rank for rank, index in enumerate(order)}
    return GalleryGroup(
        title=title,
        sources=tuple(
            f"{gallery.place + ': ' if gallery.place else ''}{gallery.title} (case {gallery.case})"
            for gallery in galleries
        ),
        pairs=tuple(
            ShownPair(pair=pair, source=source, rank=ranks[index]) for index, (pair, source) in enumerate(pairs)
        ),
        values=tuple((source_of(gallery, cases), value) for gallery in galleries for value in gallery.values),
    )


def _quality(pair: Pair) -> float:
    return float("-inf") if pair.quality is None else pair.quality


def source_of(gallery: Gallery, cases: Mapping[str, Mapping[str, Any]]) -> str:
    """Return place, seed and client of a gallery, or its case where that is unknown."""
    case = cases.get(gallery.case)
    if case is None:
        return gallery.case
    client = "all clients" if case["client"] is None else f"client {case['client']}"
    place = f"{gallery.place.partition(' ')[0]} case: " if gallery.place else ""
    return f"{place}seed {case['seed']}, {client}"


def _title(case: Mapping[str, Any]) -> str:
    aware = words.aware_words(case)
    named = [case["attack"], words.defence_words(case["defence"])]
    return ", ".join([*named, aware] if aware else named)
