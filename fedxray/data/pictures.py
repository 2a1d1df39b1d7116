"""Public images: Fashion-MNIST, CIFAR-10, CIFAR-100, ImageNet photos, AT&T faces, and handwriting by writer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import check_size, read_bytes, shown, whole_number
from fedxray.data.dataset import Dataset
from fedxray.data.encode import check_part, make_images
from fedxray.data.own_arrays import read_arrays
from fedxray.data.store import folders, read_named_arrays
from fedxray.errors import BadInput

FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
IMAGENET_SIZES = (32, 64, 128, 224)
DIGITS = tuple(str(digit) for digit in range(10))
# Mean and deviation by channel
Scaling = tuple[tuple[float, ...], tuple[float, ...]]
CIFAR10: Scaling = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100: Scaling = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
MNIST: Scaling = (0.1307,), (0.3081,)
FEMNIST: Scaling = (0.9642384,), (0.1576784,)  # of Dimitrov et al. 2022 (DLF)


def _from_file(
    name: str,
    file: str,
    note: str,
    *,
    classes: Sequence[str] | str,
    size: object,
    part: str | None = None,
    writer: str | None = None,
    scaling: Scaling | None = None,
    **options: Any,
) -> Dataset:
    """Images and labels of an NPZ file, of its train or test `part` where it has both.

    `classes` are names or the array that holds them, `writer` is the array of owners; `options` are of `make_images`.
    """
    if part is not None:
        check_part(part)
    x, y = ("x", "y") if part is None else (f"x_{part}", f"y_{part}")
    arrays = read_named_arrays(name, file, [x, y, *(key for key in (classes, writer) if isinstance(key, str))])
    options |= {"classes": [str(label) for label in arrays[classes]] if isinstance(classes, str) else classes}
    options |= {"owner": arrays[writer]} if writer else {}
    options |= dict(zip(("mean", "std"), scaling, strict=True)) if scaling else {}
    return make_images(name, arrays[x], arrays[y], size=size, note=note, **options)


def fashion_mnist(*, part: str = "train", size: object = None) -> Dataset:
    """The first 5,000 training or 1,000 test pictures of Fashion-MNIST, 28 x 28, in 0..1."""
    file, note = "fashion_mnist/fashion_mnist_5k.npz", "Fashion-MNIST (Xiao et al. 2017, MIT licence)."
    return _from_file("fashion-mnist", file, note, classes=FASHION, size=size, part=part)


def cifar10(*, part: str = "train", size: object = None, normalise: bool = False) -> Dataset:
    """The first 5,000 training or 1,000 test pictures of CIFAR-10, 32 x 32, in 0..1 unless normalised."""
    file, note = "cifar10/cifar10_5k.npz", "CIFAR-10 (Krizhevsky 2009)."
    scaling = CIFAR10 if normalise else None
    return _from_file("cifar10", file, note, classes="names", size=size, part=part, scaling=scaling)


def cifar100(*, part: str = "train", size: object = None, normalise: bool = True) -> Dataset:
    """The first 1,117 training or 916 test pictures of CIFAR-100, 32 x 32, normalised as in the papers."""
    file, note = "cifar100/cifar100_2k.npz", "CIFAR-100 (Krizhevsky 2009), fine labels."
    options: dict[str, Any] = {"scaling": CIFAR100 if normalise else None, "recognised_above": 19.0}
    return _from_file("cifar100", file, note, classes="fine_names", size=size, part=part, **options)


def imagenet_sample(*, size: int = 64) -> Dataset:
    """One photo of each of 1,000 ImageNet classes at 32 or 64 pixels, or of 64 at 128 or 224, in 0..1."""
    if size not in IMAGENET_SIZES:
        raise BadInput("size", expected="32, 64, 128 or 224", got=shown(size), remedy="Choose one of them.")
    file = "imagenet_1000x64px.npz" if size <= 64 else "imagenet_64x224px.npz"
    names = read_named_arrays("imagenet-sample", "imagenet_samples/imagenet_1000x64px.npz", ("name", "y"))
    label_of = dict(zip(names["y"].tolist(), names["name"].tolist(), strict=True))
    classes = [label_of[label] for label in range(1000)]
    note = "One ImageNet photo per class (research use only), in the order of WordNet numbers."
    return _from_file("imagenet-sample", f"imagenet_samples/{file}", note, classes=classes, size=size)


def att_faces(*, size: object = (80, 70)) -> Dataset:
    """400 grey portraits, ten of each of 40 people, resized from 112 x 92 to the paper's 80 x 70 pixels."""
    classes = [f"person {person + 1}" for person in range(40)]
    note = "AT&T faces: courtesy of the Olivetti Research Laboratory (Samaria and Harter 1994)."
    return _from_file("att-faces", "att_faces/att_faces.npz", note, classes=classes, size=size)


