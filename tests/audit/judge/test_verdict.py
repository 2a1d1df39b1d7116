"""Verdicts: every way to each of the three, and the kinds of leak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from fedxray.audit.judge.statistics import Interval, holm, interval
from fedxray.audit.judge.verdict import NO_SMALLEST, Power, VerdictInput, count, judge, kind_of, number


def spread(low: float, high: float, n: int = 10) -> Interval:
    error = (high - low) / 2 / float(stats.t.ppf(0.975, n - 1)) if n > 1 else 0.0
    return Interval(mean=(low + high) / 2, low=low, high=high, n=n, p=0.001, error=error, freedom=max(n - 1, 1))


LEAK = VerdictInput(
    difference=spread(0.1, 0.2),
    adjusted=0.01,
    margin=0.05,
    over="majority",
    statuses={"ok": 10},
    unscored=0,
    runs=5,
    family=4,
)
SAFE = replace(LEAK, difference=spread(-0.02, 0.03), adjusted=0.6)
PASSED = Power(passed=True, gain=10.0, reason="")


def test_an_interval_above_the_margin_with_a_small_adjusted_p_leaks() -> None:
    verdict, reason = judge(LEAK)
    assert verdict == "leaks"
    assert reason == "0.15 better than majority (95 % interval 0.1 to 0.2), margin 0.05"


def test_one_run_is_said() -> None:
    for made, verdict in ((LEAK, "leaks"), (replace(SAFE, power=PASSED), "no leak found")):
        found, reason = judge(replace(made, runs=1))
        assert found == verdict and "speaks of its clients only" in reason
        assert "clients only" not in judge(made)[1]


def test_equal_differences_too_few_for_any_leak_are_no_safety() -> None:
    equal = interval([0.0] * 6, [0, 1, 2] * 2)
    few = replace(SAFE, difference=equal, statuses={"ok": 6}, power=PASSED, family=4)
    assert judge(few) == ("inconclusive", judge(few)[1]) and NO_SMALLEST in judge(few)[1]
    perfect = interval([0.5] * 6, [0, 1, 2] * 2)
    adjusted = holm([perfect.p, *[1.0] * 3])[0]
    assert judge(replace(few, difference=perfect, adjusted=adjusted))[0] == "inconclusive"
    assert judge(replace(few, family=3))[0] == "no leak found"


def test_a_leak_that_is_one_of_many_looks_is_inconclusive() -> None:
    verdict, reason = judge(replace(LEAK, adjusted=0.07, runs=3))
    assert verdict == "inconclusive"
    assert "adjusting for 4 verdicts p = 0.07" in reason and "3 runs leave wide intervals" in reason


def test_an_interval_that_reaches_the_margin_is_inconclusive() -> None:
    for low, high in ((0.05, 0.2), (-0.1, 0.051)):
        verdict, reason = judge(replace(LEAK, difference=spread(low, high)))
        assert verdict == "inconclusive" and "either side of the margin 0.05" in reason


def test_fewer_than_six_units_never_decide() -> None:
    for finding in (LEAK, replace(SAFE, power=PASSED)):
        assert finding.difference is not None
        few = replace(finding, difference=replace(finding.difference, n=5), statuses={"ok": 5})
        assert judge(few) == (
            "inconclusive",
            "5 units (client-runs), at least 6 are needed: add seeds or target clients",
        )


def test_no_leak_found_needs_a_passed_power_check_and_no_lost_case() -> None:
    assert judge(SAFE)[0] == "inconclusive"
    assert "no power check" in judge(SAFE)[1]
    failed = replace(SAFE, power=Power(passed=False, gain=None, reason="planted leak not seen"))
    assert judge(failed)[0] == "inconclusive" and "planted leak not seen" in judge(failed)[1]
    verdict, reason = judge(replace(SAFE, power=PASSED))
    # margin + half a width (0.025) + the 0.8 quantile of t (0.883) times the error (0.025 / 2.262)
    assert verdict == "no leak found" and reason.endswith("would have seen: 0.0848")
    for lost in ({"ok": 9, "diverged": 1}, {"ok": 9, "truncated": 1}, {"ok": 9, "failed": 1}):
        verdict, reason = judge(replace(SAFE, power=PASSED, statuses=lost))
        assert verdict == "inconclusive" and "of 10 cases: 1 " in reason
    assert judge(replace(SAFE, power=PASSED, unscored=1))[0] == "inconclusive"


def test_failed_cases_are_counted_and_never_read_as_safety() -> None:
    none = replace(LEAK, difference=None, statuses={"failed": 3, "diverged": 1})
    assert judge(none) == ("inconclusive", "no case ended; of 4 cases: 3 failed, 1 diverged")
    most = replace(LEAK, statuses={"ok": 8, "diverged": 9})
    assert judge(most)[0] == "inconclusive" and "fewer than half" in judge(most)[1]
    some = replace(LEAK, statuses={"ok": 8, "refused": 2}, unscored=1)
    verdict, reason = judge(some)
    assert verdict == "leaks" and reason.endswith("of 10 cases: 2 refused, 1 without this score")


def test_without_a_floor_nothing_is_said() -> None:
    verdict, reason = judge(replace(LEAK, difference=None))
    assert verdict == "inconclusive" and "no floor was measured" in reason


def test_where_the_guess_is_nearly_perfect_nothing_can_be_shown_and_seeds_do_not_help() -> None:
    full = replace(SAFE, room=0.05, over="imputation", power=PASSED)
    assert judge(full) == (
        "inconclusive",
        "the guess without messages is already nearly perfect, so no attack could show a leak here: "
        "the other columns give this away by themselves",
    )
    few = replace(full, difference=spread(-0.02, 0.03, n=2), statuses={"ok": 2}, over="majority")
    assert judge(few)[1].endswith("nearly all records have the same value")
    assert judge(replace(full, over="chance"))[1].endswith("could show a leak here")
    assert judge(replace(full, room=0.085))[0] == "no leak found"


def test_units_that_would_have_seen_a_large_leak_only_prove_nothing() -> None:
    wide = replace(SAFE, difference=spread(-0.5, 0.03), power=PASSED)
    verdict, reason = judge(replace(wide, room=0.3))
    assert verdict == "inconclusive" and "these few units" in reason
    assert "seen: 0.422, and a perfect attack would gain 0.3" in reason
    verdict, reason = judge(replace(wide, power=replace(PASSED, gain=4.0)))
    assert verdict == "inconclusive" and reason.endswith("seen: 0.422, and the planted one gives 0.2")
    assert judge(replace(wide, room=0.43))[0] == "no leak found"
    unknown = replace(SAFE, difference=replace(spread(-0.02, 0.03), error=None), power=PASSED)
    assert judge(unknown)[0] == "inconclusive" and "is not known" in judge(unknown)[1]


@given(
    st.floats(-1, 1),
    st.floats(0, 1),
    st.one_of(st.none(), st.floats(0, 1)),
    st.integers(1, 30),
    st.floats(0, 0.5),
    st.integers(0, 5),
)
def test_leaks_exactly_where_the_rule_says(
    low: float, width: float, adjusted: float | None, n: int, margin: float, lost: int
) -> None:
    finding = replace(
        LEAK,
        difference=spread(low, low + width, n),
        adjusted=adjusted,
        margin=margin,
        statuses={"ok": n, "failed": lost},
    )
    rule = low > margin and adjusted is not None and adjusted <= 0.05 and n >= 6 and n >= lost
    verdict, reason = judge(finding)
    assert (verdict == "leaks") == rule
    assert verdict != "no leak found"
    assert reason


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


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_audits_of_noise_leak_in_at_most_five_percent(correlation: float) -> None:
    generator, leaking = np.random.default_rng(8), 0
    for _ in range(200):
        audit = []
        for _ in range(6):
            shared = generator.normal(size=(3, 1)) * correlation**0.5
            units = 0.1 * (shared + generator.normal(size=(3, 4)) * (1 - correlation) ** 0.5)
            audit.append(interval(units.ravel().tolist(), np.repeat([0, 1, 2], 4).tolist()))
        adjusted = holm([found.p for found in audit])
        findings = [
            replace(LEAK, difference=found, adjusted=p, margin=0.0, statuses={"ok": 12})
            for found, p in zip(audit, adjusted, strict=True)
        ]
        leaking += any(judge(finding)[0] == "leaks" for finding in findings)
    assert leaking / 200 <= 0.05


def test_numbers_read_well() -> None:
    assert [number(value) for value in (0.12345, 12.3456, 123456.7, -0.5, 0.0)] == [
        "0.123",
        "12.3",
        "123457",
        "-0.5",
        "0",
    ]
    assert (count(1, "case"), count(0, "case")) == ("1 case", "0 cases")
