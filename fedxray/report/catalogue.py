"""What an attack says of itself, read from its source and never imported: reports must start fast and run nothing."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files

from fedxray.audit.catalog import ATTACKS


def attack_words(name: str) -> str | None:
    """The first paragraph of the docstring of an attack in the catalogue; None for other names."""
    found = _class_of(name)
    text = "" if found is None else ast.get_docstring(found) or ""
    return " ".join(text.split("\n\n")[0].split()) or None


def attack_kind(name: str) -> str | None:
    """What an attack in the catalogue finds out, as images or attributes; None for other names."""
    found = _class_of(name)
    for node in () if found is None else found.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "kind" and node.value is not None:
            return str(ast.literal_eval(node.value))
    return None


def attack_source(name: str) -> str:
    """What the file of an attack in the catalogue says at its head, where its paper is named; empty for other names."""
    written = _file_of(name)
    return "" if written is None else ast.get_docstring(written) or ""


@cache
def _file_of(name: str) -> ast.Module | None:
    """The file of an attack as it is written."""
    if name not in ATTACKS:
        return None
    *folders, stem = ATTACKS[name].partition(":")[0].split(".")[1:]
    return ast.parse(files("fedxray").joinpath(*folders, f"{stem}.py").read_text(encoding="utf-8"))


@cache
def _class_of(name: str) -> ast.ClassDef | None:
    """The class of an attack as it is written."""
    written = _file_of(name)
    if written is None:
        return None
    wanted = ATTACKS[name].partition(":")[2]
    for node in written.body:
        if isinstance(node, ast.ClassDef) and node.name == wanted:
            return node
    return None