# Handwriting with known writers: MNIST, MNIST by writer, and a stand-in for FEMNIST


def mnist(*, part: str = "train", size: object = None, normalise: bool = True) -> Dataset:
    """The first 10,000 training (with their writers as owners) or 2,000 test digits of MNIST, 28 x 28."""
    file, note = "mnist/mnist_10k.npz", "MNIST (LeCun et al. 1998), writers from QMNIST."
    writer, scaling = "writer_train" if part == "train" else None, MNIST if normalise else None
    return _from_file("mnist", file, note, classes=DIGITS, size=size, part=part, writer=writer, scaling=scaling)


def mnist_by_writer(*, size: object = None, normalise: bool = True) -> Dataset:
    """22,278 training digits of MNIST by 200 writers with at least 50 each."""
    file, note = "mnist/mnist_by_writer_200.npz", "MNIST by NIST writer (QMNIST), the digits-only federated split."
    scaling = MNIST if normalise else None
    return _from_file("mnist-by-writer", file, note, classes=DIGITS, size=size, writer="writer", scaling=scaling)


def femnist_like(*, size: object = None, normalise: bool = True) -> Dataset:
    """62 characters by each of 55 writers, drawn like FEMNIST: thin, dark on white, with a margin."""
    note = "Stand-in for FEMNIST: Chars74K (de Campos et al. 2009) drawn from its pen strokes."
    file, scaling = "chars74k_hnd/femnist_like_28x28.npz", FEMNIST if normalise else None
    return _from_file("femnist-like", file, note, classes="charmap", size=size, writer="writer", scaling=scaling)


# FEMNIST as LEAF writes it: JSON files of writers, which a user makes with LEAF's own script

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HOW = (
    "Make it with LEAF (github.com/TalwalkarLab/leaf): in data/femnist run "
    "`./preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then copy data/train to femnist/train in the folder "
    "that FEDXRAY_DATA names; or use femnist-like."
)


def femnist(*, writers: int = 0, size: object = None, normalise: bool = True) -> Dataset:
    """All samples of FEMNIST, or those of the first `writers` writers: LEAF's JSON files, or an NPZ made from them.

    femnist/train/*.json or femnist/*.json; else femnist/*.npz with x [n, 28, 28] from 0 to 255, y and writer.
    """
    whole_number("writers", writers, least=0)
    x, y, owner = _read_leaf(writers) if _leaf_folder() else _read_npz(writers)
    scaling: dict[str, Any] = dict(zip(("mean", "std"), FEMNIST, strict=True)) if normalise else {}
    note = "FEMNIST (Caldas et al. 2018), writers are the owners."
    return make_images("femnist", x, y, classes=tuple(CHARACTERS), size=size, owner=owner, note=note, **scaling)


Written = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]  # images, labels and writers


def _read_leaf(writers: int) -> Written:
    x: list[NDArray[np.float32]] = []
    y: list[NDArray[np.int64]] = []
    owner: list[str] = []
    for file in _files():
        for writer, samples in _writers(file):
            if writers and len(x) == writers:
                break
            pixels, labels = _samples(file, writer, samples)
            x.append(pixels)
            y.append(labels)
            owner.extend([writer] * len(labels))
    if not x:
        raise _bad(_files()[0], "at least one writer", "none")
    return np.concatenate(x), np.concatenate(y), np.array(owner)


