"""The report of an audit, made from results.json alone: report.html, report.md, and its charts as files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fedxray.audit.judge.claims import claims_of
from fedxray.audit.judge.results import read_results
from fedxray.errors import BadInput, unknown_name
from fedxray.files import write_whole
from fedxray.report import overview, setup, states, words
from fedxray.report.attacks import attack_sections, tradeoffs
from fedxray.report.charts import FORMATS, Drawing, as_file, on_page
from fedxray.report.curves import curves_left_out, loss_curves, searches
from fedxray.report.gallery import Galleries, gallery_groups, read_galleries
from fedxray.report.roc import roc_curves
from fedxray.report.rows import placed
from fedxray.report.where import breakdowns, by_round, power_lines

REPORT, TEXT, FIGURES = "report.html", "report.md", "figures"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # and directions of text
TEMPLATES = files("fedxray.report").joinpath("templates")


def build_report(
    folder: Path,
    *,
    show_private: bool = False,
    formats: Sequence[str] = ("svg",),
    document: Mapping[str, Any] | None = None,
) -> Path:
    """Write report.html, report.md and figures/ into an audit's folder and return the path of the first.

    With `show_private` only the page is written, since it contains private records, into the folder's private part.
    `formats` are those of figures/; SVG is always among them, since report.md links to it. `document` are the results
    in the folder, where the caller has them already.
    """
    for ending in formats:
        if ending not in FORMATS:
            raise unknown_name("--figures", ending, FORMATS)
    document = placed(read_results(folder) if document is None else document, folder)
    if show_private and (folder / "private").is_symlink():
        raise BadInput(
            str(folder / "private"), expected="a folder", got="a symbolic link", remedy="Put the folder itself there."
        )
    galleries = read_galleries(folder, show_private=show_private, document=document)
    shown = contents(document, galleries, show_private=show_private)
    if show_private:
        (folder / "private").mkdir(mode=0o700, exist_ok=True)
        return write_page(folder / "private" / REPORT, render(shown))
    drawn = figures(shown)
    write_figures(folder / FIGURES, drawn, ("svg", *(ending for ending in formats if ending != "svg")))
    write_page(folder / TEXT, render_text(shown, drawn))
    return write_page(folder / REPORT, render(shown))


def contents(document: Mapping[str, Any], galleries: Galleries, *, show_private: bool = False) -> dict[str, Any]:
    """Return everything that a report shows, ready to print; templates use these names."""
    cases, cards = document["cases"], overview.cards(document)
    headline = overview.overall(cards)[1] if len(cards) > 1 else ""  # of one card the answer says it all
    return {
        "name": str(document["plan"].get("name") or "audit"),
        # The first screen
        "answer": overview.answer(document, cards),
        "headline": headline,
        "strongest": overview.strongest(cards),
        "audited": setup.audited(document),
        "tried": setup.tried(document),
        "recorded": overview.recorded_notice(document),
        "notices": overview.notices(document),
        "cards": cards,
        "meanings": states.MEANINGS,
        "setups": setup.setups(document),
        # Results and where they come from
        "marks": setup.marks(document),
        "attacks": attack_sections(document),
        "roc": roc_curves(document),
        "breakdowns": breakdowns(document),
        "rounds": by_round(document),
        "power": power_lines(document),
        # Utility
        "utility": setup.utility(document),
        "has_epsilon": any(row["epsilon"] is not None for row in document["utility"]),
        "privacy": setup.privacy(document),
        "claims": claims_of(document),
        "tradeoffs": tradeoffs(document),
        # Examples, loss curves and searches
        "galleries": galleries,
        "gallery_groups": gallery_groups(document, galleries.shown),
        "show_private": show_private,
        "out": shlex.quote(str(document.get("out") or "DIR")),
        "curves": loss_curves(document),
        "more_curves": curves_left_out(document),
        "searches": searches(document),
        # Attacker knowledge, failures, references, plan
        "ledger": setup.ledger(document),
        "common": setup.common_knowledge(document),
        "failures": setup.failures(document),
        "references": setup.references(document),
        "plan": json.dumps(document["plan"], indent=2, ensure_ascii=False),
        "seeds": list(dict.fromkeys(case["seed"] for case in cases)),
        "versions": document["versions"],
    }


# Pages from templates


def render(shown: Mapping[str, Any]) -> str:
    """Return the page as HTML."""
    environment = environment_of()
    environment.filters |= {"svg": on_page, "strong": words.strong}
    style = Markup(template("style.css"))
    return environment.get_template("report.html").render(style=style, **shown)


def render_text(shown: Mapping[str, Any], drawn: Mapping[str, Figure]) -> str:
    """Return the report as Markdown in which no name is interpreted as markup; it links to the figures `drawn`."""
    environment = environment_of()
    environment.finalize = words.escaped
    environment.filters |= {"verbatim": words.verbatim, "strong": words.strong_text}
    return environment.get_template("report.md").render(figures=drawn, **shown)


def environment_of() -> Environment:
    """Return the environment of all pages: everything is escaped, and a missing name is an error."""
    environment = Environment(
        loader=FunctionLoader(template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tone"] = lambda state: states.TONES.get(state, "open")
    environment.globals |= {"count": words.count, "controls": words.CONTROLS, "method": words.METHOD}
    return environment


def template(name: str) -> str:
    """Return the text of a template."""
    return TEMPLATES.joinpath(name).read_text(encoding="utf-8")


def write_page(target: Path, content: str) -> Path:
    """Write a text in which no control character is left, and return its path."""
    plain = CONTROL.sub("\N{REPLACEMENT CHARACTER}", content)  # names and reasons come from plans and files
    write_whole(target, plain.encode("utf-8", errors="replace"), "report")
    return target


# Charts as files: SVG for the web, PDF for papers, PNG for slides


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with the name of its file, without the ending."""

    stem: str
    drawing: Drawing


