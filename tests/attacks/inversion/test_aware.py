"""Attackers who know the defence: the truth fits what they look for, and they find more than those who do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.view import View
from fedxray.attacks.base import Context, compute
from fedxray.attacks.inversion.distance import squared_l2
from fedxray.attacks.inversion.dlf import Dlf, objective, simulation, what_is_known
from fedxray.attacks.inversion.inverting_gradients import InvertingGradients
from fedxray.attacks.inversion.problem import replayed, update_variance, with_averaged_pairs
from fedxray.attacks.observations import observation_at
from fedxray.audit import catalog
from fedxray.data.catalog import load
from fedxray.data.dataset import Records
from fedxray.data.split import split
from fedxray.defences.base import KnownDefence
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics.scoring import score
from fedxray.models import build
from fedxray.params import flatten
from fedxray.progress import silent
from fedxray.seeds import fork
from tests.contract import worlds

CERTAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "pruning": ("pruning", {"share": 0.7}),
    "pruning by chance": ("pruning", {"share": 0.7, "by": "random"}),
    "pruned gradients": ("pruning", {"share": 0.5, "at": "gradients"}),
    "signs": ("quantise", {"bits": 1}),
    "bits": ("quantise", {"bits": 3}),
    "clipping": ("dp-sgd", {"noise_multiplier": 0.0, "clip": 0.1, "sampling": "shuffle"}),
    "mixup": ("mixup", {}),
    "mixup and clipping": ("mixup+dp-sgd", {"noise_multiplier": 0.0, "clip": 0.1, "sampling": "shuffle"}),
    "pruning and rounding": ("pruning+quantise", {"share": 0.5, "bits": 6}),
}


def run(
    name: str, settings: dict[str, Any], images: int = 4, secure: bool = False, **recipe: Any
) -> tuple[Transcript, Truth]:
    """Two clients with a few digits in the order in which they are held, a smooth network, one round."""
    dataset = load("digits")
    parts = split(dataset, clients=2, partition="iid", seed=0, limit=images, holdout=0.2, public=0.1)
    used = Recipe(**{"shuffle": "never", "batch_size": 2, "learning_rate": 0.1, **recipe})

    def records(index: Tensor) -> Records:
        return Records(dataset.x[index].double(), dataset.y[index])

    model = build("mlp", dataset.space, generator=fork(0, "model"), hidden=[32]).double()
    federation = Federation(
        space=dataset.space,
        clients=tuple(map(records, parts.train)),
        holdout=tuple(map(records, parts.holdout)),
        public=records(parts.public),
        model=model,
        recipe=used,
        defence=catalog.make_defence(name, settings),
        secure_aggregation=secure,
    )
    return simulate(federation, seed=0)


def view_of(transcript: Transcript, truth: Truth, *, aware: bool, client: int = 0) -> View:
    names = ["recipe", "examples", "labels", *(["defence"] if aware else [])]
    seat = roles.secure_aggregation if transcript.secure_aggregation else None
    if seat is not None:
        return seat(transcript, grants=disclose(truth, names))
    return roles.server(transcript, client=client, grants=disclose(truth, names, client=client))


def misfit(view: View, x: Tensor, y: Tensor) -> float:
    """How far the update of these records is from the one seen, as this attacker measures it, in its length."""
    client, aim = replayed(view, observation_at(view, "first"), len(x), "batch")
    found = squared_l2(client.update(x, y), aim) / squared_l2(aim, {name: 0 * value for name, value in aim.items()})
    return float(found.detach())


@pytest.mark.parametrize("algorithm", ["fedsgd", "fedavg"])
@pytest.mark.parametrize("case", CERTAIN)
def test_the_truth_fits_for_who_knows_the_defence_and_only_then(case: str, algorithm: str) -> None:
    name, settings = CERTAIN[case]
    transcript, truth = run(name, settings, algorithm=algorithm, epochs=2)
    x, y = truth.train[0].x, truth.train[0].y
    if name.startswith("mixup"):  # an attacker averages the first half of a batch with the second
        size = 4 if algorithm == "fedsgd" else 2
        order = torch.arange(4).reshape(-1, size // 2, 2).transpose(1, 2).reshape(-1)
        x, y = x[order], y[order]
    assert misfit(view_of(transcript, truth, aware=True), x, y) < 1e-12
    assert misfit(view_of(transcript, truth, aware=False), x, y) > 1e-4


def test_of_a_sum_only_what_happens_inside_steps_is_replayed() -> None:
    for name, settings in (("pruning", {"share": 0.7}), ("quantise", {"bits": 1})):
        transcript, truth = run(name, settings, secure=True)
        view = view_of(transcript, truth, aware=True)
        client, aim = replayed(view, observation_at(view, "first"), 8, "batch")
        assert client.weights is None and client.hooks.outgoing is None
        assert torch.equal(flatten(aim), flatten(observation_at(view, "first").update))
    transcript, truth = run(*CERTAIN["clipping"], secure=True)
    view = view_of(transcript, truth, aware=True)
    assert replayed(view, observation_at(view, "first"), 8, "batch")[0].hooks.gradients is not None


def test_under_known_noise_all_entries_count_alike_and_their_length_as_before() -> None:
    transcript, truth = run("gaussian-noise", {"scale": 0.01})
    found = {}
    for aware in (True, False):
        view = view_of(transcript, truth, aware=aware)
        observation, context = (
            observation_at(view, "first"),
            Context(generator=fork(0), root=fork(0), memo=compute, report=silent),
        )
        client, aim = replayed(view, observation, 4, "batch")
        assert client.noise == pytest.approx(1e-4 if aware else 0.0)
        assert torch.equal(flatten(aim), flatten(observation.update))
        known = what_is_known(view, Dlf(), context)
        made = simulation(view, Dlf(), known, known.recipe, by_epoch=True)
        found[aware], seen = objective(view, Dlf(), made).distance, made.aim
    nothing = {name: 0 * value for name, value in seen.items()}
    by_tensor = {
        aware: {name: float(distance({**seen, name: nothing[name]}) / seen[name].square().sum()) for name in seen}
        for aware, distance in found.items()
    }
    assert len({round(one, 9) for one in by_tensor[True].values()}) == 1 < len(set(by_tensor[False].values()))
    assert float(found[True](nothing)) == pytest.approx(float(found[False](nothing)))


def test_the_noise_of_steps_adds_up_over_a_round() -> None:
    known = KnownDefence(step_variance=4.0, update_variance=0.5)
    transcript, truth = run("none", {}, epochs=3)
    view = view_of(transcript, truth, aware=False)
    client, _ = replayed(view, observation_at(view, "first"), 4, "batch")
    assert update_variance(known, client) == pytest.approx(0.5 + 6 * 0.01 * 4.0)
    heavy = replace(client, recipe=replace(client.recipe, momentum=0.5))
    assert update_variance(known, heavy) == pytest.approx(0.5 + 0.01 * 4.0 * sum((2 - 0.5**k) ** 2 for k in range(6)))
    single = replace(client, recipe=Recipe(algorithm="fedsgd"))
    assert update_variance(known, single) == pytest.approx(4.5)


def test_of_an_averaged_pair_both_are_shown_as_the_average() -> None:
    transcript, truth = run("mixup", {}, images=5)
    view = view_of(transcript, truth, aware=True)
    client, _ = replayed(view, observation_at(view, "first"), 5, "batch")
    x = torch.arange(5.0, dtype=torch.float64).reshape(5, 1, 1, 1).expand(5, 1, 8, 8).clone()
    assert client.shown(x)[:, 0, 0, 0].tolist() == [0.5, 0.5, 2.5, 2.5, 4.0]
    evidence = InvertingGradients(steps=2).run(view, generator=fork(0))
    inputs = evidence.tensors["inputs"]
    assert torch.equal(inputs[0], inputs[1]) and not torch.equal(inputs[1], inputs[2])
    unaware = view_of(transcript, truth, aware=False)
    plain = InvertingGradients(steps=2).run(unaware, generator=fork(0))
    assert not torch.equal(plain.tensors["inputs"][0], plain.tensors["inputs"][1])
    assert with_averaged_pairs(unaware, observation_at(unaware, "first"), plain) is plain


def test_who_knows_finds_more() -> None:
    name, settings = CERTAIN["clipping"]
    transcript, truth = run(name, settings, images=2, algorithm="fedsgd")
    gains = []
    for client in (0, 1):
        found = []
        for aware in (True, False):
            attack = InvertingGradients(steps=150, match="l2", total_variation=0.0)
            view = view_of(transcript, truth, aware=aware, client=client)
            found.append(score(attack.run(view, generator=fork(0)), truth, client=client).means["psnr"])
        gains.append(found[0] - found[1])
    assert min(gains) > 0.3, gains


@pytest.mark.parametrize("name", ["dlf", "fedsgd-epoch", "fedsgd-inversion", "gradinversion", "dlg", "idlg"])
def test_every_inversion_takes_what_is_known(name: str) -> None:
    """Under averaged pairs and clipping each runs, differs from the one who does not know, and shows averages."""
    transcript, truth = run(*CERTAIN["mixup and clipping"], images=4, epochs=1, batch_size=4)
    small = {**worlds.small(name).small, "steps": 3}
    attack = catalog.make_attack(name, small)
    assert attack.adapts
    aware, unaware = (
        attack.run(view_of(transcript, truth, aware=known), generator=fork(0)).tensors["inputs"]
        for known in (True, False)
    )
    assert aware.shape == unaware.shape and not torch.equal(aware, unaware)
    assert torch.equal(aware[:2], aware[2:]) and not torch.equal(unaware[:2], unaware[2:])
