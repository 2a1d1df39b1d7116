"""Canaries: put in as any other update or example, found again, and below the true epsilon of a known mechanism."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fedxray.audit.judge.claims import canary_rows
from fedxray.audit.plan import make_plan
from fedxray.audit.plan.schema import CanariesPart
from fedxray.audit.run.audit import run_audit
from fedxray.audit.run.canaries import Canaries, measure_canaries, put_canaries
from fedxray.audit.run.grid import CANARIES, Run, canary_run_id
from fedxray.audit.run.power import prepare_for
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.defences.base import Defence, Hooks, NoDefence, Work, stateless
from fedxray.defences.dp_sgd import DpSgd
from fedxray.defences.joined import Joined
from fedxray.defences.noise import GaussianNoise
from fedxray.defences.stock import FlowerFixedClipping
from fedxray.errors import BadInput
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.metrics.epsilon import gaussian_epsilon
from fedxray.params import flatten
from fedxray.report.build import build_report
from fedxray.report.terminal import summary_lines
from tests.audit.plans import tiny
from tests.federation.runs import federation

DELTA = 1e-5


def plan_of(**changes: Any) -> dict[str, Any]:
    network = {"name": "mlp", "hidden": [48]}
    return tiny(attack=[{"name": "membership-loss", "targets": 1}], model=network, **changes)


def federation_of(
    canaries: Mapping[str, Any], defence: Defence | None = None, seed: int = 0, **changes: Any
) -> Federation:
    """The small federation with canaries."""
    plan = make_plan(plan_of(canaries=dict(canaries), **changes), Path.cwd())
    federation = prepare(plan, "none", seed).federation
    federation = federation if defence is None else replace(federation, defence=defence)
    assert plan.canaries is not None
    return put_canaries(federation, plan.canaries, seed, lambda federation, records, client, draws: records)


def rows_of(federation: Federation, seed: int = 0) -> list[dict[str, Any]]:
    """The rows of one run with these canaries."""
    transcript, truth = simulate(federation, seed=seed)
    assert isinstance(federation.planted, Canaries)
    found = measure_canaries(federation.planted, federation, transcript, truth)
    return canary_rows({"it": [found]})


def row(rows: list[dict[str, Any]], unit: str, seen: str, method: str = "one-shot") -> dict[str, Any]:
    (one,) = [row for row in rows if (row["unit"], row["seen"], row["method"]) == (unit, seen, method)]
    return one


# Canary clients


@dataclass(frozen=True, kw_only=True)
class Halved(Defence):
    """Sends half of every update."""

    name: ClassVar[str] = "halved"

    def hooks(self, work: Work) -> Hooks:
        return Hooks(outgoing=stateless(lambda update, _: {name: value / 2 for name, value in update.items()}))

    def describe(self) -> str:
        return "half"


def test_a_canary_client_sends_its_direction_through_the_defence_and_into_the_mean() -> None:
    federation = federation_of({"clients": 3, "norm": 2.0}, Halved(), federation={"weighting": "uniform", "rounds": 1})
    canaries = federation.planted
    assert isinstance(canaries, Canaries) and len(federation.clients) == 5
    transcript, _ = simulate(federation)
    replies = {
        m.client: flatten(transcript.shelf.get(m.parts).params) for m in transcript.messages if m.what == "reply"
    }
    for index in range(3):
        assert torch.allclose(replies[2 + index], canaries.updates[index] / 2)
        assert float(replies[2 + index].norm()) == pytest.approx(1.0, rel=1e-5)
    (total,) = [transcript.shelf.get(m.parts).params for m in transcript.messages if m.what == "sum"]
    assert torch.allclose(flatten(total), torch.stack(list(replies.values())).mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("defence", "updates", "gradients"),
    [
        (NoDefence(), 1.0, 1.0),
        (DpSgd(noise_multiplier=1.0, clip=3.0), 1.0, 3.0),
        (FlowerFixedClipping(clipping_norm=0.2), 0.2, 1.0),
        (Joined(parts=(DpSgd(noise_multiplier=1.0, clip=3.0), FlowerFixedClipping(clipping_norm=0.2))), 0.2, 3.0),
    ],
)
def test_canaries_are_as_long_as_the_defence_allows(defence: Defence, updates: float, gradients: float) -> None:
    canaries = federation_of({"clients": 2, "records": 4}, defence).planted
    assert isinstance(canaries, Canaries)
    assert canaries.updates.norm(dim=1).tolist() == pytest.approx([updates] * 2, rel=1e-5)
    assert canaries.gradients[0].norm(dim=1).tolist() == pytest.approx([gradients] * 4, rel=1e-5)


@pytest.mark.parametrize(("scale", "norm"), [(1.0, 1.0), (3.0, 1.0), (2.0, 4.0)])
def test_canary_clients_recover_the_epsilon_of_noise_on_updates(scale: float, norm: float) -> None:
    federation = federation_of({"clients": 60, "norm": norm}, GaussianNoise(scale=scale, at="update"))
    one = row(rows_of(federation), "client", "replies")
    mu = norm / scale * math.sqrt(2)  # two rounds
    truth, error = gaussian_epsilon(mu, DELTA), 3 / math.sqrt(60)
    assert gaussian_epsilon(mu - error, DELTA) * 0.95 <= one["estimate"] <= gaussian_epsilon(mu + error, DELTA)
    assert one["low"] <= truth and one["low"] < one["ceiling"]


def test_without_a_defence_replies_give_canary_clients_away() -> None:
    rows = rows_of(federation_of({"clients": 10}))
    one = row(rows, "client", "replies")
    assert one["low"] == pytest.approx(one["ceiling"], rel=1e-4) and one["low"] > 100
    for seen in ("aggregates", "final-model"):
        assert row(rows, "client", seen)["low"] <= row(rows, "client", seen)["ceiling"]


def test_secure_aggregation_hides_single_replies_of_canaries() -> None:
    federation = federation_of({"clients": 10, "records": 20}, federation={"secure_aggregation": True})
    assert {one["seen"] for one in rows_of(federation)} == {"aggregates", "final-model"}


# Canaries in or out by coin


def dp_rows(noise: float, seed: int) -> list[dict[str, Any]]:
    defence = DpSgd(noise_multiplier=noise, delta=DELTA)
    settings = {"rounds": 4, "batch_size": 8}
    return rows_of(federation_of({"records": 100}, defence, seed, federation=settings), seed)


def accounted(noise: float) -> float:
    defence = DpSgd(noise_multiplier=noise, delta=DELTA)
    federation = federation_of({"records": 1}, defence, federation={"rounds": 4, "batch_size": 8})
    privacy = defence.hooks(federation.work(0)).privacy
    assert privacy is not None
    return privacy(4).epsilon or math.inf


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_bounds_of_dp_sgd_are_below_its_accountant(noise: float) -> None:
    pytest.importorskip("opacus")
    truth = accounted(noise)
    for seed in range(3):
        assert all(one["low"] <= truth for one in dp_rows(noise, seed))


def test_a_claim_with_a_tenth_of_its_noise_is_exposed() -> None:
    """Noise for epsilon 1 divided by ten: one-shot and coins both contradict the claim."""
    pytest.importorskip("opacus")
    noise = next(value for value in (2.0, 3.0, 4.0, 5.0, 6.0, 8.0) if accounted(value) <= 1)
    rows = {one["method"]: one["low"] for one in dp_rows(noise / 10, 0)}
    assert min(rows.values()) > 1.0 and rows["one-shot"] > rows["coin"]


def test_canaries_left_out_are_not_found() -> None:
    federation = federation_of({"records": 60})
    canaries = federation.planted
    assert isinstance(canaries, Canaries)
    absent = replace(canaries, inside=tuple(torch.zeros(60, dtype=torch.bool) for _ in canaries.inside))
    transcript, truth = simulate(replace(federation, planted=absent))
    scores = torch.tensor(measure_canaries(absent, federation, transcript, truth)["scores"])
    assert abs(float(scores.mean())) < 4 / math.sqrt(len(scores) * len(flatten(canaries.like)))


def test_a_canary_gradient_is_an_example_beside_the_others() -> None:
    """Without noise and in one step of all examples the update differs by the canaries / number of examples."""
    settings = {"rounds": 1, "batch_size": "all", "learning_rate": 0.5}
    federation = federation_of({"records": 5}, federation=settings)
    canaries = federation.planted
    assert isinstance(canaries, Canaries)
    updates = []
    for planted in (canaries, None):
        transcript, _ = simulate(replace(federation, planted=planted))
        reply = next(m for m in transcript.messages if m.what == "reply" and m.client == 0)
        updates.append(flatten(transcript.shelf.get(reply.parts).params))
    present: Tensor = canaries.gradients[0][canaries.inside[0]]
    assert torch.allclose(updates[0] - updates[1], 0.5 * present.sum(0) / len(federation.clients[0]), atol=1e-5)


def test_coins_are_fair_repeatable_and_not_the_seeds() -> None:
    drawn = [federation_of({"records": 400}).planted, federation_of({"records": 400}).planted]
    other = federation_of({"records": 400}, data={"records": 42}).planted
    assert all(isinstance(one, Canaries) for one in (*drawn, other))
    first, again, elsewhere = (torch.cat(one.inside) for one in (*drawn, other) if isinstance(one, Canaries))
    assert torch.equal(first, again)
    assert 300 < int((first == elsewhere).sum()) < 500  # other records, same seed: other coins
    assert 340 < int(first.sum()) < 460


@pytest.mark.parametrize("kind", ["records", "random-targets"])
def test_canary_records_are_trained_on_or_held_out_by_their_coin(kind: str) -> None:
    federation = federation_of({"records": 10, "kind": kind}, federation={"epochs": 3})
    canaries = federation.planted
    assert isinstance(canaries, Canaries)
    for client in range(2):
        for index, inside in enumerate(canaries.inside[client].tolist()):
            x = canaries.records[client].x[index]
            trained, held = ((part[client].x == x).all(1).any() for part in (federation.clients, federation.holdout))
            assert (bool(trained), bool(held)) == (inside, not inside)
    assert {one["method"] for one in rows_of(federation)} == {"coin", "coin-gaussian"}


def test_records_that_are_learned_by_heart_are_found() -> None:
    plan = plan_of(canaries={"records": 20, "kind": "random-targets"}, data={"records": 120})
    plan["federation"] = {"rounds": 6, "epochs": 30, "learning_rate": 0.1, "batch_size": 8}
    made = make_plan(plan, Path.cwd())
    run = Run(id=canary_run_id("none", 0), defence="none", seed=0, plant=CANARIES, defended=True)
    one = row(rows_of(prepare_for(made, run).federation), "record", "replies", "coin")
    assert one["low"] > 0.3


# In an audit


def stripped(document: Mapping[str, Any]) -> str:
    """Results without times and without what [canaries] adds."""
    parts = {key: value for key, value in document.items() if key not in ("canaries", "plan")}
    cases = [{key: value for key, value in case.items() if "seconds" not in key} for case in parts.pop("cases")]
    return json.dumps([parts, cases], sort_keys=True)


def test_canaries_change_nothing_else_and_stand_in_results_report_and_terminal(tmp_path: Path) -> None:
    defences = [{"name": "none"}, {"name": "gaussian-noise", "scale": 3.0}]
    without = run_audit(make_plan(plan_of(defence=defences), tmp_path), tmp_path / "without").document
    plan = make_plan(plan_of(defence=defences, canaries={"clients": 8, "records": 12}), tmp_path)
    ended = run_audit(plan, tmp_path / "with")
    assert stripped(ended.document) == stripped(without) and "canaries" not in without
    rows = ended.document["canaries"]
    assert {(one["defence"], one["unit"]) for one in rows} == {
        (defence, unit) for defence in ("none", "gaussian-noise") for unit in ("record", "client")
    }
    assert all(one["low"] <= one["ceiling"] for one in rows)
    text = "\n".join(summary_lines(ended.document))
    assert "Canaries: gaussian-noise, one client" in text
    page = build_report(ended.folder).read_text(encoding="utf-8")
    assert "Epsilon: configured, accounted, measured" in page
    assert "A bound near 0 means a weak attack, not privacy." in page and "Nothing was measured" not in page
    assert "What canaries measure" in (ended.folder / "report.md").read_text(encoding="utf-8")
    again = run_audit(plan, tmp_path / "with", resume=True).document
    assert again["canaries"] == rows


@pytest.mark.parametrize(
    ("canaries", "argument"),
    [({}, "canaries"), ({"records": -1}, "records"), ({"records": 5, "kind": "birds"}, "kind"), ({"bird": 1}, "bird")],
)
def test_a_plan_with_impossible_canaries_is_refused(canaries: dict[str, Any], argument: str) -> None:
    with pytest.raises(BadInput, match=argument):
        make_plan(plan_of(canaries=canaries), Path.cwd())


@pytest.mark.parametrize(
    ("canaries", "argument"),
    [({"records": 1000, "kind": "records"}, "canaries.records"), ({"clients": 99_999}, "random directions")],
)
def test_more_canaries_than_fit_are_refused_before_anything_runs(canaries: dict[str, Any], argument: str) -> None:
    plan = plan_of(canaries=canaries)
    plan["model"] = {"name": "mlp", "hidden": [1500]}
    with pytest.raises(BadInput, match=argument):
        preflight(make_plan(plan, Path.cwd()))


def test_canary_gradients_need_a_network_without_batch_norm() -> None:
    part = CanariesPart(records=5)
    plan = tiny()
    plan["data"] = {"name": "digits", "clients": 2, "limit": 20}
    plan["model"] = {"name": "resnet9", "norm": "batch", "width": 4}
    plan["attack"] = [{"name": "membership-loss"}]
    federation = prepare(make_plan(plan, Path.cwd()), "none", 0).federation
    with pytest.raises(BadInput, match="BatchNorm"):
        put_canaries(federation, part, 0, lambda federation, records, client, draws: records)


def test_a_run_with_canaries_that_failed_is_reported(tmp_path: Path) -> None:
    """Canary updates so long that training with them diverges, while training without them does not."""
    plan = plan_of(canaries={"clients": 2, "norm": 1e9}, federation={"rounds": 8})
    ended = run_audit(make_plan(plan, tmp_path), tmp_path / "out", power=False)
    assert ended.failed == 0
    (one,) = ended.document["canaries"]
    assert one["low"] is None and one["method"] is None and "training diverged" in one["reason"].lower()
    assert "a run that failed" in build_report(ended.folder).read_text(encoding="utf-8")


def test_a_defence_of_the_users_is_measured(tmp_path: Path) -> None:
    parts = {
        "defence": [{"factory": "fedxray.defences.noise:GaussianNoise", "scale": 1.0}],
        "canaries": {"clients": 30},
    }
    rows = run_audit(make_plan(plan_of(**parts), tmp_path), tmp_path / "out", power=False).document["canaries"]
    assert 0 < row(rows, "client", "replies")["low"] < gaussian_epsilon(math.sqrt(2), DELTA)


def test_the_work_of_measuring_grows_with_the_clients_not_with_their_square() -> None:
    class Counted(tuple[Any, ...]):
        passes = 0

        def __iter__(self) -> Any:
            Counted.passes += 1
            return super().__iter__()

    base = federation()
    changed = put_canaries(base, CanariesPart(records=4, kind="gradients", clients=6), 0, lambda *_: base.clients[0])
    transcript, truth = simulate(changed, seed=0)
    assert isinstance(changed.planted, Canaries)
    measure_canaries(changed.planted, changed, replace(transcript, messages=Counted(transcript.messages)), truth)
    assert Counted.passes < 6
