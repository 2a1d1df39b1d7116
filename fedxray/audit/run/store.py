"""The folder of an audit: results that may be shared at the top, everything private below private/.

Files are written as a whole or not at all; cases and evidence are entries of journals. A lock keeps other processes
out, `purge` deletes the private part.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fedxray.audit.judge import results
from fedxray.audit.run.journal import Journal, journal
from fedxray.errors import BadInput, printable
from fedxray.files import (
    LOCK,
    TEMPORARY,
    fault,
    is_unfinished,
    locked,
    parse_json,
    read_object,
    readers_of,
    room_for,
    sync_folder,
    sync_tree,
    write_whole,
)

if TYPE_CHECKING:
    from torch import Tensor

# The files of an audit

FORMAT = 5  # raised whenever draws, identities or files change, so that no audit mixes two of them
MARKER = "audit.json"  # marks the folder of an audit, and names its plan
PLAN, RESULTS, REPORT, GALLERY, LOG = "plan.toml", "results.json", "report.html", "gallery.json", "log"
PRIVATE = "private"
LOOKS = "looks.json"  # how often the results were judged, with how many seeds
RECORDS = "records.json"  # in the private part: digests of the user's own records
FOLDERS = ("runs", "cases", "evidence")


@dataclass(frozen=True)
class Store:
    """The files of one audit, each written as a whole or not at all, and when its time is over by time.time()."""

    folder: Path
    until: float = math.inf

    @property
    def private(self) -> Path:
        """The folder of tensors, transcripts and cases, readable by the owner alone."""
        return self.folder / PRIVATE

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Hold a block that works in the folder; where that is not there, or no longer, this is its only error."""
        try:
            self._check_there()
            yield
        except Exception:
            self._check_there()
            raise

    def _check_there(self) -> None:
        if not all((self.private / name).is_dir() for name in FOLDERS):
            raise BadInput(
                "--out",
                expected="a folder that stays, and that every worker sees",
                got=f"{self.folder}, which is not there on {platform.node() or 'a worker'}: deleted, or not shared",
                remedy="Leave it alone during the audit; with several nodes choose storage that they share.",
            ) from None

    def run_folder(self, run: str) -> Path:
        """Return the folder of a finished run."""
        return self.private / "runs" / run

    def has_run(self, run: str) -> bool:
        """Return whether that run is finished."""
        return self.run_folder(run).is_dir()

    @contextmanager
    def new_run(self, run: str) -> Iterator[Path]:
        """Yield an empty folder that becomes the run's when the block succeeds, and is removed otherwise."""
        part = self.private / "runs" / f"{TEMPORARY}{uuid4().hex}"
        try:
            with room_for(f"run {run}"):
                part.mkdir(mode=0o700)
                fault("run started")
                yield part
                fault("run written")
                sync_tree(part)
            fault("run synced")
            if not self.has_run(run):
                part.rename(self.run_folder(run))
        finally:
            shutil.rmtree(part, ignore_errors=True)
        sync_folder(self.private / "runs")
        fault("run in place")

    def remove_run(self, run: str) -> None:
        """Remove a finished run at once and as a whole, so that it is simulated again."""
        if self.has_run(run):
            part = self.private / "runs" / f"{TEMPORARY}{uuid4().hex}"
            self.run_folder(run).rename(part)
            shutil.rmtree(part, ignore_errors=True)

    def write_lost_run(self, run: str, reason: str, trace: str, status: str = "failed") -> None:
        """Store why a run could not be simulated, and the status of its cases."""
        _write_json(self._lost(run), {"reason": reason, "traceback": trace, "status": status}, "lost run")

    def lost_run(self, run: str) -> dict[str, Any] | None:
        """Return why a run could not be simulated, None where it did not fail."""
        path = self._lost(run)
        if not path.is_file():
            return None
        return {"reason": "unknown", "status": "failed"} | read_object(
            path, remedy=f"Remove this file. {results.RESUME}"
        )

    def forget_lost_run(self, run: str) -> None:
        """Let a failed run be tried again."""
        self._lost(run).unlink(missing_ok=True)

    @property
    def cases(self) -> Journal:
        """How cases ended, by their ids."""
        return journal(self.private / "cases")

    @property
    def evidence(self) -> Journal:
        """Answers of attacks, by their keys."""
        return journal(self.private / "evidence")

    def share_journals(self) -> None:
        """Choose the files of this process, so that its forks write the same ones."""
        for name in ("cases", "evidence"):
            journal(self.private / name)

    def has_case(self, case: str) -> bool:
        """Return whether that case has ended."""
        return self._case(case) is not None

    def write_case(self, case: str, document: Mapping[str, Any]) -> None:
        """Store how a case ended."""
        self.cases.write(case, [_json(document)], "case")

    def read_case(self, case: str) -> dict[str, Any]:
        """Return how a case ended."""
        ended = self._case(case)
        if ended is None:
            got = "none that is complete"
            raise BadInput(f"case {case}", expected="its stored outcome", got=got, remedy=results.RESUME)
        return ended

    def _case(self, case: str) -> dict[str, Any] | None:
        """Return how a case ended, None where that is not stored or does not fit: it is computed again."""
        content = self.cases.read(case)
        try:
            ended: Any = None if content is None else parse_json(content)
        except (ValueError, RecursionError):
            return None
        fits = results.misfit(ended, results.schema()["$defs"]["case"]) is None
        return ended if fits and ended["id"] == case else None

    def save_evidence(self, key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Store tensors and plain facts under a key; one that is lost is computed again, so it is not synced."""
        from safetensors.torch import save

        content = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
        self.evidence.write(key, [_json(facts), content], "evidence", lasting=False)

    def load_evidence(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and facts of a key, None where they are missing, incomplete or of another form."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        stored = self.evidence.read(key)
        if stored is None:
            return None
        facts, _, content = stored.partition(b"\n")
        try:
            return load(content), parse_json(facts)
        except (ValueError, RecursionError, SafetensorError):
            return None

    def write_results(self, document: Mapping[str, Any]) -> None:
        """Write results.json."""
        results.write(document, self.folder)

    def write_galleries(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Store example records for the report: of public data at the top, the others in the private part."""
        for file, private in ((self.folder / GALLERY, False), (self.private / GALLERY, True)):
            chosen = [entry for entry in entries if bool(entry.get("private")) is private]
            if chosen:
                _write_json(file, chosen, "gallery")

    def write_looks(self, looks: Sequence[Mapping[str, Any]]) -> None:
        """Store the looks so far."""
        _write_json(self.folder / LOOKS, {"looks": list(looks)}, "looks")

    def write_plan(self, content: bytes, name: str = PLAN) -> None:
        """Store a copy of a plan."""
        write_whole(self.folder / name, content, "plan")

    def log(self, line: str) -> None:
        """Add a line with the time to the log; it may be shared, so it holds nothing private."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        opener = partial(os.open, mode=readers_of(self.folder))
        with room_for("the log"), open(self.folder / LOG, "a", encoding="utf-8", opener=opener) as stream:
            stream.write(f"{now}Z {printable(line)}\n")

    def _lost(self, run: str) -> Path:
        return self.private / "runs" / f"{run}.lost.json"


@contextmanager
def open_store(
    folder: Path, digest: str, *, resume: bool = False, kind: str = "audit", records: Mapping[str, str] | None = None
) -> Iterator[Store]:
    """Open the store of a plan, new or resumed, for this process alone.

    `digest` is that of the plan, `records` those of the user's own files by the plan's keys.
    """
    check_folder(folder, digest, resume=resume, kind=kind, records=records)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _not_usable(folder, "a file is in the way") from None
    with locked(folder):
        check_folder(folder, digest, resume=resume, kind=kind, records=records)
        store = Store(folder.absolute())  # a worker may have another working directory
        _set_up(store, digest, kind, records)
        for entries in (store.cases, store.evidence):
            if lost := entries.unread():
                store.log(
                    f"{PRIVATE}/{entries.folder.name}: {lost} bytes hold no entry; what they held is computed again"
                )
        with store.reachable():
            yield store


def check_folder(
    folder: Path, digest: str, *, resume: bool = False, kind: str = "audit", records: Mapping[str, str] | None = None
) -> None:
    """Refuse a folder of other files, of another audit or of other records, or this one without --resume."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise _not_usable(folder, "a file")
    held = sorted(entry.name for entry in folder.iterdir() if entry.name != LOCK and not is_unfinished(entry.name))
    if not held:
        return
    if MARKER not in held:
        raise _not_usable(folder, f"a folder with other files ({held[0]})")
    if (folder / PRIVATE).is_symlink():
        raise _not_usable(folder, f"a folder whose {PRIVATE} is a symbolic link")
    marker = read_marker(folder)
    if marker.get("kind") != kind or marker.get("plan") != digest:
        raise _not_usable(folder, f"the folder of another {marker.get('kind', 'audit')} (its plan differs)")
    check_format(folder, marker)
    if not resume:
        remedy = "Continue with --resume, or choose another --out."
        raise BadInput("--out", expected="a new folder", got=f"{folder}, which holds this audit already", remedy=remedy)
    if records:
        _check_records(folder, records)


def check_format(folder: Path, marker: Mapping[str, Any]) -> None:
    """Refuse the folder of an audit by another version."""
    if marker.get("format") != FORMAT:
        raise _not_usable(folder, f"an audit of format {marker.get('format')}, this is {FORMAT}: draws or files differ")
    if marker.get("version") != version("fedxray"):
        raise _not_usable(folder, f"an audit by fedxray {marker.get('version')}, this is {version('fedxray')}")


def _check_records(folder: Path, records: Mapping[str, str]) -> None:
    """Refuse to resume with records or priors that have changed; after a purge there is nothing to compare with."""
    stored = folder / PRIVATE / RECORDS
    before = read_object(stored, remedy=results.AGAIN).get("sha256") if stored.is_file() else records
    if before == records or not isinstance(before, dict):  # an older audit has one digest of them all
        return
    changed = [key for key in {**before, **records} if before.get(key) != records.get(key)]
    expected, got = "what this audit began with", "contents that have changed since"
    raise BadInput(", ".join(changed), expected=expected, got=got, remedy="Put the old back, or choose another --out.")


def read_looks(folder: Path) -> list[dict[str, Any]]:
    """Return the looks at the results so far: the number of seeds, and the part of the error that each spent."""
    path = folder / LOOKS
    return list(read_object(path, remedy=results.AGAIN)["looks"]) if path.is_file() else []


def read_marker(folder: Path) -> dict[str, Any]:
    """Return the marker of an audit's folder; BadInput where it is none."""
    path = folder / MARKER
    if not path.is_file():
        raise BadInput("DIR", expected="the folder of an audit", got=folder, remedy="Check the path.")
    return read_object(path, remedy=results.AGAIN)


def _set_up(store: Store, digest: str, kind: str, records: Mapping[str, str] | None) -> None:
    """Write the marker first, so that an audit killed here can be resumed; then make the private folders."""
    ours = (store.folder / MARKER).is_file()
    if not ours:
        marker = {"format": FORMAT, "kind": kind, "plan": digest, "version": version("fedxray")}
        _write_json(store.folder / MARKER, marker, "marker")
    store.private.mkdir(mode=0o700, exist_ok=True)
    if os.name == "posix":
        store.private.chmod(0o700)
    if records:  # not in the marker, which may be shared: a digest confirms a guess
        _write_json(store.private / RECORDS, {"sha256": dict(records)}, "records")
    folders = [store.private / name for name in FOLDERS]
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)
    _remove_unfinished([store.folder, *folders] if ours else folders)


