"""What a run is worth to those who train: the final model on records that nobody trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedxray.attacks.predict import outputs
from fedxray.audit.privacy import privacy_words
from fedxray.audit.statistics import interval
from fedxray.data.records import union
from fedxray.federation.message import Message
from fedxray.federation.round_loop import client_states
from fedxray.federation.transcript import Parts, Transcript
from fedxray.federation.truth import Truth
from fedxray.losses import example_loss
from fedxray.metrics.models import relative_error


def utility_of(transcript: Transcript, truth: Truth) -> dict[str, float]:
    """Loss and accuracy (or mean absolute percentage error, of positive targets) on all held-out records.

    Where clients keep a part of the model to themselves, the records of each go through its own.
    """
    records = union(truth.holdout)
    ends = [message for message in transcript.messages if message.what == "outcome"]
    if not len(records) or not ends:  # a recording need not hold the final model
        return {}
    predicted = _predicted(transcript, truth, max(ends, key=lambda message: message.round))
    found = {"loss": float(example_loss(truth.recipe.loss)(predicted, records.y).mean())}
    if truth.space.target == "classification":
        found["accuracy"] = float((predicted.argmax(-1) == records.y).to(torch.float64).mean())
    else:
        off = relative_error(predicted[:, 0], records.y, truth.space)
        found |= {} if off is None else {"mape": off}
    return found


def _predicted(transcript: Transcript, truth: Truth, end: Message) -> torch.Tensor:
    """What each client's final model says of its held-out records, one client after the other, [records, outputs]."""
    final = transcript.shelf.get(end.parts)
    own = client_states(transcript, truth.kept(), end.round)
    found = []
    for client, records in enumerate(truth.holdout):
        if len(records):
            mine = own.get(client, Parts({}))
            params, buffers = {**final.params, **mine.params}, mine.buffers or final.buffers
            found.append(outputs(truth.model, params, buffers, records.x))
    return torch.cat(found)


def utility_rows(
    defences: Sequence[str],
    seeds: Sequence[int],
    found: Mapping[tuple[str, int], Mapping[str, float | None]],
    promises: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> list[dict[str, Any]]:
    """One row per defence and metric over the seeds, with its interval and the weakest promise of privacy."""
    rows = []
    for defence in defences:
        promise = (promises or {}).get(defence)
        metrics = dict.fromkeys(metric for seed in seeds for metric in found.get((defence, seed), {}))
        for metric in metrics:
            per_seed = [found.get((defence, seed), {}).get(metric) for seed in seeds]
            values = [value for value in per_seed if value is not None]  # None: it was not finite
            spread = interval(values, list(range(len(values)))) if values else None
            rows.append(
                {
                    "defence": defence,
                    "metric": metric,
                    "value": spread and spread.mean,
                    "low": spread and spread.low,
                    "high": spread and spread.high,
                    "n": len(values),
                    "epsilon": promise and promise["epsilon"],
                    **({} if promise is None else {"privacy": privacy_words(promise)}),
                }
            )
    return rows
