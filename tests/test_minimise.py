from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.optim import Adam, Changing, Keep, Lbfgs, Method, Sgd, SignedAdam, Stairs, minimise, restarts
from fedxray.progress import Step


def bowl(point: dict[str, Tensor]) -> Tensor:
    return ((point["x"] - 2) ** 2).sum()


def at(value: float, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {"x": torch.full((3,), value, dtype=dtype)}


def test_the_curve_holds_the_start_and_every_step_and_the_best_is_its_lowest() -> None:
    outcome = minimise(bowl, at(0.0), Sgd(steps=4, lr=0.25))
    assert outcome.status == "ok" and outcome.steps == 4 and outcome.reason == ""
    assert outcome.curve == pytest.approx([12 * 0.25**step for step in range(5)])
    assert outcome.best_loss == outcome.curve[-1]
    assert torch.equal(outcome.best["x"], outcome.last["x"])


def test_the_best_is_kept_when_later_steps_are_worse() -> None:
    outcome = minimise(bowl, at(1.9), Sgd(steps=5, lr=1.5))  # every step overshoots
    assert torch.equal(outcome.best["x"], at(1.9)["x"])
    assert not torch.equal(outcome.last["x"], outcome.best["x"])
    assert outcome.best_loss == outcome.curve[0] == min(outcome.curve)


def test_the_projection_follows_every_step() -> None:
    outcome = minimise(
        bowl, at(0.0), Adam(steps=30, lr=0.3), project=lambda point: {"x": point["x"].clamp(max=1.0)}
    )
    assert torch.equal(outcome.last["x"], at(1.0)["x"])


def test_a_loss_that_stops_being_finite_gives_the_last_finite_point() -> None:
    def cliff(point: dict[str, Tensor]) -> Tensor:
        return bowl(point) if float(point["x"].detach().max()) <= 1 else (point["x"] * math.nan).sum()

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
    state = minimise(bowl, at(0.0), Sgd(steps=5, lr=0.1), budget=2).state
    with pytest.raises(BadInput, match="state"):
        minimise(bowl, {"x": torch.zeros(4)}, Sgd(steps=5, lr=0.1), state=state)


METHODS: list[Method] = [
    Sgd(steps=9, lr=0.1),
    Adam(steps=9, lr=0.1),
    Lbfgs(steps=9, lr=0.1),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("other", METHODS)
def test_a_state_of_another_method_is_refused(method: Method, other: Method) -> None:
    state = minimise(bowl, at(0.0), other, budget=3).state
    if method is other:
        assert minimise(bowl, at(0.0), method, state=state).status == "ok"
        return
    with pytest.raises(BadInput, match="state") as refusal:
        minimise(bowl, at(0.0), method, state=state)
    assert type(method).__name__ in refusal.value.expected


@pytest.mark.parametrize("method", METHODS)
def test_a_state_with_a_part_missing_or_too_much_is_refused(method: Method) -> None:
    state = minimise(bowl, at(0.0), method, budget=3).state
    for missing in state:
        with pytest.raises(BadInput, match="state"):
            minimise(bowl, at(0.0), method, state={n: v for n, v in state.items() if n != missing})
    with pytest.raises(BadInput, match="something called other"):
        minimise(bowl, at(0.0), method, state={**state, "other/x": torch.zeros(3)})
    with pytest.raises(BadInput, match="nothing"):
        minimise(bowl, at(0.0), method, state={})


def test_progress_is_told_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[Step] = []
    minimise(bowl, at(0.0), Sgd(steps=3, lr=0.25), report=heard.append, what="test")
    assert [(step.what, step.done, step.total) for step in heard] == [
        ("test", 1, 3),
        ("test", 2, 3),
        ("test", 3, 3),
    ]
    assert heard[-1].loss == pytest.approx(12 * 0.25**3)
    assert capsys.readouterr() == ("", "")


def test_the_start_is_left_alone_and_unused_tensors_stay() -> None:
    start = {**at(0.0), "idle": torch.ones(2)}
    outcome = minimise(bowl, start, Sgd(steps=3, lr=0.1))
    assert torch.equal(start["x"], torch.zeros(3)) and not start["x"].requires_grad
    assert torch.equal(outcome.best["idle"], torch.ones(2))
    assert not any(value.requires_grad for value in outcome.state.values())


def test_it_works_where_gradients_are_switched_off_and_defaults_are_foreign() -> None:
    start = at(0.0)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.device("meta"):
            outcome = minimise(bowl, start, Adam(steps=3, lr=0.1))
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


def test_a_diverged_restart_is_not_chosen_and_the_first_wins_a_tie() -> None:
    starts = [{"x": torch.tensor([math.nan])}, at(1.0), at(1.0)]
    assert restarts(bowl, starts, Sgd(steps=2, lr=0.1)).chosen == 1
    with pytest.raises(BadInput, match="starts"):
        restarts(bowl, [], Sgd(steps=2, lr=0.1))


def growing(settled: int) -> Changing:
    """A bowl that weighs more and more until it has settled."""
    return Changing(at=lambda point, step: (1 + min(step, settled)) * bowl(point), settled=settled)


def test_a_changing_loss_is_told_the_steps_taken() -> None:
    heard: list[int] = []

    def loss(point: dict[str, Tensor], step: int) -> Tensor:
        heard.append(step)
        return (step + 1) * bowl(point)

    outcome = minimise(Changing(at=loss, settled=4), at(0.0), Sgd(steps=4, lr=0.01))
    assert heard == [0, 1, 2, 3, 4] and outcome.curve[0] == pytest.approx(12)


@pytest.mark.parametrize(
    ("rate", "best"), [(1e-3, 10), (1.1e-2, 3)]
)  # a hundredfold bowl overshoots at the second
def test_the_best_of_a_changing_loss_is_one_it_settled_on(rate: float, best: int) -> None:
    loss = Changing(at=lambda point, step: (1.0 if step < 3 else 100.0) * bowl(point), settled=3)
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
        return (1 + 99 * min(step, 3)) * bowl(point) / (0 if breaks else 1)

    starts = [{**at(2.1), "breaks": torch.ones(())}, {**at(2.5), "breaks": torch.zeros(())}]
    found = restarts(Changing(at=loss, settled=3), starts, Sgd(steps=5, lr=1e-5))
    assert found.outcomes[0].best_loss < found.outcomes[1].best_loss and found.chosen == 1
    assert restarts(Changing(at=loss, settled=0), starts, Sgd(steps=5, lr=1e-5)).chosen == 0


@pytest.mark.parametrize(("keep", "chosen"), [("best", 0), ("last", 1)])
def test_restarts_are_ranked_by_the_loss_of_what_is_kept(keep: Keep, chosen: int) -> None:
    starts = [at(1.99), at(2.2)]
    kept = [torch.tensor(rate) for rate in (1.5, 0.1)]  # the first overshoots from its low start

    def loss(point: dict[str, Tensor]) -> Tensor:
        return point["rate"].detach() * bowl(point)

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
        return (1 + min(step, 3)) * (
            ((point["x"] - 2) ** 2).sum() * (1e-9 if broken else 1.0) / (0 if broken else 1)
        )

    starts = [at(60.0), at(3.0)]
    found = restarts(Changing(at=loss, settled=3), starts, Sgd(steps=5, lr=1e-4))
    assert [one.status for one in found.outcomes] == ["diverged", "ok"] and found.chosen == 1
