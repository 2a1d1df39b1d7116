"""A user's own folder of images with one folder per class."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import IGNORED, check_size, plain_name, shown
from fedxray.data.dataset import Dataset
from fedxray.data.encode import image_size, make_images
from fedxray.data.own_csv import check_names
from fedxray.errors import BadInput

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
FORMATS = ("PNG", "JPEG", "BMP", "PPM")
BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    struct.error,
    zlib.error,
)


def own_images(path: Path, *, size: object = None) -> Dataset:
    """All images of the folder's folders, each folder a class; one size, or resized to `size`."""
    classes = sorted(folder.name for folder in path.iterdir() if folder.is_dir() and folder.name[0] != ".")
    check_names("class folder", classes)
    if len(classes) < 2:
        raise BadInput(
            f"folder {shown(str(path), longest=400)}",
            expected="a folder of images for each of two classes or more",
            got=f"{len(classes)} folders",
            remedy="Sort the images into folders named after their classes.",
        )
    labelled = [(file, label) for label, name in enumerate(classes) for file in _files(path / name)]
    pixels = _read_all([file for file, _ in labelled], None if size is None else image_size(size))
    labels = np.array([label for _, label in labelled])
    return make_images(
        plain_name(path.name), pixels, labels, classes=classes, private=True, note="A user's own images."
    )


def _files(folder: Path) -> Iterator[Path]:
    """The images of one class in the order of their names."""
    empty = True
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or file.name.lower() in IGNORED:
            continue
        if file.is_symlink() or not file.is_file() or file.suffix.lower() not in SUFFIXES:
            remedy = "Move it out of the folder or convert it."
            raise _bad_image(file, f"an image ({', '.join(SUFFIXES)})", shown(file.name), remedy)
        empty = False
        yield file
    if empty or folder.is_symlink():
        raise BadInput(
            f"folder {shown(str(folder))}",
            expected="a real folder with images",
            got="none",
            remedy="Remove it or fill it.",
        )


def _read_all(files: list[Path], size: tuple[int, int] | None) -> NDArray[Any]:
    """Pixels as bytes, [n, h, w] when all are grey, else [n, h, w, 3]."""
    library = pillow()
    images: list[NDArray[Any]] = []
    for file in files:
        image = _read_one(library, file, size, len(files))
        if images and image.shape[:2] != images[0].shape[:2]:
            expected = f"{images[0].shape[:2]} pixels as in the first image"
            remedy = "Give size = 32 (or another) to resize all of them."
            raise _bad_image(file, expected, image.shape[:2], remedy)
        images.append(image)
    if len({image.ndim for image in images}) > 1:
        images = [image if image.ndim == 3 else np.stack([image] * 3, axis=2) for image in images]
    return np.stack(images)


def pillow() -> ModuleType:
    """The image library, which comes with matplotlib."""
    try:
        from PIL import Image
    except ModuleNotFoundError as problem:
        expected = "the package pillow to read images"
        remedy = "It comes with matplotlib; install it again: pip install pillow."
        raise BadInput("path", expected=expected, got="none installed", remedy=remedy) from problem
    return Image


def _read_one(library: ModuleType, file: Path, size: tuple[int, int] | None, files: int) -> NDArray[Any]:
    """One image as bytes, [h, w] or [h, w, 3]; its size is checked from the header before it is decoded."""
    check_size(f"file {shown(str(file))}", file.stat().st_size)
    try:
        with warnings.catch_warnings():
            # Pillow warns of large or odd images: the size is checked below, and values are bytes.
            warnings.simplefilter("ignore")
            with library.open(file, formats=FORMATS) as image:
                width, height = image.size
                check_size(f"file {shown(str(file))}, unpacked", 4 * width * height)
                check_size("all images, unpacked", files * 3 * (height * width if size is None else size[0] * size[1]))
                plain = image.convert("L" if image.mode in ("1", "L", "I", "I;16", "F") else "RGB")
                if size is not None:
                    plain = plain.resize((size[1], size[0]), library.Resampling.BILINEAR)
                return np.asarray(plain, dtype=np.uint8)
    except (library.DecompressionBombError, *BROKEN) as problem:
        got = f"{type(problem).__name__}: {problem}"
        raise _bad_image(file, "a complete image", got, "Remove it or save it again.") from problem


def _bad_image(file: Path, expected: str, got: object, remedy: str) -> BadInput:
    return BadInput(f"file {shown(str(file))}", expected=expected, got=got, remedy=remedy)
