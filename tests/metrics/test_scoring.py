"""Evidence against a truth small enough to score by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, lists
from torch import Tensor

from fedxray.adversary.disclose import (
    attribute_order,
    attribute_rows,
    disclose,
    membership_records,
    source_order,
    source_records,
)
from fedxray.attacks.evidence import (
    Evidence,
    of_attributes,
    of_images,
    of_label_counts,
    of_membership,
    of_model,
    of_sources,
)
from fedxray.data.dataset import Records, Space
from fedxray.errors import BadInput
from fedxray.federation.truth import Truth
from fedxray.metrics.scoring import local_optimum, other_optimum, same_client_other_seed, score, shuffled
from fedxray.seeds import fork
from tests.adversary.clinics import SENSITIVE, federation

IMAGE = (1, 3, 3)


@pytest.fixture
def truth() -> Truth:
    return federation().truth(seed=3)


def real_codes(truth: Truth, client: int, rows: str = "train") -> Tensor:
    """The true values in the order in which the rows were handed out."""
    return attribute_rows(truth, client, (), rows).x[:, SENSITIVE : SENSITIVE + 1]  # type: ignore[arg-type]


def test_attributes_are_scored_in_the_order_in_which_they_were_granted(truth: Truth) -> None:
    granted = disclose(truth, ["public-attributes"], client=2).public_attributes
    assert granted is not None
    smokes = (granted.x[:, :1] * 100).round() % 3 == 0  # how these records were made
    right = torch.where(smokes, 2.0, -1.0)
    found = score(of_attributes(right), truth, client=2)
    assert found.means == {"accuracy": 1.0, "balanced_accuracy": 1.0}
    assert score(of_attributes(1.0 - right), truth, client=2).means["accuracy"] == 0.0
    in_own_order = truth.train[2].x[:, SENSITIVE : SENSITIVE + 1]
    assert score(of_attributes(in_own_order), truth, client=2).means["accuracy"] < 1.0


def test_half_right_and_no_guess(truth: Truth) -> None:
    """Of ten records three smoke; the nearest code counts, and what is not finite is wrong."""
    real = real_codes(truth, 2)
    smokes = real[:, 0] == 2.0
    assert int(smokes.sum()) == 3
    near = score(of_attributes(real + 0.9), truth, client=2)
    assert near.means["accuracy"] == 1.0
    nobody = score(of_attributes(torch.full_like(real, -1.0)), truth, client=2)
    assert nobody.means == pytest.approx({"accuracy": 0.7, "balanced_accuracy": 0.5})
    guess = real.clone()
    guess[smokes.nonzero()[0]] = math.nan
    assert score(of_attributes(guess), truth, client=2).means["accuracy"] == pytest.approx(0.9)
    assert score(of_attributes(real * math.nan), truth, client=2).means["accuracy"] == 0.0


def test_a_second_guess_made_for_balance_counts_for_balance_alone(truth: Truth) -> None:
    real = real_codes(truth, 2)
    plain = of_attributes(torch.full_like(real, -1.0))
    both = replace(plain, tensors={**plain.tensors, "codes_balanced": real})
    assert score(both, truth, client=2).means == pytest.approx({"accuracy": 0.7, "balanced_accuracy": 1.0})


def test_held_out_rows_have_their_own_truth(truth: Truth) -> None:
    right = of_attributes(real_codes(truth, 1, "holdout"))
    assert score(right, truth, client=1, rows="holdout").means["accuracy"] == 1.0
    with pytest.raises(BadInput):
        score(right, truth, client=1)  # three guesses for six records


def test_a_guess_about_mixed_rows_is_scored_on_the_held_out_ones(truth: Truth) -> None:
    real, held = real_codes(truth, 1, "mixed"), attribute_order(truth, 1, rows="mixed") >= 6
    half_right = of_attributes(torch.where(held[:, None], real, 1.0 - real), held.float())
    assert score(half_right, truth, client=1, rows="mixed").means["accuracy"] == 1.0
    assert score(of_attributes(1.0 - real), truth, client=1, rows="mixed").means["accuracy"] == 0.0
    owner = source_records(truth, rows="mixed")[1]
    trained = source_order(truth, rows="mixed") < 20
    guess = of_sources(torch.where(trained, (owner + 1) % 3, owner))
    assert score(guess, truth, client=1, rows="mixed").means["accuracy"] == pytest.approx(1.0)


def test_a_continuous_attribute_within_a_tenth_of_its_range(truth: Truth) -> None:
    by_weight = replace(truth, space=replace(truth.space, sensitive="weight"))  # 1 for everyone, range 0..1
    guess = torch.tensor([[1.0], [0.95], [1.05], [0.8], [1.2], [math.nan]])
    assert score(of_attributes(guess), by_weight, client=1).means == {"within_tolerance": 0.5}


def test_membership_by_hand(truth: Truth) -> None:
    _, inside = membership_records(truth, 1)
    assert score(of_membership(inside.float()), truth, client=1).means["auc"] == 1.0
    assert score(of_membership(-inside.float()), truth, client=1).means["auc"] == 0.0
    assert score(of_membership(torch.zeros(9)), truth, client=1).means["auc"] == 0.5


def test_sources_by_hand(truth: Truth) -> None:
    _, owner = source_records(truth)  # four, six and ten records
    for client in (0, 1, 2, None):
        assert score(of_sources(owner), truth, client=client).means["accuracy"] == pytest.approx(1.0)
        for always in range(3):  # naming one client always is no better than chance, for no client
            constant = of_sources(torch.full((20,), always))
            assert score(constant, truth, client=client).means["accuracy"] == pytest.approx(1 / 3)
        even = Evidence(kind="sources", tensors={"probabilities": torch.full((20, 3), 1 / 3)})
        assert score(even, truth, client=client).means["accuracy"] == pytest.approx(1 / 3)


@given(guess=lists(integers(0, 2), min_size=20, max_size=20))
def test_sources_are_scored_as_the_mean_over_owners(guess: list[int]) -> None:
    truth = federation("regression").truth(seed=0)
    owner = source_records(truth)[1].tolist()
    named = of_sources(torch.tensor(guess))
    scores = [score(named, truth, client=client) for client in range(3)]
    shares = {
        (client, other): sum(g == other for g, o in zip(guess, owner, strict=True) if o == client) / owner.count(client)
        for client in range(3)
        for other in range(3)
    }
    for client, found in enumerate(scores):
        of_all = sum(shares[other, client] for other in range(3)) / 3
        assert found.means["accuracy"] == pytest.approx(1 / 3 + shares[client, client] - of_all)
        assert float(found.records["accuracy"].mean()) == pytest.approx(shares[client, client])
    macro = sum(shares[client, client] for client in range(3)) / 3
    assert sum(one.means["accuracy"] for one in scores) / 3 == pytest.approx(macro)
    assert score(named, truth).means["accuracy"] == pytest.approx(macro)


def test_label_counts_by_hand() -> None:
    truth = federation("classification").truth(seed=0)
    real = torch.bincount(truth.train[1].y, minlength=3)  # 100..105: two of each
    assert real.tolist() == [2, 2, 2]
    found = score(of_label_counts(torch.tensor([4, 1, 1])), truth, client=1).means
    assert found == pytest.approx({"label_error": 2.0, "label_accuracy": 1 - 2 / 6})


def pictures(truth: Truth) -> Truth:
    """The same clients with images of one brightness each: client c holds c, c + 0.1, ... tenths."""

    def shades(first: float, count: int) -> Records:
        tone = first + torch.arange(count) / 100
        return Records(tone[:, None, None, None].expand(count, *IMAGE).clone(), torch.zeros(count).long())

    space = Space(kind="image", shape=IMAGE, target="classification", classes=("a", "b"))
    return replace(
        truth,
        space=space,
        train=tuple(shades(0.1 + 0.2 * owner, 2) for owner in range(3)),
        holdout=tuple(shades(0.2 + 0.2 * owner, 3) for owner in range(3)),
        public=shades(0.9, 2),
    )


def test_images_are_matched_and_searched_among_all_others(truth: Truth) -> None:
    shown = pictures(truth)
    guess = shown.train[1].x.flip(0) + 0.001
    found = score(of_images(guess), shown, client=1).means
    assert found["psnr"] == pytest.approx(60.0, abs=0.01) and found["mse"] == pytest.approx(1e-6, rel=1e-2)
    assert found["rec"] == found["retrieval"] == 1.0
    count = len(guess)
    assert score(of_images(guess), shown, client=1).matched.tolist() == list(range(count))[::-1]
    mine = of_images(torch.cat([guess[:1], guess]))  # its first image is attributed to the attacker itself
    mine = replace(mine, tensors={**mine.tensors, "own": torch.arange(count + 1) == 0})
    assert score(mine, shown, client=1).matched.tolist() == list(range(1, count + 1))[::-1]
    others = shown.train[0].x
    wrong = score(of_images(others), shown, client=1).means
    assert wrong["retrieval"] == 0.0 and wrong["psnr"] == pytest.approx(20 * math.log10(1 / 0.2), abs=0.05)


def test_images_in_their_order_are_scored_where_asked_and_as_many(truth: Truth) -> None:
    drawn = pictures(truth)
    real = drawn.train[0].x
    turned = of_images(real.flip(0), torch.zeros(len(real), dtype=torch.long))
    plain = score(turned, drawn, client=0, papers=("awa",))
    found = score(turned, drawn, client=0, papers=("awa",), by_index=True)
    assert found.means["mse"] == 0 and found.means.items() >= plain.means.items()
    more = {name.removesuffix("_by_index") for name in set(found.means) - set(plain.means)}
    assert more == {"psnr", "ssim", "mse", "rec", "psnr_awa", "ssim_awa"}
    expected = ((drawn.space.to_pixels(real.flip(0)) - drawn.space.to_pixels(real)) ** 2).mean().item()
    assert found.means["mse_by_index"] == pytest.approx(expected, rel=1e-5) and expected > 0
    assert len(found.records["psnr_awa_by_index"]) == len(real)
    few = of_images(real[:1], torch.zeros(1, dtype=torch.long))
    assert score(few, drawn, client=0, by_index=True).means == score(few, drawn, client=0).means


def test_the_order_of_images_is_that_of_their_labels(truth: Truth) -> None:
    """Labels are granted in another order than the records have, and say which image is meant for which record."""
    drawn = pictures(truth)
    held = Records(drawn.holdout[1].x, torch.tensor([1, 0, 1]))
    drawn = replace(drawn, train=(held, *drawn.train[1:]))
    order = torch.tensor([1, 0, 2])
    guess = of_images(held.x[order], held.y[order])
    assert score(guess, drawn, client=0, by_index=True).means["mse_by_index"] == 0
    swapped = of_images(held.x[[1, 2, 0]], torch.tensor([0, 1, 1]))  # equal labels are taken in turn
    records = score(swapped, drawn, client=0, by_index=True).records["mse_by_index"]
    assert [float(one) > 0 for one in records] == [True, False, True]
    other = of_images(held.x, torch.tensor([0, 0, 0]))  # labels that no record has say nothing
    assert score(other, drawn, client=0, by_index=True).means["mse_by_index"] == 0


def test_the_same_pictures_against_held_out_ones(truth: Truth) -> None:
    """The held-out image must not stand among the others that a guess could be nearer to, and `limit` keeps few."""
    shown = pictures(truth)
    held = score(of_images(shown.holdout[1].x[:2]), shown, client=1, rows="holdout", limit=2)
    assert len(held.records["psnr"]) == 2 and held.means["retrieval"] == 1.0
    trained = score(of_images(shown.train[1].x), shown, client=1, rows="holdout", limit=2).means
    assert trained["psnr"] == pytest.approx(20.0, abs=0.1) and trained["retrieval"] == 0.0
    whole = score(of_images(shown.train[1].x), shown, client=1, rows="holdout")
    assert len(whole.records["psnr"]) == 3


def test_models_by_their_distance_to_the_clients_own_optimum(truth: Truth) -> None:
    """Client 0's optimum is given as the next one's guess for client 2, so it is at distance 0 from itself."""
    own = other_optimum(truth, 2)
    found = score(own, truth, client=0).means
    assert found["parameter_distance"] == 0.0 and found["zest"] == 1.0
    assert found.keys() == {"parameter_distance", "zest", "training_loss"}
    other = score(own, truth, client=2).means
    assert other["parameter_distance"] > 0.01 and other["zest"] < 1 and other["training_loss"] > found["training_loss"]
    twice = of_model({name.removeprefix("param:"): 2 * value for name, value in own.tensors.items()})
    doubled = score(twice, truth, client=0).means
    assert doubled["parameter_distance"] == pytest.approx(1.0, rel=1e-5)
    assert doubled["zest"] == pytest.approx(1.0) and doubled["training_loss"] > found["training_loss"]
    with pytest.raises(BadInput, match="client"):
        score(own, truth)


def test_an_optimum_from_another_seed_is_the_same_where_there_is_only_one(truth: Truth) -> None:
    """These models are linear; the distance of parameters is no part of the ceiling."""
    found, own = same_client_other_seed(truth, 1).means, score(other_optimum(truth, 0), truth, client=1).means
    assert found.keys() == own.keys() - {"parameter_distance"}
    assert found["training_loss"] == pytest.approx(own["training_loss"], abs=0.01)
    first, second = (local_optimum(truth, 1, other_seed=place).params for place in (False, True))
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_another_seed_draws_the_same_numbers_in_another_order() -> None:
    start = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2)}
    found = shuffled(start, fork(0))
    assert not torch.equal(found["a"], start["a"]) and torch.equal(found["b"], start["b"])
    assert torch.equal(found["a"].flatten().sort().values, start["a"].flatten())


def test_the_default_client_is_the_target_of_the_evidence(truth: Truth) -> None:
    right = replace(of_attributes(real_codes(truth, 1)), target=1)
    assert score(right, truth).means["accuracy"] == 1.0
    everyone = attribute_rows(truth, None, (0,)).x[:, SENSITIVE : SENSITIVE + 1]
    summed = replace(of_attributes(everyone), seats=(0,))
    assert score(summed, truth).means["accuracy"] == score(of_attributes(everyone), truth, seats=(0,)).means["accuracy"]
    assert score(summed, truth).means["accuracy"] == 1.0


def test_rows_are_scored_by_the_columns_of_the_space(truth: Truth) -> None:
    rows = truth.train[1].x
    turned = Evidence(kind="rows", tensors={"inputs": rows.flip(0)}, target=1)
    assert score(turned, truth).means == {"values_recovered": 1.0}
    smokers = rows.clone()
    smokers[:, 1] = 2.0
    share = float((rows[:, 1] == 2.0).double().mean())
    found = score(Evidence(kind="rows", tensors={"inputs": smokers}, target=1), truth).means
    assert found["values_recovered"] == pytest.approx((2 + share) / 3)
    held = score(turned, truth, rows="holdout", limit=1)
    assert held.records["values_recovered"].shape == (1,)
