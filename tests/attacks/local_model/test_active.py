"""Attacks that send what they like: what they reach, what they cost, and where they are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.view import View
from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.active import (
    GAUSS,
    LocalModelActive,
    LocalModelSendBack,
    TryThenSteer,
    usual_entry,
    walk_from,
)
from fedxray.attacks.local_model.messages import returned
from fedxray.audit.plan import AttackPart
from fedxray.audit.run.comparisons import CaseContext, open_channel
from fedxray.audit.run.evaluate import evaluate
from fedxray.errors import BadInput, Refused
from fedxray.optim import Adam, Sgd
from fedxray.params import Params
from fedxray.seeds import fork
from fedxray.theory import update_matrix
from tests.attacks.local_model.federations import active_view, least_squares, optimum, played, vector
from tests.contract import worlds

ACTIVE = [LocalModelSendBack(active_rounds=3), LocalModelActive(active_rounds=3)]
CLIENT = 2


def run(attack: Attack, view: View) -> Evidence:
    return attack.run(view, generator=fork(0))


def design(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def test_isolation_nears_the_optimum_at_the_rate_of_the_map() -> None:
    federation = least_squares(5, rounds=10)
    transcript, truth = played(federation)
    view, right = active_view(transcript, truth, CLIENT), optimum(federation.clients[CLIENT])
    far = [
        float((vector(run(LocalModelSendBack(active_rounds=k), view).tensors) - right).norm()) for k in (1, 2, 20, 60)
    ]
    x = design(federation.clients[CLIENT].x)
    rest = torch.eye(5, dtype=x.dtype) - update_matrix(x, learning_rate=0.05, steps=1)
    rate = float(torch.linalg.matrix_norm(rest, 2))
    assert rate < 1
    for place, steps in ((1, 1), (2, 19), (3, 59)):
        assert far[place] <= far[0] * rate**steps * (1 + 1e-9)


def test_a_plain_step_of_one_is_sending_back() -> None:
    method = Sgd(steps=1, lr=1.0)
    sent, update = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.5, -1.0])}
    walk = walk_from(sent, method).after(update)
    assert walk.returned is not None and torch.equal(walk.point["w"], walk.returned["w"])


@pytest.mark.parametrize(
    ("pace", "sizes"), [("constant", [1, 1, 1, 1, 1, 1, 1]), ("rise-and-fall", [1, 2, 3, 4, 3, 2, 1])]
)
def test_it_is_adam_on_the_pseudo_gradient(pace: Literal["constant", "rise-and-fall"], sizes: list[int]) -> None:
    """Against torch's own Adam fed with W (theta - theta*)."""
    federation = least_squares(4, rounds=6, epochs=2)
    transcript, truth = played(federation)
    view, right = active_view(transcript, truth, CLIENT), optimum(federation.clients[CLIENT])
    found = run(LocalModelActive(active_rounds=7, lr=0.1, betas=(0.8, 0.95), pace=pace), view)
    matrix = update_matrix(design(federation.clients[CLIENT].x), learning_rate=0.05, steps=2)
    last = max(view.of(CLIENT), key=lambda one: one.round)
    point = torch.cat([(last.start[name] + last.update[name]).reshape(-1) for name in last.start])
    adam = torch.optim.Adam([point], lr=0.1, betas=(0.8, 0.95))
    for size in sizes:
        adam.param_groups[0]["lr"] = 0.1 * size
        point.grad = matrix @ (point - right)
        adam.step()
    assert torch.allclose(vector(found.tensors), point, atol=1e-10)
    assert found.rounds_spent == 7 and len(found.curve) == 7


def test_every_round_of_a_trial_counts() -> None:
    transcript, truth = played(least_squares(4, rounds=6))
    view = active_view(transcript, truth, CLIENT)
    plain = run(LocalModelActive(active_rounds=10), view)
    tuned = run(LocalModelActive(active_rounds=10, tune="search", trials=4, trial_rounds=3), view)
    assert plain.rounds_spent == 10 and plain.facts["rounds_of_trials"] == 0
    assert tuned.rounds_spent == 4 * (3 + 2) + 10 - 3 and tuned.facts["rounds_of_trials"] == 17
    by_norm = run(LocalModelActive(active_rounds=10, tune="search", trials=4, trial_rounds=3, judge="norm"), view)
    assert by_norm.rounds_spent == 10 + 3 * 3 and by_norm.facts["rounds_of_trials"] == 9
    whole = run(LocalModelActive(active_rounds=5, tune="search", trials=3), view)
    assert whole.rounds_spent == 3 * (5 + 2) and len(whole.curve) == 5
    assert len(tuned.curve) == 10
    assert plain.facts["lr"] == pytest.approx(LocalModelActive().boost * usual_entry(view))


