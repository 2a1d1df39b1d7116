"""One client's local training in one round: pure and differentiable, for one client or several stacked ones.

`local_update` is the only client step of the project: the simulator, the stacked simulator and the replay of an attack
all call it. Parameters are named tensors; stacked clients have one more leading dimension, [clients, ...], everywhere.
A defence changes it at four hooks: the incoming model, a batch, the gradients of single examples, the outgoing update.
`train_alone` trains one client to convergence, without rounds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import functional_call, vmap
from torch.nn import functional

from fedxray.data.dataset import Records
from fedxray.defences.base import IDENTITY, ExampleGradients, Hooks, OnGradients, changed, entered, mixed, sent
from fedxray.federation.recipe import Recipe
from fedxray.losses import example_loss
from fedxray.optim import Adam, Cosine, Loss, Outcome, minimise
from fedxray.params import Params, each, scaled, subtract
from fedxray.progress import Report, silent


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples of one step; stacked clients have one more leading dimension everywhere."""

    x: Tensor  # [examples, ...]
    y: Tensor  # [examples] or [examples, classes]
    weight: Tensor | None = None  # [examples], 0 for padding; None means that every example counts
    active: Tensor | None = None  # stacked only, [clients]: 0 freezes a client that has no step left


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """The result of a client's work: end minus start, or minus the gradient, and the buffers at the end."""

    update: dict[str, Tensor]
    buffers: dict[str, Tensor]
    kept: dict[str, Tensor] = field(default_factory=dict)  # parameters that never leave the client, at the end


# Parameters, buffers and a batch in; the loss (summed over stacked clients, a scalar) and the new buffers out.
Objective = Callable[[Params, Params, Batch], tuple[Tensor, dict[str, Tensor]]]


def in_train_mode(model: nn.Module) -> nn.Module:
    """The model as clients train it: itself if all of it is in train mode, otherwise a copy that is."""
    return model if all(module.training for module in model.modules()) else copy.deepcopy(model).train()


def objective(model: nn.Module, loss: str) -> Objective:
    """The mean loss of one client's batch in train mode, a function of named parameters and buffers."""
    measure, network, shared = example_loss(loss), in_train_mode(model), shares_tensors(model)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        fresh = each(torch.clone, buffers)  # BatchNorm changes its buffers in place
        output = functional_call(network, ({**params, **fresh},), (batch.x,), tie_weights=shared)
        losses = measure(output, batch.y)
        return mean_loss(losses, batch.weight), fresh

    return evaluate


def shares_tensors(model: nn.Module) -> bool:
    """Whether a parameter or buffer has several names; if not, a call need not search for them."""
    every_name = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return len(every_name) > len({id(value) for _, value in every_name})


