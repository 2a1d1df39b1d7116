"""The floor as a prior, against explicit Bayes over all candidates and at its two ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from fedxray.adversary.view import PublicAttributes, View
from fedxray.attacks import floor_prior
from fedxray.attacks.attributes.from_gradients import AttributeFromGradients
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.base import Attack
from fedxray.attacks.floors import Imputation, Marginals
from fedxray.attacks.labels import last_layer
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.labels.last_layer import drawn_by_class, share_kept
from fedxray.data.dataset import Records
from fedxray.errors import Refused
from fedxray.seeds import fork, spell
from tests.attacks.by_hand import column, linear, table, view_with
from tests.contract import worlds

SEEDS = st.integers(0, 10_000)


def drawn(seed: int, records: int = 12, answers: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Log priors and misfits [records, answers], and answers that both speak for."""
    draw = fork(seed, "prior")
    known = torch.log_softmax(torch.randn(records, answers, generator=draw, dtype=torch.float64), 1)
    misfits = 50 * torch.rand(records, answers, generator=draw, dtype=torch.float64)
    real = (known - 0.1 * misfits + torch.randn(records, answers, generator=draw)).argmax(1)
    return known, misfits, real


def log_loss(trust: float, weight: float, known: Tensor, misfits: Tensor, real: Tensor) -> float:
    """The mean of -log P(real), record by record."""
    total = 0.0
    for prior, misfit, answer in zip(known.tolist(), misfits.tolist(), real.tolist(), strict=True):
        odds = [math.exp(trust * p - weight * m) for p, m in zip(prior, misfit, strict=True)]
        total -= math.log(max(odds[answer] / sum(odds), 1e-300))
    return total / len(real)


@given(seed=SEEDS)
def test_the_weights_have_the_lowest_log_loss_of_all(seed: int) -> None:
    made = drawn(seed, records=40)
    by = floor_prior.fitted(*made)
    tried = [(trust / 4, weight / 40) for trust in range(13) for weight in range(17)]
    assert log_loss(by.trust, by.weight, *made) <= min(log_loss(*one, *made) for one in tried) + 1e-4


def test_misfits_that_mislead_get_no_weight_and_those_that_decide_all() -> None:
    known, misfits, _ = drawn(1, records=200)
    unit = floor_prior.spread(misfits)
    misled, decided = (floor_prior.fitted(known, misfits, real) for real in (misfits.argmax(1), misfits.argmin(1)))
    assert misled.weight == pytest.approx(floor_prior.LEAST / unit) and decided.weight > 10 / unit
    flat = floor_prior.fitted(known, torch.zeros_like(misfits), misfits.argmin(1))
    assert flat == floor_prior.Weights(trust=1.0, weight=1.0)
    broken = torch.cat([misfits, torch.full_like(misfits[:1], torch.nan)])
    real = misfits.argmin(1)
    more = (torch.cat([known, known[:1]]), broken, torch.cat([real, real[:1]]))
    assert floor_prior.fitted(*more) == floor_prior.fitted(known, misfits, real)


def table_of(seed: int, slope: float, records: int = 30) -> View:
    """Records [p, s] with s near the sign of p and y = p + 2 s; the model has this slope in s."""
    draw = fork(seed, "table")
    p = torch.randn(2 * records, generator=draw)
    s = (p + torch.randn(2 * records, generator=draw) > 0).float()
    y = p + 2 * s + torch.randn(2 * records, generator=draw)
    x = torch.stack([p, s], 1)
    asked = x[:records].clone()
    asked[:, 1] = 0
    return view_with(
        linear([[1.0, slope]]), table(2, column()), public_attributes=PublicAttributes(x=asked, y=y[:records]),
        public_records=Records(x[records:], y[records:]),
    )  # fmt: skip


def run(attack: Attack, view: View) -> dict[str, Tensor]:
    return attack.run(view, generator=fork(0)).tensors


