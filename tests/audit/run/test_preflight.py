"""What cannot work is refused before anything starts, and the rest is reckoned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedxray.attacks.update_algebra import SECONDS
from fedxray.audit.plan import make_plan
from fedxray.audit.run import preflight as reckoned, preflight as room
from fedxray.audit.run.grid import expand
from fedxray.audit.run.preflight import Estimate, planned_steps, preflight, rehearse
from fedxray.audit.run.prepare import prepare
from fedxray.errors import BadInput, FedxrayError, Refused
from fedxray.federation.folder import transcript_bytes
from tests.audit.plans import tiny

HERE = Path(__file__).parents[1]
DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "clients": 2, "limit": 3},
    "model": {"name": "linear"},
    "federation": {"rounds": 1, "algorithm": "fedsgd", "batch_size": "all"},
}


def look(**changes: Any) -> Estimate:
    return preflight(make_plan(tiny(**changes), HERE))


def digits(*attacks: dict[str, Any], **federation: Any) -> dict[str, Any]:
    document = tiny(data=None, model=None, federation=None, attack=list(attacks)) | DIGITS
    return document | {"federation": DIGITS["federation"] | federation}


def test_the_estimate_counts_runs_cases_and_bytes() -> None:
    found = look(seeds=[0, 1, 2], defence=[{"name": "none"}, {"name": "gaussian-noise", "scale": 0.1}])
    plan = make_plan(tiny(seeds=[0, 1, 2]), HERE)
    assert (found.runs, found.cases) == (6, 3 * 2 + 2 * 3 * 2)
    # Six runs, and two planted ones (with and without the defence) with six clients in place of two.
    assert found.bytes == (6 + 3 + 3) * transcript_bytes(prepare(plan, "none", 0).federation) > 0


def test_the_estimate_counts_reference_models() -> None:
    attacks = [{"name": "membership-loss"}, {"name": "membership-reference"}, {"name": "membership-best"}]
    found = look(attack=[dict(one, controls=[]) for one in attacks])
    loss, reference, best = (found.optimising_seconds[one["name"]] for one in attacks)
    assert loss == 0.0 < reference < best, "four models, each trained for as many steps as the client, then weights"


def test_a_seat_that_the_attack_is_not_made_for() -> None:
    with pytest.raises(BadInput, match="curious-client") as refusal:
        look(attack=[{"name": "local-model-linear", "role": "curious-client"}])
    assert "attack local-model-linear" in str(refusal.value) and "server" in str(refusal.value)


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ({"name": "attribute-from-model", "grants": ["recipe"]}, "public-attributes"),
        ({"name": "membership-loss", "grants": []}, "target-records"),
        ({"name": "attribute-from-model", "role": "curious-client"}, "client alone"),
        ({"name": "attribute-from-model", "role": "secure-aggregation"}, "client alone"),
        ({"name": "local-model-linear"}, "linear"),
    ],
)
def test_a_view_that_lacks_something(attack: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        look(attack=[attack])


def test_what_needs_no_reply_of_one_client_may_start() -> None:
    for role in ("curious-client", "secure-aggregation"):
        assert look(attack=[{"name": "attribute-from-model", "role": role, "model": "global-model"}]).cases > 0


def test_members_cannot_be_inferred_without_held_out_records() -> None:
    with pytest.raises(FedxrayError, match="holdout"):
        look(data={"holdout": 0.0}, attack=[{"name": "membership-loss"}])


@pytest.mark.parametrize(("role", "federation"), [("secure-aggregation", {}), ("server", {"secure_aggregation": True})])
def test_labels_of_a_sum_are_asked_once_for_everyone(role: str, federation: dict[str, Any]) -> None:
    plan = make_plan(digits({"name": "labels-idlg", "role": role}, **federation), HERE)
    preflight(plan)
    assert [case.client for case in expand(plan)[1]] == [None] * len(plan.seeds)


def test_the_rehearsal_is_one_round_with_two_examples() -> None:
    plan = make_plan(tiny(federation={"rounds": 9, "participation": 0.5, "record": "last", "epochs": 3}), HERE)
    made = prepare(plan, "none", 0)
    transcript, _ = rehearse(made)
    assert transcript.rounds() == [0]
    replies = [message for message in transcript.messages if message.what == "reply"]
    assert {message.examples for message in replies} == {2} and {m.client for m in replies} == {0, 1}
    assert made.federation.rounds == 9 and len(made.federation.clients[0]) > 2  # the real one is as it was


def test_a_defence_with_impossible_settings_is_found_before_its_turn() -> None:
    with pytest.raises(BadInput, match="scale"):
        look(defence=[{"name": "none"}, {"name": "gaussian-noise", "scale": -1.0}])


def test_the_time_is_that_of_a_step_times_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of one round with one step at each of two clients; two cases of 50 steps, once more for a control."""
    monkeypatch.setattr(room, "_timed", lambda work: 0.5)
    found = preflight(make_plan(digits({"name": "inverting-gradients", "steps": 50}), HERE))
    training, attacking = 1 * 1 * 2 * 0.5, 2 * 50 * 2 * reckoned.REPLAY * 0.5
    assert found.seconds == pytest.approx(training + attacking + 2 * reckoned.SECONDS_PER_CASE)
    plan = make_plan(digits({"name": "inverting-gradients", "steps": 7}, {"name": "labels-idlg"}), HERE)
    assert [planned_steps(part.make(HERE), restarts=True) for part in plan.attacks] == [7, 0]


