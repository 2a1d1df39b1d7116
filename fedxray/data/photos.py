"""Pictures: Fashion-MNIST, CIFAR-10, CIFAR-100, one ImageNet photo per class, AT&T faces."""

from __future__ import annotations

from fedxray.data.checks import shown
from fedxray.data.images import check_part, make_images
from fedxray.data.space import Dataset
from fedxray.data.store import read_named_arrays
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
    return make_images(
        "fashion-mnist", *(arrays[key] for key in needed), classes=FASHION, size=size, note=note
    )


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
        classes=[label_of[place] for place in range(1000)],
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
