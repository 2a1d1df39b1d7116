"""Identities of attacks and the texts of settings stay as they are: stored answers and draws depend on them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

GOLDEN: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scripts" / "golden.py"))


def test_identities_and_texts_of_settings_are_the_stored_ones() -> None:
    """A new attack or defence has none stored yet; `python scripts/golden.py identities` adds it."""
    stored, present = GOLDEN["read"](GOLDEN["IDENTITIES"]), GOLDEN["identities"]()
    changed = [
        f"{name}: stored {stored.get(name)}, now {present.get(name)}"
        for name in sorted(stored)
        if stored.get(name) != present.get(name)
    ]
    assert not changed, (
        f"{len(changed)} identities changed. Audits that were begun before cannot be resumed with them, and draws are "
        "others. If that is meant, rewrite them deliberately: python scripts/golden.py identities\n"
        + "\n".join(changed)
    )


def test_no_two_entries_share_an_identity() -> None:
    """Answers are stored by identity: floors of one name have a class for each kind of guess."""
    entries: dict[str, set[str]] = {}
    for label, identity in GOLDEN["identities"]().items():
        entries.setdefault(identity, set()).add(label.split(",")[0])  # settings of one entry may coincide
    assert [sorted(labels) for labels in entries.values() if len(labels) > 1] == []
