"""Data Leakage in Federated Averaging (Dimitrov, Balunović, Konstantinov and Vechev 2022), Algorithm 2.

The client's whole round is simulated, with images of its own in every epoch, and its order is not needed:
    1. Take the labels as granted, or their counts as granted or from a sub-attack, in an order; cut them into
       batches, the same in all epochs.
    2. Draw images from N(0, 1) in the space of the model's inputs, one set per epoch.
    3. Simulate the client's local steps on them. The loss is how far the sum of the simulated gradients is from
       (start - end) / learning rate, divided by the number of steps; plus total variation; plus what lies outside
       the range of pixels; plus the prior: every epoch's summary should be the same, whatever the order.
    4. Descend by Adam on all images at once, through all local steps.
    5. Match every epoch's images with those of the first (largest total PSNR, one to one) and average.

Paper and authors' code differ, and the published numbers come from the code, so its way is the default:
    - The paper matches by the cosine. The scripts match by squared differences of the summed update that count
      e^-layer: `match = "l2-by-depth"`, against `match = "cosine"`. The presets are weighed for the former. With a
      cosine the other terms are divided by the update's squared length per step, else they would drown it.
    - The paper puts labels into a random order. The code keeps them as the data loader gave them when counts
      are known (an order that says nothing of the client's batches: granted counts are shuffled here) and
      sorted by class when it estimated the counts: `label_order = "given"`, against "random" or "sorted".
    - The code returns the last finite iterate: `keep = "last"`. Since the weight of the match changes during the
      first half of the steps, `keep = "best"` compares losses of the second half only.
Weights and learning rates are the authors' for FEMNIST; `preset = "cifar100"` takes theirs for CIFAR-100.

A quicker way, off unless asked for: with `together = 0.5` all epochs hold the same images in the first half of the
steps and go their own ways from there; 200 such steps end above 400 of the paper's (docs/performance.md).

Where we differ: a last batch may be smaller (the authors' slices then mix epochs); restarts are chosen by the own
loss (the authors' code, which ran only one, would choose by the truth). A sum of replies is read as the
update of one client that holds everyone's images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from fedxray import imaging
from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.distance import BY_DEPTH, Distance, distance_named, squared_l2
from fedxray.attacks.inversion.problem import (
    aim_of,
    aware,
    check_count,
    check_label_attack,
    check_weight,
    image_needs,
    labels_known,
    recipe_of,
)
from fedxray.attacks.inversion.replay import (
    BatchNorm,
    Replay,
    check_batch_norm,
    one_step,
    one_step_per_epoch,
    replay,
    schedule_of_epochs,
    straight_schedule,
)
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.observations import At, check_at, observation_at
from fedxray.data.dataset import Space
from fedxray.errors import BadInput, unknown_name
from fedxray.federation.recipe import Recipe
from fedxray.optim import Adam, Changing, Exponential, Outcome, restarts
from fedxray.params import Params, scaled
from fedxray.priors import EPOCH_PRIORS, box_penalty, random_kernel, squared_total_variation
from fedxray.seeds import fork, normal_like, permutation

# --- The hyper-parameters of "Data Leakage in Federated Averaging", as its authors' scripts set them per
# data set.


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One data set's numbers."""

    learning_rate: float
    decay: float  # the learning rate is multiplied by it every `decay_every` steps, smoothly in between
    decay_every: int
    match_weight: tuple[float, float]  # at the start, and from half of the steps on
    total_variation: float
    clip: float  # weight of what lies outside the range of pixels
    prior: str
    prior_weights: Mapping[str, float]  # for each of the eight priors (Table 4)


