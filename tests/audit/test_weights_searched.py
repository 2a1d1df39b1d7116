"""The search of awa's weights: judged without weights from one start, and trials that lose are given up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.awa import Awa
from fedxray.attacks.inversion.curious_client import CuriousClient
from fedxray.audit.search import AttackSearch, Study, best_answer, early_stop, study_of
from fedxray.errors import BadInput
from fedxray.seeds import fork
from tests.attacks.inversion.test_awa import loss_of, seen

CURVES = [(9.0, 8.0, 7.0, 6.0), (9.0, 5.0, 4.0, 3.0), (9.0, 9.5, 2.0, 1.0), (9.0, 7.0, 7.0, 7.0), (9.0, 6.0, 6.0, 5.0)]


def ended(curve: tuple[float, ...], **more: Any) -> Evidence:
    return Evidence(kind="images", tensors={}, curve=curve, facts={"own_loss": [min(curve)]}, **more)


def test_a_trial_is_given_up_above_the_median_of_earlier_ones_at_the_same_step() -> None:
    awa, halfway = Awa(steps=3), Study(ranges={}, give_up=0.5)
    answers = [ended(curve) for curve in CURVES]
    assert early_stop(awa, halfway, answers) == (2, 6.0)
    assert early_stop(awa, Study(ranges={}, give_up=0.34), answers) == (1, 7.0), "the lowest so far counts"
    assert early_stop(awa, Study(ranges={}), answers) is None
    assert early_stop(awa, halfway, answers[:4]) is None, "four are too few"
    lost = ended((9.0, 1.0, float("nan")), status="diverged")
    assert early_stop(awa, halfway, [*answers[:4], lost]) is None, "one that diverged says nothing"
    short = ended((9.0, 8.5, 8.5), status="truncated")
    assert early_stop(awa, halfway, [*answers, short]) == (2, 6.5), "one that was given up came that far"


def test_a_trial_that_was_given_up_has_its_loss_so_far_and_is_never_chosen() -> None:
    limits = []

    def run_one(attack: Any) -> Evidence:
        limits.append(attack.give_up)
        if attack.give_up is None:
            return ended((9.0, 5.0, 4.0, 3.0 + attack.q_conv / 1000))
        return ended((9.0, 1.0, 1.0), status="truncated")

    study = study_of(Awa(steps=3), {"trials": 7, "batch": 5, "give_up": 0.5}, "search")
    found = best_answer(AttackSearch(attack=Awa(steps=3), study=study, run=run_one, generator=fork(0)))
    assert limits == [None] * 5 + [(2, 4.0)] * 2, "only trials of earlier batches count"
    reported = found.facts["search"]
    assert [one.get("given_up", False) for one in reported["trials"]] == [False] * 5 + [True] * 2
    assert reported["trials"][5]["loss"] == 1.0 and reported["best"] < 5
    losses = [one["loss"] for one in reported["trials"][:5]]
    assert reported["best_so_far"] == [min(losses[: place + 1]) for place in range(5)] + [min(losses)] * 2
    assert (
        reported["give_up"] == 0.5
        and reported["judged_by"] == "own_loss"
        and reported["ranges"]["p_var"] == [0.0, 0.5, "linear"]
    )


def test_the_six_ranges_of_the_weights_are_the_papers() -> None:
    study = study_of(Awa(), {"sampler": "gp", "trials": 50, "starts": 12}, "search")
    assert study.sizes() == [12, 8, 8, 8, 8, 6] and study.first() == 12
    assert {name: one[:2] for name, one in study.ranges.items()} == {
        **dict.fromkeys(("q_conv", "q_norm", "q_linear", "q_enhance"), (1.0, 1000.0)),
        **dict.fromkeys(("p_mean", "p_var"), (0.0, 0.5)),
    }
    assert {one[2] for one in study.ranges.values()} == {"linear"}


def test_weights_are_searched_by_the_loss_without_weights_from_one_start(extra: Any) -> None:
    extra("optuna")
    view, _, y = seen()
    attack, answers = Awa(steps=3), []

    def run_one(one: Any) -> Evidence:
        answers.append((one, one.run(view, generator=fork(1))))
        return answers[-1][1]

    study = study_of(attack, {"sampler": "gp", "trials": 6, "starts": 4, "batch": 2}, "search")
    found = best_answer(AttackSearch(attack=attack, study=study, run=run_one, generator=fork(1)))
    assert len({answer.curve[0] for _, answer in answers}) == 1, "all start from the same inputs"
    plain = loss_of(view, y, preset="none")
    for (_, answer), reported in zip(answers, found.facts["search"]["trials"], strict=True):
        assert reported["loss"] == pytest.approx(plain({"inputs": answer.tensors["inputs"]}).item(), rel=1e-5)
    assert found.facts["chosen"] == found.facts["search"]["trials"][found.facts["search"]["best"]]["point"]
    again = best_answer(AttackSearch(attack=attack, study=study, run=run_one, generator=fork(1)))
    assert again.facts == found.facts and torch.equal(again.tensors["inputs"], found.tensors["inputs"])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"starts": 0}, "starts"),
        ({"starts": 2.5, "sampler": "gp"}, "starts"),
        ({"starts": 3}, "sampler"),
        ({"starts": 20, "sampler": "gp"}, r"search\.starts: .*number of trials"),
        ({"ranges": {"q_conv": [-1.0, 5.0]}}, r"search\.ranges\.q_conv: .*`fedxray show awa`"),
        ({"give_up": 0}, "give_up"),
        ({"give_up": 1.0}, "give_up"),
        ({"give_up": "half"}, "give_up"),
        ({"give_up": True}, "give_up"),
        ({"batch": 0}, "batch"),
    ],
)
def test_impossible_starts_and_ends_are_refused(table: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        study_of(Awa(steps=3), table, "search")


def test_only_attacks_that_can_end_early_are_given_up() -> None:
    for attack, words in (
        (CuriousClient(own_share="recover"), "can end early"),
        (Awa(steps=3, give_up=(1, 0.5)), "give_up of its own"),
        (Awa(steps=1), "some of 1 steps"),
        (Awa(steps=3, restarts=2), r"search\.give_up: expected restarts = 1"),
    ):
        with pytest.raises(BadInput, match=words):
            study_of(attack, {"give_up": 0.5}, "search")
