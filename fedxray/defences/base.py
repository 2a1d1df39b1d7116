"""The base of all defences: four hooks into a client's work (`Hooks`), the identity by default."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.errors import BadInput
from fedxray.params import Params
from fedxray.settings import check_fields

State = Any  # what a hook carries from one call to the next; None at the start of a client's work


@dataclass(frozen=True, kw_only=True)
class ExampleGradients:
    """Gradients of single examples on their way to one step: (sum over examples + extra) / divisor."""

    each: dict[str, Tensor]  # [examples, ...] per name
    divisor: Tensor  # scalar
    extra: dict[str, Tensor] | None = None

    def combined(self) -> dict[str, Tensor]:
        """Return the gradient of the step."""
        total = {name: value.sum(0) for name, value in self.each.items()}
        if self.extra is not None:
            total = {name: value + self.extra[name] for name, value in total.items()}
        return {name: value / self.divisor for name, value in total.items()}


Examples = tuple[Tensor, Tensor]  # x [examples, ...], y [examples, ...]
OnParams = Callable[[dict[str, Tensor], State, torch.Generator], tuple[dict[str, Tensor], State]]
OnBatch = Callable[[Examples, State, torch.Generator], tuple[Examples, State]]
OnGradients = Callable[[ExampleGradients, State, torch.Generator], tuple[ExampleGradients, State]]


# How a batch hook combines examples: not at all, in disjoint pairs, or each in several mixtures.
Mixing = Literal["none", "pairs", "several"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Poisson sampling: every step includes each example, or each pair, independently with this probability."""

    rate: float
    pairs: bool = False


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Record-level differential privacy of a client; epsilon is None where none can be claimed."""

    epsilon: float | None
    delta: float
    noise_multiplier: float
    rate: float
    steps: int
    accountant: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """State that stays with the client from round to round: these parameters, and the running statistics."""

    params: tuple[str, ...] = ()
    statistics: bool = True


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Four hooks into a client's work that a defence can set; None leaves a step unchanged.

    The other fields describe the defence: how batches are sampled, how a batch hook combines examples (the worst case
    is assumed where it does not say), the privacy guarantee by rounds of work, what never leaves the client, and what
    an attacker that knows the defence can use.
    """

    incoming: OnParams | None = None  # on the received model
    batch: OnBatch | None = None  # on a mini-batch before its step
    gradients: OnGradients | None = None  # on the per-example gradients of one step
    outgoing: OnParams | None = None  # on the update before it is sent
    sampling: Sampling | None = None
    mixing: Mixing | None = None
    privacy: Callable[[int], Privacy] | None = None  # by rounds of work
    kept: Kept | None = None
    known: KnownDefence | None = None

    @property
    def inside_steps(self) -> bool:
        """Return whether the local steps themselves are changed."""
        return self.batch is not None or self.gradients is not None

    @property
    def mixed(self) -> Mixing:
        """Return how examples are combined; the worst case where the defence does not say."""
        return self.mixing or ("none" if self.batch is None else "several")


IDENTITY = Hooks()


def stateless(change: Callable[[Any, torch.Generator], Any]) -> Callable[[Any, State, torch.Generator], Any]:
    """Return a hook that carries no state: it only replaces its value."""
    return lambda value, state, generator: (change(value, generator), state)


@dataclass(frozen=True, kw_only=True)
class KnownDefence:
    """What an attacker that knows the defence can use: its deterministic parts, and the variance of its noise.

    `replay` are the deterministic hooks; gradients must pass through them. With `cut`, entries of a reply that are zero
    may have been removed, and carry no information. Noise is given by its variance per entry, in an update and in the
    gradient of every step.
    """

    replay: Hooks = IDENTITY
    cut: bool = False
    update_variance: float = 0.0
    step_variance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a defence may know of a client's work before it starts."""

    examples: int
    batch_size: int
    steps: int  # local steps in one round
    rounds: int
    classes: int | None = None  # of a classification task
    norm_params: tuple[str, ...] = ()  # scales and shifts of BatchNorm layers
    mixing: Mixing = "none"  # how other defences combine the examples of a batch


Clipped = Literal["gradients", "updates"]


