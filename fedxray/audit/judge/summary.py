"""From cases to the rows of the summary: one row per attack, role, defence, aware and metric.

Only the primary metric of an attack is judged; the other rows are shown with their intervals. Attackers who know the
defence and who do not, with equal scores in all units, count once.

Each claim takes the floor that speaks against it. For *leaks* it is the one with the best mean over all units: choosing
on the same units makes it look a little stronger than it is, so the choice can hide a small leak but never make one.
For *no leak found* it is, in each run, the one that is best in the other runs. Only cases that ended count as units;
the others stand in the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedxray.audit.judge import statistics
from fedxray.audit.judge.family import Adjusted, RowTests, adjust, exactly, layouts_of
from fedxray.audit.judge.roc import roc_of
from fedxray.audit.judge.statistics import Interval, SplitUnit, interval, paired
from fedxray.audit.judge.verdict import (
    DECIDED,
    LEAST_RUNS,
    TRACE,
    UNDEFENDED,
    VerdictInput,
    is_bounded,
    judge,
    kind_of,
    power_check,
    unjudgeable,
)
from fedxray.metrics.table import MAIN_METRIC, metric as metric_named
from fedxray.metrics.units import BOUNDED, SHARES
from fedxray.seeds import derive_seed

Case = Mapping[str, Any]
Row = dict[str, Any]
RowKey = tuple[str, str, str, bool | None, str | None]  # attack, role, defence, aware, metric

UNIT, RECORD = "client-run", "record"
ENDED = ("ok", "undetermined", "diverged", "truncated")  # statuses that come with a guess
# What only a judged row has; the others hold None.
COVERED = ("attacks", "defences", "clients")  # what a look names beside its seeds
JUDGED = ("scope", "test", "p", "p_adjusted", "p_split", "p_swap", "resolution", "seen", "more_seeds", "upper", "state")


@dataclass(frozen=True, kw_only=True)
class _Units:
    """The scored units of one row, as three columns of one table; a unit is one client in one run."""

    cases: Sequence[Case]
    values: Sequence[float]
    seeds: Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A row without its verdict, its units, and the input of the verdict as far as it needs no other row."""

    row: Row
    units: _Units
    measured: VerdictInput
    controls: Mapping[str, Interval]

    @property
    def down(self) -> bool:
        """Whether smaller values leak more."""
        return _is_down(self.row["metric"])


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One look at the results: the part of the 5 % that it spends, and the cases it had.

    A later look may have more seeds, attacks, defences or clients; None stands for all.
    """

    seeds: Collection[Any]
    spent: float
    attacks: Collection[str] | None = None
    defences: Collection[str] | None = None
    clients: Collection[int | None] | None = None

    def has(self, case: Case) -> bool:
        """Return whether a case was there at this look."""
        client = self.clients is None or case["client"] in self.clients
        return client and case["seed"] in self.seeds

    def has_row(self, row: Row) -> bool:
        """Return whether a row was there at this look."""
        attack = self.attacks is None or row["attack"] in self.attacks
        return attack and (self.defences is None or row["defence"] in self.defences)


def summarise(
    cases: Sequence[Case],
    *,
    ceilings: Mapping[str, str] | None = None,
    expected: Mapping[str, Sequence[str]] | None = None,
    power: Sequence[Mapping[str, Any]] = (),
    primary: Mapping[str, str] | None = None,
    looks: Sequence[Mapping[str, Any]] = (),
) -> list[Row]:
    """Return the summary rows in the order of the cases.

    By an attack's label, `ceilings` names the oracle that bounds it, `expected` lists its metrics, so that it gets rows
    where every case failed, and `primary` names the metric that is judged. `power` are the rows of the power checks
    that "no leak found" needs; `looks` ({seeds, spent} and what was there) those so far, the last one with all.
    """
    drafts = []
    for key, group in _groups(cases).items():
        metrics = _metrics_of(key[0], group, cases, expected or {})
        judged = (primary or {}).get(key[0]) or primary_metric(metrics)
        drafts += [_draft((*key, metric), group, is_primary=metric == judged) for metric in metrics]
    seeds = list(dict.fromkeys(case["seed"] for case in cases))
    for oracle in (False, True):  # oracles are adjusted among themselves, so that a ceiling costs no power
        own = [draft for draft in drafts if draft.row["primary"] and draft.row["oracle"] is oracle]
        auto = bool(looks) and looks[0]["spent"] == statistics.AUTO_SPENT[0]
        _judge_all(own, _looks(seeds, looks), statistics.spending(looks, auto=auto), seed_of_draws(cases), power)
    rows = [draft.row for draft in drafts]
    for row in rows:
        row["ceiling"] = _best_ceiling(row, rows, (ceilings or {}).get(row["attack"]))
        if row["oracle"]:
            row["reason"] = f"an upper bound that no attacker could have; {row['reason']}"
    return rows


def seed_of_draws(cases: Sequence[Case]) -> int:
    """Return the seed of all redrawn labels and messages, so that the same cases give the same p to the bit."""
    return derive_seed(0, "draws", sorted(case["id"] for case in cases))


def primary_metric(metrics: Sequence[str | None]) -> str | None:
    """Return the metric that carries the verdict: the main one of its kind, else the first."""
    main = [metric for metric in metrics if metric in MAIN_METRIC.values()]
    return (main or list(metrics))[0]


def _looks(seeds: Sequence[Any], looks: Sequence[Mapping[str, Any]]) -> list[_Look]:
    """Return the looks with their seeds, in the order of the cases; without any, one that spends everything."""
    if not looks:
        return [_Look(seeds=seeds, spent=statistics.LEVEL)]
    earlier = [
        _Look(seeds=seeds[: int(look["seeds"])], spent=look["spent"], **{name: look.get(name) for name in COVERED})
        for look in looks[:-1]
    ]
    return [*earlier, _Look(seeds=seeds, spent=looks[-1]["spent"])]


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


def _draft(key: RowKey, group: Sequence[Case], *, is_primary: bool) -> _Draft:
    """Return a row without its verdict."""
    metric = key[4]
    down = _is_down(metric)
    units = _units(group, metric)
    margin = None if metric is None else _margin(metric, units)
    over, floor, difference = _against_floor(units, metric, down)
    controls, shown = _against_controls(units, metric, down)
    statuses = Counter(case["status"] for case in group)
    adapts = any(case["ledger"].get("adapts") is not False for case in group) if key[3] else None
    row: Row = dict(zip(("attack", "role", "defence", "aware", "metric"), key, strict=True))
    row |= {"oracle": any(case["oracle"] for case in group), **_mean(units, metric)}
    row |= {"floor": floor, "over": over, **_spread(difference), "ceiling": _ceiling(units, metric, down)}
    inside = _within(units, metric)
    count, unit = (len(units.values), UNIT) if inside is None else (inside["mean"]["n"], RECORD)
    row |= {"controls": shown, "kind": None, "n": count, "unit": unit}
    row |= {"worst": _worst(units, metric, down), "margin": margin, "primary": is_primary, "verdict": None}
    row |= {"reason": "shown beside the primary metric, without a verdict of its own", "awaits_power": False}
    row |= {"adapts": adapts, "trace": False, "family": None}
    row |= dict.fromkeys(JUDGED)
    if is_primary and metric is not None and "membership" in metric_named(metric).kinds:
        curve = roc_of(units.cases, metric)
        row |= {} if curve is None else {"roc": curve}
    measured = VerdictInput(
        metric=metric,
        margin=margin or 0.0,
        statuses=statuses,
        unscored=sum(statuses[status] for status in ENDED) - len(units.values),
        runs=len(set(units.seeds)),
        difference=difference,
        over=over,
        floor=floor,
        room=_room(metric, floor),
        record_error=_record_error(units, metric),
        recorded=any("recording" in case["ledger"] for case in group),
        adapts=adapts is not False,
        drawn=all((case.get("split") or {}).get("drawn", True) for case in group),
    )
    return _Draft(row=row, units=units, measured=measured, controls=controls)


def _record_error(units: _Units, metric: str | None) -> float:
    """Return the standard error of the mean over units if all records were independent; 0 where it is not known."""
    variances = [_record_variance(case, metric) for case in units.cases]
    return math.sqrt(math.fsum(variances)) / len(variances) if variances else 0.0


def _record_variance(case: Case, metric: str | None) -> float:
    """Return the variance of a unit's score if its records were independent; of a share at most that of a fair coin."""
    known = (case.get("record_variance") or {}).get(metric)
    if known is not None and math.isfinite(known):
        return float(known)
    records = case["ledger"].get("examples_in_question")
    return 0.25 / records if records and metric in SHARES | {"auc"} else 0.0


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
        if difference is None or difference["mean"] is None or value is None:
            return None
        return value, Interval(**difference)
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
    least = _record_error(units, metric) if field == "floors" else 0.0
    return mean, interval(differences, [seed for _, _, seed in both], least_error=least)


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
    if inside is None and metric in SHARES & BOUNDED and len(set(units.values)) == 1 < len(units.values):
        low, high = statistics.share_interval(units.values[0], len(units.values))
        return {"mean": units.values[0], "mean_low": low, "mean_high": high}
    least = _record_error(units, metric)
    spread = interval(units.values, units.seeds, least_error=least) if inside is None else Interval(**inside["mean"])
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
        single = None if single is None or single["value"] is None else single
        record = None if single is None else single["record"]
        shown = value if single is None else single["value"]
        exposed.append({"value": shown, "seed": case["seed"], "client": case["client"], "record": record})
    records = [entry for entry in exposed if entry["record"] is not None]
    return max(records or exposed, key=lambda entry: sign * entry["value"], default=None)


