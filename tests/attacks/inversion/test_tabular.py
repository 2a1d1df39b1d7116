"""tabular-inversion: rows as parameters by hand, and rows of mixed columns from one update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedxray.adversary.disclose import disclose
from fedxray.adversary.roles import server
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.floors import MajorityRow, MarginalRows
from fedxray.attacks.inversion import tabular
from fedxray.attacks.inversion.replay import Replay
from fedxray.attacks.inversion.tabular import NUMBERS, TabularInversion, row_parameters
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.data.dataset import Column, Records, Space
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.metrics.records import row_scores
from fedxray.optim import Outcome, Restarts
from fedxray.seeds import fork

REGION = ((-1.0, -0.5), (2.0, -0.5), (-1.0, 1.5))  # standardised one-hot without the first
COLUMNS = (
    Column(name="region", kind="categorical", positions=(1, 2), categories=("a", "b", "c"), codes=REGION),
    Column(name="age", kind="continuous", positions=(3,), low=-2.0, high=3.0),
    Column(name="smoker", kind="categorical", positions=(0,), categories=("no", "yes"), codes=((-0.5,), (2.0,))),
    Column(name="weight", kind="continuous", positions=(4,), low=-1.0, high=1.0),
)


def space(target: Any = "classification") -> Space:
    classes = ("well", "ill", "worse") if target == "classification" else ()
    return Space(kind="table", shape=(5,), target=target, classes=classes, columns=COLUMNS)


def rows(count: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    region = torch.tensor(REGION)[torch.randint(3, (count,), generator=draw)]
    smoker = torch.tensor([[-0.5], [2.0]])[torch.randint(2, (count,), generator=draw)]
    age, weight = (torch.rand(count, 1, generator=draw) * wide + low for wide, low in ((5.0, -2.0), (2.0, -1.0)))
    return torch.cat([smoker, region, age, weight], 1)


def targets(count: int, target: str) -> Tensor:
    draw = torch.Generator().manual_seed(9)
    return (
        torch.randint(3, (count,), generator=draw) if target == "classification" else torch.randn(count, generator=draw)
    )


def view_of(
    count: int, target: Any = "classification", recipe: Recipe | None = None, grants: tuple[str, ...] = ()
) -> View:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 3 if target == "classification" else 1))
    loss = "cross-entropy" if target == "classification" else "mse"
    used = replace(recipe or Recipe(algorithm="fedsgd"), loss=loss)
    federation = Federation(
        space=space(target), clients=(Records(rows(count), targets(count, target)),), model=model, recipe=used,
        public=Records(rows(40, 5), targets(40, target)),
    )  # fmt: skip
    transcript, truth = simulate(federation, seed=1)
    return server(transcript, client=0, grants=disclose(truth, ["recipe", "examples", *grants], client=0))


def share(evidence: Evidence, count: int) -> float:
    return row_scores(evidence.tensors["inputs"], rows(count), COLUMNS).means["values_recovered"]


def attacked(view: View, **settings: Any) -> Evidence:
    return TabularInversion(**{"steps": 200, "restarts": 2, "learning_rate": 0.1, **settings}).run(
        view, generator=fork(1)
    )


@pytest.mark.parametrize("grants", [(), ("labels",)])
def test_of_more_rows_than_can_be_sought_each_stands_for_several(
    monkeypatch: pytest.MonkeyPatch, grants: tuple[str, ...]
) -> None:
    view = view_of(10, recipe=Recipe(batch_size=4, epochs=2), grants=grants)
    whole = attacked(view, steps=5)
    assert len(whole.tensors["inputs"].unique(dim=0)) == 10 and "rows_sought" not in whole.facts
    monkeypatch.setattr(tabular, "LEAST_ROWS", 4)
    monkeypatch.setattr(tabular, "MOST_PRODUCTS", 6 * 2000 * 2 * 5 * 2 * 4.9)
    some = attacked(view, steps=5)
    assert some.facts["rows_sought"] == 4 and some.facts["rows_behind"] == 10
    assert some.tensors["inputs"].shape == (10, 5) and len(some.tensors["inputs"].unique(dim=0)) == 4


def test_the_rows_that_can_be_sought_follow_from_sizes_alone() -> None:
    attack, small = TabularInversion(), {"weight": torch.zeros(50)}
    assert attack.rows_in_time(small, Recipe(epochs=5)) == 1.5e12 // (6 * 2000 * 5 * 1500 * 5)
    assert attack.rows_in_time(small, Recipe(epochs=5, algorithm="fedsgd")) == attack.rows_in_time(small, None)
    large = {"weight": torch.zeros(20_000)}
    assert attack.rows_in_time(small, None) // attack.rows_in_time(large, None) == 10
    assert replace(attack, steps=10**9).rows_in_time(small, None) == 8


def test_rows_are_put_together_from_numbers_and_mixed_codes() -> None:
    parameters = row_parameters(space(), torch.zeros(1))
    assert parameters.numbers == (3, 4)
    point = {
        NUMBERS: torch.tensor([[0.5, -0.25]]),
        "category region": torch.tensor([[0.0, 0.0, 50.0]]),
        "category smoker": torch.tensor([[1.0, 1.0 + torch.log(torch.tensor(3.0)).item()]]),
    }
    torch.testing.assert_close(
        parameters.rows(point), torch.tensor([[0.25 * -0.5 + 0.75 * 2.0, -1.0, 1.5, 0.5, -0.25]])
    )
    assert parameters.rows(parameters.sure(point)).tolist() == [[2.0, -1.0, 1.5, 0.5, -0.25]]


def test_numbers_stay_in_their_range_and_scores_are_free() -> None:
    parameters = row_parameters(space(), torch.zeros(1))
    start = parameters.start(500, torch.zeros(1), fork(0))
    numbers = start[NUMBERS]
    assert numbers.min(0).values.tolist() == [-2.0, -1.0] and numbers.max(0).values.tolist()[1] == 1.0
    far = {name: value * 100 for name, value in start.items()}
    moved = parameters.project(far)
    assert float(moved[NUMBERS].max()) == 3.0 and torch.equal(moved["category region"], far["category region"])


def test_pooling_takes_the_median_and_the_mean_probability() -> None:
    parameters = row_parameters(space(), torch.zeros(1))
    points = [parameters.start(4, torch.zeros(1), fork(seed)) for seed in range(3)]
    mixed = parameters.pooled(points)
    assert torch.equal(mixed[NUMBERS], torch.stack([p[NUMBERS] for p in points]).sort(0).values[1])
    chances = sum(torch.softmax(p["category region"], 1) for p in points) / 3
    torch.testing.assert_close(torch.softmax(mixed["category region"], 1), chances)


@pytest.mark.parametrize("target", ["classification", "regression"])
def test_rows_come_back_from_one_gradient(target: str) -> None:
    evidence = attacked(
        view_of(2, target), **({} if target == "classification" else {"match": "l2", "steps": 300, "restarts": 6})
    )
    assert evidence.kind == "rows" and evidence.status == "ok" and share(evidence, 2) >= 0.85
    if target == "classification":
        assert sorted(evidence.tensors["targets"].tolist()) == sorted(targets(2, target).tolist())
    else:
        assert evidence.facts["labels"] == "sought with the rows"


def test_labels_can_be_granted_or_sought_with_the_rows() -> None:
    given = attacked(view_of(2, grants=("labels",)), steps=3)
    assert given.facts["labels"] == "granted"
    target = attacked(view_of(2, "regression", grants=("labels",)), steps=3)
    assert target.facts["labels"] == "granted"
    assert sorted(target.tensors["targets"].tolist()) == sorted(targets(2, "regression").tolist())
    sought = attacked(view_of(1), jointly=True, match="l2")
    assert sought.facts["labels"] == "sought with the rows"
    assert sought.tensors["targets"].tolist() == targets(1, "classification").tolist() and share(sought, 1) == 1.0


def test_several_local_steps_are_replayed() -> None:
    recipe = Recipe(epochs=3, batch_size=1, learning_rate=0.05, shuffle="never")
    evidence = attacked(view_of(2, recipe=recipe, grants=("labels",)))
    assert share(evidence, 2) >= 0.8


def test_every_guess_is_a_row_that_could_be() -> None:
    found = attacked(view_of(3), steps=5).tensors["inputs"]
    assert all(row in torch.tensor(REGION).tolist() for row in found[:, 1:3].tolist())
    assert set(found[:, 0].tolist()) <= {-0.5, 2.0}
    assert float(found[:, 3].min()) >= -2 and float(found[:, 4].max()) <= 1


def test_pooled_rows_are_kept_only_when_their_own_loss_is_lower() -> None:
    parameters = row_parameters(space(), torch.zeros(1))
    centre = parameters.start(3, torch.zeros(1), fork(0)) | {
        NUMBERS: torch.tensor([[0.1, 0.2], [1.0, 0.8], [2.0, -0.5]])
    }
    shifts, order = (0.1, -0.05, 0.0), torch.tensor([2, 0, 1])
    points = [centre | {NUMBERS: centre[NUMBERS] + shift} for shift in shifts]
    points[1] = {name: value[order] for name, value in points[1].items()}
    outcomes = tuple(
        Outcome(best=one, last=one, best_loss=0.0, curve=(), status="ok", reason="", steps=1, state={})
        for one in points
    )

    def picked(aim: Tensor) -> tuple[dict[str, Tensor], bool]:
        def loss(point: dict[str, Tensor]) -> Tensor:
            return (point[NUMBERS] - aim).abs().sum()

        return TabularInversion()._picked(loss, parameters, Restarts(outcomes=outcomes, chosen=0), None)

    found, pooled = picked(centre[NUMBERS])
    assert pooled and torch.allclose(found[NUMBERS], centre[NUMBERS])
    found, pooled = picked(points[0][NUMBERS])
    assert not pooled and found is points[0]
    assert attacked(view_of(2), steps=3, pool=False, restarts=3).facts["pooled"] is False


def test_an_update_that_is_not_finite_is_an_outcome() -> None:
    view = view_of(2)
    seen = view.observations[0]
    broken = {name: value * float("nan") if "0." in name else value for name, value in seen.update.items()}
    evidence = attacked(replace(view, observations=(replace(seen, update=broken),)), steps=5)
    assert evidence.status == "diverged" and bool(torch.isfinite(evidence.tensors["inputs"]).all())


def test_needs_are_named() -> None:
    view = view_of(2)
    with pytest.raises(Refused, match="a table"):
        attacked(replace(view, space=replace(view.space, kind="image")))
    headless = replace(view, model=nn.Sequential(nn.Bilinear(1, 1, 1)))
    with pytest.raises(Refused, match="linear last layer"):
        attacked(headless)
    TabularInversion(jointly=True).check(headless)
    TabularInversion().check(replace(headless, space=space("regression")))


def public_view(count: int) -> View:
    return view_of(count, grants=("public-records",)).without_messages()


def test_the_majority_row_tells_most_public_records() -> None:
    evidence = MajorityRow().run(public_view(3), generator=fork(1))
    found, public = evidence.tensors["inputs"], rows(40, 5)
    assert found.shape == (3, 5) and torch.equal(found[0], found[2])
    smokers = public[:, 0].tolist()
    assert found[0, 0].item() == max(set(smokers), key=smokers.count)
    ages = public[:, 3]
    hits = [int(((ages - age).abs() <= 0.5).sum()) for age in ages]
    assert int(((ages - found[0, 3]).abs() <= 0.5).sum()) == max(hits)


def test_marginal_rows_have_the_public_proportions() -> None:
    found = MarginalRows().run(public_view(10), generator=fork(1)).tensors["inputs"]
    public = rows(40, 5)
    share_of = [float((part[:, 0] == 2.0).double().mean()) for part in (found, public)]
    assert share_of[0] == pytest.approx(share_of[1], abs=0.05)
    ordered = public[:, 3].sort().values
    assert torch.equal(found[:, 3].sort().values, ordered[[4 * place + 2 for place in range(10)]])
    other = MarginalRows().run(public_view(10), generator=fork(2)).tensors["inputs"]
    assert not torch.equal(found, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("learning_rate", 0.0), ("restarts", 0), ("match", "cosin"), ("at", "middle"),
     ("batch_norm", "eval"), ("labels", LastReturned())],
)  # fmt: skip
def test_wrong_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput):
        TabularInversion(**{name: value})


@pytest.mark.parametrize("jointly", [False, True])
def test_restarts_in_one_loop_give_the_rows_of_restarts_in_turn(monkeypatch: Any, jointly: bool) -> None:
    view = view_of(4, recipe=Recipe(epochs=2, batch_size=3, learning_rate=0.1), grants=("labels",))
    together = attacked(view, steps=30, jointly=jointly)
    monkeypatch.setattr(Replay, "stacked", lambda self, guesses: None)
    apart = attacked(view, steps=30, jointly=jointly)
    assert together.facts["own_loss"] == pytest.approx(apart.facts["own_loss"], abs=1e-5)
    assert torch.allclose(together.tensors["inputs"], apart.tensors["inputs"], atol=1e-4)
