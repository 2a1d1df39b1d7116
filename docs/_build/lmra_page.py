"""Builds the tables of measured local models: one line per model, one table per data set and group of seeds.

Settings were chosen on the first seeds of Leaf, so these are separate from fresh ones. A rule selects one model by
passive observation and one by interference: of the models that fit the client's records no worse than its last returned
one (median loss, mean accuracy), the one most similar to the client's own model by mean Zest. Other runs confirm it if
there, too, the whole interval of its gain over the last returned model is above 0 and it fits no worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from fedxray.audit.judge.statistics import interval
from fedxray.reproduce.lmra import ACTIVE, MODELS

GROUPS = (
    ("Leaf Synthetic, seeds 0 to 4", "leaf", range(5)),
    ("Leaf Synthetic, fresh seeds 5 to 9", "leaf", range(5, 10)),
    ("Adult, seeds 0 to 4", "adult", range(5)),
)
HEAD: tuple[str, ...] = (
    "model", "zest", "zest minus that of last", "median training loss", "training accuracy",
    "accuracy minus that of last", "attributes inferred", "sources inferred",
)  # fmt: skip
EXTRA = (("gradients", "attribute inference from updates"), ("majority", "source inference by majority"))
NOT_CHOSEN = ("global", "last", "optimum")
KINDS = {
    "passively": tuple(name for name in MODELS if name not in (*NOT_CHOSEN, *ACTIVE)),
    "by interfering": ACTIVE,
}
Values = dict[tuple[int, int | None], float]


def tables(document: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return title, head and lines of every group that was measured."""
    groups = []
    for title, row, seeds in GROUPS:
        lines = [_line(document, row, seeds, name) for name in [*MODELS, *(name for name, _ in EXTRA)]]
        measured = [line for line in lines if any(line[1:])]
        if measured:
            runs = len({seed for seed, _ in _values(document, row, seeds, "last", "zest")})
            groups.append((f"{title} ({runs} {'run' if runs == 1 else 'runs'})", HEAD, measured))
    return groups


def _line(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> tuple[str, ...]:
    """Return all numbers of one model; empty where there is none."""

    def values(column: str, metric: str) -> Values:
        return _values(document, row, seeds, column, metric)

    zest, hits = values(name, "zest"), values(name, "training_accuracy")
    losses = list(values(name, "training_loss").values())
    return (
        dict(EXTRA).get(name, f"`{name}`"),
        _mean(zest),
        "" if name == "last" else _gain(zest, values("last", "zest")),
        f"{median(losses):.3g}" if losses else "",
        _mean(hits),
        "" if name == "last" else _gain(hits, values("last", "training_accuracy")),
        _mean(values(f"aia-{name}", "accuracy")),
        _mean(values(f"sia-{name}", "accuracy")),
    )


def _values(document: Mapping[str, Any], row: str, seeds: Sequence[int], column: str, metric: str) -> Values:
    """Return the values of the chosen seeds, by seed and client."""
    wanted = (row, column, metric)
    units = [
        unit
        for cell in document["rows"]
        if (cell["row"], cell["column"], cell["metric"]) == wanted
        for unit in cell["units"]
    ]
    return {(unit["seed"], unit["client"]): unit["value"] for unit in units if unit["seed"] in seeds}


def _mean(values: Values) -> str:
    return f"{math.fsum(values.values()) / len(values):.3f}" if values else ""


def _gain(values: Values, others: Values) -> str:
    """Return the paired difference with its 95 % interval."""
    both = [key for key in values if key in others]
    if not both:
        return ""
    gain = interval([values[key] - others[key] for key in both], [seed for seed, _ in both])
    if gain.low is None or gain.high is None:
        return f"{gain.mean:+.3f}"
    return f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"


def choices(document: Mapping[str, Any]) -> list[str]:
    """Return in sentences which models the rule selects on the first group, and whether other groups confirm them."""
    title, row, seeds = GROUPS[0]
    if not _values(document, row, seeds, "last", "zest"):
        return []
    lines = []
    for kind, names in KINDS.items():
        best = _chosen(document, row, seeds, names)
        if best is None:
            lines.append(
                f"Chosen {kind} on {title}: none, as no model is more similar to the client's own than its last "
                "returned one and fits its records no worse."
            )
            continue
        lines.append(f"Chosen {kind} on {title}: `{best}`.")
        lines += [
            f"{group} {'confirms' if _confirms(document, data, fresh, best) else 'does not confirm'} `{best}`: "
            f"{_against_last(document, data, fresh, best)}."
            for group, data, fresh in GROUPS[1:]
            if _values(document, data, fresh, best, "zest")
        ]
    return lines


def _chosen(document: Mapping[str, Any], row: str, seeds: Sequence[int], names: Sequence[str]) -> str | None:
    """Return the name of highest mean Zest above that of the last returned model among those that fit no worse."""
    means = {name: _average(_values(document, row, seeds, name, "zest")) for name in ("last", *names)}
    fitting = [name for name in names if _fits(document, row, seeds, name) and means[name] > means["last"]]
    return max(fitting, key=means.__getitem__, default=None)


def _fits(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> bool:
    """Whether a model fits the client's records no worse than its last returned one."""
    losses, hits = (
        [list(_values(document, row, seeds, model, metric).values()) for model in (name, "last")]
        for metric in ("training_loss", "training_accuracy")
    )
    if not all((*losses, *hits)):
        return False
    return median(losses[0]) <= median(losses[1]) and fmean(hits[0]) >= fmean(hits[1])


def _confirms(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> bool:
    values, others = (_values(document, row, seeds, model, "zest") for model in (name, "last"))
    both = [key for key in values if key in others]
    if not both:
        return False
    gain = interval([values[key] - others[key] for key in both], [seed for seed, _ in both])
    return gain.low is not None and gain.low > 0 and _fits(document, row, seeds, name)


def _against_last(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> str:
    """Return Zest and fit beside those of the last returned model."""
    zest = [_values(document, row, seeds, model, "zest") for model in (name, "last")]
    losses, hits = (
        [_values(document, row, seeds, model, metric) for model in (name, "last")]
        for metric in ("training_loss", "training_accuracy")
    )
    medians = [f"{median(values.values()):.3g}" if values else "unknown" for values in losses]
    return (
        f"zest {_gain(*zest)} against the last returned model, median loss {medians[0]} against {medians[1]}, accuracy "
        f"{_mean(hits[0])} against {_mean(hits[1])}"
    )


def _average(values: Values) -> float:
    return math.fsum(values.values()) / len(values) if values else -math.inf
