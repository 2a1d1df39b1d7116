"""`search` of an attack: trials judged by the attacker's own measure, the best of them its answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.curious_client import CuriousClient
from fedxray.attacks.inversion.dlg import Dlg
from fedxray.audit.plan import make_plan
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.preflight import estimate, preflight
from fedxray.audit.run.prepare import prepare
from fedxray.audit.search import AttackSearch, best_answer, curve_facts, own_measure, study_of
from fedxray.audit.workers.engines import make_engine
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.seeds import fork
from tests.attacks.sums_worlds import client_view, run, server_view, with_recipe

RECIPE = Recipe(epochs=3, batch_size="all", learning_rate=0.03, shuffle="never")
ATTACK = CuriousClient(own_share="recover", latent=1, steps=40)
RATE = {"assumed_learning_rate": [0.003, 0.3]}


def test_ranges_are_the_attacks_own_or_the_plans_within_them() -> None:
    whole = study_of(ATTACK, {}, "search")
    assert set(whole.ranges) == {"assumed_learning_rate", "assumed_examples"} and whole.trials == 16
    given = study_of(ATTACK, {"ranges": RATE, "trials": 5, "sampler": "grid"}, "search")
    assert given.ranges == {"assumed_learning_rate": (0.003, 0.3, "log")} and given.trials == 5


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"trails": 3}, "Did you mean trials"),
        ({"trials": 0}, "trials"),
        ({"sampler": "gpp"}, "sampler"),
        ({"ranges": {"assumed_rate": [0, 1]}}, "assumed_rate"),
        ({"ranges": {"assumed_learning_rate": [1.0]}}, r"lowest, highest.*Its default is \["),
        ({"ranges": {"assumed_learning_rate": [1.0, 0.1]}}, r"search\.ranges\.assumed_learning_rate.*\[0\.1, 1\.0\]"),
        ({"ranges": {"assumed_learning_rate": [0.0, 0.1]}}, "two different finite ends above 0"),
        ({"trials": 3, "sampler": "grid"}, r"search\.trials: expected at least 4 for a grid of 2 settings"),
        ({"ranges": {"assumed_learning_rate": [0.1, 0.1]}}, "One value is no search"),
        ({"ranges": {"assumed_examples": [0, 4]}}, r"search\.ranges\.assumed_examples"),
        ({"trials": 1001}, "1 to 1,000"),
        (3, "a table"),
    ],
)
def test_impossible_searches_are_refused(table: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        study_of(ATTACK, table, "search")
    with pytest.raises(BadInput, match="can be searched"):
        study_of(Dlg(), {}, "search")


def test_a_setting_is_either_set_or_searched() -> None:
    attack = replace(ATTACK, assumed_learning_rate=0.01)
    with pytest.raises(BadInput, match=r"assumed_learning_rate either set or searched"):
        study_of(attack, {"ranges": RATE}, "search")
    assert study_of(attack, {"ranges": {"assumed_examples": [2, 9]}}, "search").ranges.keys() == {"assumed_examples"}


def test_the_best_trial_is_the_answer_and_all_are_listed() -> None:
    def run_one(attack: Any) -> Evidence:
        rate = attack.assumed_learning_rate
        return Evidence(
            kind="images", tensors={"inputs": torch.full((1,), rate)}, facts={"own_error": abs(rate - 0.03)}
        )

    study = study_of(ATTACK, {"ranges": RATE, "trials": 5, "sampler": "grid"}, "search")
    found = best_answer(AttackSearch(attack=ATTACK, study=study, run=run_one, generator=fork(0)))
    assert found.facts["chosen"] == {"assumed_learning_rate": pytest.approx(0.03)}
    assert found.tensors["inputs"].item() == pytest.approx(0.03)
    reported = found.facts["search"]
    rates = [one["point"]["assumed_learning_rate"] for one in reported["trials"]]
    assert rates == pytest.approx([0.003, 0.003 * 10**0.5, 0.03, 0.3 / 10**0.5, 0.3]) and reported["best"] == 2


def test_a_case_lists_all_trials_also_the_best_of_many() -> None:
    """Readers of results look the best one up by its place."""

    def run_one(attack: Any) -> Evidence:
        return Evidence(kind="images", tensors={}, facts={"own_error": -attack.assumed_learning_rate})

    study = study_of(ATTACK, {"ranges": RATE, "trials": 300, "sampler": "grid"}, "search")
    reported = curve_facts(best_answer(AttackSearch(attack=ATTACK, study=study, run=run_one, generator=fork(0))))[
        "search"
    ]
    assert reported["best"] == 299 and len(reported["trials"]) == len(reported["best_so_far"]) == 300
    assert reported["trials"][reported["best"]]["point"] == {"assumed_learning_rate": pytest.approx(0.3)}


def test_trials_that_failed_are_never_chosen() -> None:
    def diverged(attack: Any) -> Evidence:
        return Evidence(kind="images", tensors={}, status="diverged", facts={"own_error": 0.0})

    study = study_of(ATTACK, {"ranges": RATE, "trials": 2}, "search")
    found = best_answer(AttackSearch(attack=ATTACK, study=study, run=diverged, generator=fork(0)))
    assert found.status == "undetermined" and found.facts["search"]["best"] is None
    assert own_measure(Dlg(), Evidence(kind="images", tensors={}, facts={"own_loss": [3.0, 2.0]})) == 2.0


@pytest.mark.parametrize(
    ("attack", "remedy"), [(Dlg(), "Leave search out"), (CuriousClient(), 'own_share = "recover"')]
)
def test_a_trial_without_its_measure_is_refused_with_what_that_attack_needs(attack: Attack, remedy: str) -> None:
    with pytest.raises(Refused, match=remedy):
        own_measure(attack, Evidence(kind="images", tensors={}))


def searched(attack: Attack, view: View, **table: Any) -> Evidence:
    draws, study = fork(0), study_of(attack, table, "search")

    def answer(trial: Attack) -> Evidence:
        return trial.run(view, generator=draws)

    return best_answer(AttackSearch(attack=attack, study=study, run=answer, generator=draws))


def test_the_learning_rate_is_found_by_the_own_images() -> None:
    transcript, truth = run((2, 2), RECIPE)
    view = with_recipe(client_view(transcript, truth), learning_rate=123.0)
    found = searched(ATTACK, view, ranges=RATE, trials=5, sampler="grid")
    assert found.facts["chosen"]["assumed_learning_rate"] == pytest.approx(0.03)


def test_a_recipe_that_is_searched_is_not_read() -> None:
    transcript, truth = run((2, 1), RECIPE)
    attack = replace(ATTACK, steps=5, assumed_learning_rate=0.01)
    answers = [
        attack.run(with_recipe(client_view(transcript, truth), learning_rate=rate), generator=fork(0))
        for rate in (0.03, 5.0)
    ]
    assert torch.equal(answers[0].tensors["inputs"], answers[1].tensors["inputs"])


def test_labels_are_estimated_anew_for_every_number_of_images() -> None:
    transcript, truth = run((2, 3), RECIPE)
    view = client_view(transcript, truth, names=("recipe",))
    for count in (3, 5, 8):
        found = replace(ATTACK, steps=1, assumed_examples=count).run(view, generator=fork(0))
        assert len(found.tensors["labels"]) == count and found.facts["labels"] == "labels-dlf"


def test_a_seat_without_own_images_among_the_guesses_cannot_judge() -> None:
    transcript, truth = run((2, 2), RECIPE)
    for attack, view in ((replace(ATTACK, own_share="subtract"), client_view(transcript, truth)),
                         (ATTACK, server_view(transcript, truth))):  # fmt: skip
        with pytest.raises(Refused, match="own measure"):
            searched(replace(attack, steps=2), view, ranges=RATE, trials=2)


def test_an_audit_searches_and_lists_its_trials(tmp_path: Path) -> None:
    plan = make_plan(
        {
            "name": "unknown-rate",
            "data": {"name": "digits", "clients": 2, "limit": 2, "public": 0.2},
            "model": {"name": "mlp", "hidden": [16]},
            "federation": {"rounds": 1, "epochs": 2, "batch_size": "all", "learning_rate": 0.1},
            "attack": [
                {
                    "name": "curious-client",
                    "role": "curious-client",
                    "own_share": "recover",
                    "steps": 5,
                    "latent": 1,
                    "controls": [],
                    "grants": ["recipe", "examples", "label-counts"],
                    "search": {"trials": 3, "sampler": "grid", "ranges": {"assumed_learning_rate": [0.01, 1.0]}},
                }
            ],
        },
        tmp_path,
    )
    with make_engine("inline", None) as workers:
        ended = run_audit(plan, tmp_path / "out", engine=workers, power=False)
    (case,) = ended.document["cases"]
    assert case["status"] == "ok" and case["ledger"]["own_images"] == 2
    assert [one["point"]["assumed_learning_rate"] for one in case["search"]["trials"]] == pytest.approx([0.01, 0.1, 1])
    assert case["search"]["best"] == min(range(3), key=lambda one: case["search"]["trials"][one]["loss"])


def test_what_is_searched_need_not_be_granted(tmp_path: Path) -> None:
    attack = {
        "name": "curious-client",
        "role": "curious-client",
        "own_share": "recover",
        "grants": ["recipe"],
        "latent": 1,
    }
    content = {
        "data": {"name": "digits", "clients": 2, "limit": 2},
        "model": {"name": "mlp", "hidden": [4]},
        "federation": {"rounds": 1, "batch_size": "all"},
    }
    search = {"ranges": {"assumed_examples": [3, 5]}}
    preflight(make_plan({**content, "attack": [{**attack, "search": search}]}, tmp_path))
    for other in ({}, {"search": {"ranges": {"assumed_learning_rate": [0.1, 1.0]}}}):
        with pytest.raises(Refused, match="number of examples"):
            preflight(make_plan({**content, "attack": [{**attack, **other}]}, tmp_path))


def test_trials_count_in_the_estimate(tmp_path: Path) -> None:
    attack = {"name": "curious-client", "role": "curious-client", "own_share": "recover", "controls": []}
    plan = make_plan(
        {
            "data": {"name": "digits", "clients": 2, "limit": 2},
            "model": {"name": "mlp", "hidden": [4]},
            "federation": {"rounds": 1, "batch_size": "all"},
            "attack": [attack, {**attack, "label": "searched", "search": {"trials": 7}}],
        },
        tmp_path,
    )
    taken = estimate(plan, prepare(plan, "none", 0), 0.01).optimising_seconds
    assert taken["searched"] == pytest.approx(7 * taken["curious-client"]) and taken["searched"] > 0
