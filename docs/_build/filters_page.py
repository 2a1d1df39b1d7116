"""Builds the table of stock filters and its intervals from docs/results/bench/filters.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILTERS = Path(__file__).resolve().parents[1] / "results" / "bench" / "filters.json"
TITLES = {
    "none": "none",
    "nvflare-percentile": "NVFlare PercentilePrivacy",
    "nvflare-svt": "NVFlare SVTPrivacy",
    "nvflare-exclude": "NVFlare ExcludeVars (biases)",
    "flower-local-dp": "Flower LocalDpMod",
    "flower-fixed-clipping": "Flower fixed clipping",
    "flower-adaptive-clipping": "Flower adaptive clipping",
    "dp-sgd": "`dp-sgd`, for comparison",
}
ATTACKS = {  # data set and attack of a column, with the factor and digits of its gain
    "sensitive column, points": ("table", "attribute-from-updates", 100.0, 1),
    "members, AUC": ("table", "membership-best", 1.0, 2),
    "images, dB": ("images", "inverting-gradients", 1.0, 1),
}

Content = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by data set and filter


def table(content: Content) -> str:
    """Return gains, accuracy and epsilon of every filter, in Markdown; what a filter has no gain of is not measured."""
    head = ["filter", *ATTACKS, "accuracy", "epsilon: configured, accounted, measured"]
    lines = [f"|{'|'.join(head)}|", "|---" * len(head) + "|"]
    for name, title in TITLES.items():
        cells = [_gain(content[data][name].get(attack), *form) for data, attack, *form in ATTACKS.values()]
        own = content["table"][name]
        accuracy = next(one["value"] for one in own["utility"] if one["metric"] == "accuracy")
        lines.append(f"|{'|'.join([title, *cells, f'{100 * accuracy:.0f} %', _epsilon(own['epsilon'])])}|")
    return "\n".join(lines) + "\n"


def intervals(content: Content) -> str:
    """Return the median half width of the gains' intervals by column, in one sentence."""
    parts = []
    for title, (data, attack, factor, digits) in ATTACKS.items():
        rows = [content[data][name][attack] for name in TITLES if attack in content[data][name]]
        half = statistics.median((row["high"] - row["low"]) / 2 for row in rows)
        parts.append(f"±{factor * half:.{digits}f} ({title})")
    return f"Median 95 % interval of a gain over runs: {'; '.join(parts)}.\n"


def _gain(row: Mapping[str, Any] | None, factor: float, digits: int) -> str:
    if row is None:
        return "not measured"
    text = f"{factor * row['difference'] + 0.0:.{digits}f}"
    return text if text.strip("-0.") else text.removeprefix("-")


def _epsilon(found: Mapping[str, Any]) -> str:
    if found["configured"] is None:
        return ""
    measured = "not measured" if found["measured"] is None else f"at least {_spelled(found['measured']['low'])}"
    return f"{_spelled(found['configured'])}, {_spelled(found['accounted'])}, {measured}"


def _spelled(value: float) -> str:
    if value >= 1e6:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"
