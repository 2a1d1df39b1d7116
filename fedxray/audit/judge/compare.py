"""Two audits side by side: what got worse beyond the intervals, what got better, what cannot be told apart.

Rows are matched by attack, seat, defence, attacker and metric, so labels must be the same in both plans. A row got
worse when its new 95 % interval lies wholly above the old one, of the gain over the floor, or on the worse side of it,
of usefulness. Two intervals that do not touch are rarer than one in twenty by chance: this errs towards "the same".
A row got better only where every new case ended: a failed attack is never read as safety.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedxray.audit.judge.gate import UTILITY, lost_cases, unproven
from fedxray.errors import BadInput

Row = Mapping[str, Any]
Outcome = Literal["worse", "better", "same", "unknown"]
ORDER: tuple[Outcome, ...] = ("worse", "better", "unknown", "same")
SEATS = ("attack", "role", "defence", "aware", "metric")
TOLD = ("name", "seeds", "format")  # of a plan, which tell nothing of the set-up


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A value with its interval."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row of both audits."""

    what: Literal["leak", "usefulness"]
    title: str
    before: Spread
    after: Spread
    outcome: Outcome
    metric: str  # as in a limit: with the suffix _over_floor for gains
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All rows that both have, the worst first, those that only one has, and in what the plans differ."""

    changes: tuple[Change, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    plans_differ: tuple[str, ...]

    @property
    def worse(self) -> bool:
        """Whether something got worse beyond the intervals."""
        return any(one.outcome == "worse" for one in self.changes)


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """The second audit against the first."""
    before, after = _leaks(first), _leaks(second)
    useful_before, useful_after = _useful(first), _useful(second)
    changes = [_leak(before[key], after[key], second) for key in before if key in after]
    if not changes:
        raise BadInput(
            "DIR2",
            expected="an audit with an attack, seat, defence and metric that DIR1 has too",
            got="none in common",
            remedy="Compare audits whose plans use the same labels.",
        )
    changes += [
        _usefulness(useful_before[key], useful_after[key]) for key in useful_before if key in useful_after
    ]
    return Comparison(
        changes=tuple(sorted(changes, key=lambda one: ORDER.index(one.outcome))),
        only_first=tuple(_title(before[key]) for key in before if key not in after),
        only_second=tuple(_title(after[key]) for key in after if key not in before),
        plans_differ=tuple(_differing(first["plan"], second["plan"])),
    )


def _leaks(document: Mapping[str, Any]) -> dict[tuple[Any, ...], Row]:
    """The rows of attacks that somebody could run, by what they are about."""
    return {
        (row.get("plan"), *(row[name] for name in SEATS)): row
        for row in document["summary"]
        if not row["oracle"] and row["metric"] is not None
    }


def _useful(document: Mapping[str, Any]) -> dict[tuple[Any, ...], Row]:
    return {(row.get("plan"), row["defence"], row["metric"]): row for row in document["utility"]}


def _leak(before: Row, after: Row, second: Mapping[str, Any]) -> Change:
    old, new = _gain(before), _gain(after)
    outcome, notes = _outcome(old, new, larger_is_worse=True), []
    if outcome == "better" and (lost := lost_cases(second, after)) is not None:
        outcome, notes = "unknown", [lost]
    elif outcome == "better" and (doubt := unproven(after)) is not None:
        notes = [f"doubt: {doubt}"]
    if before["verdict"] != after["verdict"]:
        notes.append(f"verdict {before['verdict']} → {after['verdict']}")
    if before["over"] != after["over"]:
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


def _gain(row: Row) -> Spread:
    return Spread(value=row["difference"], low=row["low"], high=row["high"])


def _usefulness(before: Row, after: Row) -> Change:
    old, new = (Spread(value=row["value"], low=row["low"], high=row["high"]) for row in (before, after))
    return Change(
        what="usefulness",
        title=f"utility, {after['defence']}: {after['metric']}",
        metric=str(after["metric"]),
        before=old,
        after=new,
        outcome=_outcome(old, new, larger_is_worse=UTILITY.get(after["metric"], False)),
    )


def _outcome(before: Spread, after: Spread, *, larger_is_worse: bool) -> Outcome:
    """Whether two intervals do not touch, and on which side the new one lies."""
    if None in (before.low, before.high, after.low, after.high):
        return "unknown"
    assert before.low is not None and before.high is not None  # for the type checker
    assert after.low is not None and after.high is not None
    if after.low > before.high:
        return "worse" if larger_is_worse else "better"
    if after.high < before.low:
        return "better" if larger_is_worse else "worse"
    return "same"


def _title(row: Row) -> str:
    told = {None: "", True: ", knows the defence", False: ", does not know the defence"}
    return (
        f"{row['attack']} ({row['role']}), {row['defence']}{told[row['aware']]}: {row['metric']}_over_floor"
    )


def _differing(first: Any, second: Any, place: str = "") -> Iterator[str]:
    """Keys of two plans that have other values, as data.clients."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys([*first, *second]):
            if place or key not in TOLD:
                inside = f"{place}.{key}" if place else str(key)
                yield from _differing(first.get(key), second.get(key), inside)
    elif _listed(first) and _listed(second) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _differing(one, other, f"{place}[{index}]")
    elif first != second:
        yield place


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