# The family: tests of all primary rows, looks, and verdicts


def _judge_all(
    drafts: Sequence[_Draft], looks: Sequence[_Look], later: float, seed: int, power: Sequence[Mapping[str, Any]]
) -> None:
    """Write the verdict of every primary row; `later` is what the next look could spend."""
    judged = [draft for draft in drafts if unjudgeable(draft.measured) is None]
    first: dict[Any, _Draft] = {}
    for draft in judged:
        first.setdefault(_twin(draft), draft)
    family = list(first.values())
    for draft in drafts:
        if draft not in judged:
            _write(draft, draft.measured)
    tests: list[RowTests] = []
    rejected: dict[int, tuple[Adjusted, _Look]] = {}
    for look in looks:  # the last one has all rows
        there = [number for number, draft in enumerate(family) if look.has_row(draft.row)]
        own = [family[number] for number in there]
        tests = _tests(own, look, seed)
        latest = [(row, look) for row in _adjusted(own, tests, look.spent)]
        for number, (row, _) in zip(there, latest, strict=True):
            if row.p_adjusted is not None and row.p_adjusted <= look.spent:
                rejected.setdefault(number, (row, look))  # a leak once found stays found
    bounding = next((look for look in reversed(looks) if look.spent > 0), looks[-1])
    # Only an attack whose attacker can use the defence may be stopped by it, whether the row is that attacker's or not.
    adapting = {(*_attack_of(one), one.row["defence"]) for one in judged if one.row["aware"] and one.measured.adapts}
    leaking: dict[tuple[str, str], float] = {}  # gains without a defence, by attack and role
    for number, draft in sorted(enumerate(family), key=lambda item: item[1].row["aware"] is not None):
        adjusted, look = rejected.get(number, latest[number])
        found = _found(draft, tests[number], adjusted, bounding, later, rejected=number in rejected)
        found = replace(found, shown_after=_runs(draft, look))
        for twin in [draft for draft in judged if first[_twin(draft)] is family[number]]:
            same, plain = power_check(power, twin.row), power_check(power, twin.row, UNDEFENDED)
            without = leaking.get(_attack_of(twin)) if (*_attack_of(twin), twin.row["defence"]) in adapting else None
            known = replace(found, power=same, undefended=plain, leak_without=without)
            _write(twin, replace(known, adapts=twin.measured.adapts))
            if twin.row["aware"] is None and twin.row["state"] == "leaks":
                leaking[_attack_of(twin)] = found.gain
            _write_tests(twin.row, found, tests[number], adjusted, {"spent": look.spent, "left": later})


