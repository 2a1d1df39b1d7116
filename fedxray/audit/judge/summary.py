"""From cases to the rows of the summary: one row per attack, role, defence, aware and metric.

The strongest floor is the one with the best mean over the units, chosen before units are paired. Choosing it
on the same units makes it look a little stronger than it is, so the choice can hide a small leak but never
make one. Only cases that ended count as units; the others stand in the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedxray.audit.judge.statistics import Interval, holm, interval, paired
from fedxray.audit.judge.verdict import Power, VerdictInput, judge, kind_of
from fedxray.metrics.table import metric as metric_named

Case = Mapping[str, Any]
Row = dict[str, Any]
RowKey = tuple[str, str, str, bool | None, str | None]  # attack, role, defence, aware, metric
PowerKey = tuple[str, str | None]  # attack, and metric or None for all of them

UNIT, RECORD = "client-run", "record"
ENDED = ("ok", "undetermined", "diverged", "truncated")  # statuses that come with a guess


@dataclass(frozen=True, kw_only=True)
class _Units:
    """The scored units of one row, as three columns of one table; a unit is one client in one run."""

    cases: Sequence[Case]
    values: Sequence[float]
    seeds: Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A row without its verdict, and the input of the verdict."""

    row: Row
    measured: VerdictInput
    controls: Mapping[str, Interval]


def summarise(
    cases: Sequence[Case],
    *,
    ceilings: Mapping[str, str] | None = None,
    expected: Mapping[str, Sequence[str]] | None = None,
    power: Mapping[PowerKey, Power] | None = None,
) -> list[Row]:
    """Return the summary rows in the order of the cases.

    By an attack's label, `ceilings` names the oracle that bounds it, and `expected` lists its metrics, so that it gets
    rows where every case failed; `power` holds by attack and metric the checks that "no leak found" needs.
    """
    drafts = []
    for key, group in _groups(cases).items():
        for metric in _metrics_of(key[0], group, cases, expected or {}):
            check = (power or {}).get((key[0], metric)) or (power or {}).get((key[0], None))
            drafts.append(_draft((*key, metric), group, check))
    _judge_all(drafts)
    rows = [draft.row for draft in drafts]
    for row in rows:
        row["ceiling"] = _best_ceiling(row, rows, (ceilings or {}).get(row["attack"]))
    return rows


def _groups(cases: Sequence[Case]) -> dict[tuple[str, str, str, bool | None], list[Case]]:
    """Group cases by attack, role, defence and aware, in the order of their first case."""
    groups: dict[tuple[str, str, str, bool | None], list[Case]] = {}
    for case in cases:
        key = (case["attack"], case["role"], case["defence"], case["aware"])
        groups.setdefault(key, []).append(case)
    return groups


def _metrics_of(
    attack: str, group: Sequence[Case], cases: Sequence[Case], expected: Mapping[str, Sequence[str]]
) -> list[str | None]:
    """Return a group's scored and expected metrics, else those of the attack elsewhere, else one None."""
    own = _scored(group)
    wanted = list(dict.fromkeys([*own, *expected.get(attack, ())]))
    elsewhere = _scored([case for case in cases if case["attack"] == attack]) if not wanted else []
    return list(wanted or elsewhere) or [None]


def _scored(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(metric for case in cases for metric in case["scores"]))


def _draft(key: RowKey, group: Sequence[Case], power: Power | None) -> _Draft:
    """Return a row without its verdict."""
    metric = key[4]
    down = _is_down(metric)
    units = _units(group, metric)
    margin = None if metric is None else _margin(metric, units)
    over, floor, difference = _against_floor(units, metric, down)
    controls, shown = _against_controls(units, metric, down)
    statuses = Counter(case["status"] for case in group)
    row: Row = dict(zip(("attack", "role", "defence", "aware", "metric"), key, strict=True))
    row |= {"oracle": any(case["oracle"] for case in group), **_mean(units, metric)}
    row |= {"floor": floor, "over": over, **_spread(difference), "ceiling": _ceiling(units, metric, down)}
    inside = _within(units, metric)
    count, unit = (len(units.values), UNIT) if inside is None else (inside["mean"]["n"], RECORD)
    row |= {"controls": shown, "kind": None, "n": count, "unit": unit}
    row |= {"worst": _worst(units, metric, down), "margin": margin, "verdict": None, "reason": None}
    measured = VerdictInput(
        difference=difference,
        adjusted=None,
        margin=margin or 0.0,
        over=over,
        statuses=statuses,
        unscored=sum(statuses[status] for status in ENDED) - len(units.values),
        runs=len(set(units.seeds)),
        family=0,
        room=_room(metric, floor),
        unit=unit,
        recorded=any("recording" in case["ledger"] for case in group),
        power=power,
    )
    return _Draft(row=row, measured=measured, controls=controls)


