"""Privacy claims: settings worked out against the published numbers, and sentences that compare three epsilons."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from fedxray.audit.accounting import claim_lines, work_out
from fedxray.audit.judge.claims import OF_RECORDS, WEAK, Claim, canary_rows, claims_of, spell
from fedxray.audit.plan.read import make_plan
from fedxray.audit.run.audit import join, run_audit
from fedxray.audit.run.utility import worst_claims
from fedxray.errors import BadInput
from fedxray.metrics.epsilon import gaussian_epsilon, gaussian_mu, laplace_epsilon, one_shot
from fedxray.report.build import build_report
from fedxray.report.terminal import summary_lines
from tests.audit.plans import tiny
from tests.conftest import Command

# Flower's LocalDpMod, in a published setting: clip 1, sensitivity 1e-4, epsilon 10, delta 1e-5

FLOWER = ["clipping_norm=1", "sensitivity=1e-4", "epsilon=10", "delta=1e-5"]


@pytest.mark.parametrize(
    ("rounds", "as_stated", "as_clipped"), [(1, 10.39, 2.13e8), (10, 48.4, 2.13e9), (50, 167.9, 1.07e10)]
)
def test_flower_noise_for_too_small_a_sensitivity_protects_nothing(
    rounds: int, as_stated: float, as_clipped: float
) -> None:
    *others, last = work_out("flower-local-dp", [*FLOWER, f"rounds={rounds}"])
    assert last.accounted == pytest.approx(as_clipped, rel=0.01) and last.rounds == rounds
    stated = [claim for claim in others if "true" in claim.how][-1]
    assert stated.accounted == pytest.approx(as_stated, rel=0.002)
    assert "10,000 times as long" in last.sentence and "Configured is 10, but" in last.sentence
    assert ("spent anew" in last.sentence) == (rounds > 1)


def test_flower_noise_that_fits_is_confirmed() -> None:
    (claim,) = work_out("flower-local-dp", ["clipping_norm=2", "sensitivity=2", "epsilon=1", "delta=1e-5"])
    assert claim.accounted == pytest.approx(0.75, abs=0.01) and claim.sentence.endswith("confirms at most 0.751.")
    assert not claim.faults


def test_noise_that_a_claim_needs() -> None:
    for rounds, needed in ((1, 0.50), (10, 1.58), (50, 3.54)):
        assert math.sqrt(rounds) / gaussian_mu(10.0, 1e-5) == pytest.approx(needed, abs=0.01)
    for epsilon in (0.01, 1.0, 30.0, 5000.0):
        assert gaussian_epsilon(gaussian_mu(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-6)


# NVFlare's SVTPrivacy


@pytest.mark.parametrize(("numbers", "total"), [(1_000_000, 10_000.1), (221, 2.4)])
def test_svt_costs_what_its_own_accountant_adds_up(numbers: int, total: float) -> None:
    first, *_, last = work_out("nvflare-svt", [f"numbers={numbers}", "rounds=3"])
    assert first.accounted == pytest.approx(total) and first.delta == 0 and first.configured == 0.1
    assert last.rounds == 3 and 0.1 < (last.accounted or 0) < 3 * total
    assert "covers the choice of numbers alone" in last.sentence


def renyi_of_laplace(order: float, single: float) -> float:
    """By integration, for noise of scale 1 / single and a shift by 1."""

    def density(x: float, mean: float) -> float:
        return single / 2 * math.exp(-single * abs(x - mean))

    def logarithm(x: float) -> float:
        return order * math.log(density(x, 1)) + (1 - order) * math.log(density(x, 0))

    whole = quad(lambda x: math.exp(logarithm(x)), -60 / single, 1 + 60 / single, points=[0, 1], limit=500)[0]
    return math.log(whole) / (order - 1)


@pytest.mark.parametrize(("count", "single"), [(1, 1.0), (50, 0.5), (2000, 0.3)])
def test_many_laplace_mechanisms_by_integrated_renyi_divergence(count: int, single: float) -> None:
    orders = 1 + np.geomspace(0.05, 60, 60)
    slow = min(count * renyi_of_laplace(float(order), single) + math.log(1e5) / (order - 1) for order in orders)
    fast = laplace_epsilon(count, single, 1e-5)
    assert fast <= count * single and fast <= slow * 1.001
    assert fast == pytest.approx(min(slow, count * single), rel=0.01)


# dp-sgd


def test_dp_sgd_by_hand_is_accounted_by_opacus() -> None:
    pytest.importorskip("opacus")
    common = ["examples=200", "batch_size=32", "rounds=10"]
    (true,) = work_out("dp-sgd", [*common, "epsilon=4"])
    assert true.unit == "one record" and 3 < (true.accounted or 0) <= 4 and "70 steps" in true.how
    (false,) = work_out("dp-sgd", [*common, "epsilon=1", "noise_multiplier=0.51"])
    assert (false.accounted or 0) > 20 and "needs a noise multiplier of 5.1" in false.sentence
    (alone,) = work_out("dp-sgd", [*common, "noise_multiplier=0.51"])
    assert alone.configured is None and alone.accounted == false.accounted


# Sentences


def row(low: float, ceiling: float = 50.0, **changes: Any) -> dict[str, Any]:
    parts = {"defence": "dp-sgd", "unit": "record", "canaries": "gradients", "seen": "replies", "method": "one-shot"}
    numbers = {"n": 100, "runs": 1, "delta": 1e-5, "estimate": low, "low": low, "ceiling": ceiling}
    return parts | numbers | {"configured": 1.0, "accounted": 0.9} | changes


def claim(*rows: dict[str, Any], configured: float | None = 1.0, accounted: float | None = 0.9) -> Claim:
    return Claim(
        subject="dp-sgd",
        unit="one record",
        delta=1e-5,
        rounds=3,
        configured=configured,
        accounted=accounted,
        measured=rows,
    )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (claim(row(11.0)), "The claim of 0.9 does not hold: at least 11 was measured."),
        (claim(row(0.5)), "At least 0.5 was measured, which does not contradict 0.9."),
        (claim(row(0.02)), WEAK),
        (claim(row(3.0, 3.5), configured=10.0, accounted=9.0), "cannot contradict 9: they show at most 3.5"),
        (claim(row(3.0), configured=None, accounted=None), "No epsilon is claimed for one record; at least 3 was"),
        (claim(accounted=25.0), "Configured is 1, but what is done adds up to 25."),
        (claim(), "Configured is 1, and the accountant confirms at most 0.9."),
    ],
)
def test_sentences(made: Claim, words: str) -> None:
    assert words in made.sentence


def test_epsilons_are_spelled() -> None:
    assert [spell(value) for value in (0.1234, 12.34, 10_000.1, 2.13e8, math.inf, None)] == [
        "0.123", "12.3", "10,000", "2.13e+08", "infinite", "infinite",
    ]  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    plan = {"federation": {"rounds": 6}, "defence": [{"name": "none"}, {"name": "dp-sgd", "epsilon": 1.0}]}
    utility = [{"defence": "none", "epsilon": None}, {"defence": "dp-sgd", "epsilon": 0.9}]
    return {"plan": plan, "utility": utility, "claims": [stated()]} | changes


def stated(**changes: Any) -> dict[str, Any]:
    """A claim as results hold it."""
    parts = {"defence": "dp-sgd", "unit": "record", "delta": 1e-5, "rounds": 6, "configured": 1.0, "accounted": 0.9}
    return parts | {"how": "accountant prv", "faults": []} | changes


def test_claims_of_an_audit() -> None:
    (without,) = claims_of(document())
    assert (without.subject, without.configured, without.accounted, without.measured) == ("dp-sgd", 1.0, 0.9, ())
    measured = claims_of(document(canaries=[row(0.4), row(9.0, unit="client", configured=None, accounted=None)]))
    assert [(one.unit, one.configured, len(one.measured)) for one in measured] == [
        ("one record", 1.0, 1),
        ("one client", None, 1),
    ]
    claimed = claims_of(document(canaries=[row(0.4)]), 0.3)
    assert "The claim of 0.3 does not hold" in next(one for one in claimed if one.subject == "dp-sgd").sentence


def test_results_of_an_earlier_version_keep_their_claim() -> None:
    """They hold the accountant's epsilon beside the utility alone."""
    old = document()
    del old["claims"]
    (claim,) = claims_of(old)
    assert (claim.subject, claim.unit, claim.configured, claim.accounted, claim.rounds) == (
        "dp-sgd", "one record", 1.0, 0.9, 6,
    )  # fmt: skip
    joined = old | {"plan": {"plans": [old["plan"] | {"name": "p"}]}}
    joined |= {"utility": [row | {"plan": "p"} for row in old["utility"]]}
    assert [(claim.subject, claim.configured) for claim in claims_of(joined)] == [("p, dp-sgd", 1.0)]


