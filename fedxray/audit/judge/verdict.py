"""Verdicts on one row of results: leaks, no leak found or inconclusive, with the reason and the kind of leak.

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

LEAST_UNITS = 6
LEVEL = 0.05
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
    """What the power check of an attack found: whether it beats its floor where a leak was planted.

    `gain` is by how many margins it does.
    """

    passed: bool
    gain: float | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """All that a verdict rests on."""

    difference: Interval | None
    adjusted: float | None
    margin: float
    over: str | None
    statuses: Mapping[str, int]
    unscored: int
    runs: int
    family: int
    room: float | None = None  # what a perfect attack would gain over the floor; None where there is no end
    power: Power | None = None
    unit: str = "client-run"
    recorded: bool = False  # a recording of one node: nobody can run it again


def judge(finding: Finding) -> tuple[Verdict, str]:
    """The verdict and its reason in plain words."""
    doubt = _cannot_tell(finding)
    if doubt is not None:
        return "inconclusive", _with_losses(doubt, finding)
    verdict, reason = _by_interval(finding)
    return verdict, _with_losses(reason, finding)


def kind_of(
    difference: Interval | None, controls: Mapping[str, Interval], *, record: bool, margin: float
) -> Kind | None:
    """Whose data leaked: a record's, a client's or the population's; None where that was not shown.

    A client's, if the attack beats every control that lacks this client's messages, one of them by the margin: where
    the global model tells as much, the client's own messages add nothing. The population's, only if both kinds of
    control were measured and all come within the margin: a missing or vague control reassures nobody. `record` says
    that the metric compares training rows with held-out rows by construction, as membership does.
    """
    if not _above(difference, 0.0):
        return None
    if record or any(_above(controls.get(name), 0.0) for name in RECORD_CONTROLS):
        return "record"
    client = [controls[name] for name in CLIENT_CONTROLS if name in controls]
    if client and all(_above(one, 0.0) for one in client) and any(_above(one, margin) for one in client):
        return "client"
    near = all(one.high is not None and one.high <= margin for one in controls.values())
    measured = client and any(name in controls for name in RECORD_CONTROLS)
    return "population" if measured and near else None


def _cannot_tell(finding: Finding) -> str | None:
    """Why there is too little to judge, or None."""
    ended, total = finding.statuses.get("ok", 0), sum(finding.statuses.values())
    if ended == 0:
        return "no case ended"
    if 2 * ended < total:
        return f"{MOST_LOST}, so the rest would be a choice of the lucky ones"
    if finding.difference is None:
        return "no floor was measured, so nothing says what could be guessed anyway"
    if finding.room is not None and finding.room <= finding.margin:
        because = PERFECT_GUESSES.get(finding.over or "")
        return f"{NO_ROOM}: {because}" if because else NO_ROOM
    if finding.recorded and finding.difference.low is None:
        return NO_SPREAD
    if finding.recorded and finding.difference.n < LEAST_UNITS:
        return f"{count(finding.difference.n, 'record')}, at least {LEAST_UNITS} are needed"
    if finding.difference.n < LEAST_UNITS:
        return (
            f"{count(finding.difference.n, 'unit')} (client-runs), at least {LEAST_UNITS} are needed: "
            "add seeds or target clients"
        )
    return None


def _by_interval(finding: Finding) -> tuple[Verdict, str]:
    """The verdict where there are enough units."""
    difference, margin = finding.difference, finding.margin
    if difference is None or difference.low is None or difference.high is None:
        return "inconclusive", "no interval could be made"
    spread = f"95 % interval {number(difference.low)} to {number(difference.high)}"
    if difference.low > margin:
        return _above_margin(finding, spread)
    if difference.high > margin:
        doubt = f"the difference to {finding.over} may lie on either side of the margin {number(margin)}"
        return (
            "inconclusive",
            f"{doubt} ({spread}): more {_units(finding)} would narrow it{_few_runs(finding)}",
        )
    return _below_margin(finding, spread)


def _above_margin(finding: Finding, spread: str) -> tuple[Verdict, str]:
    """The interval lies above the margin: a leak unless it is one of many looks."""
    if finding.difference is None or finding.adjusted is None:
        return "inconclusive", "no p-value could be made"
    if finding.adjusted > LEVEL:
        looks = count(finding.family, "verdict")
        doubt = f"above the margin ({spread}), but after adjusting for {looks} p = {number(finding.adjusted)}"
        return (
            "inconclusive",
            f"{doubt}, more than {LEVEL}: more {_units(finding)} would settle it{_few_runs(finding)}",
        )
    gain = f"{number(finding.difference.mean)} better than {finding.over}"
    return "leaks", f"{gain} ({spread}), margin {number(finding.margin)}{_alone(finding)}"


def _below_margin(finding: Finding, spread: str) -> tuple[Verdict, str]:
    """The interval lies below the margin: safe only if a leak would have been seen and every case ended."""
    seen = f"not above the margin {number(finding.margin)} ({spread})"
    doubt = _cannot_be_safe(finding)
    if doubt is not None:
        return "inconclusive", f"{seen}, but {doubt}"
    return "no leak found", f"{seen}; {SMALLEST}: {number(_smallest(finding) or 0.0)}{_alone(finding)}"


def _alone(finding: Finding) -> str:
    """A remark where one run is all there is, for a leak and for safety alike."""
    if finding.runs != 1:
        return ""
    return f"; {ONE_RECORDING if finding.unit == 'record' else ONE_RUN}"


def _cannot_be_safe(finding: Finding) -> str | None:
    """Why a row below its margin does not mean safety, or None; what no power check could mend comes first."""
    smallest, power = _smallest(finding), finding.power
    if _losses(finding):
        return NOT_ALL_ENDED
    if smallest is None:
        return NO_SMALLEST
    coarse = f"{TOO_COARSE}: {SMALLEST}: {number(smallest)}"
    if finding.room is not None and smallest > finding.room:
        return f"{coarse}, and a perfect attack would gain {number(finding.room)}"
    if power is None:
        return NO_POWER_CHECK
    if not power.passed:
        return f"{POWER_FAILED}: {power.reason}"
    if power.gain is not None and smallest > power.gain * finding.margin:
        return f"{coarse}, and the planted one gives {number(power.gain * finding.margin)}"
    return None


def _smallest(finding: Finding) -> float | None:
    """The least difference that this row would have called a leak, in four of five cases."""
    from fedxray.audit.judge.statistics import smallest_seen

    if finding.difference is None:
        return None
    return smallest_seen(finding.difference, margin=finding.margin, level=LEVEL, looks=finding.family)


def _units(finding: Finding) -> str:
    """What there could be more of."""
    return "records" if finding.unit == "record" else "seeds"


def _few_runs(finding: Finding) -> str:
    """A remark where the number of runs is what keeps the interval wide."""
    return f" ({finding.runs} runs leave wide intervals; 5 are better)" if 1 < finding.runs < 4 else ""


def _losses(finding: Finding) -> list[str]:
    """What did not end or gave no score, counted."""
    lost = [f"{found} {status}" for status, found in finding.statuses.items() if status != "ok" and found > 0]
    return lost + ([f"{finding.unscored} {UNSCORED}"] if finding.unscored else [])


def _with_losses(reason: str, finding: Finding) -> str:
    """Name the cases that did not end beside whatever else is said."""
    losses = _losses(finding)
    if not losses:
        return reason
    return f"{reason}; of {count(sum(finding.statuses.values()), 'case')}: {', '.join(losses)}"


def _above(measured: Interval | None, limit: float) -> bool:
    """Whether the whole interval lies above a limit."""
    return measured is not None and measured.low is not None and measured.low > limit


def number(value: float) -> str:
    """Three significant digits without an exponent where that reads well."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def count(found: int, noun: str) -> str:
    """A number with its noun."""
    return f"{found} {noun}" if found == 1 else f"{found} {noun}s"
