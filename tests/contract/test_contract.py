"""What every attack promises, whatever it does: tested once for all of them."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedxray.adversary.view import Grants, View
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import Evidence
from fedxray.audit import catalog
from fedxray.audit.judge.statistics import interval, paired
from fedxray.audit.run.comparisons import declared_grants, without_client_model
from fedxray.errors import Refused
from fedxray.metrics.scoring import other_optimum, score
from fedxray.metrics.table import MAIN_METRIC, METRICS
from fedxray.seeds import fork, spell
from tests.contract import worlds
from tests.contract.blind import blind_truth, hidden_from
from tests.contract.reach import secrets_behind

SEES_ALL = ("server", "active-server")  # seats that read every message of worlds without local statistics


@pytest.fixture(params=worlds.attacks())
def attack(request: pytest.FixtureRequest) -> Attack:
    """Every attack of the catalogue, with its small settings."""
    return worlds.small(request.param)


def run(attack: Attack, view: View, seed: int = 3) -> Evidence:
    """The attack's evidence."""
    return attack.run(view, generator=fork(seed, "contract"))


@functools.lru_cache(maxsize=64)
def plain(name: str, seed: int = 0, client: int = 1) -> Evidence:
    """The evidence of an attack with its small settings from its first seat, computed once."""
    attack = worlds.small(name)
    return run(attack, worlds.view_of(attack, worlds.world_of(attack, seed), client=client))


def same(left: Evidence, right: Evidence) -> bool:
    """Whether two pieces of evidence are equal to the bit."""
    equal = left.tensors.keys() == right.tensors.keys() and all(
        torch.equal(value, right.tensors[name]) for name, value in left.tensors.items()
    )
    return equal and (left.status, left.curve, left.facts) == (right.status, right.curve, right.facts)


def test_declares_what_it_is(attack: Attack) -> None:
    """Name, roles, grants, floors and controls are known names, and no oracle is declared."""
    assert attack.name in catalog.ATTACKS and attack.roles
    assert not any(name.startswith("oracle-") for name in declared_grants(attack)) or "oracle" in attack.name
    assert set(attack.floors) <= {*catalog.FLOORS, "other-optimum"}
    assert set(attack.controls) <= {"held-out", "other-client", "global-model"}


def test_what_the_seat_cannot_see_does_not_matter(attack: Attack) -> None:
    """With noise for every unreadable message and all undisclosed truth, grants and evidence are equal to the bit."""
    for role in attack.roles:
        world = worlds.world_of(attack, secure=role == "secure-aggregation")
        hidden = hidden_from(world, worlds.reader_of(role))
        assert bool(hidden) == (role not in SEES_ALL), f"{role} is tested on a world that hides nothing from it"
        assert usable(attack, world, role), f"no variant of the attack works as {role}"
        for variant in usable(attack, world, role):
            view, other = worlds.view_of(variant, world, role=role), blind_view(variant, world, role)
            assert spell(view.grants) == spell(other.grants), role
            if role not in SEES_ALL:  # what reads all messages and is granted the same has the same view
                assert same(run(variant, view), run(variant, other)), role


def usable(attack: Attack, world: worlds.World, role: str) -> list[Attack]:
    """The attack as it is and with the global model for the client's, as far as they work in this seat."""
    found = []
    for variant in (attack, None if attack.kind == "model" else without_client_model(attack)):
        if variant is not None and (variant is attack or role in ("curious-client", "secure-aggregation")):
            try:
                variant.check(worlds.view_of(variant, world, role=role))
            except Refused:
                continue  # single replies under a sum
            found.append(variant)
    return found


def blind_view(attack: Attack, world: worlds.World, role: str) -> View:
    """The view of a seat in a world where everything that it cannot see is noise."""
    seats = (0,) if role == "curious-client" else ()
    noised = worlds.noised(world, reader=worlds.reader_of(role))
    blind = blind_truth(noised, declared_grants(attack), client=1, seats=seats)
    return worlds.view_of(attack, blind, role=role)


def test_granted_rows_tell_nothing_by_their_order(attack: Attack) -> None:
    """Another seed of the federation hands over the same rows, in another order at most."""
    world = worlds.world_of(attack)
    other = replace(world, truth=replace(world.truth, seed=world.truth.seed + 1000))
    before, after = (worlds.view_of(attack, one).grants for one in (world, other))
    assert spell(sorted_rows(before)) == spell(sorted_rows(after))


