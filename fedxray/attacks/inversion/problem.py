"""What every inversion of an update works from: labels or a way to them, the client's round to replay, valid inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.base import Attack, Context, Need, any_update, images
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.inversion.replay import BatchNorm, Replay, one_step, pulled, replay, straight_schedule
from fedxray.attacks.labels.last_layer import HeadStatistics
from fedxray.attacks.observations import (
    At,
    clients_behind,
    is_sum,
    known_examples,
    observation_at,
    server_step,
)
from fedxray.defences.base import Seams, Told, Work
from fedxray.errors import BadInput
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import batch_norm_layers
from fedxray.optim import Project
from fedxray.params import Params, scaled
from fedxray.priors import clip
from fedxray.seeds import fork, normal_like, permutation, uniform_like

# --- An attacker who knows the defence: replays what is certain of it, and counts only what the reply still
# tells.
#
#     1. What a defence does without chance (clipping, averaging pairs, rounding) is done to the replayed client too.
#     2. Entries that were cut away, or that never leave the client, count neither in the replay nor in the aim.
#     3. Known noise has one variance in all entries, so all entries count alike: least squares with equal weights
#        lose least to it. An attack that weighs layers by anything else (DLF) puts these weights aside.
# Of a sum of several clients only the first holds, and only for what is done inside local steps.


def aware(
    view: View, observation: Observation, recipe: Recipe, examples: int, client: Replay, aim: Params
) -> tuple[Replay, Params]:
    """Replay and aim of someone who knows the defence; both as they are for someone who does not."""
    defence = view.grants.defence
    if defence is None:
        return client, aim
    seams = defence.seams(_work(view, recipe, examples, client))
    told = seams.told or Told()
    if observation.contributors is None or len(observation.contributors) > 1:
        return replace(client, seams=replace(told.replay, incoming=None, outgoing=None)), aim
    counts, noise = weights(aim, told, seams), update_variance(told, client)
    return replace(client, seams=told.replay, weights=counts, noise=noise), weighted(aim, counts)


def _work(view: View, recipe: Recipe, examples: int, client: Replay) -> Work:
    """The client's job as the attacker takes it to be; how many rounds there are is what it saw of them."""
    norms = batch_norm_layers(view.model)
    names = [name for name, value in view.model.named_parameters() if value.requires_grad]
    return Work(
        examples=examples,
        batch_size=min(examples, max(client.sizes)),
        steps=recipe.steps(examples),
        rounds=1 + max(one.round for one in view.observations),
        classes=view.space.outputs if view.space.target == "classification" else None,
        norm_params=tuple(name for name in names if name.rpartition(".")[0] in norms),
    )


def update_variance(told: Told, client: Replay) -> float:
    """Variance of the noise in every entry of the update, as far as steps do not carry it on."""
    if client.recipe.kind == "gradient":
        return told.update_variance + told.step_variance
    steps = len(client.sizes)
    # The noise of a step counts as often as a constant gradient from that step on would.
    pulls = [pulled(client.recipe, left) - pulled(client.recipe, left - 1) for left in range(1, steps + 1)]
    squares = sum((client.recipe.learning_rate * pull) ** 2 for pull in pulls)
    return told.update_variance + told.step_variance * squares


def weights(aim: Params, told: Told, seams: Seams) -> dict[str, Tensor]:
    """What every entry of the update counts, 0 or 1, with the shape of the entry's tensor or as a scalar."""
    hidden = seams.kept.params if seams.kept else ()
    found = {}
    for name, value in aim.items():
        count = value.new_zeros(()) if name in hidden else value.new_ones(())
        found[name] = count * (value != 0).to(value.dtype) if told.cut else count
    return found


def weighted(params: Params, counts: Params) -> dict[str, Tensor]:
    """Every tensor times what it counts."""
    return {name: value * counts[name] for name, value in params.items()}


# N(0, 1) as the model gets its inputs; evenly over valid inputs; or around their middle.
Start = Literal["normal", "uniform", "grey"]
STARTS = ("normal", "uniform", "grey")
AROUND_GREY = 0.1  # of the range


def image_needs(at: At, labels: Attack) -> tuple[Need, ...]:
    """Images, an update, how it was made, how many examples made it, and labels or a way to them."""
    inner = tuple(unless_labels_granted(need) for need in labels.needs())
    return (images(), any_update(), known_examples(at), replayable(at), *inner)


def labels_known(view: View, context: Context, attack: Attack) -> tuple[Tensor, dict[str, Any]]:
    """The labels to work with, shape [examples], and where they come from: granted, or from a sub-attack."""
    if view.grants.labels is not None:
        return view.grants.labels, {"labels": "granted"}
    counts = view.grants.label_counts
    facts: dict[str, Any] = {"labels": "granted counts"}
    if counts is None:
        evidence = context.run(attack, view)
        counts = evidence.tensors["counts"]
        facts = {"labels": attack.name, "labels_status": evidence.status}
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts), facts


