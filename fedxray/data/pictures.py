"""Public images: Fashion-MNIST, CIFAR-10, CIFAR-100, ImageNet photos, AT&T faces, and handwriting by writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import check_size, read_bytes, shown, whole_number
from fedxray.data.dataset import Dataset
from fedxray.data.encode import check_part, make_images
from fedxray.data.store import folders, read_named_arrays
from fedxray.errors import BadInput

FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
IMAGENET_SIZES = (32, 64, 128, 224)


def fashion_mnist(*, part: str = "train", size: object = None) -> Dataset:
    """The first 5,000 training or 1,000 test pictures of Fashion-MNIST, 28 x 28, in 0..1."""
    check_part(part)
    needed = (f"x_{part}", f"y_{part}")
    arrays = read_named_arrays("fashion-mnist", "fashion_mnist/fashion_mnist_5k.npz", needed)
    note = "Fashion-MNIST (Xiao et al. 2017, MIT licence)."
    return make_images("fashion-mnist", *(arrays[key] for key in needed), classes=FASHION, size=size, note=note)


def cifar10(*, part: str = "train", size: object = None, normalise: bool = False) -> Dataset:
    """The first 5,000 training or 1,000 test pictures of CIFAR-10, 32 x 32, in 0..1 unless normalised."""
    check_part(part)
    needed = (f"x_{part}", f"y_{part}")
    arrays = read_named_arrays("cifar10", "cifar10/cifar10_5k.npz", (*needed, "names"))
    return make_images(
        "cifar10",
        *(arrays[key] for key in needed),
        classes=[str(name) for name in arrays["names"]],
        size=size,
        mean=CIFAR10_MEAN if normalise else (),
        std=CIFAR10_STD if normalise else (),
        note="CIFAR-10 (Krizhevsky 2009).",
    )


def cifar100(*, part: str = "train", size: object = None, normalise: bool = True) -> Dataset:
    """The first 1,117 training or 916 test pictures of CIFAR-100, 32 x 32, normalised as in the papers."""
    check_part(part)
    needed = (f"x_{part}", f"y_{part}")
    arrays = read_named_arrays("cifar100", "cifar100/cifar100_2k.npz", (*needed, "fine_names"))
    return make_images(
        "cifar100",
        *(arrays[key] for key in needed),
        classes=[str(name) for name in arrays["fine_names"]],
        size=size,
        mean=CIFAR100_MEAN if normalise else (),
        std=CIFAR100_STD if normalise else (),
        recognised_above=19.0,
        note="CIFAR-100 (Krizhevsky 2009), fine labels.",
    )


def imagenet_sample(*, size: int = 64) -> Dataset:
    """One photo of each of 1,000 ImageNet classes at 32 or 64 pixels, or of 64 at 128 or 224, in 0..1."""
    if size not in IMAGENET_SIZES:
        raise BadInput("size", expected="32, 64, 128 or 224", got=shown(size), remedy="Choose one of them.")
    file = "imagenet_1000x64px.npz" if size <= 64 else "imagenet_64x224px.npz"
    arrays = read_named_arrays("imagenet-sample", f"imagenet_samples/{file}", ("x", "y"))
    names = read_named_arrays("imagenet-sample", "imagenet_samples/imagenet_1000x64px.npz", ("name", "y"))
    label_of = dict(zip(names["y"].tolist(), names["name"].tolist(), strict=True))
    return make_images(
        "imagenet-sample",
        arrays["x"],
        arrays["y"],
        classes=[label_of[label] for label in range(1000)],
        size=size,
        note="One ImageNet photo per class (research use only), in the order of WordNet numbers.",
    )


def att_faces(*, size: object = (80, 70)) -> Dataset:
    """400 grey portraits, ten of each of 40 people, resized from 112 x 92 to the paper's 80 x 70 pixels."""
    arrays = read_named_arrays("att-faces", "att_faces/att_faces.npz", ("x", "y"))
    return make_images(
        "att-faces",
        arrays["x"],
        arrays["y"],
        classes=[f"person {person + 1}" for person in range(40)],
        size=size,
        note="AT&T faces: courtesy of the Olivetti Research Laboratory (Samaria and Harter 1994).",
    )


# Handwriting with known writers: MNIST, MNIST by writer, and a stand-in for FEMNIST

