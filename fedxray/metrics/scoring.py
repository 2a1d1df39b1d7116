"""Evidence against the truth: the one place where the two meet."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedxray.adversary.disclose import Rows, membership_records, records_in_question
from fedxray.attacks.evidence import Evidence, model_params, of_model
from fedxray.errors import BadInput
from fedxray.federation.optimum import local_optimum
from fedxray.federation.truth import Truth
from fedxray.metrics.attributes import category_scores, continuous_scores
from fedxray.metrics.images import image_scores
from fedxray.metrics.labels import label_scores
from fedxray.metrics.membership import membership_scores
from fedxray.metrics.models import model_scores
from fedxray.metrics.scores import Scores

MOST_OTHERS = 999  # candidates beside the original in a retrieval
TOLERANCE = 0.1  # of the range of a continuous attribute


def score(
    evidence: Evidence,
    truth: Truth,
    *,
    client: int | None = None,
    seats: tuple[int, ...] = (),
    rows: Rows = "train",
) -> Scores:
    """Scores of a guess about one client's records; by default the client whose messages were read."""
    about = evidence.target if client is None else client
    if evidence.kind not in _BY_KIND:
        raise BadInput(
            "evidence",
            expected=f"one of the kinds {', '.join(_BY_KIND)}",
            got=evidence.kind,
            remedy="Scores of this kind are not built yet.",
        )
    return _BY_KIND[evidence.kind](evidence, truth, about, seats or evidence.seats, rows)


def other_optimum(truth: Truth, client: int) -> Evidence:
    """The next client's own optimum as a guess of this one's: what a model of the wrong client is worth."""
    return of_model(local_optimum(truth, (client + 1) % len(truth.train)))


def _attributes(
    evidence: Evidence, truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows
) -> Scores:
    column = truth.space.column(truth.space.sensitive or "")
    records = records_in_question(truth, client, seats, rows)
    real, guess = records.x[:, list(column.positions)], evidence.tensors["codes"].to(records.x)
    if column.kind == "continuous":
        return continuous_scores(guess[:, 0], real[:, 0], tolerance=TOLERANCE * (column.high - column.low))
    codes = column.candidates(records.x)
    return category_scores(_nearest(guess, codes), _nearest(real, codes))


def _nearest(values: Tensor, codes: Tensor) -> Tensor:
    """The category of every encoding, shape [records]; -1 where a guess is not finite."""
    found = (values[:, None] - codes[None]).abs().sum(-1).argmin(1)
    return torch.where(torch.isfinite(values).all(1), found, -1)


def _membership(
    evidence: Evidence, truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows
) -> Scores:
    _, inside = membership_records(truth, client, seats)
    found = evidence.tensors["scores"]
    return membership_scores(found, inside.to(found.device))


def _images(
    evidence: Evidence, truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows
) -> Scores:
    space, records = truth.space, records_in_question(truth, client, seats, rows)
    guess = space.to_pixels(evidence.tensors["inputs"].to(records.x))
    others = space.to_pixels(_others(truth, client))
    return image_scores(
        guess, space.to_pixels(records.x), recognised_above=space.recognised_above, others=others
    )


def _others(truth: Truth, client: int | None) -> Tensor:
    """Other images of the same data set: public ones, held-out ones, then those of other clients."""
    pools = [truth.public.x, *(records.x for records in truth.holdout)]
    pools += [
        records.x for owner, records in enumerate(truth.train) if client is not None and owner != client
    ]
    return torch.cat(pools)[:MOST_OTHERS]


def _labels(
    evidence: Evidence, truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows
) -> Scores:
    y = records_in_question(truth, client, seats, rows).y
    counts = torch.bincount(y, minlength=len(truth.space.classes))
    return label_scores(evidence.tensors["counts"].to(counts.device), counts)


def _model(
    evidence: Evidence, truth: Truth, client: int | None, seats: tuple[int, ...], rows: Rows
) -> Scores:
    if client is None:
        raise BadInput(
            "client", expected="the client whose model was guessed", got="none", remedy="Name it: client = 0."
        )
    return model_scores(model_params(evidence)[0], local_optimum(truth, client))


_BY_KIND: dict[str, Callable[[Evidence, Truth, int | None, tuple[int, ...], Rows], Scores]] = {
    "attributes": _attributes,
    "membership": _membership,
    "images": _images,
    "labels": _labels,
    "model": _model,
}