def _margin(metric: str, units: _Units) -> float:
    """Return the least difference that counts as a leak; for a metric that counts examples, a share of them."""
    entry = metric_named(metric)
    if not entry.per_example:
        return entry.margin
    counts = [case["ledger"].get("examples_in_question", 1) for case in units.cases]
    return entry.margin * (math.fsum(counts) / len(counts) if counts else 1.0)


def _room(metric: str | None, floor: float | None) -> float | None:
    """Return the gain of a perfect attack over the floor; None where a metric is unbounded."""
    best = None if metric is None else metric_named(metric).best
    if best is None or floor is None:
        return None
    return floor - best if _is_down(metric) else best - floor


def _units(group: Sequence[Case], metric: str | None) -> _Units:
    """Return the cases of a group that ended with a finite value of this metric.

    An attack that did not converge has made a guess all the same: leaving it out would select the lucky ones.
    """
    scored = [(case, _value(case["scores"], metric)) for case in group if case["status"] in ENDED]
    finite = [(case, value) for case, value in scored if value is not None]
    return _Units(
        cases=[case for case, _ in finite],
        values=[value for _, value in finite],
        seeds=[case["seed"] for case, _ in finite],
    )


def _value(scores: Mapping[str, Any] | None, metric: str | None) -> float | None:
    """Return the score as a finite number, or None."""
    value = (scores or {}).get(metric) if metric is not None else None
    return float(value) if value is not None and math.isfinite(value) else None


def _compare(units: _Units, field: str, name: str, metric: str | None, down: bool) -> tuple[float, Interval] | None:
    """Return the mean of a floor or control and the paired difference to it, over the units that have it."""
    inside = _within(units, metric)
    if inside is not None:
        difference, value = inside[field].get(name), _value(units.cases[0][field].get(name), metric)
        return None if difference is None or value is None else (value, Interval(**difference))
    others = [_value(case[field].get(name), metric) for case in units.cases]
    both = [
        (value, other, seed)
        for value, other, seed in zip(units.values, others, units.seeds, strict=True)
        if other is not None
    ]
    if not both:
        return None
    mean = math.fsum(other for _, other, _ in both) / len(both)
    differences = paired([value for value, _, _ in both], [other for _, other, _ in both], down=down)
    return mean, interval(differences, [seed for _, _, seed in both])


def _compare_all(units: _Units, field: str, metric: str | None, down: bool) -> dict[str, tuple[float, Interval]]:
    """Return the comparisons with all floors or controls that have a score."""
    names = dict.fromkeys(name for case in units.cases for name in case[field])
    compared = {name: _compare(units, field, name, metric, down) for name in names}
    return {name: comparison for name, comparison in compared.items() if comparison is not None}


def _against_floor(units: _Units, metric: str | None, down: bool) -> tuple[str | None, float | None, Interval | None]:
    """Return name and mean of the strongest floor, and the paired difference to it."""
    known = _compare_all(units, "floors", metric, down)
    if not known:
        return None, None, None
    sign = -1.0 if down else 1.0
    # A floor known for all units comes before a better one known for some: else difference != mean - floor.
    over = max(known, key=lambda name: (known[name][1].n, sign * known[name][0]))
    return over, known[over][0], known[over][1]


def _against_controls(units: _Units, metric: str | None, down: bool) -> tuple[dict[str, Interval], Row]:
    """Return the paired differences to every control, as intervals and as results.json holds them."""
    known = _compare_all(units, "controls", metric, down)
    shown = {name: {"mean": mean, **_spread(difference)} for name, (mean, difference) in known.items()}
    return {name: difference for name, (_, difference) in known.items()}, shown


