"""With overwhelming noise no attack is above any of its floors, whether or not it knows of the noise."""

from __future__ import annotations

import functools

import pytest

from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit.judge.statistics import paired
from fedxray.audit.run.comparisons import adapts, declared_grants
from fedxray.defences.noise import GaussianNoise
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.metrics.scoring import score
from fedxray.metrics.table import MAIN_METRIC, METRICS
from fedxray.params import is_finite
from fedxray.seeds import fork
from tests.contract import worlds
from tests.contract.test_contract import same, strongest_floor

SCALE = 30.0  # updates have entries of about 0.01
QUICK = ("attribute-from-model", "membership-loss", "source-from-model", "inverting-gradients", "labels-idlg")


def judged(name: str) -> bool:
    """Whether an attack gets its knowledge from messages; an oracle has it elsewhere."""
    attack = worlds.small(name)  # no defence changes what clients report beside their updates
    return not attack.by_reports and not any(grant.startswith("oracle-") for grant in declared_grants(attack))


@functools.lru_cache(maxsize=8)
def noisy(world: worlds.World, rounds: int) -> worlds.World:
    """The same federation for some rounds with noise that drowns every update."""
    truth = world.truth
    federation = Federation(
        space=truth.space,
        clients=truth.train,
        holdout=truth.holdout,
        public=truth.public,
        model=truth.model,
        recipe=truth.recipe,
        rounds=rounds,
        defence=GaussianNoise(scale=SCALE),
    )
    return worlds.World(*simulate(federation, seed=truth.seed))


def noisy_world_of(attack: Attack, seed: int) -> worlds.World:
    """Linear models stand the noise of many rounds; others would diverge in the second, which is no answer either."""
    return noisy(worlds.world_of(attack, seed), 20 if worlds.on_linear(attack) else 1)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in worlds.attacks() if judged(name)],
)
def test_overwhelming_noise_gives_nothing(name: str) -> None:
    attack = worlds.small(name)
    metric, differences = MAIN_METRIC[attack.kind], []
    seen: dict[tuple[int, int], Evidence] = {}
    for aware in (False, True):
        grants = sorted(declared_grants(attack) | ({"defence"} if aware else set()))
        for seed in (0, 1):
            world = noisy_world_of(attack, seed)
            for client in range(worlds.CLIENTS):
                view = worlds.view_of(attack, world, client=client, grants=grants)
                evidence = attack.run(view, generator=fork(3, "noise"))
                before = seen.setdefault((seed, client), evidence)
                ended = evidence.status == "ok" and is_finite(evidence.tensors)
                assert adapts(attack) or not ended or same(before, evidence), "what uses the defence must say so"
                about, seats = worlds.asked(attack, attack.roles[0], client)
                found = score(evidence, world.truth, client=about, seats=seats).means.get(metric)
                if found is None or found != found:  # it did not end, which is no leak
                    continue
                down = METRICS[metric].down
                differences += paired([found], [strongest_floor(attack, world, client)], down=down)
    assert differences, "nothing was scored, so nothing was tested"
    assert sum(differences) / len(differences) <= METRICS[metric].margin, differences
