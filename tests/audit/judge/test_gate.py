"""Limits: what passes, what fails, what stays open, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge.gate import judge_gates, read_policy
from fedxray.audit.judge.verdict import NO_POWER_CHECK, NO_ROOM, NOT_ALL_ENDED
from fedxray.errors import BadInput

RULE = {"attack": "a", "metric": "accuracy_over_floor", "limit": 0.1}


def row(low: float | None = 0.0, high: float | None = 0.05, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "attack": "a",
        "role": "server",
        "defence": "none",
        "aware": None,
        "metric": "accuracy",
        "n": 8,
    }
    made |= {"oracle": False, "difference": None if low is None or high is None else (low + high) / 2}
    made |= {"low": low, "high": high, "mean": 0.6, "mean_low": 0.55, "mean_high": 0.65}
    return made | {"verdict": "no leak found", "reason": "not above the margin"} | changes


def results(*rows: dict[str, Any], gate: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    cases = [
        {name: one[name] for name in ("attack", "role", "defence", "aware")}
        | {"status": "ok", "scores": {one["metric"]: 0.6}}
        for one in rows
    ]
    plan = {"gate": gate if gate is not None else [RULE], "defence": [{"name": "none"}]}
    return {"plan": plan, "summary": list(rows), "cases": cases, "utility": []} | changes


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1))
def test_pass_fail_and_inconclusive_are_exactly_the_rule(low: float, width: float, limit: float) -> None:
    high = low + width
    found = judge_gates(results(row(low, high), gate=[RULE | {"limit": limit}]))[0]
    expected = "pass" if high <= limit else "fail" if low > limit else "inconclusive"
    assert found.outcome == expected and (found.low, found.high) == (low, high)


def test_a_plain_metric_is_judged_on_the_interval_of_its_mean() -> None:
    for limit, outcome in ((0.7, "pass"), (0.6, "inconclusive"), (0.5, "fail")):
        rule = {"attack": "a", "metric": "accuracy", "limit": limit}
        found = judge_gates(results(row(), gate=[rule]))[0]
        assert found.outcome == outcome and (found.value, found.low, found.high) == (0.6, 0.55, 0.65)


def test_the_worst_seat_and_attacker_counts() -> None:
    rows = [row(0.0, 0.05, aware=False), row(0.2, 0.3, aware=True), row(0.05, 0.2, role="eavesdropper", aware=True)]
    found = judge_gates(results(*rows))[0]
    assert (found.outcome, found.role, found.aware) == ("fail", "server", True)
    seated = judge_gates(results(*rows, gate=[RULE | {"role": "eavesdropper"}]))[0]
    assert seated.outcome == "inconclusive" and seated.title.endswith(" under none, role eavesdropper")
    points = "10\N{NO-BREAK SPACE}points"
    assert found.title == f"a: accuracy_over_floor at most {points} under none"  # whichever row decides
    wider = [row(0.2, 0.3), row(0.0, 0.9, role="eavesdropper")]  # a fail stays one beside a vaguer row
    assert (judge_gates(results(*wider))[0].outcome, judge_gates(results(*wider))[0].role) == ("fail", "server")
    open_row = judge_gates(results(row(0.0, 0.05), row(None, None, role="eavesdropper")))[0]
    assert open_row.outcome == "inconclusive" and open_row.role == "eavesdropper"


def test_only_the_deployed_defence_is_judged() -> None:
    rows = [row(0.2, 0.3), row(0.0, 0.05, defence="dp-sgd", aware=True)]
    plan = {"gate": [RULE], "defence": [{"name": "none"}, {"name": "dp-sgd", "deployed": True}]}
    assert judge_gates(results(*rows, plan=plan))[0].defence == "dp-sgd"
    named = plan | {"gate": [RULE | {"defence": "none"}]}
    assert judge_gates(results(*rows, plan=named))[0].outcome == "fail"
    unmarked = plan | {"defence": [{"name": "none"}, {"name": "dp-sgd"}]}
    with pytest.raises(BadInput, match="deployed = true"):
        judge_gates(results(*rows, plan=unmarked))
    swept = {"gate": [RULE], "defence": [{"name": "none"}, {"name": "dp-sgd", "deployed": True}]}
    point = row(0.0, 0.05, defence="dp-sgd[epsilon=3]", aware=True)
    assert judge_gates(results(rows[0], point, plan=swept))[0].defence == "dp-sgd[epsilon=3]"


def test_results_of_several_plans_are_judged_each_on_its_own_defence() -> None:
    rows = [row(0.2, 0.3, plan="p"), row(0.0, 0.05, attack="b", defence="noise", plan="q")]
    plans = [
        {"name": "p", "gate": [RULE], "defence": [{"name": "none"}]},
        {"name": "q", "gate": [RULE | {"attack": "b"}], "defence": [{"name": "noise", "deployed": True}]},
    ]
    found = judge_gates(results(*rows, plan={"name": "demo", "plans": plans}))
    assert [one.outcome for one in found] == ["fail", "pass"]


@pytest.mark.parametrize("status", ["failed", "diverged", "truncated", "undetermined", "refused"])
def test_an_attack_that_did_not_end_never_passes_but_may_fail(status: str) -> None:
    document = results(row())
    document["cases"].append({**document["cases"][0], "status": status})
    found = judge_gates(document)[0]
    assert found.outcome == "inconclusive" and f"of 2, 1 {status}" in found.reason
    bad = results(row(0.2, 0.3))
    bad["cases"].append({**bad["cases"][0], "status": status})
    assert judge_gates(bad)[0].outcome == "fail"


@pytest.mark.parametrize("scores", [{}, {"accuracy": None}, {"auc": 0.5}])
def test_a_case_without_this_score_never_passes(scores: dict[str, Any]) -> None:
    document = results(row())
    document["cases"].append({**document["cases"][0], "scores": scores})
    found = judge_gates(document)[0]
    assert found.outcome == "inconclusive" and "of 2, 1 without this score" in found.reason


@pytest.mark.parametrize(
    "changes", [{"gate": 5}, {"gate": [RULE | {"limit": 10**400}]}, {"plans": [1]}, {"defence": [1]}]
)
def test_results_with_altered_plans_are_refused_or_judged(changes: dict[str, Any]) -> None:
    document = results(row())
    document["plan"] |= changes
    try:
        assert judge_gates(document)[0].outcome == "pass"
    except BadInput as refused:
        assert refused.argument.startswith("gate")


def test_a_pass_without_power_is_doubted_and_strictly_none() -> None:
    open_rows = [
        f"not above the margin, but {NO_POWER_CHECK}",
        "the difference to majority may lie on either side of the margin 0.05",  # nothing waits for a check
        NO_ROOM,
        f"not above the margin, but {NOT_ALL_ENDED}; of 8 cases: 1 without this score",
    ]
    for changes in (*({"reason": one, "verdict": "inconclusive"} for one in open_rows), {"n": 3}):
        document = results(row(**changes))
        found = judge_gates(document)[0]
        assert found.outcome == "pass" and found.doubt
        assert judge_gates(document, strict=True)[0].outcome == "inconclusive"
    for shown in ("no leak found", "leaks"):
        assert judge_gates(results(row(verdict=shown)), strict=True)[0].outcome == "pass"


def test_what_was_not_measured_is_inconclusive() -> None:
    found = judge_gates(results(row(), gate=[RULE | {"metric": "auc"}]))[0]
    assert found.outcome == "inconclusive" and found.reason == "it was not measured"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"attack": "b"}, "gate\\[0\\].attack"),
        ({"defence": "dp"}, "gate\\[0\\].defence"),
        ({"role": "postman"}, "gate\\[0\\].role"),
        ({"metric": "acuracy"}, "accuracy"),
        ({"metric": "mse"}, "mse_over_floor"),
    ],
)
def test_names_that_the_results_do_not_know_are_refused(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        judge_gates(results(row(), gate=[RULE | rule]))


def test_no_limit_at_all_is_refused() -> None:
    with pytest.raises(BadInput, match="--policy"):
        judge_gates(results(row(), gate=[]))


def test_a_policy_stands_in_place_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('format = 1\n[[gate]]\nattack = "a"\nmetric = "accuracy"\nlimit = 1\n')
    assert judge_gates(results(row(), gate=[]), read_policy(path))[0].outcome == "pass"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one"),
        ("gate = 3", "at least one"),
        ("gate = [3]", "table"),
        ("[[gate]]\nattack = 'a'\nmetric = 'auc'", "limit"),
        ("[[gate]]\nattack = 'a'\nmetric = 'auc'\nlimit = '1'", "a finite number"),
        ("[[gate]]\nattack = 'a'\nmetric = 'auc'\nlimit = nan", "a finite number"),
        ("[[gate]]\nattack = 'a'\nmetric = 'auc'\nlimit = true", "a finite number"),
        ("[[gate]]\nattack = 7\nmetric = 'auc'\nlimit = 1", "a text"),
        ("[[gate]]\natack = 'a'\nmetric = 'auc'\nlimit = 1", "attack"),
        ("[[limit]]\nattack = 'a'", "limit"),
        (f"[[gate]]\nattack = 'a'\nmetric = 'auc'\nlimit = 1{'0' * 400}", "a finite number"),
        (f"[[gate]]\nattack = 'a'\nmetric = 'auc'\nlimit = 1{'0' * 5000}", "TOML"),
        ("[[gate", "TOML"),
    ],
)
def test_a_policy_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_policy(path)
    with pytest.raises(BadInput, match="Check the path"):
        read_policy(tmp_path / "nowhere.toml")
