"""One case from its transcript to its scores: the attack, its floors and its controls, all scored alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.disclose import (
    attribute_order,
    attribute_rows,
    membership_order,
    membership_records,
    records_in_question,
    source_records,
)
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.audit.judge.statistics import CONFIDENCE, ROUNDING, Interval
from fedxray.audit.restoring import restoring_facts
from fedxray.audit.run.comparisons import (
    Bench,
    Scored,
    adapts,
    ceilings_of,
    check_inner_kinds,
    chosen_controls,
    controls_of,
    declared_grants,
    floors_of,
    grant_names,
    guess_on,
    inner_attacks,
    make_view,
    next_client,
    rounds_read,
    score_on,
    strongest,
    without_client_model,
)
from fedxray.data.dataset import Column, Dataset, Space
from fedxray.federation.truth import Truth
from fedxray.imaging import assignment, match, psnr
from fedxray.metrics.records import placements, values_told
from fedxray.metrics.scores import Scores
from fedxray.metrics.table import metric as metric_named

# --- Where a case leaks: the most exposed records, by their place and score, and scores by class; never
# their content.


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


# --- Original and reconstruction side by side, as numbers from 0 to 1 that a report can draw.


MOST_PICTURES = 8
DIGITS = 3


def pictures(evidence: Evidence, truth: Truth, client: int | None, dataset: Dataset) -> dict[str, Any] | None:
    """The first few originals of a client with the guess that was matched to each; None for other kinds.

    A guess about a class is shown beside the first original of that class. Without a client they are everyone's but
    the seats', taken in turn from each.
    """
    if evidence.kind not in ("images", "class-images"):
        return None
    asked = records_in_question(truth, client, evidence.seats)
    originals = truth.space.to_pixels(asked.x)
    guesses = truth.space.to_pixels(evidence.tensors["inputs"].to(originals))
    if "own" in evidence.tensors:
        guesses = guesses[~evidence.tensors["own"].to(guesses.device)]
    places = match(guesses, originals) if evidence.kind == "images" else _of_class(evidence, asked.y)
    found = list(enumerate(places.tolist()))
    every = 1 if client is not None else max(1, len(found) // MOST_PICTURES)
    matched = [(index, place) for index, place in found[::every] if place >= 0]
    shown = []
    for index, place in matched[:MOST_PICTURES]:
        quality = float(psnr(guesses[place][None], originals[index][None]))
        shown.append(
            {
                "original": _gallery_rows(originals[index]),
                "guess": _gallery_rows(guesses[place]),
                "caption": f"{quality:.1f} dB",
                "record": index,
                "quality": round(quality, 3) if math.isfinite(quality) else None,
            }
        )
    whose = "everyone" if client is None else f"client {client}"
    return {"title": f"{whose}, {len(originals)} images", "private": dataset.private, "images": shown}


def _of_class(evidence: Evidence, y: Tensor) -> Tensor:
    """The guess of its class for the first original of every class, -1 for the others; shape [originals]."""
    labels = evidence.tensors["labels"].to(y.device)
    later = (y[:, None] == y[None]).tril(-1).any(1)
    same = labels[None] == y[:, None]  # [originals, guesses]
    return torch.where(later | ~same.any(1), -1, same.int().argmax(1))


def _gallery_rows(image: Tensor) -> list[Any]:
    """An image as nested lists [height][width] or [height][width][3], clipped to 0..1 and rounded."""
    clipped = image.detach().cpu().clamp(0, 1).nan_to_num(0.0).double()
    grey = clipped[0] if clipped.shape[0] == 1 else clipped.permute(1, 2, 0)
    listed: list[Any] = (grey * 10**DIGITS).round().div(10**DIGITS).tolist()
    return listed


# --- What an attack says of single records beside what they are: pictures, guessed values, rebuilt rows.
#
# Of a user's own data this is private and goes into a report only where it is asked for: a good guess is
# the record.


MOST_RECORDS, MOST_COLUMNS = 8, 12
NO_GUESS = "no guess"


def exhibit(evidence: Evidence, truth: Truth, client: int | None, dataset: Dataset) -> dict[str, Any] | None:
    """The first few records of a client with the guess about each; None where an attack does not guess records."""
    if client is not None and evidence.kind == "attributes":
        return _attributes(evidence, truth, client, dataset)
    if client is not None and evidence.kind == "rows":
        return _example_rows(evidence, truth, client, dataset)
    return pictures(evidence, truth, client, dataset)


def _attributes(evidence: Evidence, truth: Truth, client: int, dataset: Dataset) -> dict[str, Any] | None:
    column, codes = truth.space.column(truth.space.sensitive or ""), evidence.tensors["codes"]
    own = truth.train[client].x
    if len(codes) != len(own):  # about all clients at once
        return None
    real = attribute_rows(truth, client).x
    guess = real.clone()
    guess[:, list(column.positions)] = codes.to(real)
    asked = attribute_order(truth, client, len(own)).tolist()  # where each stands in the client's own order
    shown = [
        _record(index, guess[place], real[place], [column])
        for index, place in sorted(zip(asked, range(len(own)), strict=True))[:MOST_RECORDS]
    ]
    title = f"client {client}, {len(real)} records"
    return {"title": title, "private": dataset.private, "records": shown}


def _example_rows(evidence: Evidence, truth: Truth, client: int, dataset: Dataset) -> dict[str, Any]:
    real, columns = truth.train[client].x, truth.space.columns
    guess = evidence.tensors["inputs"].to(real).flatten(1)
    told = values_told(guess, real, columns).sum(-1)  # [guesses, records]
    partner = dict(zip(*(one.tolist() for one in assignment(told.double())[::-1]), strict=True))
    nothing = torch.full_like(real[0], torch.nan)
    shown = [
        _record(
            index, guess[partner[index]] if index in partner else nothing, real[index], columns[:MOST_COLUMNS]
        )
        for index in range(min(len(real), MOST_RECORDS))
    ]
    title = f"client {client}, {len(real)} records{_hidden(truth.space)}"
    return {"title": title, "private": dataset.private, "records": shown}


def _hidden(space: Space) -> str:
    more = len(space.columns) - MOST_COLUMNS
    return f", {more} more columns not shown" if more > 0 else ""


def _record(place: int, guess: Tensor, real: Tensor, columns: Sequence[Column]) -> dict[str, Any]:
    """One record: column, its value, the guessed one, and whether that counts as told."""
    right = values_told(guess[None], real[None], columns)[0, 0].tolist()
    values = [
        [column.name, spoken(column, real), spoken(column, guess), hit]
        for column, hit in zip(columns, right, strict=True)
    ]
    return {"record": place, "values": values}


def spoken(column: Column, row: Tensor) -> str:
    """The value of a column in a row [width] as a reader sees it; numbers as a share of their range."""
    value = row[list(column.positions)]
    if not bool(torch.isfinite(value).all()):
        return NO_GUESS
    if column.kind == "continuous":
        return f"{100 * (float(value[0]) - column.low) / (column.high - column.low):.0f} % of the range"
    apart = ((column.candidates(value) - value) ** 2).sum(-1)
    return column.categories[int(apart.argmin())]


# --- Intervals inside one run, over the records of one client: all that a recording of one node can offer.
#
# Where a federation is simulated, runs are repeated and clients are the units. A recording is one run of
# one node, so its intervals are over that node's records, for the model that it really sent: they speak of
# these records and of no others. Records are taken as independent given that model.
#
# - A metric that is a mean over records: the differences record by record, with Student's t.
# - auc: DeLong's variance, from the share of non-members below each member and of members above each non-member.
# - The same attack on other records (held out): the two means as independent samples.
# A metric that is none of these (counts of labels, distances of models) has no interval here.


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
        for part, others in (("floors", floors), ("controls", controls)):
            told = {name: _against(bench, metric, own, guess, one, sign) for name, one in others.items()}
            found[metric][part] = {name: asdict(one) for name, one in told.items() if one is not None}
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


__all__ = [
    "Bench",
    "Outcome",
    "adapts",
    "check_inner_kinds",
    "chosen_controls",
    "declared_grants",
    "evaluate",
    "grant_names",
    "inner_attacks",
    "ledger_of",
    "make_view",
    "next_client",
    "rounds_read",
    "strongest",
    "without_client_model",
]


# What an attack tells of the records of its own seat: they are never scored, but they may have been found.
OWN = ("own_share", "own_images", "own_found", "own_psnr")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a case came to."""

    evidence: Evidence
    score: Scores
    ledger: dict[str, Any]
    oracle: bool
    floors: dict[str, dict[str, float]]
    controls: dict[str, dict[str, float]]
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    within: dict[str, Within] = field(default_factory=dict)  # intervals over records, of a recording
    exposed: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # the most exposed records
    by_class: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)


