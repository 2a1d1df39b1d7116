"""One client's work in one round: pure, differentiable, for one client or several stacked side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import functional_call, vmap

from fedxray.defences.base import IDENTITY, ExampleGradients, Seams, changed, entered, mixed, sent
from fedxray.federation.recipe import Recipe
from fedxray.losses import example_loss
from fedxray.params import Params, each, scaled, subtract

# --- A differentiable piece of work that keeps only what went in, and is done again when its derivative is
# asked for.


# Tensors in, tensors out; the second argument says whether the result must be differentiable.
Work = Callable[[Sequence[Tensor], bool], tuple[Tensor, ...]]


def checkpointed(work: Work, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What `work` makes of the tensors, with the same gradients (of first order), for the memory of one such piece."""
    found: tuple[Tensor, ...] = _Checkpoint.apply(work, *tensors)  # type: ignore[no-untyped-call]
    return found


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Do the work without a graph."""
        ctx.work = work
        ctx.save_for_backward(*tensors)
        found = tuple(one.detach() for one in work([one.detach() for one in tensors], False))
        ctx.mark_non_differentiable(*(one for one in found if not one.is_floating_point()))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """Do it again with a graph, and go back through it."""
        wanted = ctx.needs_input_grad[1:]
        leaves = [
            one.detach().requires_grad_(want) for one, want in zip(ctx.saved_tensors, wanted, strict=True)
        ]
        with torch.enable_grad():
            found = ctx.work(leaves, True)
        pairs = [(one, slope) for one, slope in zip(found, slopes, strict=True) if one.requires_grad]
        slopes_in = iter(
            torch.autograd.grad(
                [one for one, _ in pairs],
                [leaf for leaf, want in zip(leaves, wanted, strict=True) if want],
                [slope for _, slope in pairs],
                allow_unused=True,
            )
        )
        return None, *(next(slopes_in) if want else None for want in wanted)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples of one step; stacked clients have one more leading dimension everywhere."""

    x: Tensor  # [examples, ...]
    y: Tensor  # [examples] or [examples, classes]
    weight: Tensor | None = None  # [examples], 0 for filling; None means that every example counts
    active: Tensor | None = None  # stacked only, [clients]: 0 freezes a client that has no step left


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """What came of a client's work: end minus start, or minus the gradient, and the buffers at the end."""

    update: dict[str, Tensor]
    buffers: dict[str, Tensor]
    kept: dict[str, Tensor] = field(default_factory=dict)  # parameters that never leave, as they are now


# Loss (summed over stacked clients) and new buffers for one batch.
Objective = Callable[[Params, Params, Batch], tuple[Tensor, dict[str, Tensor]]]


def in_train_mode(model: nn.Module) -> nn.Module:
    """The model as clients train it: itself if all of it is in train mode, otherwise a copy that is."""
    return model if all(module.training for module in model.modules()) else copy.deepcopy(model).train()


def objective(model: nn.Module, loss: str) -> Objective:
    """The mean loss of one client's batch in train mode, a function of named parameters and buffers."""
    measure, network, shared = example_loss(loss), in_train_mode(model), shares_tensors(model)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        fresh = each(torch.clone, buffers)  # BatchNorm writes into what it is given
        output = functional_call(network, ({**params, **fresh},), (batch.x,), tie_weights=shared)
        losses = measure(output, batch.y)
        return mean_loss(losses, batch.weight), fresh

    return evaluate


def shares_tensors(model: nn.Module) -> bool:
    """Whether a parameter or buffer has several names; if not, a call can save itself the search for them."""
    every = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return len(every) > len({id(value) for _, value in every})


