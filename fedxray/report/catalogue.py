"""What an attack says of itself, read from its source and never imported: reports must start fast and run nothing."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fedxray.audit.catalog import ATTACKS


def attack_names(plan: Mapping[str, Any]) -> dict[str, str]:
    """The catalogue name behind each label of a plan's attacks."""
    parts = [part for part in plan.get("attack") or () if isinstance(part, Mapping) and part.get("name")]
    return {str(part.get("label") or part["name"]): str(part["name"]) for part in parts}


def attack_words(name: str) -> str | None:
    """The first paragraph of the docstring of an attack in the catalogue; None for other names."""
    if name not in ATTACKS:
        return None
    module, _, wanted = ATTACKS[name].partition(":")
    *folders, stem = module.split(".")[1:]
    source = files("fedxray").joinpath(*folders, f"{stem}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == wanted:
            text = ast.get_docstring(node) or ""
            return " ".join(text.split("\n\n")[0].split()) or None
    return None
