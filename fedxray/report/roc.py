"""ROC curves of membership attacks on logarithmic axes: who is named for certain, at few false alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedxray.metrics import units
from fedxray.metrics.table import BY_PERSON
from fedxray.report import charts, words
from fedxray.report.charts import Drawing, Inks, bare, clipped
from fedxray.report.curves import on_log_scale
from fedxray.report.rows import Row, grouped, judged, plan_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

MOST_DRAWINGS = 8
DASHES: Sequence[Any] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (1, 1)))  # one for each curve
LEAST_FALSE = 10  # false positives from which on a rate is more than a guess
AXES_HEIGHT, BELOW, KEY_HEIGHT = 230.0, 50.0, 20.0  # points
MOST_LETTERS = 52  # of a line of the key
ACROSS, UP = "false-positive rate", "true-positive rate"


@dataclass(frozen=True, kw_only=True)
class RocCurves:
    """The curves of the membership attacks of one role against one defence."""

    title: str
    note: str
    drawing: Drawing


def roc_curves(document: Mapping[str, Any]) -> list[RocCurves]:
    """Return a drawing per role, defence and unit (records or people), the first few."""
    rows = [row for row in judged(document) if row.get("roc") and row["roc"]["fpr"]]
    groups = grouped(rows, lambda row: (plan_of(row), row["role"], row["defence"], row["metric"]))
    places = [place for *place, _ in groups]
    return [
        _curves(f"roc-{index}", own, twice=places.count(places[index]) > 1)
        for index, own in enumerate(list(groups.values())[:MOST_DRAWINGS])
    ]


def _curves(name: str, rows: Sequence[Row], *, twice: bool) -> RocCurves:
    """Return one drawing; the metric is in the title where there are two of the same role and defence."""
    ordered = sorted(rows, key=lambda row: -(row["mean"] or 0.0))[: len(DASHES)]
    first = ordered[0]
    parts = [plan_of(first), words.capital(words.role_words(first["role"])), words.defence_words(first["defence"])]
    parts += [words.metric_name(first["metric"])] if twice else []
    title, more = ", ".join(part for part in parts if part), len(rows) - len(ordered)
    noun = ("person", "people") if first["metric"] in BY_PERSON else ("record", "records")
    members, others = (words.count(first["roc"][kind], *noun) for kind in ("members", "others"))
    note = f"{members} trained on, {others} not" + (f"; {words.count(more, 'weaker attack')} not shown" if more else "")
    pooled = [f"{row['roc']['auc']:.3f} {row['attack']}" for row in ordered if "auc" in row["roc"]]
    note += f"; ROC AUC pooled by members: {', '.join(dict.fromkeys(pooled))}" if pooled else ""
    return RocCurves(title=title, note=note, drawing=roc_chart(ordered, name=name, title=f"ROC curves: {title}"))


def roc_chart(rows: Sequence[Row], *, name: str, title: str) -> Drawing:
    """Return the curves of some rows, guessing as the diagonal, and shaded where a rate rests on under ten others."""
    height = AXES_HEIGHT + BELOW + KEY_HEIGHT * len(rows)
    least = min(min(row["roc"]["fpr"]) for row in rows)

    def paint(figure: FigureBase, inks: Inks) -> None:
        foot = height - AXES_HEIGHT
        axes = figure.add_axes((0.15, foot / height, 0.79, (AXES_HEIGHT - 10) / height))
        _log_axes(axes, least, inks)
        few = max(_solid_from(row["roc"]["others"]) for row in rows)
        axes.axvspan(least, min(few, 1.0), color=inks.band, linewidth=0, zorder=0)
        axes.plot([least, 1.0], [least, 1.0], color=inks.muted, linewidth=charts.CASE_WIDTH)
        for index, (row, dash) in enumerate(zip(rows, DASHES, strict=False)):
            style: dict[str, Any] = {
                "color": inks.of(row["state"]),
                "linewidth": charts.MEDIAN_WIDTH,
                "linestyle": dash,
            }
            known = [pair for pair in zip(row["roc"]["fpr"], row["roc"]["tpr"], strict=True) if min(pair) > 0]
            axes.plot([x for x, _ in known], [y for _, y in known], **style)
            y = -(BELOW + KEY_HEIGHT * (index + 0.4)) / (AXES_HEIGHT - 10)  # the key stands below the axis
            axes.plot([0.0, 0.09], [y, y], transform=axes.transAxes, clip_on=False, **style)
            axes.text(0.11, y, f"@{index}", transform=axes.transAxes, color=inks.ink, va="center")
        axes.set_xlabel(f"@{len(rows)}", color=inks.muted)
        axes.set_ylabel(f"@{len(rows) + 1}", color=inks.muted, labelpad=6)

    return Drawing(
        name=name,
        title=title,
        description=" ".join(_described(row) for row in rows),
        texts=(*(clipped(_key(row), MOST_LETTERS) for row in rows), ACROSS, UP),
        size=(charts.WIDTH, height),
        paint=paint,
    )


def _solid_from(others: int) -> float:
    """Return the false-positive rate at which ten others are named."""
    return (LEAST_FALSE + 1) / (others + 1)


def _log_axes(axes: Axes, least: float, inks: Inks) -> None:
    for side in ("x", "y"):
        on_log_scale(axes, side)
    axes.set_xlim(least, 1.0)
    axes.set_ylim(least, 1.0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda tick, _: f"{100 * tick:.4g}{units.GLUE}%")
    bare(axes, inks)


def _key(row: Row) -> str:
    """Return score and name of a curve; what the attacker knows only where that makes two curves."""
    aware = words.aware_words(row) if isinstance(row["aware"], bool) else ""
    name = f"{row['attack']} ({aware})" if aware else row["attack"]
    return f"{units.value(row['mean'], row['metric'])} {name}"


def _described(row: Row) -> str:
    """Return one curve for screen readers, at the first rate that rests on ten others."""
    fpr, tpr, others = (row["roc"][key] for key in ("fpr", "tpr", "others"))
    at = next((index for index, rate in enumerate(fpr) if rate >= 0.99 * _solid_from(others)), len(fpr) - 1)
    rates = f"true-positive rate {100 * tpr[at]:.3g} % at {100 * fpr[at]:.3g} % false positives"
    return f"{words.metric_name(row['metric'])} {_key(row)}; {rates}."
