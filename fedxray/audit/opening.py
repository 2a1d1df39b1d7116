"""Runs that are kept: put in place with a proof, opened once for all of their cases, never trusted when altered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fedxray.audit.cases import Case
from fedxray.audit.plan import Plan
from fedxray.audit.plant import prepare_for
from fedxray.audit.prepare import Prepared
from fedxray.audit.store import Store
from fedxray.errors import BadInput
from fedxray.federation.folder import read_transcript
from fedxray.federation.index import INDEX, Damaged
from fedxray.federation.setting import Federation, recorded_rounds
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.files import read_object

TRANSCRIPT, PROOF = "transcript", "proof.json"
MADE_AGAIN = "The run was removed; --resume makes it again."

Opened = tuple[Prepared, Transcript, Truth]


def write_proof(folder: Path) -> None:
    """Keep the checksum of a run's index, which holds those of its tensors."""
    (folder / PROOF).write_text(json.dumps({"sha256": _digest(folder / TRANSCRIPT / INDEX)}))


def opened(plan: Plan, case: Case, store: Store) -> Opened:
    """The run of a case; the last one stays open, since cases of one run follow each other."""
    folder = store.run_folder(case.run)
    key = (plan.digest(), str(folder))
    if key not in _open_run:
        _open_run.clear()
        prepared = prepare_for(plan, case)
        federation = prepared.federation
        transcript = open_run(folder, federation, recorded=prepared.recorded is not None)
        _open_run[key] = prepared, transcript, federation.truth(case.seed)
    return _open_run[key]


_open_run: dict[tuple[str, str], Opened] = {}


def discard(case: Case, store: Store) -> None:
    """Remove the run of a case and forget that it was open."""
    _open_run.clear()
    store.remove_run(case.run)


def open_run(folder: Path, federation: Federation, *, recorded: bool = False) -> Transcript:
    """The transcript of a run, refused where it is not the one that was put in place or not of this federation."""
    if not folder.is_dir():
        raise _damaged(folder, "a finished run", "none: it was removed")
    try:
        proof = read_object(folder / PROOF).get("sha256")
        found = _digest(folder / TRANSCRIPT / INDEX)
        if proof != found:
            raise _damaged(folder, "the index that was written", "another one: it was altered")
        transcript = read_transcript(folder / TRANSCRIPT, model=federation.model, space=federation.space)
    except Damaged:
        raise
    except BadInput as problem:
        raise Damaged(
            problem.argument, expected=problem.expected, got=problem.got, remedy=problem.remedy
        ) from problem
    except OSError as problem:
        raise _damaged(folder, "readable files", str(problem)) from problem
    _check_belongs(folder, transcript, federation, recorded)
    return transcript


def _check_belongs(folder: Path, transcript: Transcript, federation: Federation, recorded: bool) -> None:
    pairs = {
        "loss": (federation.recipe.loss, transcript.loss),
        # In a recording a fellow client stands beside the node.
        "clients": (len(federation.clients) + recorded, transcript.clients),
        "secure_aggregation": (federation.secure_aggregation, transcript.secure_aggregation),
        "rounds": (sorted(recorded_rounds(federation.record, federation.rounds)), transcript.rounds()),
        "recorded": (recorded, transcript.recorded),
    }
    for name, (wanted, found) in pairs.items():
        if wanted != found:
            raise _damaged(folder, f"{name} = {str(wanted)[:80]} as in the plan", str(found)[:80])


def _damaged(folder: Path, expected: str, got: str) -> Damaged:
    return Damaged(f"run {folder.name}", expected=expected, got=got, remedy="Leave the files of runs alone.")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
