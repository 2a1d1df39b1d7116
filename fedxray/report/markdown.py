"""Text for Markdown in which nothing is markup, whatever a name holds."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup

from fedxray.errors import printable

SPECIAL = re.compile(r"[\\`*_{}\[\]!|~^$]|(?<!&)#")
# What a reader might take for HTML, a link or somebody's name even without brackets.
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
FOUND = re.compile("|".join(map(re.escape, ENTITIES)))


def escaped(value: Any) -> Markup:
    """A value as Markdown that shows it and does nothing; what is Markdown already stays."""
    if isinstance(value, Markup):
        return value
    safe = FOUND.sub(lambda found: ENTITIES[found.group()], printable(str(value)))
    return Markup(SPECIAL.sub(r"\\\g<0>", safe))


def verbatim(text: str) -> Markup:
    """Lines inside a fence of code, of which none can close it."""
    lines = [
        "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)
        for line in text.split("\n")
    ]
    return Markup("\n".join(line.replace("```", "` ` `") for line in lines))
