"""The text of a schema: read where that ends soon, and what is wrong with a key in words."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from fedxray.errors import BadInput, unknown_key

LARGEST = 100_000  # bytes of a schema
MOST_DOTS = 100  # in one key: reading a key takes the square of its parts
_QUOTED = re.compile(
    r'#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL
)


def parse(content: bytes) -> dict[str, Any]:
    """The tables of a TOML text; ValueError says why it is none."""
    text = content.decode("utf-8")
    bare = _QUOTED.sub(lambda found: "" if found[0].startswith("#") else "q", text)
    keys = re.findall(r"[\w.\-]+", bare.replace(" ", "").replace("\t", ""))
    if max((key.count(".") for key in keys), default=0) > MOST_DOTS:
        raise ValueError(f"a key with more than {MOST_DOTS} dots")
    return tomllib.loads(text)


def bad_field(where: str, problem: ValidationError, known: dict[int, Iterable[str]], remedy: str) -> BadInput:
    """The first thing that is wrong; `known` holds the keys of the whole (at 1) and of a column (at 3)."""
    found = problem.errors(include_url=False, include_context=False)
    # A misspelt key is missing too: tell the spelling.
    first = min(found, key=lambda one: one["type"] != "extra_forbidden")
    steps = [str(step) for step in first["loc"]]
    if first["type"] == "extra_forbidden":
        place = ": ".join([where, ".".join(steps[:-1])]) if steps[:-1] else where
        return unknown_key(place, steps[-1], known.get(len(steps), ()))
    if first["type"] == "string_type" and steps[2:3] == ["values"]:
        written = f'"{first["input"]}"'[:80]
        return BadInput(
            where,
            expected=f"text in {'.'.join(steps[:-1])}",
            got=repr(first["input"])[:80],
            remedy=f"Write them as text: {written}.",
        )
    expected = f"a schema: {'.'.join(steps) or 'the file'}"
    return BadInput(where, expected=expected, got=str(first["msg"]), remedy=remedy)
