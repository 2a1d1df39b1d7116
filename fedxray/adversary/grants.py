"""Roles and grants: the tables behind `fedxray list`, the docs and the report, which need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedxray.federation.transcript import SERVER, WIRE


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
    "secure-aggregation": Role(
        SERVER,
        "the models sent and the sum of all replies, never a single reply; in the clear, who took part, with the "
        "numbers of examples and metrics that clients report",
        knows_examples=True,
    ),
}

GRANTS: Mapping[str, str] = {
    "recipe": "how clients train (epochs, batch size, learning rate, shuffling, weighting)",
    "examples": "the client's number of examples",
    "metrics": "by round, loss and accuracy of the model that the client was sent, on its training records",
    "contributors": "which clients took part",
    "defence": "the defence of the clients, with its settings",
    "labels": "the labels of the client's training records, in random order",
    "label-counts": "the client's number of records of each class",
    "batch-labels": "the labels of every local step",
    "public-attributes": "the client's training records without the sensitive column",
    "target-records": "complete records, among them all that the client trained on, but not which these are",
    "source-records": "equally many training records of all clients, as far as they have them, but not whose each is",
    "own-data": "the records of the curious client itself",
    "public-records": "records of the same kind that belong to no client",
    "public-images": "images of the same kind that belong to no client",
    "bn-statistics": "mean and variance of the inputs of every BatchNorm layer, for every batch of the client",
    "oracle-records": "the client's training records themselves",
    "oracle-groups": "the training records of every client, grouped",
    "oracle-loss": "the loss of any model on the client's training records",
    "oracle-order": "the order in which the client used its records",
}

# What `target-records` are where people are recognised by other records of theirs
OTHER_RECORDS = "records of people, none of them trained on; of some people other records were"
MOST_SOURCES = {"train": 1000, "holdout": 250}  # records of all clients together in `source-records`
