"""Tables and figures of Song et al. 2023 (AWA): printed numbers, cases and attacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedxray.attacks.inversion.awa import PRESETS, RANGES, Match
from fedxray.audit.judge.results import read_results
from fedxray.audit.plan import make_plan
from fedxray.errors import BadInput
from fedxray.reproduce import awa
from fedxray.reproduce.base import REPRODUCTIONS, Follows, Reproduction, Request, find
from fedxray.reproduce.run import ReproductionJob, reproduce

PAPER, SMALL = Request(scale="paper"), Request()
LIKE_ALL = {"label", "steps", "restarts", "grants", "controls", "metrics", "targets"}
NAMES = [name for name in REPRODUCTIONS if name.startswith("awa-")]


def plans(request: Request = PAPER, *names: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, row and plan of every row."""
    for name in names or NAMES:
        reproduction = find(name)
        for row in reproduction.rows if reproduction.plan is not None else ():
            assert reproduction.plan is not None
            yield name, row, reproduction.plan(request, row)


def by_label(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["label"]: one for one in plan["attack"]}


@pytest.mark.parametrize(
    ("case", "column", "numbers"),
    [
        ("case1", "dlg", (14.06, 0.534, 0.042)),
        ("case1", "agic", (15.89, 0.689, 0.028)),
        ("case1", "awa-sent", (22.40, 0.935, 0.006)),
        ("case2", "dlg", (16.43, 0.739, 0.024)),
        ("case2", "awa-sent", (20.40, 0.901, 0.009)),
        ("case3", "agic", (15.63, 0.718, 0.029)),
        ("case3", "awa-sent", (22.47, 0.936, 0.006)),
        ("case4", "agic", (16.41, 0.734, 0.025)),
        ("case4", "awa-sent", (19.68, 0.882, 0.011)),
    ],
)
def test_printed_numbers_are_in_their_cells(case: str, column: str, numbers: tuple[float, float, float]) -> None:
    cell = find("awa-table4").paper.numbers[case][column]
    for ending in ("", "_by_index"):
        assert tuple(cell[f"{name}{ending}"] for name in ("psnr_awa", "ssim_awa", "mse")) == numbers


def test_unprinted_cells_have_no_number() -> None:
    printed = find("awa-table4").paper.numbers
    assert "dlg" not in printed["case4"] and printed["case1-1000"] == printed["case1"]
    assert all({"awa-sent", "agic", "dlg"} >= set(columns) for columns in printed.values())
    ends = find("awa-iterations").paper.numbers
    assert {case: cells["awa-3000"]["ssim_awa"] for case, cells in ends.items()} == {
        "case1": 0.9658, "case2": 0.9613, "case3": 0.9595, "case4": 0.9135,
    }  # fmt: skip
    assert not any(find(f"awa-{name}").paper.numbers for name in ("search", "stages", "gain"))


@pytest.mark.parametrize(
    ("case", "epochs", "batch"), [("case1", 1, 4), ("case2", 4, 4), ("case3", 1, 1), ("case4", 2, 2)]
)
def test_the_four_cases_are_those_of_the_paper(case: str, epochs: int, batch: int) -> None:
    for name in ("awa-table4", "awa-iterations"):
        recipe = find(name).plan(PAPER, case)["federation"]  # type: ignore[misc]
        assert (recipe["rounds"], recipe["epochs"], recipe["batch_size"], recipe["learning_rate"]) == (
            1,
            epochs,
            batch,
            1e-3,
        )


@pytest.mark.parametrize("request_", [PAPER, SMALL])
def test_every_plan_is_valid_with_labels_granted_and_groups_of_four(request_: Request) -> None:
    for name, row, plan in plans(request_):
        make_plan({**plan, "name": f"{name}.{row}"}, Path.cwd())
        data = plan["data"]
        two_networks = name == "awa-table4" and request_ is PAPER
        assert data["name"] == "cifar10" and plan["seeds"] == ([0, 1] if two_networks else [0])
        assert data.get("distinct_classes", False) == row.endswith("-distinct")
        dealt = [round(0.8 * size) for size in data.get("sizes", ())[:4]]
        assert data.get("limit") == 4 or dealt == [4] * 4, (name, row)
        for attack in plan["attack"]:
            assert attack["grants"] == ["recipe", "examples", "labels"], "as the paper has them"
            assert attack["controls"] == ["held-out"]
            groups = [0] if request_ is SMALL else [0, 1, 2, 3]
            assert attack["targets"] == ([4] if row.endswith("study") else groups), (name, row)


