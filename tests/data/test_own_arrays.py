"""A user's own NPZ files and image folders: what is read, what is refused, and arrays used exactly as they are."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data.catalog import load
from fedxray.data.dataset import USE
from fedxray.data.split import split
from fedxray.errors import BadInput

# Encoded arrays and image folders


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def test_table_with_clients(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = np.column_stack([draw.standard_normal(40), draw.integers(0, 2, 40), draw.integers(0, 3, 40)])
    path = save(tmp_path / "own.npz", x=x, y=draw.standard_normal(40), client=np.repeat(["b", "a"], 20))
    dataset = load(path=path, sensitive="x1", categorical=["x2"])
    assert dataset.private
    assert [(column.kind, len(column.positions)) for column in dataset.space.columns] == [
        ("continuous", 1), ("categorical", 1), ("categorical", 2),
    ]  # fmt: skip
    assert dataset.space.column("x2").categories == ("0", "1", "2")
    assert dataset.owner is not None
    assert dataset.owner.tolist() == [1] * 20 + [0] * 20
    divided = split(dataset, clients=2, partition="as-given", seed=0)
    assert divided.names == ("a", "b")
    assert set(divided.train[0].tolist()) <= set(range(20, 40))
    labels = save(tmp_path / "classes.npz", x=x, y=np.array(["no", "yes"] * 20))
    assert load(path=labels).space.classes == ("no", "yes")


@pytest.mark.parametrize("shape", [(6, 5, 4), (6, 5, 4, 3), (6, 3, 5, 4), (6, 5, 4, 1)])
def test_images_in_every_layout(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    dataset = load(path=save(tmp_path / "own.npz", x=pixels, y=np.arange(6) % 2))
    channels = 3 if 3 in shape else 1
    assert dataset.x.shape == (6, channels, 5, 4)
    first = pixels[0, :, 2, 3] if shape[1] == 3 else np.atleast_1d(pixels[0, 2, 3])
    assert torch.allclose(dataset.x[0, :, 2, 3], torch.from_numpy(first.astype(np.float32) / 255))
    floats = load(path=save(tmp_path / "floats.npz", x=pixels / 255.0, y=np.arange(6) % 2))
    assert torch.allclose(floats.x, dataset.x, atol=1e-6)
    assert load(path=tmp_path / "own.npz", size=[10, 8]).x.shape == (6, channels, 10, 8)


X, Y = np.zeros((4, 2)) + np.arange(2), np.arange(4) % 2


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ({"x": X}, {}, "an array y"),
        ({"x": X, "y": Y[:3]}, {}, r"y of shape \(4,\)"),
        ({"x": X, "y": Y, "client": Y[:2]}, {}, r"client of shape \(4,\)"),
        ({"x": X, "y": Y, "client": Y / 3}, {}, "client as whole numbers"),
        ({"x": np.where(X > 0, np.nan, X), "y": Y}, {}, "finite numbers, got x.0."),
        ({"x": X, "y": np.array([0, np.inf, 1, 2])}, {}, "finite numbers, got y.1."),
        ({"x": X[:, :0], "y": Y}, {}, "x as numbers"),
        ({"x": X[0], "y": Y}, {}, "x as numbers"),
        ({"x": X.astype(str), "y": Y}, {}, "x as numbers"),
        ({"x": X.astype(complex), "y": Y}, {}, "header of numbers or text"),
        ({"x": X, "y": Y * 0}, {}, "printable classes"),
        ({"x": X, "y": Y * 0.0}, {}, "different values in y, got one"),
        ({"x": X, "y": Y}, {"sensitive": "x9"}, "sensitive"),
        ({"x": X, "y": Y}, {"categorical": ["x9"]}, "categorical"),
        ({"x": X, "y": Y}, {"size": 4}, "size"),
        ({"x": X, "y": Y}, {"target": "y"}, "target: expected a setting"),
        ({"x": X[:, :, None], "y": Y}, {"sensitive": "x0"}, "sensitive: expected a table, got images"),
        ({"x": 9 * X[:, :, None], "y": Y}, {}, "floats from 0 to 1"),
        ({"x": X[:, :, None, None].repeat(4, 3), "y": Y}, {}, "1 or 3 channels"),
        ({"x": X[:, :, None], "y": Y / 3}, {}, "as classes in y"),
    ],
)
def test_npz_messages(tmp_path: Path, arrays: dict[str, np.ndarray], settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(path=save(tmp_path / "own.npz", **arrays), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", ["y", "client"])
def test_numbers_that_are_no_characters_are_refused(tmp_path: Path, name: str, order: str) -> None:
    text = np.array([0x41, 0x10FFFF, 0x110000, 0x41], f"{order}u4")
    path = save(tmp_path / "own.npz", **{"x": X, "y": Y, name: text.view(f"{order}U1")})
    with pytest.raises(BadInput, match="expected text of Unicode characters, got the number 1,114,112"):
        load(path=path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, allow_pickle=True, x=np.array([{"a": 1}, {}], dtype=object), y=Y[:2])
    with pytest.raises(BadInput, match="a plain NPY header"):
        load(path=path)


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_sizes_are_checked_before_anything_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(zipped({"x.npy": npy(np.zeros((1000, 1000))), "y.npy": npy(Y)}))
    assert path.stat().st_size < 20_000
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "1000000")
    with pytest.raises(BadInput, match=r"unpacked: expected at most 1000000 bytes, got 8000"):
        load(path=path)


def test_an_archive_that_lies_about_its_sizes_is_not_unpacked_beyond_them(tmp_path: Path) -> None:
    """Before, all 50 MB were unpacked and then cut to the 1,000 bytes that the directory states."""
    content = zipped({"x.npy": bytes(50_000_000), "y.npy": npy(Y)})
    size = struct.pack("<I", 50_000_000)
    assert content.count(size) == 2  # in the file's own header and in the directory
    (tmp_path / "own.npz").write_bytes(content.replace(size, struct.pack("<I", 1000)))
    tracemalloc.start()
    with pytest.raises(BadInput, match="an NPZ file"):
        load(path=tmp_path / "own.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_class_numbers_and_categories_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """Before, 755 bytes took 6 GB."""
    path = save(tmp_path / "own.npz", x=X, y=np.array([0, 1, 2, 50_000_000]))
    with pytest.raises(BadInput, match="class numbers from 0 to 9999 in y, got 0 to 50000000"):
        load(path=path, ready=True)
    many = save(tmp_path / "many.npz", x=np.arange(40_000.0)[:, None], y=np.arange(40_000) % 2)
    with pytest.raises(BadInput, match="column 'x0', encoded: expected at most"):
        load(path=many, categorical=["x0"])
    wide = save(tmp_path / "wide.npz", x=np.zeros((2, 100_001), np.uint8), y=Y[:2])
    for ready in (False, True):
        with pytest.raises(BadInput, match="at most 100,000 columns in x, got 100,001"):
            load(path=wide, ready=ready)


def test_a_header_that_lies_about_the_shape_allocates_nothing(tmp_path: Path) -> None:
    honest = npy(np.zeros((10, 10)))
    for claim in (b"(9**9,2)", b"(99, 10)", b"(10, -1)", b"(1e1, 1)", b"99999999", b"(9999999"):
        content = honest.replace(b"(10, 10)", claim)
        assert content != honest
        (tmp_path / "own.npz").write_bytes(zipped({"x.npy": content, "y.npy": npy(Y)}))
        with pytest.raises(BadInput, match=r"own\.npz"):
            load(path=tmp_path / "own.npz")


def test_odd_members_are_refused(tmp_path: Path) -> None:
    for content in (
        zipped({"../x.npy": npy(X), "y.npy": npy(Y)}),
        zipped({"x.txt": b"1", "y.npy": npy(Y)}),
        zipped({"x.npy": npy(X), "y.npy": npy(Y)}, zipfile.ZIP_BZIP2),
    ):
        (tmp_path / "own.npz").write_bytes(content)
        with pytest.raises(BadInput, match=r"own\.npz"):
            load(path=tmp_path / "own.npz")


GOOD = zipped({"x.npy": npy(X), "y.npy": npy(Y)})
PLAIN = zipped({"x.npy": npy(X), "y.npy": npy(Y)}, zipfile.ZIP_STORED)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=200).map(lambda body: zipped({"x.npy": body, "y.npy": npy(Y)})),
        st.binary(max_size=100).map(lambda tail: zipped({"x.npy": npy(X)[:60] + tail, "y.npy": npy(Y)})),
        st.tuples(st.sampled_from([GOOD, PLAIN]), st.integers(0, 2**16), st.integers(0, 255)).map(
            lambda case: case[0][: case[1] % len(case[0])] + bytes([case[2]]) + case[0][case[1] % len(case[0]) + 1 :]
        ),
        st.integers(0, len(GOOD)).map(lambda cut: GOOD[:cut]),
        st.text(alphabet="{}()'descr:,fotan_shp0123456789 LTrueFals<>|", max_size=80).map(
            lambda text: zipped({"x.npy": npy(X)[:10] + text.encode().ljust(117) + b"\n", "y.npy": npy(Y)})
        ),
    )
)
def test_any_bytes_give_a_data_set_or_a_message(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.npz"
    path.write_bytes(content)
    try:
        dataset = load(path=path)
    except BadInput:
        return
    assert torch.isfinite(dataset.x).all()


@pytest.fixture
def pillow(extra: Callable[[str], ModuleType]) -> ModuleType:
    return extra("PIL.Image")


def paint(pillow: ModuleType, path: Path, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    pillow.fromarray(pixels).save(path)
    return pixels


def test_image_folder(tmp_path: Path, pillow: ModuleType) -> None:
    cat = paint(pillow, tmp_path / "cat" / "1.png", (6, 5, 3), 1)
    paint(pillow, tmp_path / "cat" / "2.png", (6, 5, 3), 2)
    paint(pillow, tmp_path / "dog" / "1.bmp", (6, 5, 3), 3)
    (tmp_path / "dog" / ".hidden").write_text("")
    (tmp_path / "readme.txt").write_text("beside the folders")
    dataset = load(path=tmp_path)
    assert dataset.private
    assert dataset.x.shape == (3, 3, 6, 5)
    assert dataset.space.classes == ("cat", "dog")
    assert dataset.y.tolist() == [0, 0, 1]
    assert np.allclose(dataset.x[0].permute(1, 2, 0).numpy() * 255, cat, atol=1e-4)
    assert load(path=tmp_path, size=[4, 8]).x.shape == (3, 3, 4, 8)


def test_grey_and_mixed_images(tmp_path: Path, pillow: ModuleType) -> None:
    paint(pillow, tmp_path / "a" / "1.png", (6, 5))
    paint(pillow, tmp_path / "b" / "1.pgm", (6, 5))
    assert load(path=tmp_path).x.shape == (2, 1, 6, 5)
    paint(pillow, tmp_path / "b" / "2.png", (6, 5, 4))
    assert load(path=tmp_path).x.shape == (3, 3, 6, 5)


def test_deep_grey_images_are_scaled_and_never_clipped(tmp_path: Path, pillow: ModuleType) -> None:
    """Each value must come back as its share of the range; before, everything above 255 was white."""
    ramp = np.linspace(0, 1, 30).reshape(6, 5)
    twelve, sixteen = np.rint(ramp * 4095), np.rint(ramp * 65535)
    for name, values, suffix in (
        ("12 bits in 16", twelve.astype(np.uint16), "png"),
        ("16 bits", sixteen.astype(np.uint16), "png"),
        ("16 bits in a TIFF", sixteen.astype(np.uint16), "tiff"),
        ("signed", np.rint(ramp * 60000 - 30000).astype(np.int32), "tif"),
        ("floats", ramp.astype(np.float32), "tiff"),
        ("floats beyond 1", (ramp * 3000 - 1000).astype(np.float32), "tiff"),
    ):
        for folder in "ab":
            (tmp_path / name / folder).mkdir(parents=True)
            pillow.fromarray(values).save(tmp_path / name / folder / f"1.{suffix}")
        found = load(path=tmp_path / name)
        assert np.allclose(found.x[0, 0].numpy(), ramp, atol=2e-3), name
        assert torch.allclose(load(path=tmp_path / name, size=[6, 5]).x, found.x), name
    for maximum in (1000, 4095, 65535):
        head = f"P5 5 6 {maximum}\n".encode()
        for folder in "ab":
            (tmp_path / "pgm" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "pgm" / folder / "1.pgm").write_bytes(
                head + np.rint(ramp * maximum / 2).astype(">u2").tobytes()
            )
        assert np.allclose(load(path=tmp_path / "pgm").x[0, 0].numpy(), ramp / 2, atol=2e-3), maximum


def test_deep_images_share_one_range_with_each_other_and_none_with_ordinary_ones(
    tmp_path: Path, pillow: ModuleType
) -> None:
    dark = np.array([[100, 200], [300, 400]], np.uint16)
    for name in "abc":
        (tmp_path / name).mkdir()
    pillow.fromarray(dark).save(tmp_path / "a" / "1.png")
    pillow.fromarray(dark * 10).save(tmp_path / "b" / "1.png")  # 4000 needs 12 bits
    pillow.fromarray(np.full((2, 2), 51, np.uint8)).save(tmp_path / "c" / "1.png")
    found = load(path=tmp_path).x[:, 0]
    assert np.allclose(found[0], dark / 4095) and np.allclose(found[1], dark / 409.5) and np.allclose(found[2], 0.2)


def test_images_that_are_not_finite_or_several_in_one_file_are_refused(tmp_path: Path, pillow: ModuleType) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        pillow.fromarray(np.array([[0.0, np.nan]], np.float32)).save(tmp_path / name / "1.tiff")
    with pytest.raises(BadInput, match="not finite"):
        load(path=tmp_path)
    page = pillow.fromarray(np.zeros((2, 2), np.uint8))
    page.save(tmp_path / "a" / "1.tiff", save_all=True, append_images=[page])
    with pytest.raises(BadInput, match=r"one image, got 2 in one file"):
        load(path=tmp_path)
    tags = [(256, 1), (257, 1), (258, 32), (259, 1), (262, 1), (273, 110), (278, 1), (279, 4)]  # unsigned unless stated
    head = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + b"".join(struct.pack("<HHII", t, 4, 1, v) for t, v in tags)
    (tmp_path / "a" / "1.tiff").write_bytes(head.ljust(110, b"\0") + b"\xff" * 4 + bytes(40))
    with pytest.raises(BadInput, match="values above 2,147,483,647"):
        load(path=tmp_path)


def test_image_folder_messages(tmp_path: Path, pillow: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="two classes or more"):
        load(path=tmp_path)
    paint(pillow, tmp_path / "1.png", (6, 5))
    with pytest.raises(BadInput, match="got 1 images, but no folder per class"):
        load(path=tmp_path)
    (tmp_path / "1.png").unlink()
    paint(pillow, tmp_path / "a" / "1.png", (6, 5))
    (tmp_path / "b").mkdir()
    with pytest.raises(BadInput, match="a real folder with images"):
        load(path=tmp_path)
    paint(pillow, tmp_path / "b" / "1.png", (7, 5))
    paint(pillow, tmp_path / "b" / "2.png", (7, 5))
    with pytest.raises(BadInput, match=r"a.1\.png.*5 x 7 pixels, as 2 of 3 images have, got 5 x 6\. .*size = 32"):
        load(path=tmp_path)
    (tmp_path / "b" / "2.png").unlink()
    with pytest.raises(BadInput, match="size"):
        load(path=tmp_path, size=[1, 2, 3])
    monkeypatch.setenv("FEDXRAY_MAX_BYTES", "100")
    with pytest.raises(BadInput, match="at most 100 bytes"):
        load(path=tmp_path, size=4)
    monkeypatch.delenv("FEDXRAY_MAX_BYTES")
    (tmp_path / "b" / "notes.txt").write_text("x")
    with pytest.raises(BadInput, match="an image"):
        load(path=tmp_path, size=4)
    (tmp_path / "b" / "notes.txt").unlink()
    (tmp_path / "b" / "2.png").symlink_to(tmp_path / "a" / "1.png")
    with pytest.raises(BadInput, match="an image"):
        load(path=tmp_path, size=4)


def test_a_folder_with_an_unprintable_name(tmp_path: Path, pillow: ModuleType) -> None:
    paint(pillow, tmp_path / "a" / "1.png", (6, 5))
    paint(pillow, tmp_path / "b\x1b[2J" / "1.png", (6, 5))
    with pytest.raises(BadInput, match="printable text"):
        load(path=tmp_path)


def test_without_the_image_library(tmp_path: Path, pillow: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        paint(pillow, tmp_path / name / "1.png", (6, 5))
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(BadInput, match=r"comes with matplotlib.*pip install pillow"):
        load(path=tmp_path)


@given(
    st.sampled_from([".png", ".jpg", ".bmp", ".pgm"]),
    st.sampled_from(["PNG", "JPEG", "BMP", "PPM", ""]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.integers(0, 400),
    st.binary(max_size=60),
)
def test_any_image_bytes_give_a_data_set_or_a_message(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    kind: str,
    edits: list[tuple[int, int]],
    cut: int,
    tail: bytes,
) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("fuzz")
    for name in "ab":
        (folder / name).mkdir()
        image.fromarray(np.full((4, 4), 9, dtype=np.uint8)).save(folder / name / "0.png")
    buffer = io.BytesIO()
    if kind:
        image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(buffer, kind)
    content = bytearray(buffer.getvalue())
    for place, value in edits:
        if place < len(content):
            content[place] = value
    (folder / "a" / f"1{suffix}").write_bytes(bytes(content[: max(cut, 20)]) + tail)
    try:
        dataset = load(path=folder, size=4)
    except BadInput:
        return
    assert torch.isfinite(dataset.x).all()


# Arrays as the network gets them

READY_X = np.array(
    [[0.5, -1.0, 0.0, 0.0], [1.5, 2.0, 1.0, 0.0], [2.5, 0.25, 0.0, 1.0], [3.5, 0.5, 1.0, 0.0]], np.float32
)
READY_Y = np.array([0, 1, 0, 1])
USES = np.array(["train", "holdout", "train", "public"])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez(path, **{"x": READY_X, "y": READY_Y, "part": USES, **arrays})
    return path


def test_a_table_is_used_as_it_is(tmp_path: Path) -> None:
    found = load(path=saved(tmp_path), ready=True, use="part", groups={"region": [2, 3]}, sensitive="region")
    assert torch.equal(found.x, torch.from_numpy(READY_X)) and found.y.tolist() == READY_Y.tolist()
    assert found.space.classes == ("0", "1") and found.private
    names = [column.name for column in found.space.columns]
    assert names == ["x0", "x1", "region"]
    region = found.space.column("region")
    assert region.codes == ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0)) and region.positions == (2, 3)
    assert (found.space.column("x0").low, found.space.column("x0").high) == (0.5, 3.5)
    assert found.raw[USE].tolist() == USES.tolist()


def test_a_regression_target_and_classes_that_a_node_lacks(tmp_path: Path) -> None:
    found = load(path=saved(tmp_path, y=np.array([0.5, 2.0, -1.0, 0.0])), ready=True)
    assert found.space.target == "regression" and found.y.tolist() == [0.5, 2.0, -1.0, 0.0]
    assert len(load(path=saved(tmp_path), ready=True, classes=10).space.classes) == 10


def test_images_keep_their_normalisation(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).random((4, 3, 5, 5), dtype=np.float32)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.2, 0.3)
    x = (pixels - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    found = load(path=saved(tmp_path, x=x.astype(np.float32)), ready=True, mean=list(mean), std=list(std))
    assert found.space.kind == "image" and found.space.shape == (3, 5, 5)
    assert torch.allclose(found.space.to_pixels(found.x), torch.from_numpy(pixels), atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "settings", "words"),
    [
        ({}, {"use": "split"}, "an array split"),
        ({"part": np.array(["train", "test", "train", "public"])}, {"use": "part"}, "'test' for record 1"),
        ({"part": np.array(["public"] * 4)}, {"use": "part"}, "records that were trained on, got none"),
        ({"part": np.arange(4)}, {"use": "part"}, "one word for each of 4 records"),
        ({}, {"groups": {"a": [2, 4]}}, r"groups.a: expected positions from 0 to 3"),
        ({}, {"groups": {"a": [2], "b": [2]}}, "each in one group"),
        (
            {},
            {"groups": {"x0": [2, 3]}},
            "groups.x0: expected a name that no other column has, got the name of column 0",
        ),
        ({}, {"groups": {"a": 2}}, "groups.a: expected positions"),
        ({}, {"groups": {"a": [True]}}, "groups.a: expected positions"),
        ({}, {"groups": [2]}, "groups: expected a mapping"),
        ({}, {"groups": {"a\x1b[2J": [2]}}, "printable"),
        ({}, {"mean": 3}, "mean: expected a sequence"),
        ({}, {"sensitive": "region"}, "x0"),
        ({}, {"classes": 1}, "classes"),
        ({"y": np.array([0, 1, 2, 3])}, {"classes": 3}, "class numbers from 0 to 2"),
        ({"y": np.array([-1, 1, 0, 1])}, {}, "class numbers from 0"),
        ({"y": np.array(["a", "b", "a", "b"])}, {}, "y as class numbers or as numbers"),
        ({"x": READY_X.reshape(4, 2, 2)}, {}, "shape"),
        ({"x": np.zeros((4, 1, 2, 2), np.float32)}, {"sensitive": "x0"}, "expected a table, got images"),
        ({"x": np.zeros((4, 3, 2, 2), np.float32)}, {"mean": [0.1, 0.2]}, "one for each of 3 channels"),
        ({"x": np.full((4, 2), np.nan)}, {}, "finite"),
        ({}, {"target": "y"}, "target"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        load(path=saved(tmp_path, **arrays), ready=True, **settings)


def test_ready_is_for_arrays_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ready: expected true or false, and a path beside it"):
        load("clinic", ready=True)
    (tmp_path / "t.csv").write_text("a,y\n1,2\n3,4\n5,6\n")
    with pytest.raises(BadInput, match=r"ready: expected an .npz file"):
        load(path=tmp_path / "t.csv", ready=True)


def test_the_use_of_rows_of_a_csv_is_no_feature(tmp_path: Path) -> None:
    rows = [f"{row},{row % 3},{'train' if row % 2 else 'public'}" for row in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y,part", *rows]))
    found = load(path=tmp_path / "t.csv", target="y", use="part")
    assert [column.name for column in found.space.columns] == ["a"]
    assert found.raw[USE].tolist() == ["public", "train"] * 4
    with pytest.raises(BadInput, match="use: expected a column"):
        load(path=tmp_path / "t.csv", target="y", use="parts")
