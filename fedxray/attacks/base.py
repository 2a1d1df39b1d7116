"""The base of all attacks: frozen settings, declared needs, and one method that turns a view into evidence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, final

import torch

from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence, Kind, WrongEvidence
from fedxray.errors import Refused
from fedxray.params import is_finite
from fedxray.progress import Report, silent
from fedxray.seeds import derive_seed, fork, spell
from fedxray.settings import check_fields

# Runs a sub-attack or returns its stored answer; the audit provides it so that each stage is computed once.
Memo = Callable[["Attack", View, Callable[[], Evidence]], Evidence]

EVERYONE = ("server", "eavesdropper", "active-server", "curious-client", "secure-aggregation")
SINGLE_REPLIES = ("server", "eavesdropper", "active-server")  # roles that see each client's reply by itself


@dataclass(frozen=True, kw_only=True)
class Need:
    """One piece of knowledge that an attack requires, and the role or grant that gives it."""

    what: str  # "single replies of the target", "the recipe"
    given_by: str  # "role server or eavesdropper", "grant recipe"
    met: Callable[[View], bool]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an attack may use besides its view: its own generator, other attacks, and a progress callback."""

    generator: torch.Generator
    root: torch.Generator
    memo: Memo
    report: Report
    stages: list[Evidence] = field(default_factory=list)  # the answers of other attacks so far

    def run(self, attack: Attack, view: View) -> Evidence:
        """Return another attack's answer on this view; its draws depend on its name and settings, not on its caller."""
        answer = self.memo(
            attack, view, lambda: attack.run(view, generator=self.root, memo=self.memo, report=self.report)
        )
        self.stages.append(answer)
        return answer


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the time of an answer depends on; of one client: its records, its local steps in a round, and their time."""

    records: int
    rounds: int
    clients: int
    local_steps: int
    step_seconds: float


def compute(attack: Attack, view: View, run: Callable[[], Evidence]) -> Evidence:
    """Run the attack: the memo that stores nothing."""
    return run()


class Attack(ABC):
    """Base of all attacks; a subclass is a frozen keyword dataclass whose fields are its settings.

    `paper` is its key in `fedxray.attacks.papers` (empty where none describes it); `grants` is the knowledge its paper
    assumes beyond the role itself (never an oracle); `roles` are the roles it is made for; `small` are settings under
    which all contract tests together take seconds; `adapts` states whether it uses knowledge of the defence,
    `by_reports` whether it reads what single clients report in the clear, so that it is about one also under sums;
    `explains_records` whether it explains the messages by all records together, so that held-out ones should fit worse;
    `searched` are settings that may be searched by its own loss, each with its lowest and highest value and its spacing
    (linear, log or int); `judged_by` is the fact of its evidence that ranks trials, smaller is better (of a list its
    minimum), and `unjudged` the remedy where that fact is missing.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    paper: ClassVar[str] = ""
    roles: ClassVar[tuple[str, ...]]
    grants: ClassVar[tuple[str, ...]]
    requires: ClassVar[tuple[Need, ...]]  # its needs, where they do not depend on its settings
    # The grants that its answer can depend on: views that differ in other grants share one answer. None: any may
    # matter.
    reads: ClassVar[tuple[str, ...] | None] = None
    floors: ClassVar[tuple[str, ...]] = ()
    controls: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    adapts: ClassVar[bool] = False
    explains_records: ClassVar[bool] = False
    by_reports: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = MappingProxyType({})
    judged_by: ClassVar[str] = "own_loss"
    unjudged: ClassVar[str] = "Leave search out."

    def __post_init__(self) -> None:
        """Check every setting."""
        check_fields(self)
        self.check_settings()

    def check_settings(self) -> None:  # noqa: B027
        """Refuse settings that do not fit together; a hook for attacks whose settings depend on each other."""

    def needs(self) -> tuple[Need, ...]:
        """List what the view must hold; overridden where that depends on the settings."""
        return self.requires

    def own_grants(self) -> tuple[str, ...]:
        """List the grants that it gets where a plan names none; overridden where a setting adds some."""
        return self.grants

    def seconds(self, work: Workload) -> float:
        """Return about how long an answer takes beyond its steps, for the estimate of an audit; a hook."""
        return 0.0

    @abstractmethod
    def attack(self, view: View, context: Context) -> Evidence:
        """Attack a view that meets the needs, and return the guess."""

    @final
    def check(self, view: View) -> None:
        """Refuse a view that lacks something, naming it and the role or grant that gives it."""
        for need in self.needs():
            if not need.met(view):
                raise Refused(self.name, missing=need.what, remedy=f"It is given by {need.given_by}.")

    @final
    def run(self, view: View, *, generator: torch.Generator, memo: Memo = compute, report: Report = silent) -> Evidence:
        """Check the needs, then attack with a generator that depends on the given one, the name and the settings."""
        self.check(view)
        own = fork(generator, "attack", self.name, spell(self))
        context = Context(generator=own, root=generator, memo=memo, report=report)
        evidence = self.attack(view, context)
        if not isinstance(evidence, Evidence):
            raise WrongEvidence("attack", expected="it to return an Evidence", got=type(evidence).__name__)
        evidence = with_doubts(if_finite(evidence), context.stages)
        spent = evidence.rounds_spent + sum(stage.rounds_spent for stage in context.stages)
        seats = tuple(client.client for client in view.own)
        return replace(evidence, target=view.target, seats=seats, rounds_spent=spent)

    @final
    def identity(self) -> str:
        """Return a short text that is equal for equal settings, for names of stored answers."""
        return f"{self.name}-{derive_seed(0, self.name, spell(self)):016x}"


