"""Approximate and Weighted Attack, AWA (Song, Wang and Zuazua, arXiv 2308.06822), Algorithm 2.

Inputs are sought whose replayed update is the one seen, where layers count differently:
    1. Take the labels as granted, or from a sub-attack. Draw inputs evenly over the valid range.
    2. A round of one batch per epoch is replayed exactly, one of one epoch up to the order of its batches. One of
       several epochs of several batches has an order that nobody knows: it is taken for as many equal epochs (with
       momentum the first is shorter), and the first (`epoch`) is replayed.
    3. Every layer gets a weight that rises linearly from 1 at the first of its kind to q_conv, q_norm or q_linear
       at the last.
    4. At every step, layers that are both among the share p_mean of layers with the largest relative errors of the
       mean of their entries, and among the share p_var with the largest of the variance, get q_enhance instead.
    5. Descend by Adam on the sum over layers of weight times squared difference; weights are constants.
    6. The six numbers come from a Bayesian search for the smallest sum without weights (`search` in a plan); without
       a search they are those that the paper found for the case at hand (`preset`).

Where we differ, or where the paper is silent:
    - Differences are measured in learning rates of the client (`unit = "rate"`). As sent (`unit = "sent"`, the paper)
      they are so small that the epsilon of Adam may hold it back.
    - Inputs stay in the valid range (`box`); the iterate with the smallest sum without weights is kept, which
      is also the loss that is told (`keep = "last"`: the last one).
    - An error relative to nothing is undefined, as that of the mean of a softmax head: see enhancement.py.
    - A client that is known to keep its batches (shuffle "once" or "never") is replayed exactly over all epochs.
    - All settings start from the same inputs, so that a search compares weights and not starts.
`kept_every` keeps the state of the descent after so many steps, so that an interrupted attack, or one with
more steps, goes on from there. `give_up` = (steps, loss) ends an attack whose loss is still above after so many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import squares
from fedxray.attacks.inversion.dlg import Unit, check_unit, first_tensor, unit_size
from fedxray.attacks.inversion.layer_weights import (
    Aim,
    Layer,
    Undefined,
    aim_moments,
    furthest,
    layers_of,
    ramps,
)
from fedxray.attacks.inversion.problem import (
    Start,
    aim_of,
    as_far_as_told,
    check_count,
    check_label_attack,
    check_start,
    image_needs,
    into_the_box,
    labels_in_batches,
    recipe_of,
    replayed,
    shared_starts,
)
from fedxray.attacks.inversion.replay import BatchNorm, Replay, check_batch_norm, pulled, segment_length
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.observations import At, check_at, examples_behind, observation_at
from fedxray.errors import BadInput, unknown_name
from fedxray.federation.recipe import Recipe
from fedxray.optim import Adam, Keep, Loss, Method, Outcome, Project, Restarts, Tensors, minimise, restarts
from fedxray.params import Params, add, scaled
from fedxray.progress import Report

# --- The six parameters of paper 002, as its Bayesian search tuned them for four cases (Table 3), and their
# ranges.


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of the last layer of each kind, of enhanced layers, and the shares of layers looked at for that.

    None as the weight of a last layer: as many as there are layers of its kind.
    """

    q_conv: float | None
    q_norm: float | None
    q_linear: float | None
    q_enhance: float
    p_mean: float
    p_var: float


def _tuned(*numbers: float) -> Weights:
    conv, norm, linear, enhance, mean, var = numbers
    return Weights(q_conv=conv, q_norm=norm, q_linear=linear, q_enhance=enhance, p_mean=mean, p_var=var)


