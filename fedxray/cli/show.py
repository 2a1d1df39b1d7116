"""`fedxray list` and `fedxray show`: the catalogue in words.

A list reads docstrings from source files and imports no attack, defence, data set or model: it is fast, and it shows a
plug-in that cannot be imported as well. `show` prints the page of a built-in name from `pages.json`, which
`docs/generate.py` writes and a test compares with the code; a plug-in is imported and explained.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from fedxray.audit import catalog
from fedxray.errors import BadInput, unknown_name
from fedxray.settings import REQUIRED, allowed_values, settings_of as listed_settings

# Kinds whose entries are "module:object" with a docstring.
DOCUMENTED = ("attacks", "floors", "defences", "restorers", "models", "datasets")


PAGES = Path(__file__).with_name("pages.json")


class SettingRow(NamedTuple):
    """One setting in words: its name, what it accepts, "required" or its default, and its meaning."""

    name: str
    accepts: str
    default: str
    sentence: str


# Kinds of the catalogue whose entries have settings.
WITH_SETTINGS = ("attacks", "defences", "restorers", "models", "datasets")


# What attacks of a kind work on, and what they ask for, in the order of `fedxray list attacks`.
WORKS_ON: Mapping[str, str] = {
    "attributes": "tables: attributes",
    "rows": "tables: rows",
    "images": "images",
    "class-images": "images: classes",
    "labels": "classes: labels",
    "membership": "all: membership",
    "sources": "all: sources",
    "model": "all: models",
    "": "plug-in",
}


def lines_of(kind: str) -> Iterator[str]:
    """One line for each name of a kind: the name, of attacks what they work on, then what it is."""
    names = list(catalog.table(kind))
    width, groups = max(map(len, names)) + 2, dict.fromkeys(names, "")
    if kind == "attacks":
        groups = {name: _stored_pages().get(f"kind/{name}", "") for name in names}
        names.sort(key=lambda name: list(WORKS_ON).index(groups[name]))
        groups = {name: f"{WORKS_ON[group]:<20}" for name, group in groups.items()}
    for name in names:
        yield f"{name:<{width}}{groups[name]}{_sentence(kind, name)}{_origin(kind, name)}".rstrip()


def fitting_for(kind: str, file: Path) -> Iterator[str]:
    """One line for each attack: how long a plan's cases of it would take on this computer, or why it cannot run."""
    if kind != "attacks":
        raise BadInput("--for", expected="attacks", got=kind, remedy="fedxray list attacks --for PLAN.toml")
    from fedxray.cli.audit import compute_with_one_thread, duration

    compute_with_one_thread()
    from fedxray.audit.plan import read_plan
    from fedxray.audit.run.preflight import fitting
    from fedxray.audit.workers.engines import worker_count

    plan, workers = read_plan(file), worker_count("processes", None)
    width = max(map(len, catalog.table("attacks"))) + 2
    fits = sorted(fitting(plan), key=lambda fit: (fit.seconds is None, list(WORKS_ON).index(fit.kind)))
    for fit in fits:
        time = "cannot run" if fit.seconds is None else f"about {duration(fit.seconds / workers)}"
        text = f"({WORKS_ON[fit.kind]}) {fit.reason or _sentence('attacks', fit.name)}"
        yield f"{fit.name:<{width}}{time:<14}{text}"


def warnings_of(kinds: Iterable[str]) -> list[str]:
    """One sentence for each plug-in of these kinds that is ignored."""
    return [sentence for kind in kinds for sentence in catalog.ignored_plugins(kind)]


def kinds_of(name: str) -> list[str]:
    """The kinds that have an entry of this name."""
    kinds = [kind for kind in catalog.KINDS if name in catalog.table(kind)]
    if not kinds:
        raise unknown_name("name", name, {one for kind in catalog.KINDS for one in catalog.table(kind)})
    return kinds


def page_of(name: str) -> str:
    """Everything about one name: what it does, its settings with defaults, what it needs."""
    return "\n\n".join(_stored_pages().get(f"{kind}/{name}") or _page(kind, name) for kind in kinds_of(name))


def pages() -> dict[str, str]:
    """The pages of all built-in names whose classes need torch, and the kinds of attacks: the content of pages.json."""
    kinds = {f"kind/{name}": catalog.resolve("attacks", name).kind for name in catalog.built_in("attacks")}
    return {f"{kind}/{name}": _page(kind, name) for kind in DOCUMENTED for name in catalog.built_in(kind)} | kinds


@cache
def _stored_pages() -> Mapping[str, str]:
    found: dict[str, str] = json.loads(PAGES.read_text(encoding="utf-8")) if PAGES.is_file() else {}
    return found


def _page(kind: str, name: str) -> str:
    entry = catalog.resolve(kind, name)
    parts = [f"{name} ({catalog.SINGULAR[kind]}){_origin(kind, name)}", _text(kind, entry)]
    parts += [f"Settings:\n{settings}"] if (settings := _settings(kind, name)) else []
    parts += [facts] if kind in ("attacks", "floors") and (facts := _attack_facts(entry)) else []
    return "\n\n".join(part for part in parts if part)


def _sentence(kind: str, name: str) -> str:
    documented = kind in DOCUMENTED
    text = _docstring(catalog.table(kind)[name]) if documented else _text(kind, catalog.resolve(kind, name))
    return " ".join(text.split("\n\n")[0].split())


