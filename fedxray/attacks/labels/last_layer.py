"""What the update of the last layer reveals about labels: its mean gradient, statistics on random inputs, counts.

With cross-entropy the gradient of row k of the last layer is the mean over examples of (p_k - [label is k]) times
the features, and that of its bias the same without the features. A weight update adds one such gradient per local
step, each times a factor given by the recipe.

A sum over several clients is read as the reply of one client that holds everyone's examples: exact for FedSGD weighted
by examples, for FedAvg as far as clients have similar sizes. The number of steps of each depends on their number:
without the grant `contributors` the examples are assumed to belong to one client. A curious client that knows the
participants subtracts its own reply first.

Statistics on random inputs: the server has no images of the client. With a network at random weights, draws of N(0, 1)
in the space of the model's inputs are predicted much like real images, and the activations that enter the last layer
are about as large.

`prior = "floor"` (ours) moves the counts towards those expected by the class shares of the public records. Shadow
clients, which hold public records in drawn proportions and train by the recipe from the model that was sent, show how
far: with c the counts found and e the expected ones, e + share (c - e) has the lowest square error on them.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedxray.adversary.view import Observation, View
from fedxray.attacks import floor_prior, observations
from fedxray.attacks.base import (
    EVERYONE,
    Attack,
    Context,
    Need,
    any_update,
    classification,
    compute,
    granted,
    single_replies,
)
from fedxray.attacks.evidence import Evidence, Kind, of_label_counts
from fedxray.attacks.floors import expected_counts, rounded_to
from fedxray.attacks.shadow import shadow_replies
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import head
from fedxray.params import Params, add, each, scaled
from fedxray.seeds import fork, normal_like
from fedxray.settings import REQUIRED, setting


@dataclass(frozen=True, kw_only=True)
class HeadGradient:
    """The mean gradient of the last layer over the local steps, in float64."""

    rows: Tensor  # [classes, features]
    bias: Tensor | None  # [classes]
    pulls: Tensor  # [steps] factor of the gradient of each local step in the update
    examples: int

    @property
    def steps(self) -> int:
        """Return the number of local steps behind the update."""
        return len(self.pulls)


def head_gradient(view: View, at: observations.At) -> HeadGradient:
    """Return the last layer of the chosen update, divided by the sum of the factors of its steps."""
    reply, examples = mean_reply(view, at), observations.examples_behind(view, at)
    assert examples is not None
    factors = pulls(reply, view.grants.recipe, _examples_of_one(view, reply, examples))
    assert factors is not None
    rows, slope = reply.update[head(view.model).weight].detach().double(), bias_name(view)
    weights = torch.tensor(factors, dtype=rows.dtype, device=rows.device)
    bias = None if slope is None else -reply.update[slope].detach().double() / weights.sum()
    return HeadGradient(rows=-rows / weights.sum(), bias=bias, pulls=weights, examples=examples)


def pulls(reply: Observation, recipe: Recipe | None, examples: int) -> list[float] | None:
    """Return the factor of the gradient of every local step in a client's reply; None where the recipe is unknown."""
    if reply.kind == "gradient":
        return [1.0]
    if recipe is None:
        return None
    steps, kept = recipe.steps(examples), recipe.momentum
    return [recipe.learning_rate * (1 - kept ** (steps - step)) / (1 - kept) for step in range(steps)]


def scale_of(view: View, reply: Observation, examples: int) -> float | None:
    """Return the factor of a mean gradient in a reply; None where the recipe is unknown."""
    factors = pulls(reply, view.grants.recipe, _examples_of_one(view, reply, examples))
    return None if factors is None else sum(factors)


def mean_reply(view: View, at: observations.At) -> Observation:
    """Return the chosen update as a client's reply: of a sum, the mean reply before the server's step."""
    seen, recipe = observations.observation_at(view, at), view.grants.recipe
    if seen.kind == "gradient" or not observations.is_sum(seen) or recipe is None:
        return seen
    mean = scaled(seen.update, 1 / observations.server_step(recipe))
    return replace(seen, update=_without_own(view, seen.round, mean, recipe), kind=recipe.kind)


def returned(reply: Observation) -> Params:
    """Return the model that the client ended with; one gradient changes nothing."""
    return reply.start if reply.kind == "gradient" else add(reply.start, reply.update)


