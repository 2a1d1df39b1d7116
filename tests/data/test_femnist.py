"""FEMNIST in LEAF's JSON: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.data.catalog import load
from fedxray.data.pictures import count_writers
from fedxray.errors import BadInput


def write(folder: Path, content: object) -> None:
    (folder / "femnist" / "train").mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "femnist" / "train" / "all_data_0.json").write_bytes(text)


def user(count: int, seed: int) -> dict[str, object]:
    draw = np.random.default_rng(seed)
    return {"x": draw.random((count, 784)).round(3).tolist(), "y": draw.integers(0, 62, count).tolist()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_writers_are_owners(folder: Path) -> None:
    data = {"f1": user(3, 0), "f0": user(2, 1)}
    write(folder, {"users": ["f1", "f0"], "num_samples": [3, 2], "user_data": data})
    dataset = load("femnist")
    assert dataset.x.shape == (5, 1, 28, 28)
    assert dataset.owner is not None
    assert dataset.owner.tolist() == [1, 1, 1, 0, 0]
    pixels = dataset.space.to_pixels(dataset.x)[0].flatten()
    assert torch.allclose(pixels, torch.tensor(data["f1"]["x"][0]), atol=1e-5)  # type: ignore[index]
    assert dataset.space.classes[36] == "a"
    assert len(load("femnist", writers=1)) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        [],
        {"users": ["a"]},
        {"users": ["a"], "user_data": {"a": {"x": [[0.0] * 783], "y": [0]}}},
        {"users": ["a"], "user_data": {"a": {"x": [[0.0] * 784], "y": [62]}}},
        {"users": ["a"], "user_data": {"a": {"x": [[2.0] * 784], "y": [1]}}},
        {"users": ["a"], "user_data": {"a": {"x": [[0.0] * 784], "y": [1, 2]}}},
        {"users": ["a"], "user_data": {"a": {"x": [], "y": []}}},
        {"users": ["a"], "user_data": {"a": {"x": [], "y": False}}},
        {"users": [], "user_data": {}},
        b"[" * 100_000,
    ],
)
def test_messages(folder: Path, content: object) -> None:
    write(folder, content)
    with pytest.raises(BadInput, match="LEAF"):
        load("femnist")


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@given(st.one_of(st.binary(max_size=60), JSON, st.tuples(JSON, JSON).map(
    lambda pair: {"users": ["a"], "user_data": {"a": {"x": pair[0], "y": pair[1]}}}
)))  # fmt: skip
def test_any_content_gives_a_message(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    folder = tmp_path_factory.getbasetemp()
    write(folder, content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDXRAY_DATA", str(folder))
        with pytest.raises(BadInput):
            load("femnist")


def write_npz(folder: Path, **changed: np.ndarray) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    arrays = {"x": pixels, "y": np.array([0, 61, 3, 3, 9]), "writer": np.array([7, 7, 2, 2, 2])} | changed
    (folder / "femnist").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "femnist" / "some.npz", **arrays)  # type: ignore[arg-type]
    return arrays


def test_an_npz_gives_the_same_as_json(folder: Path) -> None:
    arrays = write_npz(folder)
    from_npz = load("femnist")
    assert len(load("femnist", writers=1)) == 2  # writer 7 comes first in the file
    data = {
        name: {"x": (arrays["x"][at] / 255).reshape(-1, 784).tolist(), "y": arrays["y"][at].tolist()}
        for name, at in {"w7": [0, 1], "w2": [2, 3, 4]}.items()
    }
    write(folder, {"users": ["w7", "w2"], "user_data": data})
    from_json = load("femnist")
    assert torch.allclose(from_npz.x, from_json.x) and torch.equal(from_npz.y, from_json.y)
    assert from_npz.owner is not None and from_json.owner is not None
    assert from_npz.owner.tolist() == from_json.owner.tolist()


@pytest.mark.parametrize(
    "changed",
    [
        {"x": np.zeros((5, 28, 27), dtype=np.uint8)},
        {"x": np.zeros((5, 28, 28), dtype=np.float32)},
        {"y": np.array([0, 1, 2, 3, 62])},
        {"y": np.array([0.5] * 5)},
        {"writer": np.array([0, 1])},
        {"writer": np.array([7, 7, np.nan, 2, 2])},
    ],
)
def test_messages_of_an_npz(folder: Path, changed: dict[str, np.ndarray]) -> None:
    write_npz(folder, **changed)
    with pytest.raises(BadInput, match="LEAF"):
        load("femnist")


def test_real_femnist(data_folder: Path) -> None:
    dataset = load("femnist")
    assert dataset.owner is not None
    counts = torch.bincount(dataset.owner)
    assert len(dataset) == 10_964 and len(counts) == 80 and count_writers(least=53) == (counts >= 53).sum() == 75
    pixels = dataset.space.to_pixels(dataset.x)
    assert abs(pixels.mean() - 0.9642) < 0.01 and abs(pixels.std() - 0.1577) < 0.01
