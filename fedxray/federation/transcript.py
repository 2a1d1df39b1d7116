"""What was said in a federation: messages with their readers, and the tensors they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor, nn

from fedxray.data.dataset import Space
from fedxray.errors import BadInput

# --- Messages of a federation and who can read them.


SERVER = "server"
WIRE = "wire"  # whoever listens on the links


def client_seat(client: int) -> str:
    """The name of a client as a reader."""
    return f"client:{client}"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message: where its tensors are kept, whom it concerns, and who can read it.

    `broadcast` is the model sent to a client, `reply` what the client returned, `sum` the weighted mean of a
    round's replies, `outcome` the global model that a round ended with, `state` a client's own buffers that
    never leave it.
    """

    what: Literal["broadcast", "reply", "sum", "outcome", "state"]
    round: int
    client: int | None  # None for a sum or an outcome
    parts: str  # key of the tensors in the transcript's tensors
    kind: Literal["weights", "gradient"] = "weights"  # replies and sums
    examples: int | None = None
    contributors: tuple[int, ...] = ()
    readers: frozenset[str] = frozenset()
    tampered: bool = False


def readers_of_broadcast(client: int) -> frozenset[str]:
    """The model sent to a client is seen by the server, that client and its link."""
    return frozenset({SERVER, WIRE, client_seat(client)})


def readers_of_reply(client: int, secure_aggregation: bool) -> frozenset[str]:
    """A reply is seen by the server and the link, unless secure aggregation masks it."""
    own = {client_seat(client)}
    return frozenset(own if secure_aggregation else own | {SERVER, WIRE})


def readers_of_sum() -> frozenset[str]:
    """The round's weighted mean is made by the server."""
    return frozenset({SERVER})


def readers_of_outcome(
    next_clients: tuple[int, ...], last: bool, everyone: tuple[int, ...]
) -> frozenset[str]:
    """The new global model is seen by those it is sent to next; the final one is handed to everyone."""
    told = everyone if last else next_clients
    seats = {client_seat(client) for client in told}
    return frozenset({SERVER} | seats | ({WIRE} if told else set()))


@dataclass(frozen=True)
class Parts:
    """The tensors of one message: parameters (or their change) and buffers, by name."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor] = field(default_factory=dict)


class Shelf(Protocol):
    """Where tensors are kept by key: in memory, or in a folder of shards."""

    def put(self, key: str, parts: Parts) -> None:
        """Keep these tensors under that key."""

    def get(self, key: str) -> Parts:
        """The tensors under that key."""

    def reader(self, key: str) -> Callable[[], Parts]:
        """What fetches the tensors under that key, to be handed to someone who may see no other."""


class MemoryShelf:
    """Tensors kept in memory, detached so that no graph is held."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept: dict[str, Parts] = {}

    def put(self, key: str, parts: Parts) -> None:
        """Keep copies of these tensors under that key."""
        params = {name: value.detach().clone() for name, value in parts.params.items()}
        buffers = {name: value.detach().clone() for name, value in parts.buffers.items()}
        self._kept[key] = Parts(params, buffers)

    def get(self, key: str) -> Parts:
        """The tensors under that key."""
        return self._kept[key]

    def reader(self, key: str) -> Callable[[], Parts]:
        """What hands out the tensors under that key and holds no others."""
        parts = self._kept[key]
        return lambda: parts


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
    recorded: bool = False  # read from a live federation, so nobody can be asked again

    def of_round(self, round: int) -> list[Message]:
        """The messages of one round, in order."""
        return [message for message in self.messages if message.round == round]

    def rounds(self) -> list[int]:
        """The recorded rounds, ascending."""
        return sorted({message.round for message in self.messages if message.what == "broadcast"})

    def readable_by(self, reader: str) -> list[Message]:
        """The messages this reader can see, in order."""
        return [message for message in self.messages if reader in message.readers]

    def outcome(self, round: int) -> Message:
        """The message with the global model that a round ended with."""
        for message in self.messages:
            if message.what == "outcome" and message.round == round:
                return message
        raise BadInput(
            "round",
            expected=f"a recorded round ({_span(self.rounds())})",
            got=round,
            remedy='Record more rounds with record = "all".',
        )


def _span(rounds: Iterable[int]) -> str:
    listed = list(rounds)
    return f"{listed[0]} to {listed[-1]}, {len(listed)} of them" if listed else "none was recorded"