def _without_own(view: View, round: int, mean: Params, recipe: Recipe) -> Params:
    """Return the mean reply of the other clients, where the attacker sent one itself and knows the participants."""
    everyone, others = view.grants.contributors or (), view.grants.examples
    own = [reply for client in view.own for reply in client.observations if reply.round == round]
    if not own or others is None or len(everyone) <= len(own):
        return mean
    sizes = [reply.examples or 0 for reply in own]
    by_examples = recipe.weighting == "examples"
    weights = [float(size) if by_examples else 1.0 for size in sizes]
    left = float(others) if by_examples else float(len(everyone) - len(own))
    return observations.mean_of_others(mean, [reply.update for reply in own], weights, left)


def _examples_of_one(view: View, reply: Observation, examples: int) -> int:
    """Return the number of examples of a client: of a sum, its share of all."""
    if not observations.is_sum(reply):
        return examples
    return -(-examples // max(1, observations.clients_behind(view, reply) - len(view.own)))


def bias_name(view: View) -> str | None:
    """Return the name of the last layer's bias; None where there is none or it is not trained."""
    name = head(view.model).bias
    return name if all(name in reply.update for reply in view.of_target()) else None


def linear_head() -> Need:
    """Return the need of a linear last layer trained with cross-entropy, in every update."""
    return Need(
        what="a linear last layer, one output per class, trained with cross-entropy and part of the update",
        given_by="a network that ends in an nn.Linear",
        met=lambda view: view.loss == "cross-entropy" and _ends_linear(view.model, view.space.outputs)
        and all(head(view.model).weight in reply.update for reply in view.of_target()),
    )  # fmt: skip


def needs_of_head(at: observations.At) -> tuple[Need, ...]:
    """Return what every attack on the last layer needs."""
    return (any_update(), classification(), observations.known_examples(at), linear_head())


def head_bias(instead: str) -> Need:
    """Return the need of a bias in the last layer; `instead` names what works without one."""
    return Need(
        what="a bias in the last layer",
        given_by=f"a network whose head has one; without one use {instead}",
        met=lambda view: bias_name(view) is not None,
    )


def known_steps(at: observations.At) -> Need:
    """Return the need of the recipe, which is met by a single gradient."""
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: pulls(mean_reply(view, at), view.grants.recipe, 1) is not None,
    )


def _ends_linear(model: nn.Module, outputs: int) -> bool:
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return bool(layers) and layers[-1].out_features == outputs


# From raw label counts, which may be fractional or negative, to integers that sum to the number of examples


