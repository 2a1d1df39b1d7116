"""Writes a picture of originals above their reconstructions, from the gallery of an audit of public data.

python scripts/picture_grid.py docs/images/single-digits.png fedxray-out/digits-1/gallery.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE, GAP, MOST = 64, 4, 12  # pixels of a tile, pixels between tiles, tiles per row


def main(picture: Path, gallery: Path) -> None:
    pairs = [pair for entry in entries(json.loads(gallery.read_bytes())) for pair in entry["images"]][:MOST]
    rows = [np.concatenate([tile(pair[which]) for pair in pairs], 1) for which in ("original", "guess")]
    picture.parent.mkdir(exist_ok=True)
    Image.fromarray(np.concatenate(rows)).quantize(64).save(picture, optimize=True)
    print(f"{picture}: {len(pairs)} pairs, {picture.stat().st_size // 1000} kB")


def entries(node: Any) -> list[dict[str, Any]]:
    """Return every entry with images, at any depth of the gallery."""
    if isinstance(node, dict):
        inner = [entry for value in node.values() for entry in entries(value)]
        return [node, *inner] if "images" in node else inner
    return [entry for value in node for entry in entries(value)] if isinstance(node, list) else []


def tile(rows: Any) -> np.ndarray:
    """Return one image as bytes, enlarged without interpolation, with a white margin."""
    values = np.asarray(rows, dtype=float)
    colour = values if values.ndim == 3 else values[..., None].repeat(3, 2)
    times = SIDE // max(colour.shape[:2])
    large = (255 * colour).round().astype(np.uint8).repeat(times, 0).repeat(times, 1)
    return np.pad(large, ((GAP, GAP), (GAP, GAP), (0, 0)), constant_values=255)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
