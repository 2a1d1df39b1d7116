"""The seam of an active server: what it sends instead of the broadcast, and what it learns from the reply."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from fedxray.params import Params


class Tamper(Protocol):
    """An active server's behaviour towards the attacked clients; the round loop threads its state."""

    def start(self) -> Any:
        """The state before the first round."""

    def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, Tensor], Any]:
        """The parameters this client is really sent, and the new state."""

    def receive(self, state: Any, round: int, client: int, update: Params) -> Any:
        """The new state after the client's reply."""
