"""Data Leakage in Federated Averaging (DLF; Dimitrov, Balunović, Konstantinov and Vechev 2022), and its baselines.

DLF (Algorithm 2) simulates the client's whole round, with separate images in every epoch; the order of the client's
batches is not needed:
    1. Take the labels as granted, or their counts as granted or from a sub-attack, in some order; cut them into
       batches, the same in all epochs.
    2. Draw images from N(0, 1) in the space of the model's inputs, one set per epoch.
    3. Simulate the client's local steps on them. The loss is the distance of the sum of the simulated gradients from
       (start - end) / learning rate, divided by the number of steps; plus total variation; plus a penalty on pixels
       outside their range; plus the prior: an order-invariant summary should be equal for all epochs.
    4. Minimise by Adam over all images at once, through all local steps.
    5. Match every epoch's images with those of the first (largest total PSNR, one to one) and average.

Its baselines in the same paper differ in the simulation:
    dlf-no-prior        ("Ours (no prior)") the loss lacks the prior over epochs.
    shared-simulation   (after Geiping et al. 2020) one set of images, used in the same batches in every epoch; exact
                        only for a client with shuffle = "once" or "never". The match is divided by the batches of one
                        epoch, and there is nothing to match or average.
    fedsgd-epoch        as shared-simulation, but each epoch is one step on all images whose gradient is multiplied by
                        the number of batches. The paper states that images of epochs are matched and averaged; the
                        authors' code has one set for all epochs, and so have we.
    fedsgd-inversion    as shared-simulation, but the whole round is one step on all images, multiplied by the number of
                        local steps. With one local step this is ordinary gradient inversion.
With momentum, the step of the last two has the total length of all the client's steps on a constant gradient (ours).

Paper and authors' code differ, and the published numbers come from the code, so it is the default:
    - The paper matches by the cosine. The scripts match by squared differences of the summed update with weights
      e^-layer: `match = "l2-by-depth"`, against `match = "cosine"`. The presets are tuned for the former. With a cosine
      the other terms are divided by the update's squared norm per step, else they would dominate.
    - The paper shuffles the labels. The code keeps them as the data loader gave them when counts are known (an order
      that reveals nothing of the client's batches: granted counts are shuffled here) and sorted by class when it
      estimated the counts: `label_order = "given"`, against "random" or "sorted".
    - The code returns the last finite iterate: `keep = "last"`. Since the weight of the match changes during the first
      half of the steps, `keep = "best"` compares losses of the second half only.
Weights and learning rates are the authors': those for FEMNIST on grey images, those for CIFAR-100 on colour images, or
those that `preset` names.

Where we go beyond the paper: with `together = 0.5`, the default, all epochs hold the same images in the first half of
the steps and separate ones from there; 100 such steps end above 400 of the paper's (docs/performance.md). Where most
reconstructed pixels of grey images lie at one end of their range, that end is a plain background: measured noise is
taken off it, and weak strokes are raised to one contrast. That is a prior of ours on how dark strokes are, from other
writers of FEMNIST. The paper has `together = 0`, `steps = 400` and `even_contrast = false`.

Where we differ: a last batch may be smaller (the authors' slices then mix epochs); restarts are chosen by the attack's
own loss (the authors' code, which ran only one, would choose by the truth). A sum of replies is read as the update of
one client that holds everyone's images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from fedxray import imaging
from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion import problem, replay as replaying
from fedxray.attacks.inversion.distance import BY_DEPTH, MATCHES, DistanceTo, distance_named, distance_to, squared_l2
from fedxray.attacks.inversion.problem import ImageInversion
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.attacks.observations import observation_at
from fedxray.data.dataset import Space
from fedxray.federation.recipe import Recipe
from fedxray.optim import MOST_RATE, Adam, Changing, Exponential, Outcome, restarts
from fedxray.params import Params, add, scaled
from fedxray.priors import EPOCH_PRIORS, box_penalty, random_kernel, squared_total_variation
from fedxray.seeds import fork, normal_like, permutation
from fedxray.settings import setting

# Hyper-parameters of the authors' scripts by data set


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The authors' hyper-parameters for one data set."""

    learning_rate: float
    decay: float  # factor of the learning rate every `decay_every` steps, applied smoothly in between
    decay_every: int
    match_weight: tuple[float, float]  # at the start, and from half of the steps on
    total_variation: float
    clip: float  # weight of the penalty on pixels outside their range
    prior: str
    prior_weights: Mapping[str, float]  # for each of the eight priors (Table 4)


