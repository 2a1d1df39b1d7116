"""Image scores: matching and misses by hand, variants of papers and LPIPS against slow independent versions."""

from __future__ import annotations

import math
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fedxray import imaging
from fedxray.audit.plan import make_plan
from fedxray.audit.run.preflight import preflight
from fedxray.data.store import PLACE, build, lpips_weights, shapes
from fedxray.errors import BadInput
from fedxray.metrics import table
from fedxray.metrics.images import (
    Lpips,
    class_image_scores,
    from_arrays,
    image_scores,
    nearest_class,
    psnr_awa,
    psnr_curious,
    ssim_awa,
    ssim_curious,
)
from fedxray.metrics.table import METRICS, metric
from fedxray.seeds import fork

# Matched scores

NAMES = {"psnr", "ssim", "mse", "rec", "retrieval"}


def drawn(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=fork(seed, "images"))


def flat(*values: float) -> Tensor:
    return torch.tensor(values).reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8).clone()


def test_by_hand() -> None:
    truth = flat(0.0, 0.5)
    guess = flat(0.55, 0.01)  # off by 0.05 and 0.01, in the other order
    scores = image_scores(guess, truth, recognised_above=30.0, others=flat(0.58, 0.9))
    expected = torch.tensor([40.0, -20 * math.log10(0.05)])
    torch.testing.assert_close(scores.records["psnr"], expected, rtol=0, atol=1e-3)
    assert scores.means["psnr"] == pytest.approx(expected.mean().item(), abs=1e-3)
    assert scores.means["mse"] == pytest.approx((1e-4 + 25e-4) / 2, rel=1e-4)
    assert scores.records["rec"].tolist() == [1.0, 0.0]
    assert scores.records["retrieval"].tolist() == [1.0, 0.0]  # 0.55 is nearer to 0.58 than to 0.5
    assert scores.means["rec"] == scores.means["retrieval"] == 0.5


@given(order=st.permutations(range(5)), seed=st.integers(0, 50))
def test_order_of_guesses_matters_only_by_index(order: list[int], seed: int) -> None:
    truth = drawn(5, seed)
    guess = truth + 0.05 * torch.randn(truth.shape, generator=fork(seed, "noise"))
    others = drawn(20, seed + 1000)
    usual = image_scores(guess, truth, recognised_above=20.0, others=others)
    mixed = image_scores(guess[order], truth, recognised_above=20.0, others=others)
    assert usual.means.keys() == NAMES and usual.records.keys() == NAMES
    assert mixed.means == pytest.approx(usual.means)
    by_index = image_scores(guess[order], truth, by_index=True, recognised_above=20.0, others=others)
    assert by_index.means.keys() == {f"{name}_by_index" for name in NAMES}
    torch.testing.assert_close(by_index.records["psnr_by_index"], imaging.psnr(guess[order], truth))
    assert by_index.means["psnr_by_index"] <= usual.means["psnr"] + 1e-4


def test_perfect_guess() -> None:
    truth = drawn(4)
    means = image_scores(truth.flip(0), truth, recognised_above=20.0, others=drawn(9, 1)).means
    assert means == pytest.approx({"psnr": 100.0, "ssim": 1.0, "mse": 0.0, "rec": 1.0, "retrieval": 1.0})


def test_one_image_and_no_others() -> None:
    truth = drawn(1)
    assert image_scores(truth, truth, recognised_above=20.0).means.keys() == NAMES - {"retrieval"}
    assert "retrieval" not in image_scores(truth, truth, recognised_above=20.0, others=drawn(0)).means


def test_missing_guesses_are_misses() -> None:
    truth = drawn(4)
    scores = image_scores(truth[[2]], truth, recognised_above=20.0, others=drawn(9, 1))
    assert torch.isnan(scores.records["psnr"]).tolist() == [True, True, False, True]
    assert scores.matched.tolist() == [-1, -1, 0, -1]
    assert scores.means["psnr"] == 100.0 and scores.means["rec"] == scores.means["retrieval"] == 0.25
    none = image_scores(truth[:0], truth, recognised_above=20.0, others=drawn(9, 1))
    assert none.means == {"rec": 0.0, "retrieval": 0.0}