def _attack_of(draft: _Draft) -> tuple[str, str]:
    return draft.row["attack"], draft.row["role"]


def _adjusted(family: Sequence[_Draft], tests: Sequence[RowTests], level: float) -> list[Adjusted]:
    """Return the adjusted p of every row; within the margin that of its exact test, if it has one."""
    return [
        exactly(row, test) if draft.measured.gain <= draft.measured.margin else row
        for draft, test, row in zip(family, tests, adjust(tests, level=level), strict=True)
    ]


def _twin(draft: _Draft) -> Any:
    """Return what rows have in common that count once: all but `aware`, with equal scores in all units."""
    units = zip(draft.units.cases, draft.units.values, strict=True)
    scores = sorted((str(case["seed"]), str(case["client"]), value) for case, value in units)
    return (*(draft.row[name] for name in ("attack", "role", "defence", "metric")), tuple(scores))


def _tests(family: Sequence[_Draft], look: _Look, seed: int) -> list[RowTests]:
    """Return the tests of every row on the seeds of a look."""
    units = [_split_units(draft, look) for draft in family]
    splits = statistics.split_tests(units, seed)
    tables = [_swap_scores(draft, look) if not _is_split(draft) else ({}, {}) for draft in family]
    numbers, layouts = layouts_of([layout for _, layout in tables])
    joints = [statistics.joint_assignments(layout, seed) if layout else None for layout in layouts]
    tests = []
    for draft, split, (scores, layout), number in zip(family, splits, tables, numbers, strict=True):
        joint = joints[number]
        means = statistics.swapped_means(scores, layouts[number], joint) if layout and joint is not None else None
        runs, finest = _run_p(draft, look, scores), statistics.finest_run_p(_runs(draft, look))
        tests.append(
            RowTests(split=split, runs=runs, finest_runs=finest, swaps=means, layout=number, is_split=_is_split(draft))
        )
    return tests


