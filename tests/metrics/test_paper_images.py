"""The papers' variants of PSNR and SSIM by slow, independent reckoning."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.metrics.images import image_scores, image_scores_by_index, psnr_002, psnr_004, ssim_002, ssim_004


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
def test_002(channels: int) -> None:
    guess, truth = pair(channels)
    for place in range(3):
        a, b = guess[place].double().numpy(), truth[place].double().numpy()
        wanted = 10 * math.log10(b.max() ** 2 / ((a - b) ** 2).mean())
        assert psnr_002(guess, truth)[place].item() == pytest.approx(wanted, abs=1e-3)
        alike = np.mean([slow_ssim(a[c], b[c], 1.0) for c in range(channels)])
        assert ssim_002(guess, truth)[place].item() == pytest.approx(alike, abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_004(channels: int) -> None:
    guess, truth = pair(channels)
    for place in range(3):
        a, b = (one[place].double().numpy() * 255 for one in (guess, truth))
        whole_a, whole_b = (np.clip(np.round(one), 0, 255) for one in (a, b))
        wanted = 10 * math.log10(255**2 / ((whole_a - whole_b) ** 2).mean())
        assert psnr_004(guess, truth)[place].item() == pytest.approx(wanted, abs=1e-3)
        if channels == 1:
            alike = slow_ssim(a[0], b[0], 255.0)
        else:
            weights = np.array([[0.299, 0.587, 0.114], [0.500, -0.419, -0.081], [-0.169, -0.331, 0.500]])
            left, right = (
                np.tensordot(weights, one, 1) + np.array([0, 128, 128])[:, None, None] for one in (a, b)
            )
            alike = sum(
                share * slow_ssim(left[c], right[c], 255.0) for c, share in enumerate((0.8, 0.1, 0.1))
            )
        assert ssim_004(guess, truth)[place].item() == pytest.approx(alike, abs=1e-3)


def test_values_of_equal_black_and_broken_images_stay_finite() -> None:
    black, broken = torch.zeros(1, 3, 4, 4), torch.full((1, 3, 4, 4), float("nan"))
    for measure, equal, worst in (
        (psnr_002, None, -100.0),
        (psnr_004, 100.0, -100.0),
        (ssim_002, 1.0, -1.0),
        (ssim_004, 1.0, -1.0),
    ):
        alike = measure(black, black).item()
        assert math.isfinite(alike) and (equal is None or alike == pytest.approx(equal))
        assert measure(broken, black).item() == pytest.approx(worst)


def test_variants_come_by_name_when_asked_for() -> None:
    guess, truth = pair(3)
    turned = guess[[2, 0, 1]]
    plain = image_scores(turned, truth, recognised_above=20.0)
    assert not [name for name in plain.means if name[-3:].isdigit()]
    both = image_scores(turned, truth, recognised_above=20.0, papers=("002", "004"))
    assert set(both.means) - set(plain.means) == {"psnr_002", "ssim_002", "psnr_004", "ssim_004"}
    assert both.records["psnr_002"].tolist() == pytest.approx(psnr_002(guess, truth).tolist())
    in_order = image_scores_by_index(guess, truth, recognised_above=20.0, papers=("004",))
    assert in_order.means["psnr_004_by_index"] == pytest.approx(both.means["psnr_004"])
    with pytest.raises(BadInput, match="004"):
        image_scores(guess, truth, recognised_above=20.0, papers=("04",))
