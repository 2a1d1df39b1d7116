"""A whole plan: the tables together, its axes, and its digest."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, PrivateAttr

from fedxray.audit.plan.keys import REQUIRED, OpenSection, Section, key
from fedxray.audit.plan.parts import (
    AttackPart,
    DataPart,
    DefencePart,
    FederationPart,
    GatePart,
    ModelPart,
    Sweep,
)
from fedxray.audit.plan.spelling import to_toml
from fedxray.audit.plan.transcript_part import TranscriptPart
from fedxray.audit.restoring import raw_and_restored

FORMAT = 1
Seed = Annotated[int, Field(ge=0, lt=2**63)]
PlanName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Plan(Section):
    """An audit: one federation, and a grid of defences, attacks and seeds."""

    format: Annotated[int, Field(ge=1, le=FORMAT)] = key(FORMAT, "1", "version of this format")
    name: PlanName = key(
        "audit",
        "letters, digits, dots, dashes",
        "name of the audit and of its folder; default: the file's name",
    )
    seeds: Annotated[list[Seed], Field(min_length=1)] = key(
        [0], "a list of whole numbers of at least 0", "one federation is run for each"
    )
    data: DataPart = key(REQUIRED, "a table", "see below")
    model: ModelPart = key(REQUIRED, "a table", "see below")
    federation: FederationPart = key(FederationPart(), "a table", "see below")
    defence: list[DefencePart] = key([], "tables [[defence]]", "see below; without any the only one is none")
    attack: Annotated[list[AttackPart], Field(min_length=1)] = key(
        REQUIRED, "at least one table [[attack]]", "see below"
    )
    gate: list[GatePart] = key([], "tables [[gate]]", "see below")
    sweep: Sweep = key(
        {}, "a table [sweep.LABEL] of lists", "expands the defence of that label: one for each combination"
    )
    transcript: TranscriptPart | None = key(None, "a table", "see below")

    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _text: bytes | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path:
        """Where relative paths of the plan start, and where its own modules may lie."""
        return self._folder

    @property
    def text(self) -> bytes:
        """The plan as it was written, or spelled out with all defaults where it never was."""
        return to_toml(self.to_document()).encode() if self._text is None else self._text

    @property
    def defences(self) -> list[DefencePart]:
        """The defences with every sweep expanded; `none` where the plan names none."""
        listed = self.defence or [DefencePart(name="none")]
        return [point for part in listed for point in self._points(part)]

    @property
    def attacks(self) -> list[AttackPart]:
        """The attacks in the order of the plan, each followed by its restored versions."""
        return [one for part in self.attack for one in raw_and_restored(part, self._folder)]

    def defence_of(self, label: str) -> DefencePart:
        """The defence of that label."""
        return next(part for part in self.defences if part.title == label)

    def attack_of(self, label: str) -> AttackPart:
        """The attack of that label."""
        return next(part for part in self.attacks if part.title == label)

    @property
    def clients(self) -> int:
        """How many clients can be attacked: in a recording it is the node alone."""
        return self.data.clients if self.transcript is None else 1

    def factories(self) -> list[str]:
        """Every function of the user's that this plan will import."""
        parts: list[ModelPart | DefencePart | AttackPart] = [self.model, *self.defence, *self.attack]
        named = [part.factory for part in parts]
        return list(dict.fromkeys(spec for spec in named if spec))

    def to_document(self) -> dict[str, Any]:
        """The plan as plain values for JSON, with defaults filled in; `from_document` reads it back."""
        found = _plain(self)
        if self.transcript is not None:  # what was not given is to be found in the recording
            given = self.federation.model_fields_set
            found["federation"] = {
                name: value for name, value in found["federation"].items() if name in given
            }
        return found

    def digest(self) -> str:
        """A short text that is equal for equal plans."""
        text = json.dumps(self.to_document(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def from_document(document: dict[str, Any], folder: Path, text: bytes | None = None) -> Plan:
        """The plan that `to_document` wrote; its names were checked when it was read."""
        plan = Plan.model_validate(document)
        plan._folder, plan._text = folder, text
        return plan

    def _points(self, part: DefencePart) -> list[DefencePart]:
        swept = self.sweep.get(part.title)
        if not swept:
            return [part]
        points = []
        for values in itertools.product(*swept.values()):
            chosen = dict(zip(swept, values, strict=True))
            spelled = ",".join(f"{name}={spell_value(value)}" for name, value in chosen.items())
            changed = {"label": f"{part.title}[{spelled}]", "settings": part.settings | chosen}
            points.append(part.model_copy(update=changed))
        return points


def spell_value(value: Any) -> str:
    """A swept value as it stands in a label: short, unless that would be another number."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def _plain(section: BaseModel) -> dict[str, Any]:
    """A section as plain values, its settings beside its keys, absent ones left out."""
    found: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if field.exclude or value is None:
            continue
        found[field.alias or name] = _plain_value(value)
    if isinstance(section, OpenSection):
        found.update(section.settings)
    return found


def _plain_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _plain(value)
    if isinstance(value, list):
        return [_plain_value(one) for one in value]
    return value
