"""Attribute inference by matching gradients: formulas against slow versions, and tiny federations."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.view import Grants, Observation, PublicAttributes, View
from fedxray.attacks.attributes import gradient_match
from fedxray.attacks.attributes.from_gradients import AttributeFromGradients, hard_sample, round_counts
from fedxray.attacks.attributes.gradient_match import (
    Products,
    cosines,
    cosines_of_rounds,
    descend,
    filled,
    products,
    pull_of,
    ratios_of_changes,
    relaxed,
)
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.active import isolate
from fedxray.attacks.observations import own_order
from fedxray.data.dataset import Column, Records
from fedxray.errors import BadInput, Refused
from fedxray.federation.local import Batch, local_update, objective
from fedxray.federation.recipe import Recipe
from fedxray.params import parameters_of, scaled
from fedxray.seeds import fork
from tests.attacks.by_hand import column, table
from tests.contract import worlds

THREE = Column(
    name="s",
    kind="categorical",
    positions=(1, 3),
    categories=("a", "b", "c"),
    codes=((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)),
)


def ratios_at(inner: Products, chosen: Tensor) -> tuple[Tensor, Tensor]:
    return ratios_of_changes(inner, chosen, pull_of(inner.across, inner, chosen), pull_of(inner.whole, inner, chosen))


def client(
    sensitive: Column, *, records: int = 16, rounds: int = 3, classes: int = 0, seed: int = 0, epochs: int = 1
) -> tuple[View, Tensor]:
    """A server's view of a client that answers models of a small network, and its values by number [records]."""
    draw = fork(seed, "client")
    x = torch.randn(records, 4, generator=draw, dtype=torch.float64)
    truth = torch.randint(len(sensitive.codes), (records,), generator=draw)
    codes = sensitive.candidates(x)[truth]
    x = filled(x, sensitive.positions, codes)
    y = x.sum(1) + 0.3 * torch.randn(records, generator=draw, dtype=torch.float64)
    wanted = (y > y.median()).long() if classes else y
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, classes or 1)).double()
    loss = "cross-entropy" if classes else "mse"
    made = Recipe(loss=loss, learning_rate=0.05, batch_size="all", epochs=epochs)
    seen, start = [], parameters_of(model)
    for number in range(rounds):
        batches = [Batch(x=x, y=wanted)] * made.epochs
        update = local_update(start, {}, batches, made, objective(model, loss)).update
        seen.append(
            Observation(round=number, start=start, update=update, kind="weights", contributors=(0,), examples=None)
        )
        start = {name: value + update[name] for name, value in start.items()}
    given = PublicAttributes(x=filled(x, sensitive.positions, 0 * codes), y=wanted)
    grants = Grants(names=("public-attributes",), public_attributes=given)
    view = View(
        role="server", target=0, observations=tuple(seen), globals=(), model=model, loss=loss, grants=grants,
        space=table(4, sensitive, classes=classes),
    )  # fmt: skip
    return view, truth


def run(view: View, **settings: Any) -> Evidence:
    return AttributeFromGradients(**settings).run(view, generator=fork(0))


def share_right(evidence: Evidence, view: View, truth: Tensor) -> float:
    wanted = view.space.column("s").candidates(evidence.tensors["codes"])[truth]
    return float((evidence.tensors["codes"] == wanted).all(1).double().mean())


def records_of(view: View) -> PublicAttributes:
    assert view.grants.public_attributes is not None
    return view.grants.public_attributes


def every_value(view: View) -> Tensor:
    """All records under all values, [records, values, width]."""
    sensitive, given = view.space.column("s"), records_of(view)
    codes = sensitive.candidates(given.x)
    return torch.stack([filled(given.x, sensitive.positions, one.expand(len(given.x), -1)) for one in codes], 1)


def round_cosines(view: View, x: Tensor) -> Tensor:
    """The cosine of every round under these whole records."""
    found = cosines_of_rounds(view, records_of(view), view.observations)
    return cosines(x[:, list(view.space.column("s").positions)], found)


def products_of(view: View) -> Products:
    return next(products(view.model, view.loss, every_value(view), records_of(view).y, view.observations))