def _is_split(draft: _Draft) -> bool:
    """Return whether a row is judged by its split test: where records of the clients were held out."""
    return any(case.get("split") for case in draft.units.cases)


def _split_units(draft: _Draft, look: _Look) -> list[SplitUnit]:
    return [
        SplitUnit(seed=case["seed"], client=case["client"], split=case["split"], draws=case.get("draws"))
        for case in draft.units.cases
        if case.get("split") and look.has(case)
    ]


def _swap_scores(draft: _Draft, look: _Look) -> tuple[statistics.SwapScores, statistics.Layout]:
    """Return the scores about each client with the messages of each, signed, and the clients of every run."""
    metric, sign = draft.row["metric"], -1.0 if draft.down else 1.0
    scores: statistics.SwapScores = {}
    clients: dict[int, set[int]] = {}
    for case, value in zip(draft.units.cases, draft.units.values, strict=True):
        if not look.has(case) or not case.get("swaps") or case["client"] is None:
            continue
        swapped = {int(owner): _value(other, metric) for owner, other in case["swaps"].items()}
        known = {case["client"]: value} | {owner: score for owner, score in swapped.items() if score is not None}
        scores.setdefault(case["seed"], {})[case["client"]] = {owner: sign * score for owner, score in known.items()}
        clients.setdefault(case["seed"], set()).update(_swap_clients(case, known))
    return scores, {seed: tuple(sorted(names)) for seed, names in clients.items()}


