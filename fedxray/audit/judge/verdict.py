"""Verdicts on one row of results: leaks, no leak found or inconclusive, with the reason and the level of the leak.

A row leaks when the 95 % interval of its difference to the strongest floor lies above the margin of its
metric, and Holm's adjusted p is at most 0.05. "No leak found" needs a power check that shows that the same
attack finds a planted leak; without one, and wherever an attack did not end, the verdict is "inconclusive".
A failed attack is never read as safety.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fedxray.audit.judge.statistics import Interval

Verdict = Literal["leaks", "no leak found", "inconclusive"]
Kind = Literal["record", "client", "population"]

LEAST_UNITS = 6  # fewer give intervals that depend on single units
LEVEL = 0.05  # of the adjusted p-value
RECORD_CONTROLS = ("held-out",)
CLIENT_CONTROLS = ("other-client", "global-model")

# Parts of a reason by which a reader of the results knows why a verdict stays open.
MOST_LOST = "fewer than half of the cases ended"
NO_ROOM = "the guess without messages is already nearly perfect, so no attack could show a leak here"
NO_POWER_CHECK = "no power check shows that this attack would have seen a leak"
POWER_FAILED = "the power check failed"
NOT_ALL_ENDED = "not every case ended"
UNSCORED = "without this score"
SMALLEST = "smallest leak this audit would have seen"
NO_SMALLEST = "how small a leak would have been seen is not known"
TOO_COARSE = "these few units would have seen a large leak only"
ONE_RUN = "one run, so this speaks of its clients only"
ONE_RECORDING = "a recording is one run, so this speaks of the node's own records only"
NO_SPREAD = "a recording is one run, and this score has no interval over its records"
# Why a guess without messages can be nearly perfect, by the floor that is.
PERFECT_GUESSES = {
    "imputation": "the other columns give this away by themselves",
    "majority": "nearly all records have the same value",
}


@dataclass(frozen=True, kw_only=True)
class Power:
    """The outcome of an attack's power check: whether it beats its floor on a planted leak, and by how many margins."""

    passed: bool
    gain: float | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class VerdictInput:
    """All measurements of a row that its verdict depends on."""

    difference: Interval | None  # to the strongest floor, larger = more leak; None without a floor
    adjusted: float | None  # p after Holm
    margin: float
    over: str | None  # the name of the strongest floor
    statuses: Mapping[str, int]  # how many cases ended in which way
    unscored: int  # cases that ended without this score
    runs: int
    family: int  # how many p-values were adjusted together
    room: float | None = None  # the gain of a perfect attack over the floor; None where it is unbounded
    power: Power | None = None
    unit: str = "client-run"
    recorded: bool = False  # a recording of one node, which cannot be run again


def judge(given: VerdictInput) -> tuple[Verdict, str]:
    """Return the verdict and its reason in words."""
    doubt = _too_little(given)
    if doubt is not None:
        return "inconclusive", _with_losses(doubt, given)
    verdict, reason = _by_interval(given)
    return verdict, _with_losses(reason, given)


def kind_of(
    difference: Interval | None, controls: Mapping[str, Interval], *, record: bool, margin: float
) -> Kind | None:
    """Return the level of a leak: record, client or population; None where it was not shown.

    A leak is client-level if the attack beats every control that lacks this client's messages, one of them by the
    margin: where the global model reveals as much, the client's own messages add nothing. It is population-level only
    if both kinds of control were measured and all come within the margin: a missing or wide control proves nothing.
    `record` states that the metric itself compares training rows with held-out rows, as membership does.
    """
    if not _above(difference, 0.0):
        return None
    if record or any(_above(controls.get(name), 0.0) for name in RECORD_CONTROLS):
        return "record"
    client = [controls[name] for name in CLIENT_CONTROLS if name in controls]
    beaten = all(_above(control, 0.0) for control in client)
    if client and beaten and any(_above(control, margin) for control in client):
        return "client"
    near = all(control.high is not None and control.high <= margin for control in controls.values())
    measured = client and any(name in controls for name in RECORD_CONTROLS)
    return "population" if measured and near else None


def _too_little(given: VerdictInput) -> str | None:
    """Return why there is too little to judge, or None."""
    ended, total = given.statuses.get("ok", 0), sum(given.statuses.values())
    if ended == 0:
        return "no case ended"
    if 2 * ended < total:
        return f"{MOST_LOST}, so the rest would be a choice of the lucky ones"
    if given.difference is None:
        return "no floor was measured, so it is not known what could be guessed anyway"
    if given.room is not None and given.room <= given.margin:
        because = PERFECT_GUESSES.get(given.over or "")
        return f"{NO_ROOM}: {because}" if because else NO_ROOM
    if given.recorded and given.difference.low is None:
        return NO_SPREAD
    if given.recorded and given.difference.n < LEAST_UNITS:
        return f"{count(given.difference.n, 'record')}, at least {LEAST_UNITS} are needed"
    if given.difference.n < LEAST_UNITS:
        return (
            f"{count(given.difference.n, 'unit')} (client-runs), at least {LEAST_UNITS} are needed: "
            "add seeds or target clients"
        )
    return None


