"""What an update of the last layer says about labels: the mean gradient behind it, and the steps that made it.

With cross-entropy the gradient of row k of the last layer is the mean over examples of (p_k - [label is k]) times
the features, and that of its bias the same without the features. A weight update adds one such gradient per local
step, each times what the recipe makes of it.

A sum over several clients is read as the reply of one client that holds everyone's examples: exact for FedSGD weighted
by examples, for FedAvg as far as clients are alike in size. How many steps each made depends on how many they are:
without the grant `contributors` the examples told are taken for those of one client. A curious client that knows who
took part takes its own reply out first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import EVERYONE, Attack, Context, Need, any_update, classification
from fedxray.attacks.evidence import Evidence, Kind, of_label_counts
from fedxray.attacks.observations import (
    At,
    check_at,
    clients_behind,
    examples_behind,
    is_sum,
    known_examples,
    mean_of_others,
    observation_at,
    server_step,
)
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head
from fedxray.params import Params, add, scaled
from fedxray.seeds import fork, normal_like


@dataclass(frozen=True, kw_only=True)
class HeadGradient:
    """The mean gradient of the last layer over the local steps, in float64."""

    rows: Tensor  # [classes, features]
    bias: Tensor | None  # [classes]
    pulls: Tensor  # [steps] what the gradient of each local step was multiplied by on its way here
    examples: int

    @property
    def steps(self) -> int:
        """Local steps behind the update."""
        return len(self.pulls)


def head_gradient(view: View, at: At) -> HeadGradient:
    """The last layer of the chosen update, divided by what its steps were multiplied by."""
    reply, examples = mean_reply(view, at), examples_behind(view, at)
    assert examples is not None
    found = pulls(reply, view.grants.recipe, _examples_of_one(view, reply, examples))
    assert found is not None
    rows, slope = reply.update[head(view.model).weight].detach().double(), bias_name(view)
    weights = torch.tensor(found, dtype=rows.dtype, device=rows.device)
    bias = None if slope is None else -reply.update[slope].detach().double() / weights.sum()
    return HeadGradient(rows=-rows / weights.sum(), bias=bias, pulls=weights, examples=examples)


def pulls(reply: Observation, recipe: Recipe | None, examples: int) -> list[float] | None:
    """What the gradient of every local step is multiplied by on its way into a client's reply; None if unknown."""
    if reply.kind == "gradient":
        return [1.0]
    if recipe is None:
        return None
    steps, kept = recipe.steps(examples), recipe.momentum
    return [recipe.learning_rate * (1 - kept ** (steps - step)) / (1 - kept) for step in range(steps)]


def scale_of(view: View, reply: Observation, examples: int) -> float | None:
    """What a mean gradient was multiplied by on its way into a reply; None where that is unknown."""
    found = pulls(reply, view.grants.recipe, _examples_of_one(view, reply, examples))
    return None if found is None else sum(found)


def mean_reply(view: View, at: At) -> Observation:
    """The chosen update as a client's reply: of a sum, the mean reply before the server took its step."""
    seen, recipe = observation_at(view, at), view.grants.recipe
    if seen.kind == "gradient" or not is_sum(seen) or recipe is None:
        return seen
    mean = scaled(seen.update, 1 / server_step(recipe))
    return replace(seen, update=_without_own(view, seen.round, mean, recipe), kind=recipe.kind)


def returned(reply: Observation) -> Params:
    """The model that the client ended with; one gradient changes nothing."""
    return reply.start if reply.kind == "gradient" else add(reply.start, reply.update)


def _without_own(view: View, round: int, mean: Params, recipe: Recipe) -> Params:
    """The mean reply of all others, where the seat sent one itself and knows of everyone who took part."""
    everyone, others = view.grants.contributors or (), view.grants.examples
    own = [one for seat in view.own for one in seat.observations if one.round == round]
    if not own or others is None or len(everyone) <= len(own):
        return mean
    sizes = [one.examples or 0 for one in own]
    by_examples = recipe.weighting == "examples"
    weights = [float(size) if by_examples else 1.0 for size in sizes]
    left = float(others) if by_examples else float(len(everyone) - len(own))
    return mean_of_others(mean, [one.update for one in own], weights, left)


