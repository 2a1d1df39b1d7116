"""Verdicts on one row: leaks, no leak found or inconclusive, with the state, the reason and the level of the leak.

*Leaks* speaks of the runs that happened: the gain is above the margin, and a test says that it is not luck. A *small*
leak is one within the margin that an exact test shows. *No leak found* speaks of runs like these: the gain is bounded
by the margin over at least three runs, a leak of two margins would have been seen, the messages show no trace of the
records, and the same attack finds a planted leak under the same defence. A defence that works on single records hides
planted ones too: where the same attack leaks without it, the state is then *stopped*, which speaks of this attack
alone. Everything else is inconclusive, in a state that says why. A failed attack is never read as safety.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from fedxray.audit.judge.statistics import SEEN_MARGINS, SETTLED_BY, Interval
from fedxray.metrics.table import BY_PERSON
from fedxray.metrics.units import between, margin_of, possible_gain, value as score_words

Verdict = Literal["leaks", "no leak found", "inconclusive"]
State = Literal[
    "leaks", "small", "no leak found", "stopped", "suspected", "trace", "coarse", "blinded", "reversed", "open"
]
DECIDED: tuple[State, ...] = ("leaks", "small", "no leak found", "stopped")
Scope = Literal["these runs", "runs like these"]
Kind = Literal["record", "client", "population"]

UNDEFENDED = "none"
LEAST_UNITS = 6  # units of a power check, whose interval would else depend on single ones
LEAST_RUNS = 3  # of "no leak found"
TRACE = 0.05  # not adjusted: a trace only stops reassurance
BEYOND_RECORDS = 0.05  # chance that records alone put any row's gain so far above the guess
EXACT = ("split", "swap")  # tests of what is random by design
RECORD_CONTROLS = ("held-out",)
CLIENT_CONTROLS = ("other-client", "global-model")

# Parts of a reason by which a reader of the results knows why a verdict stays open.
MOST_LOST = "fewer than half of the cases ended"
NO_ROOM = "the guess without messages is already nearly perfect, so no attack could show a leak here"
NO_POWER_CHECK = "no power check shows that this attack would have seen a leak"
POWER_FAILED = "the power check failed"
COPIES_ONLY = "it recognises exact copies; whether it recognises a person by other records was not tested"
NOT_ALL_ENDED = "not every case ended"
UNSCORED = "without this score"
FAR_BELOW = "worse than the guess without messages, so the attack cannot show what the messages add"
NOT_ADAPTED = "the attack does not use what is known of the defence, so it stands for no attacker who knows it"
OTHERS_MAY = "a planted leak is hidden as well, so another attack may still succeed"
TOO_COARSE = "only a large leak would have been seen"
ONE_RUN = "one run: how much other runs would leak is not known"
ONE_RECORDING = "a recording is one run: how much other runs would leak is not known"
LIKE_OTHERS = "if the held-out records are like the others, which no seed has drawn"
# Why a guess without messages can be nearly perfect, by the floor that is.
PERFECT_GUESSES = {
    "imputation": "the other columns give this away by themselves",
    "majority": "nearly all records have the same value",
}
TESTS = {
    "split": "split test: members score above held-out {who}",
    "swap": "swap test: the right messages beat those of other clients",
    "runs": "run test over {runs} runs",
}


@dataclass(frozen=True, kw_only=True)
class Power:
    """The outcome of an attack's power check: whether it beats its floor on a planted leak."""

    passed: bool
    reason: str
    ended: bool = True  # whether all planted cases ended, so that a leak could have been seen


def power_check(
    checks: Sequence[Mapping[str, Any]], row: Mapping[str, Any], defence: str | None = None
) -> Power | None:
    """Return the power check of a row's attack under its own defence, or under another; None where there is none.

    A check without a metric stands for all of them, one without a defence was made without any.
    """
    own = (row["defence"], row["aware"]) if defence is None else (defence, None)
    under = [own, (UNDEFENDED, None)] if row["aware"] is None else [own]  # no defence may have a label of its own
    for place, metric in product(under, (row["metric"], None)):
        for check in checks:
            known = (check.get("defence", UNDEFENDED), check.get("aware"))
            if (check["attack"], check["role"], known, check["metric"]) == (row["attack"], row["role"], place, metric):
                return Power(passed=check["passed"], reason=check["reason"], ended=not check.get("lost"))
    return None