class Defence(ABC):
    """Base of all defences; a subclass is a frozen keyword dataclass whose fields are its settings."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check every setting."""
        check_fields(self)
        self.check_settings()

    def check_settings(self) -> None:  # noqa: B027
        """Refuse settings that do not fit together; a hook for defences whose settings depend on each other."""

    @abstractmethod
    def hooks(self, work: Work) -> Hooks:
        """Return the hooks for a client with this work."""

    def after_round(self, updates: Sequence[Params]) -> Defence:
        """Return the defence of the next round, by all updates of this one; the same by default."""
        return self

    def adapts(self) -> bool:
        """Return whether it changes from round to round."""
        return False

    def clip_of(self, what: Clipped) -> float | None:
        """Return the norm to which gradients of examples, or updates, are clipped; None where they are not."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""


@dataclass(frozen=True, kw_only=True)
class NoDefence(Defence):
    """No defence: nothing is changed."""

    name: ClassVar[str] = "none"

    def hooks(self, work: Work) -> Hooks:
        """Return no hooks."""
        return IDENTITY

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return "no defence"


def example_norms(gradients: Params) -> Tensor:
    """Return the Euclidean norm of each example's gradient over all tensors [examples]."""
    squares = [value.flatten(1).square().sum(1) for value in gradients.values()]
    return torch.stack(squares).sum(0).sqrt()


# Calling hooks: what they return must have the names, shapes and types of what they got


def entered(hooks: Hooks, start: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the received model after the incoming hook."""
    return _params("incoming", hooks.incoming, start, generator)


def sent(hooks: Hooks, update: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the update after the outgoing hook."""
    return _params("outgoing", hooks.outgoing, update, generator)


def _params(place: str, step: OnParams | None, given: Params, generator: torch.Generator) -> dict[str, Tensor]:
    if step is None:
        return dict(given)
    forms = _forms(given)  # recorded first: a hook may write into its argument
    changed, _ = _pair(place, step(dict(given), None, generator))
    _check_tensors(place, changed, forms)
    return dict(changed)


def mixed(step: OnBatch, batch: Examples, state: State, generator: torch.Generator) -> tuple[Examples, State]:
    """Return the examples of a step after the batch hook."""
    mixture, state = _pair("batch", step(batch, state, generator))
    x, y = _pair("batch", mixture)
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or len(x) != len(y):
        raise _unfit("batch", "as many inputs as targets", _shown({"x": x, "y": y}))
    if x.shape[1:] != batch[0].shape[1:] or x.dtype != batch[0].dtype:
        raise _unfit("batch", _shown({"x": batch[0]}), _shown({"x": x}))
    return (x, y), state


def changed(
    step: OnGradients, value: ExampleGradients, state: State, generator: torch.Generator
) -> tuple[ExampleGradients, State]:
    """Return the per-example gradients after the gradients hook."""
    forms = {name: (shape[1:], dtype) for name, (shape, dtype) in _forms(value.each).items()}
    gradients, state = _pair("gradients", step(value, state, generator))
    if not isinstance(gradients, ExampleGradients):
        raise _unfit("gradients", "ExampleGradients", type(gradients).__name__)
    for tensors, leading in ((gradients.each, 1), (gradients.extra, 0)):
        if tensors is not None:
            _check_tensors("gradients", tensors, forms, leading)
    return gradients, state


def _pair(place: str, answer: Any) -> tuple[Any, Any]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise _unfit(place, "a pair (value, state)", type(answer).__name__)
    return answer


Forms = dict[str, tuple[torch.Size, torch.dtype]]


def _forms(tensors: Params) -> Forms:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def _check_tensors(place: str, returned: Any, forms: Forms, leading: int = 0) -> None:
    """Refuse names, shapes (after `leading` dimensions) and types other than these."""
    if not isinstance(returned, Mapping):
        raise _unfit(place, "named tensors", type(returned).__name__)
    odd = sorted(map(str, returned.keys() ^ forms.keys()))
    if odd:
        raise _unfit(place, "the names it was given", f"{odd[0]!r} left out or added")
    for name, (shape, dtype) in forms.items():
        value = returned[name]
        if not isinstance(value, Tensor) or value.shape[leading:] != shape or value.dtype != dtype:
            raise _unfit(place, f"{name!r} as {dtype} {list(shape)}", _shown({name: value}))


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        for name, value in values.items()
    )


def _unfit(place: str, expected: str, got: str) -> BadInput:
    return BadInput(
        "defence",
        expected=f"{expected} from its hook {place}",
        got=got,
        remedy="A hook returns (value, state) and changes values only, not names, shapes or types.",
    )
