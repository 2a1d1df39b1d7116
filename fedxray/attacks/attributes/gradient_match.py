"""How well the gradient of a whole data set points along the observed updates, as a function of the guessed values.

With J_t [records * values, parameters] the gradients of every record under every value at the model of round t, and
p [records * values] the indicators, the data-set gradient is J_t' p / records. With d_t = -update_t / |update_t|:
    whole  = sum_t w_t J_t J_t'                    p' whole p  = sum_t w_t |gradient_t|^2
    across = sum_t w_t (J_t J_t' - J_t d_t d_t' J_t')   p' across p = sum_t w_t |gradient_t|^2 (1 - cos_t^2)
and their ratio is the mean of 1 - cos_t^2, in which a round has weight w_t |gradient_t|^2; w_t makes that one for all
rounds where every value is equally likely. The ratio is zero exactly where every round's cosine is 1 (or -1).

Inner products of gradients need bounded memory: for a network of dense layers the gradient of one example at a layer is
the outer product of the layer's input a and the gradient e of the loss with respect to its output; so two gradients
have the inner product (a_i . a_j)(e_i . e_j), and none of them is ever formed. Other networks have their gradients
computed block by block.

Cosines by round, as functions of the guessed codes: only the sensitive columns change between guesses. So in a network
that begins with a dense layer, the contribution of the public columns is computed once per round; of the gradient at
that layer only its norm and its inner product with the update are needed, which leaves two products with the public
columns instead of six. Rounds are processed one by one, and their gradients are summed at once, so that memory does not
grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.attacks.record_gradients import DenseLayer, example_gradients, layers_of
from fedxray.federation.local import Batch, Objective, objective, stacked_layers
from fedxray.losses import ExampleLoss, example_loss
from fedxray.params import Params, dot, flatten, norm, scaled

SOFTENINGS = (1e-10, 1e-6, 1e-3, 1e-1, 10.0)  # ridges of the relaxed problem, relative to the mean diagonal
ROUNDING = 1e-12  # differences of ratios (between 0 and 1) that are below float64 rounding


@dataclass(frozen=True, kw_only=True)
class Products:
    """The inner products of all gradients over all rounds, both float64 [records * values, records * values]."""

    whole: Tensor
    across: Tensor
    records: int
    values: int


def relaxed(inner: Products) -> list[Tensor]:
    """Return the values [records] with the largest shares, where shares p are any numbers that sum to one; per ridge.

    With p = 1/values + z this is least squares for z, in which the ridge favours equally likely values.
    """
    size, free = inner.records * inner.values, inner.values - 1
    # Directions that keep the sum of shares: an orthonormal basis of the vectors that sum to zero [values, values - 1].
    rows = torch.eye(inner.values, dtype=inner.across.dtype, device=inner.across.device)
    contrasts = torch.linalg.qr(rows[:, 1:] - 1.0 / inner.values)[0]
    split = inner.across.reshape(inner.records, inner.values, inner.records, inner.values)
    half = torch.einsum("iajb,bd->iajd", split, contrasts)
    projected = torch.einsum("iajd,ac->icjd", half, contrasts).reshape(inner.records * free, -1)
    pull = inner.across.sum(1).reshape(inner.records, inner.values) / inner.values
    slope = (pull @ contrasts).reshape(-1)
    scale = (projected.diagonal().sum() / size).clamp(min=torch.finfo(projected.dtype).tiny)
    starts = []
    for ridge in SOFTENINGS:
        softened = projected.clone()
        softened.diagonal().add_(ridge * scale)
        moved = torch.linalg.solve(softened, -slope).reshape(inner.records, free) @ contrasts.T
        starts.append(moved.argmax(1))
    return starts


def descend(inner: Products, chosen: Tensor, most: int) -> tuple[Tensor, list[float], Tensor]:
    """Repeatedly change the single value that lowers the ratio most, at most `most` times.

    Returns the values [records], the ratio at the start and after each change, and the ratio of every further single
    change [records, values].
    """
    chosen, curve = chosen.clone(), []
    across, whole = pull_of(inner.across, inner, chosen), pull_of(inner.whole, inner, chosen)
    while True:
        ratios, now = ratios_of_changes(inner, chosen, across, whole)
        curve.append(float(now))
        best = int(ratios.argmin())
        if len(curve) > most or not float(ratios.flatten()[best]) < curve[-1] - ROUNDING:
            return chosen, curve, ratios
        record, value = best // inner.values, best % inner.values
        old = record * inner.values + int(chosen[record])
        across = across + inner.across[best] - inner.across[old]
        whole = whole + inner.whole[best] - inner.whole[old]
        chosen[record] = value


def ratios_of_changes(inner: Products, chosen: Tensor, across: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ratio after each single change and without any, given the products of both matrices with p."""
    part, part_now = _after_change(inner.across, across, inner, chosen)
    total, total_now = _after_change(inner.whole, whole, inner, chosen)
    tiny = torch.finfo(total.dtype).tiny
    return part / total.clamp(min=tiny), part_now / total_now.clamp(min=tiny)


