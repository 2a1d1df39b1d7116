"""Flight prices in India: the stand-in for the private prices of the paper on local model reconstruction."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib

import numpy as np

from fedxray.data.checks import whole_number
from fedxray.data.columns import make_table
from fedxray.data.images import name_owners, number_owners
from fedxray.data.limits import check_size, read_bytes
from fedxray.data.space import Dataset
from fedxray.data.store import as_columns, locate, wrong_content

ROWS = 300_153


def flights(
    *, rows: int = 30_000, sensitive: str | None = "class", scale_target: bool | None = None
) -> Dataset:
    """Eight features of a ticket to its price; airlines are the owners; a fixed random sample of `rows` rows.

    There is no trip type, so the sensitive attribute is the class (economy or business), or `stops`.
    """
    whole_number("rows", rows, least=10, most=ROWS)
    lines = _lines()
    if len(lines) != ROWS + 1:
        raise wrong_content("flights", f"{ROWS} rows", f"{len(lines) - 1} rows")
    chosen = np.sort(np.random.RandomState(0).permutation(ROWS)[:rows])
    header = lines[0].split(",")
    raw = as_columns("flights", header, list(csv.reader(lines[row + 1] for row in chosen)))
    for name in ("duration", "days_left", "price"):
        raw[name] = raw[name].astype(np.float64)
    raw.pop(header[0])
    return make_table(
        "flights",
        raw,
        target="price",
        classification=False,
        continuous=("duration", "days_left"),
        categorical=("source_city", "departure_time", "stops", "arrival_time", "destination_city", "class"),
        sensitive=sensitive,
        scale_target=scale_target is None or scale_target,
        owner=number_owners(raw["airline"]),
        owners=name_owners(raw["airline"]),
        note="Stand-in: Indian flight prices in rupees (public table), not the private prices of the paper.",
    )


def _lines() -> list[str]:
    content = read_bytes(locate("flights", "flights/Clean_Dataset.csv.zip"))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            member = archive.getinfo("Clean_Dataset.csv")
            check_size("flights, unpacked", member.file_size)
            return archive.read(member).decode("ascii").splitlines()
    except (zipfile.BadZipFile, zlib.error, KeyError, UnicodeDecodeError) as problem:
        raise wrong_content("flights", "a zip file with Clean_Dataset.csv", problem) from problem
