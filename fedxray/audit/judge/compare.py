"""Two audits compared: what got worse beyond the intervals, what got better, what cannot be distinguished.

Rows are matched by attack, role, defence, awareness and metric, so labels must be the same in both plans. A row got
worse when its new 95 % interval lies wholly above the old one (gain over the floor), or on its worse side (utility).
By chance two such intervals are disjoint in less than one of twenty cases: this errs towards "the same".
A row got better only where every new case ended: a failed attack is never read as safety.

Within the intervals a row is worse by its verdict where it now *leaks* and did not. Where it was not decided before and
the new audit has more runs, they decided what the old ones left open: the verdict is then listed as changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from fedxray.audit.judge.gate import UTILITY, lost_cases, plans_of, unproven
from fedxray.errors import BadInput

Row = Mapping[str, Any]
ChangeOutcome = Literal["worse", "leaks", "better", "unknown", "changed", "same"]
ORDER: tuple[ChangeOutcome, ...] = ("worse", "leaks", "better", "unknown", "changed", "same")
WORSE = ("worse", "leaks")
UNDECIDED = ("open", "suspected", "coarse")  # states that more runs may settle
MATCHED = ("attack", "role", "defence", "aware", "metric")
IGNORED = ("name", "seeds", "format")  # keys of a plan that do not describe the set-up


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A value with its interval."""

    value: float | None
    low: float | None
    high: float | None
    floor: float | None = None  # of a gain


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row of both audits."""

    what: Literal["leak", "utility"]
    title: str
    before: Spread
    after: Spread
    outcome: ChangeOutcome
    metric: str  # as in a limit: with the suffix _over_floor for gains
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The rows that both audits have, the worst first, those that only one has, and the keys in which plans differ."""

    changes: tuple[Change, ...]
    only_first: tuple[str, ...]  # one for every row
    only_second: tuple[str, ...]
    plans_differ: tuple[str, ...]
    leak: tuple[bool, bool]  # whether a row of the first, of the second, has the verdict *leaks*

    @property
    def worse(self) -> bool:
        """Whether something got worse, beyond the intervals or by its verdict."""
        return any(change.outcome in WORSE for change in self.changes)


# Keys of [data] that say which records were audited, not how they are divided or used.
SOURCE = ("name", "path", "schema", "target", "sensitive", "state", "seed")


def compare(first: Mapping[str, Any], second: Mapping[str, Any], *, other_data: bool = False) -> Comparison:
    """Compare the second audit with the first; refused where the data differ, unless `other_data` says so."""
    others = [] if other_data else _other_data(first, second)
    if others:
        remedy = "Compare them with --other-data if that is meant: then a difference may come from the data alone."
        raise BadInput("DIR2", expected="an audit of the same data", got="; ".join(others), remedy=remedy)
    before, after = _leaks(first), _leaks(second)
    utility_before, utility_after = _utility(first), _utility(second)
    changes = [_leak(before[key], after[key], first, second) for key in before if key in after]
    if not changes:
        expected = "an audit with an attack, role, defence and metric that DIR1 has too"
        remedy = "Compare audits whose plans use the same labels."
        raise BadInput("DIR2", expected=expected, got="none in common", remedy=remedy)
    changes += [
        _utility_change(utility_before[key], utility_after[key]) for key in utility_before if key in utility_after
    ]
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: ORDER.index(change.outcome))),
        only_first=_only(before, after),
        only_second=_only(after, before),
        plans_differ=tuple(differing(first["plan"], second["plan"])),
        leak=(_any_leaks(before), _any_leaks(after)),
    )


def _any_leaks(rows: Mapping[tuple[Any, ...], Row]) -> bool:
    return any(row["primary"] and row["state"] == "leaks" for row in rows.values())


