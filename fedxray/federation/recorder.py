"""Writes down what is said in a run: every message once, with its readers."""

from __future__ import annotations

import torch
from torch import Tensor

from fedxray.federation.local import LocalResult
from fedxray.federation.message import (
    Message,
    client_seat,
    readers_of_broadcast,
    readers_of_outcome,
    readers_of_reply,
    readers_of_sum,
)
from fedxray.federation.setting import Federation, participants
from fedxray.federation.transcript import Parts, Shelf, Transcript
from fedxray.params import parameters_of


class Recorder:
    """The messages of one run so far; their tensors go to the shelf."""

    def __init__(self, federation: Federation, seed: int, shelf: Shelf) -> None:
        """Nothing was said yet."""
        self._federation, self._seed, self._shelf = federation, seed, shelf
        self._messages: list[Message] = []
        self._kept = federation.kept()
        self._written: set[str] = set()

    def exchange(self, round: int, client: int, sent: Parts, reply: LocalResult, *, tampered: bool) -> None:
        """Record what one client was sent and what came back."""
        recipe = self._federation.recipe
        place = f"sent/{round}/{client}" if tampered else f"global/{round}"
        broadcast = Message(
            what="broadcast",
            round=round,
            client=client,
            parts=self._put(place, sent),
            readers=readers_of_broadcast(client),
            tampered=tampered,
        )
        shared = {} if self._kept.statistics else reply.buffers
        answer = Message(
            what="reply",
            round=round,
            client=client,
            parts=self._put(f"reply/{round}/{client}", Parts(reply.update, shared)),
            kind=recipe.kind,
            contributors=(client,),
            examples=len(self._federation.clients[client]),
            readers=readers_of_reply(client, self._federation.secure_aggregation),
            tampered=tampered,
        )
        self._messages += [broadcast, answer]

    def state(self, round: int, client: int, own: Parts) -> None:
        """Record what never leaves a client; parameters that do are written as zeros."""
        like = parameters_of(self._federation.model) if own.params else {}
        params = {name: own.params.get(name, torch.zeros_like(value)) for name, value in like.items()}
        place = self._put(f"state/{round}/{client}", Parts(params, own.buffers))
        readers = frozenset({client_seat(client)})
        self._messages.append(Message(what="state", round=round, client=client, parts=place, readers=readers))

    def ends(self, round: int, contributors: tuple[int, ...], mean: dict[str, Tensor], after: Parts) -> None:
        """Record the mean of the replies and the model that a round ended with."""
        federation = self._federation
        total = Message(
            what="sum",
            round=round,
            client=None,
            parts=self._put(f"sum/{round}", Parts(mean)),
            kind=federation.recipe.kind,
            examples=sum(len(federation.clients[client]) for client in contributors),
            contributors=contributors,
            readers=readers_of_sum(),
        )
        last = round == federation.rounds - 1
        following = () if last else tuple(participants(federation, self._seed, round + 1))
        everyone = tuple(range(len(federation.clients)))
        outcome = Message(
            what="outcome",
            round=round,
            client=None,
            parts=self._put(f"global/{round + 1}", after),
            readers=readers_of_outcome(following, last, everyone),
        )
        self._messages += [total, outcome]

    def _put(self, key: str, parts: Parts) -> str:
        """Keep the tensors of a key the first time it comes, and return the key."""
        if key not in self._written:
            self._shelf.put(key, parts)
            self._written.add(key)
        return key

    def transcript(self) -> Transcript:
        """What was recorded so far."""
        federation = self._federation
        return Transcript(
            messages=tuple(self._messages),
            shelf=self._shelf,
            model=federation.model,
            space=federation.space,
            loss=federation.recipe.loss,
            clients=len(federation.clients),
            secure_aggregation=federation.secure_aggregation,
        )