def test_more_rounds_rise_no_higher() -> None:
    transcript, truth = played(least_squares(4, rounds=6))
    view = active_view(transcript, truth, CLIENT)
    first = {count: run(LocalModelActive(active_rounds=count), view).facts["lr"] for count in (50, 80)}
    assert 80 * first[80] == pytest.approx(50 * first[50])
    constant = run(LocalModelActive(active_rounds=80, pace="constant"), view)
    assert constant.facts["lr"] == pytest.approx(first[50])


def test_the_search_keeps_what_made_the_pseudo_gradient_smallest() -> None:
    transcript, truth = played(least_squares(4, rounds=6))
    view = active_view(transcript, truth, CLIENT)
    attack = LocalModelActive(active_rounds=4, tune="search", trials=6, trial_rounds=4, judge="norm")
    found = run(attack, view)
    again = run(LocalModelActive(active_rounds=4, lr=found.facts["lr"], betas=tuple(found.facts["betas"])), view)
    assert found.curve[-1] == pytest.approx(again.curve[-1], rel=1e-6)
    assert found.curve[-1] <= run(replace(attack, tune="recorded"), view).curve[-1] * (1 + 1e-9)


def test_places_on_the_line_tell_how_far_the_loss_fell() -> None:
    """One step on all records of a least squares problem: the replies are exact slopes of the loss."""
    federation = least_squares(4, rounds=6)
    transcript, truth = played(federation)
    view, own = active_view(transcript, truth, CLIENT), federation.clients[CLIENT]

    def loss(point: Params) -> float:
        weights = torch.cat([value.reshape(-1) for value in point.values()])
        return float((design(own.x) @ weights - own.y).square().mean())

    start = returned(view, max(view.of_target(), key=lambda one: one.round))
    walks = tuple(walk_from(start, Adam(steps=9, lr=rate)) for rate in (0.01, 0.3, 5.0))
    tamper = TryThenSteer(trials=walks, trial_steps=3, judge=lambda trial: trial.rise, asked=GAUSS)
    assert view.channel is not None and tamper.rounds_of_trials == 15
    state = view.channel(tamper, rounds=17, clients=[CLIENT]).state
    for trial in state.done:
        assert trial.rise == pytest.approx(
            0.05 * (loss(trial.walk.point) - loss(trial.begin)), rel=1e-6
        )  # the client's step size
    best = min(state.done, key=lambda trial: loss(trial.walk.point))
    assert state.chosen.method == best.walk.method and state.chosen.steps == 5
    assert len({trial.walk.method.lr for trial in state.done}) == 3


def test_rounds_need_not_follow_each_other() -> None:
    """Clients without a memory answer the same whether honest rounds lie between or not."""
    transcript, truth = played(least_squares(4, rounds=6))
    view = active_view(transcript, truth, CLIENT)
    for attack in ACTIVE:
        close, spaced = run(attack, view), run(replace(attack, every=3), view)  # type: ignore[type-var]
        assert torch.allclose(vector(close.tensors), vector(spaced.tensors), atol=1e-12)
        assert spaced.rounds_spent == 3 and spaced.facts["rounds_passed"] == 7


@pytest.mark.parametrize("answer", ["sent", "returned"])
def test_clients_that_send_gradients_are_walked_like_those_that_send_models(
    answer: Literal["sent", "returned"],
) -> None:
    """One full-batch step and its gradient say the same, whatever the learning rate."""
    attack, found = LocalModelActive(active_rounds=6, answer=answer), []
    for algorithm in ("fedavg", "fedsgd"):
        federation = least_squares(4, rounds=6, learning_rate=0.005, algorithm=algorithm)
        transcript, truth = played(federation)
        view = replace(active_view(transcript, truth, CLIENT), grants=disclose(truth, ["recipe"], client=CLIENT))
        found.append(run(attack, view))
    assert found[0].facts["lr"] == pytest.approx(found[1].facts["lr"])
    # Adam's epsilon is all that knows the size of a gradient.
    assert torch.allclose(vector(found[0].tensors), vector(found[1].tensors), atol=1e-4)


def test_active_beats_isolation_in_the_same_rounds() -> None:
    federation = least_squares(6, rounds=10, learning_rate=0.01)
    transcript, truth = played(federation)
    view, right = active_view(transcript, truth, CLIENT), optimum(federation.clients[CLIENT])
    far = [
        float((vector(run(attack, view).tensors) - right).norm())
        for attack in (LocalModelActive(active_rounds=50), LocalModelSendBack(active_rounds=50))
    ]
    assert far[0] < 0.5 * far[1]


