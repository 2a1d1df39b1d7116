"""Reasons of verdicts as the report states them."""

from __future__ import annotations

from typing import Any

import pytest

from fedxray.audit.judge import verdict
from fedxray.audit.judge.statistics import Interval
from fedxray.audit.judge.verdict import Power, VerdictInput, judge
from fedxray.metrics.units import GLUE
from fedxray.report.words import NO_LEVEL, capital, doubt, reason_words

POINTS = f"5{GLUE}points"
SEEN = Power(passed=True, gain=10.0, reason="")
BLIND = Power(passed=False, gain=None, reason="planted leak not seen")


def row(low: float, high: float, *, metric: str = "accuracy", n: int = 10, **changes: Any) -> dict[str, Any]:
    """A row with the verdict that the audit itself would give."""
    error = (high - low) / 4
    spread = Interval(mean=(low + high) / 2, low=low, high=high, n=n, p=0.001, error=error, freedom=n - 1)
    given: dict[str, Any] = {"difference": spread, "adjusted": 0.01, "margin": 0.05, "over": "imputation"}
    given |= {"statuses": {"ok": n}, "unscored": 0, "runs": 5, "family": 4}
    given |= {name: value for name, value in changes.items() if name in VerdictInput.__dataclass_fields__}
    decided, reason = judge(VerdictInput(**given))
    base = {
        "metric": metric,
        "mean": 0.9,
        "floor": 0.5,
        "low": low,
        "high": high,
        "margin": 0.05,
        "n": n,
        "unit": "client-run",
    }
    base |= {"over": "imputation", "kind": "record", "oracle": False, "verdict": decided, "reason": reason}
    return {**base, **{name: value for name, value in changes.items() if name in base}}


LEAKS = f"The whole interval of the gain is above the margin of {POINTS}."
BELOW = f"The whole interval of the gain is below the margin of {POINTS}."


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (row(0.1, 0.2), LEAKS),
        (row(0.1, 0.2, kind=None), f"{LEAKS} {NO_LEVEL}"),
        (row(0.1, 0.2, runs=1), f"{LEAKS} {capital(verdict.ONE_RUN)}."),
        (row(0.1, 0.2, oracle=True), f"Upper bound by an oracle, not reachable by an attacker. {LEAKS}"),
        (row(0.1, 0.2, statuses={"ok": 8, "failed": 2}), f"{LEAKS} Of 10 cases: 2 failed."),
        (row(0.0, 0.2), f"The interval of the gain contains the margin of {POINTS}. Add seeds to narrow it."),
        (row(0.0, 0.2, metric="auc"), "The interval of the gain contains the margin of 0.05. Add seeds to narrow it."),
        (
            row(0.1, 0.2, adjusted=0.2),
            f"The interval of the gain is above the margin of {POINTS}, but not after the correction for all "
            "comparisons of the audit. Add seeds.",
        ),
        (row(0.0, 0.02), f"{BELOW} Not evidence of safety: this attack was not tested on a planted leak."),
        (
            row(0.0, 0.02, power=BLIND),
            f"{BELOW} Not evidence of safety: this attack did not find a planted leak either.",
        ),
        (
            row(0.0, 0.02, power=SEEN, statuses={"ok": 9, "failed": 1}),
            f"{BELOW} Not evidence of safety: some cases failed. Of 10 cases: 1 failed.",
        ),
        (
            row(0.0, 0.02, power=SEEN),
            f"{BELOW} The attack finds a planted leak; this audit would detect one of 6.57{GLUE}points "
            f"with 80{GLUE}% probability.",
        ),
        (
            row(0.0, 0.02, power=SEEN, runs=1),
            f"{BELOW} The attack finds a planted leak; this audit would detect one of 6.57{GLUE}points "
            f"with 80{GLUE}% probability. {capital(verdict.ONE_RUN)}.",
        ),
        (
            row(-0.5, 0.02, power=SEEN, room=0.2),
            f"{BELOW} Not evidence of safety: with so few client-runs only a large leak would have been detected.",
        ),
        (row(0.0, 0.02, room=0.03), f"{capital(verdict.NO_ROOM)}: {verdict.PERFECT_GUESSES['imputation']}."),
        (row(0.1, 0.2, n=4), "4 client-runs; at least 6 and an interval are needed. Add seeds or target clients."),
        (row(0.1, 0.2, mean=None, statuses={"failed": 3}), "No case was completed. Of 3 cases: 3 failed."),
        (row(0.1, 0.2, floor=None, difference=None), "No floor was measured to compare the score with."),
    ],
)
def test_reasons(made: dict[str, Any], said: str) -> None:
    assert reason_words(made) == said


def test_most_cases_lost_is_a_doubt_of_its_own() -> None:
    made = row(0.1, 0.2, statuses={"ok": 3, "diverged": 4})
    assert doubt(made) == "lost" and reason_words(made).startswith("Fewer than half of the cases")
