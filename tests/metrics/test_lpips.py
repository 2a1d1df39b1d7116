"""LPIPS: the reference distances with the real weights, a slow version with made-up ones, and its refusals."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fedxray.audit.plan import make_plan
from fedxray.audit.run.preflight import preflight
from fedxray.data.store import PLACE, build, lpips_weights, shapes
from fedxray.errors import BadInput
from fedxray.metrics import optional
from fedxray.metrics.images import Lpips, from_arrays, image_scores


def made_up(seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(shape, generator=draw)
        if name.startswith("lin")
        else torch.randn(shape, generator=draw) / 20
        for name, shape in shapes().items()
    }


@pytest.fixture(scope="module")
def network() -> Lpips:
    return from_arrays(made_up())


def images(count: int, side: int = 33, channels: int = 3, seed: int = 1) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(seed))


def picture(path: Path) -> Tensor:
    with Image.open(path) as opened:
        return torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)[None].float() / 255


def test_the_reference_distances_come_out(data_folder: Path) -> None:
    real = from_arrays(lpips_weights(data_folder / PLACE))
    first, near, far = (
        picture(data_folder / "lpips" / f"{name}.png") for name in ("ex_ref", "ex_p1", "ex_p0")
    )
    assert real.distance(far, first).item() == pytest.approx(0.72188, abs=1e-4)
    assert real.distance(near, first).item() == pytest.approx(0.13757, abs=1e-4)


def slow_distance(arrays: dict[str, Tensor], a: Tensor, b: Tensor) -> float:
    """One pair [3, h, w], layer by layer and place by place."""
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    pair = [((2 * one - 1) - shift[:, None, None]) / scale[:, None, None] for one in (a, b)]
    total = 0.0
    for layer, (stride, padding) in enumerate([(4, 2), (1, 2), (1, 1), (1, 1), (1, 1)]):
        if layer in (1, 2):
            pair = [F.max_pool2d(one, 3, 2) for one in pair]
        kernel, offset = arrays[f"conv{layer}_w"], arrays[f"conv{layer}_b"]
        pair = [F.relu(F.conv2d(one[None], kernel, offset, stride, padding))[0] for one in pair]
        places = [
            (left / (left.norm() + 1e-10) - right / (right.norm() + 1e-10)) ** 2 @ arrays[f"lin{layer}"]
            for left, right in zip(*(one.flatten(1).T for one in pair), strict=True)
        ]
        total += float(torch.stack(places).mean())
    return total


def test_by_a_slow_version(network: Lpips) -> None:
    a, b = images(2), images(2, seed=2)
    found = network.distance(a, b)
    assert found.tolist() == pytest.approx(
        [slow_distance(made_up(), *pair) for pair in zip(a, b, strict=True)]
    )
    assert network.distance(a, a).tolist() == [0.0, 0.0]
    assert torch.allclose(found, network.distance(b, a)) and (found < network.worst).all()


def test_grey_counts_as_three_equal_colours(network: Lpips) -> None:
    a, b = images(1, channels=1), images(1, channels=1, seed=2)
    coloured = network.distance(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1))
    assert torch.equal(network.distance(a, b), coloured)


def test_what_is_not_finite_is_the_worst(network: Lpips) -> None:
    guess = images(2)
    guess[0, 0, 0, 0] = float("nan")
    found = network.distance(guess, images(2))
    assert found.tolist() == pytest.approx([network.worst, 0.0])


def test_small_or_strange_images_are_refused(network: Lpips) -> None:
    assert network.distance(images(0), images(0)).shape == (0,)
    assert network.distance(images(1, side=31), images(1, side=31)).tolist() == [0.0]
    for side, channels in ((30, 3), (33, 2)):
        with pytest.raises(BadInput, match="at least 31 pixels"):
            network.distance(images(1, side, channels), images(1, side, channels))
    with pytest.raises(BadInput, match="guess: expected shape"):
        network.distance(images(2), images(1))


def test_surroundings_do_not_matter(network: Lpips) -> None:
    guess, truth = images(1), images(1, seed=2)
    before = network.distance(guess, truth)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            after = network.distance(guess, truth)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(before, after) and after.dtype == torch.float32


def test_scores_hold_it_only_where_asked(network: Lpips) -> None:
    guess, truth = images(3), images(2)
    assert "lpips" not in image_scores(guess, truth, recognised_above=20).means
    found = image_scores(guess.flip(0), truth, recognised_above=20, lpips=network)
    assert found.records["lpips"].tolist() == [0.0, 0.0]  # after matching


def test_without_weights_it_is_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match="fedxray data get lpips"):
        lpips_weights()
    with pytest.raises(BadInput, match="no file"):
        lpips_weights(tmp_path / "absent.npz")
    arrays = {name: value.numpy() for name, value in made_up().items()}
    np.savez(tmp_path / "wrong.npz", **(arrays | {"lin3": np.ones(7, dtype=np.float32)}))
    with pytest.raises(BadInput, match="an array lin3 of shape"):
        lpips_weights(tmp_path / "wrong.npz")


def plan(folder: Path, size: int = 32, **attack: object) -> dict[str, object]:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(folder / "own.npz", x=pixels, y=np.arange(40) % 2)
    return {
        "data": {"path": "own.npz", "clients": 2, "limit": 2, "size": size},
        "model": {"name": "mlp", "hidden": [4]},
        "federation": {"rounds": 1, "batch_size": "all"},
        "attack": [attack if "name" in attack else {"name": "inverting-gradients", "steps": 1} | attack],
    }


def test_a_plan_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optional.perceptual.cache_clear()
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path))
    asked = make_plan(plan(tmp_path, metrics=["lpips", "psnr_004"]), tmp_path)
    with pytest.raises(BadInput, match="fedxray data get lpips"):
        preflight(asked)
    (tmp_path / "lpips").mkdir()
    np.savez(tmp_path / PLACE, **{name: value.numpy() for name, value in made_up().items()})
    preflight(asked)
    assert optional.scored_with(["psnr_004"]) == {"papers": ("004",), "lpips": None, "by_index": False}
    in_order = optional.scored_with(["mse_by_index", "ssim_002_by_index", "psnr_004"])
    assert in_order == {"papers": ("002", "004"), "lpips": None, "by_index": True}
    assert isinstance(optional.scored_with(["lpips"])["lpips"], Lpips)
    with pytest.raises(BadInput, match="at least 31 pixels"):
        preflight(make_plan(plan(tmp_path, metrics=["lpips"], size=8), tmp_path))
    with pytest.raises(BadInput, match="an attack that gives images"):
        preflight(make_plan(plan(tmp_path, metrics=["lpips"], name="labels-idlg"), tmp_path))
    with pytest.raises(BadInput, match=r"attack\[0\].metrics"):
        make_plan(plan(tmp_path, metrics=["psnr"]), tmp_path)
    optional.perceptual.cache_clear()


def test_the_file_is_built_from_its_sources(tmp_path: Path) -> None:
    made = made_up()
    alexnet = {
        f"features.{place}.{kind}": made[f"conv{layer}_{kind[0]}"]
        for layer, place in enumerate((0, 3, 6, 8, 10))
        for kind in ("weight", "bias")
    }
    linear = {f"lin{layer}.model.1.weight": made[f"lin{layer}"].reshape(1, -1, 1, 1) for layer in range(5)}
    save = torch.save  # noqa: TID251  (the public files come in this format)
    save(alexnet, tmp_path / "alexnet.pth")
    save(linear, tmp_path / "alex.pth")
    with zipfile.ZipFile(tmp_path / "lpips.whl", "w") as wheel:
        wheel.write(tmp_path / "alex.pth", "lpips/weights/v0.1/alex.pth")
    found = build([tmp_path / "alexnet.pth", tmp_path / "lpips.whl"])[PLACE]
    assert set(found) == set(made) and all(np.array_equal(found[name], made[name].numpy()) for name in made)