def test_the_paper_s_tuning_needs_the_client_s_loss() -> None:
    federation = least_squares(4, rounds=6)
    transcript, truth = played(federation)
    attack = LocalModelActive(active_rounds=4, tune="oracle-loss", trials=5, trial_rounds=4)
    view = active_view(transcript, truth, CLIENT)
    with pytest.raises(Refused, match="oracle-loss"):
        run(attack, view)
    informed_view = replace(view, grants=disclose(truth, ["oracle-loss"], client=CLIENT))
    assert informed_view.grants.is_oracle

    def loss(evidence: Evidence) -> float:
        own = federation.clients[CLIENT]
        return float((design(own.x) @ vector(evidence.tensors) - own.y).square().mean())

    best = run(attack, informed_view)
    assert best.rounds_spent == 5 * 4
    assert loss(best) <= loss(run(replace(attack, tune="recorded"), informed_view)) * (1 + 1e-9)
    params = {"0.weight": best.tensors["param:0.weight"], "0.bias": best.tensors["param:0.bias"]}
    assert informed_view.grants.oracle["oracle-loss"].of(view.model, params) == pytest.approx(loss(best))


@pytest.mark.parametrize("attack", ACTIVE, ids=lambda attack: attack.name)
def test_refused_without_a_live_client(attack: Attack) -> None:
    federation = least_squares(4, rounds=3)
    transcript, truth = played(federation)
    recording = replace(transcript, recorded=True)
    assert open_channel(recording, truth) is None
    with pytest.raises(Refused, match="recording") as refusal:
        run(attack, active_view(recording, truth, CLIENT))
    assert "still answers" in refusal.value.missing
    with pytest.raises(Refused):
        run(attack, roles.server(transcript, client=CLIENT))
    hidden, its_truth = played(replace(federation, secure_aggregation=True))
    assert open_channel(hidden, its_truth) is None
    with pytest.raises(Refused, match="replies"):
        run(attack, active_view(hidden, its_truth, CLIENT))


def test_it_starts_after_the_rounds_that_were_read() -> None:
    transcript, truth = played(least_squares(4, rounds=9))
    channel = open_channel(transcript, truth, rounds=[0, 1, 4])
    assert channel is not None
    view = active_view(transcript, truth, CLIENT)
    seen: list[int] = []

    class Note:
        def start(self) -> None: ...

        def send(self, state: None, round: int, client: int, broadcast: object) -> tuple[object, None]:
            seen.append(round)
            return broadcast, None

        def receive(self, state: None, round: int, client: int, update: object) -> None: ...

    found = channel(Note(), rounds=2, clients=[CLIENT])  # type: ignore[arg-type]
    assert seen == [5, 6] and [one.round for one in found.observations] == [5, 6]
    assert all(one.tampered and one.contributors == (CLIENT,) for one in found.observations)
    assert {one.round for one in view.observations} == set(range(9))  # the honest run is as it was


def test_the_rounds_of_an_inner_attack_count() -> None:
    world = worlds.table_world()
    attack = AttributeFromModel(model=LocalModelSendBack(active_rounds=4))
    found = run(attack, worlds.view_of(attack, world, role="active-server"))
    assert found.kind == "attributes" and found.rounds_spent == 4


def test_a_case_of_an_audit_says_what_it_spent() -> None:
    world = worlds.table_world()
    attack = LocalModelSendBack(active_rounds=2)
    part = AttackPart.model_validate({"name": attack.name, "role": "active-server"})
    context = CaseContext(
        part=part, attack=attack, transcript=world.transcript, truth=world.truth, client=1, aware=None,
    )  # fmt: skip
    outcome = evaluate(context)
    assert outcome.evidence.rounds_spent == 2 and outcome.ledger["active"] is True
    assert {"other-client", "global-model"} <= outcome.controls.keys()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"active_rounds": 0}, "active_rounds"),
        ({"judge": "loss"}, "judge"),
        ({"every": 0}, "every"),
        ({"trial_rounds": 0}, "trial_rounds"),
        ({"pace": "slow"}, "pace"),
        ({"tune": "guess"}, "tune"),
        ({"answer": "best"}, "answer"),
        ({"trials": 2.5}, "trials"),
        ({"betas": (0.9, 1.0)}, "betas"),
    ],
)
def test_refuses_impossible_settings(settings: dict[str, object], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        LocalModelActive(**settings)  # type: ignore[arg-type]
