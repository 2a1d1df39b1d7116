"""Membership and sources from updates: the least-squares weight of each record's gradient in a client's updates (ours).

An update is close to a sum over the client's records of their gradients. The weights with which the gradients of the
records in question add up to the updates of all rounds (see update_algebra) are near 1 for records that were trained on
and near 0 for others. Before any message each record is present with the same probability: for membership the client's
number of examples over that of the records in question, for sources the share of those records that the client holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.grants import MOST_SOURCES
from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import SINGLE_REPLIES, Attack, Context, Need, Workload, granted, single_replies
from fedxray.attacks.evidence import Evidence, Kind, of_membership
from fedxray.attacks.observations import NO_DIRECTION, own_order, usable
from fedxray.attacks.record_gradients import gradients_at
from fedxray.attacks.shadow import known_step
from fedxray.attacks.source import SourceAttack, best_fitting, several_clients
from fedxray.attacks.update_algebra import SECONDS, USUAL, Messages, estimates, of_presence
from fedxray.data.dataset import Records
from fedxray.settings import setting

MOST_RECORDS = 2500  # the inner products of a round take several matrices of four times this number squared
LEAST, MOST = 0.02, 0.98  # of a prior probability
ROUNDS_USED = "Largest number of rounds that are used, evenly spread over those read."


@dataclass(frozen=True, kw_only=True)
class MembershipFromUpdates(Attack):
    """Which of these records are in the training data? Ranks them by the weight of their gradients in the updates."""

    name: ClassVar[str] = "membership-from-updates"
    kind: ClassVar[Kind] = "membership"
    roles: ClassVar[tuple[str, ...]] = SINGLE_REPLIES
    grants: ClassVar[tuple[str, ...]] = ("target-records", "recipe")
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)
    small: ClassVar[Mapping[str, Any]] = {"messages": 8}

    messages: int = setting(10, ROUNDS_USED, least=1)

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, few enough, and replies of the target alone."""
        return (granted("target-records"), few_records("target_records"), single_replies())

    def seconds(self, work: Workload) -> float:
        """Return about how long an answer takes: quadratic in the records."""
        return SECONDS * work.records**2 * min(work.rounds, self.messages)

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the weight of every record."""
        records, rounds = view.grants.target_records, usable(view.of_target(), self.messages)
        assert records is not None
        if not rounds or not len(records):
            blank = torch.full_like(records.x.flatten(1)[:, 0], torch.nan)  # no guess rather than an arbitrary one
            return of_membership(blank, status="undetermined", reason=NO_DIRECTION)
        examples = rounds[0].examples or view.grants.examples  # what the messages state comes first: it is theirs
        share = 0.5 if examples is None else examples / len(records)
        weights = presence(view, records, rounds, share, examples)
        return of_membership(weights.to(records.x.dtype), facts={"rounds": len(rounds), "prior": share})


@dataclass(frozen=True, kw_only=True)
class SourceFromUpdates(SourceAttack):
    """Which client does each record belong to? The one in whose updates its gradient has the largest weight."""

    name: ClassVar[str] = "source-from-updates"
    paper: ClassVar[str] = ""
    grants: ClassVar[tuple[str, ...]] = ("source-records", "recipe")
    small: ClassVar[Mapping[str, Any]] = {"messages": 8}

    messages: int = setting(10, ROUNDS_USED, least=1)

    def needs(self) -> tuple[Need, ...]:
        """List the records in question, few enough, and separate replies of several clients."""
        return (granted("source-records"), few_records("source_records"), several_clients())

    def seconds(self, work: Workload) -> float:
        """Return about how long a case takes: the answer reads every client's updates and serves all their cases."""
        asked = min(work.records * work.clients, MOST_SOURCES["train"])
        return SECONDS * asked**2 * min(work.rounds, self.messages)

    def attack(self, view: View, context: Context) -> Evidence:
        """Return the client with the largest weight, record by record."""
        asked = view.grants.source_records
        assert asked is not None
        records, weights = Records(asked.x, asked.y), []
        for client in view.clients:
            rounds, share = usable(view.of(client), self.messages), asked.counts[client] / max(1, len(records))
            empty = torch.full((len(records),), share, dtype=torch.float64, device=asked.x.device)
            read = rounds and len(records)
            weights.append(presence(view, records, rounds, share, rounds[0].examples) if read else empty)
        return best_fitting(view, -torch.stack(weights, 1), clients=len(view.clients))


def presence(view: View, records: Records, rounds: Sequence[Observation], share: float, examples: int | None) -> Tensor:
    """Return the weight of each record in these updates, float64 [records]; `share` of them are expected there.

    `examples` is the number of records behind the updates, where it is known.
    """
    order = own_order(records.x, records.y)  # so that the granted order does not matter
    x, y = records.x[order], records.y[order]
    chance = torch.full((len(x),), min(max(share, LEAST), MOST), dtype=torch.float64, device=x.device)
    examples = examples or round(float(chance.sum()))
    missing = max(0.0, examples / float(chance.sum()) - 1)
    messages = Messages(rounds=rounds, step=known_step(view, examples), missing=missing)
    (weights,) = estimates(gradients_at(view.model, view.loss, x, y), messages, of_presence(chance), [USUAL])
    return weights[torch.argsort(order), 0]


def few_records(field: str) -> Need:
    """Return the need of no more records in question than can be held."""

    def met(view: View) -> bool:
        records = getattr(view.grants, field)
        return records is not None and len(records.x) <= MOST_RECORDS

    return Need(
        what=f"at most {MOST_RECORDS} records in question", given_by="a limit on the records in [data]", met=met
    )