def evaluate(bench: Bench) -> Outcome:
    """Run the attack, its floors and its controls."""
    view = make_view(bench, bench.attack)
    evidence = guess_on(bench, bench.attack, view)
    guess = Scored(evidence=evidence, scores=score_on(bench, evidence))
    floors, controls = floors_of(bench), controls_of(bench)
    return Outcome(
        evidence=evidence,
        score=guess.scores,
        ledger=ledger_of(bench, view)
        | {name: evidence.facts[name] for name in OWN if name in evidence.facts},
        oracle=view.grants.is_oracle,
        floors={name: dict(one.scores.means) for name, one in floors.items()},
        controls={name: dict(one.scores.means) for name, one in controls.items()},
        ceilings=ceilings_of(bench),
        within=within_run(bench, guess, floors, controls) if bench.transcript.recorded else {},
        exposed=exposed_records(bench, guess),
        by_class=by_class(bench, guess, floors),
    )


def ledger_of(bench: Bench, view: View) -> dict[str, Any]:
    """Who sees what and was told what, in plain values."""
    hidden = bench.transcript.secure_aggregation and roles.ROLES[view.role].single_replies
    space = bench.truth.space
    return {
        **view.ledger(),
        "sees": roles.ROLES["secure-aggregation" if hidden else view.role].sees,
        "examples_in_question": len(records_in_question(bench.truth, bench.client, bench.part.seats)),
        "floor_records": len(bench.truth.public),  # floors are always given the public share
        "defence": bench.truth.defence.describe(),
        "aware": bench.aware,
        "target": bench.client,
        "sensitive": space.sensitive,
        "target_column": space.target_name,
        "target_standardised": space.target == "regression" and space.target_std != 1.0,
        "seats": list(bench.part.seats),
        **restoring_facts(bench.part),
        "controls_left_out": [
            name for name in bench.attack.controls if name not in chosen_controls(bench.part, bench.attack)
        ],
    }
