"""Where a case leaks: the most exposed records, by their place and score, and scores by class; never their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.disclose import attribute_order, membership_order, membership_records, source_records
from fedxray.audit.bench import Bench
from fedxray.audit.comparisons import Scored
from fedxray.metrics.membership import placements
from fedxray.metrics.table import metric as metric_named

MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Scores of single records, where each stands among the client's training records, and its class."""

    values: Tensor  # [records]
    places: Tensor | None  # [records]; None where records of several clients were asked for
    classes: Tensor | None  # [records]; None for a regression
    sure: Tensor | None = None  # [records]: how sure the attacker is, which orders records of equal values


def exposed_records(bench: Bench, guess: Scored) -> dict[str, list[dict[str, float]]]:
    """By metric the most exposed records first.

    Where a metric knows only hits and misses, hits stand in the order of how sure the attacker is, or none is named.
    """
    found = {}
    for name, graded in _graded(bench, guess).items():
        listed = [] if graded.places is None else _listed(graded, graded.places, metric_named(name).down)
        if listed:
            found[name] = listed
    return found


def by_class(
    bench: Bench, guess: Scored, floors: Mapping[str, Scored]
) -> dict[str, dict[int, dict[str, Any]]]:
    """By metric and class: mean over the records of that class, how many they are, and what floors reach there."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    beside = {name: _graded(bench, one) for name, one in floors.items()}
    for metric, graded in _graded(bench, guess).items():
        others = {name: _means(one[metric]) for name, one in beside.items() if metric in one}
        means = {
            label: told
            | {"floors": {name: one[label]["mean"] for name, one in others.items() if label in one}}
            for label, told in _means(graded).items()
        }
        if means:
            found[metric] = means
    return found


def _graded(bench: Bench, guess: Scored) -> dict[str, Graded]:
    """The single records behind every metric of a guess about training records."""
    truth, client = bench.truth, bench.client
    if guess.rows != "train" or client is None:
        return {}
    labels = truth.train[client].y if truth.space.target == "classification" else None
    kind, records = guess.evidence.kind, guess.scores.records
    if kind == "membership":
        return _members(bench, guess)
    if kind == "sources":
        asked = source_records(truth, client, bench.part.seats)[0].y if labels is not None else None
        return {name: Graded(values=values, places=None, classes=asked) for name, values in records.items()}
    count = len(truth.train[client])
    places = (
        attribute_order(truth, client, count) if kind == "attributes" else torch.arange(count, device="cpu")
    )
    sure = guess.evidence.tensors.get("margins") if kind == "attributes" else None
    return {
        name: Graded(
            values=values, places=places, classes=None if labels is None else labels.cpu()[places], sure=sure
        )
        for name, values in records.items()
        if len(values) == count
    }


def _members(bench: Bench, guess: Scored) -> dict[str, Graded]:
    """How far each member stands above the non-members, of which the auc is the mean."""
    inside = membership_records(bench.truth, bench.client, bench.part.seats)[1]
    scores = guess.evidence.tensors["scores"].cpu()
    if len(scores) != len(inside) or "auc" not in guess.scores.means:
        return {}
    assert bench.client is not None  # memberships are asked of one client
    own = bench.truth.train[bench.client]
    places = membership_order(bench.truth, bench.client, len(inside))[inside]
    classes = own.y.cpu()[places] if bench.truth.space.target == "classification" else None
    shares = placements(scores, inside)[0]
    return {"auc": Graded(values=shares, places=places, classes=classes, sure=scores[inside])}


def _listed(graded: Graded, places: Tensor, down: bool) -> list[dict[str, float]]:
    values = graded.values.detach().cpu().double()
    sure = torch.zeros_like(values) if graded.sure is None else graded.sure.detach().cpu().double()
    known = torch.isfinite(values)
    hits = bool(((values[known] == 0) | (values[known] == 1)).all())
    if hits and graded.sure is None:
        return []
    chosen = known & (values == 1) if hits else known
    ranked = sorted(
        torch.nonzero(chosen).flatten().tolist(),
        key=lambda one: (float(values[one]) if down else -float(values[one]), -float(sure[one]), one),
    )
    return [
        {"record": int(places[one]), "value": float(values[one])}
        | ({"sure": float(sure[one])} if graded.sure is not None and bool(torch.isfinite(sure[one])) else {})
        for one in ranked[:MOST_NAMED]
    ]


def _means(graded: Graded) -> dict[int, dict[str, Any]]:
    if graded.classes is None or len(graded.classes) != len(graded.values):
        return {}
    values, classes = graded.values.detach().cpu().double(), graded.classes.cpu()
    found: dict[int, dict[str, Any]] = {}
    for label in classes.unique().tolist():
        own = values[classes == label]
        own = own[torch.isfinite(own)]
        if len(own):
            found[int(label)] = {"mean": float(own.mean()), "n": len(own)}
    return found
