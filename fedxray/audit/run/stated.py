"""A defence of the user's as a case needs it: facts, stated once where its run is simulated, in place of its code.

Cases are scored beside the truth, where that code could change the scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedxray.audit.plan import Plan
from fedxray.audit.run.grid import Case, Run
from fedxray.defences.base import Defence, Hooks, Kept, KnownDefence, Sampling, Work
from fedxray.errors import BadInput, printable
from fedxray.federation.setting import Federation
from fedxray.files import read_object

FILE = "defence.json"
LONGEST = 1000  # characters of its words
REMEDY = "Leave the files of runs alone."


@dataclass(frozen=True, kw_only=True)
class StatedDefence(Defence):
    """The words of a defence, what clients keep, and by their number of examples how they sample."""

    name: ClassVar[str] = "stated"
    words: str = ""
    kept: Any = None  # Kept or None
    sampling: Any = ()  # (examples, Sampling or None, whether an attacker can use what it knows)

    def hooks(self, work: Work) -> Hooks:
        """Return hooks that change nothing."""
        _, sampling, known = next((one for one in self.sampling if one[0] == work.examples), (0, None, False))
        return Hooks(sampling=sampling, kept=self.kept, known=KnownDefence() if known else None)

    def describe(self) -> str:
        """Return the words."""
        return self.words


def has_own_defence(plan: Plan, item: Run | Case) -> bool:
    """Return whether the clients of a run use a defence of the user's or of a plug-in."""
    return (item.plant is None or item.defended) and plan.defence_of(item.defence).is_own


def words_of(defence: Defence) -> str:
    """Return how a defence describes itself, refused where that is no text."""
    words: Any = defence.describe()
    if not isinstance(words, str):
        expected, got = "describe() to return a text", type(words).__name__
        raise BadInput("defence.factory", expected=expected, got=got, remedy="Return one line.")
    return printable(words[:LONGEST])


def write_stated(folder: Path, federation: Federation) -> None:
    """Store the facts of a run's defence."""
    defence = federation.defence
    works = {len(records): federation.work(client) for client, records in enumerate(federation.clients)}
    hooks = {examples: defence.hooks(work) for examples, work in works.items()}
    kept = defence.hooks(federation.work(0)).kept
    sampled = [
        [examples, None if one.sampling is None else asdict(one.sampling), one.known is not None]
        for examples, one in hooks.items()
    ]
    facts = {"words": words_of(defence), "kept": None if kept is None else asdict(kept), "sampling": sampled}
    (folder / FILE).write_text(json.dumps(facts, allow_nan=False))


def read_stated(folder: Path) -> StatedDefence:
    """Return the facts of a run's defence; that code may have changed the file."""
    facts = read_object(folder / FILE)
    try:
        return StatedDefence(
            words=printable(facts["words"][:LONGEST]),
            kept=None if facts["kept"] is None else _kept(facts["kept"]),
            sampling=tuple(
                (int(examples), None if sampling is None else _sampling(sampling), bool(known))
                for examples, sampling, known in facts["sampling"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        got = type(error).__name__
        raise BadInput(str(folder / FILE), expected="facts of a defence", got=got, remedy=REMEDY) from error


def _kept(facts: Mapping[str, Any]) -> Kept:
    return Kept(params=tuple(map(str, facts["params"])), statistics=bool(facts["statistics"]))


def _sampling(facts: Mapping[str, Any]) -> Sampling:
    return Sampling(rate=float(facts["rate"]), pairs=bool(facts["pairs"]))
