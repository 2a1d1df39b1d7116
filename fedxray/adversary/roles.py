"""The views of all roles on a transcript; what each role reads and knows by itself stands in `grants.ROLES`.

A view is a filter: messages list their readers, and a role gets exactly those that it can read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from fedxray.adversary.grants import ROLES
from fedxray.adversary.view import Channel, Grants, Observation, Observations, ObservedModel, Own, Places, View
from fedxray.data.dataset import Records
from fedxray.errors import BadInput
from fedxray.federation.transcript import SERVER, TENSOR_OVERHEAD, Message, Parts, Transcript, client_reader
from fedxray.params import Late, subtract

HELD_BYTES = 500_000_000  # of fetched messages in one view, about
MOST_HELD = 10_000  # observations made in one view

T = TypeVar("T")
Read = Callable[[], Parts]  # fetches one message


def server(
    transcript: Transcript, *, client: int, grants: Grants | None = None, rounds: Sequence[int] | None = None
) -> View:
    """The view of an honest-but-curious server on one target client.

    `grants` is what the auditor discloses; `rounds` are the recorded rounds that are read (default: all).
    """
    return _link_view(transcript, "server", client, grants, rounds)


def eavesdropper(
    transcript: Transcript, *, client: int, grants: Grants | None = None, rounds: Sequence[int] | None = None
) -> View:
    """The view of a network eavesdropper on one target client; arguments as in `server`."""
    return _link_view(transcript, "eavesdropper", client, grants, rounds)


def active_server(
    transcript: Transcript,
    *,
    client: int,
    channel: Channel | None = None,
    grants: Grants | None = None,
    rounds: Sequence[int] | None = None,
) -> View:
    """The view of a server that may change what it sends to the target client.

    `channel` lets it do so where the run can be continued; the other arguments are those of `server`.
    """
    return replace(_link_view(transcript, "active-server", client, grants, rounds), channel=channel)


def curious_client(
    transcript: Transcript,
    *,
    seat: int | Sequence[int] = 0,
    own: Sequence[Records] = (),
    grants: Grants | None = None,
    rounds: Sequence[int] | None = None,
) -> View:
    """The view of one client, or of several colluding ones, on all others through the global models.

    `seat` is the index of the curious client or clients, `own` their records in the same order.
    """
    colluding = (seat,) if isinstance(seat, int) else tuple(seat)
    _check_clients("seat", colluding, transcript.clients)
    models = _globals(transcript, [client_reader(client) for client in colluding], rounds)
    own_parts = []
    for client, records in zip(colluding, own, strict=False):
        replies = _replies(transcript, client_reader(client), rounds, examples=True).of_client(client)
        own_parts.append(Own(client=client, records=records, observations=replies))
    seen = _differences(models)
    return _view(
        transcript, grants, role="curious-client", target=None, observations=seen, globals=models, own=tuple(own_parts)
    )


def secure_aggregation(
    transcript: Transcript, *, grants: Grants | None = None, rounds: Sequence[int] | None = None
) -> View:
    """The view of a server that learns only the sum of all replies."""
    models = _globals(transcript, [SERVER], rounds)
    seen = _differences(models, _in_the_clear(transcript))
    return _view(transcript, grants, role="secure-aggregation", target=None, observations=seen, globals=models)


def _link_view(
    transcript: Transcript, role: str, client: int, grants: Grants | None, rounds: Sequence[int] | None
) -> View:
    """The view of a role that reads single replies, where secure aggregation does not hide them."""
    _check_clients("client", (client,), transcript.clients)
    facts = ROLES[role]
    models = _globals(transcript, [facts.reader], rounds)
    if transcript.secure_aggregation:
        clear = _in_the_clear(transcript) if facts.knows_examples else {}
        seen = _differences(models, clear)
        return _view(transcript, grants, role=role, target=None, observations=seen, globals=models)
    replies = _replies(transcript, facts.reader, rounds, examples=facts.knows_examples)
    return _view(transcript, grants, role=role, target=client, observations=replies, globals=models)


def _view(transcript: Transcript, grants: Grants | None, **seen: Any) -> View:
    """A view with the common knowledge of the transcript, and what this role has seen."""
    return View(model=transcript.model, space=transcript.space, loss=transcript.loss, grants=grants or Grants(), **seen)


class _Reply(NamedTuple):
    """One reply as its readers know it: facts, and the keys of the model sent before it and of its own tensors."""

    round: int
    client: int
    kind: Literal["weights", "gradient"]
    examples: int | None
    tampered: bool
    start: str
    update: str


def _replies(transcript: Transcript, reader: str, rounds: Sequence[int] | None, *, examples: bool) -> Observations:
    """Single replies that this reader can see, each with the model that the client was sent."""
    replies, reads, places = _once(
        transcript,
        ("replies", reader, None if rounds is None else tuple(rounds), examples),
        lambda: _indexed(transcript, reader, rounds, examples=examples),
    )
    sizes = [value.numel() * value.element_size() + TENSOR_OVERHEAD for value in transcript.model.parameters()]
    most = max(2, HELD_BYTES // max(1, sum(sizes)))
    fetched = functools.lru_cache(maxsize=most)(partial(_fetched, reads))
    # An observation holds what it has fetched, so as few of them are kept.
    made = functools.lru_cache(maxsize=min(most, MOST_HELD))(partial(_observation, replies, fetched))
    return Observations(made, places)


def _indexed(
    transcript: Transcript, reader: str, rounds: Sequence[int] | None, *, examples: bool
) -> tuple[list[_Reply], dict[str, Read], Places]:
    """All replies that this reader can see, what fetches their tensors, and where each client and round is."""
    readable = [m for m in transcript.readable_by(reader) if m.client is not None and _wanted(m, rounds)]
    sent = {(m.round, m.client): m.parts for m in readable if m.what == "broadcast"}
    replies = [
        _Reply(
            m.round, m.client, m.kind, m.examples if examples else None, m.tampered, sent[m.round, m.client], m.parts
        )
        for m in readable
        if m.what == "reply" and m.client is not None
    ]
    keys = dict.fromkeys(key for reply in replies for key in (reply.start, reply.update))
    reads = {key: transcript.shelf.reader(key) for key in keys}
    return replies, reads, Places.of((reply.round, (reply.client,)) for reply in replies)


def _observation(replies: Sequence[_Reply], fetched: Callable[[str], tuple[Late, Late]], index: int) -> Observation:
    reply = replies[index]
    start, buffers = fetched(reply.start)
    update, buffers_after = fetched(reply.update)
    return Observation(
        round=reply.round,
        start=start,
        update=update,
        kind=reply.kind,
        contributors=(reply.client,),
        examples=reply.examples,
        buffers=buffers,
        buffers_after=buffers_after,
        tampered=reply.tampered,
    )


def _globals(transcript: Transcript, readers: Sequence[str], rounds: Sequence[int] | None) -> tuple[ObservedModel, ...]:
    """The untampered global models that these readers see, one per round; an outcome is the start of the next round."""

    def models() -> list[tuple[int, Read]]:
        keys: dict[int, str] = {}  # by round
        for message in transcript.messages:
            if message.tampered or message.what not in ("broadcast", "outcome") or not _wanted(message, rounds):
                continue
            if not message.readers.isdisjoint(readers):
                keys[message.round + (message.what == "outcome")] = message.parts
        return [(round, transcript.shelf.reader(key)) for round, key in sorted(keys.items())]

    name = ("models", *readers, None if rounds is None else tuple(rounds))
    return tuple(ObservedModel(round, *_late(read)) for round, read in _once(transcript, name, models))


def _once(transcript: Transcript, name: object, find: Callable[[], T]) -> T:
    """What `find` returns, called at most once for a transcript."""
    known: dict[object, T] = transcript.derived
    if name not in known:
        known[name] = find()
    return known[name]


def _fetched(reads: dict[str, Read], key: str) -> tuple[Late, Late]:
    return _late(reads[key])


def _late(read: Read) -> tuple[Late, Late]:
    """Parameters and buffers of a message, fetched together when either is first used."""
    once = functools.cache(read)
    return Late(lambda: once().params), Late(lambda: once().buffers)


def _in_the_clear(transcript: Transcript) -> dict[int, tuple[tuple[int, ...], int | None]]:
    """By round, who took part and their examples, which protocols of sums do not hide; a recorded node is client 0."""
    sums = (message for message in transcript.readable_by(SERVER) if message.what == "sum")
    recorded = {
        round: (tuple(range(reported.nodes)), reported.examples)
        for round, reported in transcript.reported.items()
        if reported.nodes
    }
    return recorded | {message.round: (message.contributors, message.examples) for message in sums}


def _differences(
    models: Sequence[ObservedModel], clear: Mapping[int, tuple[tuple[int, ...], int | None]] = MappingProxyType({})
) -> tuple[Observation, ...]:
    """Rounds with both global models seen, as updates of contributors that are unknown unless they are in the clear."""
    observations = []
    for before, after in itertools.pairwise(models):
        if after.round == before.round + 1:
            contributors, examples = clear.get(before.round, (None, None))
            observations.append(
                Observation(
                    round=before.round,
                    start=before.params,
                    update=Late(partial(subtract, after.params, before.params)),
                    kind="weights",
                    contributors=contributors,
                    examples=examples,
                    buffers=before.buffers,
                    buffers_after=after.buffers,
                )
            )
    return tuple(observations)


def _wanted(message: Message, rounds: Sequence[int] | None) -> bool:
    return rounds is None or message.round in rounds


def _check_clients(argument: str, clients: Sequence[int], count: int) -> None:
    """Refuse clients that do not exist or are named twice; `argument` is the name in the message."""
    for client in clients:
        # The own update of a client must not be subtracted twice.
        if not 0 <= client < count or clients.count(client) > 1:
            remedy = "Clients count from 0; name none twice."
            raise BadInput(argument, expected=f"clients from 0 to {count - 1}, each once", got=client, remedy=remedy)
