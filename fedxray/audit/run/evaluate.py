"""One case from its context to its outcome: the attack, its floors and its controls, all scored in the same way.

Besides the scores an outcome holds the ledger, the most exposed records, scores by class, example records for the
report, and for a recording intervals over its records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary import disclose
from fedxray.adversary.disclose import Rows, attribute_rows, membership_records, records_in_question
from fedxray.adversary.grants import ROLES
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.audit.judge import statistics
from fedxray.audit.judge.statistics import Interval, over_records
from fedxray.audit.own_code.apart import can_separate
from fedxray.audit.restoring import restoring_facts
from fedxray.audit.run.comparisons import (
    CaseContext,
    Scored,
    adapts,
    ceilings_of,
    chosen_controls,
    controls_of,
    floors_of,
    grant_names,
    possible_controls,
    swaps_of,
)
from fedxray.audit.search import SEARCH
from fedxray.data.dataset import Column, Dataset, Records, union
from fedxray.federation.truth import Truth
from fedxray.imaging import assignment, match, psnr
from fedxray.metrics.images import class_image_closeness, image_closeness
from fedxray.metrics.records import Scores, by_subject, placements, recovered_values, row_closeness
from fedxray.metrics.table import RATES, metric as metric_named

# Facts of an attack about the records of its own seat: they are never scored, but they may have been found.
OWN = ("own_share", "own_images", "own_found", "own_psnr")

SOUGHT = ("rows_sought", "rows_behind")  # of an update with more rows than can be sought in time

OTHER = "auc_subject_other"  # membership by person from records set aside
CHANCE = {OTHER: 0.5}  # its floor


@dataclass(frozen=True, kw_only=True)
class CaseOutcome:
    """The evidence of a case, its scores, and what they are compared with."""

    evidence: Evidence
    score: Scores
    ledger: dict[str, Any]
    oracle: bool
    floors: dict[str, dict[str, float]]
    controls: dict[str, dict[str, float]]
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    within: dict[str, RecordIntervals] = field(default_factory=dict)  # intervals over records, of a recording
    exposed: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # the most exposed records
    by_class: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    swaps: dict[str, dict[str, float]] = field(default_factory=dict)  # by the client whose messages were read
    split: dict[str, Any] = field(default_factory=dict)  # how trained and held-out records rank
    draws: dict[str, list[int]] = field(default_factory=dict)  # the single ranks behind it, which stay private
    record_variance: dict[str, float] = field(default_factory=dict)  # by metric, if records were independent


def evaluate(context: CaseContext) -> CaseOutcome:
    """Run and score the attack, its floors and its controls."""
    view = context.view(context.attack)
    guess = finite(context.score(context.infer(context.attack, view, own=True)))
    aside = _about_others(context) if guess.scores.means else None
    evidence, swaps = _without_own_facts(context, guess.evidence), swaps_of(context)
    floors, controls = floors_of(context), controls_of(context, swaps)
    recorded = context.transcript.recorded
    within = within_run(context, guess, floors, controls) if recorded and guess.scores.means else {}
    ranking = ranking_of(context, evidence) if guess.scores.means else None
    if aside is not None:
        guess, beside = with_means(guess, aside), controls_of(context, {}, "others")
        floors = {name: with_means(floor, CHANCE) for name, floor in floors.items()}
        within |= within_run(context, aside, floors, beside) if recorded else {}
        controls = {name: with_means(one, beside.get(name, one)) for name, one in controls.items()}
        if context.part.primary == OTHER:
            ranking = _membership_ranking(context, aside.evidence, "others")
    if ranking is None and recorded and "held-out" in controls:
        ranking = _mixed_ranking(context, controls["held-out"])
    return CaseOutcome(
        evidence=evidence,
        score=guess.scores,
        ledger=ledger_of(context, view)
        | {name: evidence.facts[name] for name in (*OWN, *SOUGHT) if name in evidence.facts},
        oracle=view.grants.is_oracle,
        floors={name: dict(floor.scores.means) for name, floor in floors.items()},
        controls={name: dict(control.scores.means) for name, control in controls.items()},
        ceilings=ceilings_of(context),
        within=within,
        exposed=exposed_records(context, guess),
        by_class=by_class(context, guess, floors),
        swaps={str(client): dict(swap.scores.means) for client, swap in swaps.items()},
        split={} if ranking is None else split_facts(ranking, lists=evidence.kind != "membership", drawn=context.drawn),
        draws={} if ranking is None else ranking.draws(),
        record_variance=record_variances(context, guess),
    )


def with_means(guess: Scored, other: Scored | Mapping[str, float]) -> Scored:
    """Return the guess with the scores of another beside its own."""
    more = other.scores.means if isinstance(other, Scored) else other
    return replace(guess, scores=replace(guess.scores, means={**guess.scores.means, **more}))


def finite(guess: Scored) -> Scored:
    """Return the guess, without scores where it is a membership that is not a number: such a record has no rank."""
    lost = guess.evidence.kind == "membership" and bool(guess.evidence.tensors["scores"].isnan().any())
    return replace(guess, scores=Scores(means={}, records={})) if lost else guess


def _about_others(context: CaseContext) -> Scored | None:
    """Ask about records that were set aside, of people trained on and of people held out; None where there are none."""
    if context.attack.kind != "membership" or not any(map(len, context.truth.others)):
        return None
    view = context.view(context.attack, rows="others")
    answer = finite(context.score(context.infer(context.attack, view, own=True), "others"))
    return answer if answer.scores.means else None


def _without_own_facts(context: CaseContext, evidence: Evidence) -> Evidence:
    """Return the evidence, of a user's attack without the facts it states: they may hold records, and stay private."""
    kept = (SEARCH,) if context.part.search is not None else ()  # which the search wrote
    facts = {name: evidence.facts[name] for name in kept if name in evidence.facts}
    return replace(evidence, facts=facts) if context.own else evidence