def _examples_of_one(view: View, reply: Observation, examples: int) -> int:
    """How many examples a client held: of a sum, its share of them all."""
    if not is_sum(reply):
        return examples
    return -(-examples // max(1, clients_behind(view, reply) - len(view.own)))


def bias_name(view: View) -> str | None:
    """The name of the last layer's bias; None where there is none or it is not trained."""
    name = head(view.model).bias
    return name if all(name in one.update for one in view.of_target()) else None


def linear_head() -> Need:
    """A linear head trained with cross-entropy, in every update."""
    return Need(
        what="a linear last layer, one output per class, trained with cross-entropy and part of the update",
        given_by="a network that ends in an nn.Linear",
        met=lambda view: view.loss == "cross-entropy" and _ends_linear(view.model, view.space.outputs)
        and all(head(view.model).weight in one.update for one in view.of_target()),
    )  # fmt: skip


def head_bias(instead: str) -> Need:
    """A bias in the last layer, or else what can be used instead."""
    return Need(
        what="a bias in the last layer",
        given_by=f"a network whose head has one; without one use {instead}",
        met=lambda view: bias_name(view) is not None,
    )


def known_steps(at: At) -> Need:
    """How the update was made; one gradient needs no telling."""
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: pulls(mean_reply(view, at), view.grants.recipe, 1) is not None,
    )


def _ends_linear(model: nn.Module, outputs: int) -> bool:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return bool(layers) and layers[-1].out_features == outputs


# --- From raw label counts, which may be broken or negative, to whole ones that sum to the number of
# examples.


def rounded_counts(raw: Tensor, examples: int) -> Tensor:
    """Whole counts >= 0 [classes] that sum to `examples`, rounded as the authors of DLF do.

    Counts are cut to whole numbers, negative ones to 0. What is missing goes to the largest remainders. What is too
    much is taken off the smallest remainders among classes above 0, then off the largest counts.
    """
    most = raw.double().clamp(min=-examples, max=2 * examples)
    whole = most.floor().clamp(min=0).to(torch.int64)
    remainder = most - whole
    missing = examples - int(whole.sum())
    if missing >= 0:
        everyone, rest = divmod(missing, len(whole))
        whole += everyone
        whole[remainder.argsort(descending=True, stable=True)[:rest]] += 1
        return whole
    above = whole.nonzero()[:, 0]
    whole[above[remainder[above].argsort(stable=True)][:-missing]] -= 1
    return _levelled(whole, examples)


def _levelled(counts: Tensor, total: int) -> Tensor:
    """The counts with the largest cut down, one by one, until they sum to no more than the total."""
    if int(counts.sum()) <= total:
        return counts
    low, high = 0, int(counts.max())  # the highest level that does not leave too many
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if int(counts.clamp(max=level).sum()) <= total else (low, level - 1)
    cut = counts.clamp(max=low)
    cut[(counts > low).nonzero()[: total - int(cut.sum()), 0]] += 1
    return cut


def evidence_of(raw: Tensor, examples: int, facts: dict[str, Any], doubt: str = "") -> Evidence:
    """The rounded counts, or an even guess that is marked as undetermined where there is a doubt or no number."""
    if not doubt and not bool(torch.isfinite(raw).all()):
        doubt = "the update is not finite"
    if doubt:
        even = rounded_counts(torch.full_like(raw, examples / len(raw)), examples)
        return of_label_counts(even, status="undetermined", reason=doubt, facts=facts)
    return of_label_counts(rounded_counts(raw, examples), facts=facts)


# --- What a network does with inputs that mean nothing: its mean prediction, and what enters its last
# layer.
#
# The server has no images of the client. With a network at random weights, draws of N(0, 1) in the space of
# the model's inputs are predicted much like real ones, and its last layer is entered by about as much
# activation.


