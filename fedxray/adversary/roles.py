"""The roles of an adversary: what each reads and knows by itself, and the view that follows from a transcript.

A view is a filter: messages list their readers, and a role gets exactly those that it can read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedxray.adversary.view import Channel, Grants, Observation, ObservedModel, Own, View
from fedxray.data.dataset import Records
from fedxray.errors import BadInput
from fedxray.federation.transcript import SERVER, WIRE, Message, Transcript, client_reader
from fedxray.params import Late, subtract


@dataclass(frozen=True)
class Role:
    """A role: what it reads and knows by itself; everything else must be granted."""

    reader: str  # as messages list their readers
    sees: str  # a sentence for the docs and the ledger
    single_replies: bool = False  # whether it reads replies of single clients
    knows_examples: bool = False  # whether it knows their numbers of examples


ROLES: dict[str, Role] = {
    "server": Role(
        SERVER,
        "every model sent, every reply, the participants and their example counts",
        single_replies=True,
        knows_examples=True,
    ),
    "eavesdropper": Role(
        WIRE, "every model sent and every reply on the network, and to which client a link belongs", single_replies=True
    ),
    "active-server": Role(
        SERVER,
        "everything a server sees; it may also change the models that it sends",
        single_replies=True,
        knows_examples=True,
    ),
    "curious-client": Role("client", "the global models it is sent, its own records and its own updates"),
    "secure-aggregation": Role(SERVER, "the models sent and the sum of all replies, never a single reply"),
}


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
    readers = [client_reader(client) for client in colluding]
    models = _globals(transcript, [m for m in transcript.messages if m.readers.intersection(readers)], rounds)
    own_parts = []
    for client, records in zip(colluding, own, strict=False):
        replies = _replies(transcript, client_reader(client), (client,), rounds, examples=True)
        own_parts.append(Own(client=client, records=records, observations=replies))
    seen = _differences(models)
    return _view(
        transcript, grants, role="curious-client", target=None, observations=seen, globals=models, own=tuple(own_parts)
    )


def secure_aggregation(
    transcript: Transcript, *, grants: Grants | None = None, rounds: Sequence[int] | None = None
) -> View:
    """The view of a server that learns only the sum of all replies."""
    models = _globals(transcript, transcript.readable_by(SERVER), rounds)
    seen = _differences(models)
    return _view(transcript, grants, role="secure-aggregation", target=None, observations=seen, globals=models)


def _link_view(
    transcript: Transcript, role: str, client: int, grants: Grants | None, rounds: Sequence[int] | None
) -> View:
    """The view of a role that reads single replies, where secure aggregation does not hide them."""
    _check_clients("client", (client,), transcript.clients)
    facts = ROLES[role]
    everyone = range(transcript.clients)
    replies = _replies(transcript, facts.reader, everyone, rounds, examples=facts.knows_examples)
    models = _globals(transcript, transcript.readable_by(facts.reader), rounds)
    hidden = transcript.secure_aggregation
    seen, target = (_differences(models), None) if hidden else (replies, client)
    return _view(transcript, grants, role=role, target=target, observations=seen, globals=models)


def _view(transcript: Transcript, grants: Grants | None, **seen: Any) -> View:
    """A view with the common knowledge of the transcript, and what this role has seen."""
    return View(model=transcript.model, space=transcript.space, loss=transcript.loss, grants=grants or Grants(), **seen)


def _replies(
    transcript: Transcript, reader: str, clients: Sequence[int], rounds: Sequence[int] | None, *, examples: bool
) -> tuple[Observation, ...]:
    """Single replies that this reader can see, each with the model that the client was sent."""
    sent = {(m.round, m.client): m for m in transcript.messages if m.what == "broadcast" and reader in m.readers}
    fetched, observations = _fetching(transcript), []
    for message in transcript.readable_by(reader):
        if message.what != "reply" or message.client not in clients or not _wanted(message, rounds):
            continue
        assert message.client is not None
        start, buffers = fetched(sent[message.round, message.client].parts)
        update, buffers_after = fetched(message.parts)
        observations.append(
            Observation(
                round=message.round,
                start=start,
                update=update,
                kind=message.kind,
                contributors=(message.client,),
                examples=message.examples if examples else None,
                buffers=buffers,
                buffers_after=buffers_after,
                tampered=message.tampered,
            )
        )
    return tuple(observations)


def _globals(
    transcript: Transcript, readable: Sequence[Message], rounds: Sequence[int] | None
) -> tuple[ObservedModel, ...]:
    """The untampered global models among these messages, one per round; an outcome is the start of the next round."""
    keys: dict[int, str] = {}  # by round
    for message in readable:
        if message.tampered or message.what not in ("broadcast", "outcome") or not _wanted(message, rounds):
            continue
        keys[message.round + (message.what == "outcome")] = message.parts
    fetched = _fetching(transcript)
    return tuple(ObservedModel(round, *fetched(key)) for round, key in sorted(keys.items()))


def _fetching(transcript: Transcript) -> Callable[[str], tuple[Late, Late]]:
    """Parameters and buffers of a message by its key, each message fetched at most once, when it is first used."""

    @functools.cache
    def parts(key: str) -> tuple[Late, Late]:
        read = functools.cache(transcript.shelf.reader(key))
        return Late(lambda: read().params), Late(lambda: read().buffers)

    return parts


def _differences(models: Sequence[ObservedModel]) -> tuple[Observation, ...]:
    """Rounds with both global models seen, as updates of unknown contributors."""
    observations = []
    for before, after in itertools.pairwise(models):
        if after.round == before.round + 1:
            observations.append(
                Observation(
                    round=before.round,
                    start=before.params,
                    update=Late(partial(subtract, after.params, before.params)),
                    kind="weights",
                    contributors=None,
                    examples=None,
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
