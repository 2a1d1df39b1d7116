"""Two audits side by side: worse, better, the same, and what cannot be matched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fedxray.audit.judge.compare import MATCHED, compare
from fedxray.cli.decide import compare_lines
from fedxray.errors import BadInput


def row(low: float | None, high: float | None, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"attack": "a", "role": "server", "defence": "none", "aware": None}
    made |= {"metric": "accuracy", "oracle": False, "state": "leaks", "over": "majority", "low": low}
    made |= {"n": 8, "reason": "it is so", "primary": True, "upper": high}
    return made | {"high": high, "difference": None if low is None or high is None else (low + high) / 2} | changes


def useful(low: float, high: float, metric: str = "accuracy") -> dict[str, Any]:
    return {"defence": "none", "metric": metric, "value": (low + high) / 2, "low": low, "high": high}


def audit(*rows: dict[str, Any], utility: list[Any] | None = None, runs: int = 1, **plan: Any) -> dict[str, Any]:
    ended = {"status": "ok", "scores": {one["metric"]: 0.6 for one in rows}}
    cases = [{name: one[name] for name in MATCHED[:4]} | {"seed": seed} | ended for one in rows for seed in range(runs)]
    return {"plan": plan, "summary": list(rows), "cases": cases, "utility": utility or []}


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(0, 1))
def test_worse_exactly_where_the_intervals_do_not_touch(
    low: float, width: float, other: float, other_width: float
) -> None:
    found = compare(audit(row(low, low + width)), audit(row(other, other + other_width)))
    expected = "worse" if other > low + width else "better" if other + other_width < low else "same"
    assert found.changes[0].outcome == expected and found.worse == (expected == "worse")
    back = compare(audit(row(other, other + other_width)), audit(row(low, low + width))).changes[0].outcome
    assert back == {"worse": "better", "better": "worse", "same": "same"}[expected]


def test_utility_is_worse_on_its_own_side() -> None:
    for metric, outcome in (("accuracy", "worse"), ("loss", "better"), ("mape", "better")):
        first = audit(row(0, 1), utility=[useful(0.8, 0.9, metric)])
        second = audit(row(0, 1), utility=[useful(0.5, 0.6, metric)])
        assert [one.outcome for one in compare(first, second).changes if one.what == "utility"] == [outcome]


def test_rows_are_matched_by_what_they_are_about_and_oracles_are_left_out() -> None:
    first = audit(row(0, 0.1), row(0, 0.1, aware=True, defence="dp"), row(0, 0.1, attack="old"))
    second = audit(row(0.2, 0.3), row(0.2, 0.3, aware=False, defence="dp"), row(0.9, 1.0, attack="old", oracle=True))
    found = compare(first, second)
    assert [one.title for one in found.changes] == ["a (server), none: accuracy_over_floor"]
    assert found.only_first[1] == "old (server), none" and found.only_second == (
        "a (server), dp, does not know the defence: accuracy_over_floor",
    )


def test_a_missing_interval_says_nothing() -> None:
    found = compare(audit(row(None, None)), audit(row(0.5, 0.6)))
    assert found.changes[0].outcome == "unknown" and not found.worse


@pytest.mark.parametrize("status", ["failed", "diverged", "truncated"])
def test_an_attack_that_did_not_end_makes_nothing_better_but_may_be_worse(status: str) -> None:
    strong, weak = audit(row(0.4, 0.5)), audit(row(0.0, 0.1, state="open"))
    weak["cases"].append({**weak["cases"][0], "status": status})
    found = compare(strong, weak)
    assert found.changes[0].outcome == "unknown" and f"of 2, 1 {status}" in found.changes[0].note
    assert compare_lines(found)[-1].endswith("; 1 of the first's rows could not be compared.")
    worse = audit(row(0.7, 0.8))
    worse["cases"].append({**worse["cases"][0], "status": status})
    assert compare(strong, worse).worse


def test_an_attack_that_may_see_nothing_is_better_with_a_doubt() -> None:
    blind = row(0.0, 0.1, state="open", reason="the power check failed")
    found = compare(audit(row(0.4, 0.5)), audit(blind)).changes[0]
    assert found.outcome == "better" and "doubt: the power check failed" in found.note
    seen = compare(audit(row(0.4, 0.5)), audit(row(0.0, 0.1, state="no leak found"))).changes[0]
    assert seen.outcome == "better" and "doubt" not in seen.note


@pytest.mark.parametrize(
    ("old", "new", "runs", "outcome"),
    [
        ("no leak found", "leaks", 3, "leaks"),
        ("trace", "leaks", 3, "leaks"),
        ("suspected", "leaks", 5, "leaks"),  # with as many runs
        ("suspected", "leaks", 3, "changed"),
        ("open", "leaks", 3, "changed"),
        ("leaks", "open", 5, "changed"),
        ("leaks", "leaks", 3, "same"),
    ],
)
def test_a_verdict_that_changed_within_the_intervals(old: str, new: str, runs: int, outcome: str) -> None:
    found = compare(audit(row(0.0, 0.2, state=old), runs=runs), audit(row(0.05, 0.2, state=new), runs=5))
    assert found.changes[0].outcome == outcome and found.worse == (outcome == "leaks")
    lines, counted = compare_lines(found), "Same within the intervals"
    assert any(line.startswith(counted) for line in lines) == (outcome == "same")
    if outcome != "same":
        assert lines[2] == f"    {old} → {new}" and "points" in lines[1]
    ending = {"leaks": "Something got worse.", "same": "both leak."}.get(outcome, "the second leaks.")
    assert lines[-1].endswith(ending if new == "leaks" else "the intervals.")


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(BadInput, match="same labels"):
        compare(audit(row(0, 1)), audit(row(0, 1, attack="b")))


def test_other_records_under_the_same_name_are_refused() -> None:
    first, other = ({**audit(row(0, 1)), "data": {"records": 600, "sha256": name}} for name in ("a", "b"))
    assert not compare(first, first).worse and not compare(first, audit(row(0, 1))).worse  # older results have none
    with pytest.raises(BadInput, match=r"other contents \(600 records each\).*--other-data"):
        compare(first, other)
    with pytest.raises(BadInput, match=r"\(600 records and 420\)"):
        compare(first, {**other, "data": {"records": 420, "sha256": "b"}})
    assert not compare(first, other, other_data=True).worse


def test_what_differs_in_the_plans_is_named() -> None:
    first = audit(row(0, 1), name="x", model={"hidden": [4]}, attack=[{"name": "a", "steps": 3}])
    second = audit(row(0, 1), name="y", model={"hidden": [8], "width": 2}, attack=[{"name": "a", "steps": 4}])
    assert compare(first, second).plans_differ == ("model.hidden[0]", "model.width", "attack[0].steps")


def test_what_is_printed() -> None:
    first = audit(row(0.0, 0.1, state="no leak found"), row(0.4, 0.5, metric="auc"), row(0, 1, metric="psnr"))
    second = audit(row(0.2, 0.3), row(0.1, 0.2, metric="auc"), row(0, 1, metric="psnr", over="mean-image"))
    text = [line.replace("\N{NO-BREAK SPACE}", " ") for line in compare_lines(compare(first, second))]
    assert text == [
        "Worse, beyond the intervals:",
        "  a (server), none: accuracy_over_floor: +5.0 points (0.0 to +10.0 points) → "
        "+25.0 points (+20.0 to +30.0 points)",
        "    no leak found → leaks",
        "Better, beyond the intervals:",
        "  a (server), none: auc_over_floor: +0.450 (+0.400 to +0.500) → +0.150 (+0.100 to +0.200)",
        "Same within the intervals: 1 of 3 rows.",
        "  a (server), none: psnr_over_floor: +0.5 dB (0.0 to +1.0 dB) → +0.5 dB (0.0 to +1.0 dB)",
        "    strongest floor majority → mean-image",
        "Something got worse.",
    ]
    lost = row(None, None, difference=None, over=None)
    text = compare_lines(compare(first, audit(lost)))
    assert not any("None" in line for line in text)
    near = audit(row(0.241, 0.296, floor=0.723))
    assert "+24.1 to +27.7" in compare_lines(compare(near, audit(row(0.6, 0.7))))[1]
    many = audit(*(row(0, 1, attack=f"a{place}") for place in range(14)))
    text = compare_lines(compare(audit(row(0, 1, attack="a0")), many))
    assert text[-2].startswith("Only in the second: a1 (") and text[-2].endswith("; and 3 more.")
    assert text[-1] == "Nothing got worse beyond the intervals, but both leak."


def test_names_cannot_steer_the_terminal() -> None:
    text = compare_lines(compare(audit(row(0, 0.1, attack="a\x1b[2J")), audit(row(0.2, 0.3, attack="a\x1b[2J"))))
    assert "\x1b" not in "".join(text)


def test_audits_of_different_data_are_compared_only_if_told() -> None:
    first = audit(row(0, 1), data={"path": "2024/visits.csv", "sensitive": "smoker", "clients": 3})
    moved = audit(row(0, 1), data={"path": "2025/visits.csv", "sensitive": "smoker", "clients": 4})
    other = audit(row(0, 1), data={"name": "clinic", "sensitive": "sex"})
    assert compare(first, moved).plans_differ == ("data.path", "data.clients")
    with pytest.raises(BadInput, match=r"data\.sensitive 'smoker' and 'sex'.*--other-data"):
        compare(first, other)
    assert compare(first, other, other_data=True).changes
