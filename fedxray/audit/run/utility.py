"""Utility and privacy budget of a run: the final model on held-out records, and the (epsilon, delta) of its defence."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fedxray.audit.accounting import claim_rows
from fedxray.audit.judge import results
from fedxray.audit.judge.claims import Row
from fedxray.audit.judge.results import GUESS
from fedxray.data.dataset import union
from fedxray.errors import BadInput
from fedxray.federation.round_loop import client_states
from fedxray.federation.setting import Federation, rounds_worked
from fedxray.federation.transcript import Message, Parts, Transcript
from fedxray.federation.truth import Truth
from fedxray.files import read_json
from fedxray.losses import example_loss, in_eval_mode, outputs
from fedxray.metrics.models import relative_error
from fedxray.params import parameters_of

# The privacy promise of a defence to each client: computed once per run, and again where an attack spent more rounds

PRIVACY, CLAIMS = "privacy.json", "claims.json"
REMEDY = "Remove the folder of this run and continue with --resume, or choose another --out."

Promise = dict[str, Any]  # epsilon, delta, noise_multiplier, rate, steps, accountant, note, rounds


def promised(federation: Federation, client: int, rounds: int) -> Promise | None:
    """Return the promise to the records of one client after `rounds` of its work; None where none is made."""
    privacy = federation.defence.hooks(federation.work(client)).privacy
    return None if privacy is None else {**asdict(privacy(rounds)), "rounds": rounds}


def write_promises(folder: Path, federation: Federation, seed: int) -> None:
    """Store the promise to every client after the rounds it took part in, where any is made."""
    rounds = rounds_worked(federation, seed)
    promises = [promised(federation, client, worked) for client, worked in enumerate(rounds)]
    if any(promise is not None for promise in promises):
        (folder / PRIVACY).write_text(json.dumps(promises, allow_nan=False))
    _write_claims(folder, federation, max(rounds))


def _write_claims(folder: Path, federation: Federation, rounds: int) -> None:
    """Store the claims of a run's defence, where it makes any."""
    kept = federation.kept().params
    numbers = sum(value.numel() for name, value in parameters_of(federation.model).items() if name not in kept)
    claims = claim_rows(federation.defence, worst_promise([folder]), rounds, numbers)
    if claims:
        (folder / CLAIMS).write_text(json.dumps(results.plain(claims, "claims"), allow_nan=False))


def worst_claims(defence: str, folders: Sequence[Path]) -> list[Row]:
    """Return the weakest claim of these runs of a defence for each unit of protection, as rows of results.json."""
    paths = [path for folder in folders if (path := folder / CLAIMS).is_file()]
    weakest: dict[str, Row] = {}
    for path in paths:
        for claim in _list_of(path, "claim"):
            known = weakest.setdefault(claim["unit"], claim)
            weakest[claim["unit"]] = max(known, claim, key=lambda row: _size(row["accounted"]))
    return [claim | {"defence": defence} for claim in weakest.values()]


def _size(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


def promise_kept(folder: Path, federation: Federation, client: int | None, rounds_spent: int) -> Promise | None:
    """Return the promise to a client in a case: every executed step counts, those for a tampering server too.

    Where a case is about all clients it is the weakest promise to any of them.
    """
    if client is None:
        return worst_promise([folder])
    promises = _read(folder)
    promise = promises[client] if client < len(promises) else None
    if promise is None or not rounds_spent:
        return promise
    return promised(federation, client, promise["rounds"] + rounds_spent)


def worst_promise(folders: Sequence[Path]) -> Promise | None:
    """Return the weakest promise over all clients of these runs: the largest epsilon, None where one has none."""
    promises = [promise for folder in folders for promise in _read(folder)]
    made = [promise for promise in promises if promise is not None]
    if not made or len(made) < len(promises):
        return None
    return max(made, key=lambda promise: _size(promise["epsilon"]))


def _read(folder: Path) -> list[Promise | None]:
    path = folder / PRIVACY
    return _list_of(path, "privacy") if path.is_file() else []


def _list_of(path: Path, part: str) -> list[Any]:
    """Return a checked list of a run's folder."""
    entries = read_json(path, remedy=REMEDY)
    if not isinstance(entries, list):
        raise BadInput(str(path), expected="a list", got=type(entries).__name__, remedy=REMEDY)
    for entry in entries:
        if entry is not None or part != "privacy":  # a client without a promise
            results.check_part(entry, part, path, REMEDY)
    return entries


# Utility


def utility_of(transcript: Transcript, truth: Truth) -> dict[str, float]:
    """Return loss and accuracy (or mean absolute percentage error, of positive targets) on all held-out records.

    Where clients keep a part of the model to themselves, the records of each are predicted by its own.
    """
    records = union(truth.holdout)
    ends = [message for message in transcript.messages if message.what == "outcome"]
    if not len(records) or not ends:  # a recording need not hold the final model
        return {}
    return _quality(_predicted(transcript, truth, max(ends, key=lambda message: message.round)), truth)


def guess_of(truth: Truth) -> dict[str, float]:
    """Return the same of one constant prediction for all held-out records: their class frequencies or mean target."""
    y = union(truth.holdout).y
    if not len(y):
        return {}
    classes = truth.space.target == "classification"
    constant = torch.bincount(y).double().log() if classes else y.double().mean(0, keepdim=True)
    return {f"{metric}{GUESS}": value for metric, value in _quality(constant.expand(len(y), -1), truth).items()}


def _quality(predicted: torch.Tensor, truth: Truth) -> dict[str, float]:
    """Return the scores of outputs for all held-out records, [records, outputs]."""
    records = union(truth.holdout)
    scores = {"loss": float(example_loss(truth.recipe.loss)(predicted, records.y).mean())}
    if truth.space.target == "classification":
        scores["accuracy"] = float((predicted.argmax(-1) == records.y).to(torch.float64).mean())
    else:
        error = relative_error(predicted[:, 0], records.y, truth.space)
        scores |= {} if error is None else {"mape": error}
    return scores


def _predicted(transcript: Transcript, truth: Truth, end: Message) -> torch.Tensor:
    """Return the outputs of each client's final model on its held-out records, client by client, [records, outputs]."""
    final = transcript.shelf.get(end.parts)
    own = client_states(transcript, truth.kept(), end.round)
    predicted, network = [], in_eval_mode(truth.model)  # copied once, not for every client
    for client, records in enumerate(truth.holdout):
        if len(records):
            mine = own.get(client, Parts({}))
            params, buffers = {**final.params, **mine.params}, mine.buffers or final.buffers
            predicted.append(outputs(network, params, buffers, records.x))
    return torch.cat(predicted)
