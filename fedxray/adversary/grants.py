"""The grants in words: the one table behind `fedxray list grants`, the docs and the report, which needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

GRANTS: Mapping[str, str] = {
    "recipe": "how clients train (epochs, batch size, learning rate, shuffling, weighting)",
    "examples": "the client's number of examples",
    "contributors": "which clients took part",
    "defence": "the defence of the clients, with its settings",
    "labels": "the labels of the client's training records, in random order",
    "label-counts": "the client's number of records of each class",
    "batch-labels": "the labels of every local step",
    "public-attributes": "the client's training records without the sensitive column",
    "target-records": "complete records, among them all that the client trained on, but not which these are",
    "source-records": "training records, half of them the client's, and each client's number of records, but not whose "
    "record each is",
    "own-data": "the records of the curious client itself",
    "public-records": "records of the same kind that belong to no client",
    "public-images": "images of the same kind that belong to no client",
    "bn-statistics": "mean and variance of the inputs of every BatchNorm layer, for every batch of the client",
    "oracle-records": "the client's training records themselves",
    "oracle-groups": "the training records of every client, grouped",
    "oracle-loss": "the loss of any model on the client's training records",
    "oracle-order": "the order in which the client used its records",
}
