"""The stand-in for FEMNIST, drawn from the pen strokes of Chars74K: thin, dark on white, with a margin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.build import Arrays, broken
from fedxray.data.femnist import CHARACTERS
from fedxray.data.limits import read_bytes

SIDE, LONGEST, PEN = (
    28,
    14.0,
    0.5,
)  # pixels: of the image, of the character's longer side, half the pen's width
MARGIN = 5  # pixels that no ink can reach
WRITERS = 55
MEAN, STD = 0.957, 0.164  # of the whole set, in 0..1


def femnist_like(files: list[Path]) -> dict[str, Arrays]:
    """62 characters of each of 55 writers, writer by writer."""
    try:
        strokes = json.loads(read_bytes(files[0]))
        forms = [[strokes[character][writer] for character in CHARACTERS] for writer in range(WRITERS)]
        x = np.stack([draw(form) for of_writer in forms for form in of_writer])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as problem:
        raise broken(files[0], "strokes of 62 characters by 55 writers", problem) from problem
    mean, std = float(x.mean()) / 255, float(x.std()) / 255
    if abs(mean - MEAN) > 0.005 or abs(std - STD) > 0.01:
        raise broken(files[0], f"images of mean {MEAN} and deviation {STD}", f"{mean:.3f} and {std:.3f}")
    arrays = {
        "x": x,
        "y": np.tile(np.arange(62, dtype=np.uint8), WRITERS),
        "writer": np.repeat(np.arange(WRITERS, dtype=np.uint8), 62),
        "charmap": np.array(list(CHARACTERS)),
    }
    return {"chars74k_hnd/femnist_like_28x28.npz": arrays}


def draw(form: list[Any]) -> NDArray[np.uint8]:
    """One character, [28, 28], 255 is white: centred, with ink where a stroke is nearer than the pen's width."""
    strokes = [np.array(stroke, dtype=np.float64).reshape(-1, 2) for stroke in form]
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = LONGEST / max(float((high - low).max()), 1e-9)
    rows, columns = np.mgrid[MARGIN : SIDE - MARGIN, MARGIN : SIDE - MARGIN]
    pixels = np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64)
    nearest = np.full(len(pixels), np.inf)
    for stroke in strokes:
        placed = (stroke - (low + high) / 2) * scale + (SIDE - 1) / 2
        nearest = np.minimum(nearest, distance_to_line(pixels, placed))
    ink = np.pad(np.clip(PEN - nearest + 0.5, 0.0, 1.0).reshape(rows.shape), MARGIN)
    return np.round(255 * (1 - ink)).astype(np.uint8)


def distance_to_line(pixels: NDArray[np.float64], line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of every pixel [p, 2] to a line through the points [n, 2]; shape [p]."""
    start, end = (line[:-1], line[1:]) if len(line) > 1 else (line, line)
    along = end - start
    length = np.maximum((along**2).sum(axis=1), 1e-12)
    share = np.clip(((pixels[:, None] - start) * along).sum(axis=2) / length, 0.0, 1.0)
    gap = start + share[:, :, None] * along - pixels[:, None]
    nearest: NDArray[np.float64] = np.sqrt((gap**2).sum(axis=2).min(axis=1))
    return nearest