def test_table_4_has_its_attacks_as_the_paper_ran_them_and_in_learning_rates() -> None:
    attacks = by_label(awa.plan_table4(PAPER, "case2"))
    assert list(attacks) == ["awa", "awa-sent", "awa-untuned", "awa-decay", "agic", "agic-rate", "dlg", "dlg-rate"]
    assert "preset" not in attacks["awa"] and attacks["awa-untuned"]["preset"] == "ramp"
    assert (attacks["dlg"]["reading"], attacks["dlg"].get("unit"), attacks["dlg-rate"]["unit"]) == (
        "song",
        None,
        "rate",
    )
    assert attacks["agic"]["optimiser"] == "adam" and attacks["agic"]["total_variation"] == 0
    assert "match" not in attacks["agic"] and attacks["agic-rate"]["match"] == "l2"
    for one in (attacks["dlg"], attacks["dlg-rate"], attacks["agic"], attacks["agic-rate"]):
        assert one["start"] == "uniform" and one["box"] is True, "as awa by itself"
    assert {one["steps"] for one in attacks.values()} == {250}
    assert {one["steps"] for one in awa.plan_table4(SMALL, "case1")["attack"]} == {100}
    assert attacks["awa-decay"] == {
        **attacks["awa-untuned"], "label": "awa-decay", "decay": "cosine", "total_variation": 1e-3
    }  # fmt: skip
    long = awa.plan_table4(PAPER, "case1-1000")
    assert {one["steps"] for one in long["attack"]} == {1000}
    assert {**long, "attack": None} == {**awa.plan_table4(PAPER, "case1"), "attack": None}


def test_the_network_is_the_usual_one_at_full_width() -> None:
    for name, row, plan in plans():
        model = plan["model"]
        usual = {"name": "resnet18", "norm": "running", "stem": "cifar", "head_bias": True, "width": 64}
        if name != "awa-settings":
            assert model == usual, (name, row)
        elif row in ("running", "normalised", "normal", "uniform-free", "normal-free", "undefined-first", "trained-4"):
            assert model == usual, row
        else:
            assert sum(model.get(key) != value for key, value in usual.items()) + ("init" in model) == 1, row


def test_settings_change_one_choice_each() -> None:
    assert {row for row in awa.SETTINGS_ROWS if awa.plan_settings(PAPER, row)["data"].get("normalise")} == {
        "normalised"
    }
    base = by_label(awa.plan_settings(PAPER, "running"))
    for row in awa.SETTINGS_ROWS:
        for label, one in by_label(awa.plan_settings(PAPER, row)).items():
            changed = {key for key in one if one[key] != base[label].get(key)}
            if row == "undefined-first":
                assert changed == ({"undefined"} if label == "awa" else set())
                continue
            assert changed == set(awa.SETTINGS_DUMMIES.get(row, {})) - {
                key for key in base[label] if one.get(key) == base[label][key]
            }


def test_one_descent_is_read_at_several_steps() -> None:
    attacks = awa.plan_iterations(PAPER, "case3")["attack"]
    steps = [one["steps"] for one in attacks]
    assert steps == sorted(set(steps)) and steps[-1] == 3000 and {250, 1000, 1500} <= set(steps)
    rest = [{**one, "steps": 0, "label": ""} for one in attacks]
    assert all(one == rest[0] for one in rest) and all(not one % rest[0]["kept_every"] for one in steps)
    short = awa.plan_iterations(SMALL, "case1")["attack"]
    assert [one["steps"] for one in short] == [50, 100, 150, 200, 250]