def test_surplus_guesses_do_no_harm() -> None:
    truth = drawn(3)
    assert image_scores(torch.cat([drawn(5, 7), truth]), truth, recognised_above=20.0).means["psnr"] == 100.0


def test_nothing_to_score() -> None:
    for score in (image_scores, partial(image_scores, by_index=True)):
        assert score(drawn(0), drawn(0), recognised_above=20.0, others=drawn(3)).means == {}


def test_a_guess_that_is_not_finite_is_the_worst_and_spoils_no_other() -> None:
    truth = drawn(3)
    guess = truth.clone()
    guess[1, 0, 0, 0] = math.nan
    scores = image_scores(guess, truth, recognised_above=20.0, others=drawn(5, 1))
    assert scores.records["psnr"].tolist() == [100.0, -100.0, 100.0]
    assert scores.records["ssim"].tolist() == pytest.approx([1.0, -1.0, 1.0])
    assert scores.records["rec"].tolist() == scores.records["retrieval"].tolist() == [1.0, 0.0, 1.0]


def test_the_threshold_itself_is_not_enough() -> None:
    assert image_scores(drawn(1), drawn(1), recognised_above=100.0).means["rec"] == 0.0


def test_by_index_needs_as_many_guesses() -> None:
    with pytest.raises(BadInput, match="Match by content"):
        image_scores(drawn(2), drawn(3), by_index=True, recognised_above=20.0)


