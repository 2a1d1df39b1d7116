"""What every attack is: frozen settings, declared needs, one verb."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, final

import torch

from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence, Kind
from fedxray.errors import Refused
from fedxray.progress import Report, silent
from fedxray.seeds import derive_seed, fork, spell

# Runs a sub-attack, or hands back its stored answer; given by the audit so that each stage is computed once.
Memo = Callable[["Attack", View, Callable[[], Evidence]], Evidence]


EVERYONE = ("server", "eavesdropper", "active-server", "curious-client", "secure-aggregation")


@dataclass(frozen=True, kw_only=True)
class Need:
    """One piece of knowledge an attack cannot do without, and what would give it."""

    what: str  # "single replies of the target", "the recipe"
    given_by: str  # "role server or eavesdropper", "grant recipe"
    met: Callable[[View], bool]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an attack may use besides its view: its own generator, other attacks, and someone to tell of progress."""

    generator: torch.Generator
    root: torch.Generator
    memo: Memo
    report: Report
    stages: list[Evidence] = field(default_factory=list)  # the answers of other attacks so far

    def run(self, attack: Attack, view: View) -> Evidence:
        """Another attack's answer on this view; its draws depend on its own name and settings, not on its caller."""
        answer = self.memo(
            attack, view, lambda: attack.run(view, generator=self.root, memo=self.memo, report=self.report)
        )
        self.stages.append(answer)
        return answer


def compute(attack: Attack, view: View, run: Callable[[], Evidence]) -> Evidence:
    """The memo that remembers nothing."""
    return run()


class Attack(ABC):
    """Base of all attacks; a subclass is a frozen keyword dataclass whose fields are its settings.

    `grants` is the knowledge its paper assumes beyond the seat itself (never an oracle); `roles` are the seats it is
    made for; `small` are settings under which all contract tests together take seconds; `adapts` says whether it
    changes its behaviour when it knows the defence; `searched` are settings that may be searched by its own loss, each
    with its lowest and highest value and how it is spaced (linear, log or int); `judged_by` is the fact of its evidence
    that judges a trial, smaller is better (of a list its least), and `unjudged` what to do where it is missing.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    roles: ClassVar[tuple[str, ...]]
    grants: ClassVar[tuple[str, ...]]
    # The grants that its answer can depend on: callers who hold different others share one. None where any may matter.
    reads: ClassVar[tuple[str, ...] | None] = None
    floors: ClassVar[tuple[str, ...]] = ()
    controls: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    adapts: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = MappingProxyType({})
    judged_by: ClassVar[str] = "own_loss"
    unjudged: ClassVar[str] = "Leave search out."

    @abstractmethod
    def needs(self) -> tuple[Need, ...]:
        """What the view must hold."""

    @abstractmethod
    def attack(self, view: View, context: Context) -> Evidence:
        """The attack itself, on a view that meets its needs."""

    @final
    def check(self, view: View) -> None:
        """Refuse a view that lacks something, naming it and what would give it."""
        for need in self.needs():
            if not need.met(view):
                raise Refused(self.name, missing=need.what, remedy=f"It is given by {need.given_by}.")

    @final
    def run(
        self, view: View, *, generator: torch.Generator, memo: Memo = compute, report: Report = silent
    ) -> Evidence:
        """Check the needs, then attack with a generator that depends on the given one, the name and the settings."""
        self.check(view)
        own = fork(generator, "attack", self.name, spell(self))
        context = Context(generator=own, root=generator, memo=memo, report=report)
        evidence = with_doubts(self.attack(view, context), context.stages)
        return replace(
            evidence,
            target=view.target,
            seats=tuple(one.client for one in view.own),
            rounds_spent=evidence.rounds_spent + sum(stage.rounds_spent for stage in context.stages),
        )

    @final
    def identity(self) -> str:
        """Short text that is equal for equal settings, for names of stored answers."""
        return f"{self.name}-{derive_seed(0, self.name, spell(self)):016x}"


def with_doubts(evidence: Evidence, stages: list[Evidence]) -> Evidence:
    """Evidence that rests on an answer which did not end well has not ended well either."""
    bad = next((stage for stage in stages if stage.status != "ok"), None)
    if bad is None or evidence.status != "ok":
        return evidence
    return replace(evidence, status=bad.status, reason=f"it rests on another attack's answer: {bad.reason}")


REPLIES = "replies of the target client alone"


def single_replies() -> Need:
    """The target's own replies, at least one."""
    return Need(
        what=REPLIES,
        given_by="role server, eavesdropper or active-server without secure aggregation",
        met=lambda view: view.target is not None and len(view.of(view.target)) > 0,
    )


def needs_of_model(model: Attack) -> tuple[Need, ...]:
    """What a model of the target needs; where that is its replies, every seat has the global model instead."""
    instead = ', or model = "global-model" in this [[attack]]'
    return tuple(
        replace(need, given_by=need.given_by + instead) if need.what == REPLIES else need
        for need in model.needs()
    )


def line_to_the_client() -> Need:
    """A channel through which the target can be sent what the server likes."""
    return Need(
        what="a client that can still be asked and one whose replies can be told from the others'",
        given_by="role active-server on a simulated run without secure aggregation; in a recording nobody can be asked",
        met=lambda view: view.channel is not None and view.target is not None,
    )


def global_models() -> Need:
    """At least one global model."""
    return Need(
        what="a global model",
        given_by="every role, when at least one round is recorded",
        met=lambda view: len(view.globals) > 0,
    )


def any_update() -> Need:
    """An update about the target: its own reply, or a sum."""
    return Need(
        what="an update",
        given_by="any role that sees two consecutive models or a reply",
        met=lambda view: len(view.of_target()) > 0,
    )


def granted(name: str) -> Need:
    """A grant that must be there."""
    return Need(
        what=f"the grant {name}", given_by=f'grants = ["{name}"]', met=lambda view: name in view.grants.names
    )


def public_records() -> Need:
    """Some records of no client."""
    return Need(
        what="public records",
        given_by='grants = ["public-records"] with public > 0 in [data]',
        met=lambda view: view.grants.public_records is not None and len(view.grants.public_records) > 0,
    )


def classification() -> Need:
    """A task with classes."""
    return Need(
        what="a classification task",
        given_by="a data set with classes",
        met=lambda view: view.space.target == "classification",
    )


def images() -> Need:
    """Inputs that are images."""
    return Need(
        what="image inputs", given_by="a data set of images", met=lambda view: view.space.kind == "image"
    )


def sensitive_column() -> Need:
    """A named sensitive column."""
    return Need(
        what="a sensitive column",
        given_by='sensitive = "..." in [data]',
        met=lambda view: view.space.sensitive is not None,
    )