def test_stages_attack_the_rounds_after_those_that_trained() -> None:
    for row, before in (("after-0", 0), ("after-4", 4), ("after-16", 16)):
        plan = awa.plan_stages(PAPER, row)
        attacks = by_label(plan)
        assert plan["federation"]["rounds"] == before + 3
        assert plan["federation"]["record"] == [before, before + 1, before + 2]
        assert (plan["federation"]["epochs"], plan["federation"]["batch_size"]) == (1, 4)
        assert attacks["agic-rounds"]["rounds"] == [before, before + 1, before + 2]
        assert attacks["agic-rounds"]["at"] == "all"
        assert attacks["awa"]["rounds"] == attacks["agic"]["rounds"] == attacks["dlg-rate"]["rounds"] == [before]
        assert plan["data"]["sizes"][-1] * 0.8 == 1000


def test_the_study_has_the_papers_trials_and_dlg_the_same_compute() -> None:
    for case in awa.CASES:
        study, used = (by_label(awa.plan_search(PAPER, row)) for row in (f"{case}-study", case))
        sought = study["searched"]["search"]
        assert (sought["sampler"], sought["trials"], sought["starts"]) == ("gp", 50, 12)
        assert study["searched"]["steps"] == study["dlg-restarts"]["steps"] == used["dlg-restarts"]["steps"] == 100
        assert study["dlg-restarts"]["restarts"] == used["dlg-restarts"]["restarts"] == 50
        assert used["searched"]["steps"] == 250
        for one in (study["dlg-restarts"], used["dlg-restarts"]):
            own = {key: value for key, value in one.items() if key not in LIKE_ALL}
            assert own == ({"name": "awa", "preset": "none"} if case == "case4" else awa.ATTACKS["dlg-rate"])


def test_components_of_the_gain() -> None:
    attacks = by_label(find("awa-gain").plan(PAPER, "case1"))  # type: ignore[misc]
    assert (attacks["ramps"]["p_mean"], attacks["ramps"]["p_var"]) == (0, 0) and "q_conv" not in attacks["ramps"]
    assert [attacks["enhancement"][name] for name in ("q_conv", "q_norm", "q_linear")] == [1, 1, 1]
    assert "p_mean" not in attacks["enhancement"] and attacks["plain-ramp"]["preset"] == "ramp"
    assert attacks["no-weights"]["preset"] == "none"
    assert attacks["both-sent"] == {**attacks["both"], "label": "both-sent", "unit": "sent"}


