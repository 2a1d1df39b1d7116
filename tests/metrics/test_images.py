"""Image scores: matching, misses, and the numbers of hand-made cases."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedxray import imaging
from fedxray.errors import BadInput
from fedxray.metrics.images import class_image_scores, image_scores, image_scores_by_index
from fedxray.metrics.table import METRICS, metric
from fedxray.seeds import fork

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
    by_index = image_scores_by_index(guess[order], truth, recognised_above=20.0, others=others)
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
    assert scores.means["psnr"] == 100.0 and scores.means["rec"] == scores.means["retrieval"] == 0.25
    none = image_scores(truth[:0], truth, recognised_above=20.0, others=drawn(9, 1))
    assert none.means == {"rec": 0.0, "retrieval": 0.0}


def test_surplus_guesses_do_no_harm() -> None:
    truth = drawn(3)
    assert image_scores(torch.cat([drawn(5, 7), truth]), truth, recognised_above=20.0).means["psnr"] == 100.0


def test_nothing_to_score() -> None:
    for score in (image_scores, image_scores_by_index):
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
        image_scores_by_index(drawn(2), drawn(3), recognised_above=20.0)


def test_nothing_ambient() -> None:
    truth = drawn(3)
    guess = truth.flip(0) + 0.1
    usual = image_scores(guess, truth, recognised_above=20.0, others=truth[:1] + 1)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            elsewhere = image_scores(guess, truth, recognised_above=20.0, others=truth[:1] + 1)
            image_scores_by_index(guess, truth, recognised_above=20.0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert usual.means == elsewhere.means
    assert {values.dtype for values in elsewhere.records.values()} == {torch.float32}


def test_every_name_stands_in_the_table() -> None:
    for score in (image_scores, image_scores_by_index):
        for name in score(drawn(2), drawn(2), recognised_above=20.0, others=drawn(2, 1)).means:
            assert "images" in metric(name).kinds
    assert METRICS["mse"].better == "down" and METRICS["psnr"].better == "up"


def test_a_class_is_held_against_each_of_its_images() -> None:
    """Class 0 has two images, class 2 one, class 1 none: the mean within a class comes before that over classes."""
    truth, classes = drawn(3), torch.tensor([0, 2, 0])
    guess = drawn(3, seed=1)
    found = class_image_scores(guess, torch.tensor([0, 1, 2]), truth, classes).means

    def expected(measure: object) -> float:
        pair = [float(measure(guess[[label]], truth[[place]])) for label, place in ((0, 0), (0, 2), (2, 1))]  # type: ignore[operator]
        return ((pair[0] + pair[1]) / 2 + pair[2]) / 2

    assert found["class_ssim"] == pytest.approx(expected(imaging.ssim), rel=1e-5)
    assert found["class_psnr"] == pytest.approx(expected(imaging.psnr), rel=1e-5)
    turned = class_image_scores(
        guess[[2, 0, 1]], torch.tensor([2, 0, 1]), truth[[1, 2, 0]], classes[[1, 2, 0]]
    )
    assert turned.means == pytest.approx(found)
    assert class_image_scores(guess, torch.tensor([3, 4, 5]), truth, classes).means == {}
    doubled = class_image_scores(guess, torch.tensor([0, 1, 2]), truth.repeat(2, 1, 1, 1), classes.repeat(2))
    assert doubled.means == pytest.approx(found)  # more images of a class help no guess
