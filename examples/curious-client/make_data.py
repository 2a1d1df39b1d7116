"""Cuts the two photos that come with scikit-learn into small pictures, each a class of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

FOLDER = Path(__file__).with_name("photos")
SIDE, ACROSS, DOWN = 32, 5, 4  # pixels of a picture, and pictures of each photo


def main() -> None:
    for photo, pixels in zip(("temple", "flower"), load_sample_images().images, strict=True):
        height, width = pixels.shape[0] // DOWN, pixels.shape[1] // ACROSS
        for place in range(ACROSS * DOWN):
            top, left = place // ACROSS * height, place % ACROSS * width
            part = Image.fromarray(np.ascontiguousarray(pixels[top : top + height, left : left + width]))
            folder = FOLDER / f"{photo}-{place:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            part.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / "0.png")
    print(FOLDER)


if __name__ == "__main__":
    main()