def labels_in_batches(view: View, context: Context, attack: Attack, at: At) -> tuple[Tensor, dict[str, Any]]:
    """Labels as they are cut into batches: counts come in no order, and sorted ones would put alike into one batch."""
    labels, facts = labels_known(view, context, attack)
    recipe = recipe_of(view, observation_at(view, at))
    if facts["labels"] == "granted" or recipe is None or recipe.batch_length(len(labels)) >= len(labels):
        return labels, facts
    return labels[permutation(len(labels), fork(context.root, "label order")).to(labels.device)], facts


def replayed(
    view: View, observation: Observation, examples: int, batch_norm: BatchNorm, *, merged: bool = False
) -> tuple[Replay, Params]:
    """The client's round to replay, and what it should come to, with what is known of the defence.

    Merged, the round is taken for one step on everything.
    """
    recipe = recipe_of(view, observation)
    assert recipe is not None
    played = one_step(recipe, examples) if merged else recipe
    order = straight_schedule(examples, played)
    client = replay(
        view.model, observation.start, played, order, buffers=observation.buffers, batch_norm=batch_norm
    )
    return aware(view, observation, recipe, examples, client, aim_of(observation, recipe))


def as_far_as_told(view: View, observation: Observation, evidence: Evidence) -> Evidence:
    """The evidence with both of an averaged pair shown as their average, where the defence is known to make such."""
    if view.grants.defence is None:
        return evidence
    inputs = evidence.tensors["inputs"]
    client, _ = replayed(view, observation, len(inputs), "batch")
    return replace(evidence, tensors={**evidence.tensors, "inputs": client.shown(inputs)})


def aim_of(observation: Observation, recipe: Recipe) -> Params:
    """What a replay should come to; a sum is seen after the server's own step, which is taken back."""
    step = server_step(recipe)
    return scaled(observation.update, 1 / step) if is_sum(observation) else observation.update


def recipe_of(view: View, observation: Observation) -> Recipe | None:
    """How the update was made: one gradient needs no telling, and a sum is read as the round of one large client.

    That client takes as many steps as each of the real ones, on batches of all of them together. Where the seat does
    not know how many they are (grant `contributors`), it takes them for one, and so for too many steps.
    """
    if observation.kind == "gradient":
        return Recipe(algorithm="fedsgd", loss=view.loss)
    recipe = view.grants.recipe
    if recipe is None or recipe.batch_size == "all" or not is_sum(observation):
        return recipe
    return replace(recipe, batch_size=recipe.batch_size * clients_behind(view, observation))


def drawn_inputs(
    view: View, like: Tensor, examples: int, generator: torch.Generator, start: Start = "normal"
) -> Tensor:
    """Inputs to start from, shape [examples, ...], type and device as `like`."""
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
    """One start per restart, each from its own generator."""
    return [
        {"inputs": drawn_inputs(view, like, examples, fork(context.generator, "restart", place), start)}
        for place in range(restarts)
    ]


def shared_starts(
    view: View, like: Tensor, examples: int, context: Context, restarts: int, start: Start
) -> list[dict[str, Tensor]]:
    """The same for every attack on this view, whatever its settings, so that only these make a difference."""
    return drawn_starts(
        view, like, examples, replace(context, generator=fork(context.root, "shared start")), restarts, start
    )


def into_the_box(view: View, like: Tensor) -> Project:
    """Back into the range of valid inputs."""
    low, high = view.space.bounds(like)
    return lambda point: {name: clip(value, low, high) for name, value in point.items()}


def replayable(at: At) -> Need:
    """The recipe, unless a single gradient was sent."""
    return Need(
        what="the training recipe of an update of weights",
        given_by='grants = ["recipe"]',
        met=lambda view: recipe_of(view, observation_at(view, at)) is not None,
    )


def unless_labels_granted(need: Need) -> Need:
    """A need of the label attack, which falls away when labels are granted."""
    return Need(
        what=need.what,
        given_by=f'{need.given_by}, or grants = ["labels"]',
        met=lambda view: (
            view.grants.labels is not None or view.grants.label_counts is not None or need.met(view)
        ),
    )


def check_label_attack(labels: Attack) -> None:
    """Refuse a sub-attack that gives something else, also a mere stage of the label attacks."""
    if labels.kind != "labels" or isinstance(labels, HeadStatistics):
        raise BadInput(
            "labels", expected="an attack on label counts", got=labels.name, remedy="Try labels-idlg."
        )


def check_start(start: str) -> None:
    """Refuse a way to start that is not there."""
    if start not in STARTS:
        raise BadInput("start", expected=f"one of {', '.join(STARTS)}", got=repr(start), remedy='Try "grey".')


def check_count(setting: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(setting, expected="a whole number of at least 1", got=repr(value), remedy="Try 1.")


def check_weight(setting: str, value: float) -> None:
    """Refuse a weight of a penalty that cannot be meant."""
    if not 0 <= value < float("inf"):
        raise BadInput(setting, expected="a finite number ≥ 0", got=repr(value), remedy="Try 1e-4.")
