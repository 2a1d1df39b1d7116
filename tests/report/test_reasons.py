"""Verdicts explained in the words of the page."""

from __future__ import annotations

from typing import Any

import pytest

from fedxray.audit.judge.statistics import Interval
from fedxray.audit.judge.verdict import Power, VerdictInput, judge
from fedxray.report.words import GLUE, doubt, reason_words

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
    verdict, reason = judge(VerdictInput(**given))
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
    base |= {"over": "imputation", "kind": "record", "oracle": False, "verdict": verdict, "reason": reason}
    return {**base, **{name: value for name, value in changes.items() if name in base}}


LEAKS = f"The gain is above {POINTS}, the least that counts as a leak."
BELOW = f"The gain is below {POINTS}."


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (row(0.1, 0.2), LEAKS),
        (row(0.1, 0.2, kind=None), f"{LEAKS} Whose data it is about was not shown."),
        (row(0.1, 0.2, runs=1), f"{LEAKS} One run, so this speaks of its clients only."),
        (row(0.1, 0.2, oracle=True), f"An upper bound that no attacker could have. {LEAKS}"),
        (row(0.1, 0.2, statuses={"ok": 8, "failed": 2}), f"{LEAKS} Of 10 cases: 2 failed."),
        (
            row(0.0, 0.2),
            f"The gain may be above or below {POINTS}, the least that counts as a leak. More seeds would narrow it.",
        ),
        (
            row(0.0, 0.2, metric="auc"),
            "The gain may be above or below 0.05, the least that counts as a leak. More seeds would narrow it.",
        ),
        (
            row(0.1, 0.2, adjusted=0.2),
            f"The gain is above {POINTS}, the least that counts as a leak, but not clearly enough for so many "
            "comparisons. More seeds would settle it.",
        ),
        (
            row(0.0, 0.02),
            f"{BELOW} But this attack was never tested on a planted leak, so this proves nothing.",
        ),
        (
            row(0.0, 0.02, power=BLIND),
            f"{BELOW} But this attack did not find a planted leak either, so this proves nothing.",
        ),
        (
            row(0.0, 0.02, power=SEEN, statuses={"ok": 9, "failed": 1}),
            f"{BELOW} But not every case ended, so this proves nothing. Of 10 cases: 1 failed.",
        ),
        (
            row(0.0, 0.02, power=SEEN),
            f"{BELOW} The same attack finds a planted leak, and this audit would have seen one of 6.57{GLUE}points "
            "in four of five cases.",
        ),
        (
            row(0.0, 0.02, power=SEEN, runs=1),
            f"{BELOW} The same attack finds a planted leak, and this audit would have seen one of 6.57{GLUE}points "
            "in four of five cases. One run, so this speaks of its clients only.",
        ),
        (
            row(-0.5, 0.02, power=SEEN, room=0.2),
            f"{BELOW} But so few client-runs would have seen a large leak only, so this proves nothing.",
        ),
        (
            row(0.0, 0.02, room=0.03),
            "The guess without messages is already nearly perfect, so no attack could show a leak here: "
            "the other columns give this away by themselves.",
        ),
        (
            row(0.1, 0.2, n=4),
            "4 client-runs; at least 6 and an interval are needed. Add seeds or target clients.",
        ),
        (row(0.1, 0.2, mean=None, statuses={"failed": 3}), "No case ended. Of 3 cases: 3 failed."),
        (row(0.1, 0.2, floor=None, difference=None), "There is no guess to compare it with."),
    ],
)
def test_reasons(made: dict[str, Any], said: str) -> None:
    assert reason_words(made) == said


def test_most_cases_lost_is_a_doubt_of_its_own() -> None:
    made = row(0.1, 0.2, statuses={"ok": 3, "diverged": 4})
    assert doubt(made) == "lost" and reason_words(made).startswith("Fewer than half of the cases ended")
