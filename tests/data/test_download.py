"""Downloads: built to the same content as the folder of FEDXRAY_DATA, checked, or refused with a remedy."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fedxray.data import sources
from fedxray.data.catalog import DATASETS, load
from fedxray.data.download import (
    cifar100,
    distance_to_line,
    draw,
    faces,
    fashion,
    fetch,
    fingerprint,
    idx_array,
    mnist,
    nebraska,
    tar_members,
)
from fedxray.data.sources import SOURCES, Download, Source
from fedxray.errors import BadInput
from fedxray.progress import Step


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDXRAY_DATA", raising=False)
    return tmp_path / "cache"


def offer(monkeypatch: pytest.MonkeyPatch, name: str, recipe: Download) -> None:
    monkeypatch.setattr(import_module("fedxray.data.download"), "SOURCES", {name: recipe})


def local(folder: Path, content: bytes, name: str = "file") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return (folder / name).as_uri()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_every_data_set_can_be_had() -> None:
    assert set(SOURCES) - set(DATASETS) == {"lpips"}  # the weights of a metric
    for name, recipe in SOURCES.items():
        assert recipe.megabytes > 0
        assert recipe.build or all(source.saved for source in recipe.sources), name
        for source in recipe.sources:
            assert all(url.startswith("http") for url in source.urls)
            assert source.sha256 == "" or len(source.sha256) == 64
            assert source.sha256 or recipe.fingerprints or name == "imagenet-sample"


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in SOURCES])
def test_nothing_is_downloaded_without_a_source(cache: Path, name: str) -> None:
    try:
        assert fetch(name) == []
    except BadInput as refusal:  # the user makes its files
        assert "Make it" in refusal.remedy
    assert not cache.exists()


def test_names(cache: Path) -> None:
    with pytest.raises(BadInput, match="Did you mean medical"):
        fetch("medicla")
    with pytest.raises(BadInput, match=r"preprocess\.sh"):
        fetch("femnist")


def test_a_plain_file_is_checked_and_stored(
    cache: Path, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gzip.decompress((data_folder / "insurance" / "insurance.csv.gz").read_bytes())
    url = local(tmp_path / "web", content)
    known = SOURCES["medical"].sources[0]
    offer(monkeypatch, "medical", Download(megabytes=1, sources=(
        Source(urls=("file:///nowhere/at/all", url), sha256=known.sha256, saved=known.saved),
    )))  # fmt: skip
    steps: list[Step] = []
    assert fetch("medical", report=steps.append) == [cache / "insurance" / "insurance.csv"]
    assert steps[-1].done == steps[-1].total == 1
    assert len(load("medical")) == 1338
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["insurance.csv"]


def test_a_wrong_checksum_leaves_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = local(tmp_path / "web", b"something else")
    offer(monkeypatch, "medical", Download(megabytes=1, sources=(Source(urls=(url,), sha256="0" * 64, saved="a/b"),)))
    with pytest.raises(BadInput, match="instead of 0000"):
        fetch("medical")
    assert list(cache.iterdir()) == []


def test_without_network_the_message_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Source(urls=("file:///nowhere/insurance.csv",), saved="insurance/insurance.csv")
    offer(monkeypatch, "medical", Download(megabytes=1, sources=(gone,)))
    with pytest.raises(
        BadInput, match=r"nowhere/insurance\.csv elsewhere, save it as .*downloads/medical/insurance\.csv"
    ):
        fetch("medical")


def test_a_file_put_into_the_cache_by_hand_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"by hand"
    gone = Source(urls=("file:///nowhere/insurance.csv",), sha256=sha(content), saved="insurance/insurance.csv")
    offer(monkeypatch, "medical", Download(megabytes=1, sources=(gone,)))
    local(cache / "downloads" / "medical", content, "insurance.csv")
    assert fetch("medical")[0].read_bytes() == content
    local(cache / "downloads" / "medical", b"other", "insurance.csv")
    with pytest.raises(BadInput, match="instead of"):
        fetch("medical")


def test_files_of_one_data_set_have_different_names() -> None:
    for recipe in SOURCES.values():
        assert len({source.file for source in recipe.sources}) == len(recipe.sources)


def test_a_download_above_the_cap_is_cut_off(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = local(tmp_path / "web", bytes(5000))
    offer(monkeypatch, "medical", Download(megabytes=1, sources=(Source(urls=(url,), saved="a"),)))
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "1000")
    with pytest.raises(BadInput, match="at most 1000 bytes"):
        fetch("medical")
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    url = local(tmp_path / "web", b"x")
    offer(monkeypatch, "medical", Download(megabytes=1, sources=(Source(urls=(url,), saved="a"),)))
    with pytest.raises(BadInput, match="FEDXRAY_CACHE: expected a folder with room"):
        fetch("medical")


def built_as_known(name: str, place: str, content: object) -> bool:
    known = SOURCES[name].fingerprints
    assert known is not None
    return fingerprint(content) == known[place]  # type: ignore[arg-type]


def test_faces_are_built_and_verified(
    cache: Path, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.load(data_folder / "att_faces" / "att_faces.npz")["x"]
    urls = [
        local(tmp_path / "web", b"P5\n92 112\n255\n" + picture.tobytes(), f"{number}.pgm")
        for number, picture in enumerate(pixels)
    ]
    parts = tuple(Source(urls=(url,)) for url in urls)
    known = SOURCES["att-faces"]
    recipe = Download(megabytes=1, sources=parts, build=known.build, fingerprints=known.fingerprints)
    offer(monkeypatch, "att-faces", recipe)
    assert fetch("att-faces") == [cache / "att_faces" / "att_faces.npz"]
    assert len(load("att-faces")) == 400
    swapped = Download(megabytes=1, sources=parts[::-1], build=known.build, fingerprints=known.fingerprints)
    offer(monkeypatch, "att-faces", swapped)
    with pytest.raises(BadInput, match="fingerprint"):
        fetch("att-faces")


def idx(array: np.ndarray) -> bytes:
    kind = 8 if array.dtype == np.uint8 else 12
    head = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(">i4" if kind == 12 else np.uint8).tobytes()


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_mnist_is_built_to_the_bit(tmp_path: Path, data_folder: Path) -> None:
    with np.load(data_folder / "mnist" / "mnist_10k.npz") as known:
        names = {"x_train": "train-images-idx3", "y_train": "train-labels-idx1"}
        names |= {"x_test": "t10k-images-idx3", "y_test": "t10k-labels-idx1"}
        members = {f"package/data/{name}-ubyte": idx(known[key]) for key, name in names.items()}
        labels = np.zeros((10000, 8), dtype=np.int32)
        labels[:, 2] = known["writer_train"]
    writers = tmp_path / "writers"
    writers.write_bytes(gzip.compress(idx(labels)))
    ((place, arrays),) = mnist([tar(tmp_path / "a.tgz", members), writers]).items()
    assert built_as_known("mnist", place, arrays)


def test_fashion_is_built_to_the_bit(tmp_path: Path, data_folder: Path) -> None:
    files = []
    with np.load(data_folder / "fashion_mnist" / "fashion_mnist_5k.npz") as known:
        for key in ("x_train", "y_train", "x_test", "y_test"):
            files.append(tmp_path / key)
            files[-1].write_bytes(gzip.compress(idx(known[key]), 1))
    ((place, arrays),) = fashion(files).items()
    assert built_as_known("fashion-mnist", place, arrays)


def test_cifar100_is_built_to_the_bit(tmp_path: Path, data_folder: Path) -> None:
    members: dict[str, bytes] = {}
    with np.load(data_folder / "cifar100" / "cifar100_2k.npz") as known:
        for part in ("train", "test"):
            planes = known[f"x_{part}"].transpose(0, 3, 1, 2).reshape(-1, 3072)
            rows = np.column_stack([known[f"coarse_{part}"], known[f"y_{part}"], planes])
            members[f"cifar-100-binary/{part}.bin"] = rows.astype(np.uint8).tobytes()
        for kind in ("fine", "coarse"):
            text = "\n".join(known[f"{kind}_names"]) + "\n"
            members[f"cifar-100-binary/{kind}_label_names.txt"] = text.encode()
    ((place, arrays),) = cifar100([tar(tmp_path / "a.tar.gz", members)]).items()
    assert built_as_known("cifar100", place, arrays)


def test_nebraska_is_joined_to_the_byte(tmp_path: Path, data_folder: Path) -> None:
    lines = gzip.decompress((data_folder / "acs" / "acsincome_2018_ne.csv.gz").read_bytes()).decode().split()
    rows = [line.split(",") for line in lines]
    features = [",".join(rows[0][:-1]), *(",".join(f"{value}.0" for value in row[:-1]) for row in rows[1:])]
    labels = ["PINCP", *(row[-1] for row in rows[1:])]
    known = SOURCES["acs-income"].sources
    files = [tmp_path / "unused"]
    for number, text in enumerate((features, labels), start=1):
        files.append(tmp_path / str(number))
        files[-1].write_text("\n".join(text) + "\n")
        assert sha(files[-1].read_bytes()) == known[number].sha256
    ((place, content),) = nebraska(files).items()
    assert built_as_known("acs-income", place, content)


def test_broken_downloads_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"no archive")
    with pytest.raises(BadInput, match="a complete tar archive"):
        tar_members(bad, lambda name: True)
    with pytest.raises(BadInput, match="PGM"):
        faces([bad])
    with pytest.raises(BadInput, match="a readable file"):
        fashion([bad] * 4)
    for content in (b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x05abc", b"\0\0\x07\x01\0\0\0\x01a"):
        with pytest.raises(BadInput, match="IDX"):
            idx_array(bad, content)


def test_drawn_characters_look_like_the_stand_in(data_folder: Path) -> None:
    strokes = __import__("json").loads(
        gzip.decompress((data_folder / "chars74k_hnd/char74k_strokes.json.gz").read_bytes())
    )
    with np.load(data_folder / "chars74k_hnd" / "femnist_like_28x28.npz") as known:
        for place in range(0, 3410, 341):
            character = str(known["charmap"][known["y"][place]])
            drawn = draw(strokes[character][int(known["writer"][place])])
            assert np.abs(drawn.astype(float) - known["x"][place]).mean() < 4


def test_distance_to_a_line_by_hand() -> None:
    line = np.array([[0.0, 0.0], [4.0, 0.0]])
    pixels = np.array([[2.0, 3.0], [-3.0, 4.0], [4.0, 0.0]])
    assert distance_to_line(pixels, line).tolist() == pytest.approx([3.0, 5.0, 0.0])
    assert distance_to_line(pixels, line[:1]).tolist() == pytest.approx([13**0.5, 5.0, 4.0])


def test_the_table_of_sources_pins_commits() -> None:
    for recipe in sources.SOURCES.values():
        for source in recipe.sources:
            for url in source.urls:
                if "raw.githubusercontent.com" in url:
                    assert len(url.split("/")[5]) == 40
