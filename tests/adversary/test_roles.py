"""What each role sees of one small run, counted and recomputed, and that nothing else is behind its view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.grants import ROLES
from fedxray.adversary.view import View
from fedxray.errors import BadInput
from fedxray.federation.folder import FolderShelf, read_transcript
from fedxray.federation.round_loop import simulate
from fedxray.federation.transcript import MemoryShelf, Parts, Transcript
from tests.adversary.clinics import SIZES, federation, played
from tests.contract.reach import reachable, secrets_behind, texts_behind

SEATS: dict[str, Callable[[Transcript], View]] = {
    "server": lambda transcript: roles.server(transcript, client=1),
    "eavesdropper": lambda transcript: roles.eavesdropper(transcript, client=1),
    "active-server": lambda transcript: roles.active_server(transcript, client=1),
    "curious-client": lambda transcript: roles.curious_client(transcript, seat=0, own=[federation().clients[0]]),
    "secure-aggregation": lambda transcript: roles.secure_aggregation(transcript),
}
READERS = {name: "client:0" if name == "curious-client" else ROLES[name].reader for name in SEATS}


def test_every_role_is_in_this_test() -> None:
    assert set(SEATS) == set(ROLES)


@pytest.mark.parametrize(
    ("role", "secure", "singles", "sums", "models"),
    [
        ("server", False, 9, 0, 4),
        ("active-server", False, 9, 0, 4),
        ("eavesdropper", False, 9, 0, 4),
        ("curious-client", False, 0, 3, 4),
        ("secure-aggregation", False, 0, 3, 4),
        ("server", True, 0, 3, 4),
        ("active-server", True, 0, 3, 4),
        ("curious-client", True, 0, 3, 4),
        ("secure-aggregation", True, 0, 3, 4),
    ],
)
def test_numbers_of_messages_that_a_role_sees(role: str, secure: bool, singles: int, sums: int, models: int) -> None:
    view = SEATS[role](played(secure_aggregation=secure)[0])
    found = view.ledger()
    assert (found["single_replies"], found["sums"], found["global_models"]) == (singles, sums, models)
    assert found["rounds_seen"] == [0, 1, 2] and found["role"] == view.role == role
    assert view.clients == ((0, 1, 2) if singles else ())
    assert view.target == (1 if singles else None)
    assert found["active"] is False and found["grants"] == [] and found["oracle"] is False


def test_who_listens_under_secure_aggregation_sees_no_reply() -> None:
    view = roles.eavesdropper(played(secure_aggregation=True)[0], client=1)
    assert view.ledger()["single_replies"] == 0 and len(view.globals) == 4


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("role", SEATS)
def test_no_tensor_behind_a_view_is_of_a_message_that_the_role_cannot_read(role: str, secure: bool) -> None:
    transcript, _ = played(secure_aggregation=secure)
    view = SEATS[role](transcript)
    for one in (*view.observations, *(seen for mine in view.own for seen in mine.observations)):
        assert len(dict(one.start)) == len(dict(one.update)) == 2  # fetched, so that nothing is yet to come
    assert all(len(dict(one.params)) == 2 for one in view.globals)
    visible: set[int] = set()
    hidden: set[int] = set()
    for message in transcript.messages:
        places = {value.data_ptr() for value in transcript.shelf.get(message.parts).params.values()}
        (visible if READERS[role] in message.readers else hidden).update(places)
    found = {thing.data_ptr() for thing in reachable(view) if isinstance(thing, Tensor)}
    assert found & visible  # the search does find tensors of messages
    assert not found & (hidden - visible)
    assert not secrets_behind(view)


def test_a_view_of_a_folder_holds_no_transcript(tmp_path: Path) -> None:
    """What fetches a message from a folder knows its own key: no shelf, no index, no key of another message."""
    shelf = FolderShelf(tmp_path / "run")
    setting = federation()
    transcript, _ = simulate(setting, seed=0, shelf=shelf)
    shelf.finish(transcript)
    read = read_transcript(tmp_path / "run", model=setting.model, space=setting.space)
    keys = {message.parts for message in read.messages}
    readable = {message.parts for message in read.messages if READERS["curious-client"] in message.readers}
    for one in (transcript, read):
        view = SEATS["curious-client"](one)
        for fetched in (False, True):
            assert not secrets_behind(view)
            assert keys & set(texts_behind(view)) == readable, fetched
            assert torch.equal(view.observations[0].start["bias"], shelf.get("global/0").params["bias"])


def test_a_reader_of_memory_holds_one_message() -> None:
    shelf = MemoryShelf()
    shelf.put("mine", Parts({"w": torch.tensor([1.0])}))
    shelf.put("theirs", Parts({"w": torch.tensor([2.0])}))
    fetch = shelf.reader("mine")
    assert fetch().params["w"].tolist() == [1.0]
    assert [thing.tolist() for thing in reachable(fetch) if isinstance(thing, Tensor)] == [[1.0]]


def test_a_server_sees_update_and_start_of_every_reply() -> None:
    transcript, _ = played()
    view = roles.server(transcript, client=1)
    for one in view.observations:
        (client,) = one.contributors or ()
        sent = transcript.shelf.get(f"global/{one.round}").params
        reply = transcript.shelf.get(f"reply/{one.round}/{client}").params
        assert torch.equal(one.start["weight"], sent["weight"]) and one.kind == "weights"
        assert torch.equal(one.update["bias"], reply["bias"]) and one.examples == SIZES[client]
    assert [one.round for one in view.of(1)] == [0, 1, 2] and view.of_target() == view.of(1)


def test_an_eavesdropper_does_not_know_the_number_of_examples() -> None:
    view = roles.eavesdropper(played()[0], client=1)
    assert {one.examples for one in view.observations} == {None}
    assert {one.contributors for one in view.observations} == {(0,), (1,), (2,)}


@pytest.mark.parametrize("role", ["curious-client", "secure-aggregation"])
def test_a_sum_is_the_mean_of_the_replies_by_examples(role: str) -> None:
    transcript, _ = played()
    for one in SEATS[role](transcript).observations:
        replies = [transcript.shelf.get(f"reply/{one.round}/{client}").params["weight"] for client in range(3)]
        mean = sum(size * reply for size, reply in zip(SIZES, replies, strict=True)) / sum(SIZES)
        assert torch.allclose(one.update["weight"], torch.as_tensor(mean), atol=1e-6)
        in_the_clear = (None, None) if role == "curious-client" else ((0, 1, 2), sum(SIZES))
        assert (one.contributors, one.examples) == in_the_clear


def test_a_difference_of_sums_is_the_update_of_the_one_who_left() -> None:
    """The same round with and without client 2: what the role sees in the clear gives its update."""
    everyone = federation(rounds=1, secure_aggregation=True, recipe={"batch_size": "all"})
    fewer = replace(everyone, clients=everyone.clients[:2], holdout=everyone.holdout[:2])
    (transcript, _), (later, _) = simulate(everyone, seed=0), simulate(fewer, seed=0)
    both, pair = (roles.secure_aggregation(one).observations[0] for one in (transcript, later))
    assert both.contributors == (0, 1, 2) and pair.contributors == (0, 1)
    assert both.examples is not None and pair.examples is not None
    left = both.examples * both.update["weight"] - pair.examples * pair.update["weight"]
    own = transcript.shelf.get("reply/0/2").params["weight"]
    assert torch.allclose(left / (both.examples - pair.examples), own, atol=1e-6)


def test_a_curious_client_has_its_own_records_and_replies() -> None:
    transcript, truth = played()
    view = roles.curious_client(transcript, seat=[0, 2], own=[truth.train[0], truth.train[2]])
    assert [(mine.client, len(mine.records)) for mine in view.own] == [(0, 4), (2, 10)]
    for mine in view.own:
        assert [one.contributors for one in mine.observations] == [(mine.client,)] * 3
        last = transcript.shelf.get(f"reply/2/{mine.client}").params["weight"]
        assert torch.equal(mine.observations[-1].update["weight"], last)


def test_a_client_that_is_not_asked_sees_no_model_of_that_round() -> None:
    transcript, _ = played(participation=0.34, rounds=6)
    for seat in range(3):
        asked = {m.round for m in transcript.messages if m.what == "broadcast" and m.client == seat}
        view = roles.curious_client(transcript, seat=seat)
        assert {one.round for one in view.globals} == asked | {6}  # the final model is for everyone
        pairs = {round for round in asked if round + 1 in asked | {6}}
        assert {one.round for one in view.observations} == pairs


def test_rounds_that_are_not_read_are_not_seen() -> None:
    transcript, _ = played()
    view = roles.server(transcript, client=1, rounds=[1])
    assert {one.round for one in view.observations} == {1}
    assert [one.round for one in view.globals] == [1, 2]  # what it sent and what came out
    assert roles.curious_client(transcript, seat=0, rounds=[0]).ledger()["sums"] == 1
    assert not roles.server(transcript, client=1, rounds=[]).observations


def test_a_model_sent_to_one_client_alone_is_no_global_model() -> None:
    transcript, _ = played()
    messages = tuple(
        replace(one, tampered=True) if one.what == "broadcast" and one.round == 2 else one
        for one in transcript.messages
    )
    outcome = [one for one in messages if not (one.what == "outcome" and one.round == 1)]
    view = roles.server(replace(transcript, messages=tuple(outcome)), client=1)
    assert [one.round for one in view.globals] == [0, 1, 3]


@pytest.mark.parametrize("client", [-1, 3])
def test_a_client_that_is_not_there_is_refused(client: int) -> None:
    transcript, _ = played()
    for take in (roles.server, roles.eavesdropper, roles.active_server):
        with pytest.raises(BadInput, match="from 0 to 2"):
            take(transcript, client=client)
    with pytest.raises(BadInput, match="seat"):
        roles.curious_client(transcript, seat=[0, client])
    with pytest.raises(BadInput, match="each once"):
        roles.curious_client(transcript, seat=[1, 1])


def test_a_view_without_messages_keeps_prior_knowledge_only() -> None:
    transcript, truth = played()
    view = roles.curious_client(transcript, seat=0, own=[truth.train[0]])
    bare = view.without_messages()
    assert (bare.observations, bare.globals, bare.channel, bare.messages) == ((), (), None, False)
    assert [(mine.client, mine.observations) for mine in bare.own] == [(0, ())]
    assert torch.equal(bare.own[0].records.x, truth.train[0].x)
    assert bare.space is view.space and view.messages and view.own[0].observations