def rounded_counts(raw: Tensor, examples: int) -> Tensor:
    """Return integer counts >= 0 [classes] that sum to `examples`, rounded as the authors of DLF do.

    Counts are rounded down, negative ones to 0. Missing ones are added at the largest remainders. Excess ones are
    subtracted at the smallest remainders among classes above 0, then at the largest counts.
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
    """Return the counts with the largest reduced, one by one, until they sum to no more than the total."""
    if int(counts.sum()) <= total:
        return counts
    low, high = 0, int(counts.max())  # bisection for the highest level that does not exceed the total
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if int(counts.clamp(max=level).sum()) <= total else (low, level - 1)
    cut = counts.clamp(max=low)
    cut[(counts > low).nonzero()[: total - int(cut.sum()), 0]] += 1
    return cut


def evidence_of(raw: Tensor, examples: int, facts: dict[str, Any], doubt: str = "") -> Evidence:
    """Return the rounded counts, or an even guess marked as undetermined where there is a doubt or no finite number."""
    if not doubt and not bool(torch.isfinite(raw).all()):
        doubt = "the update is not finite"
    if doubt:
        even = rounded_counts(torch.full_like(raw, examples / len(raw)), examples)
        return of_label_counts(even, status="undetermined", reason=doubt, facts=facts)
    return of_label_counts(rounded_counts(raw, examples), facts=facts)


# Statistics of a network on random inputs ("dummies")

AT_ONCE = 60  # dummies in one pass: fits into the cache of a core
SURE = 3.0  # standard errors from zero beyond which the activation is significantly different from it


@dataclass(frozen=True, kw_only=True)
class DummyStatistics:
    """Mean prediction and activation of one network on many dummies, in float64."""

    prediction: Tensor  # [classes] mean softmax
    activation: Tensor  # [] mean over dummies of the sum of what enters the last layer
    error: Tensor  # [] standard error of the activation

    @property
    def clear(self) -> bool:
        """Return whether the activation, by which counts are divided, is significantly different from zero."""
        return bool(self.activation.abs() > SURE * self.error)


@dataclass(frozen=True, kw_only=True)
class HeadStatistics(Attack):
    """A stage of the label attacks: the statistics of one model of the round, on the same dummies for both models."""

    name: ClassVar[str] = "head-statistics"
    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")

    place: Literal["start", "end"] = setting(REQUIRED, "The model sent, or the model returned.")
    samples: int = setting(REQUIRED, "Number of random inputs.")
    at: observations.At = setting(REQUIRED, observations.WHICH_UPDATE)

    def needs(self) -> tuple[Need, ...]:
        """List an update with a linear last layer."""
        return needs_of_head(self.at)

    def attack(self, view: View, context: Context) -> Evidence:
        """Return prediction, activation and its error, of the model sent or of the one returned."""
        seen = observations.observation_at(view, self.at)
        params = seen.start if self.place == "start" else returned(mean_reply(view, self.at))
        buffers = seen.buffers if self.place == "start" else {**seen.buffers, **seen.buffers_after}
        like = next(iter(seen.start.values()))
        blank = torch.empty((1, *view.space.shape), dtype=like.dtype, device=like.device)
        # From the root, so that both models of the round get the same dummies.
        generator = fork(context.root, "dummies of labels", self.samples)
        measured = statistics(view.model, params, buffers, blank, self.samples, generator)
        return Evidence(kind="labels", tensors=each(lambda value: value.to(like.dtype), vars(measured)))


def statistics_of(
    context: Context, view: View, place: Literal["start", "end"], samples: int, at: observations.At
) -> DummyStatistics:
    """Return the statistics of the model sent or returned, computed once for all label attacks on this view."""
    tensors = context.run(HeadStatistics(place=place, samples=samples, at=at), view).tensors
    return DummyStatistics(**each(Tensor.double, tensors))


def statistics(
    model: nn.Module, params: Params, buffers: Params, blank: Tensor, samples: int, generator: torch.Generator
) -> DummyStatistics:
    """Return the statistics of these parameters on `samples` draws of N(0, 1) like `blank` [1, ...]."""
    network = copy.deepcopy(model).eval()
    entered: list[Tensor] = []
    network.get_submodule(head(model).module).register_forward_pre_hook(
        lambda layer, inputs: entered.append(inputs[0].sum(-1).double().reshape(len(inputs[0]), -1).mean(1))
    )
    predicted = []
    with torch.no_grad():
        for first in range(0, samples, AT_ONCE):
            count = min(AT_ONCE, samples - first)
            dummies = normal_like(blank.expand(count, *blank.shape[1:]), generator)
            if dummies.ndim == 4:  # the layout in which convolutions are fastest on a CPU
                dummies = dummies.contiguous(memory_format=torch.channels_last)
            outputs = functional_call(network, ({**params, **buffers},), (dummies,))
            predicted.append(outputs.double().softmax(-1).sum(0))
    sums = torch.cat(entered)
    return DummyStatistics(
        prediction=torch.stack(predicted).sum(0) / samples, activation=sums.mean(), error=sums.std() / samples**0.5
    )


# The formula that the label attacks of Geng et al. 2021 and Dimitrov et al. 2022 share: counts = N (p - G / O)

Source = Literal["rows", "bias"]


def raw_counts(
    gradient: HeadGradient, start: DummyStatistics, end: DummyStatistics, along: Sequence[float], source: Source
) -> Tensor:
    """Return the mean of N (p - G / O) over positions in the round [classes]; steps are weighted as in the update."""
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


def _doubt(gradient: HeadGradient, start: DummyStatistics, end: DummyStatistics, source: Source) -> str:
    """Return why the formula is undetermined; empty where it is not."""
    if not bool(gradient.rows.any()):
        return "the last layer did not change"
    same_side = bool(start.activation.sign() == end.activation.sign())
    if source == "rows" and not (start.clear and end.clear and same_side):
        return "the activations of the last layer sum to about zero, by which the formula divides"
    return ""


SHADOWS = 5  # clients that show the error of the counts


@dataclass(frozen=True, kw_only=True)
class LabelAttack(Attack):
    """Base of attacks on the label counts behind an update."""

    kind: ClassVar[Kind] = "labels"
    roles: ClassVar[tuple[str, ...]] = EVERYONE
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("marginals",)
    controls: ClassVar[tuple[str, ...]] = ("other-client",)

    at: observations.At = setting("first", observations.WHICH_UPDATE)
    prior: floor_prior.Prior = setting("none", floor_prior.PRIOR, later=True)

    def needs_of_counts(self) -> tuple[Need, ...]:
        """List an update with a linear last layer trained with cross-entropy, and its number of examples."""
        return needs_of_head(self.at)

    @final
    def needs(self) -> tuple[Need, ...]:
        """List the needs of the counts, and of the prior."""
        return (*self.needs_of_counts(), *floor_prior.needs_of(self.prior, granted("recipe"), single_replies()))

    @final
    def own_grants(self) -> tuple[str, ...]:
        """List the declared grants, and those of the prior."""
        return (*self.grants, *floor_prior.grants_of(self.prior))

    @abstractmethod
    def counts(self, view: View, context: Context) -> Evidence:
        """Return the counts by the last layer alone."""

    @final
    def attack(self, view: View, context: Context) -> Evidence:
        """Return the counts by the last layer, moved towards the expected ones where there is a prior."""
        evidence = self.counts(view, context)
        if self.prior == "none" or evidence.status != "ok":
            return evidence
        examples = observations.examples_behind(view, self.at)
        assert examples is not None
        expected = expected_counts(view, examples).double()
        kept = share_kept(*self._on_shadows(view, context, examples), expected)
        moved = kept * evidence.tensors["counts"].double() + (1 - kept) * expected
        facts = {**evidence.facts, "share_kept": kept}
        return replace(evidence, tensors={"counts": rounded_to(moved, examples)}, facts=facts)

    def _on_shadows(self, view: View, context: Context, examples: int) -> tuple[Tensor, Tensor]:
        """Return the counts found and the real ones of shadow clients with public records, both [shadows, classes]."""
        seen, public = observations.observation_at(view, self.at), view.grants.public_records
        assert public is not None
        found, real = [], []
        for number in range(SHADOWS):
            draw = fork(context.generator, "shadow", number)
            held = public.take(drawn_by_class(public.y, examples, draw))
            replies = shadow_replies(view, [seen], held, examples, draw)
            # Not stored: the memo knows answers by attack and grants, not by messages.
            alone = Context(generator=draw, root=draw, memo=compute, report=context.report)
            found.append(self.counts(replace(view, observations=tuple(replies)), alone).tensors["counts"].double())
            real.append(torch.bincount(held.y, minlength=len(found[-1])).double())
        return torch.stack(found), torch.stack(real)


def drawn_by_class(y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return indices of records drawn with replacement [count], in class shares that are drawn evenly first."""
    classes = torch.unique(y)
    shares = -torch.log(1 - torch.rand(len(classes), generator=generator, device="cpu"))
    drawn = classes[torch.multinomial(shares, count, replacement=True, generator=generator).to(y.device)]
    places = torch.rand(count, generator=generator, device="cpu").tolist()
    held = {int(label): (y == label).nonzero()[:, 0] for label in classes}
    rows = [held[int(label)][int(place * len(held[int(label)]))] for label, place in zip(drawn, places, strict=True)]
    return torch.stack(rows)