PRESETS: dict[str, Preset] = {
    "femnist": Preset(
        learning_rate=0.4,
        decay=0.995,
        decay_every=10,
        match_weight=(1.0, 2.0),
        total_variation=1e-3,
        clip=2.0,
        prior="l2-mean",
        prior_weights={
            "l1-max": 77.298,
            "l1-max-conv": 81.365,
            "l1-mean": 250.846,
            "l1-mean-conv": 263.623,
            "l2-max": 92.378,
            "l2-max-conv": 97.776,
            "l2-mean": 1000.0,
            "l2-mean-conv": 1054.413,
        },
    ),
    "cifar100": Preset(
        learning_rate=0.1,
        decay=0.997,
        decay_every=20,
        match_weight=(4.0, 2.0),
        total_variation=2e-4,
        clip=10.0,
        prior="l2-max-conv",
        prior_weights={
            "l1-max": 4.848,
            "l1-max-conv": 5.0,
            "l1-mean": 15.708,
            "l1-mean-conv": 16.206,
            "l2-max": 5.814,
            "l2-max-conv": 6.075,
            "l2-mean": 62.675,
            "l2-mean-conv": 65.573,
        },
    ),
}

# --- The settings that DLF shares with its baselines: they differ in how they simulate the client, and in
# the prior.


@dataclass(frozen=True, kw_only=True)
class DlfSettings:
    """Fields of every attack of the family; a number left out is that of the preset."""

    preset: Literal["femnist", "cifar100"] = "femnist"
    steps: int = 400
    learning_rate: float | None = None  # femnist 0.4, cifar100 0.1
    decay: float | None = None  # of the learning rate: femnist 0.995 every 10 steps, cifar100 0.997 every 20
    match: str = BY_DEPTH  # l2-by-depth (the authors' code) | cosine (the paper) | cosine-by-layer | l2 | l1
    match_weight: tuple[float, float] | None = (
        None  # first and from half way on: femnist 1 to 2, cifar100 4 to 2
    )
    total_variation: float | None = None  # femnist 1e-3, cifar100 2e-4
    clip: float | None = None  # weight of what is outside the range of pixels: femnist 2, cifar100 10
    label_order: Literal["given", "sorted", "random"] = "given"  # given: see the header of dlf.py
    labels: Attack = field(default_factory=LabelsDlf)  # used when neither labels nor counts are granted
    restarts: int = 1
    keep: Literal["last", "best"] = "last"  # best: of the attacker's own loss in the second half of the steps
    at: At = "first"
    batch_norm: BatchNorm = "batch"


def check_dlf(settings: DlfSettings) -> None:
    """Refuse settings that cannot be meant."""
    if settings.preset not in PRESETS:
        raise unknown_name("preset", settings.preset, PRESETS)
    method_of(settings)
    check_at(settings.at)
    check_batch_norm(settings.batch_norm)
    check_count("restarts", settings.restarts)
    check_label_attack(settings.labels)
    distance_named(settings.match, [])
    _one_of("label_order", settings.label_order, ("given", "sorted", "random"))
    _one_of("keep", settings.keep, ("last", "best"))
    check_weight("total_variation", _or(settings.total_variation, 0.0))
    check_weight("clip", _or(settings.clip, 0.0))
    given = (1.0, 1.0) if settings.match_weight is None else settings.match_weight
    if len(given) != 2 or not all(0 < weight < float("inf") for weight in given):
        raise BadInput(
            "match_weight",
            expected="two finite numbers above 0",
            got=repr(settings.match_weight),
            remedy="Try [1.0, 2.0].",
        )


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The weights of one attack with the preset's where none was given."""

    match_weight: tuple[float, float]
    total_variation: float
    clip: float


def numbers_of(settings: DlfSettings) -> Numbers:
    """The weights of the loss."""
    preset = PRESETS[settings.preset]
    return Numbers(
        match_weight=preset.match_weight if settings.match_weight is None else settings.match_weight,
        total_variation=_or(settings.total_variation, preset.total_variation),
        clip=_or(settings.clip, preset.clip),
    )


def method_of(settings: DlfSettings) -> Adam:
    """Adam with a learning rate that falls smoothly."""
    preset = PRESETS[settings.preset]
    decay = _or(settings.decay, preset.decay)
    if not 0 < decay <= 1:
        raise BadInput("decay", expected="a number above 0, at most 1", got=repr(decay), remedy="Try 0.995.")
    return Adam(
        steps=settings.steps,
        lr=_or(settings.learning_rate, preset.learning_rate),
        decay=Exponential(by=decay, every=preset.decay_every),
    )


