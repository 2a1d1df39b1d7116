"""A small plan that tests change a little."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {
    "name": "tiny",
    "seeds": [0],
    "data": {"name": "clinic", "clients": 2, "partition": "as-given", "records": 40, "sensitive": "smoker"},
    "model": {"name": "mlp", "hidden": [4]},
    "federation": {"rounds": 2, "learning_rate": 0.05},
    "attack": [{"name": "attribute-from-model"}],
}


def tiny(**changes: Any) -> dict[str, Any]:
    """The small plan with some of its tables changed; a table given as None is taken out."""
    document = copy.deepcopy(TINY)
    for name, change in changes.items():
        if change is None:
            del document[name]
        elif isinstance(change, dict) and isinstance(document.get(name), dict):
            document[name] = document[name] | change
        else:
            document[name] = change
    return document


def write_toml(path: Path, document: dict[str, Any]) -> Path:
    """A plan as a TOML file."""
    lines = [f"{name} = {spell(value)}" for name, value in document.items() if not _is_table(value)]
    for name, value in document.items():
        for header, table in _tables(name, value):
            lines += [header, *(f"{key} = {spell(inner)}" for key, inner in table.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))


def _tables(name: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    if name == "sweep":
        return [(f'[sweep."{label}"]', table) for label, table in value.items()]
    if isinstance(value, dict):
        return [(f"[{name}]", value)]
    return [(f"[[{name}]]", one) for one in value] if _is_table(value) else []


def spell(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {spell(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(spell(one) for one in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def table(rows: int, first: float = 0.0) -> str:
    """A CSV file with two numbers, a category and a target of five values."""
    lines = [f"{first + row / 2},{row % 7},{'uvw'[row % 3]},{row % 5}" for row in range(rows)]
    return "\n".join(["a,b,c,y", *lines]) + "\n"
