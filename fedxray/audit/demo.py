"""The demo: the shipped plans, each an audit of its own in the private part, joined into one set of results."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedxray.audit.conduct import Ended, conduct_with, silent
from fedxray.audit.engines import Progress, make_engine
from fedxray.audit.plan import Plan, make_plan
from fedxray.audit.purge import clear
from fedxray.audit.results import validate
from fedxray.audit.store import GALLERY, PRIVATE, open_store
from fedxray.files import read_json

KIND = "demo"


def shipped_plans() -> list[Plan]:
    """The plans of the demo, in the order of their names."""
    found = []
    for entry in sorted(files("fedxray").joinpath("plans").iterdir(), key=lambda one: one.name):
        if entry.name.startswith("demo-") and entry.name.endswith(".toml"):
            text = entry.read_bytes()
            found.append(make_plan(tomllib.loads(text.decode()), Path.cwd(), text))
    return found


def conduct_demo(
    folder: Path, *, engine: str = "inline", jobs: int | None = None, progress: Progress = silent
) -> Ended:
    """Audit all shipped plans; a folder that an earlier demo left is written anew."""
    plans = shipped_plans()
    digest = hashlib.sha256("".join(plan.digest() for plan in plans).encode()).hexdigest()
    with make_engine(engine, jobs) as workers:
        clear(folder, KIND)
        with open_store(folder, digest, kind=KIND) as store:
            parts = []
            for plan in plans:
                store.write_plan(plan.text, f"plan-{plan.name}.toml")
                parts.append(conduct_with(workers, plan, store.private / plan.name, progress=progress))
            document = join([part.document for part in parts])
            store.write_galleries([entry for part in parts for entry in _gallery(part.folder)])
            store.write_results(document)
    return Ended(folder=folder, document=document, failed=sum(part.failed for part in parts))


def join(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several results in one; every row says in `plan` which plan it is from."""
    joined: dict[str, Any] = {
        "format": documents[0]["format"],
        "plan": {"name": KIND, "plans": [document["plan"] for document in documents]},
        "versions": documents[0]["versions"],
    }
    for rows in ("cases", "summary", "utility", "power"):
        joined[rows] = [
            {**row, "plan": document["plan"]["name"]}
            for document in documents
            for row in document.get(rows, ())
        ]
    keys = [
        tuple(row[name] for name in ("attack", "role", "defence", "aware", "metric"))
        for row in joined["summary"]
    ]
    if len(set(keys)) < len(keys):
        raise ValueError("attacks of different plans must have different labels to stand in one table")
    validate(joined)
    return joined


def _gallery(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place in (folder / GALLERY, folder / PRIVATE / GALLERY):
        if place.is_file():
            found += read_json(place)
    return found
