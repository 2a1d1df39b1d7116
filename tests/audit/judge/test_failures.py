"""The line on failed cases, checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fedxray.audit.judge.results import RETRY, TRAINING_DIVERGED, cut_cases, failed_cases, failure_line

WHY = "(a model with infinite or NaN entries after round 1). Lower learning_rate (0.05)."


def case(status: str = "ok", reason: str | None = None, **more: Any) -> dict[str, Any]:
    scores = {"accuracy": 0.5} if status in ("ok", "undetermined") else {}
    facts = {"seed": 0, "defence": "none", "attack": "a", "status": status, "reason": reason, "scores": scores}
    return facts | more


def diverged(seed: int, **more: Any) -> dict[str, Any]:
    return case("diverged", f"{TRAINING_DIVERGED} {WHY}", seed=seed, **more)


@pytest.mark.parametrize(
    ("cases", "line"),
    [
        ([case()], None),
        ([case(), case("undetermined", "nothing stood out")], None),
        ([case("diverged", "the loss grew", scores={"accuracy": 0.4})], None),
        ([case(), diverged(2), diverged(2)], f"2 of 3 cases failed: training diverged in seed 2 {WHY}"),
        ([diverged(1), diverged(2)], f"2 of 2 cases failed: training diverged in seeds 1, 2 {WHY}"),
        (
            [case(), diverged(2, defence="dp-sgd")],
            f"1 of 2 cases failed: training diverged in seed 2 under dp-sgd {WHY}",
        ),
        (
            [case(), case("failed", "ValueError in my_attack.py, line 12", attack="own")],
            f"1 of 2 cases failed: own: ValueError in my_attack.py, line 12. {RETRY}",
        ),
        (
            [case("failed", "x"), diverged(0), diverged(0)],
            f"3 of 3 cases failed: training diverged in seed 0 {WHY} The report lists 1 more reason. {RETRY}",
        ),
        ([case("diverged", "a\x1b[31m", scores={"accuracy": None})], "1 of 1 case failed: a�[31m."),
        ([case(), case("truncated", "late")], "1 of 2 cases cut off by --budget; continue with --resume."),
        (
            [case("failed"), case("truncated", "late")],
            f"1 of 2 cases failed: failed. {RETRY} 1 of 2 cases cut off by --budget; continue with --resume.",
        ),
    ],
)
def test_the_line_says_how_many_why_and_what_to_change(cases: list[dict[str, Any]], line: str | None) -> None:
    assert failure_line(cases) == line
    count = len(failed_cases(cases)) + len(cut_cases(cases))
    assert (count == 0) is (line is None)