PRIORS = ("l1-max", "l1-max-conv", "l1-mean", "l1-mean-conv", "l2-max", "l2-max-conv", "l2-mean", "l2-mean-conv")


def by_prior(*weights: float) -> dict[str, float]:
    """Return the weights of all priors by name."""
    return dict(zip(PRIORS, weights, strict=True))


PRESETS: dict[str, Preset] = {
    "femnist": Preset(
        learning_rate=0.4,
        decay=0.995,
        decay_every=10,
        match_weight=(1.0, 2.0),
        total_variation=1e-3,
        clip=2.0,
        prior="l2-mean",
        prior_weights=by_prior(77.298, 81.365, 250.846, 263.623, 92.378, 97.776, 1000.0, 1054.413),
    ),
    "cifar100": Preset(
        learning_rate=0.1,
        decay=0.997,
        decay_every=20,
        match_weight=(4.0, 2.0),
        total_variation=2e-4,
        clip=10.0,
        prior="l2-max-conv",
        prior_weights=by_prior(4.848, 5.0, 15.708, 16.206, 5.814, 6.075, 62.675, 65.573),
    ),
}


# The family of attacks

Average = Literal["matched", "plain", "none"]
AVERAGE = (
    "How the images of all epochs become one set: the mean after matching, the mean without matching, or the images of "
    "the first epoch."
)
EVEN_CONTRAST = "Whether grey images on a plain background lose its noise, and weak strokes get more contrast."
LEFT_OUT = "Default: the preset's."


@dataclass(frozen=True, kw_only=True)
class DlfFamily(ImageInversion):
    """Base of DLF and its baselines, which differ in the recipe they simulate and in the sets of images they seek."""

    paper: ClassVar[str] = "dimitrov-2022"
    by_epoch: ClassVar[bool] = False  # whether every epoch has images of its own

    preset: Literal["by-data", "femnist", "cifar100"] = setting(
        "by-data",
        "Data set for which the authors tuned the weights that are not set; by-data: femnist for grey images, cifar100 "
        "for colour.",
    )
    steps: int = setting(400, problem.STEPS, least=1)
    learning_rate: float | None = setting(
        None, f"{problem.LEARNING_RATE} {LEFT_OUT[:-1]}, 0.4 for femnist, 0.1 for cifar100.", above=0, most=MOST_RATE
    )
    decay: float | None = setting(
        None,
        "Factor of the learning rate every few steps. Default: 0.995 every 10 steps for femnist, 0.997 every 20 for "
        "cifar100.",
        above=0,
        most=1,
    )
    match: str = setting(
        BY_DEPTH, f"{problem.MATCH} The authors' code uses l2-by-depth, the paper cosine.", choices=MATCHES
    )
    match_weight: tuple[float, float] | None = setting(
        None,
        "Weight of the match at the start, and from half of the steps on. Default: [1, 2] for femnist, [4, 2] for "
        "cifar100.",
        above=0,
    )
    total_variation: float | None = setting(
        None, f"{problem.TOTAL_VARIATION} Default: 1e-3 for femnist, 2e-4 for cifar100.", least=0
    )
    clip: float | None = setting(
        None, "Weight of pixels outside their range. Default: 2 for femnist, 10 for cifar100.", least=0
    )
    label_order: Literal["given", "sorted", "random"] = setting(
        "given", "Order in which labels are cut into batches: as given, sorted by class, or random."
    )
    labels: Attack = setting(LabelsDlf, problem.LABELS, check=problem.check_label_attack)
    keep: Literal["last", "best"] = setting("last", f"{problem.KEEP[:-1]} in the second half of the steps.")

    def played(self, recipe: Recipe, examples: int) -> Recipe:
        """Return the recipe that is simulated: the client's own, unless a baseline approximates it."""
        return recipe

    def one_set(self, images: Tensor, space: Space) -> Tensor:
        """Return the guess [n, c, h, w] made of all sets of images [sets, n, c, h, w]; here there is only one."""
        return images[0]

    def loss(self, view: View, context: Context, simulated: Simulation) -> Objective:
        """Return the loss on a simulation; a hook for the prior over epochs."""
        return objective(view, self, simulated)

    def descended(self, view: View, context: Context, loss: Objective) -> tuple[Tensor, Outcome, dict[str, Any]]:
        """Return the images [sets, n, c, h, w], how the minimisation ended, and facts; a hook for other starts."""
        return descend(view, self, context, loss, self.name)

    @final
    def attack(self, view: View, context: Context) -> Evidence:
        """Run the algorithm of the header, step by step."""
        known = what_is_known(view, self, context)
        played = self.played(known.recipe, len(known.labels))
        simulated = simulation(view, self, known, played, by_epoch=self.by_epoch)
        sets, end, facts = self.descended(view, context, self.loss(view, context, simulated))
        images = self.one_set(sets, view.space)
        labels = known.labels if known.step_labels is None else known.step_labels[: len(images)]
        facts |= {"taken": {"preset": preset_of(self, view.space.shape[0])}}
        return problem.images_found(images, labels, end, known.facts | facts)


