"""The chooser, by hand: limits by the upper end, the worst attacker, utility, and saying that none holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge.gate import DefenceChoice, Recommendation, recommend
from fedxray.audit.judge.verdict import POWER_FAILED
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.cli.decide import CAUTION, recommend_lines, run_recommend
from fedxray.errors import BadInput
from tests.audit.plans import tiny

GATE = {"attack": "a", "metric": "accuracy_over_floor", "limit": 0.1}


def row(defence: str, high: float | None, **more: Any) -> dict[str, Any]:
    mean = None if high is None else high - 0.05
    return {
        "attack": "a", "role": "server", "defence": defence, "aware": None, "metric": "accuracy", "oracle": False,
        "difference": mean, "low": mean, "high": high, "mean": 0.6, "mean_low": 0.6, "mean_high": 0.7,
        "n": 9, "reason": "", "primary": True, "state": "no leak found", "margin": 0.05, "upper": high, **more,
    }  # fmt: skip


def worth(defence: str, value: float | None, metric: str = "accuracy", epsilon: float | None = None) -> dict[str, Any]:
    spread = {"low": None, "high": None} if value is None else {"low": value - 0.1, "high": value + 0.1}
    return {"defence": defence, "metric": metric, "value": value, **spread, "n": 2, "epsilon": epsilon}


def document(rows: list[Any], utility: list[Any], gates: list[Any] | None = None) -> dict[str, Any]:
    plan = {"gate": [GATE] if gates is None else gates}
    return {"plan": plan, "cases": [], "summary": rows, "utility": utility}


def chosen(*arguments: Any) -> str | None:
    found = recommend(document(*arguments)).chosen
    return None if found is None else found.defence


def test_of_those_that_hold_the_one_of_best_utility() -> None:
    rows = [row("none", 0.5), row("weak", 0.1), row("strong", 0.0)]
    utility = [worth("none", 0.9), worth("weak", 0.8), worth("strong", 0.7)]
    assert chosen(rows, utility) == "weak"
    found = recommend(document(rows, utility))
    assert [one.cost for one in found.settings] == pytest.approx([0.0, 0.1, 0.2])
    assert [one.holds for one in found.settings] == [False, True, True]


def test_a_setting_no_better_than_a_constant_guess_is_not_recommended() -> None:
    rows = [row("none", 0.5), row("weak", 0.1), row("strong", 0.0)]
    utility = [{**worth(name, value), "guess": 0.65} for name, value in (("none", 0.9), ("weak", 0.8), ("strong", 0.7))]
    assert chosen(rows, utility) == "weak"
    found = recommend(document([rows[0], rows[2]], utility))
    assert found.chosen is None and found.settings[1].holds
    said = [line.replace("\N{NO-BREAK SPACE}", " ") for line in recommend_lines(found)]
    note = "the model is then not shown to be better than a constant guess (65.0 %): try a weaker setting"
    assert said[-1] == f"No recommendation: strong would keep every limit, but {note}." and note in said[-2]
    for vague in (utility[1:], [{**utility[0], "low": 0.6}, *utility[1:]]):
        assert chosen([rows[0], rows[2]], vague) == ("strong" if len(vague) == 3 else None)
    never = [{**one, "guess": 0.95} for one in utility]  # no setting learns: that is not the defence's doing
    assert chosen(rows, never) == "weak"


def test_less_loss_is_better() -> None:
    rows = [row("none", 0.0), row("weak", 0.0)]
    assert chosen(rows, [worth("none", 3.0, "loss"), worth("weak", 2.0, "loss")]) == "weak"
    assert chosen(rows, [worth("none", 0.1, "mape"), worth("weak", 0.2, "mape"), worth("weak", 0, "loss")]) == "none"


def test_the_upper_end_counts_and_the_worst_attacker() -> None:
    assert chosen([row("weak", 0.11)], [worth("weak", 0.9)]) is None
    both = [row("weak", 0.05, aware=False), row("weak", 0.2, aware=True)]
    assert chosen(both, [worth("weak", 0.9)]) is None
    seats = [row("weak", 0.05), row("weak", 0.2, role="eavesdropper")]
    assert chosen(seats, [worth("weak", 0.9)]) is None
    assert chosen(seats, [worth("weak", 0.9)], [{**GATE, "role": "server"}]) == "weak"


def test_a_gain_is_stated_up_to_what_its_floor_leaves() -> None:
    (setting,) = recommend(document([row("none", 0.5, floor=0.723)], [])).settings
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in setting.broken] == [
        "a accuracy_over_floor 45 points, up to 27.7 points"
    ]


def test_what_diverged_asks_for_no_more_seeds() -> None:
    reason = "no case ended; of 9 cases: 9 diverged"
    (setting,) = recommend(document([row("none", None, state="open", reason=reason)], [])).settings
    assert setting.broken == (f"a accuracy_over_floor: nothing was measured: {reason}",)


def test_what_was_not_measured_keeps_nothing_and_an_oracle_does_not_count() -> None:
    assert chosen([row("weak", None)], [worth("weak", 0.9)]) is None
    assert chosen([row("weak", 0.0, metric="auc")], [worth("weak", 0.9)]) is None
    assert chosen([row("weak", 0.0), row("weak", 0.9, oracle=True)], [worth("weak", 0.9)]) == "weak"


@pytest.mark.parametrize("status", ["failed", "diverged", "undetermined", "truncated", "refused"])
def test_an_attack_that_did_not_end_keeps_nothing(status: str) -> None:
    rows, utility = [row("weak", 0.0), row("strong", 0.0)], [worth("weak", 0.9), worth("strong", 0.8)]
    case = {"attack": "a", "role": "server", "defence": "weak", "aware": None, "scores": {"accuracy": 0.6}}
    cases = [{**case, "status": "ok"}, {**case, "status": status}, {**case, "defence": "strong", "status": "ok"}]
    found = recommend({**document(rows, utility), "cases": cases})
    assert found.chosen is not None and found.chosen.defence == "strong"
    assert found.settings[0].broken == (f"a accuracy_over_floor: not every case ended: of 2, 1 {status}",)
    assert chosen(rows, utility) == "weak"


def test_plain_metrics_and_several_limits() -> None:
    gates = [GATE, {"attack": "a", "metric": "accuracy", "limit": 0.65}]
    assert chosen([row("weak", 0.0)], [worth("weak", 0.9)], gates) is None
    assert chosen([row("weak", 0.0, mean_high=0.65)], [worth("weak", 0.9)], gates) == "weak"


def test_a_limit_is_not_kept_by_an_attack_that_may_see_nothing() -> None:
    rows = [row("weak", 0.0, state="open", reason=POWER_FAILED), row("strong", 0.0), row("none", 0.5)]
    utility = [worth("weak", 0.9), worth("strong", 0.8), worth("none", 0.95)]
    found = recommend(document(rows, utility))
    assert found.chosen is not None and found.chosen.defence == "strong"
    assert found.settings[0].broken == (f"a accuracy_over_floor: {POWER_FAILED}",)
    for state in ("trace", "blinded"):
        assert chosen([row("weak", 0.0, state=state)], utility) is None


def test_without_utility_the_first_that_holds() -> None:
    assert chosen([row("none", 0.5), row("weak", 0.0), row("strong", 0.0)], []) == "weak"
    assert chosen([row("weak", 0.0), row("strong", 0.0)], [worth("weak", None), worth("strong", 0.2)]) == "strong"


def test_a_plan_without_limits_is_refused() -> None:
    with pytest.raises(BadInput, match=r"gate: expected at least one \[\[gate\]\]"):
        recommend(document([row("none", 0.0)], [], []))


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"attack": "a"}, r"gate\[0\]\.metric: expected a value, got nothing"),
        ({**GATE, "limit": "x"}, r"gate\[0\]\.limit: expected a finite number"),
        ({**GATE, "odd": 1}, r"gate\[0\]\.odd"),
        ("all", r"gate\[0\]: expected a table"),
    ],
)
def test_limits_that_were_altered_are_refused(gate: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        recommend(document([row("none", 0.0)], [], [gate]))


def test_attacks_without_a_limit_are_named() -> None:
    rows = [row("none", 0.0), row("none", 0.0) | {"attack": "b"}]
    lines = recommend_lines(recommend(document(rows, [])))
    assert "  no limit: b, which does not count" in lines


def test_a_limit_in_points_is_refused_with_the_share_that_is_meant() -> None:
    with pytest.raises(BadInput, match=r"0\.05 is 5.points"):
        recommend(document([row("none", 0.0)], [], [{**GATE, "limit": 5}]))


def test_what_is_printed() -> None:
    rows, utility = ([row("none", 0.5), row("weak", 0.0)], [worth("none", 0.9), worth("weak", 0.8, epsilon=3.0)])
    lines = recommend_lines(recommend(document(rows, utility)))
    said = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    assert "  a: accuracy_over_floor at most 10 points" in said
    assert "  none  breaks  accuracy 90.0 % (80.0 to 100.0 %), cost 0 points" in said
    assert "                a accuracy_over_floor 45 points, up to 50 points" in said
    assert "  weak  holds   accuracy 80.0 % (70.0 to 90.0 %), cost 10 points, epsilon 3" in said
    assert said[-2:] == ["Recommended: weak", CAUTION]
    assert recommend_lines(recommend(document(rows[:1], [])))[-1] == "No recommendation: no setting keeps every limit."
    wide = recommend_lines(recommend(document([row("wide", 0.2, low=-0.1)], [])))
    assert wide[3].startswith("  wide  open") and wide[-1].endswith("no setting is shown to keep every limit.")


def test_on_the_results_of_an_audit_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept = {"name": "gaussian-noise", "label": "noise"}
    gate = {"attack": "attribute-from-model", "metric": "accuracy_over_floor", "limit": 0.9}
    plan = make_plan(
        tiny(seeds=[0, 1], defence=[{"name": "none"}, swept], sweep={"noise": {"scale": [0.01, 1.0]}}, gate=[gate]),
        tmp_path,
    )
    run_audit(plan, tmp_path / "out")
    assert run_recommend(tmp_path / "out") == 1  # two runs reassure nobody
    said = capsys.readouterr().out
    assert "noise[scale=0.01]" in said and "noise[scale=1]" in said and "No recommendation" in said
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    shown = {"state": "no leak found", "verdict": "no leak found", "upper": 0.04, "low": -0.1, "high": 0.04}
    content["summary"] = [one | shown for one in content["summary"]]
    (tmp_path / "out" / "results.json").write_text(json.dumps(content))
    assert run_recommend(tmp_path / "out") == 0 and "Recommended: " in capsys.readouterr().out
    content["plan"]["gate"][0]["limit"] = -2.0
    (tmp_path / "out" / "results.json").write_text(json.dumps(content))
    assert run_recommend(tmp_path / "out") == 1
    code = (
        "import sys\nfrom pathlib import Path\nfrom fedxray.cli.decide import run_recommend\n"
        f"assert run_recommend(Path({str(tmp_path / 'out')!r})) == 1 and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_no_control_character_reaches_the_terminal() -> None:
    """Before, a defence's label or a reason of an altered results.json was printed as it is."""
    odd = DefenceChoice(defence="a\x1b[2J", broken=("b\x07\n",), metric="m\x9b", value=0.5)
    chosen = DefenceChoice(defence="c\x1b[2J", broken=())
    lines = recommend_lines(Recommendation(settings=(odd, chosen), chosen=chosen, limits=("e\x1b",)))
    assert all(line.isprintable() for line in lines)
