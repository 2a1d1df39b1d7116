"""What one adversary holds: its observations, common knowledge of the task, and what it was granted."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.data.dataset import Records, Space
from fedxray.defences.base import Defence
from fedxray.federation.recipe import Recipe
from fedxray.federation.tamper import Tamper
from fedxray.losses import example_loss
from fedxray.params import Params


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One round as this seat saw it: `update` is end minus start, the weighted mean over the contributors.

    For `kind` gradient the update is minus the gradient, which is end minus start at a learning rate of one.
    """

    round: int
    start: Params
    update: Params
    kind: Literal["weights", "gradient"]
    contributors: tuple[int, ...] | None  # None where the seat cannot know them
    examples: int | None
    buffers: Params = field(default_factory=dict)  # at the start of the round
    buffers_after: Params = field(default_factory=dict)  # as returned, where they are shared
    tampered: bool = False


@dataclass(frozen=True)
class GlobalModel:
    """A global model as this seat saw it, at the start of `round` (or after the last one)."""

    round: int
    params: Params
    buffers: Params


@dataclass(frozen=True, kw_only=True)
class PublicAttributes:
    """Records of the target with the sensitive column blanked: everything else about them is known."""

    x: Tensor  # [records, ...], the sensitive positions hold 0
    y: Tensor  # [records]


@dataclass(frozen=True, kw_only=True)
class SourceRecords:
    """Training records of several clients, mixed: whose is whose is the question."""

    x: Tensor  # [records, ...]
    y: Tensor  # [records]
    counts: tuple[int, ...]  # by client, how many of these records were taken from it


@dataclass(frozen=True, kw_only=True)
class LossOracle:
    """Tells the mean loss of any model on records that its holder may not look at."""

    records: Records
    loss: str

    def of(self, model: nn.Module, params: Params, buffers: Params | None = None) -> float:
        """The loss of these parameters in evaluation mode."""
        network = copy.deepcopy(model).eval()
        with torch.no_grad():
            output = functional_call(network, {**params, **(buffers or {})}, (self.records.x,))
        return float(example_loss(self.loss)(output, self.records.y).mean())


@dataclass(frozen=True, kw_only=True)
class Grants:
    """What the auditor hands to this adversary, by value; None where nothing was granted."""

    names: tuple[str, ...] = ()
    recipe: Recipe | None = None
    examples: int | None = None
    contributors: tuple[int, ...] | None = None
    defence: Defence | None = None
    labels: Tensor | None = None  # [records] in an order of the auditor's choosing
    label_counts: Tensor | None = None  # [classes]
    batch_labels: dict[int, tuple[Tensor, ...]] | None = None  # by round, labels of every local step
    public_attributes: PublicAttributes | None = None
    target_records: Records | None = None  # members and others, mixed
    source_records: SourceRecords | None = None
    own_data: Records | None = None
    public_records: Records | None = None
    public_images: Tensor | None = None
    # by round, "<layer>.mean" and "<layer>.var" of every local step, each [steps, channels]
    bn_statistics: dict[int, dict[str, Tensor]] | None = None
    oracle: dict[str, Any] = field(default_factory=dict)  # values of oracle-* grants by name

    @property
    def is_oracle(self) -> bool:
        """Whether anything was granted that no adversary could have."""
        return any(name.startswith("oracle-") for name in self.names)

    def only(self, names: Sequence[str]) -> Grants:
        """Those of these names, nothing else."""
        values = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("names", "oracle")
        }
        return Grants(
            names=tuple(name for name in self.names if name in names),
            oracle={name: value for name, value in self.oracle.items() if name in names},
            **{name: value for name, value in values.items() if name.replace("_", "-") in names},
        )


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a client's seat holds of its own."""

    client: int
    records: Records
    observations: tuple[Observation, ...]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What an active server got for the rounds it spent: the replies, and the last state of its tampering."""

    observations: tuple[Observation, ...]
    state: Any
    rounds_spent: int


class Channel(Protocol):
    """An active server's line to the clients; every call goes on from the same last round that was seen."""

    def __call__(self, tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        """Send these clients what the tamper says for so many rounds."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One adversary's whole knowledge; holds no transcript, no seed and no truth beyond its grants."""

    role: str
    target: int | None  # the client in question; None where the seat sees only sums
    observations: tuple[Observation, ...]
    globals: tuple[GlobalModel, ...]
    model: nn.Module
    space: Space
    loss: str
    grants: Grants
    own: tuple[Own, ...] = ()
    channel: Channel | None = None  # to send what it likes, where clients can still be asked
    messages: bool = True  # False for floors, which work without any

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of which single replies were seen."""
        seen = {
            one.contributors[0]
            for one in self.observations
            if one.contributors and len(one.contributors) == 1
        }
        return tuple(sorted(seen))

    @property
    def active(self) -> bool:
        """Whether this seat can send what it likes."""
        return self.channel is not None

    def of(self, client: int) -> tuple[Observation, ...]:
        """The observations of one client's own replies, by round."""
        return tuple(one for one in self.observations if one.contributors == (client,))

    def of_target(self) -> tuple[Observation, ...]:
        """The observations about the client in question: its own replies, or sums that may hold it."""
        return self.observations if self.target is None else self.of(self.target)

    def without_messages(self) -> View:
        """The same knowledge without anything that was sent: what a floor works from."""
        return replace(
            self,
            observations=(),
            globals=(),
            own=tuple(replace(one, observations=()) for one in self.own),
            channel=None,
            messages=False,
        )

    def ledger(self) -> dict[str, Any]:
        """Who sits here, what was seen and what was granted, in plain values."""
        return {
            "role": self.role,
            "rounds_seen": sorted({one.round for one in self.observations}),
            "single_replies": sum(
                one.contributors is not None and len(one.contributors) == 1 for one in self.observations
            ),
            "sums": sum(one.contributors is None or len(one.contributors) > 1 for one in self.observations),
            "global_models": len(self.globals),
            "grants": sorted(self.grants.names),
            "oracle": self.grants.is_oracle,
            "public_records": len(self.grants.public_records) if self.grants.public_records else 0,
            "common_knowledge": "network, loss, space of inputs with federation-wide scaling constants",
            "active": self.active,
        }