@dataclass(frozen=True, kw_only=True)
class Dlf(DlfFamily):
    """What did the training images look like? Simulates the client's whole round, with separate images per epoch."""

    name: ClassVar[str] = "dlf"
    by_epoch: ClassVar[bool] = True

    steps: int = setting(100, f"{problem.STEPS} 400 in the paper.", least=1)
    prior: str | None = setting(
        None,
        "Summary that should be equal in all epochs: distance l1 or l2, then mean or max, then optionally a random "
        "convolution. Default: l2-mean for femnist, l2-max-conv for cifar100.",
        choices=tuple(EPOCH_PRIORS),
    )
    prior_weight: float | None = setting(
        None, "Weight of the prior. Default: the authors' for the preset and the prior (Table 4).", least=0
    )
    average: Average = setting("matched", AVERAGE)
    together: float = setting(
        0.5, "Share of the steps in which all epochs hold the same images; 0 in the paper.", least=0, most=1
    )
    even_contrast: bool = setting(True, f"{EVEN_CONTRAST} Not in the paper.")

    def one_set(self, images: Tensor, space: Space) -> Tensor:
        """Return the mean over epochs, after matching and with even contrast on a plain background, as set."""
        mean = averaged(images, space, self.average)
        return evened(mean, space) if self.even_contrast else mean

    def loss(self, view: View, context: Context, simulated: Simulation) -> Objective:
        """Return the loss with the weighted prior."""
        return objective(view, self, simulated, self._prior(view, context), together=self.together)

    def _prior(self, view: View, context: Context) -> Penalty:
        """Return the weighted prior; a convolution is drawn from the root, so that all settings get the same one."""
        name, weight = prior_of(self, view.space.shape[0])
        prior, kernel = EPOCH_PRIORS[name], None
        if prior.convolved:
            like = next(iter(view.of_target()[0].start.values()))
            kernel = random_kernel(like.new_empty(view.space.shape), fork(context.root, "dlf", "convolution"))
        return lambda x: weight * prior(x, kernel)


@dataclass(frozen=True, kw_only=True)
class DlfNoPrior(DlfFamily):
    """What did the training images look like? DLF without the prior over epochs."""

    name: ClassVar[str] = "dlf-no-prior"
    by_epoch: ClassVar[bool] = True

    average: Average = setting("matched", AVERAGE)

    def one_set(self, images: Tensor, space: Space) -> Tensor:
        """Return the mean over epochs, after matching unless set otherwise."""
        return averaged(images, space, self.average)


@dataclass(frozen=True, kw_only=True)
class SharedSimulation(DlfFamily):
    """What did the training images look like? Simulates the round with the same batches in every epoch."""

    name: ClassVar[str] = "shared-simulation"


@dataclass(frozen=True, kw_only=True)
class FedsgdEpoch(DlfFamily):
    """What did the training images look like? Treats every epoch as one step on all images."""

    name: ClassVar[str] = "fedsgd-epoch"

    def played(self, recipe: Recipe, examples: int) -> Recipe:
        """Return a recipe of one step per epoch."""
        return replaying.one_step_per_epoch(recipe, examples)


