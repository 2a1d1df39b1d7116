"""How far the BatchNorm statistics of guessed inputs are from the client's, as far as a seat knows those."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedxray.adversary.view import Observation, View
from fedxray.federation.recipe import Recipe
from fedxray.models.inspect import batch_norm_layers
from fedxray.models.statistics import batch_statistics
from fedxray.params import Params, buffers_of

FIRST_LAYER = 10.0  # how much more the first BatchNorm layer counts


def known_statistics(
    view: View, observation: Observation, recipe: Recipe, examples: int
) -> tuple[dict[str, Tensor], str]:
    """Statistics of the client's batches by layer, "<layer>.mean" and "<layer>.var", and where they come from.

    Granted ones are the client's own, averaged over its steps. Otherwise a client that returns its running
    statistics gives the same away: they moved towards those of its batches by a known share. Where it keeps them,
    only the running statistics of the model that it was sent are left.
    """
    layers = {name: layer for name, layer in batch_norm_layers(view.model).items() if _tracks(layer)}
    granted = (view.grants.bn_statistics or {}).get(observation.round)
    if granted is not None:
        return {name: value.mean(0) for name, value in granted.items()}, "granted"
    if not layers:
        return {}, "none"
    before = {**buffers_of(view.model), **observation.buffers}
    if all(f"{name}.running_mean" in observation.buffers_after for name in layers):
        steps = recipe.steps(examples)
        return _taken_up(layers, before, observation.buffers_after, steps), "returned"
    return _running(layers, before), "running"


def statistics_loss(
    view: View, observation: Observation, recipe: Recipe, wanted: Params
) -> Callable[[Tensor], Tensor]:
    """Inputs [examples, ...] in, the sum over layers of the distances of mean and of variance out.

    Inputs are cut into the batches of one epoch at the model that was sent, and their statistics averaged.
    """
    tell, buffers = batch_statistics(view.model), {**buffers_of(view.model), **observation.buffers}
    first = next(iter(batch_norm_layers(view.model)), "")

    def loss(x: Tensor) -> Tensor:
        batches = [tell(observation.start, buffers, part) for part in x.split(recipe.batch_length(len(x)))]
        parts = []
        for name, target in wanted.items():
            mine = torch.stack([batch[name] for batch in batches]).mean(0)
            weight = FIRST_LAYER if name.rpartition(".")[0] == first else 1.0
            parts.append(weight * torch.linalg.vector_norm(mine - target.to(mine)))
        return torch.stack(parts).sum()

    return loss


def _taken_up(layers: dict[str, nn.Module], before: Params, after: Params, steps: int) -> dict[str, Tensor]:
    """What running statistics moved towards in so many steps, by layer."""
    found = {}
    for name, layer in layers.items():
        assert isinstance(layer, _BatchNorm)
        kept = _share_kept(layer, before, name, steps)
        for ours, theirs in (("mean", "running_mean"), ("var", "running_var")):
            old, new = before[f"{name}.{theirs}"], after[f"{name}.{theirs}"]
            found[f"{name}.{ours}"] = (new - kept * old) / (1 - kept)
    return found


def _share_kept(layer: _BatchNorm, before: Params, name: str, steps: int) -> float:
    """How much of the old running statistics is left after so many steps."""
    if layer.momentum is not None:
        return float((1 - layer.momentum) ** steps)
    seen = int(before[f"{name}.num_batches_tracked"])  # a plain average over all batches ever
    return seen / (seen + steps)


def _running(layers: dict[str, nn.Module], buffers: Params) -> dict[str, Tensor]:
    """The running statistics themselves, unless no batch ever entered them."""
    if all(int(buffers[f"{name}.num_batches_tracked"]) == 0 for name in layers):
        return {}
    return {
        f"{name}.{ours}": buffers[f"{name}.running_{ours}"] for name in layers for ours in ("mean", "var")
    }


def _tracks(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and layer.running_mean is not None