@pytest.mark.parametrize(("seconds", "step"), [(0.5, 0.5), (0.02, 0.002)])
def test_short_steps_are_timed_several_in_a_round(seconds: float, step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    def timed(work: Callable[[], object]) -> float:
        work()
        times.append(1)
        return seconds

    monkeypatch.setattr(room, "_timed", timed)
    for algorithm in ("fedsgd", "fedavg"):
        plan = make_plan(digits({"name": "labels-idlg"}, algorithm=algorithm, learning_rate=1e6), HERE)
        assert room.rehearse(prepare(plan, "none", 0))[1] == pytest.approx(step)
    assert len(times) == (2 if seconds > reckoned.LONG_STEP else 4)


def test_restarts_in_one_loop_take_as_long_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_timed", lambda work: 0.5)

    def case(name: str, **settings: object) -> float:
        plan = make_plan(tiny(attack=[{"name": name, "steps": 5, **settings}]), HERE)
        return preflight(plan).optimising_seconds[name]

    assert case("tabular-inversion", restarts=4) == case("tabular-inversion", restarts=1) > 0


def test_a_step_on_a_planted_leak_costs_as_much_as_a_step_on_a_real_client() -> None:
    """Six images in batches of two are 2 * 3 local steps, once more for a control; four planted ones 2 * 2."""
    document = digits({"name": "inverting-gradients", "steps": 50})
    federation = {"rounds": 1, "algorithm": "fedavg", "epochs": 2, "batch_size": 2}
    data = {"name": "digits", "clients": 2, "limit": 6}
    plan = make_plan(document | {"seeds": [0, 1, 2], "data": data, "federation": federation}, HERE)
    found = reckoned.estimate(plan, prepare(plan, "none", 0), 0.5)
    replayed = 50 * 2 * reckoned.REPLAY * 0.5
    assert found.optimising_seconds["inverting-gradients"] == pytest.approx(6 * replayed)
    planted = found.planted["inverting-gradients"]
    assert planted.cases > 0 and planted.optimising == pytest.approx(2 * replayed)
    checks = planted.cases * (reckoned.SECONDS_PER_CASE + 2 * replayed)
    assert found.power_seconds == pytest.approx(checks + planted.running)


def test_an_attack_that_solves_large_systems_is_counted() -> None:
    """One answer and those of its controls: on held-out records, and on the messages of the other client."""
    plan = make_plan(tiny(attack=[{"name": "attribute-from-updates", "messages": 2}]), HERE)
    prepared = prepare(plan, "none", 0)
    records, rounds = len(prepared.federation.clients[0]), prepared.federation.rounds
    found = reckoned.estimate(plan, prepared, 0.5).optimising_seconds["attribute-from-updates"]
    floors = reckoned.CLASSIFIERS["attributes"]
    assert found == pytest.approx(3 * SECONDS * records**2 * min(rounds, 2) + floors)


@pytest.mark.parametrize(("participation", "seconds"), [(1.0, 6.0), (0.5, 3.0)])
def test_only_clients_that_take_part_cost_training_time(participation: float, seconds: float) -> None:
    """Six rounds of one step at each of four clients, a quarter of a second each."""
    document = digits({"name": "labels-idlg"}, rounds=6, participation=participation)
    plan = make_plan(document | {"data": {"name": "digits", "clients": 4, "limit": 3}}, HERE)
    found = reckoned.estimate(plan, prepare(plan, "none", 0), 0.25)
    assert found.run_seconds == pytest.approx(seconds)
    assert found.seconds == pytest.approx(seconds + 4 * reckoned.SECONDS_PER_CASE)


def test_nothing_is_drawn_from_the_air() -> None:
    before = torch.get_rng_state()
    plan = make_plan(tiny(), HERE)
    preflight(plan)
    assert torch.equal(before, torch.get_rng_state()) and expand(plan) == expand(plan)


@pytest.mark.parametrize("model", ["membership-loss", "labels-idlg"])
def test_an_inner_attack_must_give_what_its_field_is_for(model: str) -> None:
    plan = make_plan(tiny(attack=[{"name": "attribute-from-model", "model": model}]), HERE)
    with pytest.raises(BadInput, match="expected an attack that gives model"):
        preflight(plan)
