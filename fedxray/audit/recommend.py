"""Chooses among the defences of an audit: the best utility of those under which every gated score keeps its limit.

A limit is kept when the upper end of the 95 % interval lies within it, for the worst seat and attacker that match; a
score that could not be measured keeps nothing, nor does one of which a case did not end: a failed attack is never read
as safety. Where nothing shows that a leak would have been seen, the setting is told with that doubt. Everything is read
from the results: no code of the plan is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.audit.gate import OVER_FLOOR, Row, checked_rules, lost_cases, unproven
from fedxray.errors import BadInput

# In the order in which they are preferred; smaller is better for those that are marked.
UTILITY: Mapping[str, bool] = {"accuracy": False, "mape": True, "loss": True}



@dataclass(frozen=True, kw_only=True)
class Setting:
    """One defence with what it keeps, what it breaks and what it is worth."""

    defence: str
    broken: tuple[str, ...]  # in words, one for every limit that is not kept
    metric: str | None = None  # of utility
    value: float | None = None
    low: float | None = None
    high: float | None = None
    cost: float | None = None  # in utility, against the best setting of all
    epsilon: float | None = None
    doubts: tuple[str, ...] = ()  # where a limit is kept and nothing shows that a leak would have been seen

    @property
    def holds(self) -> bool:
        """Whether every limit is kept."""
        return not self.broken


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """All settings in the order of the results, and the one that is recommended, if any."""

    settings: tuple[Setting, ...]
    chosen: Setting | None
    limits: tuple[str, ...]


def recommend(document: Mapping[str, Any], rules: Sequence[Row] | None = None) -> Recommendation:
    """The setting of least utility loss that keeps every limit, of the plan or given; none where none does."""
    gates = checked_rules(document["plan"].get("gate") or ()) if rules is None else rules
    if not gates:
        raise BadInput(
            "gate",
            expected="at least one [[gate]] in the plan, which says what must hold",
            got="none",
            remedy="Give --policy FILE with [[gate]] tables, so that the audit need not be run again; for instance "
            'attack = "...", metric = "accuracy_over_floor", limit = 0.05.',
        )
    names = list(dict.fromkeys(row["defence"] for row in document["summary"]))
    metric = next((one for one in UTILITY if any(row["metric"] == one for row in document["utility"])), None)
    worth = {row["defence"]: row for row in document["utility"] if row["metric"] == metric}
    settings = tuple(_setting(name, gates, document, worth, metric) for name in names)
    held = [one for one in settings if one.holds and one.cost is not None]
    best = min(held, key=lambda one: one.cost or 0.0, default=None)
    # Without held-out records nothing is known of utility; then the first that holds is as good as any.
    first = next((one for one in settings if one.holds), None)
    limits = dict.fromkeys(_limit_words(gate) for gate in gates)
    return Recommendation(settings=settings, chosen=best or first, limits=tuple(limits))


def _setting(
    name: str, gates: Sequence[Row], document: Row, worth: Mapping[str, Row], metric: str | None
) -> Setting:
    own = [row for row in document["summary"] if row["defence"] == name and not row["oracle"]]
    broken = tuple(reason for gate in gates if (reason := _broken(gate, own, document)) is not None)
    doubts = tuple(dict.fromkeys(doubt for gate in gates for doubt in _doubts(gate, own)))
    found = worth.get(name)
    if found is None or metric is None:
        return Setting(defence=name, broken=broken, doubts=doubts)
    return Setting(
        defence=name,
        broken=broken,
        metric=metric,
        value=found["value"],
        low=found["low"],
        high=found["high"],
        cost=_cost(found["value"], worth, metric),
        epsilon=found["epsilon"],
        doubts=doubts,
    )


def _cost(value: float | None, worth: Mapping[str, Row], metric: str) -> float | None:
    """How much utility is lost against the best setting."""
    known = [row["value"] for row in worth.values() if row["value"] is not None]
    if value is None or not known:
        return None
    return float(value - min(known) if UTILITY[metric] else max(known) - value)


def _broken(gate: Row, rows: Sequence[Row], document: Row) -> str | None:
    """Why a limit is not kept, of the worst row that matches; None where it is kept."""
    plain, matching = str(gate["metric"]).removesuffix(OVER_FLOOR), _matching(gate, rows)
    if not matching:
        return f"{gate['attack']} {gate['metric']} was not measured"
    ends = [_ends(row, over_floor=plain != gate["metric"]) for row in matching]
    if any(high is None for _, high in ends):
        return f"{gate['attack']} {gate['metric']} has no interval: add seeds or target clients"
    mean, high = max(ends, key=lambda end: end[1] or 0.0)
    if high is None or high > gate["limit"]:
        return f"{gate['attack']} {gate['metric']} {_short(mean)}, up to {_short(high)}"
    lost = next((found for row in matching if (found := lost_cases(document, row)) is not None), None)
    return None if lost is None else f"{gate['attack']} {gate['metric']}: {lost}"


def _matching(gate: Row, rows: Sequence[Row]) -> list[Row]:
    """The rows that a limit is about."""
    plain, seat = str(gate["metric"]).removesuffix(OVER_FLOOR), gate.get("role")
    own = [row for row in rows if row["attack"] == gate["attack"] and row["metric"] == plain]
    return [row for row in own if seat in (None, row["role"])]


def _doubts(gate: Row, rows: Sequence[Row]) -> list[str]:
    """Why keeping a limit should not be leant on: an attack that may see nothing keeps every limit."""
    found = [unproven(row) for row in _matching(gate, rows)]
    return [f"{gate['attack']} {gate['metric']}: {doubt}" for doubt in found if doubt is not None]


def _ends(row: Row, *, over_floor: bool) -> tuple[float | None, float | None]:
    """Mean and upper end of a row's interval."""
    return (row["difference"], row["high"]) if over_floor else (row["mean"], row["mean_high"])


def _limit_words(gate: Row) -> str:
    seat = f" by {gate['role']}" if gate.get("role") else ""
    return f"{gate['attack']}{seat}: {gate['metric']} at most {gate['limit']:g}"


def _short(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.3g}"