def test_nothing_ambient() -> None:
    truth = drawn(3)
    guess = truth.flip(0) + 0.1
    usual = image_scores(guess, truth, recognised_above=20.0, others=truth[:1] + 1)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            elsewhere = image_scores(guess, truth, recognised_above=20.0, others=truth[:1] + 1)
            image_scores(guess, truth, by_index=True, recognised_above=20.0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert usual.means == elsewhere.means
    assert {values.dtype for values in elsewhere.records.values()} == {torch.float32}


def test_every_name_stands_in_the_table() -> None:
    for score in (image_scores, partial(image_scores, by_index=True)):
        for name in score(drawn(2), drawn(2), recognised_above=20.0, others=drawn(2, 1)).means:
            assert "images" in metric(name).kinds
    assert METRICS["mse"].better == "down" and METRICS["psnr"].better == "up"


def test_a_class_is_held_against_each_of_its_images() -> None:
    """Class 0 has two images, class 2 one, class 1 none: the mean within a class comes before that over classes."""
    truth, classes = drawn(3), torch.tensor([0, 2, 0])
    guess = drawn(3, seed=1)
    known = drawn(4, seed=2), torch.tensor([0, 1, 2, 2])
    found = class_image_scores(guess, torch.tensor([0, 1, 2]), truth, classes, known).means

    def expected(measure: object) -> float:
        pair = [float(measure(guess[[label]], truth[[place]])) for label, place in ((0, 0), (0, 2), (2, 1))]  # type: ignore[operator]
        return ((pair[0] + pair[1]) / 2 + pair[2]) / 2

    assert found["class_ssim"] == pytest.approx(expected(imaging.ssim), rel=1e-5)
    assert found["class_psnr"] == pytest.approx(expected(imaging.psnr), rel=1e-5)
    turned = class_image_scores(guess[[2, 0, 1]], torch.tensor([2, 0, 1]), truth[[1, 2, 0]], classes[[1, 2, 0]], known)
    assert turned.means == pytest.approx(found)
    assert class_image_scores(guess, torch.tensor([3, 4, 5]), truth, classes, known).means == {}
    doubled = class_image_scores(guess, torch.tensor([0, 1, 2]), truth.repeat(2, 1, 1, 1), classes.repeat(2), known)
    assert doubled.means == pytest.approx(found)  # more images of a class help no guess


def test_the_nearest_images_of_all_clients_vote_on_the_class() -> None:
    """Against a vote by hand, and on images whose neighbours are known."""
    known, images = drawn(40), drawn(9, seed=1)
    classes = torch.arange(40) % 4
    for image, shown in zip(images, nearest_class(images, known, classes).tolist(), strict=True):
        order = sorted(range(40), key=lambda place: float((known[place] - image).square().sum()))[:5]
        near = [int(classes[place]) for place in order]
        assert shown == max(dict.fromkeys(near), key=near.count)  # of equally many the nearest
    flat = torch.tensor([0.0, 0.1, 0.9, 1.0, 1.1]).reshape(5, 1, 1, 1)
    assert nearest_class(flat, flat, torch.tensor([0, 0, 1, 1, 1])).tolist() == [1] * 5  # five neighbours: all of them
    assert nearest_class(flat[:1], flat[:2], torch.tensor([3, 5])).tolist() == [3]  # a tie: the nearest
    assert nearest_class(flat[:1] * torch.nan, flat, torch.tensor([0] * 5)).tolist() == [-1]
    order = torch.randperm(40, generator=fork(0))
    assert torch.equal(nearest_class(images, known[order], classes[order]), nearest_class(images, known, classes))


def test_recognised_classes_are_those_that_the_client_has() -> None:
    """Classes 0 and 2 are held; the guess of 0 looks like 0, that of 2 like 1."""
    shades = torch.tensor([0.0, 0.5, 1.0]).reshape(3, 1, 1, 1).expand(3, 1, 11, 11)
    known = shades.repeat_interleave(5, 0), torch.arange(3).repeat_interleave(5)
    scores = class_image_scores(shades[[0, 1, 1]], torch.arange(3), shades[[0, 2]], torch.tensor([0, 2]), known)
    assert scores.means["class_recognised"] == 0.5


# Variants of papers


def pair(channels: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    truth = 0.8 * torch.rand(3, channels, 6, 7, generator=draw)
    return truth + 0.1 * torch.randn(truth.shape, generator=draw), truth


def slow_ssim(a: np.ndarray, b: np.ndarray, scale: float) -> float:
    """Luminance, contrast and structure as three factors."""
    c1, c2 = (0.01 * scale) ** 2, (0.03 * scale) ** 2
    spread_a, spread_b = a.std(), b.std()
    light = (2 * a.mean() * b.mean() + c1) / (a.mean() ** 2 + b.mean() ** 2 + c1)
    contrast = (2 * spread_a * spread_b + c2) / (spread_a**2 + spread_b**2 + c2)
    structure = (((a - a.mean()) * (b - b.mean())).mean() + c2 / 2) / (spread_a * spread_b + c2 / 2)
    return float(light * contrast * structure)


@pytest.mark.parametrize("channels", [1, 3])
def test_variants_of_awa(channels: int) -> None:
    guess, truth = pair(channels)
    for place in range(3):
        a, b = guess[place].double().numpy(), truth[place].double().numpy()
        wanted = 10 * math.log10(b.max() ** 2 / ((a - b) ** 2).mean())
        assert psnr_awa(guess, truth)[place].item() == pytest.approx(wanted, abs=1e-3)
        alike = np.mean([slow_ssim(a[c], b[c], 1.0) for c in range(channels)])
        assert ssim_awa(guess, truth)[place].item() == pytest.approx(alike, abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_variants_of_the_curious_client(channels: int) -> None:
    guess, truth = pair(channels)
    for place in range(3):
        a, b = (one[place].double().numpy() * 255 for one in (guess, truth))
        whole_a, whole_b = (np.clip(np.round(one), 0, 255) for one in (a, b))
        wanted = 10 * math.log10(255**2 / ((whole_a - whole_b) ** 2).mean())
        assert psnr_curious(guess, truth)[place].item() == pytest.approx(wanted, abs=1e-3)
        if channels == 1:
            alike = slow_ssim(a[0], b[0], 255.0)
        else:
            weights = np.array([[0.299, 0.587, 0.114], [0.500, -0.419, -0.081], [-0.169, -0.331, 0.500]])
            left, right = (np.tensordot(weights, one, 1) + np.array([0, 128, 128])[:, None, None] for one in (a, b))
            alike = sum(share * slow_ssim(left[c], right[c], 255.0) for c, share in enumerate((0.8, 0.1, 0.1)))
        assert ssim_curious(guess, truth)[place].item() == pytest.approx(alike, abs=1e-3)


def test_values_of_equal_black_and_broken_images_stay_finite() -> None:
    black, broken = torch.zeros(1, 3, 4, 4), torch.full((1, 3, 4, 4), float("nan"))
    for measure, equal, worst in (
        (psnr_awa, None, -100.0),
        (psnr_curious, 100.0, -100.0),
        (ssim_awa, 1.0, -1.0),
        (ssim_curious, 1.0, -1.0),
    ):
        alike = measure(black, black).item()
        assert math.isfinite(alike) and (equal is None or alike == pytest.approx(equal))
        assert measure(broken, black).item() == pytest.approx(worst)


def test_variants_come_by_name_when_asked_for() -> None:
    guess, truth = pair(3)
    turned = guess[[2, 0, 1]]
    plain = image_scores(turned, truth, recognised_above=20.0)
    assert not [name for name in plain.means if name[-3:].isdigit()]
    both = image_scores(turned, truth, recognised_above=20.0, papers=("awa", "curious"))
    assert set(both.means) - set(plain.means) == {"psnr_awa", "ssim_awa", "psnr_curious", "ssim_curious"}
    assert both.records["psnr_awa"].tolist() == pytest.approx(psnr_awa(guess, truth).tolist())
    in_order = image_scores(guess, truth, by_index=True, recognised_above=20.0, papers=("curious",))
    assert in_order.means["psnr_curious_by_index"] == pytest.approx(both.means["psnr_curious"])
    with pytest.raises(BadInput, match="curious"):
        image_scores(guess, truth, recognised_above=20.0, papers=("04",))


# LPIPS


def made_up(seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(shape, generator=draw) if name.startswith("lin") else torch.randn(shape, generator=draw) / 20
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


@pytest.mark.parametrize(("side", "last"), [(32, 1), (64, 3), (128, 7)])
def test_the_last_maps_of_small_images_have_one_value(network: Lpips, side: int, last: int) -> None:
    """So LPIPS at 32 pixels sees nothing of where things are in the last layers, as texts state."""
    assert network._features(images(1, side))[-1].shape[2:] == (last, last)


def test_the_reference_distances_come_out(data_folder: Path) -> None:
    real = from_arrays(lpips_weights(data_folder / PLACE))
    first, near, far = (picture(data_folder / "lpips" / f"{name}.png") for name in ("ex_ref", "ex_p1", "ex_p0"))
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
    assert found.tolist() == pytest.approx([slow_distance(made_up(), *pair) for pair in zip(a, b, strict=True)])
    assert network.distance(a, a).tolist() == [0.0, 0.0]
    assert torch.allclose(found, network.distance(b, a)) and (found < network.worst).all()


def test_grey_counts_as_three_equal_colours(network: Lpips) -> None:
    a, b = images(1, channels=1), images(1, channels=1, seed=2)
    coloured = network.distance(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1))
    assert torch.equal(network.distance(a, b), coloured)


def test_a_guess_that_is_not_finite_has_the_worst_distance(network: Lpips) -> None:
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
    table.perceptual.cache_clear()
    monkeypatch.setenv("FEDXRAY_DATA", str(tmp_path))
    monkeypatch.setenv("FEDXRAY_CACHE", str(tmp_path))
    asked = make_plan(plan(tmp_path, metrics=["lpips", "psnr_curious"]), tmp_path)
    with pytest.raises(BadInput, match="fedxray data get lpips"):
        preflight(asked)
    (tmp_path / "lpips").mkdir()
    np.savez(tmp_path / PLACE, **{name: value.numpy() for name, value in made_up().items()})
    preflight(asked)
    assert table.scored_with(["psnr_curious"]) == {"papers": ("curious",), "lpips": None, "by_index": False}
    in_order = table.scored_with(["mse_by_index", "ssim_awa_by_index", "psnr_curious"])
    assert in_order == {"papers": ("awa", "curious"), "lpips": None, "by_index": True}
    assert isinstance(table.scored_with(["lpips"])["lpips"], Lpips)
    with pytest.raises(BadInput, match="at least 31 pixels"):
        preflight(make_plan(plan(tmp_path, metrics=["lpips"], size=8), tmp_path))
    with pytest.raises(BadInput, match="an attack that gives images"):
        preflight(make_plan(plan(tmp_path, metrics=["lpips"], name="labels-idlg"), tmp_path))
    with pytest.raises(BadInput, match=r"attack\[0\].metrics"):
        make_plan(plan(tmp_path, metrics=["psnr"]), tmp_path)
    table.perceptual.cache_clear()


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