def _swap_clients(case: Case, known: Mapping[int, float]) -> Collection[int]:
    """Return the clients of a run whose messages are swapped: all but the adversary's own."""
    ledger = case["ledger"]
    if "clients" not in ledger:
        return known
    return [client for client in range(int(ledger["clients"])) if client not in ledger.get("seats", ())]


def _run_p(draft: _Draft, look: _Look, scores: statistics.SwapScores) -> float | None:
    """Return p of the gain over the strongest floor of all units, over the runs of a look; None under two runs."""
    part = _only(draft.units, look)
    if len(set(part.seeds)) < 2:
        return None
    over, _, difference = _against_floor(part, draft.row["metric"], draft.down)
    if over is None or difference is None or difference.error is None or difference.freedom is None:
        return None
    error = max(difference.error, statistics.swap_error(scores))
    if not error:
        return None
    flips = statistics.flip_test(_gains_by_run(part, over, draft.row["metric"], draft.down))
    return max(flips, statistics.run_test(difference.mean, error, difference.freedom + 1))


def _gains_by_run(units: _Units, over: str, metric: str | None, down: bool) -> list[float]:
    """Return the mean gain over a floor of every run, larger = more leak."""
    gains: dict[Any, list[float]] = {}
    for case, value, seed in zip(units.cases, units.values, units.seeds, strict=True):
        floor = _value(case["floors"].get(over, {}), metric)
        if floor is not None:
            gains.setdefault(seed, []).append(floor - value if down else value - floor)
    return [math.fsum(own) / len(own) for own in gains.values()]


def _runs(draft: _Draft, look: _Look) -> int:
    return len(set(_only(draft.units, look).seeds))


def _only(units: _Units, look: _Look) -> _Units:
    kept = [index for index, case in enumerate(units.cases) if look.has(case)]
    return _Units(
        cases=[units.cases[index] for index in kept],
        values=[units.values[index] for index in kept],
        seeds=[units.seeds[index] for index in kept],
    )


def _found(
    draft: _Draft, tests: RowTests, adjusted: Adjusted, last: _Look, later: float, *, rejected: bool
) -> VerdictInput:
    """Return all that the verdict of a row needs but its power checks; its bounds are those of the last look."""
    measured = replace(
        draft.measured,
        p=adjusted.p,
        p_adjusted=adjusted.p_adjusted,
        test=adjusted.test,
        rejected=rejected,
        p_split=tests.split,
        p_swap=None if tests.swaps is None else statistics.swap_p(tests.swaps),
        family=adjusted.rows,
        looks_spent=later <= 0,
        spent=last.spent,
    )
    bound = _bound(draft, last)
    if bound is not None:
        measured = replace(measured, upper=bound[0], seen=bound[1])
    return replace(measured, more_seeds=_more_seeds(draft, measured, tests, adjusted, later))


def _bound(draft: _Draft, look: _Look) -> tuple[float, float] | None:
    """Return the upper bound of the gain and the smallest leak seen at a look; None where it has too few runs."""
    part, runs = _only(draft.units, look), _runs(draft, look)
    if runs < LEAST_RUNS:
        return None
    difference = _against_other_runs(part, draft.row["metric"], draft.down)
    if difference is None or not difference.error:
        return None
    level = _level(part, look.spent)
    upper = statistics.upper_bound(difference.mean, difference.error, runs, level)
    return upper, statistics.smallest_seen(difference.error, runs, level)


def _level(units: _Units, spent: float) -> float:
    """Return the one-sided level of the upper bound: half of the error goes to the choice among several floors."""
    floors = {name for case in units.cases for name in case["floors"]}
    return 1 - (spent if len(floors) == 1 else spent / 2)


