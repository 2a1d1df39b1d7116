"""A round of many local steps read as one of few: recipes of the FedSGD baselines."""

from __future__ import annotations

from dataclasses import replace

from fedxray.federation.recipe import Recipe


def one_step(recipe: Recipe, examples: int) -> Recipe:
    """One step on all examples, as long as all the client's steps together on a constant gradient."""
    pull = pulled(recipe, recipe.steps(examples))
    return _full_batches(recipe, epochs=1, learning_rate=recipe.learning_rate * pull)


def one_step_per_epoch(recipe: Recipe, examples: int) -> Recipe:
    """One step on all examples per epoch, together as long as all the client's steps on a constant gradient."""
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    pull = pulled(recipe, recipe.steps(examples)) / epochs
    return _full_batches(recipe, epochs=epochs, learning_rate=recipe.learning_rate * pull)


def pulled(recipe: Recipe, steps: int) -> float:
    """How often a constant gradient counts in so many steps: once each without momentum, more with it."""
    if not recipe.momentum:
        return float(steps)
    return sum((1 - recipe.momentum**step) / (1 - recipe.momentum) for step in range(1, steps + 1))


def _full_batches(recipe: Recipe, *, epochs: int, learning_rate: float) -> Recipe:
    return replace(recipe, epochs=epochs, batch_size="all", learning_rate=learning_rate, momentum=0.0)