@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize("sensitive", [column(), THREE], ids=["two values", "three values"])
def test_the_right_values_have_a_cosine_of_one_at_one_full_step(sensitive: Column, classes: int) -> None:
    view, truth = client(sensitive, classes=classes)
    given = records_of(view)
    right = filled(given.x, sensitive.positions, sensitive.candidates(given.x)[truth])
    assert round_cosines(view, right).tolist() == pytest.approx([1.0] * 3)
    wrong = filled(given.x, sensitive.positions, sensitive.candidates(given.x)[truth.roll(1)])
    assert float(round_cosines(view, wrong).max()) < 1 - 1e-6
    assert float(ratios_at(products_of(view), truth)[1]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize("sensitive", [column(), THREE], ids=["two values", "three values"])
def test_the_closed_form_finds_all_values_at_one_full_step(sensitive: Column, classes: int) -> None:
    view, truth = client(sensitive, classes=classes)
    found = run(view)
    assert share_right(found, view, truth) == 1.0 and found.status == "ok"
    assert found.facts["mean_cosine"] == pytest.approx(1) and found.facts["rounds"] == 3
    assert found.curve[-1] == pytest.approx(0, abs=1e-10) and len(found.curve) < 100
    assert bool((found.tensors["margins"] > 0).all())


def test_both_methods_beat_the_majority_after_several_steps() -> None:
    shares: dict[str, list[float]] = {"closed-form": [], "iterative": [], "majority": []}
    for seed in range(3):
        view, truth = client(column(), epochs=5, records=24, seed=seed)
        for method in ("closed-form", "iterative"):
            found = run(view, method=method, steps=40, learning_rates=(1e2, 1e3))
            shares[method].append(share_right(found, view, truth))
        shares["majority"].append(float(torch.bincount(truth).max()) / len(truth))
    assert min(sum(shares["closed-form"]), sum(shares["iterative"])) > sum(shares["majority"]) + 0.3, shares


def test_the_ratio_is_the_weighted_mean_of_squared_sines() -> None:
    """Against whole gradients of the mean loss, for every assignment of three values to three records."""
    view, _ = client(THREE, records=3, rounds=2, epochs=2)
    found, given, every = products_of(view), records_of(view), every_value(view)

    def squares(x: Tensor, y: Tensor) -> list[float]:
        """The squared length of the gradient of the mean loss in each round."""
        sizes = []
        for one in view.observations:
            leaves = {name: value.detach().requires_grad_() for name, value in one.start.items()}
            loss = objective(view.model, "mse")(leaves, {}, Batch(x=x, y=y))[0]
            sizes.append(sum(float((g**2).sum()) for g in torch.autograd.grad(loss, list(leaves.values()))))
        return sizes

    even = squares(every.flatten(0, 1), given.y.repeat_interleave(3))
    for chosen in product(range(3), repeat=3):
        x = every[torch.arange(3), list(chosen)]
        cosines = round_cosines(view, x).tolist()
        weights = [now / then for now, then in zip(squares(x, given.y), even, strict=True)]
        wanted = sum(w * (1 - c**2) for w, c in zip(weights, cosines, strict=True)) / sum(weights)
        changes, now = ratios_at(found, torch.tensor(chosen))
        assert float(now) == pytest.approx(wanted, rel=1e-9)
        for record, value in product(range(3), range(3)):
            other = torch.tensor(chosen)
            other[record] = value
            assert float(changes[record, value]) == pytest.approx(float(ratios_at(found, other)[1]))


def test_descent_only_falls_and_ends_where_no_single_change_helps() -> None:
    view, _ = client(THREE, epochs=4)
    found = products_of(view)
    for start in [*relaxed(found), torch.zeros(16, dtype=torch.int64)]:
        _, curve, ratios = descend(found, start, 1000)
        assert all(later < earlier for earlier, later in pairwise(curve))
        assert float(ratios.min()) >= curve[-1] - 1e-11
        assert len(descend(found, start, 1)[1]) <= 2


def test_small_blocks_give_the_same_inner_products(monkeypatch: pytest.MonkeyPatch) -> None:
    view, _ = client(THREE)
    whole = products_of(view)
    monkeypatch.setattr(gradient_match, "ENTRIES_AT_ONCE", 7 * 49)  # seven gradients of 49 parameters
    cut = products_of(view)
    assert torch.allclose(whole.whole, cut.whole) and torch.allclose(whole.across, cut.across)


def test_hard_samples_are_one_hot_have_a_slope_and_follow_the_softmax() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(4000, 1).requires_grad_()
    drawn = hard_sample(logits, fork(0))
    assert torch.allclose(drawn.sum(1), torch.ones(4000)) and set(drawn.detach().round().unique().tolist()) == {0, 1}
    assert drawn.detach().mean(0).tolist() == pytest.approx(torch.softmax(logits[0], 0).tolist(), abs=0.03)
    (slope,) = torch.autograd.grad((drawn * torch.tensor([1.0, 0.0, 0.0])).sum(), logits)
    assert bool((slope[:, 0] > 0).all()) and bool((slope[:, 1:] < 0).all())


def test_the_iterative_form_does_not_depend_on_the_order_of_the_records() -> None:
    view, _ = client(column())
    given, order = records_of(view), torch.randperm(16, generator=fork(1))
    turned = PublicAttributes(x=given.x[order], y=given.y[order])
    assert torch.equal(given.x[own_order(given.x, given.y)], turned.x[own_order(turned.x, turned.y)])
    other = replace(view, grants=replace(view.grants, public_attributes=turned))
    settings = {"method": "iterative", "steps": 5, "learning_rates": (1e2, 1e4)}
    first, second = run(view, **settings), run(other, **settings)
    assert torch.equal(first.tensors["codes"][order], second.tensors["codes"])
    assert first.curve == second.curve and first.facts["learning_rate"] in (1e2, 1e4)


@pytest.mark.parametrize("method", ["closed-form", "iterative"])
@pytest.mark.parametrize("spoil", ["start", "update", "nothing sent"])
def test_what_cannot_be_matched_gives_no_guess(method: str, spoil: str) -> None:
    view, _ = client(column())
    factor = 0.0 if spoil == "nothing sent" else torch.inf
    seen = [
        replace(one, start=scaled(one.start, factor))
        if spoil == "start"
        else replace(one, update=scaled(one.update, factor))
        for one in view.observations
    ]
    found = run(replace(view, observations=tuple(seen)), method=method, steps=2)
    assert found.status == "undetermined" and found.reason and bool(found.tensors["codes"].isnan().all())


@pytest.mark.parametrize("method", ["closed-form", "iterative", "l-bfgs"])
def test_numbers_are_told_by_a_grid(method: str) -> None:
    """A client whose values lie on the grid, so that the right answer is among the candidates."""
    age = Column(name="s", kind="continuous", positions=(1,), low=-1.0, high=1.0)
    steps = Column(name="s", kind="categorical", positions=(1,), codes=((-1.0,), (0.0,), (1.0,)))
    view, truth = client(steps, records=6)
    view = replace(view, space=table(4, age))
    found = run(view, method=method, grid=3, steps=60)
    codes = found.tensors["codes"][:, 0]
    assert found.facts["values"] == 3 and set(codes.tolist()) <= {-1.0, 0.0, 1.0}
    if method == "closed-form":
        assert torch.equal(codes, steps.candidates(codes)[truth][:, 0])
    else:
        assert found.facts["mean_cosine"] > 0.9
    assert run(view).facts["values"] == AttributeFromGradients().grid


def test_l_bfgs_takes_the_rates_of_its_paper_and_draws_nothing() -> None:
    view, truth = client(column(), records=12)
    found = run(view, method="l-bfgs", steps=10)
    assert {one["learning_rate"] for one in found.facts["tried"]} == {1e-3, 5e-3, 1e-2, 1e-1}
    curves = run(view, method="l-bfgs", steps=60, learning_rates=(0.1,)).curve
    assert curves[-1] < 0.1 * curves[0]
    attack = AttributeFromGradients(method="l-bfgs", steps=60, learning_rates=(0.1,))
    shares = [share_right(attack.run(view, generator=fork(seed)), view, truth) for seed in range(10)]
    assert sum(shares) / len(shares) > 0.9


def test_shares_mean_first_rounds_and_every_one_is_tried() -> None:
    assert round_counts((0.0, 0.05, 0.5, 1.0), 100) == [1, 5, 50, 100]
    assert round_counts((1.0, 0.0, 0.01), 3) == [1, 3]
    view, _ = client(column(), rounds=4, epochs=3)
    alone = run(replace(view, observations=view.observations[:1]))
    found = run(view, shares=(0.0, 0.5, 1.0), pick="own-objective")
    assert [one["rounds"] for one in found.facts["tried"]] == [1, 2, 4]
    assert found.facts["tried"][0]["cosine"] == pytest.approx(alone.facts["mean_cosine"])
    best = max(found.facts["tried"], key=lambda one: one["cosine"])
    assert found.facts["rounds_matched"] == best["rounds"]
    widest = max(found.facts["tried"], key=lambda one: one["cosine_all"])
    assert run(view, shares=(0.0, 0.5, 1.0)).facts["rounds_matched"] == widest["rounds"]


def test_the_oracle_s_pick_needs_its_grant_and_is_the_best_of_all() -> None:
    view, truth = client(column(), rounds=5, epochs=6, records=24, seed=1)
    settings: dict[str, Any] = {"shares": (0.0, 0.4, 1.0)}
    with pytest.raises(Refused, match="oracle-records"):
        run(view, pick="oracle-records", **settings)
    given, order = records_of(view), torch.randperm(24, generator=fork(5))
    right = filled(given.x, (1,), view.space.column("s").candidates(given.x)[truth])
    knowledge = replace(
        view.grants,
        names=("oracle-records", "public-attributes"),
        oracle={"oracle-records": Records(right[order], given.y[order])},
    )
    oracle = share_right(run(replace(view, grants=knowledge), pick="oracle-records", **settings), view, truth)
    single = [share_right(run(view, shares=(share,)), view, truth) for share in settings["shares"]]
    assert oracle == pytest.approx(max(single)) and max(single) > min(single)


def test_active_rounds_are_those_of_an_isolated_client_and_are_counted() -> None:
    world = worlds.table_world()
    attack = AttributeFromGradients(active_rounds=3)
    view = worlds.view_of(attack, world, role="active-server")
    found = attack.run(view, generator=fork(0))
    assert found.rounds_spent == 3 and found.facts["rounds"] == 3 and found.status == "ok"
    both = replace(attack, with_recorded=True).run(view, generator=fork(0))
    assert both.rounds_spent == 3 and both.facts["rounds"] == 3 + len(view.of_target())
    seen = isolate(view, 3).observations
    last = max(view.of_target(), key=lambda one: one.round)
    first = {name: value + last.update[name] for name, value in last.start.items()}
    assert all(torch.equal(seen[0].start[name], value) for name, value in first.items())
    alone = AttributeFromGradients().run(replace(view, observations=seen), generator=fork(0))
    assert torch.equal(alone.tensors["codes"], found.tensors["codes"])
    with pytest.raises(Refused, match="still answers"):
        attack.run(worlds.view_of(attack, world, role="server"), generator=fork(0))


def test_refusals() -> None:
    view, _ = client(column())
    wrongs: tuple[dict[str, Any], ...] = (
        {"method": "x"},
        {"method": "iterative", "learning_rates": (0.0,)},
        {"method": "l-bfgs", "steps": 0},
        {"changes": -1},
        {"grid": 1},
        {"pick": "truth"},
        {"shares": ()},
        {"shares": (1.5,)},
        {"active_rounds": -1},
    )
    for wrong in wrongs:
        with pytest.raises(BadInput):
            AttributeFromGradients(**wrong)
    given = records_of(view)
    many = PublicAttributes(x=given.x.repeat(200, 1), y=given.y.repeat(200))
    crowded = replace(view, grants=replace(view.grants, public_attributes=many))
    with pytest.raises(Refused, match=r'records times values up to 6000.*method = "iterative"'):
        AttributeFromGradients().check(crowded)
    AttributeFromGradients(method="iterative").check(crowded)