def sorted_rows(grants: Grants) -> Grants:
    """The same grants with granted records in an order of their own values."""

    def ordered(x: Tensor, y: Tensor) -> Tensor:
        keys = [(*row, float(label)) for row, label in zip(x.flatten(1).tolist(), y, strict=True)]
        return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__), dtype=torch.int64)

    changed = {}
    for name in ("public_attributes", "target_records", "source_records"):
        records = getattr(grants, name)
        if records is not None:
            place = ordered(records.x, records.y)
            changed[name] = replace(records, x=records.x[place], y=records.y[place])
    return replace(grants, **changed)


def test_what_it_does_not_read_does_not_matter(attack: Attack) -> None:
    """An attack that says which grants it reads gives the same evidence without all others, and with more."""
    if attack.reads is None:
        return
    view = worlds.view_of(attack, worlds.world_of(attack))
    more = replace(view.grants, names=(*view.grants.names, "examples"), examples=7)
    for grants in (view.grants.only(attack.reads), more):
        assert same(plain(attack.name), run(attack, replace(view, grants=grants)))


def test_view_holds_no_truth(attack: Attack) -> None:
    """Nothing reachable from the view of any seat is a truth, a transcript, a shelf or a generator."""
    for role in attack.roles:
        world = worlds.world_of(attack, secure=role == "secure-aggregation")
        assert not secrets_behind(worlds.view_of(attack, world, role=role)), role


def test_same_seed_same_answer(attack: Attack) -> None:
    """Two runs agree to the bit, and nothing ambient is drawn from or left changed."""
    first = plain(attack.name)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert same(first, run(attack, worlds.view_of(attack, worlds.world_of(attack))))
    assert torch.equal(before, torch.get_rng_state())


def test_inputs_stay_unchanged(attack: Attack) -> None:
    """No tensor of the view is written to."""
    view = worlds.view_of(attack, worlds.world_of(attack))
    before = [value.clone() for value in tensors_of(view)]
    training = view.model.training
    run(attack, view)
    assert all(torch.equal(old, new) for old, new in zip(before, tensors_of(view), strict=True))
    assert view.model.training is training


def tensors_of(view: View) -> list[Tensor]:
    """All tensors of observations, global models, grants and the network."""
    found: list[Tensor] = [*view.model.parameters(), *view.model.buffers()]
    for one in view.observations:
        found += [*one.start.values(), *one.update.values(), *one.buffers.values()]
    for model in view.globals:
        found += [*model.params.values(), *model.buffers.values()]
    told = view.grants
    for granted in (told.public_attributes, told.target_records, told.source_records, told.public_records):
        found += [granted.x, granted.y] if granted is not None else []
    return found


def test_refuses_a_view_without_messages(attack: Attack) -> None:
    """Without messages it refuses, and says what is missing and what would give it."""
    view = worlds.view_of(attack, worlds.world_of(attack)).without_messages()
    with pytest.raises(Refused) as refusal:
        run(attack, view)
    assert refusal.value.missing and "given by" in refusal.value.remedy


def test_without_grants_it_works_or_refuses(attack: Attack) -> None:
    """Without any grant it refuses by naming what would give the missing piece, or its seat knows enough."""
    for role in attack.roles:
        view = worlds.view_of(attack, worlds.world_of(attack), role=role, grants=[])
        try:
            attack.check(view)
        except Refused as refusal:
            assert refusal.missing and "given by" in refusal.remedy
        else:
            assert run(attack, view).kind == attack.kind


def test_works_where_new_tensors_go_elsewhere(attack: Attack) -> None:
    """Inside a meta device every tensor made without a device would be lost; the answer stays the same."""
    view = worlds.view_of(attack, worlds.world_of(attack))
    first = plain(attack.name)
    with torch.device("meta"):
        assert same(first, run(attack, view))


def test_keeps_the_type_of_its_inputs(attack: Attack) -> None:
    """With a default type of float64 nothing that came in as float32 goes out as float64."""
    view = worlds.view_of(attack, worlds.float32_world_of(attack))
    torch.set_default_dtype(torch.float64)
    try:
        evidence = run(attack, view)
    finally:
        torch.set_default_dtype(torch.float32)
    assert not [name for name, value in evidence.tensors.items() if value.dtype == torch.float64]


