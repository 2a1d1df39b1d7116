"""One self-contained HTML file from the results of an audit, and nothing but the results."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fedxray.audit.results import read
from fedxray.errors import BadInput
from fedxray.files import write_whole
from fedxray.report import page, words
from fedxray.report.findings import defence_verdicts, worst_findings
from fedxray.report.notices import notices, recorded_notice
from fedxray.report.pictures import Exhibition, read_galleries
from fedxray.report.sections import attack_sections
from fedxray.report.tradeoffs import tradeoffs
from fedxray.report.where import by_round, leaking_places, power_lines

NAME = "report.html"
TEMPLATES = files("fedxray.report").joinpath("templates")


def build_report(folder: Path, *, show_private: bool = False) -> Path:
    """Write the report of an audit's folder and say where it is.

    With show_private it holds private records, so it is written into the folder's private part.
    """
    document = read(folder)
    if show_private and (folder / "private").is_symlink():
        raise BadInput(
            str(folder / "private"),
            expected="a folder",
            got="a symbolic link",
            remedy="Put the folder itself there.",
        )
    exhibition = read_galleries(folder, show_private=show_private)
    target = folder / "private" / NAME if show_private else folder / NAME
    if show_private:
        target.parent.mkdir(mode=0o700, exist_ok=True)
    content = render(document, exhibition, show_private=show_private)
    write_whole(target, content.encode("utf-8", errors="replace"), "report")
    return target


def render(document: Mapping[str, Any], exhibition: Exhibition, *, show_private: bool = False) -> str:
    """The page as text."""
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cases = document["cases"]
    return environment.get_template("report.html").render(
        style=Markup(_template("style.css")),
        name=str(document["plan"].get("name") or "audit"),
        sentence=page.sentence(document),
        setups=page.setups(document),
        defences=defence_verdicts(document),
        findings=worst_findings(document),
        notices=notices(document),
        recorded=recorded_notice(document),
        attacks=attack_sections(document),
        places_of_leaks=leaking_places(document),
        rounds=by_round(document),
        power=power_lines(document),
        utility=page.utility(document),
        tradeoffs=tradeoffs(document),
        privacy=page.privacy(document),
        budgets=any(row["epsilon"] is not None for row in document["utility"]),
        exhibition=exhibition,
        walls=page.walls(document, exhibition.galleries),
        places=page.case_places(document),
        ledger=page.ledger(document),
        common=page.common_knowledge(document),
        failures=page.failures(document),
        lost=sum(case["status"] != "ok" for case in cases),
        cases=len(cases),
        seeds=list(dict.fromkeys(case["seed"] for case in cases)),
        plan=page.pretty(document["plan"]),
        versions=document["versions"],
        show_private=show_private,
        controls=words.CONTROLS,
        marks=page.marks(document),
        count=words.count,
    )


def _template(name: str) -> str:
    return TEMPLATES.joinpath(name).read_text(encoding="utf-8")