def tiny(reproduction: Reproduction) -> Reproduction:
    """Return the reproduction on digits with a network of two channels and a 25th of the steps, at most four."""

    def plan(request: Request, row: str) -> dict[str, Any]:
        assert reproduction.plan is not None
        content = reproduction.plan(request, row)
        for one in content["attack"]:
            one["steps"] = min(one["steps"] // 25, 4)
            one |= {"kept_every": 2} if "kept_every" in one else {}
            one |= {"restarts": 2} if "restarts" in one else {}
            one |= {"search": {**one["search"], "trials": 4, "starts": 2}} if "search" in one else {}
        network = {**content["model"], "name": "resnet9", "width": 2}
        return {**content, "model": network, "data": {**content["data"], "name": "digits"}}

    return replace(reproduction, plan=plan)


def ran(reproduction: Reproduction, folder: Path, *rows: str, resume: bool = False, **asked: Any) -> dict[str, Any]:
    asked_for = ReproductionJob(
        reproduction=reproduction, request=Request(**asked), rows=rows, columns=reproduction.columns
    )
    ended = reproduce(asked_for, folder, resume=resume)
    assert ended.failed == 0
    return ended.document


def test_table_4_end_to_end(tmp_path: Path) -> None:
    reproduction = tiny(find("awa-table4"))
    content = ran(reproduction, tmp_path / "out", "case4", clients=2)
    cells = {(one["column"], one["metric"]): one for one in content["rows"]}
    assert set(cells) == {(column.name, column.metric) for column in reproduction.columns}
    cell = cells["awa-sent", "psnr_awa_by_index"]
    assert cell["ours"]["n"] == 2 and cell["paper"] == {"mean": 19.68, "spread": None}
    cell = cells["awa", "psnr_awa_by_index"]
    assert cell["ours"]["mean"] <= cells["awa", "psnr_awa"]["ours"]["mean"] + 1e-6, "matching can only help"
    assert set(cell["controls"]) == {"held-out"}
    assert set(cells["awa", "psnr_awa"]["floors"]) == {"mean-image", "nearest-public-image"}
    assert cells["dlg", "mse"]["paper"] is None
    ledger = read_results(tmp_path / "out" / "case4")["cases"][0]["ledger"]
    assert "labels" in ledger["grants"]
    pairs = {(one["left"], one["right"], one["metric"]) for one in content["differences"]}
    assert ("awa", "dlg-rate", "psnr_awa") in pairs


def test_every_step_of_a_descent_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduction, asked, original = tiny(find("awa-iterations")), 0, Match.__call__

    def counted(self: Match, point: dict[str, Tensor]) -> Tensor:
        nonlocal asked
        asked += 1
        return original(self, point)

    monkeypatch.setattr(Match, "__call__", counted)
    asked_for = ReproductionJob(reproduction=reproduction, request=SMALL, rows=("case1",), columns=reproduction.columns)
    content = reproduce(asked_for, tmp_path / "out").document
    assert {one["column"] for one in content["rows"]} == {f"awa-{steps}" for steps in (50, 100, 150, 200, 250)}
    (loss,) = {
        one["units"][0]["value"] for one in content["rows"] if (one["column"], one["metric"]) == ("awa-250", "mse")
    }
    assert asked <= 4 + 2 and loss > 0  # 2 and 4 steps, and the loss at the end of each


def test_the_weights_of_a_study_go_to_the_other_groups(tmp_path: Path) -> None:
    reproduction, folder = tiny(find("awa-search")), tmp_path / "out"
    ran(reproduction, folder, "case1-study", "case1", clients=1)
    study, used = (read_results(folder / row) for row in ("case1-study", "case1"))
    search = next(one["search"] for one in study["cases"] if one["attack"] == "searched")
    losses = [one["loss"] for one in search["trials"]]
    best = search["trials"][losses.index(min(losses))]["point"]
    assert len(losses) == 4 and set(best) == set(RANGES)
    attacks = {one["label"]: one for one in used["plan"]["attack"]}
    assert {name: attacks["searched"][name] for name in RANGES} == best
    assert "q_conv" not in attacks["awa"] and {one["client"] for one in used["cases"]} == {0}
    assert {one["client"] for one in study["cases"]} == {4}
    more = ran(reproduction, folder, "case1-study", "case1", resume=True, clients=2)
    assert {one["client"] for one in read_results(folder / "case1")["cases"]} == {0, 1}
    assert read_results(folder / "case1")["plan"]["attack"][0]["q_conv"] == best["q_conv"]
    assert {one["row"] for one in more["rows"]} == {"case1-study", "case1"}


def test_a_row_that_needs_another_is_refused_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="case4-study too"):
        ran(tiny(find("awa-search")), tmp_path / "out", "case4")
    reproduction = find("awa-search")
    with pytest.raises(ValueError, match="does not stand before it"):
        replace(reproduction, follows={"case1": Follows(row="case4-study", fill=awa.with_found_weights)})
    lost = {"cases": [{"attack": "searched", "search": None, "reason": "too dark", "status": "failed"}]}
    with pytest.raises(BadInput, match="too dark"):
        awa.with_found_weights({"attack": [{"label": "searched"}]}, {**lost, "plan": {"name": "x"}})


def test_the_papers_weights_are_the_presets_of_its_cases() -> None:
    assert set(awa.CASES) < set(PRESETS)
    assert PRESETS["case4"].q_conv == 655.98 and PRESETS["case3"].p_var == 0.01