@pytest.mark.parametrize("seed", range(5))
def test_values_are_those_of_bayes_rule_candidate_by_candidate(seed: int) -> None:
    view = table_of(seed, 2.0)
    evidence = AttributeFromModel(prior="floor").run(view, generator=fork(0))
    asked, weight, trust = view.grants.public_attributes, evidence.facts["weight"], evidence.facts["trust"]
    assert asked is not None
    prior = floor_prior.of_values(view, torch.tensor([[0.0], [1.0]])).asked.exp()
    for record, (x, y) in enumerate(zip(asked.x.tolist(), asked.y.tolist(), strict=True)):
        odds = [float(prior[record, s]) ** trust * math.exp(-weight * (x[0] + 2 * s - y) ** 2) for s in (0, 1)]
        assert evidence.tensors["codes"][record, 0] == float(odds[1] > odds[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_ignores_the_column_leaves_the_answer_of_the_floor(seed: int) -> None:
    view = table_of(seed, 0.0)
    assert torch.equal(run(AttributeFromModel(prior="floor"), view)["codes"], run(Imputation(), view)["codes"])


def even(view: View, candidates: Tensor) -> floor_prior.ValuePrior:
    """The same probability for all values."""
    asked, public = view.grants.public_attributes, view.grants.public_records
    assert asked is not None and public is not None
    flat = [torch.zeros((len(records.x), len(candidates)), dtype=torch.float64) for records in (asked, public)]
    real = torch.arange(len(public.x)) % len(candidates)
    return floor_prior.ValuePrior(asked=flat[0], public=flat[1], real=real)


@pytest.mark.parametrize("attack", [AttributeFromModel(), AttributeFromGradients()])
def test_an_even_prior_leaves_the_answer_of_the_messages(attack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor_prior, "of_values", even)
    both = replace(attack, prior="floor")
    view = worlds.view_of(both, worlds.world_of(both))
    assert torch.equal(run(both, view)["codes"], run(attack, view)["codes"])


def test_numbers_have_a_normal_prior_around_the_imputed_one() -> None:
    draw = fork(3, "numbers")
    learn, guess = torch.randn(60, 1, generator=draw), torch.randn(7, 1, generator=draw)
    wanted = learn + 0.3 * torch.randn(60, 1, generator=draw)
    steps = torch.linspace(-3, 3, 25)[:, None]
    asked, public = floor_prior._around_imputed(learn, wanted, guess, steps)
    assert torch.allclose(asked.sum(1), torch.ones(7).double()) and public.shape == (60, 25)
    assert (steps[asked.argmax(1), 0] - guess[:, 0]).abs().max() < 0.4


def test_public_records_are_predicted_by_models_that_did_not_see_them() -> None:
    draw = fork(4, "noise")
    learn, real = torch.randn(80, 30, generator=draw), torch.randint(2, (80,), generator=draw)
    crossed = floor_prior._crossed_probabilities(learn, real, 2)
    assert (crossed.argmax(1) == real).double().mean() < 0.75  # a model that saw them reaches about 0.9
    few = floor_prior._crossed_probabilities(learn[:4], real[:4], 3)
    assert torch.allclose(few.sum(1), torch.ones(4).double()) and bool((few > 0).all())


# Labels


@given(seed=SEEDS)
def test_the_share_that_is_kept_has_the_lowest_square_error_on_the_shadows(seed: int) -> None:
    draw = fork(seed, "counts")
    found, real = (20 * torch.rand(5, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    expected = 20 * torch.rand(4, generator=draw, dtype=torch.float64)

    def error(share: float) -> float:
        guess = [[e + share * (c - e) for c, e in zip(row, expected.tolist(), strict=True)] for row in found.tolist()]
        return sum((g - r) ** 2 for a, b in zip(guess, real.tolist(), strict=True) for g, r in zip(a, b, strict=True))

    best = min((place / 200 for place in range(201)), key=error)
    assert share_kept(found, real, expected) == pytest.approx(best, abs=0.006)


def test_counts_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact counts of the shadows leave those of the messages, arbitrary ones those of the floor."""
    attack = LabelsDlf(prior="floor")
    view = worlds.view_of(attack, worlds.world_of(attack))
    found = attack.run(view, generator=fork(0))
    assert int(found.tensors["counts"].sum()) == view.grants.examples and 0 <= found.facts["share_kept"] <= 1
    for share, alone in ((1.0, LabelsDlf()), (0.0, Marginals())):
        monkeypatch.setattr(last_layer, "share_kept", lambda *counts, share=share: share)
        assert torch.equal(run(attack, view)["counts"], run(alone, view)["counts"])


def test_shadow_clients_hold_classes_in_drawn_shares() -> None:
    y = torch.tensor([0, 0, 0, 2, 2, 5])
    rows = drawn_by_class(y, 500, fork(0))
    assert set(y[rows].tolist()) == {0, 2, 5} and set(rows.tolist()) == set(range(6))


# The setting


@pytest.mark.parametrize("attack", [AttributeFromModel, AttributeFromGradients, LabelsDlf])
def test_without_public_records_it_is_refused_with_the_grant_to_add(attack: Any) -> None:
    made = attack(prior="floor")
    view = worlds.view_of(made, worlds.world_of(made))
    bare = replace(view, grants=replace(view.grants, public_records=None))
    with pytest.raises(Refused, match=r"public records.*grants = \[\"public-records\"\]"):
        made.run(bare, generator=fork(0))


def test_a_setting_that_came_later_changes_no_text_at_its_default() -> None:
    assert "prior" not in spell(AttributeFromModel()) and "'prior':'floor'" in spell(AttributeFromModel(prior="floor"))
    assert AttributeFromModel().identity() != AttributeFromModel(prior="floor").identity()
