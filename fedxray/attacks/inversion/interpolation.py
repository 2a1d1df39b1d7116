"""One epoch of a round whose order in later epochs nobody knows, by interpolation (paper 002, Section 4.1).

    model after epoch e  ~  start + e / E * update
    update of epoch e    ~  update / E, the same for every epoch
The first epoch starts from the model that was sent, which is known exactly; its update is off by the square of the
learning rate. That is so for plain steps, as the paper has them: with momentum the first epoch moves less than later
ones, and its update is off in proportion to the learning rate.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedxray.attacks.inversion.replay import Replay, segment_length
from fedxray.federation.recipe import Recipe
from fedxray.params import Params, add, scaled


def order_is_unknown(recipe: Recipe, examples: int) -> bool:
    """Whether a round has several epochs of several batches that are drawn anew: it cannot be replayed."""
    several = recipe.kind == "weights" and recipe.epochs > 1 and recipe.batch_length(examples) < examples
    return several and recipe.shuffle == "epoch"


def model_after(start: Params, update: Params, epoch: int, epochs: int) -> dict[str, Tensor]:
    """The model after so many of all epochs (Eq. 19)."""
    return add(start, update, epoch / epochs)


def one_epoch(client: Replay, aim: Params, update: Params, epoch: int) -> tuple[Replay, dict[str, Tensor]]:
    """Replay and aim of one epoch (counted from 1), out of those of a whole round; `update` is the round's own.

    What is known of a defence holds for the whole round, so what its entries count is kept.
    """
    epochs = client.recipe.epochs
    sizes = client.sizes[: len(client.sizes) // epochs]
    start = model_after(client.start, update, epoch - 1, epochs) if epoch > 1 else client.start
    part = replace(
        client,
        start=start,
        recipe=replace(client.recipe, epochs=1),
        order=None,  # the epochs of a replay all use the guess in its own order
        sizes=sizes,
        segment=segment_length(len(sizes), start),
    )
    return part, scaled(aim, 1 / epochs)
