from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedxray.adversary.view import Grants
from fedxray.attacks.inversion.curious_client import CuriousClient
from fedxray.attacks.observations import mean_of_others, read_sum, server_step
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.params import Params, scaled, weighted_mean
from tests.attacks.sums_worlds import client_view, run, server_view

FEDAVG = Recipe(epochs=2, batch_size="all", learning_rate=0.3, server_learning_rate=0.7)
FEDSGD = Recipe(algorithm="fedsgd", learning_rate=0.3, server_learning_rate=0.7)


def near(left: Params, right: Params) -> bool:
    return left.keys() == right.keys() and all(
        torch.allclose(value, right[name], rtol=1e-6, atol=1e-12) for name, value in left.items()
    )


@pytest.mark.parametrize("recipe", [FEDAVG, FEDSGD, replace(FEDAVG, weighting="uniform")])
@pytest.mark.parametrize("seats", [(0,), (0, 2)])
def test_what_is_left_is_the_weighted_mean_of_the_others(recipe: Recipe, seats: tuple[int, ...]) -> None:
    transcript, truth = run((3, 1, 2, 4), recipe)
    names = ("recipe", "examples", "contributors", "label-counts")
    view = client_view(transcript, truth, seats=seats, names=names)
    reading = read_sum(view, "first", "subtract")
    others = [client for client in range(4) if client not in seats]
    replies = [truth_reply(transcript, client) for client in others]
    sizes = [len(truth.train[client]) for client in others]
    weights = [float(size) if recipe.weighting == "examples" else 1.0 for size in sizes]
    wanted = scaled(weighted_mean(replies, weights), server_step(recipe))
    assert near(dict(reading.view.observations[0].update), wanted)
    assert reading.own is None and reading.facts == {"own_share": "subtracted", "images": sum(sizes)}
    knowledge = reading.view.grants
    assert (knowledge.examples, knowledge.contributors) == (sum(sizes), tuple(others))
    counts = torch.bincount(torch.cat([truth.train[client].y for client in others]), minlength=6)
    assert knowledge.label_counts is not None and torch.equal(knowledge.label_counts, counts)


def truth_reply(transcript: object, client: int) -> Params:
    """A single reply, which no seat of a sum sees."""
    from fedxray.adversary import roles
    from fedxray.federation.transcript import Transcript

    assert isinstance(transcript, Transcript)
    return dict(roles.server(transcript, client=client).of(client)[0].update)


def test_an_own_part_of_unknown_weight_stays_in() -> None:
    transcript, truth = run((3, 1, 2), replace(FEDAVG, weighting="uniform"))
    view = client_view(transcript, truth, names=("recipe", "examples", "labels"))
    reading = read_sum(view, "first", "subtract")
    assert reading.facts["own_share"] == "left in" and reading.own is not None
    assert torch.equal(reading.own.x, truth.train[0].x)
    assert reading.view.grants.examples == 6
    assert reading.view.observations == view.observations


def test_a_seat_that_sat_out_has_no_part() -> None:
    transcript, truth = run((3, 1, 2), FEDAVG)
    view = client_view(transcript, truth)
    absent = replace(view, own=tuple(replace(one, observations=()) for one in view.own))
    reading = read_sum(absent, "first", "subtract")
    assert reading.own is None and reading.facts == {"own_share": "nothing", "images": 3}


def test_a_server_reads_the_same_as_a_client_that_takes_nothing_out() -> None:
    transcript, truth = run((3, 1, 2), FEDAVG)
    names = ("recipe", "examples", "labels")
    client = read_sum(client_view(transcript, truth, names=names), "first", "recover").view
    server = read_sum(server_view(transcript, truth, names=names), "first", "subtract").view
    assert client.grants.examples == server.grants.examples == 6
    assert client.grants.label_counts is not None and server.grants.label_counts is not None
    assert torch.equal(client.grants.label_counts, server.grants.label_counts)
    assert near(client.observations[0].update, server.observations[0].update)


def test_what_is_assumed_takes_the_place_of_what_was_told() -> None:
    transcript, truth = run((3, 1, 2), FEDAVG)
    view = client_view(transcript, truth)
    reading = read_sum(view, "first", "recover", learning_rate=0.05, examples=9)
    assert reading.view.grants.recipe is not None
    assert reading.view.grants.recipe.learning_rate == 0.05
    assert reading.view.grants.examples == 9
    untold = replace(view, grants=replace(view.grants, examples=None))
    assert read_sum(untold, "first", "subtract", examples=9).view.grants.examples == 6
    assert read_sum(untold, "first", "recover").view.grants.examples is None


def test_without_an_update_nothing_is_read() -> None:
    transcript, truth = run((2, 1), FEDAVG)
    blank = replace(client_view(transcript, truth).without_messages(), grants=Grants())
    assert read_sum(blank, "first", "subtract").view is blank


def test_mean_of_others_by_hand() -> None:
    mean = {"w": torch.tensor([3.0])}  # (2 * 1 + 1 * 7) / 3
    assert mean_of_others(mean, [{"w": torch.tensor([1.0])}], [2.0], 1.0)["w"].item() == pytest.approx(7.0)


def test_an_unknown_treatment_of_the_own_share_is_refused() -> None:
    with pytest.raises(BadInput, match="own_share"):
        CuriousClient(own_share="ignore")  # type: ignore[arg-type]