def mean_loss(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over the last dimension, counting only examples with weight."""
    if weight is None:
        return losses.mean(-1)
    return (losses * weight).sum(-1) / weight.sum(-1).clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class Midway:
    """A client between two local steps."""

    params: dict[str, Tensor]
    velocity: dict[str, Tensor]  # nothing without momentum, or before the first step
    buffers: dict[str, Tensor]


def local_update(
    start: Params,
    buffers: Params,
    batches: Iterable[Batch],
    recipe: Recipe,
    evaluate: Objective,
    *,
    seams: Seams = IDENTITY,
    generator: torch.Generator | None = None,
    keep_graph: bool = False,
    segment: int | None = None,
) -> LocalResult:
    """Run the local steps from `start`; with `keep_graph` the result can be differentiated in the batches.

    The update is always measured from `start`, what the client was sent, also where a defence changes the model that
    came in. With `segment` no more than so many steps are in the graph at a time, at the price of doing them twice.
    """
    source = generator if generator is not None else torch.Generator(device="cpu")
    origin = entered(seams, start, source)
    params = origin if keep_graph else each(torch.detach, origin)
    here = Midway(params=params, velocity={}, buffers=dict(buffers))
    work = _Round(
        origin=origin, recipe=recipe, evaluate=evaluate, seams=seams, source=source, states=[None, None]
    )
    if recipe.kind == "gradient":
        for batch in batches:
            with torch.enable_grad():
                gradient, held = work.gradient(here, batch, keep_graph)
                stepped = _step(params, gradient, recipe.learning_rate, None) if seams.kept else params
                return _reply(scaled(gradient, -1.0), stepped, held, seams, source)
    if keep_graph and segment is not None:
        assert seams is IDENTITY, "what is done twice must not draw"
        rest = list(batches)
        while len(rest) > segment:
            here, rest = _walked_twice(work, here, rest[:segment]), rest[segment:]
        batches = rest  # the last segment is the first to be differentiated, so its graph is kept
    here = work.walk(here, batches, keep_graph)
    with torch.enable_grad():
        return _reply(subtract(here.params, start), here.params, here.buffers, seams, source)


@dataclass(frozen=True, kw_only=True)
class _Round:
    """What stays the same in all steps of a round, but for what a defence remembers."""

    origin: Params
    recipe: Recipe
    evaluate: Objective
    seams: Seams
    source: torch.Generator
    states: list[object]

    def gradient(
        self, here: Midway, batch: Batch, keep_graph: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradient of a batch, and the buffers after it."""
        return _gradient(
            here.params, here.buffers, batch, self.evaluate, self.seams, self.source, self.states, keep_graph
        )

    def walk(self, here: Midway, batches: Iterable[Batch], keep_graph: bool) -> Midway:
        """The client after these steps."""
        recipe = self.recipe
        with torch.enable_grad():
            for batch in batches:
                gradient, held = self.gradient(here, batch, keep_graph)
                if recipe.mu:
                    gradient = {
                        name: value + recipe.mu * (here.params[name] - self.origin[name])
                        for name, value in gradient.items()
                    }
                if recipe.momentum:
                    gradient = (
                        _momentum(here.velocity, gradient, recipe.momentum) if here.velocity else gradient
                    )
                here = Midway(
                    params=_step(here.params, gradient, recipe.learning_rate, batch.active),
                    velocity=gradient if recipe.momentum else {},
                    buffers=held,
                )
        return here


def _walked_twice(work: _Round, here: Midway, batches: Sequence[Batch]) -> Midway:
    """The client after these steps, of which nothing is kept: they are taken again to be differentiated."""
    steps = len(batches)

    def walk(tensors: Sequence[Tensor], keep_graph: bool) -> tuple[Tensor, ...]:
        given = iter(tensors)
        params = {name: next(given) for name in here.params}
        velocity = {name: next(given) for name in here.velocity}
        x, y = ([next(given) for _ in range(steps)] for _ in range(2))
        again = [replace(batch, x=x[place], y=y[place]) for place, batch in enumerate(batches)]
        end = work.walk(Midway(params=params, velocity=velocity, buffers=here.buffers), again, keep_graph)
        return *end.params.values(), *end.velocity.values(), *end.buffers.values()

    inputs = [*(batch.x for batch in batches), *(batch.y for batch in batches)]
    found = iter(checkpointed(walk, [*here.params.values(), *here.velocity.values(), *inputs]))
    return Midway(
        params={name: next(found) for name in here.params},
        velocity={name: next(found) for name in (here.params if work.recipe.momentum else ())},
        buffers={name: next(found).detach() for name in here.buffers},
    )


def _gradient(
    params: Params,
    buffers: Params,
    batch: Batch,
    evaluate: Objective,
    seams: Seams,
    generator: torch.Generator,
    states: list[object],
    keep_graph: bool,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradient of one batch, through the defence's seams where it has any."""
    if seams.batch is not None:
        (x, y), states[0] = mixed(seams.batch, (batch.x, batch.y), states[0], generator)
        batch = Batch(x=x, y=y, weight=batch.weight, active=batch.active)
    if seams.gradients is not None:
        return _through_examples(params, buffers, batch, evaluate, seams, generator, states)
    leaves = {
        name: value if keep_graph and value.requires_grad else value.detach().requires_grad_()
        for name, value in params.items()
    }
    loss, fresh = evaluate(leaves, buffers, batch)
    found = torch.autograd.grad(loss, list(leaves.values()), create_graph=keep_graph, materialize_grads=True)
    return dict(zip(leaves, found, strict=True)), each(torch.detach, fresh)


def _through_examples(
    params: Params,
    buffers: Params,
    batch: Batch,
    evaluate: Objective,
    seams: Seams,
    generator: torch.Generator,
    states: list[object],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The step's gradient built from per-example gradients, which a defence asked to see."""
    assert seams.gradients is not None

    def loss_of_one(inner: Params, x: Tensor, y: Tensor) -> Tensor:
        return evaluate(inner, buffers, Batch(x=x[None], y=y[None]))[0]

    single = torch.func.grad(loss_of_one)
    weight = batch.x.new_ones(len(batch.x)) if batch.weight is None else batch.weight
    if len(batch.x):
        found = vmap(single, in_dims=(None, 0, 0), randomness="different")(dict(params), batch.x, batch.y)
    else:  # a batch drawn by chance may be empty
        found = {name: value.new_zeros((0, *value.shape)) for name, value in params.items()}
    counted = {name: value * weight.reshape(-1, *[1] * (value.dim() - 1)) for name, value in found.items()}
    value = ExampleGradients(each=counted, divisor=weight.sum().clamp(min=1))
    value, states[1] = changed(seams.gradients, value, states[1], generator)
    return value.combined(), dict(buffers)


def _momentum(velocity: Params, gradient: Params, momentum: float) -> dict[str, Tensor]:
    return {name: momentum * velocity[name] + value for name, value in gradient.items()}


def _step(params: Params, gradient: Params, rate: float, active: Tensor | None) -> dict[str, Tensor]:
    """Params - rate * gradient, where stacked clients without a step left stay where they are."""
    if active is None:  # added, not subtracted: that takes one pass less to differentiate
        return {name: torch.add(value, gradient[name], alpha=-rate) for name, value in params.items()}
    return {
        name: value - rate * active.reshape(-1, *[1] * (value.dim() - 1)) * gradient[name]
        for name, value in params.items()
    }


def _reply(
    update: dict[str, Tensor],
    params: Params,
    buffers: dict[str, Tensor],
    seams: Seams,
    generator: torch.Generator,
) -> LocalResult:
    """What leaves and what stays: a parameter that is kept is sent as if it had not changed."""
    kept = {name: params[name] for name in (seams.kept.params if seams.kept else ())}
    for name in kept:
        update[name] = torch.zeros_like(update[name])
    return LocalResult(update=sent(seams, update, generator), buffers=buffers, kept=kept)
