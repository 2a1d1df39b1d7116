"""Writes the pages and tables of the documentation that follow from the code; `make docs` runs it."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from fedxray.adversary.disclose import GRANTS
from fedxray.adversary.roles import ROLES
from fedxray.audit import catalog
from fedxray.audit.plan import plan_reference
from fedxray.cli.show import WITH_SETTINGS, SettingRow, default_grants, settings_of
from fedxray.metrics.table import METRICS
from fedxray.reproduce.base import REPRODUCTIONS, find
from fedxray.reproduce.compact import gains, numbers
from fedxray.reproduce.document import found_lines
from fedxray.reproduce.document import read as read_reproduction
from fedxray.reproduce.lmra_page import choices
from fedxray.reproduce.lmra_page import tables as local_models
from fedxray.reproduce.pages import heading, sheets

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
EXAMPLES = ROOT / "examples"
RESULTS = DOCS / "results"

ATTACKS_OPENING = """# Attack matrix

Every attack that is built: from which seats it can run, what it is told by default, what its result is compared
with, and where it comes from. `fedxray show NAME` prints the same with all settings, and what the attack needs: an
attack that holds another one (as `attribute-from-model` holds a model of the client) also needs what that one needs.

This page is written by the code (`docs/generate.py`).

"""
SETTINGS_OPENING = """# Settings

Every setting of what a [plan](plan.md) can name, with its default. One without a default may be left out. `fedxray
show NAME` prints the same, and what an attack needs. Settings of the federation itself are on the page of the plan.

