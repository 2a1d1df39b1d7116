"""A view costs what is read of it: messages are indexed once for all views of a run, and fetched when used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedxray.adversary import roles
from fedxray.adversary.view import Observation, View
from fedxray.federation import truth as truths
from fedxray.federation.transcript import MemoryShelf, Message, Parts, Transcript
from tests.adversary.clinics import played
from tests.contract.reach import secrets_behind


class Counted(tuple[Message, ...]):
    """Messages that count how often all of them are read."""

    passes = 0

    def __iter__(self) -> Iterator[Message]:
        """Count one pass."""
        type(self).passes += 1
        return super().__iter__()


@pytest.fixture
def transcript() -> Transcript:
    """A run of three clients and three rounds that no view was made of."""
    return replace(played()[0])


def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds of all observations that are made from now on."""
    rounds: list[int] = []
    begin = Observation.__init__

    def noted(self: Observation, **facts: Any) -> None:
        rounds.append(facts["round"])
        begin(self, **facts)

    monkeypatch.setattr(Observation, "__init__", noted)
    return rounds


def views(transcript: Transcript) -> list[View]:
    """The views of the roles on each client, twice, as the cases of an audit ask for them."""
    everyone = [client for client in range(transcript.clients) for _ in range(2)]
    return [role(transcript, client=client) for role in (roles.server, roles.eavesdropper) for client in everyone]


def test_messages_are_read_once_for_all_views_of_a_role(transcript: Transcript) -> None:
    Counted.passes = 0
    counted = replace(transcript, messages=Counted(transcript.messages))
    first = len(views(counted)) and Counted.passes
    views(counted)
    assert 0 < first <= 4 and Counted.passes == first  # replies and models of two readers


def test_a_view_makes_the_observations_that_are_read(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = made(monkeypatch)
    view = roles.server(transcript, client=1)
    floor = view.without_messages()
    assert view.clients == (0, 1, 2) and len(view.observations) == 9 and not floor.observations
    assert view.ledger()["rounds_seen"] == [0, 1, 2] and repr(view) and not rounds
    assert [seen.round for seen in view.of_target()] == rounds == [0, 1, 2]
    assert view.of_target() == view.of(1) and rounds == [0, 1, 2]  # the same ones again


def test_a_view_fetches_the_tensors_that_are_read(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    reader = MemoryShelf.reader

    def noting(self: MemoryShelf, key: str) -> Callable[[], Parts]:
        read = reader(self, key)
        return lambda: (fetched.append(key), read())[1]

    monkeypatch.setattr(MemoryShelf, "reader", noting)
    seen = roles.server(transcript, client=1).of_target()[2]
    assert not fetched
    assert len(seen.update) == 2 and len(seen.buffers_after) == 0 and fetched == ["reply/2/1"]


def test_an_observation_written_into_is_as_it_was_in_the_next_view(transcript: Transcript) -> None:
    first, second = (roles.server(transcript, client=1) for _ in range(2))
    first.of_target()[0].update["bias"].fill_(77.0)
    assert float(second.of_target()[0].update["bias"]) != 77.0


def test_few_messages_are_held_at_a_time(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "HELD_BYTES", 1)
    rounds = made(monkeypatch)
    view = roles.server(transcript, client=1)
    sums = [[float(seen.update["weight"].sum()) for seen in view.observations] for _ in range(2)]
    assert sums[0] == sums[1] and len(rounds) == 18  # made again, with equal values


def test_a_view_of_observations_given_by_hand_is_indexed_too(transcript: Transcript) -> None:
    view = roles.server(transcript, client=1)
    by_hand = replace(view, observations=tuple(view.observations)[::-1])
    assert by_hand.clients == view.clients and by_hand.ledger() == view.ledger()
    assert by_hand.of(2) == view.of(2)[::-1] and view.observations[-1] is view.of(2)[-1]
    assert [seen.contributors for seen in by_hand.indexed.of_round(1)] == [(2,), (1,), (0,)]
    assert view.observations[7:] == tuple(view.observations)[7:]
    with pytest.raises(IndexError):
        _ = view.observations[9]


def test_what_views_share_leads_to_no_message_of_another_reader(transcript: Transcript) -> None:
    every = [*views(transcript), roles.curious_client(transcript, seat=0)]
    assert not [secret for view in every for secret in secrets_behind(view)]
    for seen in every[0].observations:
        assert torch.isfinite(seen.start["bias"]).all()
    assert not [secret for view in every for secret in secrets_behind(view)]


def test_the_checksum_of_the_truth_does_not_read_clients_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    sums = truths._sums

    def counting(value: torch.Tensor) -> object:
        added.append(len(value))
        return sums(value)

    monkeypatch.setattr(truths, "_sums", counting)
    truth = played()[1]
    truth.checksum()
    few = len(added)
    replace(truth, train=truth.train * 9, holdout=truth.holdout * 9).checksum()
    assert len(added) == 2 * few > 0
