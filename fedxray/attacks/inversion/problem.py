"""What every inversion of an update works from: the family base, labels, the replayed round, starts, valid inputs.

An attacker that knows the defence (grant `defence`) uses it in three ways:
    1. Deterministic parts of the defence (clipping, averaging pairs, rounding) are applied to the replayed client too.
    2. Entries that were cut away, or that never leave the client, count neither in the replay nor in the target update.
    3. Known noise has the same variance in every entry, so all entries get equal weight: ordinary least squares is
       then the most efficient estimator. An attack with other weights by layer (DLF) drops them.
Of a sum over several clients only the first holds, and only for what happens inside local steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks import observations
from fedxray.attacks.base import Attack, Context, Need, any_update, images
from fedxray.attacks.evidence import Evidence, Kind, of_images
from fedxray.attacks.inversion.replay import BatchNorm, Replay, one_step, pulled, replay, straight_schedule
from fedxray.attacks.labels.idlg import LabelsIdlg
from fedxray.attacks.labels.last_layer import HeadStatistics
from fedxray.defences.base import Hooks, KnownDefence, Work
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import batch_norm_layers
from fedxray.optim import Constant, Cosine, Decay, Keep, Outcome, Project, Restarts
from fedxray.params import Params, scaled
from fedxray.priors import clip
from fedxray.seeds import fork, normal_like, permutation, uniform_like
from fedxray.settings import setting

# Sentences of settings that several attacks share.
STEPS = "Optimisation steps."
LEARNING_RATE = "Learning rate of the optimiser."
DECAY = "Learning rate over the steps: constant, or falling to 0 by a cosine."
TOTAL_VARIATION = "Weight of the total variation penalty; larger values give smoother images."
MATCH = "Distance between the replayed and the observed update."
RESTARTS = "Number of random initialisations; the result with the lowest attack loss is kept."
START = "Initial guess: standard normal, uniform over valid pixels, or near mid-grey."
BOX = "Whether every step is projected onto the range of valid inputs."
KEEP = "Which iterate is returned: the last one, or the one with the lowest attack loss."
LABELS = "Label attack used where neither labels nor label counts are granted."
BATCH_NORM = "Statistics used to replay BatchNorm: those of the batch, or the running ones."

DecayName = Literal["none", "cosine"]
DECAYS: Mapping[DecayName, Decay] = {"none": Constant(), "cosine": Cosine()}
# Standard normal in the space of the model's inputs; uniform over valid inputs; or around their middle.
Start = Literal["normal", "uniform", "grey"]
AROUND_GREY = 0.1  # standard deviation of the start around mid-grey, as a share of the range


def check_label_attack(labels: Attack) -> None:
    """Refuse a sub-attack that does not return label counts."""
    if labels.kind != "labels" or isinstance(labels, HeadStatistics):  # the latter is a stage of label attacks
        raise BadInput("labels", expected="an attack on label counts", got=labels.name, remedy="Try labels-idlg.")


@dataclass(frozen=True, kw_only=True)
class ImageInversion(Attack):
    """Base of attacks that reconstruct training images from an update, with known or inferred labels."""

    kind: ClassVar[Kind] = "images"
    roles: ClassVar[tuple[str, ...]] = ("server", "eavesdropper", "active-server", "secure-aggregation")
    grants: ClassVar[tuple[str, ...]] = ("recipe", "examples")
    floors: ClassVar[tuple[str, ...]] = ("mean-image", "nearest-public-image")
    controls: ClassVar[tuple[str, ...]] = ("held-out", "other-client")
    small: ClassVar[Mapping[str, Any]] = {"steps": 80}
    adapts: ClassVar[bool] = True

    restarts: int = setting(1, RESTARTS, least=1)
    labels: Attack = setting(LabelsIdlg, LABELS, check=check_label_attack)
    at: observations.At = setting("first", observations.WHICH_UPDATE)
    batch_norm: BatchNorm = setting("batch", BATCH_NORM)

    def needs(self) -> tuple[Need, ...]:
        """List images, an update, its recipe, its number of examples, and labels or a way to infer them."""
        return image_needs(self.at, self.labels)


def image_needs(at: observations.AtOrAll, labels: Attack) -> tuple[Need, ...]:
    """Return the needs of an inversion with known labels: `labels` is the attack that infers them otherwise."""
    inner = tuple(unless_labels_granted(need) for need in labels.needs())
    return (images(), any_update(), observations.known_examples(at), replayable(at), *inner)


def images_found(inputs: Tensor, labels: Tensor, end: Outcome, facts: dict[str, Any]) -> Evidence:
    """Return reconstructed inputs [n, c, h, w] with labels [n] as evidence, with how the optimisation ended."""
    return of_images(inputs, labels, status=end.status, reason=end.reason, curve=end.curve, facts=facts)


def reconstruction(
    view: View, observation: Observation, tried: Restarts, labels: Tensor, facts: dict[str, Any], keep: Keep = "best"
) -> Evidence:
    """Return the images of the best restart with labels [n] as evidence; means where the defence averages pairs."""
    losses = [outcome.loss_of(keep) for outcome in tried.outcomes]
    facts = facts | {"round": observation.round, "own_loss": losses, "restart": tried.chosen}
    evidence = images_found(tried.outcome.kept(keep)["inputs"], labels, tried.outcome, facts)
    return with_averaged_pairs(view, observation, evidence)


# Labels


def labels_known(view: View, context: Context, attack: Attack) -> tuple[Tensor, dict[str, Any]]:
    """Return the labels to work with [examples], and their source: granted, or inferred by `attack`."""
    if view.grants.labels is not None:
        return view.grants.labels, {"labels": "granted"}
    counts = view.grants.label_counts
    facts: dict[str, Any] = {"labels": "granted counts"}
    if counts is None:
        evidence = context.run(attack, view)
        counts = evidence.tensors["counts"]
        facts = {"labels": attack.name, "labels_status": evidence.status}
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts), facts


def labels_in_batches(
    view: View, context: Context, attack: Attack, at: observations.AtOrAll
) -> tuple[Tensor, dict[str, Any]]:
    """Return the labels [examples] as they are cut into batches, on the device of the update, and their source.

    Labels from counts are sorted by class; where there are several batches they are shuffled, since sorted ones would
    put equal labels into the same batch.
    """
    labels, facts = labels_known(view, context, attack)
    observation = observations.observation_at(view, at)
    labels, recipe = labels.to(next(iter(observation.start.values())).device), recipe_of(view, observation)
    if facts["labels"] == "granted" or recipe is None or recipe.batch_length(len(labels)) >= len(labels):
        return labels, facts
    return labels[permutation(len(labels), fork(context.root, "label order")).to(labels.device)], facts


def unless_labels_granted(need: Need) -> Need:
    """Return a need of the label attack that is also met where labels or their counts are granted."""
    return Need(
        what=need.what,
        given_by=f'{need.given_by}, or grants = ["labels"]',
        met=lambda view: view.grants.labels is not None or view.grants.label_counts is not None or need.met(view),
    )


# The client's round


def recipe_of(view: View, observation: Observation) -> Recipe | None:
    """Return how the update was made; None where the recipe is not granted.

    A single gradient needs no recipe. A sum is read as the round of one large client that takes as many steps as each
    real one, on batches of all of them together. Where the number of clients is unknown (grant `contributors`), one is
    assumed, which overestimates the number of steps.
    """
    if observation.kind == "gradient":
        return Recipe(algorithm="fedsgd", loss=view.loss)
    recipe = view.grants.recipe
    if recipe is None or recipe.batch_size == "all" or not observations.is_sum(observation):
        return recipe
    return replace(recipe, batch_size=recipe.batch_size * observations.clients_behind(view, observation))


def replayable(at: observations.AtOrAll) -> Need:
    """Return the need of the recipe, which is met by a single gradient."""
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: recipe_of(view, observations.observation_at(view, at)) is not None,
    )


def aim_of(observation: Observation, recipe: Recipe) -> Params:
    """Return the update that a replay should produce; for a sum, the server's own step is divided out."""
    step = observations.server_step(recipe)
    return scaled(observation.update, 1 / step) if observations.is_sum(observation) else observation.update


