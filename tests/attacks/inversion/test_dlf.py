from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.dlf import Dlf, DlfNoPrior, FedsgdEpoch, FedsgdInversion, SharedSimulation
from fedxray.attacks.inversion.surrogate import Surrogate
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.labels.last_layer import HeadStatistics
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.errors import BadInput, Refused
from fedxray.federation.local import checkpointed
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.priors import EPOCH_PRIORS, random_kernel
from fedxray.progress import Step
from fedxray.seeds import fork
from tests.attacks.inversion.clients import plain_update
from tests.attacks.inversion.dlf_views import client_view
from tests.attacks.views import view_of_update

FAMILY: list[type[Attack]] = [Dlf, DlfNoPrior, SharedSimulation, FedsgdEpoch, FedsgdInversion, Surrogate]
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
ROUND = Recipe(epochs=2, batch_size=2, learning_rate=0.1)


def attacked(attack: Attack, view: View, seed: int = 1) -> Evidence:
    return attack.run(view, generator=fork(seed, "test"))


def leaky_view(recipe: Recipe, order: Schedule | None = None) -> tuple[View, Tensor]:
    """A round on smooth images, through a wide network that hides little."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(128, 6))
    drawn = torch.rand(3, 1, 2, 2, generator=torch.Generator().manual_seed(5))
    x, y = nn.functional.interpolate(drawn, size=(4, 4), mode="bilinear"), torch.tensor([1, 3, 5])
    update = plain_update(model, x, y, recipe, order or draw_schedule(3, recipe, torch.Generator().manual_seed(1)))
    given = {"shape": (1, 4, 4), "classes": 6, "recipe": recipe, "examples": 3, "kind": recipe.kind}
    return view_of_update(model, update, **given, labels=y), x


def error(evidence: Evidence, x: Tensor) -> float:
    """Mean square distance of every original to the nearest guess."""
    apart = ((evidence.tensors["inputs"][:, None] - x[None]) ** 2).flatten(2).mean(2)
    return float(apart.min(0).values.mean())


@pytest.mark.parametrize("attack", FAMILY)
def test_images_of_a_short_round_come_back(attack: type[Attack]) -> None:
    view, x = leaky_view(Recipe(epochs=2, batch_size=2, learning_rate=0.02, shuffle="never"))
    settings = {"prior_weight": 10.0} if attack is Dlf else {}
    evidence = attacked(attack(steps=60, learning_rate=0.1, **settings), view)
    assert evidence.kind == "images" and evidence.status == "ok"
    assert evidence.tensors["inputs"].shape == x.shape
    assert evidence.tensors["labels"].tolist() == [1, 3, 5]
    assert error(evidence, x) < 0.06 and error(evidence, x) < 0.7 * error(evidence, 1 - x)
    assert evidence.facts["labels"] == "granted" and evidence.facts["label_order"] == "given"


def test_it_is_deterministic_and_one_epoch_makes_three_of_them_equal() -> None:
    recipe = Recipe(epochs=1, batch_size=2, learning_rate=0.1)
    view, *_ = client_view(recipe, labels=LABELS)
    found = {attack: attacked(attack(steps=6), view).tensors["inputs"] for attack in FAMILY}
    assert torch.equal(found[Dlf], attacked(Dlf(steps=6), view).tensors["inputs"])
    assert torch.equal(found[Dlf], found[DlfNoPrior]) and torch.equal(found[Dlf], found[SharedSimulation])
    assert torch.equal(found[FedsgdEpoch], found[FedsgdInversion])
    assert not torch.equal(found[Dlf], found[FedsgdEpoch])


def test_the_prior_draws_the_epochs_together() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)

    def apart(weight: float) -> float:
        """How far the second epoch's mean is from the first's."""
        first, both = (
            attacked(Dlf(steps=12, together=0.0, learning_rate=0.05, average=average, prior_weight=weight), view)
            for average in ("none", "plain")
        )
        return float((both.tensors["inputs"].mean(0) - first.tensors["inputs"].mean(0)).abs().mean())

    assert apart(1000.0) < 0.5 * apart(0.0)


def test_without_weight_the_prior_is_none() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    plain = attacked(DlfNoPrior(steps=5), view).tensors["inputs"]
    assert torch.equal(attacked(Dlf(steps=5, together=0.0, prior_weight=0.0), view).tensors["inputs"], plain)


@pytest.mark.parametrize("name", sorted(EPOCH_PRIORS))
def test_every_prior_can_be_used(name: str) -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    evidence = attacked(Dlf(steps=8, prior=name, learning_rate=0.02), view)
    assert evidence.status == "ok" and evidence.curve[-1] < evidence.curve[0]


@pytest.mark.parametrize("match", ["l2-by-depth", "cosine", "cosine-by-layer", "l2", "l1"])
def test_every_way_to_match_goes_down(match: str) -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    evidence = attacked(DlfNoPrior(steps=8, match=match, learning_rate=0.05), view)
    assert evidence.curve[-1] < evidence.curve[0]


def test_what_is_kept_is_the_last_or_the_best_of_the_second_half() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    wild = {"steps": 12, "learning_rate": 3.0}
    last, best = (attacked(DlfNoPrior(keep=keep, **wild), view) for keep in ("last", "best"))
    assert last.curve == best.curve and best.facts["own_loss"] == [min(best.curve[6:])]
    assert not torch.equal(last.tensors["inputs"], best.tensors["inputs"])
    assert last.facts["own_loss"] == [last.curve[-1]]


def test_restarts_are_ranked_by_what_is_kept() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    wild = {"steps": 8, "learning_rate": 3.0, "restarts": 4}
    last, best = (attacked(DlfNoPrior(keep=keep, **wild), view, seed=3) for keep in ("last", "best"))
    for found, own in ((last, last.curve[-1]), (best, min(best.curve[4:]))):
        assert found.facts["own_loss"][found.facts["restart"]] == min(found.facts["own_loss"]) == own
    assert last.facts["restart"] != best.facts["restart"], "else this seed tells nothing"


def test_restarts_are_chosen_by_the_own_loss() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    reported_steps: list[Step] = []
    found = DlfNoPrior(steps=8, restarts=3).run(view, generator=fork(1), report=reported_steps.append)
    losses = found.facts["own_loss"]
    assert len(set(losses)) == 3 and losses[found.facts["restart"]] == min(losses)
    assert reported_steps[-1].done == reported_steps[-1].total == 24 and reported_steps[0].what == "dlf-no-prior"


def test_the_labels_of_every_step_are_used_where_granted() -> None:
    view, _, y, order = client_view(ROUND)
    steps = tuple(y[order.used(step)] for step in range(order.steps))
    informed_view = replace(view, grants=replace(view.grants, labels=y, batch_labels={0: steps}))
    evidence = attacked(Dlf(steps=3), informed_view)
    assert evidence.facts["labels"] == "granted for every local step"
    assert evidence.tensors["labels"].tolist() == torch.cat(steps)[:6].tolist()


@pytest.mark.parametrize("drawn", [[3, 1, 2, 2, 2, 2], [2, 2, 2, 2, 2, 1], [2, 2, 2], []])
def test_labels_of_batches_that_the_recipe_does_not_make_are_not_used(drawn: list[int]) -> None:
    view, _, y, _ = client_view(ROUND)
    steps = tuple(torch.zeros(size, dtype=torch.int64) for size in drawn)
    informed_view = replace(view, grants=replace(view.grants, labels=y, batch_labels={0: steps}))
    for attack in (Dlf(steps=2), SharedSimulation(steps=2)):
        evidence = attacked(attack, informed_view)
        assert evidence.facts["labels"] == "granted" and "not used" in evidence.facts["batch_labels"]
        assert evidence.tensors["labels"].tolist() == y.tolist()
    plain = attacked(Dlf(steps=2), replace(view, grants=replace(view.grants, labels=y)))
    assert "batch_labels" not in plain.facts
    assert torch.equal(plain.tensors["inputs"], attacked(Dlf(steps=2), informed_view).tensors["inputs"])


def test_labels_of_a_smaller_last_batch_are_used() -> None:
    view, _, y, order = client_view(ROUND, 5)
    steps = tuple(y[order.used(step)] for step in range(order.steps))
    evidence = attacked(Dlf(steps=2), replace(view, grants=replace(view.grants, batch_labels={0: steps})))
    assert evidence.facts["labels"] == "granted for every local step" and "batch_labels" not in evidence.facts


def test_the_whole_family_puts_granted_counts_into_the_same_order() -> None:
    counts = torch.tensor([2, 3, 3])
    view, *_ = client_view(ROUND, 8, label_counts=counts)
    found = [attacked(attack(steps=2), view) for attack in FAMILY]  # type: ignore[call-arg]
    orders = [one.tensors["labels"].tolist() for one in found]
    assert all(order == orders[0] for order in orders) and sorted(orders[0]) == [0, 0, 1, 1, 1, 2, 2, 2]
    assert orders[0] != sorted(orders[0]) and {one.facts["labels"] for one in found} == {"granted counts"}
    assert attacked(Dlf(steps=2), view, seed=2).tensors["labels"].tolist() != orders[0]


def test_settings_share_the_random_convolution_and_others_draw_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[Tensor] = []

    def watched(like: Tensor, generator: torch.Generator) -> Tensor:
        kernels.append(random_kernel(like, generator))
        return kernels[-1]

    monkeypatch.setattr("fedxray.attacks.inversion.dlf.random_kernel", watched)
    view, *_ = client_view(ROUND, labels=LABELS)
    for given in ({}, {"average": "none", "keep": "best", "steps": 3}, {"prior": "l1-mean-conv"}):
        attacked(Dlf(**{"steps": 2, "prior": "l2-max-conv", **given}), view)  # type: ignore[arg-type]
    attacked(Dlf(steps=2, prior="l2-mean"), view)
    attacked(Dlf(steps=2, prior="l1-max"), view)
    assert len(kernels) == 3 and all(torch.equal(one, kernels[0]) for one in kernels)
    attacked(Dlf(steps=2, prior="l2-max-conv"), view, seed=2)
    assert not torch.equal(kernels[3], kernels[0])


def test_labels_come_from_a_sub_attack_when_none_are_granted() -> None:
    view, *_ = client_view(ROUND)
    assert attacked(Dlf(steps=2), view).facts["labels"] == "labels-dlf"
    other = attacked(Dlf(steps=2, labels=LabelsIdlg()), view)
    assert other.facts["labels"] == "labels-idlg" and len(other.tensors["labels"]) == 6


def test_one_gradient_is_a_round_of_one_step() -> None:
    view, x = leaky_view(Recipe(algorithm="fedsgd"))
    for attack in FAMILY:
        assert error(attacked(attack(steps=60, learning_rate=0.1), view), x) < 0.03


def test_long_rounds_are_replayed_in_segments_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    view, *_ = client_view(replace(ROUND, epochs=3), labels=LABELS)
    taken: list[int] = []

    def watched(walk: Any, tensors: Any) -> Any:
        taken.append(len(tensors))
        return checkpointed(walk, tensors)

    monkeypatch.setattr("fedxray.federation.local.checkpointed", watched)
    whole = attacked(Dlf(steps=4), view)
    assert not taken
    monkeypatch.setattr("fedxray.attacks.inversion.replay.MOST_HELD", 0)
    parts = attacked(Dlf(steps=4), view)
    assert len(taken) == 5 * 2, "nine local steps in segments of three, of which the last is kept"
    assert parts.curve == pytest.approx(whole.curve, rel=1e-5)
    assert torch.allclose(parts.tensors["inputs"], whole.tensors["inputs"], atol=1e-4)


def test_an_update_that_is_not_finite_is_an_outcome() -> None:
    view, *_ = client_view(ROUND, labels=LABELS)
    seen = view.observations[0]
    broken = replace(view, observations=(replace(seen, update={k: v * float("nan") for k, v in seen.update.items()}),))
    evidence = attacked(Dlf(steps=5), broken)
    assert evidence.status == "diverged" and bool(torch.isfinite(evidence.tensors["inputs"]).all())


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"learning_rate": -1.0},
        {"decay": 0.0},
        {"decay": 1.1},
        {"preset": "mnist"},
        {"match": "l3"},
        {"match_weight": (1.0, 0.0)},
        {"match_weight": ()},
        {"match_weight": (1.0,)},
        {"match_weight": (1.0, 2.0, 2.0)},
        {"total_variation": -1.0},
        {"clip": float("inf")},
        {"label_order": "any"},
        {"labels": LastReturned()},
        {"labels": HeadStatistics(place="start", samples=3, at="first")},
        {"restarts": 0},
        {"keep": "first"},
        {"at": "middle"},
        {"batch_norm": "eval"},
    ],
)
@pytest.mark.parametrize("attack", FAMILY)
def test_wrong_settings_are_refused(attack: type[Attack], wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        attack(**wrong)


@pytest.mark.parametrize("wrong", [{"prior": "l2"}, {"prior_weight": -1.0}, {"average": "median"}])
def test_wrong_priors_and_averages_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Dlf(**wrong)


@pytest.mark.parametrize("attack", FAMILY)
def test_needs_are_named(attack: type[Attack]) -> None:
    view, *_ = client_view(ROUND)
    with pytest.raises(Refused, match="recipe"):
        attacked(attack(), replace(view, grants=replace(view.grants, recipe=None)))
    with pytest.raises(Refused, match="an update"):
        attacked(attack(), view.without_messages())
    with pytest.raises(Refused, match="image"):
        attacked(attack(), replace(view, space=replace(view.space, kind="table")))


def test_epochs_that_begin_together_hold_the_same_images_until_they_part() -> None:
    view, _ = leaky_view(ROUND)
    first, mean = (
        attacked(Dlf(steps=6, together=1.0, average=way), view).tensors["inputs"] for way in ("none", "plain")
    )
    torch.testing.assert_close(first, mean)
    first, mean = (
        attacked(Dlf(steps=6, together=0.5, average=way), view).tensors["inputs"] for way in ("none", "plain")
    )
    assert not torch.allclose(first, mean, atol=1e-4)


def test_beginning_together_gets_further_in_as_many_steps() -> None:
    recipe = Recipe(epochs=4, batch_size=1, learning_rate=0.1)
    view, x = leaky_view(recipe)
    apart, together = (
        error(attacked(Dlf(steps=60, together=share, learning_rate=0.05), view), x) for share in (0.0, 0.5)
    )
    assert together < apart


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_of_steps_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match="together"):
        Dlf(together=share)