@dataclass(frozen=True, kw_only=True)
class VerdictInput:
    """All measurements of a primary row that its verdict depends on."""

    metric: str | None
    margin: float
    statuses: Mapping[str, int]  # how many cases ended in which way
    unscored: int  # cases that ended without this score
    runs: int
    difference: Interval | None = None  # to the strongest floor, larger = more leak; None without a floor
    over: str | None = None  # the name of the strongest floor
    floor: float | None = None  # its mean score
    room: float | None = None  # the gain of a perfect attack over the floor; None where it is unbounded
    record_error: float = 0.0  # standard error of the gain if records were independent
    p: float | None = None  # of the deciding test, before adjusting
    p_adjusted: float | None = None
    test: str | None = None
    rejected: bool = False  # whether the adjusted p reaches the level of this look or of an earlier one
    shown_after: int = 0  # runs of the look whose p this is
    p_split: float | None = None
    p_swap: float | None = None
    family: int = 1  # rows that were adjusted together
    spent: float = 0.05  # level of the last look
    upper: float | None = None  # of the gain over the floors of the other runs; None under 3 runs
    seen: float | None = None  # the smallest leak seen in 4 of 5 audits
    more_seeds: int | None = None  # that would settle an open row
    power: Power | None = None  # under the same defence
    undefended: Power | None = None
    leak_without: float | None = None  # gain of the same attack without the defence, where it leaks there
    recorded: bool = False  # a recording of one node, which cannot be run again
    drawn: bool = True  # whether a seed drew the held-out records
    adapts: bool = True  # whether an attacker who knows the defence can use it
    looks_spent: bool = False  # whether no later look has any of the 5 % left

    @property
    def gain(self) -> float:
        """The mean gain over the strongest floor."""
        return 0.0 if self.difference is None else self.difference.mean

    @property
    def trace(self) -> bool:
        """Whether the messages provably carry something about the records, whatever the attack makes of it."""
        return any(p is not None and p <= TRACE for p in (self.p_split, self.p_swap))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict with its state, what it speaks of, and the reason in words."""

    verdict: Verdict
    state: State
    scope: Scope | None
    reason: str
    awaits_power: bool = False  # whether a power check would change it


def judge(given: VerdictInput) -> Judgement:
    """Return the verdict on a primary row."""
    state, reason = _state(given)
    failed = Power(passed=False, reason="")
    awaits = given.power is None and _state(replace(given, power=failed)) != (state, reason)
    losses = losses_of(given)
    if losses:
        reason += f"; of {count(sum(given.statuses.values()), 'case')}: {', '.join(losses)}"
    if state in ("leaks", "small"):
        return Judgement(verdict="leaks", state=state, scope="these runs", reason=reason)
    if state == "no leak found":
        return Judgement(verdict="no leak found", state=state, scope="runs like these", reason=reason)
    if state == "stopped":
        return Judgement(verdict="inconclusive", state=state, scope="runs like these", reason=reason)
    return Judgement(verdict="inconclusive", state=state, scope=None, reason=reason, awaits_power=awaits)


def judged_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of a summary that have a verdict of an attacker: primary, and not of an oracle."""
    return [row for row in rows if row["primary"] and not row["oracle"]]