def _by_interval(given: VerdictInput) -> tuple[Verdict, str]:
    """Return the verdict where there are enough units."""
    difference, margin = given.difference, given.margin
    if difference is None or difference.low is None or difference.high is None:
        return "inconclusive", "no interval could be made"
    spread = f"95 % interval {number(difference.low)} to {number(difference.high)}"
    if difference.low > margin:
        return _above_margin(given, spread)
    if difference.high > margin:
        doubt = f"the difference to {given.over} may lie on either side of the margin {number(margin)}"
        return ("inconclusive", f"{doubt} ({spread}): more {_units(given)} would narrow it{_few_runs(given)}")
    return _below_margin(given, spread)


def _above_margin(given: VerdictInput, spread: str) -> tuple[Verdict, str]:
    """Return the verdict where the interval lies above the margin: a leak, unless it is one of many comparisons."""
    if given.difference is None or given.adjusted is None:
        return "inconclusive", "no p-value could be made"
    if given.adjusted > LEVEL:
        comparisons = count(given.family, "verdict")
        doubt = f"above the margin ({spread}), but after adjusting for {comparisons} p = {number(given.adjusted)}"
        return ("inconclusive", f"{doubt}, more than {LEVEL}: more {_units(given)} would settle it{_few_runs(given)}")
    gain = f"{number(given.difference.mean)} better than {given.over}"
    return "leaks", f"{gain} ({spread}), margin {number(given.margin)}{_alone(given)}"


def _below_margin(given: VerdictInput, spread: str) -> tuple[Verdict, str]:
    """Return the verdict where the interval lies below the margin: no leak only if one would have been seen."""
    seen = f"not above the margin {number(given.margin)} ({spread})"
    doubt = _cannot_be_safe(given)
    if doubt is not None:
        return "inconclusive", f"{seen}, but {doubt}"
    return "no leak found", f"{seen}; {SMALLEST}: {number(_smallest(given) or 0.0)}{_alone(given)}"


def _alone(given: VerdictInput) -> str:
    """Return a remark where there is only one run."""
    if given.runs != 1:
        return ""
    return f"; {ONE_RECORDING if given.unit == 'record' else ONE_RUN}"


def _cannot_be_safe(given: VerdictInput) -> str | None:
    """Return why a row below its margin does not show safety, or None; a power check is asked for last."""
    smallest, power = _smallest(given), given.power
    if _losses(given):
        return NOT_ALL_ENDED
    if smallest is None:
        return NO_SMALLEST
    coarse = f"{TOO_COARSE}: {SMALLEST}: {number(smallest)}"
    if given.room is not None and smallest > given.room:
        return f"{coarse}, and a perfect attack would gain {number(given.room)}"
    if power is None:
        return NO_POWER_CHECK
    if not power.passed:
        return f"{POWER_FAILED}: {power.reason}"
    if power.gain is not None and smallest > power.gain * given.margin:
        return f"{coarse}, and the planted one gives {number(power.gain * given.margin)}"
    return None


def _smallest(given: VerdictInput) -> float | None:
    """Return the least difference that this row would have called a leak with a power of 80 %."""
    from fedxray.audit.judge.statistics import smallest_seen

    if given.difference is None:
        return None
    return smallest_seen(given.difference, margin=given.margin, level=LEVEL, comparisons=given.family)


def _units(given: VerdictInput) -> str:
    """Return the units that could be added: seeds, or records of a recording."""
    return "records" if given.unit == "record" else "seeds"


def _few_runs(given: VerdictInput) -> str:
    """Return a remark where few runs keep the interval wide."""
    return f" ({given.runs} runs leave wide intervals; 5 are better)" if 1 < given.runs < 4 else ""


def _losses(given: VerdictInput) -> list[str]:
    """Return the numbers of cases that did not end or gave no score."""
    lost = [f"{cases} {status}" for status, cases in given.statuses.items() if status != "ok" and cases > 0]
    return lost + ([f"{given.unscored} {UNSCORED}"] if given.unscored else [])


def _with_losses(reason: str, given: VerdictInput) -> str:
    """Add the numbers of cases that did not end to a reason."""
    losses = _losses(given)
    if not losses:
        return reason
    return f"{reason}; of {count(sum(given.statuses.values()), 'case')}: {', '.join(losses)}"


def _above(measured: Interval | None, limit: float) -> bool:
    """Return whether the whole interval lies above a limit."""
    return measured is not None and measured.low is not None and measured.low > limit


def number(value: float) -> str:
    """Return a number as text: three significant digits, without an exponent from 1000 on."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def count(number_of: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number_of} {noun}" if number_of == 1 else f"{number_of} {noun}s"
