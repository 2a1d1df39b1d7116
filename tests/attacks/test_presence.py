"""Membership and sources from updates: records of one client are found in its own messages and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose, membership_records, source_records
from fedxray.attacks import presence
from fedxray.attacks.presence import MembershipFromUpdates, SourceFromUpdates
from fedxray.errors import Refused
from fedxray.metrics.records import auc
from fedxray.seeds import fork
from tests.attacks.test_from_updates import coin_world

GENERATOR = fork(3, "presence")


@pytest.mark.parametrize("grants", [("target-records", "recipe"), ("target-records",)])
def test_members_have_larger_weights_in_the_clients_own_messages_alone(grants: tuple[str, ...]) -> None:
    world = coin_world()
    given, inside = disclose(world.truth, grants, client=0), membership_records(world.truth, 0)[1]
    scores = [
        MembershipFromUpdates().run(roles.server(world.transcript, client=client, grants=given), generator=GENERATOR)
        for client in (0, 1)
    ]
    own, other = (auc(evidence.tensors["scores"], inside) for evidence in scores)
    assert own > 0.8 and 0.3 < other < 0.7


def test_what_the_messages_state_of_their_number_of_records_comes_first() -> None:
    world = coin_world()
    given = disclose(world.truth, ("target-records", "recipe"), client=0)
    view = roles.server(world.transcript, client=1, grants=given)
    told = replace(view, grants=replace(view.grants, names=(*view.grants.names, "examples"), examples=7))
    plain, other = (MembershipFromUpdates().run(one, generator=GENERATOR) for one in (view, told))
    assert torch.equal(plain.tensors["scores"], other.tensors["scores"]) and plain.facts == other.facts


def test_records_are_assigned_to_the_client_that_trained_on_them() -> None:
    world = coin_world()
    shares = {}
    for rows in ("train", "holdout"):
        given = disclose(world.truth, ("source-records", "recipe"), client=0, rows=rows)  # type: ignore[arg-type]
        owner = source_records(world.truth, rows=rows)[1]  # type: ignore[arg-type]
        view = roles.server(world.transcript, client=0, grants=given)
        guess = SourceFromUpdates().run(view, generator=GENERATOR).tensors["owners"]
        shares[rows] = float((guess == owner).double().mean())
    assert shares["train"] > 0.7 and shares["train"] > shares["holdout"] + 0.1


def test_no_update_is_no_guess_and_too_many_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = coin_world()
    view = roles.server(world.transcript, client=0, grants=disclose(world.truth, ("target-records",), client=0))
    still = tuple(
        replace(seen, update={name: torch.zeros_like(value) for name, value in seen.update.items()})
        for seen in view.observations
    )
    evidence = MembershipFromUpdates().run(replace(view, observations=still), generator=GENERATOR)
    assert evidence.status == "undetermined" and bool(torch.isnan(evidence.tensors["scores"]).all())
    monkeypatch.setattr(presence, "MOST_RECORDS", 10)
    with pytest.raises(Refused, match="at most 10 records"):
        MembershipFromUpdates().run(view, generator=GENERATOR)