def _remove_unfinished(folders: Sequence[Path]) -> None:
    """Remove files that a killed audit left unfinished."""
    for folder in folders:
        for left in [entry for entry in folder.iterdir() if is_unfinished(entry.name)]:
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _not_usable(folder: Path, got: str) -> BadInput:
    expected = "a new or empty folder, or this audit's own with --resume"
    return BadInput("--out", expected=expected, got=f"{folder}: {got}", remedy="Choose another --out.")


def _write_json(path: Path, document: Mapping[str, Any] | Sequence[Any], what: str) -> None:
    write_whole(path, _json(document), what, fault)


def _json(document: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return (json.dumps(document, allow_nan=False) + "\n").encode("ascii")


# Deleting: the private part of an audit, or everything of an earlier demo


def purge(folder: Path) -> bool:
    """Delete private/ of an audit and nothing else; False where there is none."""
    read_marker(folder)
    private = folder / PRIVATE
    if private.is_symlink():
        remedy = "Delete what it points to yourself."
        raise BadInput(str(private), expected="a folder", got="a symbolic link", remedy=remedy)
    if not private.is_dir():
        return False
    with locked(folder):
        shutil.rmtree(private)  # does not follow symbolic links
        sync_folder(folder)
    return True


def clear(folder: Path, kind: str) -> None:
    """Empty a folder of that kind (a demo), so that it can be written again."""
    if not (folder / MARKER).is_file() or read_marker(folder).get("kind") != kind:
        return
    purge(folder)
    with locked(folder):
        for plan in folder.glob("plan*.toml"):
            plan.unlink()
        for name in (RESULTS, REPORT, GALLERY, LOG, LOOKS, MARKER):
            (folder / name).unlink(missing_ok=True)
