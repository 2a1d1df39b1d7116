"""Exact recovery in federated least squares, both ways, and when it is refused or undetermined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from fedxray.adversary import roles
from fedxray.adversary.view import Grants, Observation, View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.local_model.linear import LocalModelLinear, LocalModelLinearForward, fit_affine
from fedxray.attacks.local_model.messages import linear_in_parameters
from fedxray.data.dataset import Records, Space
from fedxray.errors import Refused
from fedxray.federation.setting import Federation
from fedxray.seeds import fork
from fedxray.theory import messages_needed
from tests.attacks.local_model.federations import DOUBLE, least_squares, optimum, played, vector, with_messages

BOTH = pytest.mark.parametrize("attack", [LocalModelLinear(), LocalModelLinearForward()], ids=lambda a: a.name)
CLIENT = 2


def view_of(federation: Federation) -> View:
    return roles.server(played(federation)[0], client=CLIENT)


def run(attack: Attack, view: View) -> Evidence:
    return attack.run(view, generator=fork(0))


def error(evidence: Evidence, federation: Federation, client: int = CLIENT) -> float:
    right = optimum(federation.clients[client])
    return float((vector(evidence.tensors) - right).norm() / right.norm())


@pytest.mark.parametrize("parameters", [2, 5, 11, 20])
@pytest.mark.parametrize("epochs", [1, 3, 10])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_exact_from_one_message_more_than_parameters(parameters: int, epochs: int, rate: float) -> None:
    federation = least_squares(parameters, rounds=2 * parameters + 16, epochs=epochs, learning_rate=rate)
    view = view_of(federation)
    enough, short = with_messages(view, messages_needed(parameters)), with_messages(view, parameters)
    found = [run(attack, enough) for attack in (LocalModelLinear(), LocalModelLinearForward())]
    assert [one.status for one in found] == ["ok", "ok"]
    assert max(error(one, federation) for one in found) <= 1e-8
    assert float((vector(found[0].tensors) - vector(found[1].tensors)).norm()) <= 1e-8
    for attack in (LocalModelLinear(), LocalModelLinearForward()):
        open_question = run(attack, short)
        assert open_question.status == "undetermined" and str(parameters + 1) in open_question.reason
        assert error(open_question, federation) > 1e-3
        assert open_question.facts["rank"] == parameters - 1 and open_question.facts["condition"] is None


@BOTH
@pytest.mark.parametrize(
    "recipe",
    [
        {"algorithm": "fedsgd"},
        {"momentum": 0.9, "epochs": 3},
        {"algorithm": "fedprox", "mu": 0.5, "epochs": 3},
        {"server_learning_rate": 0.5},
    ],
    ids=lambda recipe: "-".join(map(str, recipe)),
)
def test_exact_for_any_recipe_of_full_batches(attack: Attack, recipe: dict[str, object]) -> None:
    federation = least_squares(6, rounds=40, **recipe)
    assert error(run(attack, view_of(federation)), federation) <= 1e-8


@BOTH
def test_it_says_what_it_stood_on(attack: Attack) -> None:
    facts = run(attack, view_of(least_squares(4, rounds=40))).facts
    assert facts["messages"] > 10 and facts["parameters"] == facts["rank"] == 4
    assert facts["condition"] > 1 and facts["residual"] < 1e-10


@BOTH
def test_undetermined_when_all_clients_take_part_in_every_round(attack: Attack) -> None:
    """Then the server's models follow one linear recursion and are, to rounding, affinely dependent."""
    found = run(attack, view_of(least_squares(15, rounds=60, participation=1.0)))
    assert found.status == "undetermined" and "independent directions" in found.reason


@BOTH
def test_undetermined_when_a_column_never_varies(attack: Attack) -> None:
    federation = least_squares(5, rounds=40)
    blank = [Records(one.x * torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=DOUBLE), one.y) for one in federation.clients]
    found = run(attack, view_of(replace(federation, clients=tuple(blank))))
    assert found.status == "undetermined"
    right = optimum(blank[CLIENT])  # numpy's smallest solution has zero there; the rest is still determined
    assert float((vector(found.tensors) - right)[[0, 2, 3, 4]].norm()) < 1e-8


def test_undetermined_when_a_step_turns_over_exactly() -> None:
    """The exception to Lemma 1: 2 eta H / m has the eigenvalue 2 and the number of steps is even."""
    eye = torch.eye(3, dtype=DOUBLE) * 3**0.5  # m = 3: 2 eta H / m = 2 eta
    stuck = Records(eye, torch.tensor([1.0, 2.0, 3.0], dtype=DOUBLE))
    base = least_squares(4, rounds=30, epochs=2, learning_rate=0.1)
    model = nn.Linear(3, 1, bias=False, dtype=DOUBLE)
    turning = replace(base.recipe, learning_rate=1.0)
    far = replace(stuck, x=eye * 0.5)
    federation = replace(base, clients=(far, stuck, far, far), model=model, recipe=turning)
    view = roles.server(played(federation)[0], client=1)
    for attack in (LocalModelLinear(), LocalModelLinearForward()):
        assert run(attack, view).status == "undetermined"