def prior_of(preset: str, name: str | None, weight: float | None) -> tuple[str, float]:
    """The name and the weight of the prior, the preset's where none was given."""
    told = PRESETS[preset]
    chosen = told.prior if name is None else name
    if chosen not in EPOCH_PRIORS:
        raise unknown_name("prior", chosen, EPOCH_PRIORS)
    check_weight("prior_weight", _or(weight, 0.0))
    return chosen, _or(weight, told.prior_weights[chosen])


def _or(given: float | None, other: float) -> float:
    return other if given is None else given


def _one_of(argument: str, got: object, known: tuple[str, ...]) -> None:
    if got not in known:
        raise unknown_name(argument, str(got), known)


# --- What DLF and its baselines share: knowledge of the client, the loss over all simulated images, the
# descent on it.


UNFIT = "granted, but not used: its batches are not those of the recipe"
Penalty = Callable[[Tensor], Tensor]  # images [epochs, n, c, h, w] to a scalar


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the attacker knows or believes of the client."""

    observation: Observation
    recipe: Recipe
    labels: Tensor  # [n], in the order in which they are cut into batches
    step_labels: Tensor | None  # [epochs * n] of every local step, where granted
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A replay of the client with one set of images, or one per epoch."""

    client: Replay
    aim: Params  # the sum of the client's gradients
    unit: float  # what turns a replayed update into such a sum
    labels: Tensor  # [sets * n]
    sets: int
    batches: int  # batches that all the images make: what the match is divided by


