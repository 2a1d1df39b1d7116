"""Approximate and Weighted Attack, AWA (Song, Wang and Zuazua 2023, arXiv 2308.06822), Algorithm 2.

Inputs are sought whose replayed update equals the observed one, with different weights for different layers:
    1. Take the labels as granted, or from a sub-attack. Draw inputs uniformly over the valid range.
    2. A round of one batch per epoch is replayed exactly, one of one epoch up to the order of its batches. A round of
       several epochs of several batches has an unknown order: it is approximated by equal epochs (with momentum the
       first is shorter), and the first (`epoch`) is replayed (interpolation, section 4.1):
           model after epoch e  ~  start + e / E * update,      update of epoch e  ~  update / E.
       The first epoch starts from the model that was sent, which is known exactly; its update is off by the square of
       the learning rate. This holds for plain steps, as in the paper. With momentum later epochs move further, so an
       epoch replayed from rest has a smaller share than 1 / E: that of its steps on a constant gradient.
    3. Every layer gets a weight that rises linearly from 1 at the first of its kind to q_conv, q_norm or q_linear
       at the last.
    4. At every step, layers that are both among the share p_mean of layers with the largest relative errors of the
       mean of their entries, and among the share p_var with the largest of the variance, get q_enhance instead.
    5. Minimise by Adam the sum over layers of weight times squared difference; weights are constants.
    6. The six numbers come from a Bayesian search for the smallest unweighted sum (`search` in a plan); without it
       they are those that the paper found for the case at hand (`preset`).

Where we differ, or where the paper does not say:
    - Differences are measured in learning rates of the client (`unit = "rate"`). As sent (`unit = "sent"`, the paper)
      they are so small that the epsilon of Adam may slow it down.
    - Inputs stay in the valid range (`box`). The reported loss is the unweighted sum, which can be compared between
      weights but is not what is descended on: the last iterate is returned, as in the paper, unless keep = "best".
    - `decay` and `total_variation` are ours: a constant step of 0.1 leaves the last iterates noisy.
    - An error relative to zero is undefined, such as that of the mean of a softmax head: see layer_weights.py.
    - A client known to keep its batches (shuffle "once" or "never") is replayed exactly over all epochs.
    - All settings start from the same inputs, so that a search compares weights and not starts.
`kept_every` stores the state of the optimisation every N steps, so that an interrupted attack, or one with more steps,
resumes from there. `give_up` = [steps, loss] stops an attack whose loss is still above this after as many steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Context, Need
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem
from fedxray.attacks.inversion.distance import squares
from fedxray.attacks.inversion.dlg import UNIT, Unit, first_tensor, unit_size
from fedxray.attacks.inversion.layer_weights import Aim, Layer, Undefined, aim_moments, furthest, layers_of, ramps
from fedxray.attacks.inversion.problem import DecayName, ImageInversion, Start
from fedxray.attacks.inversion.replay import BatchNorm, Replay, pulled, segment_length
from fedxray.attacks.observations import At, examples_behind, observation_at
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.optim import MOST_RATE, Adam, Keep, Loss, Method, Outcome, Project, Restarts, Tensors, minimise, restarts
from fedxray.params import Params, add, scaled
from fedxray.priors import total_variation
from fedxray.progress import Report
from fedxray.settings import setting

# The six parameters as the paper's Bayesian search tuned them for four cases (Table 3), and their ranges


@dataclass(frozen=True, kw_only=True)
class AwaWeights:
    """Weights of the last layer of each kind, of enhanced layers, and the shares of layers that may be enhanced.

    None as the weight of a last layer: the number of layers of its kind.
    """

    q_conv: float | None
    q_norm: float | None
    q_linear: float | None
    q_enhance: float
    p_mean: float
    p_var: float


def _tuned(*numbers: float) -> AwaWeights:
    conv, norm, linear, enhance, mean, var = numbers
    return AwaWeights(q_conv=conv, q_norm=norm, q_linear=linear, q_enhance=enhance, p_mean=mean, p_var=var)


PRESETS: dict[str, AwaWeights] = {
    "case1": _tuned(519.19, 802.55, 42.83, 946.44, 0.24, 0.07),  # one epoch of one batch
    "case2": _tuned(236.31, 552.31, 54.28, 837.80, 0.11, 0.13),  # several epochs of one batch
    "case3": _tuned(547.17, 222.48, 394.39, 899.47, 0.31, 0.01),  # one epoch of several batches
    "case4": _tuned(655.98, 692.94, 283.42, 665.28, 0.40, 0.33),  # several of both
    "ramp": AwaWeights(q_conv=None, q_norm=None, q_linear=None, q_enhance=1.0, p_mean=0.0, p_var=0.0),
    "none": _tuned(1.0, 1.0, 1.0, 1.0, 0.0, 0.0),
}
BY_CASE = "by-case"  # those tuned for the case at hand
WEIGHTS, SHARES = ("q_conv", "q_norm", "q_linear", "q_enhance"), ("p_mean", "p_var")
RANGES = dict.fromkeys(WEIGHTS, (1.0, 1000.0, "linear")) | dict.fromkeys(SHARES, (0.0, 0.5, "linear"))  # Table 2


def case_of(recipe: Recipe, examples: int) -> str:
    """Return which of the paper's four cases a round of this client is."""
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    batches = -(-examples // recipe.batch_length(examples))
    return {(False, False): "case1", (True, False): "case2", (False, True): "case3", (True, True): "case4"}[
        epochs > 1, batches > 1
    ]


# Minimisation that can stop early or resume from the stored state of a shorter one

STATE = "state/"  # prefix of the names of stored tensors


def descend(
    loss: Loss,
    starts: Sequence[Tensors],
    method: Method,
    *,
    report: Report,
    project: Project | None,
    what: str,
    keep: Keep,
    give_up: tuple[int, float] | None,
    state: Tensors | None,
) -> Restarts:
    """Minimise from every start; with `state` or `give_up` from the only one, resuming or stopping early."""
    if give_up is None and state is None:
        return restarts(loss, starts, method, report=report, project=project, what=what, keep=keep)

    def resume(state: Tensors | None, budget: int | None) -> Outcome:
        return minimise(loss, starts[0], method, report=report, project=project, budget=budget, state=state, what=what)

    done = 0 if state is None else int(state["step"])
    if give_up is not None and give_up[0] < method.steps:
        first = resume(state, max(0, give_up[0] - done))  # the stored state may be further already
        if first.status != "truncated" or min(first.curve[: give_up[0] + 1]) > give_up[1]:
            return Restarts(outcomes=(first,), chosen=0)
        state = first.state
    return Restarts(outcomes=(resume(state, None),), chosen=0)


def state_of(evidence: Evidence) -> dict[str, Tensor] | None:
    """Return the stored state to resume from; None where the minimisation ended by itself."""
    state = {name.removeprefix(STATE): value for name, value in evidence.tensors.items() if name.startswith(STATE)}
    return state or None


# One epoch of a round whose batch order is unknown, by interpolation (section 4.1)


def order_is_unknown(recipe: Recipe, examples: int) -> bool:
    """Return whether a round has several epochs of reshuffled batches, so that it cannot be replayed."""
    several = recipe.kind == "weights" and recipe.epochs > 1 and recipe.batch_length(examples) < examples
    return several and recipe.shuffle == "epoch"


def share_after(recipe: Recipe, steps: int, epoch: int) -> float:
    """Return the share of a round's update after `epoch` epochs of `steps` steps (Eq. 19): e / E without momentum."""
    return pulled(recipe, epoch * steps) / pulled(recipe, recipe.epochs * steps)


def one_epoch(client: Replay, aim: Params, update: Params, epoch: int) -> tuple[Replay, dict[str, Tensor]]:
    """Return replay and target update of one epoch (counted from 1) from those of a round; `update` is the round's own.

    Knowledge of a defence holds for the whole round, so the weights of entries are kept.
    """
    recipe = client.recipe
    sizes = client.sizes[: len(client.sizes) // recipe.epochs]
    made = share_after(recipe, len(sizes), epoch - 1)
    start = add(client.start, update, made) if epoch > 1 else client.start
    part = replace(
        client,
        start=start,
        recipe=replace(recipe, epochs=1),
        order=None,  # all epochs of a replay use the guess in its own order
        sizes=sizes,
        segment=segment_length(len(sizes), start),
    )
    return part, scaled(aim, share_after(recipe, len(sizes), 1))


# The weighted and enhanced loss on one replayed round, or on one interpolated epoch of it

RAMPED = ("conv", "norm", "linear")  # kinds of layers whose weights rise


@dataclass(frozen=True, kw_only=True)
class ReplayTarget:
    """How a guess is replayed and the update it should produce; `epoch` is the interpolated one, if any."""

    client: Replay
    aim: Params
    epoch: int | None


@dataclass(frozen=True, kw_only=True)
class Match:
    """The loss of a guess: a sum over layers of weight times squared difference, in squares of `size`."""

    work: ReplayTarget
    labels: Tensor  # [examples]
    layers: Sequence[Layer]
    ramp: tuple[float, ...]  # [layers]
    seen: Aim
    weights: AwaWeights
    size: float
    undefined: Undefined
    smoothness: float = 0.0  # weight of the total variation

    def __call__(self, point: dict[str, Tensor]) -> Tensor:
        """Return the unweighted loss with the gradient of the weighted one: the former is comparable between weights.

        Weights are constants in the gradient, although the guess decides which layers are enhanced. The penalty on
        total variation enters the gradient alone too.
        """
        update = self.work.client.update(point["inputs"], self.labels)
        parts = squares(update, self.work.aim)
        counts = self.tensor_weights(update)
        squared = torch.stack([parts[name] for name in counts]) / self.size**2  # [tensors]
        weighted = (squared * squared.new_tensor(list(counts.values()))).sum()
        if self.smoothness:
            weighted = weighted + self.smoothness * total_variation(point["inputs"])
        return weighted - weighted.detach() + squared.detach().sum()

    def ends(self) -> dict[str, float]:
        """Return the weight of the last layer of each kind that the network has."""
        last = {layer.kind: weight for layer, weight in zip(self.layers, self.ramp, strict=True)}
        return {f"q_{kind}": last[kind] for kind in RAMPED if kind in last}

    def tensor_weights(self, update: Params) -> dict[str, float]:
        """Return the weight of every tensor at a guess with this update: by the ramp, or enhanced (Eq. 24, 27)."""
        chosen = self.enhanced(update)
        return {
            name: self.weights.q_enhance if place in chosen else self.ramp[place]
            for place, layer in enumerate(self.layers)
            for name in layer.tensors
        }

    def enhanced(self, update: Params) -> frozenset[int]:
        """Return the indices of the layers with the largest errors."""
        mean, variance = self.weights.p_mean, self.weights.p_var
        return furthest(
            update, self.seen, self.layers, mean_share=mean, variance_share=variance, undefined=self.undefined
        )


def work_of(view: View, observation: Observation, examples: int, batch_norm: BatchNorm, epoch: int) -> ReplayTarget:
    """Return the whole round where it can be replayed, else the given epoch of it."""
    client, aim = problem.replayed(view, observation, examples, batch_norm)
    recipe = problem.recipe_of(view, observation)
    assert recipe is not None
    if not order_is_unknown(recipe, examples):
        return ReplayTarget(client=client, aim=aim, epoch=None)
    client, aim = one_epoch(client, aim, problem.aim_of(observation, recipe), epoch)
    return ReplayTarget(client=client, aim=aim, epoch=epoch)


def epoch_there(at: At, epoch: int) -> Need:
    """Return the need of as many epochs, where one is interpolated."""

    def met(view: View) -> bool:
        if not view.of_target():  # another need covers that
            return True
        recipe, examples = problem.recipe_of(view, observation_at(view, at)), examples_behind(view, at)
        if recipe is None or examples is None or not order_is_unknown(recipe, examples):
            return True
        return epoch <= recipe.epochs

    return Need(what=f"a client of at least {epoch} epochs", given_by="a smaller epoch", met=met)


LEAST_WEIGHT = 1e-6  # with less, or 0, a guess may stay at its start and look like a result
MOST_WEIGHT = 1e12  # beyond it the squared gradients that Adam keeps are infinite, and nothing moves
MOST_STAGES = 60  # each stage runs inside the next one


PRESETS_USED = "Default: the preset's."
RAMP = "in a linear ramp from 1 at the first; a single one has this weight. " + PRESETS_USED
SHARE = "whose weight may be enhanced. " + PRESETS_USED


def _weight(sentence: str) -> Any:
    return setting(None, sentence, least=LEAST_WEIGHT, most=MOST_WEIGHT)


@dataclass(frozen=True, kw_only=True)
class Awa(ImageInversion):
    """What did the training images look like? Seeks images that reproduce the update, with weighted layers."""

    name: ClassVar[str] = "awa"
    paper: ClassVar[str] = "song-2023"
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = RANGES

    preset: Literal["by-case", "case1", "case2", "case3", "case4", "ramp", "none"] = setting(
        "by-case",
        "Source of weights that are not set: those the paper found for the case at hand or for a given case, plain "
        'ramps ("ramp"), or equal weights ("none").',
    )
    q_conv: float | None = _weight(f"Weight of the last convolution, {RAMP}")
    q_norm: float | None = _weight(f"Weight of the last norm layer, {RAMP}")
    q_linear: float | None = _weight(f"Weight of the last linear layer, {RAMP}")
    q_enhance: float | None = _weight(
        f"Weight of the layers with the largest errors, selected anew at every step. {PRESETS_USED}"
    )
    p_mean: float | None = setting(
        None, f"Share of layers with the largest relative error of the mean {SHARE}", least=0, most=1
    )
    p_var: float | None = setting(
        None, f"Share of layers with the largest relative error of the variance {SHARE}", least=0, most=1
    )
    steps: int = setting(1000, problem.STEPS, least=1)
    learning_rate: float = setting(0.1, problem.LEARNING_RATE, above=0, most=MOST_RATE)
    unit: Unit = setting("rate", f"{UNIT}.")
    start: Start = setting("uniform", problem.START)
    box: bool = setting(True, problem.BOX)
    decay: DecayName = setting("none", problem.DECAY)
    total_variation: float = setting(0.0, problem.TOTAL_VARIATION, least=0)
    keep: Literal["best", "last"] = setting(
        "last", "Which iterate is returned: the last one, or the one with the lowest unweighted loss."
    )
    epoch: int = setting(
        1,
        "Epoch that is replayed where the round has several epochs of reshuffled batches; no effect otherwise.",
        least=1,
    )
    undefined: Undefined = setting(
        "last", "Rank of a layer whose relative error is undefined: smallest (last) or largest (first)."
    )
    kept_every: int | None = setting(
        None, "Store the optimiser state every N steps, so that a longer attack resumes from it.", least=1
    )
    give_up: tuple[int, float] | None = setting(
        None,
        "[steps, loss]: stop if the lowest loss after as many steps is above this. A search has a rule of its own.",
        finite=False,
    )

    def check_settings(self) -> None:
        """Refuse too many or decaying stages, and several restarts of an attack that is stored or stopped early."""
        if self.kept_every is not None and self.decay != "none":
            remedy = "Leave kept_every out: a shorter descent has other steps than the first part of a longer one."
            raise BadInput("decay", expected="none, with kept_every", got=self.decay, remedy=remedy)
        if self.give_up is not None and not (self.give_up[0] >= 1 and self.give_up[1] >= 0):
            expected = "at least 1 step, and a loss of at least 0"
            raise BadInput("give_up", expected=expected, got=list(self.give_up), remedy="Leave it out.")
        if self.kept_every is not None and self.steps > MOST_STAGES * self.kept_every:
            least = -(-self.steps // MOST_STAGES)
            expected = f"at least {least} (at most {MOST_STAGES} stages of {self.steps} steps)"
            raise BadInput("kept_every", expected=expected, got=self.kept_every, remedy="Store the state less often.")
        if self.restarts > 1 and (self.kept_every is not None or self.give_up is not None):
            remedy = "Leave kept_every and give_up out."
            raise BadInput("restarts", expected="1, with kept_every or give_up", got=self.restarts, remedy=remedy)

    def method(self) -> Adam:
        """Return the optimiser of the paper, with a decaying step where asked."""
        return Adam(steps=self.steps, lr=self.learning_rate, decay=problem.DECAYS[self.decay])

    def needs(self) -> tuple[Need, ...]:
        """List the needs of an image inversion, and the epoch that is replayed."""
        needs = problem.image_needs(self.at, self.labels)
        return needs if self.epoch == 1 else (*needs, epoch_there(self.at, self.epoch))

    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        like = first_tensor(observation)
        labels, facts = problem.labels_in_batches(view, context, self.labels, self.at)
        loss, basis = self._loss(view, observation, labels)
        earlier = self._earlier(view, context)
        tried = descend(
            loss, problem.shared_starts(view, like, len(labels), context, self.restarts, self.start), self.method(),
            report=context.report, project=problem.into_the_box(view, like) if self.box else None, what=self.name,
            keep=self.keep, give_up=self.give_up, state=None if earlier is None else state_of(earlier),
        )  # fmt: skip
        evidence = problem.reconstruction(view, observation, tried, labels, facts | basis, self.keep)
        if self.kept_every is None:
            return evidence
        # Copied, since files hold no two tensors of one memory.
        state = {f"{STATE}{name}": value.clone() for name, value in tried.outcome.state.items()}
        return replace(evidence, tensors={**evidence.tensors, **state})

    def weights(self, view: View, observation: Observation, examples: int) -> AwaWeights:
        """Return the six numbers: those given, else the preset's."""
        recipe = problem.recipe_of(view, observation)
        assert recipe is not None
        given = {name: getattr(self, name) for name in RANGES if getattr(self, name) is not None}
        preset = case_of(recipe, examples) if self.preset == BY_CASE else self.preset
        return replace(PRESETS[preset], **given)

    def _loss(self, view: View, observation: Observation, labels: Tensor) -> tuple[Match, dict[str, Any]]:
        """Return the loss, and the facts it is based on."""
        work = work_of(view, observation, len(labels), self.batch_norm, self.epoch)
        weights = self.weights(view, observation, len(labels))
        size = unit_size(self.unit, work.aim, view, observation)
        recipe = problem.recipe_of(view, observation)
        assert recipe is not None
        facts = {"case": case_of(recipe, len(labels)), "epoch": work.epoch, "weights": asdict(weights)}
        layers = layers_of(view.model, work.aim)
        ramp = ramps(layers, {kind: getattr(weights, f"q_{kind}") for kind in RAMPED})
        seen = aim_moments(work.aim, work.client.start, layers)
        match = Match(work=work, labels=labels, layers=layers, ramp=ramp, seen=seen, weights=weights, size=size,
                      undefined=self.undefined, smoothness=self.total_variation)  # fmt: skip
        taken = {"case": facts["case"], "epoch": work.epoch, **match.ends(), "q_enhance": weights.q_enhance}
        taken |= {"p_mean": weights.p_mean, "p_var": weights.p_var}
        facts["taken"] = {name: value for name, value in taken.items() if value is not None}
        return match, facts

    def _earlier(self, view: View, context: Context) -> Evidence | None:
        """Return the evidence of the previous stage, the attack with fewer steps, where stages are stored."""
        if self.kept_every is None or self.steps <= self.kept_every:
            return None
        before = (self.steps - 1) // self.kept_every * self.kept_every
        return context.run(replace(self, steps=before), view)
