"""The knowledge of one adversary: its observations, common knowledge of the task, and its grants.

An attack gets a `View` and nothing else. A view holds no transcript, no seed and no truth beyond its grants, and
neither it nor its parts show a tensor value in their `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, Protocol, overload

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.data.dataset import Records, Space
from fedxray.defences.base import Defence
from fedxray.federation.recipe import Recipe
from fedxray.federation.tamper import Tamper
from fedxray.losses import example_loss, in_eval_mode
from fedxray.params import Params


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One round as the adversary saw it: `update` is end minus start, the weighted mean over the contributors.

    For `kind` gradient the update is minus the gradient, which is end minus start at a learning rate of one.
    """

    round: int
    start: Params
    update: Params
    kind: Literal["weights", "gradient"]
    contributors: tuple[int, ...] | None  # None where the role does not know them
    examples: int | None  # of all contributors together; None where the role does not know it
    buffers: Params = field(default_factory=dict)  # at the start of the round
    buffers_after: Params = field(default_factory=dict)  # as returned, where they are shared
    tampered: bool = False

    def __repr__(self) -> str:
        """Round, kind and contributors; no tensor, and nothing is fetched."""
        facts = f"round={self.round}, kind={self.kind!r}, contributors={self.contributors}"
        return f"Observation({facts}, examples={self.examples}, tampered={self.tampered})"


@dataclass(frozen=True)
class Places:
    """The indices of observations by client (single replies) and by round, found once for all views of a run."""

    count: int
    by_client: Mapping[int, Sequence[int]]
    by_round: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, facts: Iterable[tuple[int, tuple[int, ...] | None]]) -> Places:
        """Index observations by their round and contributors."""
        count, by_client, by_round = 0, dict[int, list[int]](), dict[int, list[int]]()
        for count, (round, contributors) in enumerate(facts, 1):
            by_round.setdefault(round, []).append(count - 1)
            if contributors is not None and len(contributors) == 1:
                by_client.setdefault(contributors[0], []).append(count - 1)
        return cls(count, dict(sorted(by_client.items())), dict(sorted(by_round.items())))


class Observations(Sequence[Observation]):
    """Observations that are made when first asked for, so that a view costs what an attack reads of it."""

    def __init__(self, make: Callable[[int], Observation], places: Places) -> None:
        """Store the function that makes the observation of an index."""
        self._make, self._places = make, places

    @overload
    def __getitem__(self, index: int) -> Observation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Observation, ...]: ...
    def __getitem__(self, index: int | slice) -> Observation | tuple[Observation, ...]:
        """The observation of an index, or those of several."""
        chosen = range(self._places.count)[index]
        return self._make(chosen) if isinstance(chosen, int) else tuple(map(self._make, chosen))

    def __len__(self) -> int:
        """Number of observations."""
        return self._places.count

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds seen, ascending."""
        return tuple(self._places.by_round)

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of which single replies were seen, ascending."""
        return tuple(self._places.by_client)

    @property
    def singles(self) -> int:
        """Number of single replies."""
        return sum(map(len, self._places.by_client.values()))

    def of_client(self, client: int) -> tuple[Observation, ...]:
        """The single replies of a client."""
        return tuple(map(self._make, self._places.by_client.get(client, ())))

    def of_round(self, round: int) -> tuple[Observation, ...]:
        """The observations of a round."""
        return tuple(map(self._make, self._places.by_round.get(round, ())))


@dataclass(frozen=True)
class ObservedModel:
    """A global model as the adversary saw it, at the start of `round` (or after the last one)."""

    round: int
    params: Params
    buffers: Params

    def __repr__(self) -> str:
        """The round; no tensor, and nothing is fetched."""
        return f"ObservedModel(round={self.round})"


@dataclass(frozen=True, kw_only=True)
class PublicAttributes:
    """Records of the target with the sensitive column blanked: everything else about them is known."""

    x: Tensor  # [records, ...], the sensitive positions hold 0
    y: Tensor  # [records]

    def __repr__(self) -> str:
        """Number of records; no value."""
        return f"PublicAttributes({len(self.x)} of shape {list(self.x.shape[1:])})"


@dataclass(frozen=True, kw_only=True)
class SourceRecords:
    """Training records of several clients, mixed; the attack infers the client of each."""

    x: Tensor  # [records, ...]
    y: Tensor  # [records]
    counts: tuple[int, ...]  # by client, the number of these records that were taken from it

    def __repr__(self) -> str:
        """Number of records; no value."""
        return f"SourceRecords({len(self.x)} of shape {list(self.x.shape[1:])}, counts={self.counts})"


@dataclass(frozen=True, kw_only=True)
class LossOracle:
    """The mean loss of any model on records that the adversary does not see."""

    records: Records
    loss: str

    def of(self, model: nn.Module, params: Params, buffers: Params | None = None) -> float:
        """The loss of these parameters in evaluation mode."""
        network = in_eval_mode(model)
        with torch.no_grad():
            output = functional_call(network, {**params, **(buffers or {})}, (self.records.x,))
        return float(example_loss(self.loss)(output, self.records.y).mean())


