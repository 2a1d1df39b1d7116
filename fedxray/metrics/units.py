"""Scores as people read them: shares in percent, differences of shares in points, everything else in its own unit.

The report, `gate`, `recommend` and `compare` all write numbers with these functions, so that one score looks the same
everywhere. Files for machines (results.json, SARIF properties) hold plain fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedxray.errors import BadInput
from fedxray.metrics.table import base_metric, metric as metric_named

# Shares read best as percent; their differences are points.
SHARES = frozenset(
    {"accuracy", "balanced_accuracy", "within_tolerance", "tpr_at_1pct_fpr", "tpr_at_0p1pct_fpr", "rec", "retrieval"}
    | {"class_recognised", "label_accuracy", "values_recovered", "mape", "training_accuracy", "training_mape"}
)
# Metrics within 0 and 1: charts and intervals stay within.
BOUNDED = SHARES - {"mape", "training_mape"} | {"auc", "auc_subject", "auc_subject_other", "ssim", "class_ssim"}
# Metrics without an upper end that are never negative.
NOT_NEGATIVE = frozenset({"mape", "training_mape", "lpips", "mse", "label_error", "parameter_distance"})
# Decimals of the others, fixed so that numbers of one column can be compared at sight.
DECIMALS: Mapping[str, int] = {
    "auc": 3, "auc_subject": 3, "auc_subject_other": 3,
    "ssim": 3, "class_ssim": 3, "lpips": 3, "zest": 3, "parameter_distance": 3, "mse": 4, "label_error": 1,
    "psnr": 1, "class_psnr": 1, "own_psnr": 1, "training_loss": 3,
}  # fmt: skip
UNITS: Mapping[str, str] = {"psnr": "dB", "class_psnr": "dB", "own_psnr": "dB", "label_error": "examples"}
GLUE = "\N{NO-BREAK SPACE}"  # between a number and its unit
OVER_FLOOR = "_over_floor"  # suffix of a limit on the gain instead of the score


def is_down(metric: str | None) -> bool:
    """Whether smaller values of a metric mean more leakage; False for unknown names."""
    try:
        return metric is not None and metric_named(metric).down
    except BadInput:
        return False


def value(amount: float | None, metric: str | None, *, sign: bool = False) -> str:
    """Return a score with its unit; with `sign` it is a difference, with its sign and in points for shares."""
    if amount is None:
        return "–"
    base = base_metric(metric or "")
    if base in SHARES:
        return _signed(f"{100 * amount:.1f}", sign) + GLUE + ("points" if sign else "%")
    text = f"{amount:.{DECIMALS[base]}f}" if base in DECIMALS and abs(amount) < 1e6 else short(amount)
    return _signed(text, sign) + (GLUE + UNITS[base] if base in UNITS else "")


def between(
    low: float | None, high: float | None, metric: str | None, *, sign: bool = False, floor: float | None = None
) -> str:
    """Return an interval with its unit once, cut at the ends of a bounded metric; of a gain, over this `floor`."""
    if low is None or high is None:
        return "no interval"
    # A t-interval may pass the ends of a share, which the share itself cannot.
    low, high = (possible_gain(end, metric, floor) if sign else possible(end, metric) for end in (low, high))
    first, last = value(low, metric, sign=sign), value(high, metric, sign=sign)
    return f"{first.partition(GLUE)[0]} to {last}"


def possible(score: float, metric: str | None) -> float:
    """Return a score cut at the ends of its metric."""
    least, most = _ends(metric)
    return min(max(score, least), most)


def possible_gain(gain: float, metric: str | None, floor: float | None) -> float:
    """Return a gain cut at the largest and smallest that a score can have over this floor, as far as it is known."""
    least, most = _ends(metric)
    if floor is None:
        return min(max(gain, least - most), most - least)
    if is_down(metric):
        return min(max(gain, floor - most), floor - least)
    return min(max(gain, least - floor), most - floor)


def _ends(metric: str | None) -> tuple[float, float]:
    """Return the smallest and the largest value of a metric."""
    base = base_metric(metric or "")
    if base in BOUNDED:
        return (-1.0 if base.endswith("ssim") else 0.0), 1.0
    return (0.0 if base in NOT_NEGATIVE else -math.inf), math.inf


def margin_of(margin: float, metric: str | None) -> str:
    """Return a margin, the smallest gain that counts, without trailing digits."""
    base = base_metric(metric or "")
    if base in SHARES:
        return _signed(f"{100 * margin:.3g}", sign=False) + GLUE + "points"
    return _signed(f"{margin:.3g}", sign=False) + (GLUE + UNITS[base] if base in UNITS else "")


def amount(size: float, metric: str | None) -> str:
    """Return a measured amount without a sign, as a detection limit or a cost: like a margin, to a tenth of a point."""
    return margin_of(round(size, 3), metric)


def gated(number: float | None, metric: str) -> str:
    """Return a number of a limit: in points where `metric` ends in _over_floor, else as a score."""
    if number is None:
        return "unknown"
    plain = metric.removesuffix(OVER_FLOOR)
    text = margin_of(number, plain)
    return text if plain != metric or not text.endswith("points") else text.removesuffix("points") + "%"


def short(amount: float) -> str:
    """Return three significant digits, without an exponent where that reads well."""
    if amount == 0 or 1e-4 <= abs(amount) < 1e5:
        digits = 3 if abs(amount) < 10 else 2 if abs(amount) < 100 else 1
        return f"{amount:.{digits}f}" if abs(amount) >= 0.1 or amount == 0 else f"{amount:.3g}"
    return f"{amount:.2e}"


def _signed(text: str, sign: bool) -> str:
    """Return the text with a real minus, or a plus where a sign is wanted; what rounds to zero has no sign."""
    if not text.strip("-0."):
        return text.removeprefix("-")
    return text.replace("-", "\N{MINUS SIGN}") if not sign or text.startswith("-") else f"+{text}"
