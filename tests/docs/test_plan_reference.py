"""The plan reference."""

from __future__ import annotations

import runpy
from pathlib import Path

from fedxray.audit.plan import Plan
from fedxray.audit.plan.schema import key_names

PAGE = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "_build" / "plan_reference.py"))


def test_the_reference_lists_every_key() -> None:
    page = PAGE["plan_reference"]()
    for title, section in (("## Top level", Plan), *PAGE["SECTIONS"]):
        chapter = page.partition(title if title.startswith("#") else f"## `{title}`")[2].partition("\n## ")[0]
        for name in key_names(section):
            assert f"| `{name}` |" in chapter, (title, name)
