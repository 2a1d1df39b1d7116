"""What a run is worth to those who train: the final model on records that nobody trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fedxray.attacks.predict import outputs
from fedxray.audit.judge import results
from fedxray.audit.judge.statistics import interval
from fedxray.data.dataset import union
from fedxray.errors import BadInput
from fedxray.federation.round_loop import client_states
from fedxray.federation.setting import Federation, rounds_worked
from fedxray.federation.transcript import Message, Parts, Transcript
from fedxray.federation.truth import Truth
from fedxray.files import read_json
from fedxray.losses import example_loss
from fedxray.metrics.models import relative_error

# --- What a defence promises each client: reckoned once per run and kept beside it, anew where more rounds
# were spent.


PRIVACY = "privacy.json"
REMEDY = "Remove the folder of this run and go on with --resume, or choose another --out."

Told = dict[str, Any]  # epsilon, delta, noise_multiplier, rate, steps, accountant, note, rounds


def promised(federation: Federation, client: int, rounds: int) -> Told | None:
    """The promise to the records of one client after so many rounds of work; None where none is made."""
    privacy = federation.defence.seams(federation.work(client)).privacy
    return None if privacy is None else {**asdict(privacy(rounds)), "rounds": rounds}


def write_promises(folder: Path, federation: Federation, seed: int) -> None:
    """Keep what is promised to every client after the rounds it took part in, if anything is."""
    rounds = rounds_worked(federation, seed)
    found = [promised(federation, client, worked) for client, worked in enumerate(rounds)]
    if any(told is not None for told in found):
        (folder / PRIVACY).write_text(json.dumps(found, allow_nan=False))


def promise_kept(folder: Path, federation: Federation, client: int | None, rounds_spent: int) -> Told | None:
    """What is promised to a client in a case: every executed step counts, those for a tampering server too.

    Where a case is about everyone it is the weakest promise that any of them was given.
    """
    if client is None:
        return worst_promise([folder])
    kept = _read(folder)
    told = kept[client] if client < len(kept) else None
    if told is None or not rounds_spent:
        return told
    return promised(federation, client, told["rounds"] + rounds_spent)


def worst_promise(folders: Sequence[Path]) -> Told | None:
    """The weakest promise over all clients of these runs: the largest epsilon, or none at all."""
    found = [told for folder in folders for told in _read(folder)]
    known = [told for told in found if told is not None]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda told: (told["epsilon"] is None, told["epsilon"] or 0.0))


def privacy_words(told: Mapping[str, Any]) -> str:
    """Delta and what the number rests on, beside an epsilon."""
    parts = [f"delta {told['delta']:g}", f"accountant {told['accountant']}", told["note"]]
    return ", ".join(part for part in parts if part)


def _read(folder: Path) -> list[Told | None]:
    path = folder / PRIVACY
    if not path.is_file():
        return []
    found = read_json(path, remedy=REMEDY)
    if not isinstance(found, list):
        raise BadInput(str(path), expected="a list", got=type(found).__name__, remedy=REMEDY)
    for told in found:
        if told is not None:
            results.check_part(told, "privacy", path, REMEDY)
    return found


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