def share_kept(found: Tensor, real: Tensor, expected: Tensor) -> float:
    """Return the share from 0 to 1 of what was found that, with the rest of what was expected, is closest to the real.

    `found` and `real` are [shadows, classes], `expected` [classes].
    """
    moved = found - expected
    size = float(moved.square().sum())
    return 1.0 if size == 0 else min(max(float((moved * (real - expected)).sum()) / size, 0.0), 1.0)


@dataclass(frozen=True, kw_only=True)
class CountsByFormula(LabelAttack):
    """Base of label attacks by the formula; they differ in where along the round the network is evaluated."""

    samples: int = setting(3000, "Number of random inputs that estimate the network's predictions.", least=2)
    source: Source = setting(
        "rows", "Part of the last layer that is used: the rows of its weight, as in the paper, or its bias."
    )

    def needs_of_counts(self) -> tuple[Need, ...]:
        """List an update with a linear last layer, its recipe and number of examples; for the bias form a bias."""
        needs = (*needs_of_head(self.at), known_steps(self.at))
        return (*needs, head_bias('source = "rows"')) if self.source == "bias" else needs

    @abstractmethod
    def places(self, steps: int) -> list[float]:
        """Return the positions along a round of `steps` steps, from 0 (model sent) to 1 (model returned)."""

    @final
    def counts(self, view: View, context: Context) -> Evidence:
        """Return the counts by the formula, averaged over these positions."""
        gradient = head_gradient(view, self.at)
        along = self.places(gradient.steps)
        start = statistics_of(context, view, "start", self.samples, self.at)
        end = statistics_of(context, view, "end", self.samples, self.at) if any(along) else start
        raw = raw_counts(gradient, start, end, along, self.source)
        activation = [float(start.activation), float(end.activation)]
        facts = {
            "source": self.source,
            "steps": gradient.steps,
            "round": observations.observation_at(view, self.at).round,
            "examples": gradient.examples,
            "activation": activation,
        }
        return evidence_of(raw, gradient.examples, facts, _doubt(gradient, start, end, self.source))
