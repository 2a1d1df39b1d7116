"""Writes a picture of originals above the reconstructions of several cases, from a gallery of an audit of public data.

python scripts/picture_rows.py docs/images/x.png fedxray-out/x/gallery.json "no defence=dlf.server.none.seed0.client0"
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE, GAP, MARGIN, MOST = 48, 3, 150, 8  # pixels of a tile, between tiles and for the titles; tiles per row


def main(picture: Path, gallery: Path, rows: list[tuple[str, str]]) -> None:
    cases = json.loads(gallery.read_bytes())
    galleries = [next(entry for entry in cases if entry["case"].startswith(case)) for _, case in rows]
    images = [gallery["images"][:MOST] for gallery in galleries]
    lines = [("originals", [pair["original"] for pair in images[0]])]
    lines += [(title, [pair["guess"] for pair in pairs]) for (title, _), pairs in zip(rows, images, strict=True)]
    canvas = Image.new("RGB", (MARGIN + MOST * (SIDE + GAP), len(lines) * (SIDE + GAP)), "white")
    for index, (title, tiles) in enumerate(lines):
        top = index * (SIDE + GAP)
        ImageDraw.Draw(canvas).text((4, top + SIDE // 2 - 6), title, fill="black")
        for column, tile in enumerate(tiles):
            pixels = (255 * np.asarray(tile, dtype=float).clip(0, 1)).round().astype(np.uint8)
            drawn = Image.fromarray(pixels).convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
            canvas.paste(drawn, (MARGIN + column * (SIDE + GAP), top))
    canvas.quantize(32).save(picture, optimize=True)
    print(f"{picture}: {len(lines)} rows, {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    if len(sys.argv) < 4 or not all("=" in argument for argument in sys.argv[3:]):
        sys.exit(__doc__)
    pairs = [(title, case) for title, _, case in (argument.partition("=") for argument in sys.argv[3:])]
    main(Path(sys.argv[1]), Path(sys.argv[2]), pairs)
