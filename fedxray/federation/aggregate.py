"""How the server turns a round's replies into the next global model."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fedxray.federation.recipe import Recipe, client_weights
from fedxray.params import Params, add, weighted_mean


def mean_update(updates: Sequence[Params], examples: Sequence[int], recipe: Recipe) -> dict[str, Tensor]:
    """The weighted mean of the replies, by examples or uniformly."""
    return weighted_mean(updates, client_weights(examples, recipe))


def mean_buffers(
    before: Params, after: Sequence[Params], examples: Sequence[int], recipe: Recipe, *, kept: bool = False
) -> dict[str, Tensor]:
    """The next global buffers: the weighted mean where they are shared, otherwise what they were."""
    if not before or kept or recipe.batch_norm == "local":
        return dict(before)
    return weighted_mean(after, client_weights(examples, recipe))


def apply_update(model: Params, mean: Params, recipe: Recipe) -> dict[str, Tensor]:
    """The next global model; a mean gradient takes the learning rate here, since the clients took no step."""
    rate = recipe.server_learning_rate * (recipe.learning_rate if recipe.kind == "gradient" else 1.0)
    return add(model, mean, rate)
