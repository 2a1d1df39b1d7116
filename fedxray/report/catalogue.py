"""What an attack says of itself, read from its source and never imported: reports must start fast and run nothing."""

from __future__ import annotations

import ast
from importlib.resources import files

from fedxray.audit.catalog import ATTACKS


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
