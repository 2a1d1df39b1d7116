"""Plain values as TOML, for a plan that was never written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def to_toml(document: Mapping[str, Any]) -> str:
    """Texts, numbers, lists and tables as TOML that reads back as the same values."""
    plain = {name: value for name, value in document.items() if not _headers(name, value)}
    lines = _pairs(plain)
    for name, value in document.items():
        for header, table in _headers(name, value):
            lines += ["", header, *_pairs(table)]
    return "\n".join(lines) + "\n"


def _headers(name: str, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The headers that a value is written under, with what stands below each; none for a plain value."""
    if isinstance(value, Mapping):
        return [(f"[{_key(name)}]", value)]
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return [(f"[[{_key(name)}]]", one) for one in value]
    return []


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_spell(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _spell(name)


def _spell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_spell(one) for one in value) + "]"
    # The texts of JSON are those of TOML, but for one control character and pairs of escapes.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