def _origin(kind: str, name: str) -> str:
    """The package of a plug-in, in brackets; nothing for a built-in name."""
    try:
        plugin = catalog.plugin_of(kind, name)
    except BadInput as error:  # two packages offer it
        return f" (cannot be used: {error.got} offer it)"
    return "" if plugin is None else f" ({plugin.source})"


@cache
def _docstring(spec: str) -> str:
    """The docstring behind "module:name", read from the source file; empty where none can be read."""
    module, _, name = spec.partition(":")
    file = _source_file(module)
    try:
        tree = ast.parse(file.read_bytes()) if file is not None else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return ""
    documented = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return next((ast.get_docstring(node) or "" for node in documented if node.name == name), "")


def _source_file(module: str) -> Path | None:
    """The file of a module; unlike importlib.util.find_spec this does not import the packages around it."""
    folders, origin = None, None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        spec = getattr(sys.modules.get(name), "__spec__", None) or PathFinder.find_spec(name, folders)
        if spec is None:
            return None
        folders, origin = spec.submodule_search_locations, spec.origin
    return Path(origin) if origin else None


def _text(kind: str, entry: Any) -> str:
    """The description of an entry: its docstring, or the words of a plain entry."""
    if kind == "roles":
        return f"Sees {entry.sees}."
    if kind == "grants":
        return f"Hands over {entry}."
    if kind == "metrics":
        return f"{entry.what[0].upper()}{entry.what[1:]}; larger is {'less' if entry.down else 'more'} leak."
    if kind == "reproductions":
        return _reproduction_words(entry)
    return inspect.getdoc(entry) or ""


def _reproduction_words(entry: Any) -> str:
    """What a reproduction shows, where that was published, and what can be asked for."""
    columns = dict.fromkeys(column.name for column in entry.columns)
    return "\n\n".join(
        (
            entry.shows,
            f"Paper: {entry.paper.title}, {entry.paper.place}",
            f"Rows: {', '.join(entry.rows)}",
            f"Columns: {', '.join(columns)}",
            f"At the small scale: {', '.join(entry.small_rows or entry.rows)}",
        )
    )


def settings_of(kind: str, name: str) -> list[SettingRow]:
    """Return every setting of an entry, in the order of its definition."""
    rows = []
    for one in listed_settings(catalog.resolve(kind, name)) if kind in WITH_SETTINGS else ():
        sentence = one.setting.sentence
        if kind == "datasets":
            from fedxray.data.catalog import SETTINGS as DATA_SETTINGS

            sentence = DATA_SETTINGS.get(f"{name}.{one.name}") or DATA_SETTINGS.get(one.name, "")
        kind_of_value = "a value" if one.hint is object else catalog.describe(one.hint)
        accepts = allowed_values(one.setting, one.hint) or kind_of_value
        rows.append(SettingRow(one.name, accepts, _default(one.default), sentence))
    return rows


def _settings(kind: str, name: str) -> str:
    lines = []
    for one in settings_of(kind, name):
        lines.append(f"  {one.name}: {one.accepts}" + (f" ({one.default})" if one.default else ""))
        lines += textwrap.wrap(one.sentence, 80, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def _default(value: Any) -> str:
    """Return the default as a plan would write it; a setting that may be left out has none."""
    if value is REQUIRED:
        return "required"
    if value is None:
        return ""
    written = json.dumps(value) if isinstance(value, bool | tuple) else repr(value)
    return f"default {getattr(value, 'name', None) or written}"


def _attack_facts(entry: Any) -> str:
    lines = [f"Roles: {', '.join(entry.roles)}"]
    lines.append(f"Grants it is given unless the plan says otherwise: {default_grants(entry)}")
    if needs := _needs(entry):
        lines.append("Needs:\n" + "\n".join(needs))
    lines.append(f"Compared with the floors: {', '.join(entry.floors) or 'none'}")
    lines.append(f"Controls: {', '.join(entry.controls) or 'none'}")
    if entry.searched:
        ranges = [f"{name} ({low:g} to {high:g})" for name, (low, high, _) in entry.searched.items()]
        lines.append(f"Can be searched, judged by {entry.judged_by}: {', '.join(ranges)}")
    return "\n".join(lines)


def default_grants(entry: Any) -> str:
    """The grants of an attack, then those of the attacks it holds by default, each with who needs it."""
    parts = [", ".join(entry.grants)] if entry.grants else []
    for inner in _inner_by_default(entry):
        more = [name for name in inner.grants if name not in entry.grants]
        parts += [f"{', '.join(more)} (for {inner.name})"] if more else []
    return "; ".join(parts) or "none"


def _inner_by_default(entry: Any) -> list[Any]:
    """The attacks that an attack holds with default settings, and theirs."""
    from fedxray.attacks.base import Attack

    made = [one.default_factory() for one in fields(entry) if one.default_factory is not MISSING]
    made += [one.default for one in fields(entry) if one.default is not MISSING]
    held = [one for one in made if isinstance(one, Attack)]
    return [found for one in held for found in (one, *_inner_by_default(type(one)))]


def _needs(entry: Any) -> list[str]:
    """What the attack needs with default settings; one with required settings cannot be asked here.

    An inner attack may need the same, but not under every grant; the attack's own need comes first and says it all.
    """
    required = [one for one in fields(entry) if one.default is MISSING and one.default_factory is MISSING]
    found: dict[str, str] = {}
    for need in () if required else entry().needs():
        found.setdefault(need.what, need.given_by)
    return [f"  {what}, given by {given_by}" for what, given_by in found.items()]