def replayed(
    view: View, observation: Observation, examples: int, batch_norm: BatchNorm, *, merged: bool = False
) -> tuple[Replay, Params]:
    """Return the client's round to replay and the update it should produce, using what is known of the defence.

    Of FedSGD both are the gradient, so minus the update, where no defence changes it.
    With `merged` the round is approximated by one step on all examples.
    """
    recipe = recipe_of(view, observation)
    assert recipe is not None
    played = one_step(recipe, examples) if merged else recipe
    order = straight_schedule(examples, played)
    client = replay(view.model, observation.start, played, order, buffers=observation.buffers, batch_norm=batch_norm)
    client, aim = aware(view, observation, recipe, examples, client, aim_of(observation, recipe))
    return client.as_gradient(aim)


# Knowledge of the defence


def aware(
    view: View, observation: Observation, recipe: Recipe, examples: int, client: Replay, aim: Params
) -> tuple[Replay, Params]:
    """Return replay and target update adapted to the defence where it is granted, else both unchanged."""
    defence = view.grants.defence
    if defence is None:
        return client, aim
    hooks = defence.hooks(_work(view, recipe, examples, client))
    known = hooks.known or KnownDefence()
    if observations.is_sum(observation):
        return replace(client, hooks=replace(known.replay, incoming=None, outgoing=None)), aim
    counts, noise = weights(aim, known, hooks), update_variance(known, client)
    counted = {name: value * counts[name] for name, value in aim.items()}
    return replace(client, hooks=known.replay, weights=counts, noise=noise), counted