def figures(shown: Mapping[str, Any]) -> dict[str, Figure]:
    """Return all drawings of a report in their order, by name; every file name is unique."""
    listed = [
        *(("results", chart.drawing) for section in shown["attacks"] for chart in section.charts),
        *(("roc", part.drawing) for part in shown["roc"]),
        *(("clients", part.drawing) for part in shown["breakdowns"] if part.drawing is not None),
        *(("rounds", part.drawing) for part in shown["rounds"] if part.drawing is not None),
        *(("tradeoff", part.drawing) for part in shown["tradeoffs"]),
        *(("loss", part.drawing) for part in shown["curves"]),
        *(("search", part.drawing) for part in shown["searches"]),
        *(("settings", part.over_settings) for part in shown["searches"] if part.over_settings is not None),
    ]
    sections = {section.anchor: f"{section.attack} {section.role}" for section in shown["attacks"]}
    drawn: dict[str, Figure] = {}
    for number, (kind, drawing) in enumerate(listed, 1):
        about, heading = sections.get(drawing.name.rpartition("-")[0]), drawing.title.partition(":")[0]
        title = f"{about} {heading}" if about else heading
        drawn[drawing.name] = Figure(stem=f"{number:02d}-{kind}-{_plain(title)}", drawing=drawing)
    return drawn


def _plain(text: str) -> str:
    """Return small letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:70].rstrip("-") or "figure"


def write_figures(folder: Path, drawn: Mapping[str, Figure], formats: Sequence[str]) -> list[Path]:
    """Write every figure in every format and remove figures of an earlier report that no longer exist."""
    if folder.is_symlink() or folder.is_file():
        got = "a symbolic link" if folder.is_symlink() else "a file"
        raise BadInput(str(folder), expected="a folder", got=got, remedy="Move it out of the way.")
    written = []
    if drawn:
        folder.mkdir(exist_ok=True)
    for figure in drawn.values():
        for ending in formats:
            path = folder / f"{figure.stem}.{ending}"
            write_whole(path, as_file(figure.drawing, ending), "figure", lasting=False)
            written.append(path)
    if folder.is_dir():
        for path in folder.iterdir():
            ours = re.fullmatch(
                r"\d{2,}-(results|roc|clients|rounds|tradeoff|loss|search|settings)-[a-z0-9-]+\.(svg|pdf|png)",
                path.name,
            )
            if ours and path not in written and path.is_file():
                path.unlink()
    return written
