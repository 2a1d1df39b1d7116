"""The ROC curve of a membership row, against the true-positive rate of the metrics and by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedxray.audit.judge import results
from fedxray.audit.judge.roc import POINTS, curve, mean_tpr, pooled_auc, roc_of
from fedxray.audit.judge.summary import summarise
from fedxray.errors import BadInput
from fedxray.metrics.records import auc, tpr_at_fpr
from fedxray.metrics.table import RATES
from tests.report.synthetic import make_cases, make_document


def ranked_case(scores: np.ndarray, member: np.ndarray, **ledger: Any) -> dict[str, Any]:
    return {"ledger": ledger, "draws": {"scores": scores.tolist(), "member": member.astype(int).tolist()}}


@pytest.mark.parametrize("levels", [3, 40, 10**6])  # many ties, some, none
def test_a_point_is_the_rate_at_one_false_positive_less(levels: int) -> None:
    draws = np.random.default_rng(levels)
    scores, member = draws.integers(0, levels, 300), draws.random(300) < 0.4
    found, others = curve([(scores[member].astype(float), scores[~member].astype(float))]), int((~member).sum())
    assert found is not None
    for rate, tpr in zip(found["fpr"], found["tpr"], strict=True):
        allowed = round(rate * (others + 1)) - 1
        slow = tpr_at_fpr(torch.from_numpy(scores), torch.from_numpy(member), fpr=allowed / others)
        assert tpr == pytest.approx(slow, rel=1e-3)
    assert found["members"] + found["others"] == 300 and len(found["fpr"]) <= POINTS
    assert found["fpr"][0] == pytest.approx(1 / (others + 1), rel=1e-3) and found["tpr"] == sorted(found["tpr"])


@pytest.mark.parametrize(
    "sizes", [[(50, 60)], [(2, 2)] * 30 + [(450, 50)] * 3]
)  # members and others of the cases, equal and not
def test_guessing_lies_on_the_diagonal_on_average_also_at_the_first_points(sizes: list[tuple[int, int]]) -> None:
    draws = np.random.default_rng(0)
    rates = np.array([0.002, 0.01, 0.05, 0.3, 0.9])
    runs = 60_000 // sum(map(sum, sizes))
    drawn = [
        [(draws.normal(size=inside), draws.normal(size=outside)) for inside, outside in sizes] for _ in range(4 * runs)
    ]
    found = [mean_tpr(cases, rates) for cases in drawn]
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - rates) < 4 * error)
    equal = curve([(np.zeros(inside), np.zeros(outside)) for inside, outside in sizes])
    assert equal is not None and equal["tpr"] == pytest.approx(equal["fpr"], rel=1e-3)  # where all scores are equal


def test_one_exposed_client_is_not_hidden_by_the_others() -> None:
    draws, member = np.random.default_rng(0), np.arange(2000) < 1000
    cases = [ranked_case(draws.normal(size=2000) + shift * member, member) for shift in (0, 0, 0, 3)]
    found = roc_of(cases, "auc")
    assert found is not None
    for name, allowed in (("tpr_at_1pct_fpr", 11),):  # the printed rate lies on the curve
        scores = [torch.tensor(case["draws"]["scores"]) for case in cases]
        clients = [tpr_at_fpr(one, torch.from_numpy(member), fpr=RATES[name][0]) for one in scores]
        at = found["fpr"].index(pytest.approx(allowed / 1001, rel=1e-3))
        assert found["tpr"][at] == pytest.approx(np.mean(clients), rel=1e-3) and max(clients) > 0.6
        assert found["tpr"][at] > 0.15  # pooled by normal scores: 0.013


def test_a_rate_is_the_mean_of_the_clients_curves_by_their_members() -> None:
    draws = np.random.default_rng(3)
    cases = [
        (draws.integers(0, 9, inside) + 1.0, draws.integers(0, 9, outside) + 0.0)
        for inside, outside in ((5, 7), (40, 30))
    ]
    rates = np.array([0.01, 0.2, 0.5])
    slow = np.zeros(3)
    for inside, outside in cases:
        member = torch.arange(len(inside) + len(outside)) < len(inside)
        scores = torch.from_numpy(np.concatenate([inside, outside]))
        own = [0.0, *(tpr_at_fpr(scores, member, fpr=false / len(outside)) for false in range(len(outside))), 1.0]
        slow += len(inside) * np.interp(rates, np.arange(len(own)) / (len(own) - 1), own) / 45
    assert mean_tpr(cases, rates) == pytest.approx(slow)


def test_the_pooled_area_is_that_of_the_clients_by_their_members() -> None:
    draws = np.random.default_rng(4)
    cases = [(draws.integers(0, 9, size) + 2.0, draws.integers(0, 9, 20) + 0.0) for size in (5, 40)]
    areas = []
    for inside, outside in cases:
        member = torch.arange(len(inside) + len(outside)) < len(inside)
        areas.append(auc(torch.from_numpy(np.concatenate([inside, outside])), member))
    assert pooled_auc(cases) == pytest.approx((5 * areas[0] + 40 * areas[1]) / 45)
    assert pooled_auc([cases[0], cases[0]]) == pytest.approx(areas[0])
    assert pooled_auc([(np.ones(3), np.ones(4))]) == 0.5  # ties
    found = curve(cases)
    assert found is not None and found["auc"] == pytest.approx(pooled_auc(cases), abs=1e-4)


def test_clients_are_pooled_by_ranks_so_that_their_scales_do_not_matter() -> None:
    draws = np.random.default_rng(1)
    member = np.arange(200) < 100
    cases = [ranked_case(draws.normal(size=200) + member, member) for _ in range(3)]
    scaled = [{**one, "draws": {**one["draws"]}} for one in cases]
    scaled[1]["draws"]["scores"] = [1000 + 9 * score for score in cases[1]["draws"]["scores"]]
    plain = roc_of(cases, "auc")
    assert plain == roc_of(scaled, "auc") and plain is not None and plain["others"] == 300
    assert roc_of([*cases, {"ledger": {}}], "auc") is None  # a case without its ranks
    assert roc_of([], "auc") is None


def test_ranks_of_people_are_no_curve_of_records() -> None:
    member = np.arange(40) < 20
    cases = [ranked_case(np.arange(40.0), member, people_in_question=20)]
    assert roc_of(cases, "auc") is None and roc_of(cases, "auc_subject") is not None


def with_ranks() -> list[dict[str, Any]]:
    draws, cases = np.random.default_rng(2), []
    member = np.arange(60) < 30
    for case in make_cases():
        if case["attack"] == "membership-loss":
            case |= {"draws": ranked_case(draws.normal(size=60) + member, member)["draws"]}
        cases.append(case)
    return cases


def test_the_judged_row_alone_has_the_curve_and_keeps_it_when_judged_again() -> None:
    rows = summarise(with_ranks())
    assert {(row["attack"], row["metric"]) for row in rows if "roc" in row} == {("membership-loss", "auc")}
    document = make_document(with_ranks())
    again = results.judged_again(document)
    assert [row.get("roc") for row in again] == [row.get("roc") for row in document["summary"]]


def test_a_curve_of_unequal_lengths_is_refused(tmp_path: Any) -> None:
    document = make_document(with_ranks())
    next(row for row in document["summary"] if "roc" in row)["roc"]["tpr"].pop()
    with pytest.raises(BadInput, match="as many fpr as tpr"):
        results.read_results(results.write(document, tmp_path))
