"""Builds the pages and tables of the documentation that follow from the code; `make docs` runs it.

Pages of `generated()` are built and not committed. Marked blocks inside committed pages are updated in place.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedxray.adversary.grants import GRANTS, ROLES
from fedxray.attacks.papers import PAPERS
from fedxray.audit import catalog
from fedxray.cli.show import PAGES, WITH_SETTINGS, SettingRow, default_grants, pages, settings_of
from fedxray.metrics.table import METRICS
from fedxray.reproduce.base import REPRODUCTIONS
from fedxray.reproduce.document import read as read_reproduction
from fedxray.reproduce.pages import heading, sheets
from fedxray.reproduce.scoreboard import PAPERS as PAPER_PAGES, page as scoreboard

sys.path.insert(0, str(Path(__file__).resolve().parent / "_build"))
from filters_page import FILTERS, intervals as filter_intervals, table as filter_table
from lmra_page import choices, tables as local_models
from membership_page import MEASURED, people as membership_of_people, tables as membership_tables
from plan_reference import plan_reference

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
EXAMPLES = ROOT / "examples"
RESULTS = DOCS / "results"

ATTACKS_OPENING = """# Attack matrix

Every attack: the roles that can run it, the grants it gets by default, what its result is compared with, and its
source. `fedxray show NAME` prints the same for one attack, with its settings and needs. An attack that holds another
one (`attribute-from-model` holds a model of the client) also needs what that one needs. The terms are defined in
[Concepts](concepts.md).

This page is built by `docs/generate.py`.

"""
SETTINGS_OPENING = """# Settings

Every setting of what a [plan](plan.md) can name, with its default. A setting without a default is optional. `fedxray
show NAME` prints the same for one name. Settings of the federation are in the [plan reference](plan-reference.md).

This page is built by `docs/generate.py`.
"""
RESULTS_OPENING = """# Reproduced tables

Results of `fedxray reproduce`. Each JSON file in this folder is the `reproduction.json` of one run, with the commands
and commits that computed it and every single value. [Reproductions](../reproductions.md) explains the tables.

This page is built from the JSON files by `docs/generate.py`.

"""


def attack_matrix() -> str:
    """The page docs/attacks.md."""
    entries = {name: catalog.resolve("attacks", name) for name in catalog.ATTACKS}
    floors = [(f"`{name}`", _about(catalog.resolve("floors", name))) for name in catalog.FLOORS]
    return (
        ATTACKS_OPENING
        + "## Roles\n\n"
        + _table(("attack", "infers", *ROLES), [_role_row(*one) for one in entries.items()])
        + "\n## Grants, floors and controls\n\n"
        + _table(
            ("attack", "grants by default", "floors", "controls"), [_knowledge_row(*one) for one in entries.items()]
        )
        + "\n## Output and source\n\n"
        + _table(
            ("attack", "output", "source"), [(f"`{name}`", _about(one), _source(one)) for name, one in entries.items()]
        )
        + "\n## Floors\n\nBaselines without messages.\n\n"
        + _table(("floor", "guess"), floors)
        + "\n## Metrics\n\nThe margin is the smallest gain that counts as a leak.\n\n"
        + _table(("metric", "meaning", "more leak when", "margin"), _metric_rows())
        + "\n## Papers\n\n"
        + _table(("key", "paper"), [(f"`{key}`", citation) for key, citation in PAPERS.items()])
    )


def settings() -> str:
    """The page docs/settings.md."""
    parts = [SETTINGS_OPENING]
    for kind in WITH_SETTINGS:
        parts += [f"\n## {kind.capitalize()}\n"]
        for name in catalog.built_in(kind):
            about = catalog.first_paragraph(catalog.resolve(kind, name))
            found = settings_of(kind, name)
            parts.append(f"\n### {name}\n\n{about}\n\n" + (_settings_table(found) if found else "No settings.\n"))
    return "".join(parts)


def _settings_table(found: list[SettingRow]) -> str:
    rows = [(f"`{one.name}`", one.sentence, one.accepts, one.default.removeprefix("default ")) for one in found]
    return _table(("setting", "meaning", "accepts", "default"), rows)


def blocks() -> dict[str, str]:
    """Tables that stand inside written pages, between <!-- name --> and <!-- end of name -->."""
    roles = [(f"`{name}`", role.sees) for name, role in ROLES.items()]
    grants = [(f"`{name}`", about) for name, about in GRANTS.items()]
    defences = [(f"`{name}`", _whole(catalog.resolve("defences", name))) for name in catalog.DEFENCES]
    restorers = [(f"`{name}`", _about(catalog.resolve("restorers", name))) for name in catalog.RESTORERS]
    measured, filters = (json.loads(path.read_text(encoding="utf-8")) for path in (MEASURED, FILTERS))
    return {
        "defences": _table(("defence", "effect"), defences),
        "roles": _table(("role", "sees"), roles),
        "grants": _table(("grant", "hands over"), grants),
        "own attack": _code("python", EXAMPLES / "own-attack" / "attack.py"),
        "own defence": _code("python", EXAMPLES / "own-defence" / "defence.py"),
        "own csv plan": _code("toml", EXAMPLES / "own-csv" / "patients.toml"),
        "schema": _code("", EXAMPLES / "no-data" / "schema.toml"),
        "filters": filter_table(filters),
        "filter intervals": filter_intervals(filters),
        "membership attacks": membership_tables(measured),
        "people": membership_of_people(measured),
        "reproductions": _reproductions(),
        "restorers": _table(("restorer", "what it gives"), restorers),
    }


def generated() -> dict[str, str]:
    """Return the pages that are built and not committed, by their path below docs/."""
    reference = plan_reference().replace("(search.md)", "(running.md#searching-settings)")
    return {
        "plan-reference.md": reference,
        "attacks.md": attack_matrix(),
        "settings.md": settings(),
        "results/README.md": RESULTS_OPENING + _measured(),
        "papers/scoreboard.md": scoreboard([read_reproduction(path) for path in sorted(RESULTS.glob("*.json"))]),
    }


def filled() -> dict[Path, str]:
    """Return the committed pages with their marked blocks updated, and those that `fedxray show` prints."""
    built = {DOCS / path for path in generated()}
    written = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    texts = {path: _filled(path.read_text(encoding="utf-8"), path) for path in written if path not in built}
    return texts | {PAGES: json.dumps(pages(), indent=0, ensure_ascii=False) + "\n"}


def _filled(text: str, path: Path) -> str:
    """A page with its marked blocks written anew."""
    made = blocks()
    for name in re.findall(r"<!-- end of ([\w ]+) -->", text):
        if name not in made:
            raise KeyError(f"{path.name}: no block is called {name!r}")
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = before + start + made[name] + end + rest.partition(end)[2]
    return text


def _reproductions() -> str:
    """Names of the reproductions by paper; a name begins with that of the paper's page."""
    rows = []
    for page, title in PAPER_PAGES.items():
        names = ", ".join(f"`{name}`" for name in REPRODUCTIONS if name.startswith(f"{page}-"))
        rows.append((f"[{title}](papers/{page}.md)", names))
    return _table(("paper", "reproductions"), rows)