@BOTH
def test_float32_messages_give_float32_precision(attack: Attack) -> None:
    federation = least_squares(8, rounds=60, dtype=torch.float32)
    found = run(attack, view_of(federation))
    assert found.status == "ok" and found.tensors["param:0.weight"].dtype == torch.float32
    assert error(found, federation) < 1e-3


@BOTH
def test_mini_batches_leave_it_far_nearer_than_the_last_model(attack: Attack) -> None:
    federation = least_squares(6, clients=8, rounds=150, examples=128, batch_size=32, learning_rate=0.02)
    view = view_of(federation)
    assert error(run(attack, view), federation) < 0.1 * error(run(LastReturned(), view), federation)


@BOTH
@pytest.mark.parametrize("what", ["network", "classes", "loss"])
def test_refuses_what_is_not_least_squares(attack: Attack, what: str) -> None:
    view = view_of(least_squares(4, rounds=10))
    deep = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    space = replace(view.space, target="classification", classes=("a", "b"))
    wrong = {
        "network": replace(view, model=deep),
        "classes": replace(view, space=space),
        "loss": replace(view, loss="cross-entropy"),
    }[what]
    with pytest.raises(Refused, match="linear in its parameters"):
        run(attack, wrong)


def test_what_counts_as_linear() -> None:
    frozen = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    assert not linear_in_parameters(frozen, (3,))
    frozen[0].requires_grad_(False)
    assert linear_in_parameters(frozen, (3,))  # a trained head on fixed features is least squares as well
    assert linear_in_parameters(nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), (3, 4))
    assert not linear_in_parameters(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), (3,))  # a product of two


def noisy_view(messages: int, noise: float, seed: int, d: int = 4) -> tuple[View, Tensor]:
    """A client with a known affine map whose replies carry noise, sent models that do not depend on them."""
    draw = fork(seed, "noisy", messages)
    half = torch.randn(d, d, generator=fork(1), dtype=DOUBLE)
    matrix = 0.4 * torch.eye(d, dtype=DOUBLE) + 0.05 * (half + half.T)
    right = torch.randn(d, generator=fork(2), dtype=DOUBLE)
    seen = []
    for round in range(messages):
        start = torch.randn(d, generator=draw, dtype=DOUBLE)
        update = matrix @ (right - start) + noise * torch.randn(d, generator=draw, dtype=DOUBLE)
        seen.append(
            Observation(
                round=round,
                start={"weight": start[None]},
                update={"weight": update[None]},
                kind="weights",
                contributors=(0,),
                examples=None,
            )
        )
    model = nn.Linear(d, 1, bias=False, dtype=DOUBLE)
    space = Space(kind="table", shape=(d,), target="regression")
    view = View(
        role="server", target=0, observations=tuple(seen), globals=(), model=model, space=space, loss="mse",
        grants=Grants(),
    )  # fmt: skip
    return view, right


@BOTH
def test_the_error_halves_with_four_times_the_messages(attack: Attack) -> None:
    """And is proportional to the noise, that is to the learning rate and to the root of the number of steps."""

    def mean_error(messages: int, noise: float) -> float:
        found = []
        for seed in range(25):
            view, right = noisy_view(messages, noise, seed)
            found.append(float((run(attack, view).tensors["param:weight"][0] - right).norm()))
        return sum(found) / len(found)

    few, many, quiet = mean_error(60, 0.02), mean_error(240, 0.02), mean_error(60, 0.01)
    assert few / many == pytest.approx(2.0, rel=0.25)
    assert few / quiet == pytest.approx(2.0, rel=0.1)


@given(seed=st.integers(0, 1000), rows=st.integers(8, 30), columns=st.integers(1, 6), scale=st.floats(1e-4, 1e4))
def test_the_fit_is_that_of_numpy(seed: int, rows: int, columns: int, scale: float) -> None:
    draw = fork(seed, "fit")
    inputs = scale * torch.randn(rows, columns, generator=draw, dtype=DOUBLE)
    responses = torch.randn(rows, 3, generator=draw, dtype=DOUBLE)
    found = fit_affine(inputs, responses, 1e-16 * scale)
    design = np.concatenate([inputs.numpy(), np.ones((rows, 1))], 1)
    slow = np.linalg.lstsq(design / [*[scale] * columns, 1], responses.numpy(), rcond=None)[0]
    assert found.rank == columns
    assert np.allclose(found.slope.numpy() * scale, slow[:-1], atol=1e-8)
    assert np.allclose(found.intercept.numpy(), slow[-1], atol=1e-8)
