"""One epoch of a round whose order in later epochs nobody knows, by interpolation (paper 002, Section 4.1).

    model after epoch e  ~  start + e / E * update
    update of epoch e    ~  update / E, the same for every epoch
The first epoch starts from the model that was sent, which is known exactly; its update is off by the square of the
learning rate. That is so for plain steps, as the paper has them. With momentum later epochs move further, so that an
epoch replayed from rest has a smaller share than 1 / E: that of its steps on a constant gradient. What remains off is
that the batches of a round then count differently, by an order that nobody knows.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedxray.attacks.inversion.merged_steps import pulled
from fedxray.attacks.inversion.replay import Replay, segment_length
from fedxray.federation.recipe import Recipe
from fedxray.params import Params, add, scaled


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