def _within(units: _Units, metric: str | None) -> Mapping[str, Any] | None:
    """Return the intervals over records that a recording's only case carries for this metric."""
    if metric is None or len(units.cases) != 1:
        return None
    intervals: Mapping[str, Any] | None = (units.cases[0].get("within") or {}).get(metric)
    return intervals


def _mean(units: _Units, metric: str | None) -> Row:
    if not units.values:
        return {"mean": None, "mean_low": None, "mean_high": None}
    inside = _within(units, metric)
    spread = interval(units.values, units.seeds) if inside is None else Interval(**inside["mean"])
    return {"mean": spread.mean, "mean_low": spread.low, "mean_high": spread.high}


def _spread(difference: Interval | None) -> Row:
    if difference is None:
        return {"difference": None, "low": None, "high": None}
    return {"difference": difference.mean, "low": difference.low, "high": difference.high}


def _worst(units: _Units, metric: str | None, down: bool) -> Row | None:
    """Return the most exposed record where records were scored, else the most exposed unit."""
    sign = -1.0 if down else 1.0
    exposed = []
    for case, value in zip(units.cases, units.values, strict=True):
        single = (case.get("worst_record") or {}).get(metric)
        record = None if single is None else single["record"]
        shown = value if single is None else single["value"]
        exposed.append({"value": shown, "seed": case["seed"], "client": case["client"], "record": record})
    records = [entry for entry in exposed if entry["record"] is not None]
    return max(records or exposed, key=lambda entry: sign * entry["value"], default=None)


def _judge_all(drafts: Sequence[_Draft]) -> None:
    """Write verdict, reason and kind; oracles are adjusted among themselves, so that a ceiling costs no power."""
    for oracle in (False, True):
        family = [draft for draft in drafts if draft.row["oracle"] is oracle]
        differences = [draft.measured.difference for draft in family]
        adjusted = holm([None if difference is None else difference.p for difference in differences])
        size = sum(p is not None for p in adjusted)
        for draft, p in zip(family, adjusted, strict=True):
            verdict, reason = judge(replace(draft.measured, adjusted=p, family=size))
            note = "an upper bound that no attacker could have; " if oracle else ""
            metric, measured = draft.row["metric"], draft.measured
            # Membership itself compares training rows with held-out rows of the same client.
            record = metric is not None and "membership" in metric_named(metric).kinds
            kind = kind_of(measured.difference, draft.controls, record=record, margin=measured.margin)
            draft.row.update({"verdict": verdict, "reason": note + reason, "kind": kind})


def _ceiling(units: _Units, metric: str | None, down: bool) -> float | None:
    """Return the best mean among the upper bounds that the cases carry themselves, or None."""
    means = []
    for name in dict.fromkeys(name for case in units.cases for name in case.get("ceilings") or ()):
        values = [_value((case.get("ceilings") or {}).get(name), metric) for case in units.cases]
        known = [value for value in values if value is not None]
        means += [math.fsum(known) / len(known)] if known else []
    return _best(means, down)


def _best_ceiling(row: Row, rows: Sequence[Row], oracle: str | None) -> float | None:
    """Return the better of a row's own ceiling and the mean of its oracle under the same defence and metric."""
    bounds = [row["ceiling"]]
    for other in rows:
        if other["attack"] == oracle and other["oracle"]:
            same = (other["defence"], other["metric"]) == (row["defence"], row["metric"])
            bounds.append(other["mean"] if same else None)
    known = [value for value in bounds if value is not None]
    return _best(known, _is_down(row["metric"]))


def _best(values: Sequence[float], down: bool) -> float | None:
    if not values:
        return None
    return min(values) if down else max(values)


def _is_down(metric: str | None) -> bool:
    """Return whether smaller values of a metric leak more."""
    return metric is not None and metric_named(metric).better == "down"


def powers(rows: Sequence[Mapping[str, Any]]) -> dict[PowerKey, Power]:
    """Return the checks as verdicts read them; None for a metric stands for all metrics of the attack."""
    return {
        (row["attack"], row["metric"]): Power(
            passed=row["passed"],
            gain=None if row["difference"] is None or not row["margin"] else row["difference"] / row["margin"],
            reason=row["reason"],
        )
        for row in rows
    }
