"""What the tests against luck read of a case: how trained and held-out records rank, and how far luck moves a score.

Which records a client trains on is drawn by the seed. Given the messages, every such draw was equally likely, so that
trained records may not rank above held-out ones unless the messages depend on them. Membership ranks by its scores;
images and rows rank by the closeness of a record to its nearest guess. Ranks are compared within a class where the
adversary holds the labels, and within a client where a sum is about several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary.disclose import attribute_rows, membership_records, records_in_question
from fedxray.attacks.evidence import Evidence
from fedxray.audit.judge import statistics
from fedxray.audit.run.comparisons import CaseContext, Scored, grant_names
from fedxray.data.dataset import Records, union
from fedxray.federation.truth import Truth
from fedxray.metrics.images import class_image_closeness, image_closeness
from fedxray.metrics.records import RATES, row_closeness

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
        _, member = membership_records(context.truth, context.client, context.part.seats)
        scores = evidence.tensors["scores"].cpu()
        usable = len(scores) == len(member) and not bool(scores.isnan().any())
        return _ranking(scores, member, torch.zeros_like(member, dtype=torch.int64)) if usable else None
    if evidence.kind not in ("images", "rows", "class-images"):
        return None
    pool, member, owner = _pool(context)
    classes = context.truth.space.target == "classification"
    by_class = evidence.kind == "class-images" or not LABELS.isdisjoint(_grants(context))
    if not bool((~member).any()) or (by_class and not classes):
        return None
    stratum = owner * context.truth.space.outputs + pool.y.cpu() if by_class else owner
    closeness = _closeness(context.truth, evidence, pool)
    return None if closeness is None else _ranking(closeness.cpu(), member, stratum)


def _ranking(scores: Tensor, member: Tensor, stratum: Tensor) -> Ranking | None:
    """Return the ranks of scores [records] in the strata that hold both kinds of records."""
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
        parts.append((Records(public.x[:MOST_PUBLIC], public.y[:MOST_PUBLIC]), False, client))
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


def record_variances(context: CaseContext, guess: Scored) -> dict[str, float]:
    """Return by metric the variance of the score if its records were independent; absent where that is not known."""
    truth, client, seats = context.truth, context.client, context.part.seats
    means, records = guess.scores.means, guess.scores.records
    if guess.evidence.kind == "membership":
        _, member = membership_records(truth, client, seats)
        inside, outside = int(member.sum()), int((~member).sum())
        known = {"auc": (inside + outside + 1) / (12 * inside * outside), **dict.fromkeys(RATES, EVEN / inside)}
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
