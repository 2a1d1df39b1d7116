"""Intervals inside one run, over the records of one client: all that a recording of one node can offer.

Where a federation is simulated, runs are repeated and clients are the units. A recording is one run of one node, so
its intervals are over that node's records, for the model that it really sent: they speak of these records and of no
others. Records are taken as independent given that model.

- A metric that is a mean over records: the differences record by record, with Student's t.
- auc: DeLong's variance, from the share of non-members below each member and of members above each non-member.
- The same attack on other records (held out): the two means as independent samples.
A metric that is none of these (counts of labels, distances of models) has no interval here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.disclose import membership_records
from fedxray.audit.bench import Bench
from fedxray.audit.comparisons import Scored
from fedxray.audit.statistics import CONFIDENCE, ROUNDING, Interval
from fedxray.metrics.membership import placements
from fedxray.metrics.table import metric as metric_named

Within = dict[str, Any]  # mean, and by name floors and controls: each an interval in plain values
Sample = tuple[Tensor, ...]  # values whose means are the metric, one tensor for each kind of record


def within_run(
    bench: Bench, guess: Scored, floors: Mapping[str, Scored], controls: Mapping[str, Scored]
) -> dict[str, Within]:
    """For every metric that has them: its interval, and those of its differences to floors and controls."""
    found: dict[str, Within] = {}
    for metric, own in _samples(bench, guess).items():
        sign = -1.0 if metric_named(metric).down else 1.0
        found[metric] = {"mean": asdict(_interval([own]))}
        for field, others in (("floors", floors), ("controls", controls)):
            told = {name: _against(bench, metric, own, guess, one, sign) for name, one in others.items()}
            found[metric][field] = {name: asdict(one) for name, one in told.items() if one is not None}
    return found


def _samples(bench: Bench, guess: Scored) -> dict[str, Sample]:
    """The values behind every metric of a guess."""
    if guess.evidence.kind == "membership":
        inside = membership_records(bench.truth, bench.client, bench.part.seats)[1]
        scores = guess.evidence.tensors["scores"]
        if guess.rows != "train" or bool(inside.all()) or len(scores) != len(inside):
            return {}
        return {"auc": placements(scores, inside.to(scores.device))}
    return {name: (values.double(),) for name, values in guess.scores.records.items() if len(values)}


def _against(
    bench: Bench, metric: str, own: Sample, guess: Scored, other: Scored, sign: float
) -> Interval | None:
    """The difference to another guess, signed so that larger means more leak; None where nothing varies by record."""
    theirs = _samples(bench, other).get(metric)
    mean = other.scores.means.get(metric)
    if mean is None:
        return None
    if theirs is None:  # a number without records, such as chance
        return _interval([tuple(sign * (values - mean) for values in own)])
    if other.rows == guess.rows and [len(one) for one in theirs] == [len(one) for one in own]:
        pairs = zip(own, theirs, strict=True)
        return _interval([tuple(sign * (mine - their) for mine, their in pairs)])
    return _interval([tuple(sign * values for values in own), tuple(-sign * values for values in theirs)])


def _interval(samples: Sequence[Sample]) -> Interval:
    """The sum of the means of independent samples; the tensors of one sample share one mean, measured twice."""
    from scipy.special import stdtr, stdtrit

    known = [[values[~torch.isnan(values)] for values in sample] for sample in samples]
    parts = [values for sample in known for values in sample]
    count, smallest = sum(len(values) for values in parts), min(len(values) for values in parts)
    mean = math.fsum(float(sample[0].mean()) for sample in known) if smallest else math.nan
    if smallest < 2:
        return Interval(mean=mean, low=None, high=None, n=count, p=None)
    error = math.sqrt(math.fsum(float(values.var()) / len(values) for values in parts))
    largest = max(float(values.abs().max()) for values in parts)
    if error <= ROUNDING * largest:
        sign = 0.5**smallest if mean > 0 else 1.0
        return Interval(mean=mean, low=mean, high=mean, n=count, p=sign, error=0.0, freedom=smallest - 1)
    half = float(stdtrit(smallest - 1, 0.5 + CONFIDENCE / 2)) * error
    tail = float(stdtr(smallest - 1, -mean / error))
    return Interval(
        mean=mean, low=mean - half, high=mean + half, n=count, p=tail, error=error, freedom=smallest - 1
    )
