"""The transcript of a run: its messages with their readers, and the shelf that stores their tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fedxray.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedxray.data.dataset import Space

# Messages and their readers

SERVER = "server"
WIRE = "wire"  # a network eavesdropper


def client_reader(client: int) -> str:
    """The name of a client as a reader."""
    return f"client:{client}"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message: the key of its tensors, the client it concerns, and who can read it.

    `broadcast` is the model sent to a client, `reply` the client's update, `sum` the weighted mean of the replies of a
    round, `outcome` the global model at the end of a round, `state` parameters and buffers that never leave a client.
    """

    what: Literal["broadcast", "reply", "sum", "outcome", "state"]
    round: int
    client: int | None  # None for a sum or an outcome
    parts: str  # key of its tensors on the transcript's shelf
    kind: Literal["weights", "gradient"] = "weights"  # replies and sums
    examples: int | None = None
    contributors: tuple[int, ...] = ()
    readers: frozenset[str] = frozenset()
    tampered: bool = False


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What travels beside the models of a recorded round: the node's metrics, how many nodes took part, their examples.

    Nodes and examples are None where the recording does not hold them.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    nodes: int | None = None
    examples: int | None = None  # of all nodes that took part


def readers_of_broadcast(client: int) -> frozenset[str]:
    """Readers of the model sent to a client: the server, that client and an eavesdropper on its link."""
    return frozenset({SERVER, WIRE, client_reader(client)})


def readers_of_reply(client: int, secure_aggregation: bool) -> frozenset[str]:
    """Readers of a reply: its client, and the server and an eavesdropper unless secure aggregation masks it."""
    own = {client_reader(client)}
    return frozenset(own if secure_aggregation else own | {SERVER, WIRE})


def readers_of_sum() -> frozenset[str]:
    """Readers of the weighted mean of a round: the server, which computes it."""
    return frozenset({SERVER})


def readers_of_outcome(next_clients: tuple[int, ...], last: bool, everyone: tuple[int, ...]) -> frozenset[str]:
    """Readers of a new global model: the server and the clients of the next round; the final one goes to everyone."""
    recipients = everyone if last else next_clients
    clients = {client_reader(client) for client in recipients}
    return frozenset({SERVER} | clients | ({WIRE} if recipients else set()))


# Tensors

TENSOR_OVERHEAD = 512  # bytes of a tensor besides its entries, in memory and in a shard's header


@dataclass(frozen=True)
class Parts:
    """The tensors of one message: parameters (or their change) and buffers, by name."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Numbers of tensors; no value."""
        return f"Parts(params={len(self.params)}, buffers={len(self.buffers)})"


class Shelf(Protocol):
    """A store of tensors by key: in memory, or in a folder of shards."""

    def put(self, key: str, parts: Parts) -> None:
        """Store these tensors under that key."""

    def get(self, key: str) -> Parts:
        """The tensors under that key."""

    def reader(self, key: str) -> Callable[[], Parts]:
        """A function that fetches the tensors under that key and gives access to no others."""


class MemoryShelf:
    """Tensors stored in memory, detached so that no graph stays alive."""

    def __init__(self) -> None:
        """Start empty."""
        self._stored: dict[str, Parts] = {}

    def put(self, key: str, parts: Parts) -> None:
        """Store copies of these tensors under that key."""
        params = {name: value.detach().clone() for name, value in parts.params.items()}
        buffers = {name: value.detach().clone() for name, value in parts.buffers.items()}
        self._stored[key] = Parts(params, buffers)

    def get(self, key: str) -> Parts:
        """The tensors under that key."""
        return self._stored[key]

    def reader(self, key: str) -> Callable[[], Parts]:
        """A function that returns copies of the tensors under that key and holds no others."""
        return partial(copy.deepcopy, self._stored[key])


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The messages of a run with the network they are about; holds no record, no label and no seed."""

    messages: tuple[Message, ...]
    shelf: Shelf
    model: nn.Module
    space: Space
    loss: str
    clients: int
    secure_aggregation: bool = False
    reported: Mapping[int, Reported] = field(default_factory=dict)  # by round of a recording
    recorded: bool = False  # read from a live federation, so no client can be asked again

    def __repr__(self) -> str:
        """Numbers of clients, rounds and messages; no tensor."""
        counts = f"clients={self.clients}, rounds={len(self.rounds())}, messages={len(self.messages)}"
        return f"Transcript({counts}, secure_aggregation={self.secure_aggregation}, recorded={self.recorded})"

    def rounds(self) -> list[int]:
        """The recorded rounds, ascending."""
        return list(self._rounds)

    @cached_property
    def _rounds(self) -> list[int]:
        return sorted({message.round for message in self.messages if message.what == "broadcast"})

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """Values that were found by reading all messages once, by name: many cases ask an open run for the same."""
        return {}

    def readable_by(self, reader: str) -> list[Message]:
        """The messages this reader can see, in order."""
        return [message for message in self.messages if reader in message.readers]

    def sent_to(self, client: int) -> dict[int, str]:
        """By round, the keys of the models that were sent to a client."""
        return self._sent.get(client, {})

    @cached_property
    def _sent(self) -> dict[int | None, dict[int, str]]:
        keys: dict[int | None, dict[int, str]] = {}
        for message in self.messages:
            if message.what == "broadcast":
                keys.setdefault(message.client, {})[message.round] = message.parts
        return keys

    def outcome(self, round: int) -> Message:
        """The message with the global model at the end of a round."""
        for message in self.messages:
            if message.what == "outcome" and message.round == round:
                return message
        remedy = 'Record more rounds with record = "all".'
        raise BadInput("round", expected=f"a recorded round ({_span(self.rounds())})", got=round, remedy=remedy)


def _span(rounds: Iterable[int]) -> str:
    listed = list(rounds)
    return f"{listed[0]} to {listed[-1]}, {len(listed)} of them" if listed else "none was recorded"