@dataclass(frozen=True, kw_only=True)
class Grants:
    """The values that the auditor grants to this adversary; None where nothing was granted."""

    names: tuple[str, ...] = ()
    recipe: Recipe | None = None
    examples: int | None = None
    metrics: dict[int, dict[str, float]] | None = None  # by round, as the client reports them
    contributors: tuple[int, ...] | None = None
    defence: Defence | None = None
    labels: Tensor | None = None  # [records] in a random order
    label_counts: Tensor | None = None  # [classes]
    batch_labels: dict[int, tuple[Tensor, ...]] | None = None  # by round, labels of every local step
    public_attributes: PublicAttributes | None = None
    target_records: Records | None = None  # members and non-members, mixed
    source_records: SourceRecords | None = None
    own_data: Records | None = None
    public_records: Records | None = None
    public_images: Tensor | None = None
    # by round, "<layer>.mean" and "<layer>.var" of every local step, each [steps, channels]
    bn_statistics: dict[int, dict[str, Tensor]] | None = None
    oracle: dict[str, Any] = field(default_factory=dict)  # values of oracle-* grants by name

    def __repr__(self) -> str:
        """Names of the grants, with sizes; no value of a record or a label."""
        return f"Grants({', '.join(self._described(name) for name in self.names)})"

    def _described(self, name: str) -> str:
        value = getattr(self, name.replace("-", "_"), None)
        if isinstance(value, Tensor):
            return f"{name}={list(value.shape)}"
        if isinstance(value, Records | PublicAttributes | SourceRecords):
            return f"{name}={len(value.x)} records"
        return name

    @property
    def is_oracle(self) -> bool:
        """Whether a grant is an oracle's, which no real adversary has."""
        return any(name.startswith("oracle-") for name in self.names)

    def only(self, names: Sequence[str]) -> Grants:
        """The grants of these names alone."""
        values = {
            entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ("names", "oracle")
        }
        return Grants(
            names=tuple(name for name in self.names if name in names),
            oracle={name: value for name, value in self.oracle.items() if name in names},
            **{name: value for name, value in values.items() if name.replace("_", "-") in names},
        )


@dataclass(frozen=True, kw_only=True)
class Own:
    """The own records and updates of a curious client."""

    client: int
    records: Records
    observations: Sequence[Observation]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The result of an active server's rounds: the replies, and the last state of its tamper."""

    observations: Sequence[Observation]
    state: Any
    rounds_spent: int


class Channel(Protocol):
    """An active server's access to the clients; every call continues from the same last round that was seen."""

    def __call__(self, tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        """Send these clients what the tamper returns, for `rounds` rounds, and return their replies."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything that one adversary knows; holds no transcript, no seed and no truth beyond its grants."""

    role: str
    target: int | None  # the target client; None where the role sees only sums
    observations: Sequence[Observation]
    globals: tuple[ObservedModel, ...]
    model: nn.Module
    space: Space
    loss: str
    grants: Grants
    own: tuple[Own, ...] = ()
    channel: Channel | None = None  # to send clients any model, where the run can be continued
    messages: bool = True  # False for floors, which use none

    def __repr__(self) -> str:
        """Role, target, numbers of observations and names of grants; no value."""
        counts = f"observations={len(self.observations)}, globals={len(self.globals)}"
        own = f", own={[client.client for client in self.own]}" if self.own else ""
        return f"View({self.role!r}, target={self.target}, {counts}, grants={self.grants!r}{own})"

    @cached_property
    def indexed(self) -> Observations:
        """The observations, found by client and by round."""
        seen = self.observations
        if isinstance(seen, Observations):
            return seen
        return Observations(seen.__getitem__, Places.of((one.round, one.contributors) for one in seen))

    @cached_property
    def network(self) -> nn.Module:
        """The model in evaluation mode, copied once however many records and rounds it is asked about."""
        return in_eval_mode(self.model)

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of which single replies were seen."""
        return self.indexed.clients

    @property
    def active(self) -> bool:
        """Whether the adversary can send clients any model."""
        return self.channel is not None

    def of(self, client: int) -> tuple[Observation, ...]:
        """The observations of one client's own replies, by round."""
        return self.indexed.of_client(client)

    def of_target(self) -> tuple[Observation, ...]:
        """The observations about the target client: its own replies, or sums that may include it."""
        return tuple(self.observations) if self.target is None else self.of(self.target)

    @property
    def smallest_sum(self) -> int | None:
        """The least number of clients in a sum that was seen, None where it is not known or no sum was."""
        if isinstance(self.observations, Observations):  # single replies, made when asked for
            return None
        sizes = (len(seen.contributors or ()) for seen in self.observations)
        return min((size for size in sizes if size > 1), default=None)

    def without_messages(self) -> View:
        """A copy without any message: the view of a floor."""
        own = tuple(replace(client, observations=()) for client in self.own)
        return replace(self, observations=(), globals=(), own=own, channel=None, messages=False)

    def ledger(self) -> dict[str, Any]:
        """The attacker knowledge in plain values: role, what was seen and what was granted."""
        return {
            "role": self.role,
            "rounds_seen": list(self.indexed.rounds),
            "single_replies": self.indexed.singles,
            "sums": len(self.observations) - self.indexed.singles,
            "global_models": len(self.globals),
            **({} if self.smallest_sum is None else {"smallest_sum": self.smallest_sum}),
            "grants": sorted(self.grants.names),
            "oracle": self.grants.is_oracle,
            "public_records": len(self.grants.public_records) if self.grants.public_records else 0,
            "common_knowledge": "network, loss, space of inputs with federation-wide scaling constants",
            "active": self.active,
        }