def scores_over_floor(attack: Attack, spoil: bool) -> tuple[list[float], str]:
    """The main metric minus its strongest floor for two seeds and every client."""
    metric, differences = MAIN_METRIC[attack.kind], []
    for seed in (0, 1):
        world = worlds.world_of(attack, seed)
        seen = worlds.noised(world, reader=None, seed=seed) if spoil else world
        for client in range(worlds.CLIENTS):
            evidence = (
                run(attack, worlds.view_of(attack, seen, client=client)) if spoil else plain(attack.name, seed, client)
            )
            about, seats = worlds.asked(attack, attack.roles[0], client)
            found = score(evidence, world.truth, client=about, seats=seats).means[metric]
            differences += paired([found], [strongest_floor(attack, world, client)], down=METRICS[metric].down)
    return differences, metric


def strongest_floor(attack: Attack, world: worlds.World, client: int) -> float:
    """What the best of the attack's floors scores, about the same records."""
    metric, role = MAIN_METRIC[attack.kind], attack.roles[0]
    role = "server" if worlds.asked(attack, role, client)[0] is not None else role
    floors = [floor_value(name, attack.kind, world, client, metric, role) for name in attack.floors]
    return min(floors) if METRICS[metric].down else max(floors)


@functools.lru_cache(maxsize=256)
def floor_value(name: str, kind: str, world: worlds.World, client: int, metric: str, role: str) -> float:
    """What a floor scores."""
    if name == "other-optimum":
        return score(other_optimum(world.truth, client), world.truth, client=client).means[metric]
    floor = catalog.floor_for(name, kind)
    view = worlds.view_of(floor, world, client=client, role=role).without_messages()
    about, seats = worlds.asked(floor, role, client)
    return score(run(floor, view), world.truth, client=about, seats=seats).means[metric]


def test_beats_its_floors_where_it_should(attack: Attack) -> None:
    """On a small world that leaks it is above every floor, and by more than the margin that noise must keep."""
    differences, metric = scores_over_floor(attack, spoil=False)
    found = interval(differences, range(len(differences)))
    assert (found.low or 0) > 0 and found.mean > METRICS[metric].margin, differences


def test_noise_gives_nothing(attack: Attack) -> None:
    """With all messages replaced by noise it is above none of its floors; an oracle has its knowledge elsewhere."""
    if any(name.startswith("oracle-") for name in declared_grants(attack)):
        return
    differences, metric = scores_over_floor(attack, spoil=True)
    assert interval(differences, range(len(differences))).mean <= METRICS[metric].margin, differences


def test_knowing_the_seed_of_the_federation_does_not_help(attack: Attack) -> None:
    """Handed the federation's own seed, it finds what it finds with any other."""
    metric, world = MAIN_METRIC[attack.kind], worlds.world_of(attack)
    view, (about, seats) = worlds.view_of(attack, world), worlds.asked(attack, attack.roles[0], 1)

    def value(evidence: Evidence) -> float:
        return score(evidence, world.truth, client=about, seats=seats).means[metric]

    with_seed = value(attack.run(view, generator=fork(world.truth.seed)))
    others = [value(run(attack, view, seed)) for seed in (11, 12, 13, 14)]
    others.append(value(plain(attack.name)))
    gain = min(others) - with_seed if METRICS[metric].down else with_seed - max(others)
    assert gain <= max(METRICS[metric].margin, max(others) - min(others))


RECORDS_ASKED = {"attributes": "public_attributes", "membership": "target_records", "sources": "source_records"}


@pytest.mark.parametrize("name", [name for name in worlds.attacks() if worlds.small(name).kind in RECORDS_ASKED])
def test_permuting_the_records_permutes_the_answer(name: str) -> None:
    """The order in which records are granted does not matter."""
    attack = worlds.small(name)
    view = worlds.view_of(attack, worlds.world_of(attack))
    field = RECORDS_ASKED[attack.kind]
    granted = getattr(view.grants, field)
    order = torch.randperm(len(granted.x), generator=fork(9, "order"))
    turned = replace(granted, x=granted.x[order], y=granted.y[order])
    shuffled = replace(view, grants=replace(view.grants, **{field: turned}))
    first, second = run(attack, view), run(attack, shuffled)
    for key, value in first.tensors.items():
        assert torch.allclose(value[order], second.tensors[key], atol=1e-6), key
