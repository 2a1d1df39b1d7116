"""Deleting: the private part of an audit for good, or all that an earlier demo left."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedxray.audit.lock import locked
from fedxray.audit.store import GALLERY, LOG, MARKER, PRIVATE, REPORT, RESULTS, read_marker
from fedxray.errors import BadInput
from fedxray.files import sync_folder


def purge(folder: Path) -> bool:
    """Delete private/ of an audit and nothing else; False where there is none."""
    read_marker(folder)
    private = folder / PRIVATE
    if private.is_symlink():
        raise BadInput(
            str(private),
            expected="a folder",
            got="a symbolic link",
            remedy="Delete what it points to yourself.",
        )
    if not private.is_dir():
        return False
    with locked(folder):
        shutil.rmtree(private)  # does not follow symbolic links
        sync_folder(folder)
    return True


def clear(folder: Path, kind: str) -> None:
    """Empty a folder that an earlier run of that kind left, so that it can be written again."""
    if not (folder / MARKER).is_file() or read_marker(folder).get("kind") != kind:
        return
    purge(folder)
    with locked(folder):
        for plan in folder.glob("plan*.toml"):
            plan.unlink()
        for name in (RESULTS, REPORT, GALLERY, LOG, MARKER):
            (folder / name).unlink(missing_ok=True)