def uses_defence(context: CaseContext) -> bool:
    """Return whether this attacker can use what it knows of the defence: both the attack and the defence say how."""
    defence, work = context.stated or context.truth.defence, context.truth.work(context.client or 0)
    return adapts(context.attack) and defence.hooks(work).known is not None


def _people(context: CaseContext) -> dict[str, int]:
    """Return of how many people the records in question are, where records have subjects."""
    subject = records_in_question(context.truth, context.client, context.part.seats).subject
    return {} if subject is None else {"people_in_question": len(subject.unique())}


def ledger_of(context: CaseContext, view: View) -> dict[str, Any]:
    """Return what the adversary of a case sees and knows, in plain values."""
    hidden = context.transcript.secure_aggregation and ROLES[view.role].single_replies
    space = context.truth.space
    return {
        **view.ledger(),
        "sees": ROLES["secure-aggregation" if hidden else view.role].sees,
        "examples_in_question": len(disclose.records_in_question(context.truth, context.client, context.part.seats)),
        **_people(context),
        "floor_records": len(context.truth.public),  # floors are always given the public share
        "defence": (context.stated or context.truth.defence).describe(),
        "aware": context.aware,
        "adapts": None if not context.aware else uses_defence(context),
        "target": context.client,
        "sensitive": space.sensitive,
        "target_column": space.target_name,
        "target_standardised": space.target == "regression" and space.target_std != 1.0,
        "seats": list(context.part.seats),
        "clients": len(context.truth.train),
        **restoring_facts(context.part),
        **({"own_process": can_separate()} if context.own else {}),
        "controls_left_out": [
            name
            for name in possible_controls(context.part, context.attack)
            if name not in chosen_controls(context.part, context.attack)
        ],
    }


# Where a case leaks: the most exposed records by their index and score, and scores by class; never their content

MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Scores of single records, the index of each among the client's training records, and its class."""

    values: Tensor  # [records]
    indices: Tensor | None  # [records]; None where records of several clients were asked for
    classes: Tensor | None  # [records]; None for a regression
    sure: Tensor | None = None  # [records]: how sure the attacker is, which orders records of equal values


