"""The federation: everything that defines a run except its seed, with its checks, and the participants of each round.

What can be refused is refused before anything runs: records that do not fit the network, batches that BatchNorm cannot
use, and defences that would fail in the first step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Records, Space
from fedxray.defences.base import Defence, Hooks, Kept, Mixing, NoDefence, Work
from fedxray.errors import BadInput, check_whole, some, unknown_name
from fedxray.federation.cohort import ClientJob, train_one
from fedxray.federation.recipe import Recipe, Schedule
from fedxray.federation.truth import Truth, kept_of, work_of
from fedxray.lookup import describe_error
from fedxray.losses import AUTO, default_loss
from fedxray.models.inspect import batch_norm_layers, has_batch_norm
from fedxray.params import buffers_of, parameters_of
from fedxray.seeds import fork, permutation

# Checks before a run


def check_records(model: nn.Module, clients: Sequence[Records], holdout: Sequence[Records]) -> None:
    """Refuse clients without examples, of different shapes, or not of the network's floating-point type."""
    if not clients:
        raise BadInput("clients", expected="at least one client", got=0, remedy="Give clients = 2 or more.")
    if holdout and len(holdout) != len(clients):
        expected, remedy = f"held-out records for {len(clients)} clients", "Give one set for each, or none."
        raise BadInput("holdout", expected=expected, got=len(holdout), remedy=remedy)
    weight = next(iter(parameters_of(model).values()), None)
    if weight is None:
        remedy = "Set requires_grad on what clients train."
        raise BadInput("model", expected="trainable parameters", got="none", remedy=remedy)
    for client, records in enumerate(clients):
        if len(records) == 0 or len(records.y) != len(records):
            raise BadInput(
                "clients",
                expected="examples at every client, each with a target",
                got=f"none at client {client}" if len(records) == 0 else f"{len(records.y)} targets",
                remedy="Use fewer clients, another partition, or more data.",
            )
        if records.x.dtype != weight.dtype or records.x.shape[1:] != clients[0].x.shape[1:]:
            raise BadInput(
                "clients",
                expected=f"inputs of {weight.dtype} like the model, of shape {list(clients[0].x.shape[1:])}",
                got=f"{records.x.dtype} {list(records.x.shape[1:])} at client {client}",
                remedy="Convert records and model to one type (in_dtype does both).",
            )