@dataclass(frozen=True, kw_only=True)
class FedsgdInversion(DlfFamily):
    """What did the training images look like? Treats the whole round as one step on all images."""

    name: ClassVar[str] = "fedsgd-inversion"

    def played(self, recipe: Recipe, examples: int) -> Recipe:
        """Return a recipe of one step."""
        return replaying.one_step(recipe, examples)


# Step 1: what is known of the client

UNFIT = "granted, but not used: its batches are not those of the recipe"


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the attacker knows or assumes about the client."""

    observation: Observation
    recipe: Recipe
    labels: Tensor  # [n], in the order in which they are cut into batches
    step_labels: Tensor | None  # [epochs * n] of every local step, where granted
    facts: dict[str, Any]


def what_is_known(view: View, attack: DlfFamily, context: Context) -> Known:
    """Return the update, its recipe and the labels in the order in which they are cut into batches."""
    observation = observation_at(view, attack.at)
    recipe = problem.recipe_of(view, observation)
    assert recipe is not None
    steps = (view.grants.batch_labels or {}).get(observation.round)
    unfit = steps is not None and not _fits(steps, recipe)
    if steps is None or unfit:
        labels, facts = problem.labels_known(view, context, attack.labels)
        facts |= {"batch_labels": UNFIT} if unfit else {}
        steps = None
    else:
        every = torch.cat(steps)
        labels, facts = every[: len(every) // recipe.epochs], {"labels": "granted for every local step"}
    device = next(iter(observation.start.values())).device
    order = attack.label_order
    if order == "given" and facts["labels"] == "granted counts":
        order = "random"  # counts have no order, and a data loader's reveals nothing of the client's batches
    # From the root, so that the whole family works on the same split of the same labels.
    labels = _in_order(labels, order, fork(context.root, "dlf", "label order"))
    step_labels = None if steps is None else torch.cat(steps).to(device)
    facts |= {"round": observation.round, "label_order": order}
    return Known(observation=observation, recipe=recipe, labels=labels.to(device), step_labels=step_labels, facts=facts)


def _fits(steps: Sequence[Tensor], recipe: Recipe) -> bool:
    """Return whether labels of every step come in the batches of the recipe, unlike Poisson samples."""
    sizes = [len(labels) for labels in steps]
    count = sum(sizes) // (1 if recipe.kind == "gradient" else recipe.epochs)
    if count == 0:
        return False
    schedule = replaying.straight_schedule(count, recipe)
    return sizes == [len(schedule.used(step)) for step in range(schedule.steps)]


def _in_order(labels: Tensor, order: Literal["given", "sorted", "random"], generator: torch.Generator) -> Tensor:
    if order == "sorted":
        return labels.sort().values
    return labels if order == "given" else labels[permutation(len(labels), generator).to(labels.device)]


# Step 3: simulation and loss

Penalty = Callable[[Tensor], Tensor]  # images [epochs, n, c, h, w] -> scalar


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A replay of the client with one set of images, or one per epoch."""

    client: replaying.Replay
    aim: Params  # the sum of the client's gradients
    unit: float  # turns a replayed update into such a sum
    labels: Tensor  # [sets * n]
    sets: int
    batches: int  # batches of all sets together, by which the match is divided


