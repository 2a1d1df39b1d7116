"""Measured local models as tables of their own: one line per model, one table per data set and set of seeds.

Settings were looked at on the first seeds of Leaf, so these stand apart from fresh ones. What is chosen is chosen there
by a rule, once among models that only listening gives and once among those that interfere: of the models that fit the
client's records no worse than her last returned one (median loss, mean accuracy), the one most like her own model by
the mean of Zest. It is confirmed by other runs if it is above the last returned model there too, by the whole interval,
and still fits no worse.
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
    "accuracy minus that of last", "attributes told", "sources told",
)  # fmt: skip
EXTRA = (("gradients", "attribute inference from updates"), ("majority", "source inference by majority"))
NOT_CHOSEN = ("global", "last", "optimum")
KINDS = {
    "by listening": tuple(name for name in MODELS if name not in (*NOT_CHOSEN, *ACTIVE)),
    "by interfering": ACTIVE,
}
Values = dict[tuple[int, int | None], float]


def tables(document: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, head and lines of every group that was measured."""
    found = []
    for title, row, seeds in GROUPS:
        lines = [_line(document, row, seeds, name) for name in [*MODELS, *(name for name, _ in EXTRA)]]
        kept = [line for line in lines if any(line[1:])]
        if kept:
            runs = len({seed for seed, _ in _values(document, row, seeds, "last", "zest")})
            found.append((f"{title} ({runs} {'run' if runs == 1 else 'runs'})", HEAD, kept))
    return found


def _line(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> tuple[str, ...]:
    """All numbers of one model; empty where there is none."""

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
    """Values by seed and client of the chosen seeds."""
    wanted = (row, column, metric)
    units = [
        unit
        for one in document["rows"]
        if (one["row"], one["column"], one["metric"]) == wanted
        for unit in one["units"]
    ]
    return {(unit["seed"], unit["client"]): unit["value"] for unit in units if unit["seed"] in seeds}


def _mean(values: Values) -> str:
    return f"{math.fsum(values.values()) / len(values):.3f}" if values else ""


def _gain(values: Values, others: Values) -> str:
    """The paired difference with its 95 % interval."""
    both = [key for key in values if key in others]
    if not both:
        return ""
    found = interval([values[key] - others[key] for key in both], [seed for seed, _ in both])
    if found.low is None or found.high is None:
        return f"{found.mean:+.3f}"
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def choices(document: Mapping[str, Any]) -> list[str]:
    """What the rule chose on the first group, and whether the other groups confirm it, in sentences."""
    title, row, seeds = GROUPS[0]
    if not _values(document, row, seeds, "last", "zest"):
        return []
    found = []
    for kind, names in KINDS.items():
        best = _chosen(document, row, seeds, names)
        if best is None:
            found.append(
                f"Chosen {kind} on {title}: none, as no model is more like the client's own than her last returned one "
                "and fits her records no worse."
            )
            continue
        found.append(f"Chosen {kind} on {title}: `{best}`.")
        found += [
            f"{place} {'confirms' if _confirms(document, data, others, best) else 'does not confirm'} `{best}`: "
            f"{_told(document, data, others, best)}."
            for place, data, others in GROUPS[1:]
            if _values(document, data, others, best, "zest")
        ]
    return found


def _chosen(document: Mapping[str, Any], row: str, seeds: Sequence[int], names: Sequence[str]) -> str | None:
    """The name of highest mean Zest above that of the last returned model among those that fit no worse."""
    means = {name: _average(_values(document, row, seeds, name, "zest")) for name in ("last", *names)}
    fitting = [name for name in names if _fits(document, row, seeds, name) and means[name] > means["last"]]
    return max(fitting, key=means.__getitem__, default=None)


def _fits(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> bool:
    """Whether a model fits the client's records no worse than her last returned one."""
    losses, hits = (
        [list(_values(document, row, seeds, one, metric).values()) for one in (name, "last")]
        for metric in ("training_loss", "training_accuracy")
    )
    if not all((*losses, *hits)):
        return False
    return median(losses[0]) <= median(losses[1]) and fmean(hits[0]) >= fmean(hits[1])


def _confirms(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> bool:
    values, others = (_values(document, row, seeds, one, "zest") for one in (name, "last"))
    both = [key for key in values if key in others]
    if not both:
        return False
    gain = interval([values[key] - others[key] for key in both], [seed for seed, _ in both])
    return gain.low is not None and gain.low > 0 and _fits(document, row, seeds, name)


def _told(document: Mapping[str, Any], row: str, seeds: Sequence[int], name: str) -> str:
    """Zest and fit beside those of the last returned model."""
    zest = [_values(document, row, seeds, one, "zest") for one in (name, "last")]
    losses, hits = (
        [_values(document, row, seeds, one, metric) for one in (name, "last")]
        for metric in ("training_loss", "training_accuracy")
    )
    middles = [f"{median(one.values()):.3g}" if one else "unknown" for one in losses]
    return (
        f"zest {_gain(*zest)} against the last returned model, median loss {middles[0]} against {middles[1]}, accuracy "
        f"{_mean(hits[0])} against {_mean(hits[1])}"
    )


def _average(values: Values) -> float:
    return math.fsum(values.values()) / len(values) if values else -math.inf
