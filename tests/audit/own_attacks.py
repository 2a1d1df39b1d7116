"""Attacks of a user's that give a wrong, a borrowed or a talkative answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, global_models, granted
from fedxray.attacks.evidence import Evidence, of_attributes, of_membership, of_rows, of_sources
from fedxray.attacks.floors import Imputation
from fedxray.attacks.membership import MembershipLoss


@dataclass(frozen=True, kw_only=True)
class Borrowed(Attack):
    """The floor `imputation` as an attack that declares a weaker one."""

    name: ClassVar[str] = "borrowed"
    kind: ClassVar[Any] = "attributes"
    roles: ClassVar[tuple[str, ...]] = ("server",)
    grants: ClassVar[tuple[str, ...]] = ("public-attributes", "public-records")
    requires: ClassVar[Any] = (granted("public-attributes"),)
    floors: ClassVar[tuple[str, ...]] = ("majority",)
    needs_messages: bool = False

    def needs(self) -> Any:
        return (*self.requires, global_models()) if self.needs_messages else self.requires

    def attack(self, view: View, context: Context) -> Evidence:
        return Imputation().attack(view, context)


@dataclass(frozen=True, kw_only=True)
class Misled(Imputation):
    """A poor guess that looks like the floor `imputation`."""

    def attack(self, view: View, context: Context) -> Evidence:
        evidence = super().attack(view, context)
        return of_attributes(-evidence.tensors["codes"])


def two_faced(folder: str) -> Attack:
    """The floor `imputation` in the process of the audit, and a worse one in any other."""
    audit = Path(folder) / "audit"
    if not audit.exists():
        audit.write_text(str(os.getpid()))
    return Imputation() if audit.read_text() == str(os.getpid()) else Misled()


@dataclass(frozen=True, kw_only=True)
class Rows(Attack):
    """As many random rows as it is told."""

    name: ClassVar[str] = "random-rows"
    kind: ClassVar[Any] = "rows"
    roles: ClassVar[tuple[str, ...]] = ("server",)
    grants: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[Any] = ()
    number: int

    def attack(self, view: View, context: Context) -> Evidence:
        return of_rows(torch.randn(self.number, *view.space.shape, generator=context.generator))


def patched() -> Attack:
    """An attack of fedxray's with another method in the object."""
    attack = MembershipLoss()
    object.__setattr__(attack, "attack", lambda view, context: perfect(view))
    return attack


class Forgetful(Attack):
    """An attack that is no dataclass."""

    name = "forgetful"
    kind = "membership"
    roles = ("server",)
    grants = ()
    requires = ()

    def attack(self, view: View, context: Context) -> Evidence:
        return perfect(view)


def perfect(view: View) -> Evidence:
    return of_membership(torch.arange(count(view)).float())


def count(view: View) -> int:
    return len(view.grants.target_records or ())


def forged(evidence: Evidence, **fields: Any) -> Evidence:
    """Evidence with fields that its own check would refuse."""
    for name, value in fields.items():
        object.__setattr__(evidence, name, value)
    return evidence


ANSWERS: dict[str, Callable[[View], Any]] = {
    "status": lambda view: forged(perfect(view), status="splendid"),
    "refused": lambda view: forged(perfect(view), status="refused"),
    "rounds": lambda view: forged(perfect(view), rounds_spent=-3),
    "reason": lambda view: forged(perfect(view), reason=3),
    "curve": lambda view: forged(perfect(view), curve=("steep",)),
    "complex": lambda view: of_membership(torch.ones(count(view), dtype=torch.complex64)),
    "kind": lambda view: of_sources(torch.zeros(count(view), dtype=torch.int64)),
    "short": lambda view: of_membership(torch.ones(3)),
    "square": lambda view: of_membership(torch.ones(count(view), 2)),
    "missing": lambda view: Evidence(kind="membership", tensors={"ranks": torch.ones(count(view))}),
    "nothing": lambda view: None,
    "plain": lambda view: Evidence(kind="membership", tensors={"scores": [1.0]}),  # type: ignore[dict-item]
    "infinite": lambda view: of_membership(torch.full((count(view),), torch.inf)),
    "nan": lambda view: of_membership(torch.full((count(view),), torch.nan), status="undetermined", reason="secret"),
    "facts": lambda view: of_membership(
        torch.ones(count(view)), facts={name: {"secret": "secret"} for name in ("own_share", "taken", "search", "x")}
    ),
    "rounds claimed": lambda view: of_membership(torch.ones(count(view)), rounds_spent=5),
}


@dataclass(frozen=True, kw_only=True)
class Answering(Attack):
    """An attack with one of these answers, given by its own `run`."""

    name: ClassVar[str] = "answering"
    kind: ClassVar[Any] = "membership"
    roles: ClassVar[tuple[str, ...]] = ("server",)
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    requires: ClassVar[Any] = ()
    answer: str
    straight: bool = True

    def attack(self, view: View, context: Context) -> Evidence:
        evidence: Evidence = ANSWERS[self.answer](view)
        return evidence

    def run(self, view: View, **others: Any) -> Evidence:  # type: ignore[misc]
        if self.straight:
            return self.attack(view, None)  # type: ignore[arg-type]
        return super().run(view, **others)


@dataclass(frozen=True, kw_only=True)
class Owners(Answering):
    """A guess of owners that do not exist."""

    kind: ClassVar[Any] = "sources"
    grants: ClassVar[tuple[str, ...]] = ("source-records",)

    def attack(self, view: View, context: Context) -> Evidence:
        return of_sources(torch.full((len(view.grants.source_records.x),), 9))  # type: ignore[union-attr]
