"""Own arrays as the network gets them: nothing is changed, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedxray.data import load
from fedxray.data.dataset import USE
from fedxray.errors import BadInput

X = np.array(
    [[0.5, -1.0, 0.0, 0.0], [1.5, 2.0, 1.0, 0.0], [2.5, 0.25, 0.0, 1.0], [3.5, 0.5, 1.0, 0.0]], np.float32
)
Y = np.array([0, 1, 0, 1])
USES = np.array(["train", "holdout", "train", "public"])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez(path, **{"x": X, "y": Y, "part": USES, **arrays})
    return path


def test_a_table_is_used_as_it_is(tmp_path: Path) -> None:
    found = load(path=saved(tmp_path), ready=True, use="part", groups={"region": [2, 3]}, sensitive="region")
    assert torch.equal(found.x, torch.from_numpy(X)) and found.y.tolist() == Y.tolist()
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
    ("arrays", "settings", "told"),
    [
        ({}, {"use": "split"}, "an array split"),
        ({"part": np.array(["train", "test", "train", "public"])}, {"use": "part"}, "'test' for record 1"),
        ({"part": np.array(["public"] * 4)}, {"use": "part"}, "records that were trained on, got none"),
        ({"part": np.arange(4)}, {"use": "part"}, "one word for each of 4 records"),
        ({}, {"groups": {"a": [2, 4]}}, r"groups.a: expected positions from 0 to 3"),
        ({}, {"groups": {"a": [2], "b": [2]}}, "each in one group"),
        ({}, {"sensitive": "region"}, "x0"),
        ({}, {"classes": 1}, "classes"),
        ({"y": np.array([0, 1, 2, 3])}, {"classes": 3}, "class numbers from 0 to 2"),
        ({"y": np.array([-1, 1, 0, 1])}, {}, "class numbers from 0"),
        ({"y": np.array(["a", "b", "a", "b"])}, {}, "y as class numbers or as numbers"),
        ({"x": X.reshape(4, 2, 2)}, {}, "shape"),
        ({"x": np.zeros((4, 1, 2, 2), np.float32)}, {"sensitive": "x0"}, "expected a table, got images"),
        ({"x": np.zeros((4, 3, 2, 2), np.float32)}, {"mean": [0.1, 0.2]}, "one for each of 3 channels"),
        ({"x": np.full((4, 2), np.nan)}, {}, "finite"),
        ({}, {"target": "y"}, "target"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, Any], settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
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