def test_a_claim_is_shown_where_nothing_was_measured(tmp_path: Path) -> None:
    document = audited(tmp_path, defence=[LOCAL_DP])
    build_report(tmp_path / "out")
    page, text = ((tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    for shown in (page, text, "\n".join(summary_lines(document))):
        assert "10,000 times as long" in " ".join(shown.split())
    assert "Nothing was measured" in page and "not measured" in text


def test_claims_of_a_damaged_run_are_refused(tmp_path: Path) -> None:
    (tmp_path / "claims.json").write_text("[null]")
    with pytest.raises(BadInput, match=r"claims\.json"):
        worst_claims("dp-sgd", [tmp_path])


def test_a_claim_for_records_is_none_for_people_with_several() -> None:
    (plain,) = claims_of(document())
    by_person = document()["plan"] | {"data": {"name": "visits", "subject": "patient"}}
    (claimed,) = claims_of(document(plan=by_person))
    assert claimed.unit == "one record, not a person" and plain.unit == "one record"
    assert OF_RECORDS in claimed.sentence and OF_RECORDS not in plain.sentence


def test_a_table_shows_three_epsilons_side_by_side() -> None:
    head, line, *notes = claim_lines([claim(row(0.5))])
    assert head.split()[-3:] == ["configured", "accounted", "measured"]
    assert line.index("at least 0.5") == head.index("measured") and notes[-1].endswith("which does not contradict 0.9.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "the folder of an audit, or dp-sgd"),
        (["flower-local-dp", "clip=1"], "clip"),
        (["flower-local-dp", *FLOWER[:3]], "delta: expected a number"),
        (["flower-local-dp", *FLOWER[:3], "delta=2"], "delta: expected a number above 0 and below 1"),
        (["flower-local-dp", *FLOWER, "rounds=1.5"], "rounds: expected a whole number"),
        (["nvflare-svt", "numbers=many"], "numbers: expected a number above 0"),
        (["nvflare-svt", "numbers=10", "fraction=2"], "fraction"),
        (["dp-sgd", "examples=10", "batch_size=5", "rounds=1"], "epsilon, noise_multiplier or both"),
        (["dp-sgd", "examples=10", "batch_size=5", "rounds=1", "epsilon=nan"], "epsilon: expected a number above 0"),
    ],
)
def test_bad_claims_are_refused(fedxray: Command, arguments: list[str], message: str) -> None:
    ended = fedxray("claim", *arguments)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err


def test_an_audit_exposes_a_claim_with_too_little_noise(fedxray: Command, tmp_path: Path) -> None:
    """Clients that claim epsilon 1, with the noise of a far larger one."""
    pytest.importorskip("opacus")
    plan = tiny(defence=[{"name": "dp-sgd", "noise_multiplier": 0.4}], canaries={"records": 60})
    plan |= {"model": {"name": "mlp", "hidden": [48]}, "attack": [{"name": "membership-loss", "targets": 1}]}
    run_audit(make_plan(plan, tmp_path), tmp_path / "out", power=False)
    plain = fedxray("claim", tmp_path / "out")
    assert plain.code == 0 and "which does not contradict" in plain.out
    claimed = fedxray("claim", tmp_path / "out", "epsilon=1")
    assert claimed.code == 0 and "The claim of 1 does not hold: at least" in claimed.out
    refused = fedxray("claim", tmp_path / "out", "delta=1")
    assert refused.code == 2 and "at most epsilon beside a folder" in refused.err


def test_a_claim_on_the_command_line(fedxray: Command) -> None:
    ended = fedxray("claim", "flower-local-dp", *FLOWER, "rounds=50")
    assert ended.code == 0 and "1.07e+10" in ended.out and "72,960 times" in ended.out
    with pytest.raises(BadInput, match="sensitivity"):
        work_out("flower-local-dp", FLOWER[:1])


def test_a_failed_run_with_canaries_hides_no_promise() -> None:
    promise = stated(defence="dp", configured=None, accounted=2.0, delta=1e-6)
    lost, *others = canary_rows({"dp": []}, [promise], {"dp": ["no space"]})
    assert (lost["accounted"], lost["delta"], others) == (2.0, 1e-6, [])
    document = {"plan": {}, "utility": [], "canaries": [lost, row(7.0, defence="dp", accounted=2.0, configured=None)]}
    (claim,) = claims_of(document)
    assert claim.delta == 1e-6 and "The claim of 2 does not hold: at least 7 was measured." in claim.sentence


def test_a_ceiling_of_nothing_contradicts_nothing() -> None:
    claim = Claim(subject="dp", unit="one record", delta=1e-5, rounds=1, configured=1.0, measured=(row(0.0, 0.0),))
    assert "So few canaries cannot contradict 1" in claim.sentence


# Claims of defences in an audit


def audited(folder: Path, **changes: Any) -> dict[str, Any]:
    plan = tiny(attack=[{"name": "membership-loss", "targets": 1}], **changes)
    return run_audit(make_plan(plan, folder), folder / "out", power=False).document


LOCAL_DP = {"name": "flower-local-dp", "clipping_norm": 1.0, "sensitivity": 1e-4, "epsilon": 10.0, "delta": 1e-6}


def test_local_dp_is_a_claim_to_one_client_and_canary_clients_contradict_it(tmp_path: Path) -> None:
    document = audited(tmp_path, defence=[LOCAL_DP], canaries={"clients": 20, "records": 0})
    (claim,) = claims_of(document)
    assert (claim.unit, claim.configured, claim.delta, claim.rounds) == ("one client", 10.0, 1e-6, 2)
    *_, last = work_out("flower-local-dp", [*FLOWER[:3], "delta=1e-6", "rounds=2"])
    assert (claim.accounted, claim.how, claim.faults) == (last.accounted, last.how, last.faults)
    assert "The claim of 10 does not hold" in claim.sentence and "10,000 times as long" in claim.sentence
    rows = document["canaries"]
    assert {(row["unit"], row["configured"], row["delta"]) for row in rows} == {("client", 10.0, 1e-6)}


def test_swept_and_joined_defences_state_their_own_claims(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    local = {key: value for key, value in LOCAL_DP.items() if key != "name"}
    document = audited(
        tmp_path,
        defence=[
            {"name": "none"},
            {"name": "dp-sgd", "epsilon": 2.0, "delta": 1e-3},
            {"name": "dp-sgd+flower-local-dp", "dp-sgd": {"epsilon": 3.0}, "flower-local-dp": local},
            {"name": "nvflare-svt"},
        ],
        sweep={"dp-sgd": {"epsilon": [1.0, 5.0]}},
    )
    claims = claims_of(document)
    assert [(claim.subject, claim.unit, claim.configured, claim.delta) for claim in claims] == [
        ("dp-sgd[epsilon=1]", "one record", 1.0, 1e-3),
        ("dp-sgd[epsilon=5]", "one record", 5.0, 1e-3),
        ("dp-sgd+flower-local-dp", "one record", 3.0, 1e-5),
        ("dp-sgd+flower-local-dp", "one client", 10.0, 1e-6),
        ("nvflare-svt", "one client", 0.1, 1e-5),
    ]
    assert all(claim.accounted is not None for claim in claims) and "delta 0.001" in claims[0].how
    assert "adds up to" in claims[-1].sentence


def test_noise_for_no_sensitivity_protects_nothing(tmp_path: Path) -> None:
    (claim,) = claims_of(audited(tmp_path, defence=[LOCAL_DP | {"sensitivity": 0.0}]))
    assert claim.accounted is None and "no epsilon holds" in claim.sentence


def test_two_plans_keep_their_claims_apart() -> None:
    parts = [
        {"format": 2, "plan": {"name": name, "federation": {"rounds": 2}}, "versions": {}, "cases": [], "summary": []}
        | {"utility": [], "claims": [stated(configured=epsilon)], "canaries": [row(low)]}
        for name, epsilon, low in (("one", 1.0, 0.5), ("two", 4.0, 7.0))
    ]
    first, second = claims_of(join(parts))
    assert (first.subject, first.configured, first.measured[0]["low"]) == ("one, dp-sgd", 1.0, 0.5)
    assert (second.subject, second.configured, second.measured[0]["low"]) == ("two, dp-sgd", 4.0, 7.0)


def test_the_views_of_canary_clients_share_the_level() -> None:
    found = {view: [0.3] * 30 for view in ("replies", "aggregates", "final-model")}
    run = {"dimension": 500, "kind": "gradients", "most": {"clients": 0.5}, "clients": found}
    lows = {row["seen"]: row["low"] for row in canary_rows({"it": [run]})}
    assert lows["replies"] == pytest.approx(one_shot([0.3] * 30, 500, 1e-5, level=0.05 / 3).low)


def test_rounds_of_svt_are_composed() -> None:
    once, thrice = (work_out("nvflare-svt", ["numbers=1000", f"rounds={rounds}"])[-1] for rounds in (1, 3))
    assert once.accounted == pytest.approx(0.1 + laplace_epsilon(100, 0.1, 1e-5))
    assert thrice.accounted == pytest.approx(0.3 + laplace_epsilon(300, 0.1, 1e-5))
