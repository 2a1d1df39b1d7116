"""What the journals of an audit's folder hold."""

from __future__ import annotations

from pathlib import Path

from fedxray.audit.run.journal import Entry
from fedxray.audit.run.store import Store


def case_entries(folder: Path) -> dict[str, Entry]:
    """The places of all cases; a case that is written again gets another one."""
    cases = Store(folder).cases
    return {key: cases.entries[key] for key in cases.all_keys()}


def stored_evidence(folder: Path, start: str = "") -> dict[str, bytes]:
    """The evidence under all keys with that start."""
    evidence = Store(folder).evidence
    return {key: evidence.read(key) or b"" for key in evidence.all_keys() if key.startswith(start)}