def _work(view: View, recipe: Recipe, examples: int, client: Replay) -> Work:
    """Return the client's work as the attacker assumes it; the number of rounds is that of the observed ones."""
    norms = batch_norm_layers(view.model)
    names = [name for name, value in view.model.named_parameters() if value.requires_grad]
    return Work(
        examples=examples,
        batch_size=min(examples, max(client.sizes)),
        steps=recipe.steps(examples),
        rounds=1 + view.indexed.rounds[-1],
        classes=view.space.outputs if view.space.target == "classification" else None,
        norm_params=tuple(name for name in names if name.rpartition(".")[0] in norms),
    )


def update_variance(known: KnownDefence, client: Replay) -> float:
    """Return the variance of the noise in every entry of the update, ignoring how later steps transform it."""
    if client.recipe.kind == "gradient":
        return known.update_variance + known.step_variance
    steps = len(client.sizes)
    # The noise of a step enters the update with the same factor as a constant gradient from that step on.
    pulls = [pulled(client.recipe, left) - pulled(client.recipe, left - 1) for left in range(1, steps + 1)]
    squares = sum((client.recipe.learning_rate * pull) ** 2 for pull in pulls)
    return known.update_variance + known.step_variance * squares


def weights(aim: Params, known: KnownDefence, hooks: Hooks) -> dict[str, Tensor]:
    """Return the weight of every entry of the update, 0 or 1, with the shape of the entry's tensor or as a scalar."""
    hidden = hooks.kept.params if hooks.kept else ()
    by_name = {}
    for name, value in aim.items():
        count = value.new_zeros(()) if name in hidden else value.new_ones(())
        by_name[name] = count * (value != 0).to(value.dtype) if known.cut else count
    return by_name


def with_averaged_pairs(view: View, observation: Observation, evidence: Evidence) -> Evidence:
    """Return the evidence with both images of a pair replaced by their mean, where the defence averages pairs.

    Such a defence makes the two images of a pair indistinguishable, so their mean is the best possible guess of both.
    """
    if view.grants.defence is None:
        return evidence
    inputs = evidence.tensors["inputs"]
    client, _ = replayed(view, observation, len(inputs), "batch")
    return replace(evidence, tensors={**evidence.tensors, "inputs": client.shown(inputs)})


# Initial guesses and valid inputs


def drawn_inputs(
    view: View, like: Tensor, examples: int, generator: torch.Generator, start: Start = "normal"
) -> Tensor:
    """Draw initial inputs [examples, ...] with dtype and device of `like`."""
    blank = torch.empty((examples, *view.space.shape), dtype=like.dtype, device=like.device)
    low, high = view.space.bounds(like)
    if start == "uniform":
        return low + (high - low) * uniform_like(blank, generator)
    drawn = normal_like(blank, generator)
    if start == "grey":
        return clip((low + high) / 2 + AROUND_GREY * (high - low) * drawn, low, high)
    return drawn


def drawn_starts(
    view: View, like: Tensor, examples: int, context: Context, restarts: int, start: Start = "normal"
) -> list[dict[str, Tensor]]:
    """Draw one initial guess per restart, each from its own generator."""
    return [
        {"inputs": drawn_inputs(view, like, examples, fork(context.generator, "restart", number), start)}
        for number in range(restarts)
    ]


def shared_starts(
    view: View, like: Tensor, examples: int, context: Context, restarts: int, start: Start
) -> list[dict[str, Tensor]]:
    """Draw initial guesses that are equal for every attack on this view, so that settings can be compared."""
    return drawn_starts(
        view, like, examples, replace(context, generator=fork(context.root, "shared start")), restarts, start
    )


def into_the_box(view: View, like: Tensor) -> Project:
    """Return the projection onto the range of valid inputs."""
    low, high = view.space.bounds(like)
    return lambda point: {name: clip(value, low, high) for name, value in point.items()}