def if_finite(evidence: Evidence) -> Evidence:
    """Return the evidence, as diverged where an entry of it is NaN or infinite: that is no guess."""
    lost = not_finite(evidence)
    return replace(evidence, status="diverged", reason=lost) if lost and evidence.status == "ok" else evidence


def not_finite(evidence: Evidence) -> str:
    """Return which entries of a guess are NaN or infinite, in words; empty where none is."""
    lost = next((name for name, value in evidence.tensors.items() if not is_finite({name: value})), None)
    if lost is None:
        return ""
    count = int((~torch.isfinite(evidence.tensors[lost])).sum())
    entries = f"{count} of {evidence.tensors[lost].numel()} entries of {lost!r}"
    return f"the guess holds values that are not finite: {entries}"


def with_doubts(evidence: Evidence, stages: list[Evidence]) -> Evidence:
    """Return the evidence with the status of a failed answer of another attack that it is based on, if any."""
    bad = next((stage for stage in stages if stage.status != "ok"), None)
    if bad is None or evidence.status != "ok":
        return evidence
    return replace(evidence, status=bad.status, reason=f"it is based on another attack's answer: {bad.reason}")


REPLIES = "replies of the target client alone"


def single_replies() -> Need:
    """Return the need of at least one reply of the target alone."""
    return Need(
        what=REPLIES,
        given_by="role server, eavesdropper or active-server without secure aggregation",
        met=lambda view: view.target is not None and len(view.of(view.target)) > 0,
    )


def needs_of_model(model: Attack) -> tuple[Need, ...]:
    """Return the needs of an attack on the local model; the remedy for missing replies names the global model."""
    instead = ', or model = "global-model" in this [[attack]]'
    return tuple(
        replace(need, given_by=need.given_by + instead) if need.what == REPLIES else need for need in model.needs()
    )


def line_to_the_client() -> Need:
    """Return the need of a channel through which the attacker chooses what the target receives."""
    return Need(
        what="a client that still answers and whose replies can be distinguished from the others'",
        given_by="role active-server on a simulated run without secure aggregation; a recording has no live client",
        met=lambda view: view.channel is not None and view.target is not None,
    )


def global_models() -> Need:
    """Return the need of at least one global model."""
    return Need(
        what="a global model",
        given_by="every role, when at least one round is recorded",
        met=lambda view: len(view.globals) > 0,
    )


def any_update() -> Need:
    """Return the need of an update about the target: its own reply, or a sum."""
    return Need(
        what="an update",
        given_by="any role that sees two consecutive models or a reply",
        met=lambda view: len(view.of_target()) > 0,
    )


def granted(name: str) -> Need:
    """Return the need of this grant."""
    return Need(what=f"the grant {name}", given_by=f'grants = ["{name}"]', met=lambda view: name in view.grants.names)


def public_records() -> Need:
    """Return the need of records that belong to no client."""
    return Need(
        what="public records",
        given_by='grants = ["public-records"] with public > 0 in [data]',
        met=lambda view: view.grants.public_records is not None and len(view.grants.public_records) > 0,
    )


def classification() -> Need:
    """Return the need of a task with classes."""
    return Need(
        what="a classification task",
        given_by="a data set with classes",
        met=lambda view: view.space.target == "classification",
    )


def images() -> Need:
    """Return the need of image inputs."""
    return Need(what="image inputs", given_by="a data set of images", met=lambda view: view.space.kind == "image")


def sensitive_column() -> Need:
    """Return the need of a sensitive column."""
    return Need(
        what="a sensitive column",
        given_by='sensitive = "..." in [data]',
        met=lambda view: view.space.sensitive is not None,
    )
