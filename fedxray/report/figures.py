"""The charts of a report as files: SVG for the web, PDF for papers, PNG for slides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput
from fedxray.files import write_whole
from fedxray.report.drawing import Drawing, as_file

FOLDER = "figures"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with the name of its file, without the ending."""

    stem: str
    drawing: Drawing


def figures(told: Mapping[str, Any]) -> dict[str, Figure]:
    """All drawings of a report in their order, by their name; every file has a name of its own."""
    listed = [
        *(("results", chart.drawing) for section in told["attacks"] for chart in section.charts),
        *(("clients", one.drawing) for one in told["places_of_leaks"] if one.drawing is not None),
        *(("rounds", one.drawing) for one in told["rounds"] if one.drawing is not None),
        *(("tradeoff", one.drawing) for one in told["tradeoffs"]),
        *(("loss", one.drawing) for one in told["courses"]),
        *(("search", one.drawing) for one in told["studies"]),
        *(("settings", one.over_settings) for one in told["studies"] if one.over_settings is not None),
    ]
    speaking = {section.anchor: f"{section.attack} {section.role}" for section in told["attacks"]}
    found: dict[str, Figure] = {}
    for number, (kind, drawing) in enumerate(listed, 1):
        about = speaking.get(drawing.name.rpartition("-")[0])
        words = f"{about} {drawing.title.partition(':')[0]}" if about else drawing.title.partition(":")[0]
        found[drawing.name] = Figure(stem=f"{number:02d}-{kind}-{_plain(words)}", drawing=drawing)
    return found


def _plain(text: str) -> str:
    """Small letters, digits and hyphens alone."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:70].rstrip("-") or "figure"


def write_figures(folder: Path, wanted: Mapping[str, Figure], formats: Sequence[str]) -> list[Path]:
    """Write every figure in every format; figures of an earlier report that is gone are removed."""
    if folder.is_symlink() or folder.is_file():
        got = "a symbolic link" if folder.is_symlink() else "a file"
        raise BadInput(str(folder), expected="a folder", got=got, remedy="Move it out of the way.")
    made = []
    if wanted:
        folder.mkdir(exist_ok=True)
    for figure in wanted.values():
        for ending in formats:
            path = folder / f"{figure.stem}.{ending}"
            write_whole(path, as_file(figure.drawing, ending), "figure", lasting=False)
            made.append(path)
    if folder.is_dir():
        for path in folder.iterdir():
            ours = re.fullmatch(
                r"\d{2,}-(results|clients|rounds|tradeoff|loss|search)-[a-z0-9-]+\.(svg|pdf|png)", path.name
            )
            if ours and path not in made and path.is_file():
                path.unlink()
    return made
