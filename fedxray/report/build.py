"""The report of an audit from its results and nothing else: one HTML file, the same as Markdown, figures as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fedxray.audit.results import read
from fedxray.errors import BadInput, unknown_name
from fedxray.files import write_whole
from fedxray.report import page, words
from fedxray.report.courses import courses, left_over, studies
from fedxray.report.drawing import FORMATS, on_page
from fedxray.report.figures import FOLDER, figures, write_figures
from fedxray.report.findings import defence_verdicts, overall, worst_findings
from fedxray.report.markdown import escaped, verbatim
from fedxray.report.method import METHOD, strong, strong_text
from fedxray.report.notices import notices, recorded_notice
from fedxray.report.pictures import Exhibition, read_galleries
from fedxray.report.references import references
from fedxray.report.sections import attack_sections
from fedxray.report.tradeoffs import tradeoffs
from fedxray.report.walls import kinds_of, walls
from fedxray.report.where import by_round, leaking_places, power_lines

NAME, TEXT = "report.html", "report.md"
TEMPLATES = files("fedxray.report").joinpath("templates")


def build_report(folder: Path, *, show_private: bool = False, formats: Sequence[str] = ("svg",)) -> Path:
    """Write report.html, report.md and figures/ of an audit's folder and say where the first is.

    With show_private the page holds private records, so it alone is written, into the folder's private part.
    """
    for one in formats:
        if one not in FORMATS:
            raise unknown_name("--figures", one, FORMATS)
    document = read(folder)
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
        return _write(folder / "private" / NAME, render(told))
    write_figures(folder / FOLDER, told["figures"], ("svg", *(one for one in formats if one != "svg")))
    _write(folder / TEXT, render_text(told))
    return _write(folder / NAME, render(told))


def contents(
    document: Mapping[str, Any], exhibition: Exhibition, *, show_private: bool = False
) -> dict[str, Any]:
    """Everything that a report says, ready to print."""
    cases = document["cases"]
    told = {
        "name": str(document["plan"].get("name") or "audit"),
        "audited": page.audited(document),
        "tried": page.tried(document),
        "overall": overall(document),
        "setups": page.setups(document),
        "defences": defence_verdicts(document),
        "findings": worst_findings(document),
        "notices": notices(document),
        "recorded": recorded_notice(document),
        "attacks": attack_sections(document),
        "places_of_leaks": leaking_places(document),
        "rounds": by_round(document),
        "power": power_lines(document),
        "utility": page.utility(document),
        "tradeoffs": tradeoffs(document),
        "courses": courses(document),
        "more_courses": left_over(document),
        "studies": studies(document),
        "privacy": page.privacy(document),
        "budgets": any(row["epsilon"] is not None for row in document["utility"]),
        "exhibition": exhibition,
        "walls": walls(document, exhibition.galleries),
        "ledger": page.ledger(document),
        "common": page.common_knowledge(document),
        "failures": page.failures(document),
        "lost": sum(case["status"] != "ok" for case in cases),
        "cases": len(cases),
        "seeds": list(dict.fromkeys(case["seed"] for case in cases)),
        "references": references(document),
        "plan": page.pretty(document["plan"]),
        "versions": document["versions"],
        "show_private": show_private,
        "controls": words.CONTROLS,
        "method": METHOD,
        "marks": page.marks(document),
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
