"""Rows of the summary, against numbers worked out by hand and in another way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedxray.audit.judge.statistics import drawn_permutations, interval, split_facts
from fedxray.audit.judge.summary import summarise
from fedxray.errors import BadInput
from tests.report.synthetic import make_cases

FIELDS = """attack role defence aware metric oracle mean mean_low mean_high floor over difference low high
    ceiling controls kind n unit worst margin primary verdict reason awaits_power adapts trace family scope test p
    p_adjusted p_split p_swap resolution seen more_seeds upper state"""


def case(seed: int, client: int, scores: dict[str, Any], **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": f"{seed}-{client}",
        "seed": seed,
        "defence": "none",
        "attack": "a",
        "role": "server",
        "client": client,
        "aware": None,
        "oracle": False,
        "ledger": {},
        "status": "ok",
        "reason": None,
        "scores": scores,
        "floors": {},
        "controls": {},
        "rounds_spent": 0,
        "seconds": 1.0,
    }
    return {**base, **changes}


def units(values: list[float], metric: str = "accuracy", **changes: Any) -> list[dict[str, Any]]:
    """One case per value: two clients in each run."""
    return [case(k // 2, k % 2, {metric: value}, **changes) for k, value in enumerate(values)]


def test_the_strongest_floor_of_the_other_runs_is_found_once_per_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[int] = []
    fsum = math.fsum

    def counting(values: Any) -> float:
        listed = list(values)
        sums.append(len(listed))
        return fsum(listed)

    cases = [case(seed, client, {"accuracy": 0.9 + seed / 50}) for seed in range(3) for client in range(20)]
    for one in cases:
        one["floors"] = {"majority": {"accuracy": 0.5}, "imputation": {"accuracy": 0.4}}
    monkeypatch.setattr(math, "fsum", counting)
    summarise(cases)
    assert sums.count(40) <= 2 * 3 * 2  # floors, runs, looks; not once for each of 60 cases


VALUES = [0.9, 0.8, 0.85, 0.95, 0.9, 0.88, 0.92, 0.84]


def test_a_row_has_exactly_the_fixed_fields_and_hand_checked_numbers() -> None:
    cases = units(VALUES * 2)
    floors = [0.5, 0.6, 0.55, 0.5, 0.52, 0.58, 0.5, 0.6] * 2
    for one, floor in zip(cases, floors, strict=True):
        one["floors"] = {"majority": {"accuracy": floor}, "imputation": {"accuracy": 0.4}}
        one["controls"] = {"held-out": {"accuracy": one["scores"]["accuracy"] - 0.1}}
    (row,) = summarise(cases)
    assert list(row) == FIELDS.split()
    assert row["mean"] == pytest.approx(sum(VALUES) / 8)
    assert (row["over"], row["floor"]) == ("majority", pytest.approx(sum(floors) / 16))
    assert row["difference"] == pytest.approx(row["mean"] - row["floor"])
    by_hand = interval([v - f for v, f in zip(VALUES * 2, floors, strict=True)], [k // 2 for k in range(16)])
    assert (row["low"], row["high"]) == (by_hand.low, by_hand.high)
    assert row["controls"]["held-out"] == pytest.approx(
        {"mean": sum(VALUES) / 8 - 0.1, "difference": 0.1, "low": 0.1, "high": 0.1}
    )
    assert (row["kind"], row["verdict"], row["n"], row["unit"]) == ("record", "leaks", 16, "client-run")
    assert (row["primary"], row["state"], row["scope"], row["test"]) == (True, "leaks", "these runs", "runs")
    assert row["p"] == row["p_adjusted"] == 0.5**8  # by_hand.p is smaller: runs are no surer than coins
    family = {"rows": 1, "group": "swap and runs", "share": 1.0, "spent": 0.05, "left": 0.04, "runs": 8}
    assert row["family"] == family and by_hand.p is not None and by_hand.p < 0.5**8
    assert row["worst"] == {"value": 0.95, "seed": 1, "client": 1, "record": None}
    assert (row["aware"], row["oracle"], row["ceiling"], row["margin"]) == (None, False, None, 0.05)


def test_a_metric_where_smaller_leaks_more_turns_every_sign() -> None:
    cases = units([0.01, 0.02, 0.01, 0.02, 0.01, 0.03], "mse")
    for one in cases:
        one["floors"] = {"mean-image": {"mse": 0.09}, "nearest-public-image": {"mse": 0.06}}
        one["controls"] = {"other-client": {"mse": 0.1}}
    (row,) = summarise(cases)
    assert (row["over"], row["floor"]) == ("nearest-public-image", pytest.approx(0.06))
    assert row["difference"] == pytest.approx(row["floor"] - row["mean"])
    assert row["low"] > 0 and row["kind"] == "client"
    assert row["worst"]["value"] == 0.01
    assert row["controls"]["other-client"]["difference"] > 0


def test_the_strongest_floor_is_chosen_by_its_mean_and_not_unit_by_unit() -> None:
    cases = units([0.9] * 6)
    for k, one in enumerate(cases):
        one["floors"] = {"majority": {"accuracy": 0.9 if k == 0 else 0.1}, "imputation": {"accuracy": 0.5}}
    (row,) = summarise(cases)
    assert (row["over"], row["floor"], row["difference"]) == ("imputation", 0.5, pytest.approx(0.4))


def test_a_floor_that_only_some_units_have_gives_way() -> None:
    cases = units([0.9] * 6)
    for k, one in enumerate(cases):
        one["floors"] = {"majority": {"accuracy": 0.5}} | ({"imputation": {"accuracy": 0.8}} if k else {})
    assert summarise(cases)[0]["over"] == "majority"


def test_one_row_per_attack_role_defence_aware_and_metric_in_order() -> None:
    rows = summarise(make_cases())
    keys = [(r["attack"], r["role"], r["defence"], r["aware"], r["metric"]) for r in rows]
    assert len(set(keys)) == len(keys)
    assert keys[:4] == [
        ("inverting-gradients", "server", "none", None, "psnr"),
        ("inverting-gradients", "server", "none", None, "ssim"),
        ("inverting-gradients", "server", "none", None, "mse"),
        ("inverting-gradients", "server", "gaussian-noise", False, "psnr"),
    ]
    assert {r["verdict"] for r in rows if r["primary"]} == {"leaks", "inconclusive"}
    assert [r["metric"] for r in rows if r["attack"] == "inverting-gradients" and r["primary"]] == ["psnr"] * 5
    shown = [r for r in rows if not r["primary"]]
    assert all(r["verdict"] is r["state"] is r["p"] is r["family"] is None and r["low"] is not None for r in shown)


def test_shuffled_cases_give_the_same_rows() -> None:
    cases = make_cases()
    order = np.random.default_rng(0).permutation(len(cases))
    shuffled = summarise([cases[k] for k in order])

    def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda r: (r["attack"], r["defence"], str(r["aware"]), r["metric"]))

    for one, other in zip(by_key(summarise(cases)), by_key(shuffled), strict=True):
        assert one["low"] == pytest.approx(other["low"], rel=1e-12)
        assert (one["verdict"], one["kind"], one["worst"]) == (other["verdict"], other["kind"], other["worst"])


def test_a_guess_that_did_not_settle_counts_and_a_failure_stays_out() -> None:
    cases = units([0.9, 0.9, 0.91, 0.9, 0.9, 0.9, 0.0, 0.0], floors={"majority": {"accuracy": 0.5}})
    cases[6] |= {"status": "diverged"}
    cases[7] |= {"status": "failed", "scores": {}}
    (row,) = summarise(cases)
    assert (row["mean"], row["n"]) == (pytest.approx(5.41 / 7), 7)
    assert "of 8 cases: 1 diverged, 1 failed" in row["reason"]


def test_an_attack_of_which_every_case_failed_still_has_its_rows() -> None:
    lost = [case(k, 0, {}, status="failed", defence="dp-sgd", aware=True) for k in range(6)]
    (unknown,) = summarise(lost)
    assert (unknown["metric"], unknown["verdict"], unknown["n"]) == (None, "inconclusive", 0)
    assert "6 failed" in unknown["reason"]
    assert unknown["mean"] is unknown["low"] is unknown["floor"] is unknown["worst"] is None
    (declared,) = summarise(lost, expected={"a": ["auc"]})
    assert (declared["metric"], declared["verdict"]) == ("auc", "inconclusive")
    undefended = units(VALUES, floors={"majority": {"accuracy": 0.5}})
    assert [row["metric"] for row in summarise([*undefended, *lost])] == ["accuracy", "accuracy"]


def test_a_score_that_is_missing_or_not_finite_is_no_unit() -> None:
    cases = units(VALUES, floors={"majority": {"accuracy": 0.5}})
    cases[0]["scores"]["accuracy"] = math.nan
    cases[1]["scores"]["accuracy"] = None
    (row,) = summarise(cases)
    assert row["n"] == 6 and "2 without this score" in row["reason"]


def test_no_floor_no_verdict() -> None:
    (row,) = summarise(units(VALUES))
    assert (row["floor"], row["over"], row["difference"], row["kind"]) == (None, None, None, None)
    assert row["verdict"] == "inconclusive" and "no floor" in row["reason"]


@pytest.mark.parametrize(
    ("metric", "floor", "room"), [("accuracy", 0.96, False), ("accuracy", 0.94, True), ("mse", 0.004, False)]
)
def test_a_floor_near_the_best_value_leaves_no_room(metric: str, floor: float, room: bool) -> None:
    best = {"accuracy": 1.0, "mse": 0.0}[metric]
    known = {"examples_in_question": 500}
    (row,) = summarise(units([best] * 20, metric, floors={"imputation": {metric: floor}}, ledger=known))
    assert ("the other columns give this away" in row["reason"]) is not room
    assert row["verdict"] == ("leaks" if room else "inconclusive")


def test_decibels_always_leave_room() -> None:
    (row,) = summarise(
        units([90.0, 91.0] * 10, "psnr", floors={"mean-image": {"psnr": 80.0}}, record_variance={"psnr": 1.0})
    )
    assert row["verdict"] == "leaks"


def test_one_unit_has_a_mean_and_no_interval() -> None:
    (row,) = summarise([case(0, 0, {"accuracy": 0.9}, floors={"majority": {"accuracy": 0.5}})])
    assert (row["mean"], row["mean_low"], row["low"], row["difference"]) == (0.9, None, None, pytest.approx(0.4))
    assert row["verdict"] == "inconclusive"


def test_membership_is_about_records_by_construction() -> None:
    (row,) = summarise(units(VALUES, "auc", floors={"chance": {"auc": 0.5}}))
    assert row["kind"] == "record"


def test_worst_is_the_most_exposed_record_where_records_were_scored() -> None:
    cases = units([20.0, 30.0], "psnr")
    cases[0]["worst_record"] = {"psnr": {"record": 17, "value": 41.0}}
    cases[1]["worst_record"] = {"psnr": {"record": 3, "value": 33.0}}
    assert summarise(cases)[0]["worst"] == {"value": 41.0, "seed": 0, "client": 0, "record": 17}


def test_ceilings_come_from_the_named_oracle_or_from_the_cases() -> None:
    oracle = units([0.97, 0.99], attack="o", oracle=True)
    rows = summarise([*units([0.9, 0.8]), *oracle], ceilings={"a": "o"})
    assert [row["ceiling"] for row in rows] == [pytest.approx(0.98), None]
    own = units([0.9, 0.8], ceilings={"same-client-other-seed": {"accuracy": 0.95}})
    assert summarise(own)[0]["ceiling"] == pytest.approx(0.95)
    not_an_oracle = [*units([0.9, 0.8]), *units([0.97, 0.99], attack="o")]
    assert summarise(not_an_oracle, ceilings={"a": "o"})[0]["ceiling"] is None


def test_an_oracle_is_marked_and_costs_the_others_no_power() -> None:
    attack = units(VALUES, floors={"majority": {"accuracy": 0.83}})
    oracles = [
        one
        for k in range(40)
        for one in units(VALUES, attack=f"o{k}", oracle=True, floors={"majority": {"accuracy": 0.88}})
    ]
    alone, beside = summarise(attack)[0], summarise([*attack, *oracles])
    assert beside[0] == alone
    assert beside[1]["oracle"] and beside[1]["family"]["rows"] == 40
    assert beside[1]["reason"].startswith("an upper bound that no attacker could have")


def test_every_primary_row_of_the_audit_is_counted_once() -> None:
    wobbly = [0.45, 0.45, 0.75, 0.75] * 6
    one = units(wobbly, floors={"majority": {"accuracy": 0.5}})
    assert summarise(one)[0]["verdict"] == "leaks"
    many = [c for k in range(60) for c in units(wobbly, attack=f"a{k}", floors={"majority": {"accuracy": 0.5}})]
    row = summarise(many)[0]
    assert (row["verdict"], row["state"], row["family"]["rows"]) == ("inconclusive", "suspected", 60)
    assert "after 60 rows" in row["reason"]
    twins = [
        c
        for aware in (False, True)
        for c in units(wobbly, aware=aware, defence="d", floors={"majority": {"accuracy": 0.5}})
    ]
    first, second = summarise(twins)
    assert first["family"]["rows"] == second["family"]["rows"] == 1 and first["p_adjusted"] == second["p_adjusted"]
    twins[0]["scores"] = {"accuracy": 0.601}
    assert summarise(twins)[0]["family"]["rows"] == 2


def test_other_metrics_are_shown_without_a_verdict_and_cost_nothing() -> None:
    cases = units(VALUES * 2, floors={"majority": {"accuracy": 0.5, "balanced_accuracy": 0.5}})
    for one in cases:
        one["scores"] = {"balanced_accuracy": one["scores"]["accuracy"], "accuracy": one["scores"]["accuracy"]}
    balanced, accuracy = summarise(cases)
    assert (balanced["primary"], accuracy["primary"]) == (False, True)
    assert balanced["verdict"] is None and balanced["kind"] is None and accuracy["family"]["rows"] == 1
    chosen = summarise(cases, primary={"a": "balanced_accuracy"})
    assert [row["verdict"] for row in chosen] == ["leaks", None]


def checked(passed: bool, **changes: Any) -> dict[str, Any]:
    return {"attack": "a", "role": "server", "metric": "accuracy", "passed": passed, "reason": "not seen"} | changes


QUIET = [0.5, 0.51, 0.49, 0.5, 0.52, 0.5, 0.48, 0.5]


def test_a_power_check_under_the_same_defence_opens_the_way_to_no_leak_found() -> None:
    cases = units(QUIET, floors={"majority": {"accuracy": 0.5}})
    assert summarise(cases)[0]["state"] == "open"
    for metric in ("accuracy", None):
        row = summarise(cases, power=[checked(True, metric=metric)])[0]
        assert (row["verdict"], row["scope"]) == ("no leak found", "runs like these")
        assert 0 < row["seen"] < 0.1 and row["upper"] < 0.05 and row["more_seeds"] is None
    assert summarise(cases, power=[checked(True, attack="b")])[0]["verdict"] == "inconclusive"
    defended = units(QUIET, defence="d", aware=True, floors={"majority": {"accuracy": 0.5}})
    plain, same = checked(True, defence="none", aware=None), {"defence": "d", "aware": True}
    states = [
        summarise(defended, power=power)[0]["state"]
        for power in (
            [plain],
            [plain, checked(False, **same)],
            [checked(False), checked(False, **same)],
            [checked(True, **same)],
        )
    ]
    assert states == ["open", "blinded", "open", "no leak found"]


def test_a_row_is_stopped_only_where_the_same_attack_leaks_without_the_defence() -> None:
    floors = {"majority": {"accuracy": 0.5}}
    leaking = units(VALUES * 2, floors=floors)
    defended = units(QUIET * 2, defence="d", aware=True, floors=floors)
    power = [checked(False, defence="d", aware=True), checked(True, defence="none", aware=None)]

    def state(*cases: dict[str, Any]) -> str:
        rows = summarise(cases, power=power)
        return str(next(row["state"] for row in rows if row["defence"] == "d"))

    assert summarise(leaking)[0]["state"] == "leaks"
    assert state(*defended, *leaking) == state(*leaking, *defended) == "stopped"
    assert state(*defended) == state(*defended, *units(QUIET * 2, floors=floors)) == "blinded"
    power.append(checked(False, defence="d", aware=False))
    unaware = [case | {"aware": False, "id": f"u{case['id']}"} for case in defended]
    deaf = [case | {"ledger": {"adapts": False}} for case in defended]
    assert state(*unaware, *defended, *leaking) == "stopped"
    assert state(*unaware, *deaf, *leaking) == state(*unaware, *leaking) == "blinded"
    for other in ({"attack": "b"}, {"role": "eavesdropper"}):
        assert state(*defended, *(case | other for case in leaking)) == "blinded"


def test_leaks_takes_the_floor_of_all_runs_and_safety_that_of_the_other_runs() -> None:
    cases = units([0.6, 0.6, 0.62, 0.6, 0.61, 0.6])
    for one in cases:
        lucky = 0.63 if one["seed"] == 0 else 0.58
        one["floors"] = {"majority": {"accuracy": lucky}, "imputation": {"accuracy": 0.59}}
    (row,) = summarise(cases)
    assert row["over"] == "majority" and row["difference"] == pytest.approx(0.605 - (0.63 + 2 * 0.58) / 3)
    # Run 0 takes imputation (best in runs 1 and 2), runs 1 and 2 take majority (best in 0 and the other).
    gains = [0.01, 0.01, 0.04, 0.02, 0.03, 0.02]
    by_hand = interval(gains, [0, 0, 1, 1, 2, 2])
    assert by_hand.error is not None
    assert row["upper"] == pytest.approx(by_hand.mean + 4.302652729911275 * by_hand.error)


def swapped(scores: dict[tuple[int, int, int], float], seeds: int, clients: int) -> list[dict[str, Any]]:
    """Cases with the scores about client c of run r with the messages of m, by (r, c, m)."""
    return [
        case(
            seed,
            client,
            {"accuracy": scores[seed, client, client]},
            floors={"majority": {"accuracy": 0.5}},
            swaps={str(m): {"accuracy": scores[seed, client, m]} for m in range(clients) if m != client},
            ledger={"clients": clients, "seats": [], "examples_in_question": 200},
        )
        for seed in range(seeds)
        for client in range(clients)
    ]


def test_swaps_decide_where_three_runs_could_not() -> None:
    generator = np.random.default_rng(0)
    runs = [0.0, 0.25, -0.15]  # so different that t over runs shows nothing
    scores = {
        (r, c, m): runs[r] + 0.6 + 0.1 * c + 0.1 * (c == m) + 0.01 * float(generator.normal())
        for r in range(3)
        for c in range(3)
        for m in range(3)
    }
    (row,) = summarise(swapped(scores, 3, 3))
    assert (row["state"], row["test"], row["p"], row["resolution"]) == ("leaks", "swap", 1 / 216, 1 / 216)
    assert row["p_adjusted"] == pytest.approx(1 / 216) and row["trace"] and row["kind"] is None
    assert "swap test" in row["reason"]
    weak = {key: value - 0.35 for key, value in scores.items()}
    (trace,) = summarise(swapped(weak, 3, 3), power=[checked(True)])
    assert (trace["verdict"], trace["state"], trace["p_swap"]) == ("inconclusive", "trace", 1 / 216)
    few = summarise(swapped({k: v for k, v in scores.items() if max(k[1:]) < 2}, 3, 2))[0]
    assert (few["state"], few["test"], few["p_swap"]) == ("suspected", None, 1 / 8)
    assert "luck: too few runs" in few["reason"]


def test_equal_runs_of_an_attack_that_is_all_right_or_all_wrong_prove_nothing() -> None:
    lucky = {(r, c, m): 1.0 if c == m else float((r + m) % 2) for r in range(3) for c in range(2) for m in range(2)}
    steady = {key: 1.0 if key[1] == key[2] else 0.5 for key in lucky}
    for scores in (lucky, steady):  # three coins fall alike in one of eight audits
        (row,) = summarise(swapped(scores, 3, 2))
        assert (row["difference"], row["state"], row["p"]) == (0.5, "suspected", None)
    floors = {"majority": {"accuracy": 0.5}}
    (row,) = summarise(units([1.0] * 16, floors=floors, ledger={"examples_in_question": 200}))
    assert (row["state"], row["test"], row["p"]) == ("leaks", "runs", 1 / 256)


def test_a_row_that_no_test_can_decide_takes_no_share_and_its_recording_names_no_level() -> None:
    generator = np.random.default_rng(5)
    alone = members(0, 0, 1.0, generator, ledger={"recording": {}})
    inside = {"mean": {"mean": 0.9, "low": 0.8, "high": 1.0, "n": 40, "p": None}}
    gain = {"mean": 0.4, "low": 0.3, "high": 0.5, "n": 40, "p": None}
    other = case(0, 0, {"accuracy": 0.9}, attack="b", ledger={"recording": {}}, floors={"majority": {"accuracy": 0.5}})
    other |= {"controls": {"held-out": {"accuracy": 0.5}}}
    other |= {"within": {"accuracy": {**inside, "floors": {"majority": gain}, "controls": {"held-out": gain}}}}
    first, second = summarise([alone, other])
    assert first["family"] == summarise([alone])[0]["family"] and first["family"]["rows"] == 1
    assert (second["state"], second["p"], second["kind"]) == ("suspected", None, None)
    assert second["family"]["share"] == 0.0


def test_many_clients_bring_their_drawn_swaps() -> None:
    cases = []
    for seed in range(3):
        drawn = drawn_permutations(seed, [0, 1, 2, 3, 5, 6])
        for client in (0, 2, 5):
            others = {order[client] for order in drawn} - {client}
            cases.append(
                case(
                    seed,
                    client,
                    {"accuracy": 0.7 + 0.01 * seed},
                    floors={"chance": {"accuracy": 0.5}},
                    swaps={str(other): {"accuracy": 0.1} for other in others},
                    ledger={"clients": 7, "seats": [4]},
                )
            )
    (row,) = summarise(cases)
    assert row["resolution"] == 1 / 64 and 1 / 64 <= row["p_swap"] <= 4 / 64


def members(seed: int, client: int, shift: float, generator: np.random.Generator, **changes: Any) -> dict[str, Any]:
    scores = [*generator.normal(shift, 1, 40), *generator.normal(0, 1, 20)]
    member = [True] * 40 + [False] * 20
    facts = split_facts(scores, member)
    assert facts is not None
    return case(
        seed,
        client,
        {"auc": facts["u"] / 800},
        floors={"chance": {"auc": 0.5}},
        split=facts,
        draws={"scores": scores, "member": member},
        record_variance={"auc": 61 / (12 * 800)},
        **changes,
    )


def test_members_are_judged_by_the_split_test_with_one_run() -> None:
    generator = np.random.default_rng(5)
    (row,) = summarise([members(0, client, 1.0, generator) for client in range(2)])
    assert (row["state"], row["test"], row["kind"]) == ("leaks", "split", "record")
    assert row["p"] == row["p_split"] and row["family"]["group"] == "split" and row["p_swap"] is None
    recording = members(0, 0, 1.0, generator, ledger={"recording": {}})
    recording["split"] |= {"drawn": False}
    (alone,) = summarise([recording])
    assert alone["state"] == "leaks" and "if the held-out records are like the others" in alone["reason"]


def test_a_small_leak_is_proven_bounded_and_of_the_records_or_of_the_client() -> None:
    generator = np.random.default_rng(1)
    (row,) = summarise([members(seed, client, 0.1, generator) for seed in range(40) for client in range(3)])
    assert (row["state"], row["verdict"], row["scope"], row["kind"]) == ("small", "leaks", "these runs", "record")
    assert 0 < row["difference"] < row["upper"] <= 0.05 and row["more_seeds"] is None
    scores = {
        (run, c, m): 0.50 + 0.03 * (c == m) + generator.normal(0, 0.002)
        for run in range(10)
        for c in range(3)
        for m in range(3)
    }
    cases = swapped(scores, 10, 3)
    for one in cases:
        other = float(np.mean([entry["accuracy"] for entry in one["swaps"].values()]))
        one |= {"record_variance": {"accuracy": 1e-5}, "controls": {"other-client": {"accuracy": other}}}
    (row,) = summarise(cases)
    assert (row["state"], row["test"], row["kind"]) == ("small", "swap", "client")  # the run test is surer, and silent
    assert row["p"] == row["p_swap"] and row["p_adjusted"] <= row["family"]["spent"]


def test_an_earlier_look_keeps_what_it_found_and_a_later_one_spends_less() -> None:
    values = [0.60, 0.61, 0.61, 0.62] * 4 + [0.60, 0.92, 0.70, 0.32]  # the first eight runs agree, then not
    cases = units(values, floors={"majority": {"accuracy": 0.5}})
    first = {"seeds": 8, "spent": 0.04}
    alone = summarise(cases, looks=[{"seeds": 10, "spent": 0.0001}])[0]
    kept = summarise(cases, looks=[first, {"seeds": 10, "spent": 0.0001}])[0]
    assert (alone["state"], kept["state"]) == ("suspected", "leaks")
    early = summarise(cases[:16], looks=[first])[0]
    assert kept["p_adjusted"] == early["p_adjusted"] and kept["family"]["spent"] == 0.04
    assert kept["family"]["runs"] == 8


def test_rows_and_clients_that_came_later_have_no_part_in_an_earlier_look() -> None:
    floors = {"majority": {"accuracy": 0.5}}
    old = units([0.60, 0.61, 0.61, 0.62] * 4, floors=floors)
    new = units([0.60, 0.61, 0.61, 0.62] * 4, floors=floors, attack="b")
    first, late = {"seeds": 8, "spent": 0.04, "attacks": ["a"]}, {"seeds": 8, "spent": 0.001}
    kept, added = summarise([*old, *new], looks=[first, late])
    assert (kept["state"], kept["family"]["rows"], kept["family"]["spent"]) == ("leaks", 1, 0.04)
    assert (added["state"], added["p"]) == ("suspected", None)  # 2^-8 is above 0.001
    wild = [case(seed, 2, {"accuracy": 0.1}, floors=floors) for seed in range(8)]
    assert summarise([*old, *wild], looks=[first | {"clients": [0, 1]}, late])[0]["p_adjusted"] == 0.5**8
    spent = summarise(old, looks=[{"seeds": 8, "spent": 0.05}, {"seeds": 8, "spent": 0.0}])[0]
    assert spent["upper"] is not None and spent["family"]["left"] == 0


def test_an_attacker_who_knows_without_using_it_is_not_safe() -> None:
    cases = units(QUIET, defence="d", aware=True, floors={"majority": {"accuracy": 0.5}})
    check = checked(True, defence="d", aware=True)
    assert summarise(cases, power=[check])[0]["adapts"] is True
    for one in cases:
        one["ledger"] = {**one["ledger"], "adapts": False}
    (row,) = summarise(cases, power=[check])
    assert (row["state"], row["adapts"]) == ("open", False)


def test_a_share_that_is_the_same_in_all_units_has_the_interval_of_their_number() -> None:
    (row,) = summarise(units([1.0] * 6, "rec", floors={"mean-image": {"rec": 0.0}}))
    assert (row["mean_low"], row["mean_high"]) == (pytest.approx(0.5407, abs=1e-4), 1.0)


def test_the_same_cases_give_the_same_p_to_the_bit() -> None:
    generator = np.random.default_rng(5)
    cases = [members(seed, client, 0.2, generator) for seed in range(3) for client in range(2)]
    assert summarise(cases) == summarise(cases) and summarise(cases)[0]["p"] == summarise(cases[::-1])[0]["p"]


def test_an_unknown_metric_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(BadInput, match="accuracy"):
        summarise(units([0.5], "acuracy"))
