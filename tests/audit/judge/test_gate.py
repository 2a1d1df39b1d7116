"""Limits: what passes, what fails, what stays open, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge.gate import judge_gates, read_policy, recommend
from fedxray.cli.decide import gate_lines
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
    made |= {"primary": True, "upper": high, "margin": 0.05, "state": "no leak found", "reason": "not above the margin"}
    return made | changes


def results(*rows: dict[str, Any], gate: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    cases = [
        {name: one[name] for name in ("attack", "role", "defence", "aware")}
        | {"status": "ok", "scores": {one["metric"]: 0.6}}
        for one in rows
    ]
    plan = {"gate": gate if gate is not None else [RULE], "defence": [{"name": "none"}]}
    return {"plan": plan, "summary": list(rows), "cases": cases, "utility": []} | changes


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 0.999))
def test_pass_fail_and_inconclusive_are_exactly_the_rule(low: float, width: float, limit: float) -> None:
    high = low + width
    for state in ("leaks", "small", "no leak found", "trace", "open", "blinded"):
        found = judge_gates(results(row(low, high, state=state), gate=[RULE | {"limit": limit}]))[0]
        fails = low > limit or (state in ("leaks", "small") and (low + high) / 2 > limit)
        passes = state in ("leaks", "small", "no leak found") and high <= limit
        assert found.outcome == ("fail" if fails else "pass" if passes else "inconclusive")
        assert (found.low, found.high, found.state) == (low, high, state)


def test_a_plain_metric_is_judged_on_the_interval_of_its_mean() -> None:
    for limit, outcome in ((0.7, "pass"), (0.6, "inconclusive"), (0.5, "fail")):
        rule = {"attack": "a", "metric": "accuracy", "limit": limit}
        found = judge_gates(results(row(), gate=[rule]))[0]
        assert found.outcome == outcome and (found.value, found.low, found.high) == (0.6, 0.55, 0.65)


def rare(low: float, high: float, state: str) -> dict[str, Any]:
    """A row of an attribute of which one value is rare: the verdict is by balanced accuracy."""
    return row(low, high, metric="balanced_accuracy", state=state, reason="+10.6 points over imputation")


def test_a_limit_on_accuracy_follows_the_metric_of_the_verdict() -> None:
    rows = (row(-0.06, -0.03, primary=False, state=None), rare(0.071, 0.139, "leaks"))
    found = judge_gates(results(*rows, gate=[RULE | {"limit": 0.05}]))[0]
    assert (found.outcome, found.low, found.measured) == ("fail", 0.071, "balanced_accuracy")
    assert gate_lines([found])[1].replace("\N{NO-BREAK SPACE}", " ").strip() == (
        "balanced accuracy +10.5 points (95 % interval +7.1 to +13.9 points) by the server, state leaks: "
        "it leaks, above 5 points"
    )
    plain = RULE | {"metric": "accuracy", "limit": 0.7}  # the score itself is judged as it is
    assert judge_gates(results(*rows, gate=[plain]))[0].measured == "accuracy"


def test_no_limit_passes_beside_a_leak_that_nothing_limits() -> None:
    other = row(0.0, 0.02, metric="auc", primary=False, state=None)
    document, rule = results(other, rare(0.071, 0.139, "leaks")), {**RULE, "metric": "auc_over_floor"}
    for case in document["cases"]:
        case["scores"] = {"auc": 0.6, "balanced_accuracy": 0.6}
    found = judge_gates(document, [rule])[0]
    assert found.outcome == "inconclusive" and found.reason.replace("\N{NO-BREAK SPACE}", " ") == (
        "the verdict's metric balanced accuracy leaks (+10.5 points): limit that one"
    )
    assert "state of balanced accuracy leaks: " in gate_lines([found])[1]
    for metric in ("balanced_accuracy_over_floor", "accuracy_over_floor"):
        assert judge_gates(document, [rule, {**RULE, "metric": metric, "limit": 0.2}])[0].outcome == "pass"
        elsewhere = {**RULE, "metric": metric, "limit": 0.2, "defence": "none"}
        assert judge_gates(document, [rule, elsewhere])[0].outcome == "inconclusive"
    choice = recommend(document, [rule])
    assert choice.chosen is None and "limit that one" in choice.settings[0].broken[0]


def test_every_number_names_its_metric() -> None:
    rows = (row(0.0, 0.2, metric="auc", primary=False, state=None), rare(-0.1, 0.3, "open"))
    document = results(*rows, gate=[RULE | {"metric": "auc_over_floor"}])
    for case in document["cases"]:
        case["scores"] = {"auc": 0.6, "balanced_accuracy": 0.6}
    found = judge_gates(document)[0]
    assert found.reason == "the interval contains 0.1; verdict by balanced accuracy: +10.6 points over imputation"
    assert gate_lines([found])[1].lstrip().startswith("ROC AUC +0.100 ")
    passed = gate_lines(judge_gates(results(row())))[1]
    assert "accuracy +2.5" in passed and ", state no leak found: no leak found above" in passed


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


def test_an_attacker_who_cannot_use_the_defence_never_stands_for_one_who_can() -> None:
    unaware = row(-0.01, 0.02, defence="d", aware=False)
    deaf = row(-0.01, 0.02, defence="d", aware=True, adapts=False, state="open", reason="no attacker who knows it")
    assert judge_gates(results(unaware, deaf))[0].outcome == "pass"
    alone = judge_gates(results(deaf))[0]
    assert (alone.outcome, alone.reason) == ("inconclusive", "no attacker who knows it")


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


def test_an_open_row_passes_only_with_power_under_the_same_defence() -> None:
    check = {"attack": "a", "role": "server", "metric": "accuracy", "passed": True, "reason": ""}
    for state, outcome in (("open", "pass"), ("coarse", "pass"), ("suspected", "pass"), ("trace", "inconclusive")):
        assert judge_gates(results(row(state=state)))[0].outcome == "inconclusive"
        assert judge_gates(results(row(state=state), power=[check]))[0].outcome == outcome
    defended = row(state="open", defence="d", aware=True)
    plan = {"gate": [RULE], "defence": [{"name": "d"}]}
    for power, outcome in (
        ([check], "inconclusive"),
        ([check | {"defence": "d", "aware": False}], "inconclusive"),
        ([check | {"defence": "d", "aware": True}], "pass"),
        ([check | {"defence": "d", "aware": True, "passed": False}], "inconclusive"),
    ):
        assert judge_gates(results(defended, plan=plan, power=power))[0].outcome == outcome
    few = results(row(upper=None), power=[check])  # one or two runs
    assert judge_gates(few)[0].outcome == "inconclusive"


def test_no_leak_found_passes_by_its_own_bound() -> None:
    for upper, outcome in ((0.09, "pass"), (0.11, "inconclusive")):
        assert judge_gates(results(row(-0.1, 0.12, upper=upper)))[0].outcome == outcome
        little = judge_gates(results(row(0.01, 0.12, upper=upper, state="small")))[0]
        assert little.outcome == outcome and ("leaks a little" in little.reason) == (outcome == "pass")
        stopped = judge_gates(results(row(-0.1, 0.12, upper=upper, state="stopped")))[0]
        assert stopped.outcome == outcome and ("another may succeed" in stopped.reason) == (outcome == "pass")


def test_another_metric_is_judged_with_the_state_of_the_primary_one() -> None:
    rule = RULE | {"metric": "balanced_accuracy_over_floor"}
    other = row(metric="balanced_accuracy", primary=False, state=None, upper=None)
    for state, outcome in (
        ("no leak found", "pass"),
        ("stopped", "pass"),
        ("trace", "inconclusive"),
        ("blinded", "inconclusive"),
    ):
        document = results(other, gate=[rule])
        document["summary"].append(row(state=state))
        found = judge_gates(document)[0]
        assert (found.outcome, found.state) == (outcome, state)
    wide = results(row(0.0, 0.2, metric="balanced_accuracy", primary=False, state=None, upper=None), gate=[rule])
    wide["summary"].append(row(state="no leak found"))
    assert judge_gates(wide)[0].outcome == "inconclusive"


@pytest.mark.parametrize(("metric", "limit"), [("accuracy", 1), ("accuracy_over_floor", 1.0), ("auc_over_floor", 0.5)])
def test_a_limit_that_can_never_fail_is_refused(metric: str, limit: float) -> None:
    rule = RULE | {"metric": metric, "limit": limit}
    with pytest.raises(BadInput, match="never fail"):
        judge_gates(results(row(metric="auc" if "auc" in metric else "accuracy"), gate=[rule]))
    judge_gates(results(row(metric="psnr"), gate=[RULE | {"metric": "psnr_over_floor", "limit": 50.0}]))


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
    path.write_text('format = 1\n[[gate]]\nattack = "a"\nmetric = "accuracy"\nlimit = 0.9\n')
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
