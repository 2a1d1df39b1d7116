"""Cuts the two photos that ship with scikit-learn into small images, each a class of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

FOLDER = Path(__file__).with_name("photos")
SIDE, ACROSS, DOWN = 32, 5, 4  # pixels of an image, and images of each photo


def main() -> None:
    for photo, pixels in zip(("temple", "flower"), load_sample_images().images, strict=True):
        height, width = pixels.shape[0] // DOWN, pixels.shape[1] // ACROSS
        for index in range(ACROSS * DOWN):
            top, left = index // ACROSS * height, index % ACROSS * width
            part = Image.fromarray(np.ascontiguousarray(pixels[top : top + height, left : left + width]))
            folder = FOLDER / f"{photo}-{index:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            part.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / "0.png")
    print(FOLDER)


if __name__ == "__main__":
    main()