def _read_npz(writers: int) -> Written:
    file = _npz_file()
    if file is None:
        candidates = " or ".join(str(folder / "femnist") for folder in folders())
        raise BadInput("data set femnist", expected="LEAF's JSON files", got=f"none in {candidates}", remedy=HOW)
    arrays = read_arrays(file)
    missing = [name for name in ("x", "y", "writer") if name not in arrays]
    if missing:
        raise _bad(file, "arrays x, y and writer", f"no {missing[0]}")
    x, y, owner = (arrays[name] for name in ("x", "y", "writer"))
    shaped = x.ndim == 3 and x.shape[1:] == (28, 28) and y.shape == owner.shape == (len(x),) and len(x) > 0
    typed = x.dtype == np.uint8 and y.dtype.kind in "iu" and owner.dtype.kind in "iuUS"
    if not shaped or not typed or y.min() < 0 or y.max() > 61:
        got = ", ".join(f"{name} {arrays[name].dtype} {list(arrays[name].shape)}" for name in ("x", "y", "writer"))
        raise _bad(file, "uint8 images [n, 28, 28] with labels 0..61 and a writer each", got)
    names, first = np.unique(owner, return_index=True)
    known = names[np.argsort(first)][: writers or None]  # in the order of the file
    chosen = np.isin(owner, known)
    return x[chosen].astype(np.float32) / np.float32(255), y[chosen].astype(np.int64), owner[chosen]


def count_writers(least: int) -> int:
    """Return how many writers in the files of FEMNIST have at least that many images; 0 without files."""
    if _leaf_folder() is None and _npz_file() is None:
        return 0
    _, _, owner = _read_leaf(0) if _leaf_folder() else _read_npz(0)
    return int((np.unique(owner, return_counts=True)[1] >= least).sum())


def _npz_file() -> Path | None:
    """The first NPZ file of FEMNIST."""
    return next((file for folder in folders() for file in sorted((folder / "femnist").glob("*.npz"))), None)


def _leaf_folder() -> tuple[Path, list[Path]] | None:
    """The folder that holds LEAF's JSON files, and the files."""
    for folder in folders():
        for candidate in (folder / "femnist" / "train", folder / "femnist"):
            files = sorted(candidate.glob("*.json"))
            if files:
                return candidate, files
    return None


def _files() -> list[Path]:
    leaf = _leaf_folder()
    assert leaf is not None
    check_size(f"folder {shown(str(leaf[0]))}", sum(file.stat().st_size for file in leaf[1]))
    return leaf[1]


def _writers(file: Path) -> list[tuple[str, Any]]:
    """Writers of one file in its own order."""
    try:
        content = json.loads(read_bytes(file))
        return [(str(writer), content["user_data"][writer]) for writer in content["users"]]
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise _bad(file, "users and user_data", f"{type(problem).__name__}: {problem}") from problem


def _samples(file: Path, writer: str, samples: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images [n, 28, 28] in 0..1 and labels [n] of one writer."""
    try:
        pixels = np.asarray(samples["x"], dtype=np.float32).reshape(-1, 28, 28)
        labels = np.asarray(samples["y"], dtype=np.int64)
    except (ValueError, TypeError, KeyError, OverflowError) as problem:
        raise _bad(file, "784 numbers per sample", f"{type(problem).__name__}: {problem}") from problem
    inside = np.isfinite(pixels).all() and pixels.min(initial=0) >= 0 and pixels.max(initial=0) <= 1
    if labels.shape != (len(pixels),) or len(labels) == 0 or labels.min() < 0 or labels.max() > 61 or not inside:
        raise _bad(file, "labels 0..61 and pixels 0..1, one label per image", f"other values for {shown(writer)}")
    return pixels, labels


def _bad(file: Path, expected: str, got: str) -> BadInput:
    return BadInput(f"file {shown(str(file))}", expected=expected, got=got, remedy=HOW)
