"""The four scenarios of Song et al. 2023 (AWA): what a replay of the true data gives, exactly or by interpolation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.inversion.awa import Awa, ReplayTarget, one_epoch, order_is_unknown, share_after, work_of
from fedxray.attacks.inversion.problem import replayed
from fedxray.errors import Refused
from fedxray.federation.recipe import Recipe, Schedule, draw_schedule
from fedxray.params import Params, add, subtract
from tests.attacks.inversion.clients import examples, plain_update, small_net
from tests.attacks.views import view_of_update

RATE = 0.05
SCENARIOS = {
    1: Recipe(epochs=1, batch_size="all", learning_rate=RATE),
    2: Recipe(epochs=4, batch_size="all", learning_rate=RATE),
    3: Recipe(epochs=1, batch_size=2, learning_rate=RATE),
    4: Recipe(epochs=2, batch_size=2, learning_rate=RATE),
}


def seen_by_server(
    recipe: Recipe, count: int = 4, order: Schedule | None = None
) -> tuple[View, Tensor, Tensor, Schedule]:
    model, (x, y) = small_net(torch.float64), examples(count, torch.float64)
    schedule = order or draw_schedule(count, recipe, torch.Generator().manual_seed(1))
    update = plain_update(model, x, y, recipe, schedule)
    view = view_of_update(model, update, shape=(1, 4, 4), classes=3, recipe=recipe, examples=count, kind="weights")
    return view, x, y, schedule


def distance(left: Params, right: Params) -> float:
    return float(sum(((left[name] - right[name]).detach() ** 2).sum() for name in left)) ** 0.5


def length(update: Params) -> float:
    return float(sum((value**2).sum() for value in update.values())) ** 0.5


def work(view: View, count: int = 4, epoch: int = 1) -> ReplayTarget:
    return work_of(view, view.observations[0], count, "batch", epoch)


@pytest.mark.parametrize("scenario", [1, 2, 3])
def test_the_true_data_in_the_true_batches_give_the_update_exactly(scenario: int) -> None:
    view, x, y, schedule = seen_by_server(SCENARIOS[scenario])
    target = work(view)
    order = torch.cat(list(schedule.rows()))[:4] if scenario == 3 else torch.arange(4)
    assert target.epoch is None and distance(target.client.update(x[order], y[order]), target.aim) < 1e-12


@pytest.mark.parametrize("scenario", [1, 2])
def test_with_full_batches_the_order_of_the_guess_does_not_matter(scenario: int) -> None:
    view, x, y, _ = seen_by_server(SCENARIOS[scenario])
    target, order = work(view), torch.tensor([2, 0, 3, 1])
    assert distance(target.client.update(x[order], y[order]), target.aim) < 1e-12


def test_with_small_batches_only_the_order_within_a_batch_does_not_matter() -> None:
    gaps = []
    for rate in (RATE, RATE / 2):
        recipe = replace(SCENARIOS[3], learning_rate=rate)
        view, x, y, _ = seen_by_server(recipe, order=Schedule(torch.tensor([[0, 1], [2, 3]])))
        target = work(view)
        within, across = torch.tensor([1, 0, 3, 2]), torch.tensor([2, 3, 0, 1])
        assert distance(target.client.update(x[within], y[within]), target.aim) < 1e-12
        gaps.append(distance(target.client.update(x[across], y[across]), target.aim))
    assert gaps[1] > 1e-8 and gaps[0] / gaps[1] == pytest.approx(4, rel=0.1)  # second order in the rate


def test_interpolated_epochs_add_up_and_are_all_the_same() -> None:
    view, _, _, _ = seen_by_server(replace(SCENARIOS[4], epochs=3))
    seen = view.observations[0]
    client, aim = replayed(view, seen, 4, "batch")
    parts = [one_epoch(client, aim, seen.update, epoch) for epoch in (1, 2, 3)]
    whole = add(add(parts[0][1], parts[1][1]), parts[2][1])
    assert distance(whole, seen.update) < 1e-15
    assert all(distance(part[1], parts[0][1]) == 0 for part in parts)
    for place, (part, target) in enumerate(parts):
        assert distance(part.start, add(seen.start, seen.update, place / 3)) < 1e-15
        assert part.recipe.epochs == 1 and part.sizes == (2, 2)
        assert distance(add(part.start, target), add(seen.start, seen.update, (place + 1) / 3)) < 1e-15
    assert [share_after(client.recipe, 2, epoch) for epoch in (0, 3)] == [0, 1]


def first_epoch(recipe: Recipe) -> tuple[Params, Params, float]:
    """The interpolated and the real update of the first epoch, and the length of the whole update."""
    view, x, y, schedule = seen_by_server(recipe)
    steps = schedule.steps // recipe.epochs
    real = plain_update(view.model, x, y, replace(recipe, epochs=1), Schedule(schedule.index[:steps]))
    client, aim = replayed(view, view.observations[0], 4, "batch")
    return (one_epoch(client, aim, view.observations[0].update, 1)[1], real, length(view.observations[0].update))


@pytest.mark.parametrize("scenario", [2, 4])
def test_the_error_of_interpolation_is_of_second_order(scenario: int) -> None:
    gaps, lengths = [], []
    for rate in (RATE / 8, RATE / 16):
        guessed, real, whole = first_epoch(replace(SCENARIOS[scenario], learning_rate=rate))
        gaps.append(distance(guessed, real))
        lengths.append(whole)
    assert gaps[0] > 1e-9 and gaps[0] / gaps[1] == pytest.approx(4, rel=0.1)
    assert lengths[0] / lengths[1] == pytest.approx(2, rel=0.1)


def test_with_momentum_and_full_batches_the_error_is_of_second_order_too() -> None:
    gaps = []
    for rate in (RATE / 8, RATE / 16):
        guessed, real, _ = first_epoch(replace(SCENARIOS[2], learning_rate=rate, momentum=0.9))
        gaps.append(distance(guessed, real))
    assert gaps[0] > 1e-9 and gaps[0] / gaps[1] == pytest.approx(4, rel=0.1)
    assert share_after(replace(SCENARIOS[2], momentum=0.9), 1, 1) == pytest.approx(1 / (1 + 1.9 + 2.71 + 3.439))


def test_with_full_batches_the_exact_map_and_the_interpolated_one_differ_in_second_order() -> None:
    gaps = []
    for rate in (RATE / 8, RATE / 16):
        view, x, y, _ = seen_by_server(replace(SCENARIOS[2], learning_rate=rate))
        client, aim = replayed(view, view.observations[0], 4, "batch")
        part, _ = one_epoch(client, aim, view.observations[0].update, 1)
        once = part.update(x, y)
        gaps.append(distance(client.update(x, y), {name: 4 * value for name, value in once.items()}))
    assert gaps[1] > 1e-9 and gaps[0] / gaps[1] == pytest.approx(4, rel=0.1)


def test_with_one_epoch_the_interpolated_path_is_the_exact_one() -> None:
    view, x, y, _ = seen_by_server(SCENARIOS[3])
    client, aim = replayed(view, view.observations[0], 4, "batch")
    part, target = one_epoch(client, aim, view.observations[0].update, 1)
    assert distance(target, aim) == 0 and distance(part.update(x, y), client.update(x, y)) == 0


def test_only_a_round_whose_order_is_unknown_is_interpolated() -> None:
    assert [number for number, recipe in SCENARIOS.items() if order_is_unknown(recipe, 4)] == [4]
    assert not order_is_unknown(SCENARIOS[4], 2) and not order_is_unknown(Recipe(algorithm="fedsgd"), 4)
    for shuffle in ("once", "never"):
        kept = replace(SCENARIOS[4], shuffle=shuffle)  # type: ignore[arg-type]
        view, x, y, schedule = seen_by_server(kept)
        target, order = work(view), torch.cat(list(schedule.rows()))[:4]
        assert target.epoch is None and distance(target.client.update(x[order], y[order]), target.aim) < 1e-12


@pytest.mark.parametrize("epoch", [1, 2])
def test_any_epoch_can_be_the_target(epoch: int) -> None:
    view, x, y, schedule = seen_by_server(replace(SCENARIOS[4], learning_rate=RATE / 8))
    target = work(view, epoch=epoch)
    order = torch.cat(list(schedule.rows()))[4 * (epoch - 1) : 4 * epoch]
    mine = target.client.update(x[order], y[order])
    assert target.epoch == epoch and distance(mine, target.aim) < 0.05 * length(target.aim)
    assert length(subtract(target.client.start, view.observations[0].start)) == pytest.approx(
        (epoch - 1) / 2 * length(view.observations[0].update)
    )


def test_an_epoch_that_the_client_has_not_is_refused() -> None:
    view, *_ = seen_by_server(SCENARIOS[4])
    with pytest.raises(Refused, match="a client of at least 7 epochs"):
        Awa(epoch=7).check(view)
    Awa(epoch=2).check(view)
    full, *_ = seen_by_server(SCENARIOS[2])
    Awa(epoch=7).check(full)  # a round that is replayed whole has no such choice