DIGITS = tuple(str(digit) for digit in range(10))
MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)
FEMNIST_MEAN, FEMNIST_STD = (0.9642384,), (0.1576784,)  # of Dimitrov et al. 2022 (DLF)


def mnist(*, part: str = "train", size: object = None, normalise: bool = True) -> Dataset:
    """The first 10,000 training (with their writers as owners) or 2,000 test digits of MNIST, 28 x 28."""
    check_part(part)
    arrays = read_named_arrays("mnist", "mnist/mnist_10k.npz", (f"x_{part}", f"y_{part}", "writer_train"))
    return make_images(
        "mnist",
        arrays[f"x_{part}"],
        arrays[f"y_{part}"],
        classes=DIGITS,
        size=size,
        mean=MNIST_MEAN if normalise else (),
        std=MNIST_STD if normalise else (),
        owner=arrays["writer_train"] if part == "train" else None,
        note="MNIST (LeCun et al. 1998), writers from QMNIST.",
    )


def mnist_by_writer(*, size: object = None, normalise: bool = True) -> Dataset:
    """22,278 training digits of MNIST by 200 writers with at least 50 each."""
    arrays = read_named_arrays("mnist-by-writer", "mnist/mnist_by_writer_200.npz", ("x", "y", "writer"))
    return make_images(
        "mnist-by-writer",
        arrays["x"],
        arrays["y"],
        classes=DIGITS,
        size=size,
        mean=MNIST_MEAN if normalise else (),
        std=MNIST_STD if normalise else (),
        owner=arrays["writer"],
        note="MNIST by NIST writer (QMNIST), the digits-only federated split.",
    )


def femnist_like(*, size: object = None, normalise: bool = True) -> Dataset:
    """62 characters by each of 55 writers, drawn like FEMNIST: thin, dark on white, with a margin."""
    relative = "chars74k_hnd/femnist_like_28x28.npz"
    arrays = read_named_arrays("femnist-like", relative, ("x", "y", "writer", "charmap"))
    return make_images(
        "femnist-like",
        arrays["x"],
        arrays["y"],
        classes=[str(character) for character in arrays["charmap"]],
        size=size,
        mean=FEMNIST_MEAN if normalise else (),
        std=FEMNIST_STD if normalise else (),
        owner=arrays["writer"],
        note="Stand-in for FEMNIST: Chars74K (de Campos et al. 2009) drawn from its pen strokes.",
    )


# FEMNIST as LEAF writes it: JSON files of writers, which a user makes with LEAF's own script

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HOW = (
    "Make it with LEAF (github.com/TalwalkarLab/leaf): in data/femnist run "
    "`./preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then copy data/train to femnist/train in the folder "
    "that FEDXRAY_DATA names; or use femnist-like."
)


def femnist(*, writers: int = 0, size: object = None, normalise: bool = True) -> Dataset:
    """All samples in femnist/train/*.json (or femnist/*.json), or those of the first `writers` writers."""
    whole_number("writers", writers, least=0)
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
    return make_images(
        "femnist",
        np.concatenate(x),
        np.concatenate(y),
        classes=tuple(CHARACTERS),
        size=size,
        mean=FEMNIST_MEAN if normalise else (),
        std=FEMNIST_STD if normalise else (),
        owner=np.array(owner),
        note="FEMNIST (Caldas et al. 2018), writers are the owners.",
    )


def is_there() -> bool:
    """Whether the files of FEMNIST exist."""
    return _leaf_folder() is not None


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
    if leaf is not None:
        check_size(f"folder {shown(str(leaf[0]))}", sum(file.stat().st_size for file in leaf[1]))
        return leaf[1]
    candidates = " or ".join(str(folder / "femnist") for folder in folders())
    raise BadInput("data set femnist", expected="LEAF's JSON files", got=f"none in {candidates}", remedy=HOW)


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
    if len(labels) == 0 or labels.shape != (len(pixels),) or labels.min() < 0 or labels.max() > 61 or not inside:
        raise _bad(file, "labels 0..61 and pixels 0..1, one label per image", f"other values for {shown(writer)}")
    return pixels, labels


def _bad(file: Path, expected: str, got: str) -> BadInput:
    return BadInput(f"file {shown(str(file))}", expected=expected, got=got, remedy=HOW)