def _measured() -> str:
    """The committed results, each as its tables and sentences."""
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        content = read_reproduction(path)
        parts += [f"## {path.stem}\n", "\n\n".join(heading(content)), ""]
        for sheet in sheets(content):
            parts += [f"### {sheet.title} ({path.stem})\n", _table(sheet.head, list(sheet.lines))]
        parts += [*(f"- {sentence}" for sentence in content["sentences"]), ""]
        if path.stem == "lmra-table1":
            parts += _local_models(content)
    return "\n".join(parts) + "\n"


def _local_models(content: Mapping[str, Any]) -> list[str]:
    """The table on local models once more, one line per model, with seeds apart on which settings were chosen."""
    tables = [f"### {title}\n\n{_table(head, lines)}" for title, head, lines in local_models(content)]
    return [*tables, *(f"- {sentence}" for sentence in choices(content)), ""]


def _role_row(name: str, entry: Any) -> tuple[str, ...]:
    return (f"`{name}`", entry.kind, *("yes" if role in entry.roles else "" for role in ROLES))


def _knowledge_row(name: str, entry: Any) -> tuple[str, ...]:
    lists = (entry.floors, entry.controls)
    return (f"`{name}`", default_grants(entry), *(", ".join(one) or "none" for one in lists))


def _source(entry: Any) -> str:
    return f"`{entry.paper}`" if entry.paper else ""


def _metric_rows() -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", entry.what, "smaller" if entry.down else "larger", f"{entry.margin:g}")
        for name, entry in METRICS.items()
    ]


def _about(entry: Any) -> str:
    return " ".join(str(entry.__doc__).split("\n\n")[0].split())


def _whole(entry: Any) -> str:
    return " ".join(str(entry.__doc__).split())


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _code(language: str, file: Path) -> str:
    return f"```{language}\n{file.read_text(encoding='utf-8')}```\n"


def write(folder: Path = DOCS) -> list[Path]:
    """Write the generated pages below `folder`; return those that changed."""
    texts = {folder / path: text for path, text in generated().items()}
    return [path for path, text in texts.items() if _write(path, text)]


def _write(path: Path, text: str) -> bool:
    """Write a page unless it already has this text; return whether it changed."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def main() -> int:
    """Update marked blocks, build the generated pages, and list what changed."""
    changed = [path for path, text in filled().items() if _write(path, text)]
    for path in [*changed, *write()]:
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