def pull_of(matrix: Tensor, inner: Products, chosen: Tensor) -> Tensor:
    """Return matrix times p [records * values]."""
    first = torch.arange(inner.records, device=chosen.device) * inner.values
    return matrix[first + chosen].sum(0)


def _after_change(matrix: Tensor, pull: Tensor, inner: Products, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return p' matrix p after each single change [records, values], and without any."""
    first = torch.arange(inner.records, device=chosen.device) * inner.values
    place = first + chosen  # [records]
    every = first[:, None] + torch.arange(inner.values, device=chosen.device)  # [records, values]
    now = pull[place].sum()
    diagonal = matrix.diagonal()
    bend = diagonal[every] + diagonal[place][:, None] - 2 * matrix[every, place[:, None]]
    return now + 2 * (pull[every] - pull[place][:, None]) + bend, now


# Inner products of the gradients of all records under all values, summed over rounds

ENTRIES_AT_ONCE = 8_000_000  # entries of gradients in one of the two blocks of a general network
ROWS_AT_ONCE = 512  # of the symmetric matrix, of which the part above its diagonal is computed

# Adds weight(total) * J J' to a matrix's upper blocks, total = |sum of all gradients|^2; returns J d and the weight.
Weigh = Callable[[Tensor], Tensor]
Adding = Callable[[Observation, Tensor, Tensor, Weigh], tuple[Tensor, Tensor]]


def products(
    model: nn.Module, loss: str, filled: Tensor, y: Tensor, rounds: Sequence[Observation], counts: Sequence[int] = ()
) -> Iterator[Products]:
    """Yield inner products over the first rounds, for each of the increasing counts (or once, over all).

    `filled` are the inputs under every value [records, values, ...], `y` the targets [records].
    """
    records, values = int(filled.shape[0]), int(filled.shape[1])
    x, targets = filled.flatten(0, 1), y.repeat_interleave(values, dim=0)
    size = records * values
    whole = torch.zeros((size, size), dtype=torch.float64, device=x.device)
    add = adding(model, loss, x, targets)
    tiny = torch.finfo(torch.float64).tiny
    along: list[Tensor] = []
    wanted = list(counts) or [len(rounds)]
    for place, seen in enumerate(rounds, start=1):
        vector, weight = add(seen, _direction(seen), whole, lambda total: size**2 / total.clamp(min=tiny))
        along.append(vector * weight.sqrt())
        if place in wanted:
            full, lines = whole.triu() + whole.triu(1).T, torch.stack(along)  # only upper blocks were added
            yield Products(whole=full, across=full - lines.T @ lines, records=records, values=values)


def adding(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """Return how the products of one round are added for this network: by layers where it is dense."""
    return general(model, loss, x, y) if stacked_layers(model) is None else dense(model, loss, x, y)


def dense(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """Add products by layers, in float64; the inner products of the inputs, which all rounds share, come first."""
    layers_at = layers_of(model, loss, x.double(), y.double() if y.is_floating_point() else y)
    first = x.double() @ x.double().T

    def add(seen: Observation, direction: Tensor, whole: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
        sizes = [value.numel() for value in seen.start.values()]
        parts = dict(zip(seen.start, direction.split(sizes), strict=True))
        layers, along = layers_at(seen.start), torch.zeros_like(whole[0])
        weight = weigh(torch.stack([_square(layer, f"{layer.name}bias" in parts) for layer in layers]).sum())
        for place, layer in enumerate(layers):
            into, slope, bias = layer.into, layer.slope, parts.get(f"{layer.name}bias")
            turned = parts[f"{layer.name}weight"].reshape(slope.shape[1], -1).T
            along += (slope * (into @ turned + (0.0 if bias is None else bias))).sum(1)
            _add_layer(whole, into, slope * weight.sqrt(), bias is not None, None if place else first)
        return along, weight

    return add


def _square(layer: DenseLayer, bias: bool) -> Tensor:
    """Return the squared norm of the sum of all gradients of one layer."""
    total = (layer.slope.T @ layer.into).square().sum()
    return total + layer.slope.sum(0).square().sum() if bias else total


def _add_layer(whole: Tensor, into: Tensor, slope: Tensor, bias: bool, known: Tensor | None) -> None:
    """Add (a_i . a_j + 1)(e_i . e_j) to the upper blocks; a layer with one output needs only one product.

    `known` are the inner products of the inputs [examples, examples], where they were computed before.
    """
    if slope.shape[1] == 1:
        rows = torch.cat([into, torch.ones_like(slope)], 1) if bias else into
        rows = rows * slope
        for block in _blocks(len(whole)):
            whole[block, block.start :].addmm_(rows[block], rows[block.start :].T)
        return
    for block in _blocks(len(whole)):
        right = slice(block.start, None)
        inputs = known[block, right] if known is not None else into[block] @ into[right].T
        whole[block, right].addcmul_(inputs + 1.0 if bias else inputs, slope[block] @ slope[right].T)


def general(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """Add products of whole gradients, two blocks of them at a time."""

    def gradients(seen: Observation, rows: slice) -> Tensor:
        return example_gradients(model, loss, dict(seen.start), seen.buffers, x[rows], y[rows])

    def add(seen: Observation, direction: Tensor, whole: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
        blocks = list(_blocks(len(x), max(1, ENTRIES_AT_ONCE // len(direction))))
        along, inner, total = torch.zeros_like(whole[0]), torch.zeros_like(whole), torch.zeros_like(direction)
        for place, block in enumerate(blocks):
            held = gradients(seen, block)
            along[block] = held @ direction
            total += held.sum(0)
            inner[block, block] = held @ held.T
            for later in blocks[place + 1 :]:
                inner[block, later] = held @ gradients(seen, later).T
        weight = weigh(total.square().sum())
        whole.add_(inner * weight)
        return along, weight

    return add


def _direction(seen: Observation) -> Tensor:
    """Return minus the update with norm one, float64 [parameters]."""
    wanted = -flatten({name: seen.update[name] for name in seen.start}).double()
    direction: Tensor = wanted / wanted.norm()
    return direction


def _blocks(size: int, rows: int = ROWS_AT_ONCE) -> Iterator[slice]:
    return (slice(start, min(size, start + rows)) for start in range(0, size, rows))


# Cosines of the data-set gradient with the updates, round by round

Cosine = Callable[[Tensor], Tensor]  # codes [records, positions] -> the cosine of one round, a scalar
MOST_HELD = 50_000_000  # entries of the public columns' contributions, over all rounds, that are stored


def cosines_of_rounds(view: View, records: PublicAttributes, rounds: Sequence[Observation]) -> list[Cosine]:
    """Return for each round the cosine of the data-set gradient with minus the update, as a function of the codes."""
    positions = view.space.column(view.space.sensitive or "").positions
    first = dense_head(view.model)
    if first is None or records.x.ndim != 2:
        evaluate = objective(view.model, view.loss)
        return [_by_whole_gradient(evaluate, records, positions, seen) for seen in rounds]
    entries = first.module.out_features * len(records.x) * 2 * len(rounds)
    known = public_columns(records.x, positions, first.module.bias is not None)
    measure = example_loss(view.loss)
    return [_by_first_layer(first, measure, records.y, positions, known, seen, entries <= MOST_HELD) for seen in rounds]


def cosines(codes: Tensor, rounds: Sequence[Cosine]) -> Tensor:
    """Return the cosine of each round without a graph [rounds]."""
    return torch.stack([cosine(codes.detach()).detach() for cosine in rounds])


def distance(codes: Tensor, rounds: Sequence[Cosine]) -> Tensor:
    """Return the sum over rounds of 1 - cosine; scalar, differentiable in the codes."""
    if not codes.requires_grad:
        return (1 - cosines(codes, rounds)).sum()
    point = codes.detach().requires_grad_()
    value, slope = torch.zeros_like(point.detach()[0, 0]), torch.zeros_like(point)
    with torch.enable_grad():
        for cosine in rounds:
            gap = 1 - cosine(point)
            slope += torch.autograd.grad(gap, point)[0]
            value += gap.detach()
    return value + ((codes - codes.detach()) * slope).sum()  # adds only the gradient


def filled(x: Tensor, positions: tuple[int, ...], codes: Tensor) -> Tensor:
    """Return records with codes [records, positions] written into these positions, shape kept."""
    return x.index_copy(1, torch.tensor(positions, dtype=torch.int64, device=x.device), codes)


Layer = Callable[[Params, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """The dense layer that a network begins with, its name, and the layers after it."""

    name: str
    module: nn.Linear
    rest: tuple[Layer, ...]


def dense_head(model: nn.Module) -> FirstLayer | None:
    """Return the first layer of a network of dense layers; None for other networks."""
    known = stacked_layers(model)
    leaves = [(name, part) for name, part in model.named_modules() if not list(part.children())]
    if known is None or len(known) != len(leaves):  # a layer that occurs twice
        return None
    for place, (name, part) in enumerate(leaves):
        if isinstance(part, nn.Linear):
            rest = tuple(_layer(inner, module) for inner, module in leaves[place + 1 :])
            return FirstLayer(name=f"{name}." if name else "", module=part, rest=rest)
        if not isinstance(part, nn.Flatten | nn.Identity):
            return None
    return None


def _layer(name: str, module: nn.Module) -> Layer:
    """Return one layer as a function of named parameters."""
    if isinstance(module, nn.Linear):
        return lambda params, x: functional.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))
    if isinstance(module, nn.ReLU):
        return lambda params, x: functional.relu(x)  # never in place
    return lambda params, x: module(x)


@dataclass(frozen=True, kw_only=True)
class PublicColumns:
    """The public columns that are not all zero, and a column of ones for a bias."""

    places: Tensor  # [columns]
    rows: Tensor  # [records, columns (+ 1)]
    turned: Tensor  # [columns (+ 1), records], contiguous

    def weights(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the weights [units, columns (+ 1)] of these columns, with the bias."""
        chosen = weight[:, self.places].detach()
        return chosen if bias is None else torch.cat([chosen, bias.detach()[:, None]], 1)


def public_columns(x: Tensor, positions: tuple[int, ...], bias: bool) -> PublicColumns:
    """Return the public columns, which all rounds share."""
    used = (x != 0).any(0)
    used[list(positions)] = False
    places = used.nonzero()[:, 0]
    rows = torch.cat([x[:, places], torch.ones_like(x[:, :1])], 1) if bias else x[:, places]
    return PublicColumns(places=places, rows=rows, turned=rows.T.contiguous())


def _by_first_layer(
    first: FirstLayer,
    measure: ExampleLoss,
    y: Tensor,
    positions: tuple[int, ...],
    known: PublicColumns,
    seen: Observation,
    hold: bool,
) -> Cosine:
    """Return the cosine of one round, with the public columns' contribution to the first layer computed once."""
    weight, bias = f"{first.name}weight", f"{first.name}bias"
    wanted = scaled(seen.update, -1.0)
    length = norm(wanted)
    inner = {name: value.detach() for name, value in seen.start.items() if name not in (weight, bias)}

    def added(params: Params) -> Tensor:
        return known.rows @ known.weights(params[weight], params.get(bias)).T  # [records, units]

    kept = (added(seen.start), added(wanted)) if hold else None
    places = list(positions)
    own, aim = (params[weight][:, places].T.detach().contiguous() for params in (seen.start, wanted))

    def cosine(codes: Tensor) -> Tensor:
        before, along = kept or (added(seen.start), added(wanted))
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in inner.items()}
            reached = torch.addmm(before, codes, own)
            reached = reached if reached.requires_grad else reached.requires_grad_()
            output = reached
            for layer in first.rest:
                output = layer(leaves, output)
            loss = measure(output, y).mean()
            slopes = torch.autograd.grad(
                loss, [reached, *leaves.values()], create_graph=codes.requires_grad, materialize_grads=True
            )
            slope, others = slopes[0], dict(zip(leaves, slopes[1:], strict=True))
            at_codes, at_public = codes.T @ slope, known.turned @ slope
            inside = _dot(slope, along) + _dot(at_codes, aim)
            square = _dot(at_public, at_public) + _dot(at_codes, at_codes)
            for name, value in others.items():
                inside, square = inside + _dot(value, wanted[name]), square + _dot(value, value)
            return inside / (square.clamp(min=torch.finfo(square.dtype).tiny).sqrt() * length)

    return cosine


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return torch.dot(left.reshape(-1), right.reshape(-1))


def _by_whole_gradient(
    evaluate: Objective, records: PublicAttributes, positions: tuple[int, ...], seen: Observation
) -> Cosine:
    """Return the cosine of one round for any network, in training mode as on the client."""
    wanted = scaled(seen.update, -1.0)

    def cosine(codes: Tensor) -> Tensor:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in seen.start.items()}
            batch = Batch(x=filled(records.x, positions, codes), y=records.y)
            loss, _ = evaluate(leaves, seen.buffers, batch)
            slopes = torch.autograd.grad(
                loss, list(leaves.values()), create_graph=codes.requires_grad, materialize_grads=True
            )
            gradient = dict(zip(leaves, slopes, strict=True))
            length = dot(gradient, gradient).clamp(min=torch.finfo(loss.dtype).tiny).sqrt()
            return dot(gradient, wanted) / (length * norm(wanted))

    return cosine
