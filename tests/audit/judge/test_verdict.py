"""Verdicts: every way to each state, and the kinds of leak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, strategies as st
from scipy import stats

from fedxray.audit.judge.statistics import Interval
from fedxray.audit.judge.verdict import (
    NO_POWER_CHECK,
    ONE_RUN,
    POWER_FAILED,
    Judgement,
    Power,
    VerdictInput,
    count,
    is_settled,
    judge,
    kind_of,
    number,
)

POINTS = "\N{NO-BREAK SPACE}points"


def spread(low: float, high: float, n: int = 10) -> Interval:
    error = (high - low) / 2 / float(stats.t.ppf(0.975, n - 1)) if n > 1 else 0.0
    return Interval(mean=(low + high) / 2, low=low, high=high, n=n, p=0.001, error=error, freedom=max(n - 1, 1))


LEAK = VerdictInput(
    metric="accuracy",
    margin=0.05,
    statuses={"ok": 9},
    unscored=0,
    runs=3,
    difference=spread(0.1, 0.2),
    over="majority",
    record_error=0.01,
    p=0.002,
    p_adjusted=0.01,
    test="swap",
    rejected=True,
    p_swap=0.002,
    family=4,
    upper=0.22,
    seen=0.08,
    more_seeds=2,
)
SAFE = replace(
    LEAK, difference=spread(-0.02, 0.03), p=0.4, p_adjusted=0.6, rejected=False, p_swap=0.4, upper=0.032, seen=0.06
)
PASSED, FAILED = Power(passed=True, reason=""), Power(passed=False, reason="planted leak not seen")


def judged(given: VerdictInput, **changes: Any) -> Judgement:
    return judge(replace(given, **changes))


def test_a_gain_above_the_margin_that_is_not_luck_leaks_in_these_runs() -> None:
    found = judged(LEAK)
    assert (found.verdict, found.state, found.scope) == ("leaks", "leaks", "these runs")
    assert found.reason == (
        f"+15.0{POINTS} over majority (95 % interval +10.0 to +20.0{POINTS}), margin 5{POINTS}; not luck: p = 0.01 "
        "after 4 rows (swap test: the right messages beat those of other clients)"
    )


def test_one_run_may_leak_and_never_reassures() -> None:
    one = judged(LEAK, runs=1, upper=None, seen=None, test="split")
    assert one.state == "leaks" and "one run: how much other runs would leak is not known" in one.reason
    recorded = judged(LEAK, runs=1, upper=None, recorded=True, test="split", drawn=False)
    assert "a recording is one run" in recorded.reason and "if the held-out records are like" in recorded.reason
    for measured in (LEAK, SAFE):  # a plan takes one recording, so more of them would settle nothing
        undecided = judged(measured, runs=1, upper=None, recorded=True, rejected=False, p_adjusted=None)
        assert undecided.verdict == "inconclusive" and "; simulate the federation to settle it" in undecided.reason
    for runs in (1, 2):
        none = judged(SAFE, runs=runs, upper=None, seen=None, power=PASSED, more_seeds=3 - runs)
        assert (none.state, none.scope) == ("open", None) and "at least 3 are needed" in none.reason
        assert "(--resume --seeds 3)" in none.reason


def test_a_gain_that_may_be_luck_is_suspected_and_says_what_would_settle_it() -> None:
    found = judged(LEAK, rejected=False, p_adjusted=0.16)
    assert (found.verdict, found.state) == ("inconclusive", "suspected")
    assert "it may be luck (p = 0.16 after 4 rows)" in found.reason
    assert found.reason.endswith("about 2 more seeds would settle it (--resume --seeds 5)")
    easy = judged(LEAK, record_error=0.06)  # 1.645 * 0.06 * sqrt(3) = 0.171: these records may be easy ones
    assert easy.state == "suspected" and "may be easy ones" in easy.reason
    assert judged(LEAK, record_error=0.06, test="split", over="chance").state == "leaks"
    untested = judged(LEAK, rejected=False, p_adjusted=None, runs=1, upper=None, more_seeds=None)
    assert untested.state == "suspected" and "no test can say" in untested.reason


def test_a_trace_is_never_safety() -> None:
    for changes in ({"p_swap": 0.05}, {"p_split": 0.001, "p_swap": None}):
        found = judged(SAFE, power=PASSED, **changes)
        assert (found.verdict, found.state) == ("inconclusive", "trace") and "not safety" in found.reason
    assert judged(SAFE, power=PASSED, p_swap=0.051).state == "no leak found"
    assert judged(SAFE, upper=0.06, p_swap=0.01).state == "trace"
    assert judged(LEAK, rejected=False).state == "suspected"  # a trace above the margin is suspected


SMALL = replace(
    SAFE,
    difference=spread(0.02, 0.04),
    record_error=0.005,
    p=0.0005,
    p_adjusted=0.001,
    rejected=True,
    p_swap=0.0005,
    upper=0.045,
)


def test_easy_records_are_less_likely_to_explain_a_gain_of_one_row_than_of_many() -> None:
    given = replace(LEAK, difference=spread(0.05, 0.07), record_error=0.02)  # a gain of 1.73 errors that repeat
    assert judged(given, family=1).state == "leaks"
    assert judged(given, family=20).state == "suspected"


def test_a_proven_gain_within_the_margin_is_a_small_leak() -> None:
    found = judged(SMALL)
    assert (found.verdict, found.state, found.scope) == ("leaks", "small", "these runs")
    assert found.reason == (
        f"it leaks a little: +3.0{POINTS} over majority (95 % interval +2.0 to +4.0{POINTS}), at most +4.5{POINTS} in "
        f"runs like these, margin 5{POINTS}; not luck: p = 0.001 after 4 rows (swap test: the right messages beat "
        "those of other clients); a stronger attack may leak more"
    )
    assert judged(SMALL, power=PASSED, seen=0.2).state == "small"  # it needs no power check: it has seen something
    members = replace(SMALL, metric="auc", over="chance", test="split", p_split=0.0005, p_swap=None, record_error=0.03)
    assert judged(members, difference=spread(-0.01, 0.03)).state == "small"  # the split test says it by itself
    for changes in (
        {"rejected": False, "p_adjusted": 0.06},
        {"difference": replace(spread(-0.001, 0.04), p=0.03)},
        {"difference": spread(-0.04, -0.02)},
        {"record_error": 0.02},  # 2.24 * 0.02 * sqrt(3) = 0.057: these records may be easy ones
    ):
        assert judged(SMALL, **changes).state == "trace"
    assert judged(members, difference=spread(-0.04, -0.02)).state == "trace"
    assert judged(members, over="imputation", difference=spread(-0.01, 0.03)).state == "trace"
    assert judged(SMALL, upper=0.051).state == "small"  # it speaks of these runs; more seeds may bound it
    assert "at most" not in judged(SMALL, upper=None).reason and judged(SMALL, upper=None).state == "small"
    doubtful = Interval(mean=0.03, low=0.001, high=0.059, n=9, p=0.02)
    assert judged(SMALL, difference=doubtful, family=2).state == "small"
    assert judged(SMALL, difference=doubtful, family=4).state == "trace"  # any of four rows may gain that by luck
    assert judged(SMALL, difference=doubtful, family=2, spent=0.01).state == "trace"
    assert judged(SMALL, runs=1, upper=None).state == "trace"  # over clients or records, which err together
    once = judged(members, difference=spread(-0.01, 0.03), runs=1, upper=None)
    assert once.state == "small" and once.reason.endswith(ONE_RUN)
    assert judged(SMALL, statuses={"ok": 8, "failed": 1}).state == "open"
    by_runs = judged(SMALL, test="runs", p_swap=0.3, power=PASSED)
    assert by_runs.state == "no leak found"  # only a large gain makes the run test safe


def test_more_seeds_are_asked_for_while_a_trace_may_be_luck_or_a_small_leak() -> None:
    row = {"primary": True, "oracle": False, "state": "trace", "upper": 0.04, "margin": 0.05, "test": "swap"}
    row |= {"p_adjusted": 0.01, "family": {"spent": 0.02}, "difference": -0.1, "low": -0.2}
    assert is_settled([row])
    for changes in (
        {"p_adjusted": 0.03},
        {"test": "runs"},
        {"difference": 0.01, "low": -0.01},
        {"upper": 0.06},
        {"state": "coarse"},
    ):
        assert not is_settled([row, row | changes])
        assert is_settled([row | changes | {"primary": False}, row | changes | {"oracle": True}])
    assert not is_settled([row | {"state": "small", "upper": 0.06}])
    for state in ("small", "leaks", "no leak found", "blinded", "reversed"):
        assert is_settled([row | {"state": state, "p_adjusted": 0.03}])


def test_no_leak_found_needs_the_planted_leak_under_the_same_defence() -> None:
    found = judged(SAFE, power=PASSED)
    assert (found.verdict, found.state, found.scope) == ("no leak found", "no leak found", "runs like these")
    assert found.reason.endswith(f"a leak of 6{POINTS} or more would have been seen in 4 of 5 such audits")
    waits = judged(SAFE, undefended=PASSED)
    assert waits.state == "open" and NO_POWER_CHECK in waits.reason
    assert judged(SAFE, power=FAILED, undefended=PASSED).state == "blinded"
    for undefended in (FAILED, None):
        failed = judged(SAFE, power=FAILED, undefended=undefended)
        assert failed.state == "open" and POWER_FAILED in failed.reason and "planted leak not seen" in failed.reason


def test_a_defence_stops_an_attack_that_leaks_without_it() -> None:
    found = judged(SAFE, power=FAILED, undefended=PASSED, leak_without=0.3)
    assert (found.verdict, found.state, found.scope) == ("inconclusive", "stopped", "runs like these")
    assert f"gains +30.0{POINTS} without this defence, at most +3.2{POINTS} with it" in found.reason
    assert "another attack may still succeed" in found.reason
    assert judged(SAFE, power=PASSED, leak_without=0.3).state == "no leak found"
    assert judged(SAFE, leak_without=0.3).awaits_power  # the planted leak may still be found
    for changes in (
        {"leak_without": None},
        {"leak_without": 0.059},  # a leak of this size would not have been seen
        {"adapts": False},
        {"over": "imputation", "difference": spread(-0.4, -0.3), "upper": -0.28},  # broken, not stopped
    ):
        assert (
            judged(SAFE, **{"power": FAILED, "undefended": PASSED, "leak_without": 0.3, **changes}).state == "blinded"
        )
    unsafe = ({"p_swap": 0.01}, {"upper": 0.06}, {"seen": 0.2}, {"statuses": {"ok": 8, "failed": 1}}, {"runs": 2})
    for doubt in unsafe:
        assert judged(SAFE, power=FAILED, leak_without=0.3, **doubt).state != "stopped"


def test_an_attack_that_cannot_use_the_defence_is_no_attacker_who_knows() -> None:
    deaf = judged(SAFE, power=PASSED, adapts=False)
    assert (deaf.verdict, deaf.state) == ("inconclusive", "open") and "no attacker who knows it" in deaf.reason
    assert judged(LEAK, adapts=False).state == "leaks" and judged(SMALL, adapts=False).state == "small"
    assert judged(SAFE, power=FAILED, undefended=PASSED, adapts=False).state == "blinded"


def test_a_row_awaits_a_power_check_only_where_it_matters() -> None:
    far = replace(SAFE, over="imputation", difference=spread(-0.4, -0.3), upper=-0.28)
    for waits in (SAFE, far, replace(SAFE, adapts=False)):
        assert judge(waits).awaits_power and not judged(waits, power=FAILED).awaits_power
    for settled in (LEAK, SMALL, replace(SAFE, p_swap=0.01), replace(SAFE, upper=0.06), replace(SAFE, seen=0.2)):
        assert not judge(settled).awaits_power


def test_spent_looks_ask_for_a_new_audit() -> None:
    found = judged(LEAK, rejected=False, looks_spent=True, more_seeds=None)
    assert found.reason.endswith("run a new one with more seeds, in another folder")


def test_a_lost_case_is_no_safety_and_is_counted() -> None:
    for lost in ({"ok": 8, "diverged": 1}, {"ok": 8, "failed": 1}):
        found = judged(SAFE, power=PASSED, statuses=lost)
        assert found.state == "open" and "of 9 cases: 1 " in found.reason
    assert judged(SAFE, power=PASSED, unscored=1).state == "open"
    leaking = judged(LEAK, statuses={"ok": 8, "refused": 2}, unscored=1)
    assert leaking.state == "leaks" and leaking.reason.endswith("of 10 cases: 2 refused, 1 without this score")
    diverged = judged(SAFE, power=PASSED, statuses={"diverged": 9}, unscored=9)
    assert diverged.state == "open" and "of 9 cases: 9 diverged" in diverged.reason
    assert "without this score" not in diverged.reason


def test_a_large_smallest_leak_is_coarse_and_a_wide_bound_open() -> None:
    found = judged(SAFE, power=PASSED, seen=0.1001)
    assert (found.verdict, found.state) == ("inconclusive", "coarse")
    assert f"only a large leak would have been seen: 10{POINTS} or more" in found.reason and "--seeds 5" in found.reason
    assert judged(SAFE, power=PASSED, seen=0.1).state == "no leak found"
    wide = judged(SAFE, power=PASSED, upper=0.051)
    assert wide.state == "open" and f"up to +5.1{POINTS} may be possible" in wide.reason
    assert "more than 50 seeds" in judged(SAFE, upper=0.051, more_seeds=None).reason


def test_far_below_chance_is_the_wrong_way_round() -> None:
    below = replace(SAFE, metric="auc", over="chance", difference=spread(-0.4, -0.3), upper=-0.28, power=PASSED)
    assert judge(below).state == "reversed"
    worse = judged(below, over="imputation")
    assert worse.state == "open" and "worse than the guess without messages" in worse.reason
    assert judged(below, upper=-0.05).state == "no leak found"


def test_failed_cases_no_floor_and_no_room_are_open() -> None:
    none = judged(LEAK, difference=None, statuses={"failed": 3, "diverged": 1})
    assert (none.state, none.reason) == ("open", "no case ended; of 4 cases: 3 failed, 1 diverged")
    assert "fewer than half" in judged(LEAK, statuses={"ok": 8, "diverged": 9}).reason
    assert "no floor was measured" in judged(LEAK, difference=None).reason
    full = judged(SAFE, room=0.05, over="imputation", power=PASSED)
    assert full.reason.endswith("could show a leak here: the other columns give this away by themselves")
    assert judged(SAFE, room=0.05).reason.endswith("nearly all records have the same value")
    assert judged(SAFE, room=0.051, power=PASSED).state == "no leak found"


@given(
    gain=st.floats(-1, 1),
    rejected=st.booleans(),
    runs=st.integers(1, 20),
    record_error=st.floats(0, 0.2),
    upper=st.floats(-1, 1),
    seen=st.floats(0, 0.3),
    p_swap=st.one_of(st.none(), st.floats(0, 1)),
    p_split=st.one_of(st.none(), st.floats(0, 1)),
    power=st.sampled_from([None, PASSED, FAILED]),
    lost=st.integers(0, 12),
    over=st.sampled_from(["chance", "majority"]),
)
def test_the_verdict_is_exactly_the_rule(gain: float, rejected: bool, runs: int, lost: int, **other: Any) -> None:
    given_row = replace(
        LEAK,
        difference=Interval(mean=gain, low=gain - 0.1, high=gain + 0.1, n=9, p=0.1),
        rejected=rejected,
        runs=runs,
        statuses={"ok": 9, "failed": lost},
        **(other | {"upper": other["upper"] if runs >= 3 else None}),
    )
    leaks = gain > 0.05 and rejected and gain >= 1.645 * other["record_error"] * runs**0.5 and lost <= 9
    trace = any(p is not None and p <= 0.05 for p in (other["p_swap"], other["p_split"]))
    far_below = other["upper"] < -0.05
    safe = runs >= 3 and max(gain, other["upper"]) <= 0.05 and not lost and not trace and other["seen"] <= 0.1
    found = judge(given_row)
    assert (found.verdict == "leaks") is leaks
    expected = not leaks and safe and not far_below and other["power"] is PASSED
    assert (found.verdict == "no leak found") is expected
    assert found.reason and (found.scope is None) == (found.verdict == "inconclusive")


def kind(difference: Interval | None, record: bool = False, **controls: Interval) -> str | None:
    named = {name.replace("_", "-"): one for name, one in controls.items()}
    return kind_of(difference, named, record=record, margin=0.05)


def test_kinds_go_from_record_to_population() -> None:
    above, vague, near = spread(0.1, 0.2), spread(-0.1, 0.2), spread(-0.02, 0.03)
    barely = spread(0.001, 0.02)
    assert kind(above, held_out=above, other_client=above) == "record"
    assert kind(above, held_out=vague, other_client=above) == "client"
    assert kind(above, held_out=near, global_model=above) == "client"
    assert kind(above, held_out=near, other_client=above, global_model=near) is None  # the global model tells as much
    assert kind(above, held_out=near, other_client=barely) == "population"
    assert kind(above, held_out=near, other_client=near) == "population"
    assert kind(above, held_out=near, other_client=vague) is None
    assert kind(above, held_out=near) is None  # nobody looked at other clients
    assert kind(above) is None
    assert kind(above, record=True) == "record"
    assert kind(vague, record=True, held_out=above) is None
    assert kind(None) is None
    assert kind_of(vague, {"other-client": vague}, record=False, margin=0.0, leaks=True, swapped=True) == "client"
    assert kind_of(vague, {"other-client": vague}, record=False, margin=0.05, leaks=True) is None
    assert kind_of(vague, {}, record=True, margin=0.05, leaks=True) == "record"


def test_numbers_read_well() -> None:
    assert [number(value) for value in (0.12345, 12.3456, 123456.7, -0.5, 0.0)] == [
        "0.123",
        "12.3",
        "123457",
        "-0.5",
        "0",
    ]
    assert (count(1, "case"), count(0, "case")) == ("1 case", "0 cases")


def test_a_gain_above_the_margin_is_never_safe_whatever_its_bound() -> None:
    difference = Interval(mean=0.08, low=0.02, high=0.14, n=9, p=0.01, error=0.02, freedom=2)
    given = VerdictInput(
        metric="accuracy",
        margin=0.05,
        statuses={"ok": 9},
        unscored=0,
        runs=3,
        difference=difference,
        over="majority",
        upper=0.04,
        seen=0.02,
        power=Power(passed=True, reason=""),
    )
    assert judge(given).state == "suspected"


def test_no_leak_by_other_records_says_that_only_copies_were_planted() -> None:
    limits = "it recognises exact copies; whether it recognises a person by other records was not tested"
    assert limits in judged(SAFE, power=PASSED, metric="auc_subject_other").reason
    assert limits not in judged(SAFE, power=PASSED, metric="auc_subject").reason
