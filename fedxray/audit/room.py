"""Room on the disk: what an audit needs, and whether it is there."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedxray.errors import BadInput


def check_room(folder: Path, needed: int) -> None:
    """Refuse before starting when the disk has too little room."""
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise BadInput(
            "--out",
            expected=f"{megabytes(needed)} of free space",
            got=f"{megabytes(free)} at {place}",
            remedy='Free some space, choose another --out, or record fewer rounds (record = "last").',
        )


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"
