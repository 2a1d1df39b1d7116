"""Scores of numbers and counts do not depend on the default device and dtype."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from fedxray.data.dataset import Space
from fedxray.metrics.models import ask, distance_scores, fit_scores, signature, similarity
from fedxray.metrics.records import category_scores, continuous_scores, label_scores, membership_scores
from fedxray.metrics.table import METRICS
from fedxray.seeds import fork

VALUES = Space(kind="table", shape=(1,), target="regression")
CLASSES = Space(kind="table", shape=(1,), target="classification", classes=("a", "b"))


def test_nothing_ambient() -> None:
    score, member = torch.tensor([0.3, 0.1, 0.2]), torch.tensor([True, False, True])
    truth = torch.tensor([0, 1, 1])
    rows = score[:, None]
    square = signature(lambda x: x, ask(rows, rows, VALUES, fork(0)))

    def everything() -> list[dict[str, float]]:
        return [
            dict(membership_scores(score, member).means),
            dict(category_scores(truth, truth).means),
            dict(continuous_scores(score, score, tolerance=0.1).means),
            dict(label_scores(truth, truth).means),
            distance_scores({"a": score}, {"a": 2 * score}),
            fit_scores(score[:, None], score, "mse", VALUES, score),
            fit_scores(score[:, None].repeat(1, 2), truth, "cross-entropy", CLASSES, truth),
            {"zest": similarity(signature(lambda x: x * x, ask(rows, rows, VALUES, fork(0))), square)},
        ]

    usual = everything()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            assert everything() == usual
            records: Tensor = category_scores(truth, truth).records["accuracy"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert records.dtype == torch.float32
    assert all(name in METRICS for name in itertools.chain(*usual))