def what_is_known(view: View, settings: DlfSettings, context: Context) -> Known:
    """The update, its recipe and the labels in an order."""
    observation = observation_at(view, settings.at)
    recipe = recipe_of(view, observation)
    assert recipe is not None
    steps = (view.grants.batch_labels or {}).get(observation.round)
    unfit = steps is not None and not _fits(steps, recipe)
    if steps is None or unfit:
        labels, facts = labels_known(view, context, settings.labels)
        facts |= {"batch_labels": UNFIT} if unfit else {}
        steps = None
    else:
        every = torch.cat(steps)
        labels, facts = every[: len(every) // recipe.epochs], {"labels": "granted for every local step"}
    device = next(iter(observation.start.values())).device
    order = settings.label_order
    if order == "given" and facts["labels"] == "granted counts":
        order = "random"  # counts come in no order, and a data loader's tells nothing of the client's batches
    # From the root, so that the whole family works on the same split of the same labels.
    labels = _in_order(labels, order, fork(context.root, "dlf", "label order"))
    return Known(
        observation=observation,
        recipe=recipe,
        labels=labels.to(device),
        step_labels=None if steps is None else torch.cat(steps).to(device),
        facts=facts | {"round": observation.round, "label_order": order},
    )


def _fits(steps: Sequence[Tensor], recipe: Recipe) -> bool:
    """Whether labels of every step come in the batches of the recipe, as drawn (Poisson) ones do not."""
    sizes = [len(one) for one in steps]
    count = sum(sizes) // (1 if recipe.kind == "gradient" else recipe.epochs)
    if count == 0:
        return False
    told = straight_schedule(count, recipe)
    return sizes == [len(told.used(step)) for step in range(told.steps)]


def _in_order(
    labels: Tensor, order: Literal["given", "sorted", "random"], generator: torch.Generator
) -> Tensor:
    if order == "sorted":
        return labels.sort().values
    return labels if order == "given" else labels[permutation(len(labels), generator).to(labels.device)]


def simulation(
    view: View, settings: DlfSettings, known: Known, recipe: Recipe, *, by_epoch: bool
) -> Simulation:
    """The client's round by this recipe, with images of their own in every epoch or the same in all."""
    count = len(known.labels)
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    sets = epochs if by_epoch else 1
    order = schedule_of_epochs(count, recipe) if by_epoch else straight_schedule(count, recipe)
    client = replay(
        view.model,
        known.observation.start,
        recipe,
        order,
        buffers=known.observation.buffers,
        batch_norm=settings.batch_norm,
    )
    aim = aim_of(known.observation, known.recipe)
    client, aim = aware(view, known.observation, known.recipe, count, client, aim)
    labels = known.labels.repeat(sets) if known.step_labels is None else known.step_labels[: sets * count]
    unit = 1.0 if known.recipe.kind == "gradient" else 1 / known.recipe.learning_rate
    return Simulation(
        client=client,
        aim=scaled(aim, unit),
        unit=unit,
        labels=labels,
        sets=sets,
        batches=sets * -(-count // known.recipe.batch_length(count)),
    )


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss: weighted match / batches + total variation + range of pixels (+ a prior over epochs).

    All but the match is weighed for squared differences. A cosine takes their place as a share of the update's own
    squared length; `share` brings the other terms to that scale.
    """

    simulation: Simulation
    distance: Distance
    numbers: Numbers
    space: Space
    half: int  # steps over which the weight of the match changes
    penalty: Penalty | None = None
    share: float | None = None  # None where the match is not a cosine
    together: int = 0  # steps in which all epochs hold the same images

    def value(self, point: dict[str, Tensor], step: int) -> Tensor:
        """The loss after so many steps, of images [sets, n, c, h, w] called "inputs"; scalar."""
        x = point["inputs"]
        x = x.mean(0, keepdim=True).expand_as(x) if step < self.together else x
        flat = x.flatten(0, 1)
        told = self.simulation
        update = scaled(told.client.update(flat, told.labels), told.unit)
        held = self.numbers.total_variation * squared_total_variation(flat)
        held = held + self.numbers.clip * box_penalty(self.space.to_pixels(flat), 0.0, 1.0)
        held = held if self.penalty is None else held + self.penalty(x)
        match = self.match_weight(step) * self.distance(update, told.aim)
        return match / told.batches + held if self.share is None else match + self.share * held

    def match_weight(self, step: int) -> float:
        """From the first weight to the second by equal factors, arriving at half of the steps."""
        first, second = self.numbers.match_weight
        return float(first * (second / first) ** min(1.0, (step + 1) / self.half))


def objective(
    view: View,
    settings: DlfSettings,
    simulated: Simulation,
    penalty: Penalty | None = None,
    *,
    together: float = 0.0,
) -> Objective:
    """The loss of one attack on one simulation."""
    names = [name for name, _ in view.model.named_parameters() if name in simulated.aim]
    return Objective(
        simulation=simulated,
        distance=_distance(settings.match, names, simulated),
        numbers=numbers_of(settings),
        space=view.space,
        half=max(1, settings.steps // 2),
        penalty=penalty,
        share=_share(simulated, names) if settings.match.startswith("cosine") else None,
        together=round(together * settings.steps),
    )


def _distance(match: str, names: list[str], simulated: Simulation) -> Distance:
    """The distance of that name; under noise known to be alike in all entries, these count alike.

    The update's own length then counts as much as before, and so do the other terms beside it.
    """
    if match != BY_DEPTH or not simulated.client.noise:
        return distance_named(match, names)
    before, plain = (_length(simulated, names, one) for one in (BY_DEPTH, "l2"))
    return partial(squared_l2, weights=dict.fromkeys(names, before / plain if plain > 0 else 1.0))


def _share(simulated: Simulation, names: list[str]) -> float:
    """One over the squared length of the update per batch, layers counted as in the authors' code."""
    length = _length(simulated, names, BY_DEPTH)
    return simulated.batches / length if length > 0 else 1.0


def _length(simulated: Simulation, names: list[str], match: str) -> float:
    """The distance of the update from none."""
    nothing = {name: torch.zeros_like(value) for name, value in simulated.aim.items()}
    return float(distance_named(match, names)(simulated.aim, nothing))


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where a descent ended."""

    images: Tensor  # [sets, n, c, h, w]
    outcome: Outcome
    facts: dict[str, Any]


def descend(view: View, settings: DlfSettings, context: Context, loss: Objective, what: str) -> Found:
    """Minimise the loss over images that start from N(0, 1), alike in all epochs if they begin together."""
    told = loss.simulation
    like = next(iter(told.client.start.values()))
    shape = (told.sets, len(told.labels) // told.sets, *view.space.shape)
    blank = torch.empty(shape[1:] if loss.together else shape, dtype=like.dtype, device=like.device)
    drawn = (
        normal_like(blank, fork(context.root, "dlf", "start", place)) for place in range(settings.restarts)
    )
    starts = [{"inputs": one.expand(shape).clone()} for one in drawn]
    found = restarts(
        Changing(at=loss.value, settled=max(loss.half, loss.together)),
        starts,
        method_of(settings),
        report=context.report,
        what=what,
        keep=settings.keep,
    )
    end = found.outcome
    kept = end.kept(settings.keep)
    facts = {"own_loss": [one.loss_of(settings.keep) for one in found.outcomes], "restart": found.chosen}
    images = told.client.shown(kept["inputs"].flatten(0, 1)).reshape(shape)
    return Found(images=images, outcome=end, facts=facts)


def evidence_of(found: Found, known: Known, images: Tensor) -> Evidence:
    """The images of a descent, [n, c, h, w], as evidence."""
    end = found.outcome
    return of_images(
        images,
        known.labels if known.step_labels is None else known.step_labels[: len(images)],
        status=end.status,
        reason=end.reason,
        curve=end.curve,
        facts=known.facts | found.facts,
    )


# --- Shared simulation, the baseline of Dimitrov et al. (2022) after Geiping et al. (2020).
#
# As dlf.py, but the same images are used in every epoch, in the same batches:
#     1. Labels in an order, cut into batches.
#     2. One set of images from N(0, 1).
#     3. Simulate all local steps, every epoch on these images; the loss of dlf.py without the prior, the match
#        divided by the batches of one epoch.
#     4. Descend by Adam; nothing is left to match or average.
# It supposes that the client keeps its batches, which only `shuffle = "once"` or "never" does. Where we differ: as
# in dlf.py.


@dataclass(frozen=True, kw_only=True)
class SharedSimulation(DlfSettings, Attack):
    """What did the training images look like? The round is simulated with the same batches in every epoch."""

    name: ClassVar[str] = "shared-simulation"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        known = what_is_known(view, self, context)
        simulated = simulation(view, self, known, known.recipe, by_epoch=False)
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, found.images[0])


# --- FedSGD-Epoch, a baseline of Dimitrov et al. (2022): every epoch is taken for one large step.
#
# As shared_simulation.py, but each epoch is one step on all images, whose gradient counts as many times as
# the epoch has batches. The authors' code has one set of images for all epochs, although the paper says
# that they are matched and averaged; so here.
#
# Where we differ: with momentum, the step counts as all the client's steps together would on a constant
# gradient. Else as in dlf.py.


@dataclass(frozen=True, kw_only=True)
class FedsgdEpoch(DlfSettings, Attack):
    """What did the training images look like? Every epoch is taken for one step on all images."""

    name: ClassVar[str] = "fedsgd-epoch"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        known = what_is_known(view, self, context)
        simulated = simulation(
            view, self, known, one_step_per_epoch(known.recipe, len(known.labels)), by_epoch=False
        )
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, found.images[0])


# --- FedSGD inversion, a baseline of Dimitrov et al. (2022): the whole round is taken for one step.
#
# As shared_simulation.py, but the update is matched with the gradient of all images at the start, times the
# number of local steps. With one local step this is the usual gradient inversion.
#
# Where we differ: with momentum, the step counts as all the client's steps together would on a constant
# gradient. Else as in dlf.py.


@dataclass(frozen=True, kw_only=True)
class FedsgdInversion(DlfSettings, Attack):
    """What did the training images look like? The whole round is taken for one step on all images."""

    name: ClassVar[str] = "fedsgd-inversion"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        known = what_is_known(view, self, context)
        simulated = simulation(view, self, known, one_step(known.recipe, len(known.labels)), by_epoch=False)
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, found.images[0])


# --- MatchEpoch (Data Leakage in Federated Averaging, 4.4): the same images, found once per epoch, become
# one set.


Average = Literal["matched", "plain", "none"]


def averaged(x: Tensor, space: Space, average: Average = "matched") -> Tensor:
    """One set of images out of one per epoch, x [epochs, n, c, h, w]; shape [n, c, h, w].

    The mean after matching; or without matching; or the first epoch's images as they are.
    """
    if average == "none" or len(x) == 1:
        return x[0]
    return (reordered(x, matched_to_first(space.to_pixels(x))) if average == "matched" else x).mean(0)


def check_average(average: str) -> None:
    """Refuse a way that is not there."""
    if average not in get_args(Average):
        raise unknown_name("average", average, get_args(Average))


def matched_to_first(pixels: Tensor) -> Tensor:
    """For every epoch of pixels [epochs, n, c, h, w] the image that belongs to each of the first; [epochs, n].

    One to one, with the largest total PSNR.
    """
    return torch.stack([imaging.match(epoch, pixels[0]) for epoch in pixels])


def reordered(x: Tensor, places: Tensor) -> Tensor:
    """Each epoch of x [epochs, n, ...] in the order that places [epochs, n] give; shape kept."""
    return torch.stack([epoch[order] for epoch, order in zip(x, places, strict=True)])


@dataclass(frozen=True, kw_only=True)
class Dlf(DlfSettings, Attack):
    """What did the training images look like? The client's whole round is simulated, with images per epoch."""

    name: ClassVar[str] = "dlf"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    prior: str | None = (
        None  # l1 or l2, then mean or max, then perhaps conv: femnist l2-mean, cifar100 l2-max-conv
    )
    prior_weight: float | None = None  # None: the authors' for this preset and prior (Table 4)
    average: Average = "matched"  # plain: without matching; none: the first epoch's images
    together: float = 0.0  # share of the steps in which all epochs hold the same images; 0: the paper's way

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)
        prior_of(self.preset, self.prior, self.prior_weight)
        check_average(self.average)
        if not 0 <= self.together <= 1:
            raise BadInput(
                "together",
                expected="a share of the steps, 0 to 1",
                got=repr(self.together),
                remedy="Try 0.5.",
            )

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header, step by step."""
        known = what_is_known(view, self, context)
        simulated = simulation(view, self, known, known.recipe, by_epoch=True)
        loss = objective(view, self, simulated, self._prior(view, context), together=self.together)
        found = descend(view, self, context, loss, self.name)
        return evidence_of(found, known, averaged(found.images, view.space, self.average))

    def _prior(self, view: View, context: Context) -> Penalty:
        """The weighted prior; a convolution is drawn from the root, so that all settings get the same one."""
        name, weight = prior_of(self.preset, self.prior, self.prior_weight)
        prior, kernel = EPOCH_PRIORS[name], None
        if prior.convolved:
            like = next(iter(view.of_target()[0].start.values()))
            kernel = random_kernel(like.new_empty(view.space.shape), fork(context.root, "dlf", "convolution"))
        return lambda x: weight * prior(x, kernel)


# --- DLF without its prior over epochs (Dimitrov et al. 2022, "Ours (no prior)"), the ablation of dlf.py.
#
# Steps 1 to 5 of dlf.py; the loss lacks the term that draws the epochs together, so only the match, the
# total variation and the range of pixels hold the images of different epochs. Where we differ: as there.


@dataclass(frozen=True, kw_only=True)
class DlfNoPrior(DlfSettings, Attack):
    """What did the training images look like? As dlf, but epochs are not drawn together."""

    name: ClassVar[str] = "dlf-no-prior"
    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    average: Average = "matched"  # plain: without matching; none: the first epoch's images

    def __post_init__(self) -> None:
        """Check every setting."""
        check_dlf(self)
        check_average(self.average)

    def needs(self) -> tuple[Need, ...]:
        """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
        return image_needs(self.at, self.labels)

    def attack(self, view: View, context: Context) -> Evidence:
        """The algorithm of the header."""
        known = what_is_known(view, self, context)
        simulated = simulation(view, self, known, known.recipe, by_epoch=True)
        found = descend(view, self, context, objective(view, self, simulated), self.name)
        return evidence_of(found, known, averaged(found.images, view.space, self.average))
