"""Names and numbers as a reader sees them."""

from __future__ import annotations

import pytest

from fedxray.metrics import units
from fedxray.metrics.table import METRICS
from fedxray.report import words

G = units.GLUE


@pytest.mark.parametrize(
    ("amount", "metric", "plain", "signed"),
    [
        (0.958, "accuracy", f"95.8{G}%", f"+95.8{G}points"),
        (-0.031, "accuracy", f"−3.1{G}%", f"−3.1{G}points"),
        (24.06, "psnr", f"24.1{G}dB", f"+24.1{G}dB"),
        (24.06, "psnr_awa", f"24.1{G}dB", f"+24.1{G}dB"),
        (24.06, "psnr_by_index", f"24.1{G}dB", f"+24.1{G}dB"),
        (0.5, "auc", "0.500", "+0.500"),
        (0.00412, "mse", "0.0041", "+0.0041"),
        (-0.04, "psnr", f"0.0{G}dB", f"0.0{G}dB"),
        (12.5, "own-metric", "12.50", "+12.50"),
        (None, "auc", "–", "–"),
    ],
)
def test_values(amount: float | None, metric: str, plain: str, signed: str) -> None:
    assert units.value(amount, metric) == plain
    assert units.value(amount, metric, sign=True) == signed


def test_intervals_name_their_unit_once() -> None:
    assert units.between(0.1, 0.25, "accuracy", sign=True) == f"+10.0 to +25.0{G}points"
    assert units.between(0.1, 0.25, "ssim") == "0.100 to 0.250"
    assert units.between(-0.01, 1.02, "accuracy") == f"0.0 to 100.0{G}%"
    assert units.between(0.9, 1.2, "mape") == f"90.0 to 120.0{G}%"
    assert units.between(-0.01, 1.2, "mape") == f"0.0 to 120.0{G}%"
    assert units.between(-0.147, 0.293, "lpips") == "0.000 to 0.293"
    assert units.between(-0.147, 0.293, "lpips", sign=True) == "−0.147 to +0.293"
    assert units.between(None, 0.25, "ssim") == "no interval"


def test_a_gain_is_cut_at_what_its_floor_leaves() -> None:
    assert units.between(0.101, 0.873, "auc", sign=True, floor=0.5) == "+0.101 to +0.500"
    assert units.between(-0.784, 0.716, "accuracy", sign=True, floor=0.6) == f"−60.0 to +40.0{G}points"
    assert units.between(-3.0, 9.0, "lpips", sign=True, floor=0.7) == "−3.000 to +0.700"  # distances fall to 0
    assert units.between(-30.0, 90.0, "psnr", sign=True, floor=11.0) == f"−30.0 to +90.0{G}dB"
    assert units.between(-1.3, 1.31, "accuracy", sign=True) == f"−100.0 to +100.0{G}points"


def test_every_metric_of_the_table_has_words() -> None:
    assert set(words.FINDINGS) <= set(METRICS)
    for name, metric in METRICS.items():
        assert words.metric_words(name) and metric.what.startswith(words.metric_words(name))
        assert "80.0" in words.finding_words("server", name, "80.0", "“sex”")
    assert words.finding_words("server", "{x}", "1", None) == "The server reaches a score of 1 ({x})."
    assert units.is_down("mse") and units.is_down("label_error") and not units.is_down("psnr")
    assert not units.is_down(None) and not units.is_down("<b>")
    assert words.metric_words(None) == "not scored"


def test_charts_end_where_the_table_says() -> None:
    ends = {name for name, one in METRICS.items() if one.best == 1.0 and name != "zest"}
    assert ends == units.BOUNDED
    assert units.between(-0.01, 1.02, "auc") == "0.000 to 1.000"


def test_numbers_of_limits_are_points_for_gains_and_percent_for_scores() -> None:
    assert units.gated(0.05, "accuracy_over_floor") == f"5{G}points"
    assert units.gated(0.95, "accuracy") == f"95{G}%"
    assert units.gated(-0.05, "accuracy_over_floor") == f"\N{MINUS SIGN}5{G}points"
    assert units.gated(-0.3, "auc_over_floor") == "\N{MINUS SIGN}0.3" and units.gated(-0.0, "auc_over_floor") == "0"
    assert units.gated(0.6, "auc") == "0.6" and units.gated(None, "auc") == "unknown"


def test_the_margin_has_no_needless_digits() -> None:
    found = [units.margin_of(margin, name) for margin, name in ((0.05, "rec"), (0.05, "auc"), (1.0, "psnr"))]
    assert found == [f"5{G}points", "0.05", f"1{G}dB"]
    assert units.margin_of(12.345, "label_error") == f"12.3{G}examples"


def test_short_numbers_keep_three_digits() -> None:
    assert [units.short(value) for value in (0.0, 0.12345, 1.5, 12.345, 123.45, 0.01234, 1e-7, 2.5e6)] == [
        "0.000",
        "0.123",
        "1.500",
        "12.35",
        "123.5",
        "0.0123",
        "1.00e-07",
        "2.50e+06",
    ]


def test_lists_and_ranges() -> None:
    assert words.ranges([3, 0, 1, 2, 7, 9, 10]) == "0–3, 7, 9–10"
    assert words.ranges([]) == "none"
    assert words.count(1, "reply", "replies") == "1 reply" and words.count(2, "reply", "replies") == "2 replies"