def is_settled(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether more seeds would settle no further primary row of a summary."""
    return not unsettled(rows)


def unsettled(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the primary rows of a summary that more seeds could settle.

    They settle a gain that may be luck or lie above the margin, a small leak that may exceed it, a trace that may be
    luck or become a small leak, and what only a large leak would have shown.
    """

    def needs_seeds(row: Mapping[str, Any]) -> bool:
        above = row["upper"] is not None and row["upper"] > row["margin"]
        unbounded = above and row["state"] in ("small", "trace", "open")
        return unbounded or row["state"] in ("suspected", "coarse") or (row["state"] == "trace" and is_unproven(row))

    return [row for row in judged_rows(rows) if needs_seeds(row)]


def is_bounded(row: Mapping[str, Any]) -> bool:
    """Return whether a row is no small leak that may exceed the margin in runs like these."""
    return row["state"] != "small" or (row["upper"] is not None and row["upper"] <= row["margin"])


def is_unproven(row: Mapping[str, Any]) -> bool:
    """Return whether more seeds may turn a trace into a small leak or into nothing.

    Its p is not small enough after adjusting, or that of a gain whose interval still reaches below zero.
    """
    if row["test"] not in EXACT or row["p_adjusted"] > row["family"]["spent"]:
        return True
    return row["difference"] > 0 and row["low"] is not None and bool(row["low"] <= 0)


def _state(given: VerdictInput) -> tuple[State, str]:
    """Return the state of a row and the reason for it: the rule."""
    doubt = unjudgeable(given)
    if doubt is not None:
        return "open", doubt
    if given.gain > given.margin and given.rejected and _beyond_records(given):
        return "leaks", _leak_words(given)
    if given.gain <= given.margin and not losses_of(given) and _is_small(given):
        return "small", _small_words(given)
    if given.runs < LEAST_RUNS or given.upper is None or max(given.upper, given.gain) > given.margin:
        if given.gain > given.margin:
            return "suspected", _suspected_words(given)
        if given.trace:
            return "trace", _trace_words(given)
        return "open", _open_words(given)
    if losses_of(given):
        return "open", f"{_bounded_words(given)}, but {NOT_ALL_ENDED}"
    if given.over == "chance" and given.upper < -given.margin:
        return "reversed", "far below chance: with its sign changed the attack would leak"
    if given.trace:
        return "trace", _trace_words(given)
    if given.seen is None or given.seen > SEEN_MARGINS * given.margin:
        return "coarse", _coarse_words(given)
    return _by_power(given)


def _by_power(given: VerdictInput) -> tuple[State, str]:
    """Return the state of a row that shows nothing: safety only if the attack finds a planted leak here."""
    bounded = _bounded_words(given)
    if given.power is None:
        return "open", f"{bounded}, but {NO_POWER_CHECK}"
    if not given.power.passed and _is_stopped(given):
        return "stopped", f"{_stopped_words(given)}; {OTHERS_MAY}"
    if not given.power.passed and given.power.ended and given.undefended is not None and given.undefended.passed:
        return "blinded", "the planted leak is seen without this defence and not with it: this is not safety"
    if not given.power.passed:
        return "open", f"{bounded}, but {POWER_FAILED}: {given.power.reason}"
    if given.upper is not None and given.upper < -given.margin:
        return "open", f"{bounded}, but it is {FAR_BELOW}"
    if not given.adapts:
        return "open", f"{bounded}, but {NOT_ADAPTED}"
    seen = _size(given.seen, given)
    limits = f"a leak of {seen} or more would have been seen in 4 of 5 such audits"
    limits += f"; of planted leaks, {COPIES_ONLY}" if given.metric == "auc_subject_other" else ""
    return "no leak found", f"{bounded}; {limits}"


def _is_stopped(given: VerdictInput) -> bool:
    """Return whether a defence stops an attack that leaks without it, as far as this attack shows.

    The row is bounded and shows no trace; what it would have seen is no larger than the leak without the defence. An
    attack that cannot use what is known of the defence, or does far worse than a guess, is broken rather than stopped.
    """
    leak, seen, upper = given.leak_without, given.seen, given.upper
    if leak is None or seen is None or upper is None:
        return False
    return given.adapts and seen <= leak and upper >= -given.margin


def unjudgeable(given: VerdictInput) -> str | None:
    """Return why a row cannot be judged at all, or None."""
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
    return None


def losses_of(given: VerdictInput) -> list[str]:
    """Return the numbers of cases that did not end or gave no score."""
    lost = [f"{cases} {status}" for status, cases in given.statuses.items() if status != "ok" and cases > 0]
    if lost and given.unscored == given.statuses.get("diverged", 0):  # the same cases, named once
        return lost
    return lost + ([f"{given.unscored} {UNSCORED}"] if given.unscored else [])


def _beyond_records(given: VerdictInput) -> bool:
    """Return whether the gain exceeds the guess by more than the luck of the records, which repeat in all runs.

    The swap test shows that messages matter, not that they beat the guess; so this is corrected for all rows too.
    Against chance the split test has shown it already: its draws are of the same records.
    """
    from scipy.special import ndtri

    if given.test == "split" and given.over == "chance":
        return True
    errors = float(ndtri(1 - BEYOND_RECORDS / max(given.family, 1)))
    return given.gain >= errors * given.record_error * math.sqrt(given.runs)


def _is_small(given: VerdictInput) -> bool:
    """Return whether a gain within the margin is proven to be above zero.

    The run test does not count: nothing but a large gain guards it against an attack that is all right or all wrong.
    Against chance the split test compares the gain itself with its luck. Over any other floor it says, like the swap
    test, only that the messages matter: there the gain must repeat over runs too, corrected for rows and looks.
    """
    if not given.rejected or given.test not in EXACT or given.gain <= 0 or not _beyond_records(given):
        return False
    if given.test == "split" and given.over == "chance":
        return True
    p = None if given.difference is None or given.runs < 2 else given.difference.p
    return p is not None and p <= given.spent / max(given.family, 1)


# Reasons in words


def _leak_words(given: VerdictInput) -> str:
    repeats = given.runs < 2 or given.test == "runs" or _above(given.difference, 0.0)
    others = "" if repeats else "; that other runs gain as much is not shown"
    return f"{_gain_words(given)}, margin {_margin(given)}; {_luck_words(given)}{others}{_alone(given)}"


def _luck_words(given: VerdictInput) -> str:
    who = "people" if given.metric in BY_PERSON else "records"
    test = TESTS.get(given.test or "", "").format(runs=given.shown_after or given.runs, who=who)
    luck = f"not luck: p = {number(given.p_adjusted or 0.0)} after {count(given.family, 'row')} ({test})"
    return luck + ("" if given.drawn or given.test != "split" else f", {LIKE_OTHERS}")


def _small_words(given: VerdictInput) -> str:
    size = f"{_gain_words(given)}, margin {_margin(given)}" if given.upper is None else _bounded_words(given)
    return f"it leaks a little: {size}; {_luck_words(given)}; a stronger attack may leak more{_alone(given)}"


def _suspected_words(given: VerdictInput) -> str:
    if given.p_adjusted is None:
        few = ": too few runs or clients" if not given.recorded and given.runs > 1 else ""
        luck = f"no test can say whether it is luck{few}"
    elif given.rejected:
        luck = "the messages matter, but these records may be easy ones"
    else:
        luck = f"it may be luck (p = {number(given.p_adjusted)} after {count(given.family, 'row')})"
    return f"{_gain_words(given)}, above the margin of {_margin(given)}, but {luck}{_settling(given)}"


def _trace_words(given: VerdictInput) -> str:
    p = min(p for p in (given.p_split, given.p_swap) if p is not None)
    gain = f"{_gain_words(given)}, within the margin of {_margin(given)}"
    shown = "carry" if given.rejected and given.test in EXACT else "may carry"
    like = "" if given.drawn or p != given.p_split else f", {LIKE_OTHERS}"
    carry = f"the messages {shown} something about these records (p = {number(p)}{like})"
    return f"{carry}, but the attack gains {gain}: a stronger attack may leak, so this is not safety"


def _open_words(given: VerdictInput) -> str:
    if given.runs < LEAST_RUNS or given.upper is None:
        few = f"{count(given.runs, 'run')}, at least {LEAST_RUNS} are needed to find no leak"
        return f"{_gain_words(given)}: {ONE_RECORDING if given.recorded else few}{_settling(given)}"
    upper = f"up to {_upper(given)} may be possible"
    return f"{_gain_words(given)}, but {upper}, above the margin of {_margin(given)}{_settling(given)}"


def _coarse_words(given: VerdictInput) -> str:
    size = "" if given.seen is None else f": {_size(given.seen, given)} or more"
    return f"{_bounded_words(given)}, but {TOO_COARSE}{size}{_settling(given)}"


def _bounded_words(given: VerdictInput) -> str:
    return f"{_gain_words(given)}, at most {_upper(given)} in runs like these, margin {_margin(given)}"


def _stopped_words(given: VerdictInput) -> str:
    without = score_words(given.leak_without, given.metric, sign=True)
    left = f"at most {_upper(given)} with it (margin {_margin(given)})"
    return f"the same attack gains {without} without this defence, {left}"


def _upper(given: VerdictInput) -> str:
    """Return the upper bound of the gain, at most what the floor leaves."""
    upper = None if given.upper is None else possible_gain(given.upper, given.metric, given.floor)
    return score_words(upper, given.metric, sign=True)


def _gain_words(given: VerdictInput) -> str:
    difference = given.difference
    if difference is None:
        return "no gain"
    ends = between(difference.low, difference.high, given.metric, sign=True, floor=given.floor)
    spread = "" if difference.low is None else f" (95 % interval {ends})"
    return f"{score_words(difference.mean, given.metric, sign=True)} over {given.over}{spread}"


def _settling(given: VerdictInput) -> str:
    """Return what would settle an open row."""
    if given.recorded:
        return "; simulate the federation to settle it"
    if given.looks_spent:
        return "; the looks at this audit have spent their 5 %: run a new one with more seeds, in another folder"
    if given.more_seeds is None:
        if given.runs < LEAST_RUNS:
            return ""
        return f"; more than {SETTLED_BY} seeds would be needed to settle it"
    option = f"--resume --seeds {given.runs + given.more_seeds}"
    return f"; about {count(given.more_seeds, 'more seed')} would settle it ({option})"


def _alone(given: VerdictInput) -> str:
    """Return a remark where there is only one run."""
    if given.runs != 1:
        return ""
    return f"; {ONE_RECORDING if given.recorded else ONE_RUN}"


def _margin(given: VerdictInput) -> str:
    return margin_of(given.margin, given.metric)


def _size(amount: float | None, given: VerdictInput) -> str:
    return margin_of(amount or 0.0, given.metric)


# The level of a leak


def kind_of(
    difference: Interval | None,
    controls: Mapping[str, Interval],
    *,
    record: bool,
    margin: float,
    leaks: bool = False,
    swapped: bool = False,
) -> Kind | None:
    """Return the level of a leak: record, client or population; None where it was not shown.

    A leak is client-level if the attack beats every control that lacks this client's messages, one of them by the
    margin: where the global model reveals as much, the client's own messages add nothing. It is population-level only
    if both kinds of control were measured and all come within the margin: a missing or wide control proves nothing.
    `record` states that members were compared with held-out records, `leaks` that the row leaks whatever the interval
    of its gain, `swapped` that the swap test found other clients' messages to be worse.
    """
    if not leaks and not _above(difference, 0.0):
        return None
    if record or any(_above(controls.get(name), 0.0) for name in RECORD_CONTROLS):
        return "record"

    def beaten(name: str, limit: float) -> bool:
        control = controls[name]
        return _above(control, limit) or (swapped and name == "other-client" and control.mean > limit)

    client = [name for name in CLIENT_CONTROLS if name in controls]
    if client and all(beaten(name, 0.0) for name in client) and any(beaten(name, margin) for name in client):
        return "client"
    near = all(control.high is not None and control.high <= margin for control in controls.values())
    measured = client and any(name in controls for name in RECORD_CONTROLS)
    return "population" if measured and near else None


def _above(measured: Interval | None, limit: float) -> bool:
    """Return whether the whole interval lies above a limit."""
    return measured is not None and measured.low is not None and measured.low > limit


def number(value: float) -> str:
    """Return a number as text: three significant digits, without an exponent from 1000 on."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def count(number_of: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number_of} {noun}" if number_of == 1 else f"{number_of} {noun}s"