PRESETS: dict[str, Weights] = {
    "case1": _tuned(519.19, 802.55, 42.83, 946.44, 0.24, 0.07),  # one epoch of one batch
    "case2": _tuned(236.31, 552.31, 54.28, 837.80, 0.11, 0.13),  # several epochs of one batch
    "case3": _tuned(547.17, 222.48, 394.39, 899.47, 0.31, 0.01),  # one epoch of several batches
    "case4": _tuned(655.98, 692.94, 283.42, 665.28, 0.40, 0.33),  # several of both
    "ramp": Weights(q_conv=None, q_norm=None, q_linear=None, q_enhance=1.0, p_mean=0.0, p_var=0.0),
    "none": _tuned(1.0, 1.0, 1.0, 1.0, 0.0, 0.0),
}
BY_CASE = "by-case"  # the tuned ones of the case at hand
RANGES: Mapping[str, tuple[float, float, str]] = {
    "q_conv": (1.0, 1000.0, "linear"),
    "q_norm": (1.0, 1000.0, "linear"),
    "q_linear": (1.0, 1000.0, "linear"),
    "q_enhance": (1.0, 1000.0, "linear"),
    "p_mean": (0.0, 0.5, "linear"),
    "p_var": (0.0, 0.5, "linear"),
}  # Table 2


