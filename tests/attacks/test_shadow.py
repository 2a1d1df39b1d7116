"""Shadow clients: their replies against the simulator's, with and without a granted defence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.view import Observation, View
from fedxray.attacks.shadow import hooks_of, shadow_replies
from fedxray.defences.base import IDENTITY, Defence, Hooks, NoDefence, Sampling, Work, stateless
from fedxray.defences.noise import GaussianNoise
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.params import flatten, norm, same_values, scaled, subtract
from fedxray.seeds import fork
from tests.federation.loops import relative_difference
from tests.federation.runs import federation, network

CLIENT, EXAMPLES = 1, 8
GRANTS = ["recipe", "defence"]


def run_of(**recipe: Any) -> Federation:
    chosen = {"batch_size": "all", "epochs": 2, "momentum": 0.5, **recipe}
    return federation((5, EXAMPLES), rounds=2, dtype=torch.float64, recipe=chosen)


def seen_in(run: Federation, grants: list[str] = GRANTS) -> View:
    transcript, truth = simulate(run, seed=3)
    return roles.server(transcript, client=CLIENT, grants=disclose(truth, grants, client=CLIENT))


def replies_of(view: View, run: Federation, rounds: tuple[Observation, ...] | None = None) -> list[Observation]:
    """The replies of a shadow client with the target's own records."""
    return shadow_replies(view, rounds or view.of_target(), run.clients[CLIENT], EXAMPLES, fork(1, "shadow"))


@dataclass(frozen=True, kw_only=True)
class Clipped(Defence):
    """Clips the update to a norm; every step uses every record, by Poisson sampling at rate one."""

    name: ClassVar[str] = "clipped"
    clip: float = 0.01
    asked: list[Work] = field(default_factory=list)  # the work that it was asked about

    def __post_init__(self) -> None:
        """Take any settings."""

    def hooks(self, work: Work) -> Hooks:
        self.asked.append(work)
        clip = stateless(lambda update, _: scaled(update, (self.clip / norm(update)).clamp(max=1)))
        return Hooks(outgoing=clip, sampling=Sampling(rate=1.0))

    def describe(self) -> str:
        return "clipped"


@pytest.mark.parametrize(
    ("defence", "batch_size", "length"),
    [(NoDefence(), "all", None), (Clipped(), "all", 0.01), (Clipped(clip=1e6), 3, None)],
    ids=["none", "clipped", "sampled"],
)
def test_the_same_records_in_full_batches_give_the_reply_of_the_simulator(
    defence: Defence, batch_size: int | str, length: float | None
) -> None:
    run = replace(run_of(batch_size=batch_size), defence=defence)
    view = seen_in(run)
    shadow, real = replies_of(view, run), view.of_target()
    assert [reply.round for reply in shadow] == [0, 1]
    for ours, theirs in zip(shadow, real, strict=True):
        assert relative_difference(dict(ours.update), dict(theirs.update)) < 1e-9
        assert length is None or float(norm(ours.update)) == pytest.approx(length)
    plain = replies_of(seen_in(run, ["recipe"]), run)  # a defence that is not granted is not used
    differs = relative_difference(dict(plain[0].update), dict(shadow[0].update)) > 1e-3
    assert differs == isinstance(defence, Clipped)


def test_granted_noise_is_on_the_replies_and_new_in_every_round() -> None:
    run, scale = run_of(), 0.3
    view = seen_in(run)
    noisy = replace(view, grants=replace(view.grants, defence=GaussianNoise(scale=scale)))
    pairs = zip(replies_of(noisy, run), replies_of(view, run), strict=True)
    first, second = (flatten(subtract(ours.update, plain.update)) for ours, plain in pairs)
    assert float(torch.cat([first, second]).std()) == pytest.approx(scale, rel=0.3)
    assert not torch.allclose(first, second)


def test_the_defence_is_asked_about_the_work_of_the_client() -> None:
    run = replace(run_of(batch_size=3), model=network("norm", torch.float64))
    view, defence = seen_in(run), Clipped()
    hooks = hooks_of(replace(view, grants=replace(view.grants, defence=defence)), EXAMPLES)
    assert hooks.sampling == Sampling(rate=1.0)
    assert defence.asked == [run.work(CLIENT)] and defence.asked[0].norm_params
    assert hooks_of(replace(view, grants=view.grants.only(["recipe"])), EXAMPLES) is IDENTITY


@pytest.mark.parametrize(("shuffle", "same"), [("once", True), ("never", True), ("epoch", False)])
def test_an_order_drawn_once_is_that_of_every_round(shuffle: str, same: bool) -> None:
    run = run_of(shuffle=shuffle, batch_size=3)
    view = seen_in(run)
    start = view.of_target()[0]
    first, second = replies_of(view, run, (start, replace(start, round=1)))
    assert float(norm(first.update)) > 0
    assert same_values(first.update, second.update) == same