def check_batches(
    model: nn.Module, sample: Tensor, examples: Sequence[int], recipe: Recipe, mixing: Mixing = "none"
) -> None:
    """Refuse a batch in which a BatchNorm layer would get a single value per channel.

    `sample` [1, ...] is one input, `examples` the number of examples of each client.
    """
    if not has_batch_norm(model):
        return
    merged = 2 if mixing == "pairs" else 1  # examples that become one
    smallest = {client: -(-_smallest_batch(count, recipe) // merged) for client, count in enumerate(examples)}
    with_single = [client for client, length in smallest.items() if length == 1]
    if not with_single:
        return
    single = [name for name, values in values_per_channel(model, sample).items() if values == 1]
    if single:
        count, first, after = examples[with_single[0]], with_single[0], " after mixing" if merged > 1 else ""
        raise BadInput(
            "batch_size",
            expected=f"batches of at least 2 examples{after} for BatchNorm layer {single[0]!r}",
            got=f"a batch of 1 at client {first} ({count} examples in batches of {recipe.batch_length(count)})",
            remedy='Choose a batch size that leaves no single example over, or a model with norm = "none".',
        )


def _smallest_batch(examples: int, recipe: Recipe) -> int:
    length = recipe.batch_length(examples)
    return examples % length or length


def values_per_channel(model: nn.Module, sample: Tensor) -> dict[str, int]:
    """Values per channel that one example (sample: [1, ...]) gives to every BatchNorm layer, by its name."""
    trial = copy.deepcopy(model).eval()
    counts: dict[str, int] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            counts[name] = inputs[0].numel() // max(1, inputs[0].shape[1])

        return hook

    for name, module in batch_norm_layers(trial).items():
        module.register_forward_pre_hook(note(name))
    with torch.no_grad():
        trial(sample)
    return counts


def check_hooks(hooks: object) -> Hooks:
    """The hooks of a defence, refused where its method returned something else."""
    if isinstance(hooks, Hooks):
        return hooks
    expected = "its method hooks to return a fedxray.defences.base.Hooks"
    remedy = "Return Hooks() where nothing is to be changed."
    raise BadInput("defence", expected=expected, got=type(hooks).__name__, remedy=remedy)


def check_defence(model: nn.Module, hooks: Hooks) -> None:
    """Refuse a defence that the model does not allow.

    Gradients of single examples need a model without BatchNorm, which mixes the examples of a batch. Only trained
    parameters can be kept, and BatchNorm layers only of a model that has them.
    """
    if hooks.gradients is not None and has_batch_norm(model):
        raise BadInput(
            "defence",
            expected="a model without BatchNorm for a defence on the gradients of single examples",
            got="a model with BatchNorm, which mixes the examples of a batch",
            remedy='Use a model with norm = "none", or another defence.',
        )
    if hooks.kept is None:
        return
    trained = parameters_of(model)
    unknown = [name for name in hooks.kept.params if name not in trained]
    if unknown:
        expected, remedy = "names of trained parameters to keep", f"Choose among {some(sorted(trained))}."
        raise BadInput("defence", expected=expected, got=repr(unknown[0]), remedy=remedy)
    if not has_batch_norm(model):
        raise BadInput(
            "defence",
            expected="a model with BatchNorm for a defence that keeps its layers to the client",
            got="a model without",
            remedy='Use a model with norm = "batch", or another defence.',
        )


# The federation

Recorded = Literal["all", "last"] | str | tuple[int, ...]  # a plan's `record`: which rounds are kept
IN_TRUTH = ("space", "model", "recipe", "defence", "rounds", "others")  # fields that a truth takes over as they are
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Everything that defines a run except its seed: records, network, recipe, protocol.

    Clients train the network in train mode, whatever its mode is, and do not change it.
    """

    space: Space
    clients: tuple[Records, ...]  # training records by client
    model: nn.Module
    recipe: Recipe = field(default_factory=Recipe)
    rounds: int = 1
    participation: float = 1.0  # share of the clients in every round
    defence: Defence = field(default_factory=NoDefence)
    secure_aggregation: bool = False
    record: Recorded = "all"
    holdout: tuple[Records, ...] = ()  # by client, never trained on; empty for none
    others: tuple[Records, ...] = ()  # by client, records set aside of people trained on and held out; empty for none
    public: Records | None = None  # of no client
    planted: Callable[[ClientJob], ClientJob] | None = (
        None  # changes clients' work in a round, for an auditor's canaries
    )

    def __post_init__(self) -> None:
        """Set the loss by the target where the recipe leaves it open, and refuse what cannot run."""
        if self.recipe.loss == AUTO:
            object.__setattr__(self, "recipe", replace(self.recipe, loss=default_loss(self.space.target)))
        check_records(self.model, self.clients, self.holdout)
        check_whole("rounds", self.rounds, least=1, usual=10)
        if not 0 < self.participation <= 1:
            expected, remedy = "a share above 0 and up to 1", "Try 1.0."
            raise BadInput("participation", expected=expected, got=self.participation, remedy=remedy)
        recorded_rounds(self.record, self.rounds)
        sizes = [len(records) for records in self.clients]
        hooks = check_hooks(self.defence.hooks(self.work(0)))
        check_batches(self.model, self.clients[0].x[:1], sizes, self.recipe, hooks.mixed)
        check_defence(self.model, hooks)

    @classmethod
    def of(cls, truth: Truth) -> Federation:
        """Return the federation of a run that was simulated, which can be continued."""
        shared: dict[str, Any] = {name: getattr(truth, name) for name in IN_TRUTH}
        return cls(clients=truth.train, holdout=truth.holdout, public=truth.public, **shared)

    def work(self, client: int) -> Work:
        """The facts about a client's work that a defence may use."""
        return work_of(len(self.clients[client]), self.recipe, self.rounds, self.space, self.model)

    def kept(self) -> Kept:
        """The parameters and statistics that clients keep to themselves."""
        return kept_of(self.defence, self.work(0), self.recipe)

    def truth(self, seed: int) -> Truth:
        """The truth behind the run of this seed, for disclosure and scoring."""
        empty = Records(self.clients[0].x[:0], self.clients[0].y[:0])
        shared: dict[str, Any] = {name: getattr(self, name) for name in IN_TRUTH}
        holdout, public = (
            self.holdout or (empty,) * len(self.clients),
            self.public if self.public is not None else empty,
        )
        return Truth(train=self.clients, holdout=holdout, public=public, seed=seed, **shared)


def in_dtype(federation: Federation, name: str) -> Federation:
    """A copy of the federation with network and records in the floating-point type of that name."""
    if name not in DTYPES:
        raise unknown_name("dtype", name, DTYPES)
    dtype = DTYPES[name]
    return replace(
        federation,
        model=copy.deepcopy(federation.model).to(dtype),
        clients=tuple(_cast(records, dtype) for records in federation.clients),
        holdout=tuple(_cast(records, dtype) for records in federation.holdout),
        others=tuple(_cast(records, dtype) for records in federation.others),
        public=None if federation.public is None else _cast(federation.public, dtype),
    )


def _cast(records: Records, dtype: torch.dtype) -> Records:
    y = records.y.to(dtype) if records.y.is_floating_point() else records.y
    return replace(records, x=records.x.to(dtype), y=y)


def recorded_rounds(record: Recorded, rounds: int) -> set[int]:
    """The rounds that a value of `record` keeps; the last one is always kept."""
    if isinstance(record, tuple):
        if any(not 0 <= round < rounds for round in record):
            expected, remedy = f"rounds from 0 to {rounds - 1}", "Leave out what is beyond."
            raise BadInput("record", expected=expected, got=list(record), remedy=remedy)
        return {*record, rounds - 1}
    if record == "all":
        return set(range(rounds))
    if record == "last":
        return {rounds - 1}
    gap = record.removeprefix("every-")
    if record.startswith("every-") and gap.isascii() and gap.isdigit() and int(gap) > 0:
        return {*range(0, rounds, int(gap)), rounds - 1}
    expected = '"all", "last", "every-10" or a list of rounds'
    raise BadInput("record", expected=expected, got=repr(record), remedy='Try "all".')


def participants(federation: Federation, seed: int, round: int) -> list[int]:
    """The clients of a round, ascending."""
    order = permutation(len(federation.clients), fork(seed, "participation", round))
    return sorted(order[: participant_count(federation)].tolist())


def participant_count(federation: Federation) -> int:
    """Number of clients in every round, at least one."""
    return share_of(federation.participation, len(federation.clients))


def share_of(participation: float, clients: int) -> int:
    """The share `participation` of a number of clients, rounded, at least one."""
    return max(1, int(participation * clients + 0.5))


def rounds_worked(federation: Federation, seed: int) -> list[int]:
    """Number of rounds of the run in which each client takes part, by client."""
    counts = [0] * len(federation.clients)
    for round in range(federation.rounds):
        for client in participants(federation, seed, round):
            counts[client] += 1
    return counts


# A defence tried before a run: one local step of the first client on a few of its examples

EXAMPLES = 4  # merged in pairs they are still two, which BatchNorm needs


def try_defence(federation: Federation, *, own: bool) -> None:
    """Refuse what would fail in the first step: a user's own defence, or a network without per-example gradients.

    `own` marks a user's own defence; its errors pass through unchanged, so that the caller can report their place.
    """
    hooks = federation.defence.hooks(federation.work(0))
    if not own and hooks.gradients is None:
        return
    records = federation.clients[0]
    job = ClientJob(
        client=0,
        start=parameters_of(federation.model),
        buffers=buffers_of(federation.model),
        x=records.x,
        y=records.y,
        schedule=Schedule(torch.arange(min(EXAMPLES, len(records)), device="cpu")[None]),
        hooks=hooks,
        generator=fork(0, "defence tried out"),
    )
    try:
        train_one(federation.model, job, federation.recipe)
    except RuntimeError as error:
        if own:
            raise
        raise BadInput(
            "defence",
            expected="a network whose gradients can be taken example by example",
            got=describe_error(error),
            remedy="Leave out recurrent layers and running statistics (track_running_stats = False), "
            'or use a defence with at = "update".',
        ) from error


def buffers_from_data(federation: Federation) -> tuple[str, ...]:
    """Names of the network's buffers that a local step fills from its examples and that leave with every reply.

    Statistics of BatchNorm layers are left out, since they are known to do so.
    """
    model, records, norms = federation.model, federation.clients[0], batch_norm_layers(federation.model)
    names = [name for name, _ in model.named_buffers() if name.rpartition(".")[0] not in norms]
    count = min(EXAMPLES, len(records) // 2)
    if not names or count < 2 or federation.kept().statistics:
        return ()

    def after(first: int) -> dict[str, Tensor]:
        """The buffers after one step on `count` examples from this one on."""
        job = ClientJob(
            client=0,
            start=parameters_of(model),
            buffers=buffers_of(model),
            x=records.x,
            y=records.y,
            schedule=Schedule(torch.arange(first, first + count, device="cpu")[None]),
            hooks=Hooks(),
            generator=fork(0, "buffers"),
        )
        return dict(train_one(model, job, federation.recipe).buffers)

    some_examples, others = after(0), after(count)
    return tuple(name for name in names if not torch.equal(some_examples[name], others[name]))
