"""The interface of an active server: what it sends instead of the broadcast, and what it learns from the reply.

The round loop calls it and keeps its state; attacks implement it. It stands alone so that neither imports the other.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from fedxray.params import Params


class Tamper(Protocol):
    """The behaviour of an active server towards the attacked clients; the round loop passes its state along."""

    def start(self) -> Any:
        """The state before the first round."""

    def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], Any]:
        """The parameters that this client is sent in place of `broadcast`, and the new state."""

    def receive(self, state: Any, round: int, client: int, update: Params) -> Any:
        """The new state after the client's reply."""