def simulation(view: View, attack: DlfFamily, known: Known, recipe: Recipe, *, by_epoch: bool) -> Simulation:
    """Return the client's round by this recipe, with separate images in every epoch or the same in all."""
    count = len(known.labels)
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    sets = epochs if by_epoch else 1
    order = replaying.schedule_of_epochs(count, recipe) if by_epoch else replaying.straight_schedule(count, recipe)
    seen = known.observation
    client = replaying.replay(view.model, seen.start, recipe, order, buffers=seen.buffers, batch_norm=attack.batch_norm)
    aim = problem.aim_of(seen, known.recipe)
    client, aim = problem.aware(view, seen, known.recipe, count, client, aim)
    client, aim = client.as_gradient(aim)
    labels = known.labels.repeat(sets) if known.step_labels is None else known.step_labels[: sets * count]
    unit = 1.0 if known.recipe.kind == "gradient" else 1 / known.recipe.learning_rate
    batches = sets * -(-count // known.recipe.batch_length(count))
    return Simulation(client=client, aim=scaled(aim, unit), unit=unit, labels=labels, sets=sets, batches=batches)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Models between start and end of the round; the one whose gradient is matched is sought (`surrogate`)."""

    way: Params  # end minus start
    start: float  # position at which the search begins, from 0 (start) to 1 (end)
    rate: float  # change of the position by a change of 1 of the sought number, which Adam moves as it does pixels

    def position(self, sought: Tensor) -> Tensor:
        """Return the position on the line; scalar."""
        return self.start + self.rate * sought

    def project(self, point: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the point with its position moved onto the line."""
        low, high = ((end - self.start) / self.rate if self.rate else 0.0 for end in (0.0, 1.0))
        return point | {POSITION: point[POSITION].clamp(low, high)}


POSITION = "position"


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss: weighted match / batches + total variation + range of pixels (+ a prior over epochs).

    All terms but the match are tuned for squared differences. A cosine measures these relative to the squared norm of
    the update; `share` scales the other terms accordingly.
    """

    simulation: Simulation
    distance: DistanceTo
    numbers: Preset
    space: Space
    half: int  # steps over which the weight of the match changes
    penalty: Penalty | None = None
    share: float | None = None  # None where the match is not a cosine
    together: int = 0  # steps in which all epochs hold the same images
    line: Line | None = None  # None: the round begins at the model that was sent
    orders: Callable[[int], Tensor] | None = None  # of the images at a step [uses]; None: always the simulation's

    def value(self, point: dict[str, Tensor], step: int) -> Tensor:
        """Return the loss after `step` steps of images [sets, n, c, h, w] called "inputs"; scalar."""
        x = point["inputs"]
        x = x.mean(0, keepdim=True).expand_as(x) if step < self.together else x
        flat = x.flatten(0, 1)
        simulated, client = self.simulation, self.simulation.client
        if self.line is not None:
            client = replace(client, start=add(client.start, self.line.way, self.line.position(point[POSITION])))
        if self.orders is not None:
            client = replace(client, order=self.orders(step))
        update = scaled(client.update(flat, simulated.labels), simulated.unit)
        rest = self.numbers.total_variation * squared_total_variation(flat)
        rest = rest + self.numbers.clip * box_penalty(self.space.to_pixels(flat), 0.0, 1.0)
        rest = rest if self.penalty is None else rest + self.penalty(x)
        match = self.match_weight(step) * self.distance(update)
        return match / simulated.batches + rest if self.share is None else match + self.share * rest

    def match_weight(self, step: int) -> float:
        """Return the weight of the match: geometrically from the first to the second, reached at half of the steps."""
        first, second = self.numbers.match_weight
        return float(first * (second / first) ** min(1.0, (step + 1) / self.half))


def objective(
    view: View, attack: DlfFamily, simulated: Simulation, penalty: Penalty | None = None, *, together: float = 0.0
) -> Objective:
    """Return the loss of one attack on one simulation."""
    names = [name for name, _ in view.model.named_parameters() if name in simulated.aim]
    return Objective(
        simulation=simulated,
        distance=_distance(attack.match, names, simulated),
        numbers=numbers_of(attack, view.space.shape[0]),
        space=view.space,
        half=max(1, attack.steps // 2),
        penalty=penalty,
        share=_share(simulated, names) if attack.match.startswith("cosine") else None,
        together=round(together * attack.steps),
    )


GIVEN = ("learning_rate", "decay", "match_weight", "total_variation", "clip")  # settings that go before the preset's


def preset_of(attack: DlfFamily, channels: int = 1) -> str:
    """Return the name of the preset for images with this number of channels."""
    by_data = "cifar100" if channels > 1 else "femnist"
    return by_data if attack.preset == "by-data" else attack.preset


def numbers_of(attack: DlfFamily, channels: int = 1) -> Preset:
    """Return the hyper-parameters: those that are given, else the preset's."""
    given = {name: getattr(attack, name) for name in GIVEN if getattr(attack, name) is not None}
    return replace(PRESETS[preset_of(attack, channels)], **given)


def prior_of(attack: Dlf, channels: int = 1) -> tuple[str, float]:
    """Return name and weight of the prior, the preset's where none was given."""
    preset = PRESETS[preset_of(attack, channels)]
    name = attack.prior or preset.prior
    return name, preset.prior_weights[name] if attack.prior_weight is None else attack.prior_weight


def _distance(match: str, names: list[str], simulated: Simulation) -> DistanceTo:
    """Return the distance of that name; under known noise of equal variance all entries get equal weights.

    The distance of the update from zero is kept, and with it the balance with the other terms.
    """
    if match != BY_DEPTH or not simulated.client.noise:
        return distance_to(simulated.aim, match, names)
    by_depth, plain = (_length(simulated, names, name) for name in (BY_DEPTH, "l2"))
    weights = dict.fromkeys(names, by_depth / plain if plain > 0 else 1.0)
    return lambda guess: squared_l2(guess, simulated.aim, weights)


def _share(simulated: Simulation, names: list[str]) -> float:
    """Return one over the squared norm of the update per batch, with the weights of layers of the authors' code."""
    length = _length(simulated, names, BY_DEPTH)
    return simulated.batches / length if length > 0 else 1.0


def _length(simulated: Simulation, names: list[str], match: str) -> float:
    """Return the distance of the update from zero."""
    nothing = {name: torch.zeros_like(value) for name, value in simulated.aim.items()}
    return float(distance_named(match, names)(simulated.aim, nothing))


# Step 4: minimisation


def method_of(attack: DlfFamily, channels: int = 1) -> Adam:
    """Return Adam with a smoothly falling learning rate."""
    numbers = numbers_of(attack, channels)
    decay = Exponential(by=numbers.decay, every=numbers.decay_every)
    return Adam(steps=attack.steps, lr=numbers.learning_rate, decay=decay)


def descend(
    view: View, attack: DlfFamily, context: Context, loss: Objective, what: str
) -> tuple[Tensor, Outcome, dict[str, Any]]:
    """Minimise the loss over images that start from N(0, 1), equal in all epochs if they begin together.

    Returns the images [sets, n, c, h, w], how the minimisation ended, and facts.
    """
    simulated = loss.simulation
    like = next(iter(simulated.client.start.values()))
    shape = (simulated.sets, len(simulated.labels) // simulated.sets, *view.space.shape)
    blank = torch.empty(shape[1:] if loss.together else shape, dtype=like.dtype, device=like.device)
    drawn = (normal_like(blank, fork(context.root, "dlf", "start", number)) for number in range(attack.restarts))
    starts = [{"inputs": start.expand(shape).clone()} for start in drawn]
    project = None
    if loss.line is not None:
        project, starts = loss.line.project, [start | {POSITION: like.new_zeros(())} for start in starts]
    changing = Changing(at=loss.value, settled=max(loss.half, loss.together))
    method = method_of(attack, view.space.shape[0])
    tried = restarts(changing, starts, method, report=context.report, project=project, what=what, keep=attack.keep)
    end = tried.outcome
    facts: dict[str, Any] = {"own_loss": [outcome.loss_of(attack.keep) for outcome in tried.outcomes]}
    if loss.line is not None:
        facts[POSITION] = float(loss.line.position(end.kept(attack.keep)[POSITION]))
    images = simulated.client.shown(end.kept(attack.keep)["inputs"].flatten(0, 1)).reshape(shape)
    return images, end, facts | {"restart": tried.chosen}


# Step 5: the images of all epochs become one set (MatchEpoch, section 4.4)


def averaged(x: Tensor, space: Space, average: Average = "matched") -> Tensor:
    """Return one set of images [n, c, h, w] from one per epoch, x [epochs, n, c, h, w].

    The mean after matching; or without matching; or the first epoch's images unchanged.
    """
    if average == "none" or len(x) == 1:
        return x[0]
    if average == "matched":
        x = torch.stack([epoch[order] for epoch, order in zip(x, matched_to_first(space.to_pixels(x)), strict=True)])
    return x.mean(0)


def evened(images: Tensor, space: Space) -> Tensor:
    """Return grey images [n, 1, h, w] on a plain background with even contrast; others unchanged."""
    if images.shape[1] != 1:
        return images
    return space.from_pixels(imaging.with_even_contrast(space.to_pixels(images))).to(images)


def matched_to_first(pixels: Tensor) -> Tensor:
    """Return for every epoch of pixels [epochs, n, c, h, w] the index of the partner of each first image [epochs, n].

    One to one, with the largest total PSNR.
    """
    return torch.stack([imaging.match(epoch, pixels[0]) for epoch in pixels])