def case_of(recipe: Recipe, examples: int) -> str:
    """Which of the paper's four cases a round of this client is."""
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    batches = -(-examples // recipe.batch_length(examples))
    return {(False, False): "case1", (True, False): "case2", (False, True): "case3", (True, True): "case4"}[
        epochs > 1, batches > 1
    ]


def weights_of(preset: str, recipe: Recipe, examples: int) -> Weights:
    """The parameters of a preset for a round of this client."""
    return PRESETS[case_of(recipe, examples) if preset == BY_CASE else preset]


# --- A descent that can end early or go on from where a shorter one was kept.


STATE = "state/"  # names of tensors that a descent goes on from


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
    """Minimise from every start; with a state or a limit from the only one, on from there or until it is hopeless."""
    if give_up is None and state is None:
        return restarts(loss, starts, method, report=report, project=project, what=what, keep=keep)

    def go_on(state: Tensors | None, budget: int | None) -> Outcome:
        return minimise(
            loss, starts[0], method, report=report, project=project, budget=budget, state=state, what=what
        )

    done = 0 if state is None else int(state["step"])
    if give_up is not None and give_up[0] < method.steps:
        first = go_on(state, max(0, give_up[0] - done))  # what was kept may have come further already
        if first.status != "truncated" or min(first.curve[: give_up[0] + 1]) > give_up[1]:
            return Restarts(outcomes=(first,), chosen=0)
        state = first.state
    return Restarts(outcomes=(go_on(state, None),), chosen=0)


def with_state(evidence: Evidence, end: Outcome) -> Evidence:
    """The evidence with what is needed to go on, copied: files hold no two tensors of one memory."""
    kept = {f"{STATE}{name}": value.clone() for name, value in end.state.items()}
    return replace(evidence, tensors={**evidence.tensors, **kept})


def state_of(evidence: Evidence) -> dict[str, Tensor] | None:
    """What a kept descent goes on from; None where it came to an end by itself."""
    found = {
        name.removeprefix(STATE): value for name, value in evidence.tensors.items() if name.startswith(STATE)
    }
    return found or None


# --- One epoch of a round whose order in later epochs nobody knows, by interpolation (paper 002, Section
# 4.1).
#
#     model after epoch e  ~  start + e / E * update
#     update of epoch e    ~  update / E, the same for every epoch
# The first epoch starts from the model that was sent, which is known exactly; its update is off by the square of the
# learning rate. That is so for plain steps, as the paper has them. With momentum later epochs move further, so that an
# epoch replayed from rest has a smaller share than 1 / E: that of its steps on a constant gradient. What remains off is
# that the batches of a round then count differently, by an order that nobody knows.


def order_is_unknown(recipe: Recipe, examples: int) -> bool:
    """Whether a round has several epochs of several batches that are drawn anew: it cannot be replayed."""
    several = recipe.kind == "weights" and recipe.epochs > 1 and recipe.batch_length(examples) < examples
    return several and recipe.shuffle == "epoch"


def share_after(recipe: Recipe, steps: int, epoch: int) -> float:
    """What of a round's update is made after so many epochs of so many steps (Eq. 19): e / E without momentum."""
    return pulled(recipe, epoch * steps) / pulled(recipe, recipe.epochs * steps)


def one_epoch(client: Replay, aim: Params, update: Params, epoch: int) -> tuple[Replay, dict[str, Tensor]]:
    """Replay and aim of one epoch (counted from 1), out of those of a whole round; `update` is the round's own.

    What is known of a defence holds for the whole round, so what its entries count is kept.
    """
    recipe = client.recipe
    sizes = client.sizes[: len(client.sizes) // recipe.epochs]
    made = share_after(recipe, len(sizes), epoch - 1)
    start = add(client.start, update, made) if epoch > 1 else client.start
    part = replace(
        client,
        start=start,
        recipe=replace(recipe, epochs=1),
        order=None,  # the epochs of a replay all use the guess in its own order
        sizes=sizes,
        segment=segment_length(len(sizes), start),
    )
    return part, scaled(aim, share_after(recipe, len(sizes), 1))


# --- The weighted and enhanced loss of paper 002 on one replayed round, or on one interpolated epoch of it.


RAMPED = ("conv", "norm", "linear")  # kinds of layers whose weights rise


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a guess is replayed as and should come to; `epoch` is the one that was interpolated, if any."""

    client: Replay
    aim: Params
    epoch: int | None


@dataclass(frozen=True, kw_only=True)
class Match:
    """The loss of a guess: a sum over layers of weight times squared difference, in squares of `size`."""

    work: Work
    labels: Tensor  # [examples]
    layers: Sequence[Layer]
    ramp: tuple[float, ...]  # [layers]
    seen: Aim
    weights: Weights
    size: float
    undefined: Undefined

    def __call__(self, point: dict[str, Tensor]) -> Tensor:
        """The plain loss with the slope of the weighted one: the former can be compared between weights and steps.

        Weights are constants to the slope, although the guess decides which layers are enhanced.
        """
        update = self.work.client.update(point["inputs"], self.labels)
        parts = squares(update, self.work.aim)
        counts = self.tensor_weights(update)
        apart = torch.stack([parts[name] for name in counts]) / self.size**2
        weighted = (apart * apart.new_tensor(list(counts.values()))).sum()
        return weighted - weighted.detach() + apart.detach().sum()

    def ends(self) -> dict[str, float]:
        """The weight of the last layer of each kind that there is."""
        last = {layer.kind: weight for layer, weight in zip(self.layers, self.ramp, strict=True)}
        return {f"q_{kind}": last[kind] for kind in RAMPED if kind in last}

    def tensor_weights(self, update: Params) -> dict[str, float]:
        """The weight of every tensor at a guess with this update: by the ramp, or as enhanced (Eq. 24, 27)."""
        chosen = self.enhanced(update)
        return {
            name: self.weights.q_enhance if place in chosen else self.ramp[place]
            for place, layer in enumerate(self.layers)
            for name in layer.tensors
        }

    def enhanced(self, update: Params) -> frozenset[int]:
        """Places of the layers with the largest errors."""
        return furthest(
            update,
            self.seen,
            self.layers,
            mean_share=self.weights.p_mean,
            variance_share=self.weights.p_var,
            undefined=self.undefined,
        )


def work_of(view: View, observation: Observation, examples: int, batch_norm: BatchNorm, epoch: int) -> Work:
    """The whole round where it can be replayed, else the asked epoch of it."""
    client, aim = replayed(view, observation, examples, batch_norm)
    recipe = recipe_of(view, observation)
    assert recipe is not None
    if not order_is_unknown(recipe, examples):
        return Work(client=client, aim=aim, epoch=None)
    client, aim = one_epoch(client, aim, aim_of(observation, recipe), epoch)
    return Work(client=client, aim=aim, epoch=epoch)


def epoch_there(at: At, epoch: int) -> Need:
    """The epoch that is asked for, where one is interpolated."""

    def met(view: View) -> bool:
        if not view.of_target():  # another need tells of that
            return True
        recipe, examples = recipe_of(view, observation_at(view, at)), examples_behind(view, at)
        if recipe is None or examples is None or not order_is_unknown(recipe, examples):
            return True
        return epoch <= recipe.epochs

    return Need(what=f"a client of at least {epoch} epochs", given_by="a smaller epoch", met=met)


def match_of(
    view: View, work: Work, labels: Tensor, weights: Weights, size: float, undefined: Undefined
) -> Match:
    """The loss with these weights."""
    layers = layers_of(view.model, work.aim)
    ramp = ramps(layers, {kind: getattr(weights, f"q_{kind}") for kind in RAMPED})
    return Match(
        work=work,
        labels=labels,
        layers=layers,
        ramp=ramp,
        seen=aim_moments(work.aim, work.client.start, layers),
        weights=weights,
        size=size,
        undefined=undefined,
    )


LEAST_WEIGHT = 1e-6  # with less, or 0, a guess may stay where it began and pass for what was found
MOST_WEIGHT = 1e12  # beyond it the squares of slopes that Adam keeps are infinite, and nothing moves
MOST_STAGES = 60  # each is asked from within the next


@dataclass(frozen=True, kw_only=True)
class Awa(Attack):
    """What did the training images look like? Images are sought that cause the update sent, layers weighted."""

    name: ClassVar[str] = "awa"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, tuple[float, float, str]]] = RANGES

    preset: Literal["by-case", "case1", "case2", "case3", "case4", "ramp", "none"] = "by-case"
    q_conv: float | None = None  # each of the six: None is what the preset has
    q_norm: float | None = None
    q_linear: float | None = None
    q_enhance: float | None = None
    p_mean: float | None = None
    p_var: float | None = None
    steps: int = 1000
    learning_rate: float = 0.1
    unit: Unit = "rate"
    start: Start = "uniform"
    box: bool = True
    keep: Literal["best", "last"] = "best"
    epoch: int = 1  # which epoch is replayed where the whole round cannot be
    undefined: Undefined = (
        "last"  # whether a layer whose relative error is undefined counts as largest or smallest
    )
    restarts: int = 1
    kept_every: int | None = None
    give_up: tuple[int, float] | None = None
    labels: Attack = field(default_factory=LabelsIdlg)  # used when the labels are not granted
    at: At = "first"
    batch_norm: BatchNorm = "batch"

    def __post_init__(self) -> None:
        """Check every setting."""
        self.method()
        check_unit(self.unit)
        check_start(self.start)
        check_at(self.at)
        check_batch_norm(self.batch_norm)
        check_label_attack(self.labels)
        for name in ("restarts", "epoch"):
            check_count(name, getattr(self, name))
        _check_choices(self)
        _check_weights(self)
        _check_stages(self)

    def method(self) -> Adam:
        """The optimiser of the paper."""
        return Adam(steps=self.steps, lr=self.learning_rate)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        needs = image_needs(self.at, self.labels)
        return needs if self.epoch == 1 else (*needs, epoch_there(self.at, self.epoch))

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        observation = observation_at(view, self.at)
        like = first_tensor(observation)
        labels, facts = labels_in_batches(view, context, self.labels, self.at)
        loss, told = self._loss(view, observation, labels.to(like.device))
        earlier = self._earlier(view, context)
        found = descend(
            loss, shared_starts(view, like, len(labels), context, self.restarts, self.start), self.method(),
            report=context.report, project=into_the_box(view, like) if self.box else None, what=self.name,
            keep=self.keep, give_up=self.give_up, state=None if earlier is None else state_of(earlier),
        )  # fmt: skip
        evidence = self._evidence(found, loss.labels, facts | told | {"round": observation.round})
        shown = as_far_as_told(view, observation, evidence)
        return shown if self.kept_every is None else with_state(shown, found.outcome)

    def weights(self, view: View, observation: Observation, examples: int) -> Weights:
        """The six numbers: those that were given, else the preset's."""
        recipe = recipe_of(view, observation)
        assert recipe is not None
        given = {name: getattr(self, name) for name in RANGES if getattr(self, name) is not None}
        return replace(weights_of(self.preset, recipe, examples), **given)

    def _loss(self, view: View, observation: Observation, labels: Tensor) -> tuple[Match, dict[str, Any]]:
        """The loss, and what it rests on."""
        work = work_of(view, observation, len(labels), self.batch_norm, self.epoch)
        weights = self.weights(view, observation, len(labels))
        size = unit_size(self.unit, work.aim, view, observation)
        recipe = recipe_of(view, observation)
        assert recipe is not None
        facts = {"case": case_of(recipe, len(labels)), "epoch": work.epoch, "weights": asdict(weights)}
        match = match_of(view, work, labels, weights, size, self.undefined)
        taken = {"case": facts["case"], "epoch": work.epoch, **match.ends(), "q_enhance": weights.q_enhance}
        taken |= {"p_mean": weights.p_mean, "p_var": weights.p_var}
        facts["taken"] = {name: value for name, value in taken.items() if value is not None}
        return match, facts

    def _earlier(self, view: View, context: Context) -> Evidence | None:
        """The same attack with fewer steps, where it is to be kept."""
        if self.kept_every is None or self.steps <= self.kept_every:
            return None
        before = (self.steps - 1) // self.kept_every * self.kept_every
        return context.run(replace(self, steps=before), view)

    def _evidence(self, found: Restarts, labels: Tensor, facts: dict[str, Any]) -> Evidence:
        end = found.outcome
        facts |= {"own_loss": [one.loss_of(self.keep) for one in found.outcomes], "restart": found.chosen}
        return of_images(
            end.kept(self.keep)["inputs"],
            labels,
            status=end.status,
            reason=end.reason,
            curve=end.curve,
            facts=facts,
        )


def _check_choices(attack: Awa) -> None:
    for setting, known in (
        ("preset", (BY_CASE, *PRESETS)),
        ("keep", ("best", "last")),
        ("undefined", ("last", "first")),
    ):
        if getattr(attack, setting) not in known:
            raise unknown_name(setting, getattr(attack, setting), known)


def _check_weights(attack: Awa) -> None:
    for setting in RANGES:
        value = getattr(attack, setting)
        least, most = (LEAST_WEIGHT, MOST_WEIGHT) if setting.startswith("q_") else (0.0, 1.0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and least <= value <= most):
            expected = "a share from 0 to 1" if most == 1 else f"a number from {least:g} to {most:g}"
            low, high, _ = RANGES[setting]
            remedy = f"The paper searches {low:g} to {high:g}; left out it is the preset's."
            raise BadInput(setting, expected=expected, got=repr(value), remedy=remedy)


def _check_stages(attack: Awa) -> None:
    if attack.kept_every is not None:
        check_count("kept_every", attack.kept_every)
        if attack.steps > MOST_STAGES * attack.kept_every:
            least = -(-attack.steps // MOST_STAGES)
            raise BadInput(
                "kept_every",
                expected=f"at least {least} (at most {MOST_STAGES} stages of {attack.steps} steps)",
                got=attack.kept_every,
                remedy="Keep the state less often.",
            )
    if attack.give_up is not None:
        check_count("give_up", attack.give_up[0])
        if not attack.give_up[1] >= 0:
            raise BadInput(
                "give_up",
                expected="a number of steps and a loss of at least 0",
                got=repr(attack.give_up),
                remedy="Leave it out.",
            )
    if attack.restarts > 1 and (attack.kept_every is not None or attack.give_up is not None):
        raise BadInput(
            "restarts",
            expected="1, with kept_every or give_up",
            got=attack.restarts,
            remedy="Leave kept_every and give_up out.",
        )