This page is written by the code (`docs/generate.py`).
"""
PAPERS = {
    "000": "Driouich, Xu, Neglia, Giroire, Thomas: "
    "*Local Model Reconstruction Attacks in Federated Learning and their Uses*",
    "001": "Dimitrov, Balunović, Konstantinov, Vechev: *Data Leakage in Federated Averaging*, TMLR 2022",
    "002": "Song, Wang, Zuazua: "
    "*Approximate and Weighted Data Reconstruction Attack in Federated Learning*, arXiv 2308.06822",
    "003": "Diana, Marfoq, Xu, Neglia, Giroire, Thomas: "
    "*Attribute Inference Attacks for Federated Regression Tasks*, AAAI 2025",
    "004": "*Federated Learning Nodes Can Reconstruct Peers' Image Data*",
}


def attack_matrix() -> str:
    """The page docs/attacks.md."""
    entries = {name: catalog.resolve("attacks", name) for name in catalog.ATTACKS}
    floors = [(f"`{name}`", _about(catalog.resolve("floors", name))) for name in catalog.FLOORS]
    return (
        ATTACKS_OPENING
        + "## Seats\n\n"
        + _table(("attack", "finds out", *ROLES), [_seat_row(*one) for one in entries.items()])
        + "\n## What they are told and compared with\n\n"
        + _table(
            ("attack", "grants by default", "floors", "controls"),
            [_knowledge_row(*one) for one in entries.items()],
        )
        + "\n## What they do, and where they come from\n\n"
        + _table(
            ("attack", "what it gives", "source"),
            [(f"`{name}`", _about(one), _source(one)) for name, one in entries.items()],
        )
        + "\n## Floors\n\nAttacks that get no message at all. What they reach could be guessed anyway.\n\n"
        + _table(("floor", "what it guesses"), floors)
        + "\n## Metrics\n\nThe margin is the least difference to the floor that counts as a leak.\n\n"
        + _table(("metric", "what it is", "more leak when", "margin"), _metric_rows())
        + "\n## Papers\n\nThe code calls five papers by number.\n\n"
        + _table(("number", "paper"), list(PAPERS.items()))
    )


def settings() -> str:
    """The page docs/settings.md."""
    parts = [SETTINGS_OPENING]
    for kind in WITH_SETTINGS:
        named = {name: settings_of(kind, name) for name in catalog.table(kind)}
        parts += [f"\n## {kind.capitalize()}\n"]
        parts += [f"\n### {name}\n\n" + _settings_table(found) for name, found in named.items() if found]
        if bare := [f"`{name}`" for name, found in named.items() if not found]:
            parts.append(f"\nWithout settings: {', '.join(bare)}.\n")
    return "".join(parts)


def _settings_table(found: list[SettingRow]) -> str:
    rows = [
        (f"`{one.name}`", one.sentence, one.accepts, one.default.removeprefix("default ")) for one in found
    ]
    return _table(("setting", "what it is", "accepts", "default"), rows)


def blocks() -> dict[str, str]:
    """Tables that stand inside written pages, between <!-- name --> and <!-- end of name -->."""
    roles = [(f"`{name}`", role.sees) for name, role in ROLES.items()]
    grants = [(f"`{name}`", about) for name, about in GRANTS.items()]
    defences = [(f"`{name}`", _whole(catalog.resolve("defences", name))) for name in catalog.DEFENCES]
    restorers = [(f"`{name}`", _about(catalog.resolve("restorers", name))) for name in catalog.RESTORERS]
    return {
        "defences": _table(("defence", "what it does"), defences),
        "roles": _table(("seat", "sees"), roles),
        "grants": _table(("grant", "hands over"), grants),
        "own attack": _code("python", EXAMPLES / "own-attack" / "attack.py"),
        "own attack plan": _code("toml", EXAMPLES / "own-attack" / "own-attack.toml"),
        "own defence": _code("python", EXAMPLES / "own-defence" / "defence.py"),
        "own csv plan": _code("toml", EXAMPLES / "own-csv" / "patients.toml"),
        "own images plan": _code("toml", EXAMPLES / "own-images" / "scans.toml"),
        "schema": _code("", EXAMPLES / "no-data" / "schema.toml"),
        "python": _code("python", EXAMPLES / "python" / "audit.py"),
        "reproductions": _reproductions(),
        "measured": _measured(),
        "local models": _local_models(),
        "restorers": _table(("restorer", "what it gives"), restorers),
        "measured restoration": _few_lines("curious-restoration", ("psnr", "ssim", "lpips")),
        "measured inversion": _few_lines("dlf-table[13]", ("psnr", "rec", "retrieval")),
        "measured awa": _few_lines("awa-", ("psnr_002", "ssim_002")),
        "measured sums": _few_lines("curious-[!r]", ("psnr", "ssim", "lpips", "retrieval")),
    }


def pages() -> dict[Path, str]:
    """Every generated or partly generated file with the text it should have."""
    found = {
        DOCS / "plan.md": plan_reference(),
        DOCS / "attacks.md": attack_matrix(),
        DOCS / "settings.md": settings(),
    }
    for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md")), RESULTS / "README.md"]:
        if path not in found:
            found[path] = _filled(path.read_text(encoding="utf-8"), path)
    return found


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
    """Every reproduction with its rows, columns and place in a paper."""
    rows = []
    for name in REPRODUCTIONS:
        made = find(name)
        columns = ", ".join(dict.fromkeys(f"`{column.name}`" for column in made.columns))
        small = made.small_rows or made.rows
        names = ", ".join(f"**{row}**" if row in small else row for row in made.rows)
        rows.append((f"`{name}`", made.shows, f"{made.paper.title}, {made.paper.place}", names, columns))
    return _table(("name", "what it shows", "paper", "rows", "columns"), rows)


def _measured() -> str:
    """The committed results, each as its tables and sentences."""
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        content = read_reproduction(path)
        parts += [f"## {path.stem}\n", "\n\n".join(heading(content)), ""]
        for sheet in sheets(content):
            parts += [f"### {sheet.title} ({path.stem})\n", _table(sheet.head, list(sheet.lines))]
        parts += [*(f"- {sentence}" for sentence in content["sentences"]), ""]
    return "\n".join(parts) + "\n"


def _few_lines(names: str, metrics: tuple[str, ...]) -> str:
    """Committed results in few lines: numbers, paired differences and the command of each."""
    parts = []
    for path in sorted(RESULTS.glob(f"{names}*.json")):
        content = read_reproduction(path)
        parts += [f"### {path.stem}\n", f"{content['shows']} Made by `{content['command']}`.\n"]
        measured = tuple(dict.fromkeys(row["metric"] for row in content["rows"]))
        shown = metrics if set(metrics) & set(measured) else measured  # of an attack with scores of its own
        tables = (numbers(content, shown), gains(content, shown), found_lines(content.get("searches", ())))
        for head, lines in tables:
            parts += [_table(head, lines)] if lines else []
    return "\n".join(parts) + ("\n" if parts else "")


def _local_models() -> str:
    """The committed table on local models, seeds apart on which settings were looked at."""
    path = RESULTS / "lmra-table1.json"
    if not path.is_file():
        return ""
    content = read_reproduction(path)
    made = [f"### {title}\n\n{_table(head, lines)}" for title, head, lines in local_models(content)]
    return "\n".join([*made, *(f"- {sentence}" for sentence in choices(content))]) + "\n"


def _seat_row(name: str, entry: Any) -> tuple[str, ...]:
    return (f"`{name}`", entry.kind, *("yes" if role in entry.roles else "" for role in ROLES))


def _knowledge_row(name: str, entry: Any) -> tuple[str, ...]:
    lists = (entry.floors, entry.controls)
    return (f"`{name}`", default_grants(entry), *(", ".join(one) or "none" for one in lists))


def _source(entry: Any) -> str:
    """The first paragraph of the attack's file, which names its paper."""
    module = importlib.import_module(entry.__module__)
    return " ".join(str(module.__doc__).split("\n\n")[0].split())


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


def main() -> int:
    """Write what differs and say so."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