def _against_other_runs(units: _Units, metric: str | None, down: bool) -> Interval | None:
    """Return the gain over the floor that is strongest in the other runs, so that no run chooses its own."""
    sign = -1.0 if down else 1.0
    floors = [{name: _value(scores, metric) for name, scores in case["floors"].items()} for case in units.cases]
    names = [
        name
        for name in dict.fromkeys(n for own in floors for n in own)
        if all(own.get(name) is not None for own in floors)
    ]
    if not names:
        return _against_floor(units, metric, down)[2]
    best: dict[int, str] = {}  # by run
    for seed in dict.fromkeys(units.seeds):
        others = [own for own, other in zip(floors, units.seeds, strict=True) if other != seed] or floors
        best[seed] = max(names, key=lambda name: sign * math.fsum(own[name] or 0.0 for own in others))
    chosen = [own[best[seed]] or 0.0 for own, seed in zip(floors, units.seeds, strict=True)]
    return interval(paired(units.values, chosen, down=down), units.seeds, least_error=_record_error(units, metric))


def _more_seeds(draft: _Draft, measured: VerdictInput, tests: RowTests, adjusted: Adjusted, later: float) -> int | None:
    """Return about how many more seeds would settle the row, if the next look spends `later`."""
    difference, runs = measured.difference, measured.runs
    if difference is None or measured.recorded or later <= 0:
        return None
    if measured.trace and measured.rejected and measured.gain <= 0:
        return None  # proven: more seeds do not undo it
    luck = measured.trace and not measured.rejected  # a trace that the exact tests may still prove
    if measured.gain > measured.margin or luck:
        limits = {test: later / factor for test, factor in adjusted.factors.items()}
        candidates = []
        if "runs" in limits and runs >= 2 and difference.error and not luck:
            candidates.append(statistics.seeds_to_show(difference.mean, difference.error, runs, limits["runs"]))
        for test, p in (("split", measured.p_split), ("swap", measured.p_swap)):
            if p is not None and test in limits:
                finest = 1 / len(tests.swaps) if tests.swaps is not None else None
                candidates.append(statistics.seeds_for_exact(p, runs, limits[test], finest))
        return min((more for more in candidates if more is not None), default=None)
    if runs < 2 or not difference.error:
        return LEAST_RUNS - runs if runs < LEAST_RUNS else None
    level = _level(draft.units, later)
    return statistics.seeds_to_reassure(measured.gain, difference.error, runs, measured.margin, level)


def _write(draft: _Draft, measured: VerdictInput) -> None:
    """Write verdict, state, reason and level into a row."""
    judgement, row = judge(measured), draft.row
    metric, leaks = row["metric"], judgement.verdict == "leaks"
    # Membership itself compares training rows with held-out rows of the same client, and so does the split test.
    record = metric is not None and "membership" in metric_named(metric).kinds
    # The interval of a recording is over records that are not independent: by itself it shows no level.
    row["kind"] = kind_of(
        None if measured.recorded and not leaks else measured.difference,
        draft.controls,
        record=record or (leaks and measured.test == "split"),
        margin=0.0 if judgement.state == "small" else measured.margin,
        leaks=leaks,
        swapped=measured.p_swap is not None and measured.p_swap <= TRACE,
    )
    row |= {"verdict": judgement.verdict, "state": judgement.state, "scope": judgement.scope}
    row |= {"reason": judgement.reason, "awaits_power": judgement.awaits_power}


def _write_tests(
    row: Row, measured: VerdictInput, tests: RowTests, adjusted: Adjusted, looks: Mapping[str, float]
) -> None:
    """Write what the tests gave into a row."""
    for name in ("test", "p", "p_adjusted", "p_split", "p_swap", "seen", "upper", "trace"):
        row[name] = getattr(measured, name)
    row["more_seeds"] = None if row["state"] in DECIDED and is_bounded(row) else measured.more_seeds
    row["resolution"] = None if tests.swaps is None else 1 / len(tests.swaps)
    place = {"rows": adjusted.rows, "group": adjusted.group, "share": adjusted.share}
    row["family"] = {**place, **looks, "runs": measured.shown_after}


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
