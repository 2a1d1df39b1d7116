"""Writes images/: small synthetic scans in two folders, one for each class. Replace the folder with your own."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image, ImageDraw

SIZE = 16
IMAGES = 20  # of each class


def scan(kind: str, draw: random.Random) -> Image.Image:
    """Return a dark image with a bright spot: round if healthy, long otherwise."""
    image = Image.new("L", (SIZE, SIZE), color=draw.randint(10, 50))
    left, top = draw.randint(1, 5), draw.randint(1, 5)
    width, height = (7, 7) if kind == "healthy" else draw.choice([(10, 3), (3, 10)])
    box = (left, top, left + width, top + height)
    ImageDraw.Draw(image).ellipse(box, fill=draw.randint(150, 250))
    return image


def write(folder: Path, seed: int = 0) -> None:
    """Write one folder per class."""
    draw = random.Random(seed)
    for kind in ("healthy", "ill"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(IMAGES):
            scan(kind, draw).save(folder / kind / f"{number:02}.png")


if __name__ == "__main__":
    images = Path(__file__).with_name("images")
    write(images)
    print(images)
