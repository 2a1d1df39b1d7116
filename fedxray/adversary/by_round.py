"""What the auditor tells by round: the order in which a client used its records, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from fedxray.errors import BadInput
from fedxray.federation.norm_statistics import statistics_of_round
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.models.inspect import has_batch_norm


def _rounds(truth: Truth, transcript: Transcript | None) -> Iterable[int]:
    """All rounds of a run; of a recording those that it holds, since the number of its last is a stranger's word."""
    return range(truth.rounds) if transcript is None or not transcript.recorded else transcript.rounds()


def _batch_labels(
    truth: Truth, client: int, transcript: Transcript | None
) -> dict[int, tuple[torch.Tensor, ...]]:
    y, found = truth.train[client].y, {}
    for round in _rounds(truth, transcript):
        schedule = truth.schedule(client, round)
        found[round] = tuple(y[schedule.used(step)] for step in range(schedule.steps))
    return found


def _bn_statistics(
    truth: Truth, client: int, transcript: Transcript | None
) -> dict[int, dict[str, torch.Tensor]]:
    """By recorded round, from the model that the client was sent in it."""
    if transcript is None or not has_batch_norm(truth.model):
        expected = "for bn-statistics a network with BatchNorm and the transcript of its run"
        lacking = ("no transcript", "Call disclose(..., transcript=transcript).")
        got, remedy = lacking if transcript is None else ("a network without BatchNorm", "Leave it out.")
        raise BadInput("grants", expected=expected, got=got, remedy=remedy)
    sent = {
        one.round: one.parts for one in transcript.messages if (one.what, one.client) == ("broadcast", client)
    }
    records = truth.train[client]
    return {
        round: statistics_of_round(
            truth.model, truth.recipe, records, transcript.shelf.get(parts), truth.schedule(client, round)
        )
        for round, parts in sent.items()
    }


def _order(truth: Truth, client: int, transcript: Transcript | None) -> dict[int, torch.Tensor]:
    return {round: truth.schedule(client, round).index for round in _rounds(truth, transcript)}


BY_ROUND: dict[str, Callable[[Truth, int, Transcript | None], Any]] = {
    "batch-labels": _batch_labels,
    "bn-statistics": _bn_statistics,
    "oracle-order": _order,
}
