"""A user's own folder of images with one folder per class."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections import Counter
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

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF")
SAMPLE_FORMAT, UNSIGNED = 339, (1,)  # a TIFF's tag for the kind of its numbers, and its default
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
    MemoryError,
)


def own_images(path: Path, *, size: object = None) -> Dataset:
    """All images of the folder's folders, each folder a class; one size, or resized to `size`."""
    classes = sorted(folder.name for folder in path.iterdir() if folder.is_dir() and folder.name[0] != ".")
    check_names("class folder", classes)
    if len(classes) < 2:
        loose = loose_images(path)
        raise BadInput(
            f"folder {shown(str(path), longest=400)}",
            expected="a folder of images for each of two classes or more",
            got=f"{loose} images, but no folder per class" if loose and not classes else f"{len(classes)} folders",
            remedy="Sort the images into folders named after their classes.",
        )
    labelled = [(file, label) for label, name in enumerate(classes) for file in _files(path / name)]
    pixels = _read_all([file for file, _ in labelled], None if size is None else image_size(size))
    labels = np.array([label for _, label in labelled])
    return make_images(
        plain_name(path.name), pixels, labels, classes=classes, private=True, note="A user's own images."
    )


def loose_images(path: Path) -> int:
    """How many images lie in the folder itself, in no folder of a class."""
    return sum(file.suffix.lower() in SUFFIXES for file in path.iterdir() if not file.name.startswith("."))


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
    """Pixels as bytes or as floats in 0..1, [n, h, w] when all are grey, else [n, h, w, 3]."""
    library = pillow()
    images: list[NDArray[Any]] = []
    for file in files:
        images.append(_read_one(library, file, size, len(files)))
    _check_one_size(files, [image.shape[:2] for image in images])
    images = _to_unit_range(images)
    if len({image.ndim for image in images}) > 1:
        images = [image if image.ndim == 3 else np.stack([image] * 3, axis=2) for image in images]
    return np.stack(images)


def _check_one_size(files: list[Path], shapes: list[tuple[int, ...]]) -> None:
    """Refuse images of several sizes, by the first whose size is not the most frequent one."""
    (usual, number), *others = Counter(shapes).most_common()
    if others:
        odd = next(index for index, shape in enumerate(shapes) if shape != usual)
        expected = f"{usual[1]} x {usual[0]} pixels, as {number} of {len(files)} images have"
        remedy = "Give size = 32 (or another) to resize all of them."
        raise _bad_image(files[odd], expected, f"{shapes[odd][1]} x {shapes[odd][0]}", remedy)


def _to_unit_range(images: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Images in 0..1 where one has more than 8 bits; such images are scaled by the range that all of them share."""
    kinds = {image.dtype.kind for image in images}
    if kinds == {"u"}:
        return images
    ranges = {kind: _range(kind, [image for image in images if image.dtype.kind == kind]) for kind in kinds}

    def scaled(image: NDArray[Any]) -> NDArray[Any]:
        low, high = ranges[image.dtype.kind]
        return ((image - low) / (high - low or 1.0)).astype(np.float32)

    return [scaled(image) for image in images]


def _range(kind: str, images: list[NDArray[Any]]) -> tuple[float, float]:
    """The values that become 0 and 1: those of the bit depth, or 0 and 1 for floats that keep to them.

    Files often keep 10 or 12 bits in 16: the depth is the fewest even bits that hold every value. Negative numbers, and
    floats beyond 1, have no depth: their lowest and highest become 0 and 1.
    """
    low, high = min(float(image.min()) for image in images), max(float(image.max()) for image in images)
    if low < 0 or (kind == "f" and high > 1):
        return low, high
    bits = int(high).bit_length()
    return 0.0, float(2 ** max(8, bits + bits % 2) - 1) if kind in "ui" else 1.0


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
    """One image, [h, w] or [h, w, 3]; its size is checked from the header before it is decoded."""
    check_size(f"file {shown(str(file))}", file.stat().st_size)
    try:
        with warnings.catch_warnings():
            # Pillow warns of large or odd images: size and values are checked below.
            warnings.simplefilter("ignore")
            with library.open(file, formats=FORMATS) as image:
                width, height = image.size
                check_size(f"file {shown(str(file))}, unpacked", 4 * width * height)
                check_size("all images, unpacked", files * 3 * (height * width if size is None else size[0] * size[1]))
                if getattr(image, "n_frames", 1) > 1:
                    remedy = "Save each picture in a file of its own."
                    raise _bad_image(file, "one image", f"{image.n_frames} in one file", remedy)
                return _pixels(library, image, size)
    except (library.DecompressionBombError, *BROKEN) as problem:
        got = f"{type(problem).__name__}: {problem}"
        raise _bad_image(file, "a complete image", got, "Remove it or save it again.") from problem


def _pixels(library: ModuleType, image: Any, size: tuple[int, int] | None) -> NDArray[Any]:
    """The values of an image: bytes, int64 where it has more bits, or float32 for real numbers, as in the file.

    Pillow itself scales a PGM's values by its maximum, to 65535.
    """
    mode, pgm = image.mode, image.format == "PPM"
    whole = mode.startswith("I") and not pgm
    if mode.startswith("I") or mode == "F":
        values = np.asarray(image)
        unsigned = image.format == "TIFF" and image.tag_v2.get(SAMPLE_FORMAT, UNSIGNED) == UNSIGNED
        if unsigned and values.min() < 0:  # beyond what Pillow's whole numbers hold
            raise ValueError("values above 2,147,483,647")
        plain = library.fromarray(values.astype(np.float32) / np.float32(65535 if pgm and mode != "F" else 1))
    else:
        plain = image.convert("L" if mode in ("1", "L") else "RGB")
    if size is not None:
        plain = plain.resize((size[1], size[0]), library.Resampling.BILINEAR)
    pixels = np.asarray(plain)
    if not np.isfinite(pixels).all():
        raise ValueError("values that are not finite")
    return np.rint(pixels).astype(np.int64) if whole else pixels


def _bad_image(file: Path, expected: str, got: object, remedy: str) -> BadInput:
    return BadInput(f"file {shown(str(file))}", expected=expected, got=got, remedy=remedy)
