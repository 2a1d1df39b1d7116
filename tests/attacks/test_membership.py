"""Membership by loss, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedxray.attacks.local_model.baselines import GlobalModel
from fedxray.attacks.membership import MembershipLoss
from fedxray.data.dataset import Records
from fedxray.errors import Refused
from fedxray.seeds import fork
from tests.attacks.by_hand import linear, table, view_with

RECORDS = Records(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2.0, 5.0, 5.5]))


def test_the_score_is_minus_the_loss_of_each_record() -> None:
    view = view_with(linear([[2.0]]), table(1), target_records=RECORDS)
    found = MembershipLoss().run(view, generator=fork(0))
    assert found.kind == "membership"
    assert found.tensors["scores"].tolist() == pytest.approx([0.0, -1.0, -0.25])


def test_for_classes_it_is_the_log_probability_of_the_label() -> None:
    records = Records(torch.tensor([[1.0], [0.0], [-1.0]]), torch.tensor([0, 0, 0]))
    view = view_with(linear([[1.0], [-1.0]]), table(1, classes=2), loss="cross-entropy", target_records=records)
    found = MembershipLoss().run(view, generator=fork(0)).tensors["scores"]
    wanted = nn.functional.logsigmoid(torch.tensor([2.0, 0.0, -2.0]))
    assert torch.allclose(found, wanted)


def test_another_model_another_score() -> None:
    """The global model is all zeros here, so its squared error is that of guessing nothing."""
    view = view_with(linear([[2.0]]), table(1), target_records=RECORDS)
    found = MembershipLoss(model=GlobalModel()).run(view, generator=fork(0))
    assert found.tensors["scores"].tolist() == pytest.approx([-4.0, -25.0, -30.25])


def test_batch_statistics_of_the_records_in_question_play_no_part() -> None:
    """In evaluation mode the score of a record does not depend on who stands beside it."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    view = view_with(model, table(1), target_records=RECORDS)
    alone = replace(view, grants=replace(view.grants, target_records=RECORDS.take(torch.tensor([1]))))
    scores = [MembershipLoss().run(one, generator=fork(0)).tensors["scores"] for one in (view, alone)]
    assert torch.allclose(scores[0][1:2], scores[1]) and model.training


def test_without_records_it_refuses() -> None:
    with pytest.raises(Refused, match="target-records"):
        MembershipLoss().run(view_with(linear([[2.0]]), table(1)), generator=fork(0))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_no_answer(value: float) -> None:
    """A record without a number has no rank; before, NaN counted as the lowest score of a guess that ended well."""
    records = Records(RECORDS.x, torch.tensor([2.0, value, 5.5]))
    found = MembershipLoss().run(view_with(linear([[2.0]]), table(1), target_records=records), generator=fork(0))
    assert found.status == "diverged" and "1 of 3 entries of 'scores'" in found.reason