AT_ONCE = 60  # dummies in one pass: what a core's cache holds
SURE = 3.0  # standard errors from zero at which the activation counts as told apart from it


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Of one network on many dummies, in float64."""

    prediction: Tensor  # [classes] mean softmax
    activation: Tensor  # [] mean over dummies of the sum of what enters the last layer
    error: Tensor  # [] standard error of the activation

    @property
    def clear(self) -> bool:
        """Whether the activation is told apart from zero, by which counts are divided."""
        return bool(self.activation.abs() > SURE * self.error)


@dataclass(frozen=True, kw_only=True)
class HeadStatistics(Attack):
    """A stage of the label attacks: the statistics of one model of the round, the same dummies for both models."""

    name: ClassVar[str] = "head-statistics"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")

    place: Literal["start", "end"]
    samples: int
    at: At

    def needs(self) -> tuple[Need, ...]:
        """An update with a linear head."""
        return (any_update(), classification(), known_examples(self.at), linear_head())

    def attack(self, view: View, context: Context) -> Evidence:
        """Both numbers and the error, of the model sent or of the one returned."""
        seen = observation_at(view, self.at)
        params = seen.start if self.place == "start" else returned(mean_reply(view, self.at))
        buffers = seen.buffers if self.place == "start" else {**seen.buffers, **seen.buffers_after}
        like = next(iter(seen.start.values()))
        one = torch.empty((1, *view.space.shape), dtype=like.dtype, device=like.device)
        # From the root, so that both models of the round get the same dummies.
        generator = fork(context.root, "dummies of labels", self.samples)
        found = statistics(view.model, params, buffers, one, self.samples, generator)
        tensors = {
            "prediction": found.prediction.to(like.dtype),
            "activation": found.activation.to(like.dtype),
            "error": found.error.to(like.dtype),
        }
        return Evidence(kind="labels", tensors=tensors)


def statistics_of(
    context: Context, view: View, place: Literal["start", "end"], samples: int, at: At
) -> Statistics:
    """The statistics of the model sent or returned, computed once for all label attacks on this view."""
    told = context.run(HeadStatistics(place=place, samples=samples, at=at), view).tensors
    return Statistics(
        prediction=told["prediction"].double(),
        activation=told["activation"].double(),
        error=told["error"].double(),
    )


def statistics(
    model: nn.Module, params: Params, buffers: Params, one: Tensor, samples: int, generator: torch.Generator
) -> Statistics:
    """The statistics of these parameters on `samples` draws of N(0, 1) like `one` [1, ...]; nothing is changed."""
    still = copy.deepcopy(model).eval()
    entered: list[Tensor] = []
    still.get_submodule(head(model).module).register_forward_pre_hook(
        lambda layer, inputs: entered.append(inputs[0].sum(-1).double().reshape(len(inputs[0]), -1).mean(1))
    )
    predicted = []
    with torch.no_grad():
        for first in range(0, samples, AT_ONCE):
            count = min(AT_ONCE, samples - first)
            dummies = normal_like(one.expand(count, *one.shape[1:]), generator)
            if dummies.ndim == 4:  # the layout in which convolutions are fastest on a CPU
                dummies = dummies.contiguous(memory_format=torch.channels_last)
            outputs = functional_call(still, ({**params, **buffers},), (dummies,))
            predicted.append(outputs.double().softmax(-1).sum(0))
    sums = torch.cat(entered)
    return Statistics(
        prediction=torch.stack(predicted).sum(0) / samples,
        activation=sums.mean(),
        error=sums.std() / samples**0.5,
    )


# --- The formula that the label attacks of Geng et al. and of DLF share: counts = N (p - G / O) along a
# round.


Source = Literal["rows", "bias"]


def estimate(
    view: View,
    context: Context,
    places: Callable[[int], Sequence[float]],
    *,
    samples: int,
    source: Source,
    at: At,
) -> Evidence:
    """Counts by the formula at the given places of the round, from the number of steps; 0 is its start, 1 its end."""
    gradient = head_gradient(view, at)
    along = places(gradient.steps)
    start = statistics_of(context, view, "start", samples, at)
    end = statistics_of(context, view, "end", samples, at) if any(along) else start
    raw = raw_counts(gradient, start, end, along, source)
    facts = {"source": source, "steps": gradient.steps, "round": observation_at(view, at).round,
             "examples": gradient.examples, "activation": [float(one.activation) for one in (start, end)]}  # fmt: skip
    return evidence_of(raw, gradient.examples, facts, _doubt(gradient, start, end, source))


def raw_counts(
    gradient: HeadGradient, start: Statistics, end: Statistics, along: Sequence[float], source: Source
) -> Tensor:
    """The mean of N (p - G / O) over places along the round [classes]; all steps weigh as in the update."""
    where = torch.tensor(along, dtype=start.prediction.dtype, device=start.prediction.device)[:, None]
    prediction = (1 - where) * start.prediction + where * end.prediction  # [places, classes]
    activation = (1 - where) * start.activation + where * end.activation  # [places, 1]
    if source == "bias":
        assert gradient.bias is not None
        share = prediction - gradient.bias
    else:
        share = prediction - gradient.rows.sum(1) / activation
    weights = gradient.pulls if len(along) == gradient.steps else torch.ones_like(where[:, 0])
    return gradient.examples * (weights / weights.sum()) @ share


def needs_of_formula(source: Source, at: At) -> tuple[Need, ...]:
    """An update with a linear head, how it was made and on how many examples; for the bias form, one with a bias."""
    needs = (any_update(), classification(), known_examples(at), linear_head(), known_steps(at))
    return (*needs, head_bias('source = "rows"')) if source == "bias" else needs


def check_settings(samples: int, source: str, at: str) -> None:
    """Check the settings that all of them have."""
    check_at(at)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise BadInput(
            "samples", expected="a whole number of at least 2", got=repr(samples), remedy="Try 3000."
        )
    if source not in ("rows", "bias"):
        raise BadInput("source", expected='"rows" or "bias"', got=repr(source), remedy='Try "rows".')


def _doubt(gradient: HeadGradient, start: Statistics, end: Statistics, source: Source) -> str:
    """Why the formula cannot tell, or nothing."""
    if not bool(gradient.rows.any()):
        return "the last layer did not change"
    same_side = bool(start.activation.sign() == end.activation.sign())
    if source == "rows" and not (start.clear and end.clear and same_side):
        return "what enters the last layer sums to about zero, by which the formula divides"
    return ""
