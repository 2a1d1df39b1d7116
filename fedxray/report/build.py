"""The report of an audit from its results and nothing else: one HTML file, the same as Markdown, figures as files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fedxray.audit.judge.results import read_results
from fedxray.errors import BadInput, unknown_name
from fedxray.files import write_whole
from fedxray.report import setup, words
from fedxray.report.attacks import attack_sections, tradeoffs
from fedxray.report.charts import FORMATS, Drawing, as_file, on_page
from fedxray.report.curves import courses, left_over, studies
from fedxray.report.gallery import Exhibition, kinds_of, read_galleries, walls
from fedxray.report.overview import defence_verdicts, notices, overall, recorded_notice, worst_findings
from fedxray.report.setup import references
from fedxray.report.where import by_round, leaking_places, power_lines
from fedxray.report.words import METHOD, escaped, strong, strong_text, verbatim

# --- The charts of a report as files: SVG for the web, PDF for papers, PNG for slides.


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


REPORT, TEXT = "report.html", "report.md"
TEMPLATES = files("fedxray.report").joinpath("templates")


def build_report(folder: Path, *, show_private: bool = False, formats: Sequence[str] = ("svg",)) -> Path:
    """Write report.html, report.md and figures/ of an audit's folder and say where the first is.

    With show_private the page holds private records, so it alone is written, into the folder's private part.
    """
    for one in formats:
        if one not in FORMATS:
            raise unknown_name("--figures", one, FORMATS)
    document = read_results(folder)
    if show_private and (folder / "private").is_symlink():
        raise BadInput(
            str(folder / "private"),
            expected="a folder",
            got="a symbolic link",
            remedy="Put the folder itself there.",
        )
    exhibition = read_galleries(folder, show_private=show_private, kinds=kinds_of(document))
    told = contents(document, exhibition, show_private=show_private)
    if show_private:
        (folder / "private").mkdir(mode=0o700, exist_ok=True)
        return _write(folder / "private" / REPORT, render(told))
    write_figures(folder / FOLDER, told["figures"], ("svg", *(one for one in formats if one != "svg")))
    _write(folder / TEXT, render_text(told))
    return _write(folder / REPORT, render(told))


def contents(
    document: Mapping[str, Any], exhibition: Exhibition, *, show_private: bool = False
) -> dict[str, Any]:
    """Everything that a report says, ready to print."""
    cases = document["cases"]
    told = {
        "name": str(document["plan"].get("name") or "audit"),
        "audited": setup.audited(document),
        "tried": setup.tried(document),
        "overall": overall(document),
        "setups": setup.setups(document),
        "defences": defence_verdicts(document),
        "findings": worst_findings(document),
        "notices": notices(document),
        "recorded": recorded_notice(document),
        "attacks": attack_sections(document),
        "places_of_leaks": leaking_places(document),
        "rounds": by_round(document),
        "power": power_lines(document),
        "utility": setup.utility(document),
        "tradeoffs": tradeoffs(document),
        "courses": courses(document),
        "more_courses": left_over(document),
        "studies": studies(document),
        "privacy": setup.privacy(document),
        "budgets": any(row["epsilon"] is not None for row in document["utility"]),
        "exhibition": exhibition,
        "walls": walls(document, exhibition.galleries),
        "ledger": setup.ledger(document),
        "common": setup.common_knowledge(document),
        "failures": setup.failures(document),
        "lost": sum(case["status"] != "ok" for case in cases),
        "cases": len(cases),
        "seeds": list(dict.fromkeys(case["seed"] for case in cases)),
        "references": references(document),
        "plan": setup.pretty(document["plan"]),
        "versions": document["versions"],
        "show_private": show_private,
        "controls": words.CONTROLS,
        "method": METHOD,
        "marks": setup.marks(document),
        "count": words.count,
    }
    return told | {"figures": figures(told)}


def render(told: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = _environment()
    environment.filters |= {"svg": on_page, "strong": strong}
    return environment.get_template("report.html").render(style=Markup(_template("style.css")), **told)


def render_text(told: Mapping[str, Any]) -> str:
    """The same as Markdown, in which no name can be taken for markup."""
    environment = _environment()
    environment.finalize = escaped
    environment.filters |= {"verbatim": verbatim, "strong": strong_text}
    return environment.get_template("report.md").render(**told)


def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _write(target: Path, content: str) -> Path:
    write_whole(target, content.encode("utf-8", errors="replace"), "report")
    return target


def _template(name: str) -> str:
    return TEMPLATES.joinpath(name).read_text(encoding="utf-8")
