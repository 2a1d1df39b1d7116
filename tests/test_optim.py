"""Schedules and optimisers against torch.optim, and the optimisation loop: best point, budget, resumption, restarts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.optim import (
    Adam,
    Changing,
    Constant,
    Cosine,
    Exponential,
    Keep,
    Lbfgs,
    Method,
    RiseAndFall,
    Sgd,
    SignedAdam,
    Stairs,
    WarmUp,
    _inverse_hessian_times,
    minimise,
    restarts,
)
from fedxray.progress import Step

# Schedules and optimisers


def bowl(point: dict[str, Tensor]) -> Tensor:
    """A smooth, badly scaled function of two tensors with its minimum away from zero."""
    a, b = point["a"], point["b"]
    weights = torch.arange(1, a.numel() + 1, dtype=a.dtype).reshape(a.shape)
    return (weights * (a - 1) ** 2).sum() + torch.cosh(b - 0.5).sum() + (a.sum() * b.sum()) ** 2 / 50


def start(dtype: torch.dtype) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    return {"a": torch.randn(2, 3, generator=draw, dtype=dtype), "b": torch.randn(4, generator=draw, dtype=dtype)}


def walk(method: Method, point: dict[str, Tensor], signed: bool = False) -> dict[str, Tensor]:
    memory = method.fresh(point)
    for step in range(method.steps):
        leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
        found = torch.autograd.grad(bowl(leaves), list(leaves.values()))
        point, memory = method.move(point, dict(zip(leaves, found, strict=True)), memory, step)
    return point


def walk_with_torch(
    optimiser: torch.optim.Optimizer, leaves: dict[str, Tensor], steps: int, signed: bool = False
) -> dict[str, Tensor]:
    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = bowl(leaves)
        loss.backward()
        if signed:
            for leaf in leaves.values():
                leaf.grad = leaf.grad.sign()
        return loss

    for _ in range(steps):
        optimiser.step(closure)
    return {name: leaf.detach() for name, leaf in leaves.items()}


def leaves_of(point: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone().requires_grad_() for name, value in point.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("signed", [False, True])
def test_adam_is_torchs_adam_to_the_bit(dtype: torch.dtype, signed: bool) -> None:
    leaves = leaves_of(start(dtype))
    method = SignedAdam(steps=40, lr=0.1) if signed else Adam(steps=40, lr=0.1)
    expected = walk_with_torch(torch.optim.Adam(leaves.values(), lr=0.1, foreach=False), leaves, 40, signed)
    found = walk(method, start(dtype))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert all(found[name].dtype == dtype for name in expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_sgd(momentum: float) -> None:
    leaves = leaves_of(start(torch.float64))
    expected = walk_with_torch(torch.optim.SGD(leaves.values(), lr=0.01, momentum=momentum), leaves, 30)
    found = walk(Sgd(steps=30, lr=0.01, momentum=momentum), start(torch.float64))
    assert all(torch.allclose(found[name], expected[name], rtol=1e-12, atol=0) for name in expected)


@pytest.mark.parametrize("history", [3, 100])
def test_lbfgs_takes_the_steps_of_torchs_lbfgs(history: int) -> None:
    leaves = leaves_of(start(torch.float64))
    theirs = torch.optim.LBFGS(
        leaves.values(), lr=0.8, max_iter=1, history_size=history, tolerance_grad=0, tolerance_change=1e-9
    )
    expected = walk_with_torch(theirs, leaves, 12)
    found = walk(Lbfgs(steps=12, lr=0.8, history=history), start(torch.float64))
    assert all(torch.allclose(found[name], expected[name], rtol=1e-9, atol=1e-9) for name in expected)


def test_lbfgs_passes_its_pairs_on_without_copies_and_drops_the_oldest() -> None:
    method, point = Lbfgs(steps=9, lr=0.5, history=3), start(torch.float64)
    memory, past = method.fresh(point), []
    for step in range(6):
        leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
        found = torch.autograd.grad(bowl(leaves), list(leaves.values()))
        point, memory = method.move(point, dict(zip(leaves, found, strict=True)), memory, step)
        past.append(memory)
    names = [{name for name in one if "/" in name} for one in past]
    assert [len(one) for one in names] == [0, 2, 4, 6, 6, 6]
    before, after = past[-2:]
    for what in ("move", "change"):
        assert after[f"{what}/0"] is before[f"{what}/1"] and after[f"{what}/1"] is before[f"{what}/2"]
    torch.testing.assert_close(after["move/2"], (after["point"] - before["point"])[0])
    torch.testing.assert_close(after["change/2"], (after["gradient"] - before["gradient"])[0])


def test_lbfgs_against_the_formula_with_whole_matrices() -> None:
    draw = torch.Generator().manual_seed(0)
    moves = torch.randn(4, 6, generator=draw, dtype=torch.float64)
    spread = torch.randn(6, 6, generator=draw, dtype=torch.float64)
    changes = moves @ (spread @ spread.T + torch.eye(6, dtype=torch.float64))
    slope = torch.randn(6, generator=draw, dtype=torch.float64)
    identity = torch.eye(6, dtype=torch.float64)
    inverse = identity * (moves[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for s, y in zip(moves, changes, strict=True):
        rho = 1 / (s @ y)
        inverse = (identity - rho * s.outer(y)) @ inverse @ (identity - rho * y.outer(s)) + rho * s.outer(s)
    found = _inverse_hessian_times(slope, list(zip(moves, changes, strict=True)))
    torch.testing.assert_close(found, inverse @ slope)
    assert torch.equal(_inverse_hessian_times(slope, []), slope)


def test_lbfgs_changes_no_entry_by_more_than_its_reach() -> None:
    before = start(torch.float64)
    slope = {name: 100 * value for name, value in before.items()}
    for reach in (0.01, float("inf")):
        method = Lbfgs(steps=9, reach=reach)
        memory = method.fresh(before) | {"point": torch.zeros(0, 10, dtype=torch.float64)}
        after, _ = method.move(before, slope, memory, 3)
        moved = {name: before[name] - value for name, value in after.items()}
        farthest = max(float(value.abs().max()) for value in moved.values())
        full = max(float(value.abs().max()) for value in slope.values())
        assert farthest == pytest.approx(min(reach, full))
        for name, value in moved.items():
            torch.testing.assert_close(value, slope[name] * (farthest / full))


def test_lbfgs_needs_far_fewer_steps_than_descent() -> None:
    there = walk(Lbfgs(steps=30), start(torch.float64))
    assert bowl(there) < bowl(walk(Sgd(steps=30, lr=0.05), start(torch.float64)))


def test_nothing_given_to_a_method_is_changed() -> None:
    for method in (
        Adam(steps=1, lr=0.1),
        SignedAdam(steps=1, lr=0.1),
        Sgd(steps=1, lr=0.1, momentum=0.5),
        Lbfgs(steps=1),
    ):
        point, gradient = start(torch.float32), start(torch.float32)
        memory = method.fresh(point)
        before = {name: value.clone() for name, value in memory.items()}
        method.move(point, gradient, memory, 0)
        assert all(torch.equal(point[name], value) for name, value in start(torch.float32).items())
        assert all(torch.equal(memory[name], value) for name, value in before.items())


def test_the_decays_by_hand() -> None:
    assert Constant().factor(7, 8) == 1.0
    stairs = [Stairs().factor(step, 8) for step in range(8)]
    assert stairs == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001])
    assert [Cosine().factor(step, 4) for step in (0, 2, 4)] == pytest.approx([1, 0.5, 0])
    assert Cosine(end=0.1).factor(4, 4) == pytest.approx(0.1)
    assert Exponential(by=0.995, every=10).factor(25, 400) == pytest.approx(0.995**2.5)
    assert [RiseAndFall().factor(step, 5) for step in range(5)] == [1, 2, 3, 2, 1]
    assert [RiseAndFall().factor(step, 4) for step in range(5)] == [1, 2, 2, 1, 0]
    warm = WarmUp(over=4, then=Cosine())
    assert [warm.factor(step, 100) for step in (0, 3)] == pytest.approx([0.25, (1 + math.cos(0.03 * math.pi)) / 2])


def test_a_decay_shrinks_the_step() -> None:
    point, gradient = {"a": torch.zeros(1)}, {"a": torch.ones(1)}
    method = Sgd(steps=8, lr=1.0, decay=Stairs())
    moved, _ = method.move(point, gradient, method.fresh(point), 3)
    assert float(moved["a"]) == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("steps", "lr"), [(0, 0.1), (-1, 0.1), (1.5, 0.1), (True, 0.1), (3, 0.0), (3, math.inf), (3, math.nan)]
)
def test_senseless_settings_are_refused(steps: int, lr: float) -> None:
    for method in (Adam, SignedAdam, Sgd, Lbfgs):
        with pytest.raises(BadInput, match=r"steps|lr"):
            method(steps=steps, lr=lr)
    with pytest.raises(BadInput, match="history"):
        Lbfgs(steps=3, history=0)
    with pytest.raises(BadInput, match="reach"):
        Lbfgs(steps=3, reach=0.0)


# The optimisation loop


def plain_bowl(point: dict[str, Tensor]) -> Tensor:
    return ((point["x"] - 2) ** 2).sum()


def at(value: float, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {"x": torch.full((3,), value, dtype=dtype)}


def test_the_curve_holds_the_start_and_every_step_and_the_best_is_its_lowest() -> None:
    outcome = minimise(plain_bowl, at(0.0), Sgd(steps=4, lr=0.25))
    assert outcome.status == "ok" and outcome.steps == 4 and outcome.reason == ""
    assert outcome.curve == pytest.approx([12 * 0.25**step for step in range(5)])
    assert outcome.best_loss == outcome.curve[-1]
    assert torch.equal(outcome.best["x"], outcome.last["x"])


def test_the_best_is_kept_when_later_steps_are_worse() -> None:
    outcome = minimise(plain_bowl, at(1.9), Sgd(steps=5, lr=1.5))  # every step overshoots
    assert torch.equal(outcome.best["x"], at(1.9)["x"])
    assert not torch.equal(outcome.last["x"], outcome.best["x"])
    assert outcome.best_loss == outcome.curve[0] == min(outcome.curve)


def test_the_projection_follows_every_step() -> None:
    outcome = minimise(
        plain_bowl, at(0.0), Adam(steps=30, lr=0.3), project=lambda point: {"x": point["x"].clamp(max=1.0)}
    )
    assert torch.equal(outcome.last["x"], at(1.0)["x"])


def test_a_loss_that_stops_being_finite_gives_the_last_finite_point() -> None:
    def cliff(point: dict[str, Tensor]) -> Tensor:
        return plain_bowl(point) if float(point["x"].detach().max()) <= 1 else (point["x"] * math.nan).sum()

    outcome = minimise(cliff, at(0.0), Sgd(steps=50, lr=0.01))
    assert outcome.status == "diverged" and "nan" in outcome.reason
    assert 0 < float(outcome.last["x"][0]) <= 1
    assert torch.equal(outcome.best["x"], outcome.last["x"])
    assert math.isnan(outcome.curve[-1]) and math.isfinite(outcome.best_loss)


def test_a_gradient_that_is_not_finite_ends_it_too() -> None:
    outcome = minimise(lambda point: point["x"].sqrt().sum(), at(0.0), Sgd(steps=5, lr=0.1))
    assert outcome.status == "diverged" and "gradient" in outcome.reason and outcome.steps == 0
    assert torch.equal(outcome.last["x"], at(0.0)["x"])


def test_a_start_without_a_finite_loss_is_an_outcome() -> None:
    outcome = minimise(lambda point: (point["x"] / 0).sum(), at(1.0), Sgd(steps=5, lr=0.1))
    assert outcome.status == "diverged" and outcome.best_loss == math.inf
    assert torch.equal(outcome.best["x"], at(1.0)["x"])


@pytest.mark.parametrize(
    "method",
    [
        Adam(steps=20, lr=0.2),
        SignedAdam(steps=20, lr=0.2, decay=Stairs()),
        Sgd(steps=20, lr=0.1, momentum=0.9),
        Lbfgs(steps=20, lr=0.5, history=4),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stopped_and_resumed_it_goes_where_it_would_have_gone(method: Method, dtype: torch.dtype) -> None:
    def loss(point: dict[str, Tensor]) -> Tensor:
        return torch.cosh(point["x"] - point["y"].sum()).sum() + (point["y"] ** 4).sum()

    begin = {"x": torch.tensor([0.3, -1.0], dtype=dtype), "y": torch.tensor([[0.5]], dtype=dtype)}
    whole = minimise(loss, begin, method)
    part = minimise(loss, begin, method, budget=7)
    assert part.status == "truncated" and part.steps == 7 and "7 of 20" in part.reason
    state = {name: value.clone() for name, value in part.state.items()}
    rest = minimise(loss, begin, method, state=state)
    assert rest.status == "ok" and rest.curve == whole.curve and rest.best_loss == whole.best_loss
    assert all(torch.equal(rest.state[name], whole.state[name]) for name in whole.state)
    again = minimise(loss, begin, method, state=rest.state)
    assert again.status == "ok" and again.curve == whole.curve
    assert all(value.dtype == dtype for value in rest.best.values())


def test_a_state_of_other_tensors_is_refused() -> None:
    state = minimise(plain_bowl, at(0.0), Sgd(steps=5, lr=0.1), budget=2).state
    with pytest.raises(BadInput, match="state"):
        minimise(plain_bowl, {"x": torch.zeros(4)}, Sgd(steps=5, lr=0.1), state=state)


METHODS: list[Method] = [Sgd(steps=9, lr=0.1), Adam(steps=9, lr=0.1), Lbfgs(steps=9, lr=0.1)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("other", METHODS)
def test_a_state_of_another_method_is_refused(method: Method, other: Method) -> None:
    state = minimise(plain_bowl, at(0.0), other, budget=3).state
    if method is other:
        assert minimise(plain_bowl, at(0.0), method, state=state).status == "ok"
        return
    with pytest.raises(BadInput, match="state") as refusal:
        minimise(plain_bowl, at(0.0), method, state=state)
    assert type(method).__name__ in refusal.value.expected


@pytest.mark.parametrize("method", METHODS)
def test_a_state_with_a_part_missing_or_too_much_is_refused(method: Method) -> None:
    state = minimise(plain_bowl, at(0.0), method, budget=3).state
    for missing in state:
        with pytest.raises(BadInput, match="state"):
            minimise(plain_bowl, at(0.0), method, state={n: v for n, v in state.items() if n != missing})
    with pytest.raises(BadInput, match="something called other"):
        minimise(plain_bowl, at(0.0), method, state={**state, "other/x": torch.zeros(3)})
    with pytest.raises(BadInput, match="nothing"):
        minimise(plain_bowl, at(0.0), method, state={})


def test_progress_is_reported_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[Step] = []
    minimise(plain_bowl, at(0.0), Sgd(steps=3, lr=0.25), report=heard.append, what="test")
    assert [(step.what, step.done, step.total) for step in heard] == [("test", 1, 3), ("test", 2, 3), ("test", 3, 3)]
    assert heard[-1].loss == pytest.approx(12 * 0.25**3)
    assert capsys.readouterr() == ("", "")


def test_the_start_is_left_alone_and_unused_tensors_stay() -> None:
    start = {**at(0.0), "idle": torch.ones(2)}
    outcome = minimise(plain_bowl, start, Sgd(steps=3, lr=0.1))
    assert torch.equal(start["x"], torch.zeros(3)) and not start["x"].requires_grad
    assert torch.equal(outcome.best["idle"], torch.ones(2))
    assert not any(value.requires_grad for value in outcome.state.values())


def test_it_works_where_gradients_are_switched_off_and_defaults_are_foreign() -> None:
    start = at(0.0)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.device("meta"):
            outcome = minimise(plain_bowl, start, Adam(steps=3, lr=0.1))
    finally:
        torch.set_default_dtype(dtype)
    assert outcome.best["x"].dtype == torch.float32 and outcome.best["x"].device.type == "cpu"
    assert outcome.best_loss < outcome.curve[0]


def two_valleys(point: dict[str, Tensor]) -> Tensor:
    x = point["x"].sum()
    return (x**2 - 1) ** 2 + 0.3 * x


def test_restarts_are_chosen_by_their_own_loss_and_report_as_one_loop() -> None:
    heard: list[Step] = []
    starts = [{"x": torch.tensor([value])} for value in (1.5, -1.5, 1.2)]
    found = restarts(two_valleys, starts, Sgd(steps=60, lr=0.03), report=heard.append)
    assert found.chosen == 1 and float(found.outcome.best["x"]) == pytest.approx(-1.0355, abs=1e-3)
    assert len(found.outcomes) == 3
    assert [step.done for step in heard] == list(range(1, 181)) and {step.total for step in heard} == {180}
    alone = minimise(two_valleys, starts[2], Sgd(steps=60, lr=0.03))
    assert found.outcomes[2].curve == alone.curve


def valleys_of_all(point: dict[str, Tensor]) -> Tensor:
    """The loss of every start: x [starts, 2] and a scalar y [starts]."""
    x = point["x"].sum(-1)
    return (x**2 - 1) ** 2 + 0.3 * x + (point["y"] - x) ** 2


def valleys(point: dict[str, Tensor]) -> Tensor:
    return valleys_of_all({name: value[None] for name, value in point.items()})[0]


@pytest.mark.parametrize("method", [Adam(steps=30, lr=0.05, decay=Cosine()), Sgd(steps=30, lr=0.02, momentum=0.5)])
def test_restarts_in_one_loop_are_those_in_turn(method: Sgd | Adam) -> None:
    starts = [{"x": torch.tensor([value, 0.1]), "y": torch.tensor(0.5)} for value in (1.5, -1.5, 1.2)]
    heard: list[Step] = []

    def project(point: dict[str, Tensor]) -> dict[str, Tensor]:
        return point | {"x": point["x"].clamp(-1.2, 1.2)}

    apart = restarts(valleys, starts, method, project=project)
    together = restarts(valleys, starts, method, project=project, stacked=valleys_of_all, report=heard.append)
    assert apart.chosen == together.chosen
    assert [step.done for step in heard] == list(range(3, 93, 3)) and {step.total for step in heard} == {90}
    for one, other in zip(apart.outcomes, together.outcomes, strict=True):
        assert one.curve == pytest.approx(other.curve, rel=1e-6) and one.best_loss == pytest.approx(other.best_loss)
        assert other.status == "ok" and other.steps == 30 and one.state.keys() == other.state.keys()
        for key, value in one.state.items():
            assert value.shape == other.state[key].shape and torch.allclose(value, other.state[key], atol=1e-6)


def test_restarts_are_taken_in_turn_where_one_of_them_diverges() -> None:
    starts = [{"x": torch.tensor([value, 0.0]), "y": torch.tensor(0.0)} for value in (math.nan, 1.0)]
    found = restarts(valleys, starts, Sgd(steps=2, lr=0.01), stacked=valleys_of_all)
    assert found.chosen == 1 and [outcome.status for outcome in found.outcomes] == ["diverged", "ok"]


def test_a_diverged_restart_is_not_chosen_and_the_first_wins_a_tie() -> None:
    starts = [{"x": torch.tensor([math.nan])}, at(1.0), at(1.0)]
    assert restarts(plain_bowl, starts, Sgd(steps=2, lr=0.1)).chosen == 1
    with pytest.raises(BadInput, match="starts"):
        restarts(plain_bowl, [], Sgd(steps=2, lr=0.1))


def growing(settled: int) -> Changing:
    """A plain_bowl that weighs more and more until it has settled."""
    return Changing(at=lambda point, step: (1 + min(step, settled)) * plain_bowl(point), settled=settled)


def test_a_changing_loss_gets_the_steps_taken() -> None:
    heard: list[int] = []

    def loss(point: dict[str, Tensor], step: int) -> Tensor:
        heard.append(step)
        return (step + 1) * plain_bowl(point)

    outcome = minimise(Changing(at=loss, settled=4), at(0.0), Sgd(steps=4, lr=0.01))
    assert heard == [0, 1, 2, 3, 4] and outcome.curve[0] == pytest.approx(12)


@pytest.mark.parametrize(
    ("rate", "best"), [(1e-3, 10), (1.1e-2, 3)]
)  # a hundredfold plain_bowl overshoots at the second
def test_the_best_of_a_changing_loss_is_one_it_settled_on(rate: float, best: int) -> None:
    loss = Changing(at=lambda point, step: (1.0 if step < 3 else 100.0) * plain_bowl(point), settled=3)
    outcome = minimise(loss, at(1.0), Sgd(steps=10, lr=rate))
    assert max(outcome.curve[:3]) < outcome.best_loss == min(outcome.curve[3:]) == outcome.curve[best]
    assert float(loss.at(outcome.best, best)) == outcome.best_loss


def test_until_a_loss_has_settled_the_latest_is_the_best() -> None:
    outcome = minimise(growing(50), at(1.0), Sgd(steps=10, lr=0.001))
    assert outcome.best_loss == outcome.curve[-1] and torch.equal(outcome.best["x"], outcome.last["x"])


@pytest.mark.parametrize("stop", [2, 3, 6])
def test_a_changing_loss_can_be_resumed(stop: int) -> None:
    loss, method = growing(3), Sgd(steps=10, lr=0.3)
    whole = minimise(loss, at(1.0), method)
    part = minimise(loss, at(1.0), method, budget=stop)
    rest = minimise(loss, at(1.0), method, state=part.state)
    assert rest.curve == whole.curve and rest.best_loss == whole.best_loss
    assert all(torch.equal(rest.state[name], whole.state[name]) for name in whole.state)


def test_a_low_loss_from_before_it_settled_does_not_win() -> None:
    def loss(point: dict[str, Tensor], step: int) -> Tensor:
        breaks = bool(point["breaks"] > 0) and step >= 1
        return (1 + 99 * min(step, 3)) * plain_bowl(point) / (0 if breaks else 1)

    starts = [{**at(2.1), "breaks": torch.ones(())}, {**at(2.5), "breaks": torch.zeros(())}]
    found = restarts(Changing(at=loss, settled=3), starts, Sgd(steps=5, lr=1e-5))
    assert found.outcomes[0].best_loss < found.outcomes[1].best_loss and found.chosen == 1
    assert restarts(Changing(at=loss, settled=0), starts, Sgd(steps=5, lr=1e-5)).chosen == 0


@pytest.mark.parametrize(("keep", "chosen"), [("best", 0), ("last", 1)])
def test_restarts_are_ranked_by_the_loss_of_what_is_kept(keep: Keep, chosen: int) -> None:
    starts = [at(1.99), at(2.2)]
    kept = [torch.tensor(rate) for rate in (1.5, 0.1)]  # the first overshoots from its low start

    def loss(point: dict[str, Tensor]) -> Tensor:
        return point["rate"].detach() * plain_bowl(point)

    begin = [{**start, "rate": rate} for start, rate in zip(starts, kept, strict=True)]
    found = restarts(loss, begin, Sgd(steps=4, lr=1.0), keep=keep)
    assert found.chosen == chosen
    end = found.outcome
    assert torch.equal(end.kept(keep)["x"], (end.best if keep == "best" else end.last)["x"])
    assert end.loss_of(keep) == (min(end.curve) if keep == "best" else end.curve[-1])
    assert float(loss(end.kept(keep))) == pytest.approx(end.loss_of(keep))


def test_the_loss_of_the_last_point_is_its_last_finite_one() -> None:
    outcome = minimise(lambda point: (point["x"] / 0).sum(), at(1.0), Sgd(steps=5, lr=0.1))
    assert outcome.loss_of("last") == outcome.loss_of("best") == math.inf


def test_a_restart_that_ended_before_the_loss_settled_is_chosen_last() -> None:
    def loss(point: dict[str, Tensor], step: int) -> Tensor:
        broken = bool(point["x"].detach()[0] > 50) and step >= 1
        return (1 + min(step, 3)) * (((point["x"] - 2) ** 2).sum() * (1e-9 if broken else 1.0) / (0 if broken else 1))

    starts = [at(60.0), at(3.0)]
    found = restarts(Changing(at=loss, settled=3), starts, Sgd(steps=5, lr=1e-4))
    assert [one.status for one in found.outcomes] == ["diverged", "ok"] and found.chosen == 1