def exposed_records(context: CaseContext, guess: Scored) -> dict[str, list[dict[str, float]]]:
    """Return the most exposed records by metric, the most exposed first.

    Where a metric is 0 or 1, records of value 1 are ordered by how sure the attacker is, or none is listed.
    """
    exposed: dict[str, list[dict[str, float]]] = {}
    for name, graded in _graded(context, guess).items():
        if graded.indices is not None:
            noun = "person" if name == "auc_subject" else "record"
            listed = _listed(graded, graded.indices, noun, metric_named(name).down)
            exposed |= {name: listed} if listed else {}
    return exposed


def by_class(context: CaseContext, guess: Scored, floors: Mapping[str, Scored]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return by metric and class the mean over the records of that class, their number, and the means of floors."""
    by_metric: dict[str, dict[int, dict[str, Any]]] = {}
    graded_floors = {name: _graded(context, floor) for name, floor in floors.items()}
    for metric, graded in _graded(context, guess).items():
        floor_means = {name: _means(floor[metric]) for name, floor in graded_floors.items() if metric in floor}
        means = {
            label: own | {"floors": {name: mean[label]["mean"] for name, mean in floor_means.items() if label in mean}}
            for label, own in _means(graded).items()
        }
        if means:
            by_metric[metric] = means
    return by_metric


def _graded(context: CaseContext, guess: Scored) -> dict[str, Graded]:
    """Return the single records behind every metric of a guess about training records."""
    truth, client = context.truth, context.client
    if guess.rows != "train" or client is None:
        return {}
    labels = truth.train[client].y if truth.space.target == "classification" else None
    kind, records = guess.evidence.kind, guess.scores.records
    if kind == "membership":
        return _members(context, guess)
    if kind == "sources":
        asked, owner = disclose.source_records(truth, context.part.seats)
        own = None if labels is None else asked.y.cpu()[owner == client]
        return {name: Graded(values=values, indices=None, classes=own) for name, values in records.items()}
    count = len(truth.train[client])
    indices = disclose.attribute_order(truth, client) if kind == "attributes" else torch.arange(count, device="cpu")
    sure = guess.evidence.tensors.get("margins") if kind == "attributes" else None
    return {
        name: Graded(
            values=values, indices=indices, classes=None if labels is None else labels.cpu()[indices], sure=sure
        )
        for name, values in records.items()
        if len(values) == count
    }


def _members(context: CaseContext, guess: Scored) -> dict[str, Graded]:
    """Grade each member by the share of non-members below it; the mean of these shares is the auc."""
    records, inside = disclose.membership_records(context.truth, context.client, context.part.seats)
    scores = guess.evidence.tensors["scores"].cpu()
    if len(scores) != len(inside) or "auc" not in guess.scores.means:
        return {}
    if records.subject is not None:
        scores, inside, people = by_subject(scores, inside, records.subject)
        shares = placements(scores, inside)[0]
        return {"auc_subject": Graded(values=shares, indices=people[inside], classes=None, sure=scores[inside])}
    assert context.client is not None  # memberships are asked of one client
    own = context.truth.train[context.client]
    indices = disclose.membership_order(context.truth, context.client)[inside]
    classes = own.y.cpu()[indices] if context.truth.space.target == "classification" else None
    shares = placements(scores, inside)[0]
    return {"auc": Graded(values=shares, indices=indices, classes=classes, sure=scores[inside])}


def _listed(graded: Graded, indices: Tensor, noun: str, down: bool) -> list[dict[str, float]]:
    """Return the most exposed records; ties are ordered by how sure the attacker is, then by position."""
    values = graded.values.detach().cpu().double()
    sure = torch.zeros_like(values) if graded.sure is None else graded.sure.detach().cpu().double()
    known = torch.isfinite(values)
    hits = bool(((values[known] == 0) | (values[known] == 1)).all())
    if hits and graded.sure is None:
        return []
    chosen = known & (values == 1) if hits else known
    ranked = sorted(
        torch.nonzero(chosen).flatten().tolist(),
        key=lambda row: (float(values[row]) if down else -float(values[row]), -float(sure[row]), row),
    )
    return [
        {noun: int(indices[row]), "value": float(values[row])}
        | ({"sure": float(sure[row])} if graded.sure is not None and bool(torch.isfinite(sure[row])) else {})
        for row in ranked[:MOST_NAMED]
    ]


def _means(graded: Graded) -> dict[int, dict[str, Any]]:
    if graded.classes is None or len(graded.classes) != len(graded.values):
        return {}
    values, classes = graded.values.detach().cpu().double(), graded.classes.cpu()
    means: dict[int, dict[str, Any]] = {}
    for label in classes.unique().tolist():
        own = values[classes == label]
        own = own[torch.isfinite(own)]
        if len(own):
            means[int(label)] = {"mean": float(own.mean()), "n": len(own)}
    return means


# Original and reconstruction side by side, as numbers from 0 to 1 that a report can draw

MOST_PICTURES = 8
DIGITS = 3


def pictures(evidence: Evidence, truth: Truth, client: int | None, dataset: Dataset) -> dict[str, Any] | None:
    """Return originals of a client with the guess matched to each, as in the scores; None for other kinds.

    Of many, those shown are spread evenly over all ranks of similarity, the best and the worst among them. A guess
    about a class is shown beside the first original of that class.
    """
    if evidence.kind not in ("images", "class-images"):
        return None
    asked = disclose.records_in_question(truth, client, evidence.seats)
    originals = truth.space.to_pixels(asked.x)
    guesses = truth.space.to_pixels(evidence.tensors["inputs"].to(originals))
    if "own" in evidence.tensors:
        guesses = guesses[~evidence.tensors["own"].to(guesses.device)]
    partners = match(guesses, originals) if evidence.kind == "images" else _of_class(evidence, asked.y)
    matched = [(index, partner) for index, partner in enumerate(partners.tolist()) if partner >= 0]  # -1: none
    shown = []
    for index, partner, quality in _spread_over_ranks(
        [(index, partner, float(psnr(guesses[partner][None], originals[index][None]))) for index, partner in matched]
    ):
        shown.append(
            {
                "original": _gallery_rows(originals[index]),
                "guess": _gallery_rows(guesses[partner]),
                "caption": f"{quality:.1f} dB",
                "record": index,
                "quality": round(quality, 3) if math.isfinite(quality) else None,
            }
        )
    whose = "everyone" if client is None else f"client {client}"
    some = f"{len(shown)} of " if len(shown) < len(originals) else ""
    title = f"{whose}, {some}{len(originals)} images"
    return {"title": title, "private": dataset.private, "images": shown}


def _spread_over_ranks(pairs: Sequence[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Return at most MOST_PICTURES of (original, guess, quality), best and worst included, in order of originals."""
    ranked = sorted(pairs, key=lambda pair: -math.inf if math.isnan(pair[2]) else pair[2])
    if len(ranked) > MOST_PICTURES:
        ranked = [ranked[place * (len(ranked) - 1) // (MOST_PICTURES - 1)] for place in range(MOST_PICTURES)]
    return sorted(ranked)


def _of_class(evidence: Evidence, y: Tensor) -> Tensor:
    """Return the guess of its class for the first original of every class, -1 for the others; shape [originals]."""
    labels = evidence.tensors["labels"].to(y.device)
    later = (y[:, None] == y[None]).tril(-1).any(1)
    same = labels[None] == y[:, None]  # [originals, guesses]
    return torch.where(later | ~same.any(1), -1, same.int().argmax(1))


def _gallery_rows(image: Tensor) -> list[Any]:
    """Return an image as nested lists [height][width] or [height][width][3], clipped to 0..1 and rounded."""
    clipped = image.detach().cpu().clamp(0, 1).nan_to_num(0.0).double()
    grey = clipped[0] if clipped.shape[0] == 1 else clipped.permute(1, 2, 0)
    listed: list[Any] = (grey * 10**DIGITS).round().div(10**DIGITS).tolist()
    return listed


# Example records with the guess about each: pictures, inferred values, reconstructed rows
#
# Of a user's own data they are private and go into a report only with --show-private: a good guess is the record.

MOST_RECORDS, MOST_COLUMNS = 8, 12
NO_GUESS = "no guess"


def examples_of(evidence: Evidence, truth: Truth, client: int | None, dataset: Dataset) -> dict[str, Any] | None:
    """Return the first records of a client with the guess about each; None where an attack does not guess records."""
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
    real = disclose.attribute_rows(truth, client).x
    guess = real.clone()
    guess[:, list(column.positions)] = codes.to(real)
    asked = disclose.attribute_order(truth, client).tolist()  # the index of each in the client's own order
    shown = [
        _record(index, guess[row], real[row], [column])
        for index, row in sorted(zip(asked, range(len(own)), strict=True))[:MOST_RECORDS]
    ]
    title = f"client {client}, {len(real)} records"
    return {"title": title, "private": dataset.private, "records": shown}


def _example_rows(evidence: Evidence, truth: Truth, client: int, dataset: Dataset) -> dict[str, Any]:
    real, columns = truth.train[client].x, truth.space.columns
    guess = evidence.tensors["inputs"].to(real).flatten(1)
    correct = recovered_values(guess, real, columns).sum(-1)  # [guesses, records]
    partner = dict(zip(*(side.tolist() for side in assignment(correct.double())[::-1]), strict=True))
    nothing = torch.full_like(real[0], torch.nan)
    shown = [
        _record(index, guess[partner[index]] if index in partner else nothing, real[index], columns[:MOST_COLUMNS])
        for index in range(min(len(real), MOST_RECORDS))
    ]
    more = len(columns) - MOST_COLUMNS
    hidden = f", {more} more columns not shown" if more > 0 else ""
    title = f"client {client}, {len(real)} records{hidden}"
    return {"title": title, "private": dataset.private, "records": shown}


def _record(index: int, guess: Tensor, real: Tensor, columns: Sequence[Column]) -> dict[str, Any]:
    """Return one record as rows of column, value, guess, and whether the guess counts as correct."""
    correct = recovered_values(guess[None], real[None], columns)[0, 0].tolist()
    values = [
        [column.name, spoken(column, real), spoken(column, guess), hit]
        for column, hit in zip(columns, correct, strict=True)
    ]
    return {"record": index, "values": values}


def spoken(column: Column, row: Tensor) -> str:
    """Return the value of a column in a row [width] as text; numbers as a share of their range."""
    value = row[list(column.positions)]
    if not bool(torch.isfinite(value).all()):
        return NO_GUESS
    if column.kind == "continuous":
        return f"{100 * (float(value[0]) - column.low) / (column.high - column.low):.0f} % of the range"
    apart = ((column.candidates(value) - value) ** 2).sum(-1)
    return column.categories[int(apart.argmin())]


# Intervals inside one run, over the records of one client, for recordings
#
# Where a federation is simulated, runs are repeated and clients are the units. A recording is one run of one node, so
# its intervals are over that node's records, for the model that it really sent: they hold for these records and for
# no others. Records are treated as independent given that model.
#
# - A metric that is a mean over records: the differences record by record, with Student's t.
# - auc: DeLong's variance, from the share of non-members below each member and of members above each non-member.
# - The same attack on other records (held out): the two means as independent samples.
# A metric that is none of these (counts of labels, distances of models) has no interval here.

RecordIntervals = dict[str, Any]  # mean, and by name floors and controls: each an interval in plain values
Sample = tuple[Tensor, ...]  # values whose means are the metric, one tensor for each kind of record


def within_run(
    context: CaseContext, guess: Scored, floors: Mapping[str, Scored], controls: Mapping[str, Scored]
) -> dict[str, RecordIntervals]:
    """Return for every metric that has them its interval, and those of its differences to floors and controls."""
    intervals: dict[str, RecordIntervals] = {}
    for metric, own in _samples(context, guess).items():
        sign = -1.0 if metric_named(metric).down else 1.0
        intervals[metric] = {"mean": asdict(_interval([own]))}
        for part, others in (("floors", floors), ("controls", controls)):
            differences = {name: _against(context, metric, own, guess, other, sign) for name, other in others.items()}
            intervals[metric][part] = {
                name: asdict(difference) for name, difference in differences.items() if difference is not None
            }
    return intervals


def _samples(context: CaseContext, guess: Scored) -> dict[str, Sample]:
    """Return the values behind every metric of a guess, one tensor [records] each, two for the auc."""
    if guess.evidence.kind == "membership":
        rows: Rows = "others" if guess.rows == "others" else "train"
        records, inside = disclose.membership_records(context.truth, context.client, context.part.seats, rows)
        scores = guess.evidence.tensors["scores"].cpu()
        if guess.rows != rows or bool(inside.all()) or len(scores) != len(inside):
            return {}
        if records.subject is not None:  # records of one person are not independent
            name = OTHER if rows == "others" else "auc_subject"
            return {name: placements(*by_subject(scores, inside, records.subject)[:2])}
        return {"auc": placements(scores, inside)}
    return {name: (values.double(),) for name, values in guess.scores.records.items() if len(values)}


def _against(
    context: CaseContext, metric: str, own: Sample, guess: Scored, other: Scored, sign: float
) -> Interval | None:
    """Return the difference to another guess, signed so that larger means more leak; None where it has no score.

    On the same records differences are paired; on other records (held out) the means are independent samples.
    """
    theirs = _samples(context, other).get(metric)
    mean = other.scores.means.get(metric)
    if mean is None:
        return None
    if theirs is None:  # a number without records, such as chance
        return _interval([tuple(sign * (values - mean) for values in own)])
    if other.rows == guess.rows and list(map(len, theirs)) == list(map(len, own)):
        pairs = zip(own, theirs, strict=True)
        return _interval([tuple(sign * (mine - their) for mine, their in pairs)])
    return _interval([tuple(sign * values for values in own), tuple(-sign * values for values in theirs)])


def _interval(samples: Sequence[Sample]) -> Interval:
    return over_records([[values.detach().cpu().double().numpy() for values in sample] for sample in samples])


# What the tests against luck read of a case: how trained and held-out records rank, and how far luck moves a score.
#
# Which records a client trains on is drawn by the seed. Given the messages, every such draw was equally likely, so that
# trained records may not rank above held-out ones unless the messages depend on them. Membership ranks by its scores;
# images and rows rank by the closeness of a record to its nearest guess. Ranks are compared within a class where the
# adversary holds the labels, and within a client where a sum is about several.

LABELS = {"labels", "label-counts", "batch-labels"}  # grants that give the classes of trained records
PUBLIC = {"public-records", "public-images"}  # grants that draw guesses towards public records
MOST_PUBLIC = 1000  # public records in a pool
SHARES = ("accuracy", "within_tolerance", "rec", "retrieval")  # metrics that are 0 or 1 for each record
EVEN = 0.25  # the largest variance of a value that is 0 or 1


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The records of a pool: the rank of each, whether it was trained on, and the stratum it is compared within."""

    ranks: Tensor  # [records] of whole numbers, equal for ties
    member: Tensor  # [records] bool
    stratum: Tensor  # [records] of whole numbers

    def draws(self) -> dict[str, list[int]]:
        """Return single records, from which the draw can be repeated: they stay in the private part."""
        columns = {"scores": self.ranks, "member": self.member.long(), "stratum": self.stratum}
        return {name: column.tolist() for name, column in columns.items()}


def ranking_of(context: CaseContext, evidence: Evidence) -> Ranking | None:
    """Return how the client's records rank; None where the kind of guess has no ranks or nothing is held out."""
    if evidence.kind == "membership":
        return _membership_ranking(context, evidence, "train")
    if evidence.kind not in ("images", "rows", "class-images"):
        return None
    pool, member, owner = _pool(context)
    classes = context.truth.space.target == "classification"
    by_class = evidence.kind == "class-images" or not LABELS.isdisjoint(_grants(context))
    if not bool((~member).any()) or (by_class and (not classes or pool.subject is not None)):
        return None  # people have records of several classes, so they cannot be compared within one
    stratum = owner * context.truth.space.outputs + pool.y.cpu() if by_class else owner
    closeness = _closeness(context.truth, evidence, pool)
    return None if closeness is None else _ranking(closeness.cpu(), member, stratum, pool.subject)


def _membership_ranking(context: CaseContext, evidence: Evidence, rows: Rows) -> Ranking | None:
    """Return how records rank by their scores."""
    records, member = membership_records(context.truth, context.client, context.part.seats, rows)
    scores = evidence.tensors["scores"].cpu()
    if len(scores) != len(member) or bool(scores.isnan().any()):
        return None
    return _ranking(scores, member, torch.zeros_like(member, dtype=torch.int64), records.subject)


def _mixed_ranking(context: CaseContext, control: Scored) -> Ranking | None:
    """Return whether the answers about records trained on and held out, asked about together, are right.

    It tests against luck the attributes in a node's recording, where neither other clients' messages nor runs can.
    Only attacks that explain the messages by the records themselves: a model may serve held-out records as well. Labels
    that are granted would show which records were trained on.
    """
    if control.evidence.kind != "attributes" or control.rows != "mixed" or context.client is None:
        return None
    if not context.attack.explains_records or not LABELS.isdisjoint(_grants(context)):
        return None
    trained = context.score(control.evidence, "mixed", trained=True).scores.records
    name = next((name for name in SHARES if name in trained and name in control.scores.records), None)
    if name is None:
        return None
    right = torch.cat([trained[name], control.scores.records[name]]).cpu()
    member = torch.arange(len(right)) < len(trained[name])
    subject = attribute_rows(context.truth, context.client, context.part.seats, "mixed").subject
    if subject is not None:
        order = disclose.attribute_order(context.truth, context.client, context.part.seats, "mixed")
        held_out = order >= len(context.truth.train[context.client])
        subject = torch.cat([subject[~held_out], subject[held_out]])
    return _ranking(right, member, torch.zeros(len(right), dtype=torch.int64), subject)


def _ranking(scores: Tensor, member: Tensor, stratum: Tensor, subject: Tensor | None) -> Ranking | None:
    """Return the ranks of scores [records] in the strata that hold both kinds of records.

    Where records have subjects, people are ranked by their mean normal scores: people were drawn, not records.
    """
    if subject is not None:
        _, index = torch.unique(subject.cpu(), return_inverse=True)
        scores, member, people = by_subject(scores, member, subject)
        stratum = stratum.new_zeros(len(people)).scatter(0, index, stratum)
    both = [
        one for one in stratum.unique().tolist() if 0 < int(member[stratum == one].sum()) < int((stratum == one).sum())
    ]
    kept = torch.isin(stratum, torch.tensor(both, dtype=stratum.dtype))
    if not both:
        return None
    ranks = torch.unique(scores[kept].double(), return_inverse=True)[1]
    return Ranking(ranks=ranks, member=member[kept], stratum=stratum[kept])


def _pool(context: CaseContext) -> tuple[Records, Tensor, Tensor]:
    """Return the records of the client (or of all clients but the seats), trained ones first, and whose each is.

    Public records join those of one client where the partition makes them alike and the adversary does not hold them.
    """
    truth, client = context.truth, context.client
    owners = [one for one in range(len(truth.train)) if client in (None, one) and one not in context.part.seats]
    parts = [(truth.train[one], True, one) for one in owners]
    parts += [(truth.holdout[one], False, one) for one in owners if truth.holdout and len(truth.holdout[one])]
    held_out = len(parts) > len(owners)
    if held_out and context.public_alike and client is not None and PUBLIC.isdisjoint(_grants(context)):
        public = truth.public
        parts.append((public.take(torch.arange(min(len(public), MOST_PUBLIC))), False, client))
    pool = union(tuple(records for records, _, _ in parts))
    sizes = torch.tensor([len(records) for records, _, _ in parts])
    member = torch.tensor([inside for _, inside, _ in parts]).repeat_interleave(sizes)
    return pool, member, torch.tensor([owner for _, _, owner in parts]).repeat_interleave(sizes)


def _grants(context: CaseContext) -> set[str]:
    return set(grant_names(context.part, context.attack, context.aware)) | (
        PUBLIC if context.part.restore is not None else set()  # a prior may resemble public records
    )


def _closeness(truth: Truth, evidence: Evidence, pool: Records) -> Tensor | None:
    """Return the closeness of every record of the pool to its nearest guess; None without a guess."""
    guess = evidence.tensors["inputs"].to(pool.x)
    if evidence.kind == "images" and "own" in evidence.tensors:
        guess = guess[~evidence.tensors["own"].to(guess.device)]
    if not len(guess):
        return None
    if evidence.kind == "rows":
        return row_closeness(guess.flatten(1), pool.x, truth.space.columns)
    pixels = truth.space.to_pixels(guess), truth.space.to_pixels(pool.x)
    if evidence.kind == "images":
        return image_closeness(*pixels)
    return class_image_closeness(*pixels, labels=evidence.tensors["labels"].to(pool.y.device), classes=pool.y)


def split_facts(ranking: Ranking, *, lists: bool, drawn: bool) -> dict[str, Any]:
    """Return by stratum the Mann-Whitney statistic of trained records, both numbers and tie sizes; no single record.

    The statistic of the case is sum(u) / sum(n1 n0); `variance` is its variance when all draws are equally likely.
    `drawn` is False where the user or a recording names the records that were trained on.
    """
    columns = ranking.draws()
    facts = statistics.split_facts(columns["scores"], columns["member"], columns["stratum"] if lists else None)
    return {**(facts or {}), "drawn": drawn}


def _auc_variance(member: Tensor) -> float:
    """Return the variance of the AUC of independent scores of members and others [n] bool."""
    inside, outside = int(member.sum()), int((~member).sum())
    return (inside + outside + 1) / (12 * inside * outside)


def _drawn(context: CaseContext, rows: Rows) -> Tensor:
    """Return whether each record, or person where records have subjects, is a member [n]: those are independent."""
    records, member = membership_records(context.truth, context.client, context.part.seats, rows)
    return member if records.subject is None else by_subject(member.double(), member, records.subject)[1]


def record_variances(context: CaseContext, guess: Scored) -> dict[str, float]:
    """Return by metric the variance of the score if its records were independent; absent where that is not known.

    People are, where records have subjects: the records of one may all score alike.
    """
    truth, client, seats = context.truth, context.client, context.part.seats
    means, records = guess.scores.means, guess.scores.records
    if guess.evidence.kind == "membership":
        drawn = _drawn(context, "train")
        known = dict.fromkeys(("auc", "auc_subject"), _auc_variance(drawn))
        known |= dict.fromkeys(RATES, EVEN / int(drawn.sum()))
        if OTHER in means:
            known[OTHER] = _auc_variance(_drawn(context, "others"))
        return {name: value for name, value in known.items() if name in means}
    count = len(records_in_question(truth, client, seats))
    variances = {"label_error": EVEN * count, "label_accuracy": EVEN / count, "training_accuracy": EVEN / count}
    if "balanced_accuracy" in means:
        column = truth.space.column(truth.space.sensitive or "")
        real = attribute_rows(truth, client, seats).x[:, list(column.positions)]
        each = torch.unique(real, dim=0, return_counts=True)[1].double()
        variances["balanced_accuracy"] = float((EVEN / each).sum()) / len(each) ** 2
    for name, values in records.items():
        scored = values[~torch.isnan(values)].double()
        if name in SHARES and len(scored):
            variances[name] = EVEN / len(scored)
        elif len(scored) > 1:
            variances[name] = float(scored.var()) / len(scored)
    return {name: value for name, value in variances.items() if name in means}
