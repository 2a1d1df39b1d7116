"""Handwriting with known writers: MNIST, MNIST by writer, and a stand-in for FEMNIST."""

from __future__ import annotations

from fedxray.data.images import check_part, make_images
from fedxray.data.space import Dataset
from fedxray.data.store import read_named_arrays

DIGITS = tuple(str(digit) for digit in range(10))
MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)
FEMNIST_MEAN, FEMNIST_STD = (0.9642384,), (0.1576784,)  # of the paper on FedAvg leakage


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
    place = "chars74k_hnd/femnist_like_28x28.npz"
    arrays = read_named_arrays("femnist-like", place, ("x", "y", "writer", "charmap"))
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
