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

PUBLIC, PRIVATE = Path("gallery.json"), Path("private", "gallery.json")
LARGEST_SIDE = 1024
MOST_GALLERIES = 24
SHOWN_SIZE = 96  # pixels of the page


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An original and its guess as data addresses, with the height at which they are shown."""

    original: str
    guess: str
    caption: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The pairs of one case."""

    case: str
    title: str
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Exhibition:
    """The galleries to show, and how many were left out."""

    galleries: tuple[Gallery, ...]
    private: int  # left out because their data is private
    beyond: int  # left out because there are too many


def read_galleries(folder: Path, *, show_private: bool) -> Exhibition:
    """The galleries of an audit; private ones only where they are asked for."""
    entries = _entries(folder / PUBLIC)
    shown = [(place, entry) for place, entry in entries if show_private or not entry.get("private")]
    hidden = len(entries) - len(shown)
    if show_private:
        shown += _entries(folder / PRIVATE)
    elif (folder / PRIVATE).is_file():
        # Only that they exist is said: the file itself is not opened.
        hidden += 1
    galleries = tuple(_gallery(entry, place) for place, entry in shown[:MOST_GALLERIES])
    return Exhibition(galleries=galleries, private=hidden, beyond=max(0, len(shown) - MOST_GALLERIES))


def _entries(source: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Entries of a file with the place each was found at; none where there is no file."""
    if not source.is_file():
        return []
    found = read_json(source)
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
        raise _malformed(str(source), "a list of galleries")
    return [(f"{source}[{index}]", entry) for index, entry in enumerate(found)]


def _gallery(entry: Mapping[str, Any], place: str) -> Gallery:
    images = entry.get("images")
    if not isinstance(images, Sequence) or not all(isinstance(image, Mapping) for image in images):
        raise _malformed(place, "a list of images")
    pairs = tuple(_pair(image, f"{place}.images[{index}]") for index, image in enumerate(images))
    return Gallery(case=str(entry.get("case", "")), title=str(entry.get("title", "")), pairs=pairs)


def _pair(image: Mapping[str, Any], place: str) -> Pair:
    original, guess = (_pixels(image.get(key), f"{place}.{key}") for key in ("original", "guess"))
    scale = SHOWN_SIZE / max(original.shape[:2])
    return Pair(
        original=data_address(original),
        guess=data_address(guess),
        caption=str(image.get("caption", "")),
        width=round(original.shape[1] * scale),
        height=round(original.shape[0] * scale),
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
