"""What a defence may change at a client: four seams, the identity by default, joined in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.params import Params

State = Any  # what a seam carries from one call to the next; None at the start of a client's work


@dataclass(frozen=True, kw_only=True)
class ExampleGradients:
    """Gradients of single examples on their way to one step: (sum over examples + extra) / divisor."""

    each: dict[str, Tensor]  # [examples, ...] per name
    divisor: Tensor  # scalar
    extra: dict[str, Tensor] | None = None

    def combined(self) -> dict[str, Tensor]:
        """The gradient of the step."""
        total = {name: value.sum(0) for name, value in self.each.items()}
        if self.extra is not None:
            total = {name: value + self.extra[name] for name, value in total.items()}
        return {name: value / self.divisor for name, value in total.items()}


Examples = tuple[Tensor, Tensor]  # x [examples, ...], y [examples, ...]
OnParams = Callable[[dict[str, Tensor], State, torch.Generator], tuple[dict[str, Tensor], State]]
OnBatch = Callable[[Examples, State, torch.Generator], tuple[Examples, State]]
OnGradients = Callable[[ExampleGradients, State, torch.Generator], tuple[ExampleGradients, State]]


# How a batch seam puts examples together: each by itself, in pairs that share none, or each in several.
Mixing = Literal["none", "pairs", "several"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Poisson sampling: every step takes each example by itself with this chance, or each pair of them."""

    rate: float
    pairs: bool = False


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy of every record of a client; epsilon None where none can be claimed."""

    epsilon: float | None
    delta: float
    noise_multiplier: float
    rate: float
    steps: int
    accountant: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a client keeps to itself from round to round: these parameters, and the running statistics."""

    params: tuple[str, ...] = ()
    statistics: bool = True


@dataclass(frozen=True, kw_only=True)
class Seams:
    """The four places of a client's work that a defence can change; None leaves a place as it is.

    The rest says what others must know of it: who draws the batches, how a batch seam puts examples together (one that
    does not say so is taken for the worst), what is promised after so many rounds of work, what never leaves the
    client, and what knowing the defence tells an attacker.
    """

    incoming: OnParams | None = None  # the model that arrived
    batch: OnBatch | None = None  # one mini-batch before its step
    gradients: OnGradients | None = None  # per-example gradients of one step
    outgoing: OnParams | None = None  # the update before it leaves
    sampling: Sampling | None = None
    mixing: Mixing | None = None
    privacy: Callable[[int], Privacy] | None = None  # by rounds of work
    kept: Kept | None = None
    told: Told | None = None

    @property
    def inside_steps(self) -> bool:
        """Whether the local steps themselves are changed."""
        return self.batch is not None or self.gradients is not None

    @property
    def mixed(self) -> Mixing:
        """How examples are put together, as far as it can be relied on."""
        return self.mixing or ("none" if self.batch is None else "several")


IDENTITY = Seams()


@dataclass(frozen=True, kw_only=True)
class Told:
    """What an attacker who knows the defence can do: replay what is certain of it, and weigh the rest.

    `replay` are seams without chance; gradients must pass through them. Entries of a reply that are zero may have been
    cut away, and then tell nothing. Noise is told by its variance per entry, in an update and in the gradient of every
    step.
    """

    replay: Seams = IDENTITY
    cut: bool = False
    update_variance: float = 0.0
    step_variance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a defence may know of the client's job before it starts."""

    examples: int
    batch_size: int
    steps: int  # local steps in one round
    rounds: int
    classes: int | None = None  # of a classification task
    norm_params: tuple[str, ...] = ()  # scales and shifts of BatchNorm layers
    mixing: Mixing = "none"  # what other defences do to the examples of a batch


class Defence(ABC):
    """Settings of one defence; its one verb hands out the seams for a client's work."""

    name: ClassVar[str]

    @abstractmethod
    def seams(self, work: Work) -> Seams:
        """The seams of a client with this work."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the ledger and the report."""


@dataclass(frozen=True, kw_only=True)
class NoDefence(Defence):
    """Nothing is changed."""

    name: ClassVar[str] = "none"

    def seams(self, work: Work) -> Seams:
        """All four places stay as they are."""
        return IDENTITY

    def describe(self) -> str:
        """One line for the ledger and the report."""
        return "no defence"


def example_norms(gradients: Params) -> Tensor:
    """Euclidean norm of each example's gradient over all tensors, shape [examples]."""
    squares = [value.flatten(1).square().sum(1) for value in gradients.values()]
    return torch.stack(squares).sum(0).sqrt()
