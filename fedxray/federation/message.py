"""Messages of a federation and who can read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