def mean_loss(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Mean of losses [..., examples] over the examples, weighted by weight [..., examples] where given; shape [...]."""
    if weight is None:
        return losses.mean(-1)
    return (losses * weight).sum(-1) / weight.sum(-1).clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class LocalState:
    """The state of a client between two local steps."""

    params: dict[str, Tensor]
    velocity: dict[str, Tensor]  # empty without momentum, or before the first step
    buffers: dict[str, Tensor]
    moved: dict[str, Tensor] | None = None  # sum of all steps so far, where it is wanted


def local_update(
    start: Params,
    buffers: Params,
    batches: Iterable[Batch],
    recipe: Recipe,
    evaluate: Objective,
    *,
    hooks: Hooks = IDENTITY,
    generator: torch.Generator | None = None,
    keep_graph: bool = False,
    segment: int | None = None,
    negated: bool = False,
    summed: bool = False,
) -> LocalResult:
    """Run the local steps from `start`, one for each batch, and return the reply of the client.

    `evaluate` gives the loss of a batch (`objective`, or `stacked_objective` for stacked clients). `hooks` are the
    hooks of a defence, which draw from `generator`. With `keep_graph` the result can be differentiated with respect
    to the batches and `start`; with `segment` at most that number of steps is in the graph at a time, and all but the
    last segment are computed twice. With `negated` the reply of FedSGD is the gradient itself, not minus it.

    The update is always measured from `start`, the model that was sent, even where a defence changes what came in. It
    is end minus start, which is what a receiver of the weights can compute: small steps on large weights are lost in
    rounding. With `summed` it is the sum of the steps, which is exact to the rounding of the steps themselves.
    """
    source = generator if generator is not None else torch.Generator(device="cpu")
    origin = entered(hooks, start, source)
    params = origin if keep_graph else each(torch.detach, origin)
    moved = subtract(origin, start) if summed else None  # not 0 where a defence changes what came in
    state = LocalState(params=params, velocity={}, buffers=dict(buffers), moved=moved)
    work = _Round(origin=origin, recipe=recipe, evaluate=evaluate, hooks=hooks, source=source, states=[None, None])
    if recipe.kind == "gradient":
        for batch in batches:  # fedsgd: one batch with all examples, and no step of the client itself
            with torch.enable_grad():
                gradient, buffers_after = work.gradient(state, batch, keep_graph)
                # What a client keeps to itself it must train itself: the server never steps these parameters.
                stepped = _step(params, gradient, recipe.learning_rate, None) if hooks.kept else params
                return _reply(gradient if negated else scaled(gradient, -1.0), stepped, buffers_after, hooks, source)
    if keep_graph and segment is not None:
        assert hooks is IDENTITY, "steps that are repeated must not draw"
        rest = list(batches)
        while len(rest) > segment:
            state, rest = _steps_twice(work, state, rest[:segment]), rest[segment:]
        batches = rest  # the last segment is differentiated first, so its graph is kept
    state = work.steps(state, batches, keep_graph)
    with torch.enable_grad():
        update = subtract(state.params, start) if state.moved is None else dict(state.moved)
        return _reply(update, state.params, state.buffers, hooks, source)


@dataclass(frozen=True, kw_only=True)
class _Round:
    """Everything that is the same in all steps of a round; `states` is the memory of a defence, which changes."""

    origin: Params  # the model after the incoming hook, to which fedprox pulls
    recipe: Recipe
    evaluate: Objective
    hooks: Hooks
    source: torch.Generator
    states: list[object]  # of the batch hook and of the gradients hook

    def gradient(
        self, state: LocalState, batch: Batch, keep_graph: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradient of one batch, through the hooks of a defence where it has any, and the buffers after it."""
        if self.hooks.batch is not None:
            examples = batch.x, batch.y
            (x, y), self.states[0] = mixed(self.hooks.batch, examples, self.states[0], self.source)
            batch = Batch(x=x, y=y, weight=batch.weight, active=batch.active)
        if self.hooks.gradients is not None:
            return self._through_examples(self.hooks.gradients, state, batch)
        leaves = {
            name: value if keep_graph and value.requires_grad else value.detach().requires_grad_()
            for name, value in state.params.items()
        }
        loss, fresh = self.evaluate(leaves, state.buffers, batch)
        gradient = torch.autograd.grad(loss, list(leaves.values()), create_graph=keep_graph, materialize_grads=True)
        return dict(zip(leaves, gradient, strict=True)), each(torch.detach, fresh)

    def _through_examples(
        self, hook: OnGradients, state: LocalState, batch: Batch
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The gradient of a step built from per-example gradients, which the hook of a defence changes."""

        def loss_of_one(inner: Params, x: Tensor, y: Tensor) -> Tensor:
            return self.evaluate(inner, state.buffers, Batch(x=x[None], y=y[None]))[0]

        single = torch.func.grad(loss_of_one)
        params = dict(state.params)
        weight = batch.x.new_ones(len(batch.x)) if batch.weight is None else batch.weight
        if len(batch.x):
            # [examples, *parameter] by name
            gradients = vmap(single, in_dims=(None, 0, 0), randomness="different")(params, batch.x, batch.y)
        else:  # a Poisson batch may be empty
            gradients = {name: value.new_zeros((0, *value.shape)) for name, value in params.items()}
        counted = {name: value * weight.reshape(-1, *[1] * (value.dim() - 1)) for name, value in gradients.items()}
        value = ExampleGradients(each=counted, divisor=weight.sum().clamp(min=1))
        value, self.states[1] = changed(hook, value, self.states[1], self.source)
        return value.combined(), dict(state.buffers)

    def steps(self, state: LocalState, batches: Iterable[Batch], keep_graph: bool) -> LocalState:
        """The state of the client after one step for each batch."""
        recipe = self.recipe
        with torch.enable_grad():
            for batch in batches:
                gradient, buffers = self.gradient(state, batch, keep_graph)
                if recipe.mu:  # the gradient of fedprox's mu / 2 |params - origin|^2
                    gradient = {
                        name: value + recipe.mu * (state.params[name] - self.origin[name])
                        for name, value in gradient.items()
                    }
                if recipe.momentum and state.velocity:
                    gradient = {
                        name: recipe.momentum * state.velocity[name] + value for name, value in gradient.items()
                    }
                step = partial(_step, gradient=gradient, rate=recipe.learning_rate, active=batch.active)
                state = LocalState(
                    params=step(state.params),
                    velocity=gradient if recipe.momentum else {},
                    buffers=buffers,
                    moved=None if state.moved is None else step(state.moved),
                )
        return state


def _steps_twice(work: _Round, state: LocalState, batches: Sequence[Batch]) -> LocalState:
    """The state after these steps without their graph: they are repeated when they are differentiated."""
    steps = len(batches)

    def run(tensors: Sequence[Tensor], keep_graph: bool) -> tuple[Tensor, ...]:
        given = iter(tensors)
        params = {name: next(given) for name in state.params}
        velocity = {name: next(given) for name in state.velocity}
        moved = None if state.moved is None else {name: next(given) for name in state.moved}
        x, y = ([next(given) for _ in range(steps)] for _ in range(2))
        repeated = [replace(batch, x=x[step], y=y[step]) for step, batch in enumerate(batches)]
        begin = LocalState(params=params, velocity=velocity, buffers=state.buffers, moved=moved)
        end = work.steps(begin, repeated, keep_graph)
        return *end.params.values(), *end.velocity.values(), *(end.moved or {}).values(), *end.buffers.values()

    inputs = [*(batch.x for batch in batches), *(batch.y for batch in batches)]
    carried = [*state.params.values(), *state.velocity.values(), *(state.moved or {}).values()]
    results = iter(checkpointed(run, [*carried, *inputs]))
    return LocalState(
        params={name: next(results) for name in state.params},
        velocity={name: next(results) for name in (state.params if work.recipe.momentum else ())},
        moved=None if state.moved is None else {name: next(results) for name in state.moved},
        buffers={name: next(results).detach() for name in state.buffers},
    )


def _step(params: Params, gradient: Params, rate: float, active: Tensor | None) -> dict[str, Tensor]:
    """Params - rate * gradient, where stacked clients without a step left stay where they are."""
    if active is None:  # an addition takes one operation less to differentiate than a subtraction
        return {name: torch.add(value, gradient[name], alpha=-rate) for name, value in params.items()}
    return {
        name: value - rate * active.reshape(-1, *[1] * (value.dim() - 1)) * gradient[name]
        for name, value in params.items()
    }


def _reply(
    update: dict[str, Tensor], params: Params, buffers: dict[str, Tensor], hooks: Hooks, generator: torch.Generator
) -> LocalResult:
    """The reply of a client; a parameter that it keeps to itself is sent as if it had not changed."""
    kept = {name: params[name] for name in (hooks.kept.params if hooks.kept else ())}
    for name in kept:
        update[name] = torch.zeros_like(update[name])
    return LocalResult(update=sent(hooks, update, generator), buffers=buffers, kept=kept)


# Gradient checkpointing: work that stores only its inputs, and is repeated when its derivative is needed

# Tensors in, tensors out; the second argument states whether the result must be differentiable.
Work = Callable[[Sequence[Tensor], bool], tuple[Tensor, ...]]


def checkpointed(work: Work, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of `work` on the tensors, with first-order gradients but without storing its graph."""
    results: tuple[Tensor, ...] = _Checkpoint.apply(work, *tensors)  # type: ignore[no-untyped-call]
    return results


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Do the work without a graph."""
        ctx.work = work
        ctx.save_for_backward(*tensors)
        results = tuple(result.detach() for result in work([tensor.detach() for tensor in tensors], False))
        ctx.mark_non_differentiable(*(result for result in results if not result.is_floating_point()))
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """Repeat the work with a graph, and differentiate through it."""
        wanted = ctx.needs_input_grad[1:]
        leaves = [saved.detach().requires_grad_(want) for saved, want in zip(ctx.saved_tensors, wanted, strict=True)]
        with torch.enable_grad():
            results = ctx.work(leaves, True)
        pairs = [(result, slope) for result, slope in zip(results, slopes, strict=True) if result.requires_grad]
        slopes_in = iter(
            torch.autograd.grad(
                [result for result, _ in pairs],
                [leaf for leaf, want in zip(leaves, wanted, strict=True) if want],
                [slope for _, slope in pairs],
                allow_unused=True,
            )
        )
        return None, *(next(slopes_in) if want else None for want in wanted)


# Networks of several clients side by side: parameters [clients, ...], inputs [clients, examples, ...]. Only plain
# stacks of known layers are handled; one batched matrix product then serves all clients.

# Layers without parameters that act on every entry separately, so that the extra dimension changes nothing.
ENTRYWISE = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.LeakyReLU, nn.GELU, nn.ELU, nn.SiLU, nn.Identity)

Layer = Callable[[Params, Tensor], Tensor]  # stacked parameters and [clients, examples, ...] in, the same shape out


def stacked_layers(model: nn.Module) -> list[Layer] | None:
    """The network layer by layer for stacked parameters; None unless it is a plain nn.Sequential of known layers.

    A user's own class may do anything in its forward, and shared or frozen parameters are not among the trainable ones
    by name: for all of these the answer is None, and clients are trained one at a time.
    """
    trainable = {name for name, value in model.named_parameters() if value.requires_grad}
    layers = list(_layers(model, "", trainable))
    known = [layer for layer in layers if layer is not None]
    return known if len(known) == len(layers) else None


def _layers(module: nn.Module, name: str, trainable: set[str]) -> Iterator[Layer | None]:
    """The layers of a module in order, None for one that is not known."""
    hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    if type(module) is nn.Sequential and not hooked:
        for child, inner in module._modules.items():  # named_children leaves out a layer that occurs twice
            yield from _layers(inner, f"{name}{child}.", trainable)
    elif type(module) is nn.Linear and not hooked:
        bias = None if module.bias is None else f"{name}bias"
        all_trainable = {f"{name}weight", bias} - {None} <= trainable
        yield partial(_linear, f"{name}weight", bias) if all_trainable else None
    elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1) and not hooked:
        yield _flatten
    else:
        yield partial(_entrywise, module) if type(module) in ENTRYWISE and not hooked else None


def _linear(weight: str, bias: str | None, params: Params, x: Tensor) -> Tensor:
    """A linear layer per client: x [clients, ..., features], weight [clients, outputs, features]."""
    rows, matrix = (
        x.flatten(1, -2),
        params[weight].transpose(1, 2),
    )  # [clients, rows, features], [.., features, outputs]
    output = torch.bmm(rows, matrix) if bias is None else torch.baddbmm(params[bias][:, None], rows, matrix)
    return output.reshape(*x.shape[:-1], output.shape[-1])


def _flatten(params: Params, x: Tensor) -> Tensor:
    return x.flatten(2)


def _entrywise(module: nn.Module, params: Params, x: Tensor) -> Tensor:
    if type(module) is nn.ReLU:
        return functional.relu(x)  # never in place: the input may be a leaf
    output: Tensor = module(x)
    return output


def stacked_objective(layers: Sequence[Layer], loss: str) -> Objective:
    """The sum over stacked clients of their mean losses: its gradient is the gradient of every client by itself."""
    measure = example_loss(loss)

    def evaluate(params: Params, buffers: Params, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        output = batch.x
        for layer in layers:
            output = layer(params, output)
        return mean_loss(measure(output, batch.y), batch.weight).sum(), dict(buffers)

    return evaluate


# A client alone, on all of its records: full-batch Adam, step size chosen by the training loss

ALMOST = 0.05  # share of the best decrease that a smaller step size may lack
PASSES = 50  # over all records, after which running statistics have converged


@dataclass(frozen=True, kw_only=True)
class AloneResult:
    """The result of training alone: the minimisation, its step size, and the running statistics."""

    outcome: Outcome
    rate: float
    buffers: dict[str, Tensor]


def train_alone(
    model: nn.Module,
    loss: str,
    records: Records,
    start: Params,
    buffers: Params,
    *,
    steps: int,
    rates: Sequence[float],
    generator: torch.Generator,
    betas: tuple[float, float] = (0.9, 0.999),
    report: Report = silent,
) -> AloneResult:
    """Train by Adam from `start` with the smallest of `rates` that does almost as well as the best.

    The step size falls to zero by a cosine. `generator` seeds dropout; the buffers are those of a model that has seen
    the records often enough for its running statistics to converge.
    """
    evaluate, batch = objective(model, loss), Batch(x=records.x, y=records.y)

    def of_params(params: dict[str, Tensor]) -> Tensor:
        return evaluate(params, buffers, batch)[0]

    with torch.random.fork_rng(devices=[]):  # dropout draws from the global generator: restore it afterwards
        torch.manual_seed(generator.initial_seed())
        rate = best_rate(of_params, start, steps, rates, betas)
        method = Adam(steps=steps, lr=rate, betas=betas, decay=Cosine())
        outcome = minimise(of_params, start, method, report=report, what="local optimum")
        return AloneResult(outcome=outcome, rate=rate, buffers=settled(evaluate, outcome.best, buffers, batch))


def best_rate(loss: Loss, start: Params, steps: int, rates: Sequence[float], betas: tuple[float, float]) -> float:
    """The smallest step size whose loss after a tenth of the steps is almost as low as with the best one."""
    if len(rates) == 1:
        return rates[0]
    short = [Adam(steps=max(1, steps // 10), lr=rate, betas=betas) for rate in sorted(rates)]
    tried = [minimise(loss, start, method) for method in short]
    least, first = min(outcome.best_loss for outcome in tried), tried[0].curve[0]
    near = [outcome.best_loss - least <= ALMOST * (first - least) for outcome in tried]
    return short[near.index(True)].lr if any(near) else short[0].lr


def settled(evaluate: Objective, params: Params, buffers: Params, batch: Batch) -> dict[str, Tensor]:
    """The running statistics of a model after many passes over these records."""
    statistics = dict(buffers)
    for _ in range(PASSES if statistics else 0):
        with torch.no_grad():
            statistics = each(torch.detach, evaluate(params, statistics, batch)[1])
    return statistics
