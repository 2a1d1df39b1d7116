"""What the tests against luck read: ranks of trained and held-out records, swaps, variances; each by a slow version."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedxray.adversary.disclose import attribute_order, disclose, membership_records, source_records
from fedxray.attacks.evidence import of_class_images, of_images, of_membership
from fedxray.audit.judge.statistics import drawn_permutations, joint_assignments, swap_p, swapped_means
from fedxray.audit.plan import make_plan
from fedxray.audit.run import execute
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.comparisons import CaseContext, Scored, declared_grants, root_for, swaps_of
from fedxray.audit.run.evaluate import Ranking, evaluate, finite, ranking_of, record_variances, split_facts
from fedxray.audit.run.prepare import prepare
from fedxray.audit.run.store import Store
from fedxray.federation.round_loop import simulate
from fedxray.imaging import psnr
from fedxray.metrics.records import Scores, auc, source_shares
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]
DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "clients": 2, "limit": 6, "holdout": 0.05, "public": 0.02},
    "model": {"name": "mlp", "hidden": [4]},
    "federation": {"rounds": 1, "algorithm": "fedsgd"},
}


def context(attack: dict[str, Any], client: int | None = 1, document: dict[str, Any] | None = None) -> CaseContext:
    plan = make_plan({**(document or tiny()), "attack": [attack]}, HERE)
    transcript, truth = simulate(prepare(plan, "none", 0).federation, seed=0)
    part = plan.attacks[0]
    return CaseContext(part=part, attack=part.make(HERE), transcript=transcript, truth=truth, client=client, aware=None)


def by_all_draws(ranking: Ranking) -> tuple[float, float]:
    """The statistic of the case, and its variance over every draw of trained records within each stratum."""

    def statistic(member: torch.Tensor) -> float:
        won = pairs = 0.0
        for i, j in itertools.product(range(len(member)), repeat=2):
            if ranking.stratum[i] == ranking.stratum[j] and member[i] and not member[j]:
                above, level = ranking.ranks[i] > ranking.ranks[j], ranking.ranks[i] == ranking.ranks[j]
                won, pairs = won + float(above) + float(level) / 2, pairs + 1
        return won / pairs

    strata = ranking.stratum.unique().tolist()
    places = [torch.nonzero(ranking.stratum == one).flatten().tolist() for one in strata]
    counts = [int(ranking.member[ranking.stratum == one].sum()) for one in strata]
    drawn = []
    for chosen in itertools.product(*(itertools.combinations(*one) for one in zip(places, counts, strict=True))):
        member = torch.zeros(len(ranking.member), dtype=torch.bool)
        member[[place for part in chosen for place in part]] = True
        drawn.append(statistic(member))
    return statistic(ranking.member), float(torch.tensor(drawn, dtype=torch.float64).var(unbiased=False))


@pytest.mark.parametrize("stratum", [[0] * 7, [0, 0, 0, 0, 2, 2, 2]])
def test_the_statistic_and_its_variance_are_those_of_all_draws(stratum: list[int]) -> None:
    ranking = Ranking(
        ranks=torch.tensor([3, 1, 1, 0, 2, 2, 1]),
        member=torch.tensor([True, False, True, False, True, False, True]),
        stratum=torch.tensor(stratum),
    )
    facts = split_facts(ranking, lists=True, drawn=True)
    pairs = sum(n1 * n0 for n1, n0 in zip(facts["n1"], facts["n0"], strict=True))
    assert (sum(facts["u"]) / pairs, facts["variance"]) == pytest.approx(by_all_draws(ranking))


def test_membership_ranks_by_its_scores_and_states_its_auc() -> None:
    made = context({"name": "membership-loss"})
    found = evaluate(made)
    inside = membership_records(made.truth, 1)[1]
    split = found.split
    assert split["u"] / (split["n1"] * split["n0"]) == pytest.approx(found.score.means["auc"]) and split["drawn"]
    ranks = torch.tensor(found.draws["scores"])
    assert auc(ranks.float(), torch.tensor(found.draws["member"]).bool()) == pytest.approx(found.score.means["auc"])
    assert found.record_variance["auc"] == pytest.approx((len(inside) + 1) / (12 * split["n1"] * split["n0"]))
    assert not found.swaps


def test_scores_that_are_no_numbers_rank_nobody() -> None:
    made = context({"name": "membership-loss"})
    count = len(membership_records(made.truth, 1)[1])
    broken = of_membership(torch.tensor([float("nan")] + [1.0] * (count - 1)))
    assert not finite(made.score(broken)).scores.means and ranking_of(made, broken) is None
    endless = of_membership(torch.tensor([float("inf"), -float("inf")] + [1.0] * (count - 2)))
    ranking = ranking_of(made, endless)
    assert ranking is not None and ranking.ranks[:3].tolist() == [2, 0, 1]


def test_images_rank_by_their_nearest_guess_among_trained_and_held_out_records() -> None:
    made = context({"name": "inverting-gradients", "steps": 1}, document=DIGITS)
    own, held, public = made.truth.train[1], made.truth.holdout[1], made.truth.public
    guess = torch.stack([own.x[2], held.x[0]])
    for alike, pool in ((False, [own, held]), (True, [own, held, public])):
        ranking = ranking_of(replace(made, public_alike=alike), of_images(guess))
        assert ranking is not None
        pixels = [made.truth.space.to_pixels(records.x) for records in pool]
        near = made.truth.space.to_pixels(guess)
        slow = [max(float(psnr(one[None], image[None])) for one in near) for part in pixels for image in part]
        order = sorted(set(slow))
        assert ranking.ranks.tolist() == [order.index(value) for value in slow]
        assert ranking.member.tolist() == [True] * len(own) + [False] * (len(slow) - len(own))
        assert ranking.stratum.unique().tolist() == [1]


def test_images_of_known_labels_are_compared_within_their_class() -> None:
    made = context({"name": "inverting-gradients", "steps": 1, "grants": ["recipe", "labels"]}, document=DIGITS)
    ranking = ranking_of(made, of_images(made.truth.train[1].x[:2]))
    own, held = made.truth.train[1].y.tolist(), made.truth.holdout[1].y.tolist()
    both = set(own) & set(held)
    assert ranking is not None
    kept = [10 + label for label in (*own, *held) if label in both]
    assert ranking.stratum.tolist() == kept and set(split_facts(ranking, lists=True, drawn=True)["n1"]) <= {1, 2, 3}


def test_a_picture_of_a_class_ranks_the_records_of_that_class_only() -> None:
    made = context({"name": "inverting-gradients", "steps": 1}, document=DIGITS)
    own = made.truth.train[1]
    ranking = ranking_of(made, of_class_images(own.x[:1], own.y[:1]))
    assert ranking is not None
    first = ranking.stratum == 10 + int(own.y[0])
    assert int(ranking.ranks.max()) in ranking.ranks[first].tolist()
    assert set(ranking.ranks[~first].tolist()) == {0}  # no guess about their class


def test_rows_without_held_out_records_are_swapped_instead() -> None:
    rows = {"name": "tabular-inversion", "steps": 2}
    split = evaluate(context(rows, document=tiny(federation={"rounds": 1, "algorithm": "fedsgd"})))
    assert split.split["n1"] and not split.swaps and "other-client" in split.controls
    none = tiny(data={"holdout": 0.0}, federation={"rounds": 1, "algorithm": "fedsgd"})
    swapped = evaluate(context(rows, document=none))
    assert not swapped.split and set(swapped.swaps) == {"0"}
    assert swapped.controls["other-client"] == swapped.swaps["0"]


def test_sources_swap_names_without_a_further_run() -> None:
    made = context({"name": "source-from-model"}, document=tiny(data={"clients": 3}))
    found = evaluate(made)
    owners = made.infer(made.attack, made.view(made.attack), own=True).tensors["owners"]
    owner = source_records(made.truth)[1]
    shares = torch.tensor([[float((owners[owner == c] == o).double().mean()) for o in range(3)] for c in range(3)])
    above = (1 / 3 + shares - shares.mean(0))[1].tolist()
    assert set(found.swaps) == {"0", "2"} and found.score.means["accuracy"] == pytest.approx(above[1])
    assert all(found.swaps[str(other)]["accuracy"] == pytest.approx(above[other]) for other in (0, 2))


def test_sources_of_clients_of_unequal_size_have_no_swaps() -> None:
    """Their messages differ by the size alone, and a guess may depend on it and on features at once."""
    sizes = {"name": "digits", "clients": 3, "partition": "sizes", "sizes": [40, 20, 12]}
    made = context({"name": "source-from-model"}, document={**DIGITS, "data": sizes})
    assert swaps_of(made) == {}


@pytest.mark.parametrize("counts", [(20, 20, 20), (30, 12, 6), (20,) * 6, (40, 30, 20, 10, 8, 6)])
@pytest.mark.parametrize("lean", ["none", "to the first", "to the largest", "to few"])
def test_noise_gives_sources_no_small_p(counts: tuple[int, ...], lean: str) -> None:
    """Guesses that know nothing of the owners, but prefer some clients: for all records, or each run others."""
    generator, clients, runs = np.random.default_rng(5), len(counts), 3
    owner, layout = torch.arange(clients).repeat_interleave(torch.tensor(counts)), {}
    ps = []
    for trial in range(400):
        scores: Any = {}
        layout = {runs * trial + run: tuple(range(clients)) for run in range(runs)}
        for seed in layout:
            weights = {
                "none": np.ones(clients),
                "to the first": np.arange(clients, 0, -1.0) ** 2,
                "to the largest": np.array(counts) ** 2.0,
                "to few": generator.exponential(size=clients) ** 3,
            }[lean]
            guess = torch.tensor(generator.choice(clients, len(owner), p=weights / weights.sum()))
            shares = source_shares(torch.nn.functional.one_hot(guess, clients), owner).tolist()
            scores[seed] = {client: dict(enumerate(row)) for client, row in enumerate(shares)}
        means = swapped_means(scores, layout, joint_assignments(layout, 0))
        assert means is not None
        ps.append(swap_p(means))
    for level in (0.05, 0.2, 0.5):
        share = float(np.mean(np.array(ps) <= level))
        assert share <= level + 3 * math.sqrt(level * (1 - level) / len(ps))


def test_of_many_clients_only_those_of_the_permutations_are_read() -> None:
    made = context({"name": "attribute-from-model"}, client=2, document=tiny(data={"clients": 7}))
    assert set(swaps_of(made)) == {order[2] for order in drawn_permutations(0, range(7))} - {2}


def test_messages_of_a_larger_client_come_with_the_number_of_the_asked_one() -> None:
    sizes = {"name": "digits", "clients": 2, "partition": "sizes", "sizes": [40, 12]}
    document = {**DIGITS, "data": sizes, "federation": {"rounds": 1, "algorithm": "fedsgd"}}
    made = context({"name": "labels-ilrg", "grants": ["recipe"]}, document=document)
    counts = [len(client) for client in made.truth.train]
    assert counts[0] != counts[1]
    view = made.view(made.attack, messages_of=0)
    assert view.grants.examples == counts[1] and made.view(made.attack).grants.examples is None


def test_no_swaps_of_sums_oracles_and_spared_controls() -> None:
    plain = {"name": "attribute-from-model"}
    oracle = {**plain, "model": {"name": "local-model-oracle", "steps": 2}}
    assert not swaps_of(context({**oracle, "grants": ["public-attributes", "oracle-records"]}))
    assert not swaps_of(context({**plain, "controls": []}))
    seated = {**plain, "role": "curious-client", "model": "global-model"}
    assert not swaps_of(context(seated, document=tiny(data={"clients": 3})))


def test_variances_of_scores_as_if_records_were_independent() -> None:
    made = context({"name": "attribute-from-model"})
    found, count = evaluate(made).record_variance, len(made.truth.train[1])
    assert found["accuracy"] == pytest.approx(0.25 / count)
    real = made.truth.train[1].x[:, list(made.truth.space.column("smoker").positions)].flatten().tolist()
    kinds = [real.count(value) for value in set(real)]
    assert found["balanced_accuracy"] == pytest.approx(sum(0.25 / one for one in kinds) / len(kinds) ** 2)
    values = torch.tensor([1.0, 3.0, float("nan"), 8.0])
    images = context({"name": "inverting-gradients", "steps": 1}, document=DIGITS)
    evidence = of_images(images.truth.train[1].x[:1])
    guess = Scored(evidence=evidence, scores=Scores(means={"psnr": 4.0, "rec": 0.5}, records={"psnr": values}))
    assert record_variances(images, guess) == {"psnr": pytest.approx(13.0 / 3)}


def test_single_ranks_stay_in_the_private_part(tmp_path: Path) -> None:
    execute._open_run.clear()
    plan = make_plan(tiny(attack=[{"name": "membership-loss"}, {"name": "attribute-from-model"}]), HERE)
    document = run_audit(plan, tmp_path / "out").document
    member, attribute = (
        next(case for case in document["cases"] if case["attack"] == name)
        for name in ("membership-loss", "attribute-from-model")
    )
    assert set(member["split"]) == {"u", "n1", "n0", "ties", "variance", "drawn"} and "draws" not in member
    assert set(attribute["swaps"]) == {"1"} and "split" not in attribute and attribute["ledger"]["clients"] == 2
    stored = Store(tmp_path / "out").read_case(member["id"])
    assert len(stored["draws"]["scores"]) == member["split"]["n1"] + member["split"]["n0"]


def recorded(made: CaseContext) -> CaseContext:
    """The same case as of a recording."""
    return replace(made, transcript=replace(made.transcript, recorded=True))


def test_attributes_of_a_recorded_node_rank_trained_records_against_held_out_ones_in_one_answer() -> None:
    document = tiny(data={"clients": 1, "records": 60, "holdout": 0.3}, federation={"rounds": 6, "batch_size": 8})
    made = context({"name": "attribute-from-updates", "messages": 6}, 0, document)
    assert evaluate(made).split == {}  # runs can test it
    made = recorded(made)
    found, truth = evaluate(made), made.truth
    assert (
        not found.swaps and found.split["n1"] == [len(truth.train[0])] and found.split["n0"] == [len(truth.holdout[0])]
    )
    grants = disclose(truth, [*declared_grants(made.attack), "examples"], client=0, rows="mixed")
    answer = made.attack.run(made.view_with(grants, 0), generator=root_for(0, 0))
    column = truth.space.column("smoker")
    order = attribute_order(truth, 0, (), "mixed").tolist()
    records = torch.cat([truth.train[0].x, truth.holdout[0].x])
    right = torch.zeros(len(order))
    for place, code in zip(order, answer.tensors["codes"], strict=True):
        right[place] = float(torch.allclose(records[place, list(column.positions)], code, atol=1e-3))
    trained, held = right[: len(truth.train[0])], right[len(truth.train[0]) :]
    u = sum(float(one > other) + float(one == other) / 2 for one in trained for other in held)
    assert found.split["u"] == [u] and float(trained.mean()) > float(held.mean())
    other = recorded(context({"name": "attribute-from-model"}, 0, document))
    assert evaluate(other).split == {}  # not of single records
    told = {"name": "attribute-from-updates", "grants": ["public-attributes", "public-records", "labels"]}
    assert evaluate(recorded(context(told, 0, document))).split == {}  # the labels of those trained on
