"""Joins tables that were measured apart: python docs/join.py docs/results/NAME.json FOLDER_OR_FILE [...].

The first is written; it is among what is joined where it is there already. Folders are those of `fedxray reproduce`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedxray.errors import BadInput
from fedxray.reproduce.base import find
from fedxray.reproduce.document import read, write_as
from fedxray.reproduce.joined import joined


def main(target: Path, *sources: Path) -> None:
    """Write the joined document."""
    parts = [read(one) for one in ([target] if target.is_file() else []) + list(sources)]
    whole = joined(find(parts[0]["name"]), parts)
    write_as(whole, target)
    print(f"{target}: {len(whole['rows'])} numbers, {len(whole['differences'])} differences")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        main(*map(Path, sys.argv[1:]))
    except BadInput as error:
        sys.exit(str(error))