def _other_data(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return in which keys the data of plans that both audits have differ; a file may lie in another folder."""
    before, after = plans_of(first), plans_of(second)
    found = []
    for name in [name for name in before if name in after]:
        old, new = ({key: _named(plan, key) for key in SOURCE} for plan in (before[name], after[name]))
        found += [f"data.{key} {old[key]!r} and {new[key]!r}" for key in SOURCE if old[key] != new[key]]
    return found or _other_contents(first.get("data"), second.get("data"))


def _other_contents(first: Row | None, second: Row | None) -> list[str]:
    """Return how the records differ under the same name, where both audits state a digest of them."""
    if first is None or second is None or first["sha256"] == second["sha256"]:
        return []
    before, after = (f"{data['records']:,}" for data in (first, second))
    numbers = f"{before} records each" if before == after else f"{before} records and {after}"
    return [f"data of the same name with other contents ({numbers})"]


def _named(plan: Row, key: str) -> Any:
    data = plan.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    return PurePath(value).name if key in ("path", "schema") and isinstance(value, str) else value


def _leaks(document: Mapping[str, Any]) -> dict[tuple[Any, ...], Row]:
    """Return the rows of attacks that an adversary could run, by plan, attack, role, defence, awareness and metric."""
    return {
        (row.get("plan"), *(row[name] for name in MATCHED)): row
        for row in document["summary"]
        if not row["oracle"] and row["metric"] is not None
    }


def _utility(document: Mapping[str, Any]) -> dict[tuple[Any, ...], Row]:
    return {(row.get("plan"), row["defence"], row["metric"]): row for row in document["utility"]}


def _leak(before: Row, after: Row, first: Mapping[str, Any], second: Mapping[str, Any]) -> Change:
    old, new = (
        Spread(value=row["difference"], low=row["low"], high=row["high"], floor=row.get("floor"))
        for row in (before, after)
    )
    outcome, notes = _outcome(old, new, larger_is_worse=True), []
    if outcome == "better" and (lost := lost_cases(second, after)) is not None:
        outcome, notes = "unknown", [lost]
    elif outcome == "better" and after["primary"] and (doubt := unproven(second, after)) is not None:
        notes = [f"doubt: {doubt}"]
    if before["primary"] and after["primary"] and before["state"] != after["state"]:
        notes.append(f"{before['state']} → {after['state']}")
        more = _runs(first, before) < _runs(second, after)
        outcome = _by_verdict(outcome, before["state"], after["state"], more_runs=more)
    if before["over"] != after["over"] and None not in (before["over"], after["over"]):
        notes.append(f"strongest floor {before['over']} → {after['over']}")
    return Change(
        what="leak",
        title=_title(after),
        before=old,
        after=new,
        outcome=outcome,
        metric=f"{after['metric']}_over_floor",
        note="; ".join(notes),
    )


def _runs(document: Mapping[str, Any], row: Row) -> int:
    """Return the number of runs in which the row's attack has a score."""
    keys = ("plan", *MATCHED[:4])
    own = [case for case in document["cases"] if all(case.get(key) == row.get(key) for key in keys)]
    return len({case["seed"] for case in own if case["scores"]})


def _by_verdict(outcome: ChangeOutcome, before: str, after: str, *, more_runs: bool) -> ChangeOutcome:
    """Return the outcome of a row whose verdict changed; beyond the intervals the numbers decide."""
    if outcome in ("worse", "better"):
        return outcome
    if after == "leaks" and not (before in UNDECIDED and more_runs):
        return "leaks"
    return "changed" if outcome == "same" else outcome


def _utility_change(before: Row, after: Row) -> Change:
    old, new = (Spread(value=row["value"], low=row["low"], high=row["high"]) for row in (before, after))
    return Change(
        what="utility",
        title=f"utility, {after['defence']}: {after['metric']}",
        metric=str(after["metric"]),
        before=old,
        after=new,
        outcome=_outcome(old, new, larger_is_worse=UTILITY.get(after["metric"], False)),
    )


def _outcome(before: Spread, after: Spread, *, larger_is_worse: bool) -> ChangeOutcome:
    """Return whether two intervals are disjoint, and on which side the new one lies."""
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return "unknown"
    if after.low > before.high:
        return "worse" if larger_is_worse else "better"
    if after.high < before.low:
        return "better" if larger_is_worse else "worse"
    return "same"


def _title(row: Row) -> str:
    known = {None: "", True: ", knows the defence", False: ", does not know the defence"}
    return f"{_setting(row)}{known[row['aware']]}: {row['metric']}_over_floor"


def _only(own: Mapping[tuple[Any, ...], Row], other: Mapping[tuple[Any, ...], Row]) -> tuple[str, ...]:
    """Return the rows that only one audit has, by attack, role and defence where the other lacks these altogether."""
    known = set(map(_setting, other.values()))
    lacking = [row for key, row in own.items() if key not in other]
    return tuple(_title(row) if _setting(row) in known else _setting(row) for row in lacking)


def _setting(row: Row) -> str:
    return f"{row['attack']} ({row['role']}), {row['defence']}"


def differing(first: Any, second: Any, place: str = "") -> Iterator[str]:
    """Yield the keys in which two plans differ, as data.clients."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys([*first, *second]):
            if place or key not in IGNORED:
                inside = f"{place}.{key}" if place else str(key)
                yield from differing(first.get(key), second.get(key), inside)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (old, new) in enumerate(zip(first, second, strict=True)):
            yield from differing(old, new, f"{place}[{index}]")
    elif first != second:
        yield place
