"""An attacker who knows the defence: replays what is certain of it, and counts only what the reply still tells.

    1. What a defence does without chance (clipping, averaging pairs, rounding) is done to the replayed client too.
    2. Entries that were cut away, or that never leave the client, count neither in the replay nor in the aim.
    3. Known noise has one variance in all entries, so all entries count alike: least squares with equal weights
       lose least to it. An attack that weighs layers by anything else (DLF) puts these weights aside.
Of a sum of several clients only the first holds, and only for what is done inside local steps.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedxray.adversary.view import Observation, View
from fedxray.attacks.inversion.merged_steps import pulled
from fedxray.attacks.inversion.replay import Replay
from fedxray.defences.base import Seams, Told, Work
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import batch_norm_layers
from fedxray.params import Params


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
