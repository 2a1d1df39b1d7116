"""Noise where a seat cannot look would show an attack that looks there."""

from __future__ import annotations

import pytest
import torch

from fedxray.adversary import disclose as room
from fedxray.adversary.view import PublicAttributes
from fedxray.federation.truth import Truth
from fedxray.seeds import spell
from tests.contract import worlds
from tests.contract.blind import blind_truth, hidden_from
from tests.contract.test_contract import blind_view


def test_a_forgotten_blanking_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = worlds.small("attribute-from-model")
    world = worlds.world_of(attack)

    def careless(truth: Truth, client: int | None, seats: tuple[int, ...], rows: room.Rows) -> PublicAttributes:
        found = room.attribute_rows(truth, client, seats, rows)
        return PublicAttributes(x=found.x, y=found.y)

    honest = worlds.view_of(attack, world).grants, blind_view(attack, world, "server").grants
    assert spell(honest[0]) == spell(honest[1])
    monkeypatch.setitem(room._GIVE, "public-attributes", careless)
    leaky = worlds.view_of(attack, world).grants, blind_view(attack, world, "server").grants
    assert spell(leaky[0]) != spell(leaky[1])


def test_all_that_is_not_granted_is_noise() -> None:
    world = worlds.table_world()
    blind = blind_truth(world, {"public-attributes"}, client=1, seats=(0,)).truth
    place = list(world.truth.space.column("smoker").positions)
    rest = [number for number in range(world.truth.space.shape[0]) if number not in place]
    before, after = world.truth.train[1], blind.train[1]
    assert torch.equal(before.x[:, rest], after.x[:, rest]) and torch.equal(before.y, after.y)
    assert not torch.isin(after.x[:, place], before.x[:, place]).any()
    assert blind.train[0] is world.truth.train[0]  # the seat's own
    changed = [(world.truth.train[2], blind.train[2]), (world.truth.public, blind.public)]
    changed += list(zip(world.truth.holdout, blind.holdout, strict=True))
    assert all((old.x != new.x).all() and (old.y != new.y).all() for old, new in changed)
    assert world.truth.train[1] is blind_truth(world, {"oracle-groups"}, client=0).truth.train[1]


def test_noise_stands_where_the_reader_cannot_look_and_nowhere_else() -> None:
    world = worlds.table_world(secure=True)
    hidden = hidden_from(world, "server")
    assert len(hidden) == 8 * worlds.CLIENTS and all(key.startswith("reply/") for key in hidden)
    noised = worlds.noised(world, reader="server").transcript.shelf
    for message in world.transcript.messages:
        old, new = (shelf.get(message.parts).params for shelf in (world.transcript.shelf, noised))
        assert all(torch.equal(old[name], new[name]) != (message.parts in hidden) for name in old)
