"""How well the gradient of a whole data set points along the updates seen, as a function of the guessed values.

With J_t [records * values, parameters] the gradients of every record under every value at the model of round t, and
p [records * values] the indicators, the data-set gradient is J_t' p / records. With d_t = -update_t / |update_t|:
    whole  = sum_t w_t J_t J_t'                    p' whole p  = sum_t w_t |gradient_t|^2
    across = sum_t w_t (J_t J_t' - J_t d_t d_t' J_t')   p' across p = sum_t w_t |gradient_t|^2 (1 - cos_t^2)
and their ratio is the mean of 1 - cos_t^2, in which a round counts by w_t |gradient_t|^2; w_t makes that one for all
rounds where every value is equally likely. The ratio is zero exactly where every round's cosine is 1 (or -1).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedxray.adversary.view import Observation, PublicAttributes, View
from fedxray.federation.local import Batch, Objective, objective
from fedxray.federation.stacked import stacked_layers
from fedxray.losses import ExampleLoss, example_loss
from fedxray.params import Params, dot, each, flatten, norm, scaled

SOFTENINGS = (1e-10, 1e-6, 1e-3, 1e-1, 10.0)  # ridge of the relaxed problem, as shares of the mean diagonal
ROUNDING = 1e-12  # differences of ratios, which lie between 0 and 1, that float64 cannot tell from none


@dataclass(frozen=True, kw_only=True)
class Products:
    """The inner products of all gradients over all rounds, both float64 [records * values, records * values]."""

    whole: Tensor
    across: Tensor
    records: int
    values: int


def relaxed(found: Products) -> list[Tensor]:
    """The value with the largest share where shares p may be any numbers that sum to one; one [records] per ridge.

    With p = 1/values + z this is least squares for z, in which the ridge prefers equally likely values.
    """
    size, free = found.records * found.values, found.values - 1
    contrasts = _contrasts(found)  # moves that keep the sum of shares
    split = found.across.reshape(found.records, found.values, found.records, found.values)
    half = torch.einsum("iajb,bd->iajd", split, contrasts)
    inner = torch.einsum("iajd,ac->icjd", half, contrasts).reshape(found.records * free, -1)
    pull = found.across.sum(1).reshape(found.records, found.values) / found.values
    slope = (pull @ contrasts).reshape(-1)
    scale = (inner.diagonal().sum() / size).clamp(min=torch.finfo(inner.dtype).tiny)
    starts = []
    for ridge in SOFTENINGS:
        softened = inner.clone()
        softened.diagonal().add_(ridge * scale)
        moved = torch.linalg.solve(softened, -slope).reshape(found.records, free) @ contrasts.T
        starts.append(moved.argmax(1))
    return starts


def _contrasts(found: Products) -> Tensor:
    """An orthonormal basis of the numbers that sum to zero, shape [values, values - 1]."""
    rows = torch.eye(found.values, dtype=found.across.dtype, device=found.across.device)
    basis: Tensor = torch.linalg.qr(rows[:, 1:] - 1.0 / found.values)[0]
    return basis


def descend(found: Products, chosen: Tensor, most: int) -> tuple[Tensor, list[float], Tensor]:
    """Change the one value that lowers the ratio most, at most so often; values, ratios, ratio per change.

    The values are [records], the ratios one per change and the start, the last [records, values].
    """
    chosen, curve = chosen.clone(), []
    across, whole = _pull(found.across, found, chosen), _pull(found.whole, found, chosen)
    while True:
        ratios, now = _ratios(found, chosen, across, whole)
        curve.append(float(now))
        best = int(ratios.argmin())
        if len(curve) > most or not float(ratios.flatten()[best]) < curve[-1] - ROUNDING:
            return chosen, curve, ratios
        record, value = best // found.values, best % found.values
        old = record * found.values + int(chosen[record])
        across = across + found.across[best] - found.across[old]
        whole = whole + found.whole[best] - found.whole[old]
        chosen[record] = value


def ratios_of_changes(found: Products, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The ratio if one record alone had another value [records, values], and as it is."""
    return _ratios(found, chosen, _pull(found.across, found, chosen), _pull(found.whole, found, chosen))


def _ratios(found: Products, chosen: Tensor, across: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """The same, where the products of both matrices with p are known."""
    part, part_now = _after_change(found.across, across, found, chosen)
    total, total_now = _after_change(found.whole, whole, found, chosen)
    tiny = torch.finfo(total.dtype).tiny
    return part / total.clamp(min=tiny), part_now / total_now.clamp(min=tiny)


def _pull(matrix: Tensor, found: Products, chosen: Tensor) -> Tensor:
    """Matrix times p, shape [records * values]."""
    first = torch.arange(found.records, device=chosen.device) * found.values
    return matrix[first + chosen].sum(0)


def _after_change(matrix: Tensor, pull: Tensor, found: Products, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """p' matrix p after each single change [records, values], and as it is."""
    first = torch.arange(found.records, device=chosen.device) * found.values
    place = first + chosen  # [records]
    every = first[:, None] + torch.arange(found.values, device=chosen.device)  # [records, values]
    now = pull[place].sum()
    diagonal = matrix.diagonal()
    bend = diagonal[every] + diagonal[place][:, None] - 2 * matrix[every, place[:, None]]
    return now + 2 * (pull[every] - pull[place][:, None]) + bend, now


# --- Inner products of the gradients of all records under all values, summed over rounds, in bounded
# memory.
#
# For a network of dense layers the gradient of one example at a layer is the outer product of what goes in,
# a, and of the slope of the loss at what comes out, e; so two gradients have the inner product (a_i .
# a_j)(e_i . e_j), and none of them is ever written out. Other networks have their gradients computed block
# by block.


ENTRIES_AT_ONCE = 8_000_000  # numbers of gradients held in one of the two blocks of a general network
ROWS_AT_ONCE = 512  # of the symmetric matrix, of which the part above its diagonal is computed

# Adds weight(total) * J J' to a matrix's upper blocks, total = |sum of all gradients|^2; gives J d and the weight.
Weigh = Callable[[Tensor], Tensor]
Adding = Callable[[Observation, Tensor, Tensor, Weigh], tuple[Tensor, Tensor]]


def products(
    model: nn.Module,
    loss: str,
    filled: Tensor,
    y: Tensor,
    rounds: Sequence[Observation],
    counts: Sequence[int] = (),
) -> Iterator[Products]:
    """Inner products over the first so many rounds, for each of the rising counts (or once, over all).

    The inputs are given under every value [records, values, ...], the targets [records].
    """
    records, values = int(filled.shape[0]), int(filled.shape[1])
    x, targets = filled.flatten(0, 1), y.repeat_interleave(values, dim=0)
    size = records * values
    whole = torch.zeros((size, size), dtype=torch.float64, device=x.device)
    add = adding(model, loss, x, targets)
    tiny = torch.finfo(torch.float64).tiny
    along: list[Tensor] = []
    wanted = list(counts) or [len(rounds)]
    for place, one in enumerate(rounds, start=1):
        vector, weight = add(one, _direction(one), whole, lambda total: size**2 / total.clamp(min=tiny))
        along.append(vector * weight.sqrt())
        if place in wanted:
            full, lines = _mirrored(whole), torch.stack(along)
            yield Products(whole=full, across=full - lines.T @ lines, records=records, values=values)


def adding(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """How the products of one round are added for this network: by layers where it is dense."""
    return general(model, loss, x, y) if stacked_layers(model) is None else dense(model, loss, x, y)


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """What goes into a dense layer and the slope of the loss at what comes out, for every example."""

    name: str  # with a dot, unless the network is this one layer
    into: Tensor  # [examples, inputs]
    slope: Tensor  # [examples, outputs]


def dense(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """By layers, in float64; the inner products of the inputs, which all rounds share, are computed once."""
    layers_at = _layers(model, loss, x.double(), y.double() if y.is_floating_point() else y)
    first = x.double() @ x.double().T

    def add(one: Observation, direction: Tensor, whole: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
        sizes = [value.numel() for value in one.start.values()]
        parts = dict(zip(one.start, direction.split(sizes), strict=True))
        layers, along = layers_at(one.start), torch.zeros_like(whole[0])
        weight = weigh(torch.stack([_square(layer, f"{layer.name}bias" in parts) for layer in layers]).sum())
        for place, layer in enumerate(layers):
            into, slope, bias = layer.into, layer.slope, parts.get(f"{layer.name}bias")
            turned = parts[f"{layer.name}weight"].reshape(slope.shape[1], -1).T
            along += (slope * (into @ turned + (0.0 if bias is None else bias))).sum(1)
            _add_layer(whole, into, slope * weight.sqrt(), bias is not None, None if place else first)
        return along, weight

    return add


def _layers(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Callable[[Params], list[_Layer]]:
    """Runs a copy of the network forwards and backwards and notes what its dense layers see."""
    network, measure = copy.deepcopy(model).double().eval(), example_loss(loss)
    seen: list[tuple[str, Tensor, Tensor]] = []

    def note(name: str, own: nn.Module, into: tuple[Tensor, ...], out: Tensor) -> None:
        seen.append((f"{name}." if name else "", into[0].detach(), out))

    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(partial(note, name))

    def layers(params: Params) -> list[_Layer]:
        seen.clear()
        with torch.enable_grad():
            leaves = each(lambda value: value.detach().double().requires_grad_(), params)
            total = measure(functional_call(network, leaves, (x,)), y).sum()
            slopes = torch.autograd.grad(total, [out for _, _, out in seen])
        return [
            _Layer(name=name, into=into, slope=slope)
            for (name, into, _), slope in zip(seen, slopes, strict=True)
        ]

    return layers


def _square(layer: _Layer, bias: bool) -> Tensor:
    """The squared length of the sum of all gradients of one layer."""
    total = (layer.slope.T @ layer.into).square().sum()
    return total + layer.slope.sum(0).square().sum() if bias else total


def _add_layer(whole: Tensor, into: Tensor, slope: Tensor, bias: bool, known: Tensor | None) -> None:
    """Add (a_i . a_j + 1)(e_i . e_j) to the upper blocks; a layer with one output needs one product only."""
    if slope.shape[1] == 1:
        rows = torch.cat([into, torch.ones_like(slope)], 1) if bias else into
        rows = rows * slope
        for block in _blocks(len(whole)):
            whole[block, block.start :].addmm_(rows[block], rows[block.start :].T)
        return
    for block in _blocks(len(whole)):
        right = slice(block.start, None)
        alike = known[block, right] if known is not None else into[block] @ into[right].T
        whole[block, right].addcmul_(alike + 1.0 if bias else alike, slope[block] @ slope[right].T)


def general(model: nn.Module, loss: str, x: Tensor, y: Tensor) -> Adding:
    """By whole gradients, two blocks of them at a time."""

    def gradients(one: Observation, place: slice) -> Tensor:
        return example_gradients(model, loss, dict(one.start), one.buffers, x[place], y[place])

    def add(one: Observation, direction: Tensor, whole: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
        blocks = list(_blocks(len(x), max(1, ENTRIES_AT_ONCE // len(direction))))
        along, inner, total = torch.zeros_like(whole[0]), torch.zeros_like(whole), torch.zeros_like(direction)
        for place, block in enumerate(blocks):
            held = gradients(one, block)
            along[block] = held @ direction
            total += held.sum(0)
            inner[block, block] = held @ held.T
            for other in blocks[place + 1 :]:
                inner[block, other] = held @ gradients(one, other).T
        weight = weigh(total.square().sum())
        whole.add_(inner * weight)
        return along, weight

    return add


def example_gradients(
    model: nn.Module, loss: str, params: Params, buffers: Params, x: Tensor, y: Tensor
) -> Tensor:
    """The gradient of each example's loss in evaluation mode, float64, shape [examples, parameters]."""
    still, measure = copy.deepcopy(model).eval(), example_loss(loss)

    def loss_of_one(inner: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        output = functional_call(still, ({**inner, **buffers},), (one[None],))
        return measure(output, target[None])[0]

    found = vmap(grad(loss_of_one), in_dims=(None, 0, 0))({n: v.detach() for n, v in params.items()}, x, y)
    return torch.cat([found[name].flatten(1) for name in params], dim=1).detach().double()


def _direction(seen: Observation) -> Tensor:
    """Minus the update, of length one, float64 [parameters]."""
    wanted = -flatten({name: seen.update[name] for name in seen.start}).double()
    direction: Tensor = wanted / wanted.norm()
    return direction


def _blocks(size: int, rows: int = ROWS_AT_ONCE) -> Iterator[slice]:
    return (slice(start, min(size, start + rows)) for start in range(0, size, rows))


def _mirrored(upper: Tensor) -> Tensor:
    """The symmetric matrix of which everything above the diagonal is given."""
    return upper.triu() + upper.triu(1).T


# --- Cosines of the gradient of a whole data set with the updates seen, round by round, as functions of the
# guessed codes.
#
# Only the sensitive columns change between guesses. So in a network that begins with a dense layer, all
# that the public columns add to it is computed once per round; of the gradient at that layer only its
# length and its inner product with the update are needed, which leaves two products with the public columns
# where there were six. Rounds are taken one by one, and their slopes are added up at once, so that memory
# does not grow with their number.


Cosine = Callable[[Tensor], Tensor]  # codes [records, positions] -> the cosine of one round, a scalar
MOST_HELD = 50_000_000  # numbers of what public columns add, over all rounds, that are kept


def cosines_of_rounds(view: View, records: PublicAttributes, rounds: Sequence[Observation]) -> list[Cosine]:
    """For each round, the cosine of the data-set gradient under given codes with minus the update."""
    positions = view.space.column(view.space.sensitive or "").positions
    head = dense_head(view.model)
    if head is None or records.x.ndim != 2:
        evaluate = objective(view.model, view.loss)
        return [_by_whole_gradient(evaluate, records, positions, one) for one in rounds]
    wide = head.module.out_features * len(records.x) * 2 * len(rounds)
    known = public_columns(records.x, positions, head.module.bias is not None)
    measure = example_loss(view.loss)
    return [
        _by_first_layer(head, measure, records.y, positions, known, one, wide <= MOST_HELD) for one in rounds
    ]


def cosines(codes: Tensor, rounds: Sequence[Cosine]) -> Tensor:
    """The cosine of each round without a graph, shape [rounds]."""
    return torch.stack([one(codes.detach()).detach() for one in rounds])


def distance(codes: Tensor, rounds: Sequence[Cosine]) -> Tensor:
    """The sum over rounds of 1 - cosine, a scalar with a slope where the codes want one."""
    if not codes.requires_grad:
        return (1 - cosines(codes, rounds)).sum()
    point = codes.detach().requires_grad_()
    value, slope = torch.zeros_like(point.detach()[0, 0]), torch.zeros_like(point)
    with torch.enable_grad():
        for one in rounds:
            gap = 1 - one(point)
            slope += torch.autograd.grad(gap, point)[0]
            value += gap.detach()
    return value + ((codes - codes.detach()) * slope).sum()  # adds nothing but the slope


def filled(x: Tensor, positions: tuple[int, ...], codes: Tensor) -> Tensor:
    """Records with an encoded value each [records, positions] written in, shape kept."""
    return x.index_copy(1, torch.tensor(positions, dtype=torch.int64, device=x.device), codes)


Layer = Callable[[Params, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Head:
    """The dense layer that a network begins with, its name, and the layers after it."""

    name: str
    module: nn.Linear
    rest: tuple[Layer, ...]


def dense_head(model: nn.Module) -> Head | None:
    """The first layer of a network of dense layers; None where it is no such network."""
    known = stacked_layers(model)
    leaves = [(name, part) for name, part in model.named_modules() if not list(part.children())]
    if known is None or len(known) != len(leaves):  # a layer that comes twice
        return None
    for place, (name, part) in enumerate(leaves):
        if isinstance(part, nn.Linear):
            rest = tuple(_layer(inner, module) for inner, module in leaves[place + 1 :])
            return Head(name=f"{name}." if name else "", module=part, rest=rest)
        if not isinstance(part, nn.Flatten | nn.Identity):
            return None
    return None


def _layer(name: str, module: nn.Module) -> Layer:
    """One layer as a function of named parameters."""
    if isinstance(module, nn.Linear):
        return lambda params, x: functional.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))
    if isinstance(module, nn.ReLU):
        return lambda params, x: functional.relu(x)  # never in place
    return lambda params, x: module(x)


@dataclass(frozen=True, kw_only=True)
class PublicColumns:
    """The public columns that are not zero throughout, and a column of ones for a bias."""

    places: Tensor  # [columns]
    rows: Tensor  # [records, columns and a one]
    turned: Tensor  # the same the other way round
    bias: bool

    def weights(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The weights [units, inputs] that these columns meet, and the bias."""
        found = weight[:, self.places].detach()
        return found if bias is None else torch.cat([found, bias.detach()[:, None]], 1)


def public_columns(x: Tensor, positions: tuple[int, ...], bias: bool) -> PublicColumns:
    """What all rounds share."""
    used = (x != 0).any(0)
    used[list(positions)] = False
    places = used.nonzero()[:, 0]
    rows = torch.cat([x[:, places], torch.ones_like(x[:, :1])], 1) if bias else x[:, places]
    return PublicColumns(places=places, rows=rows, turned=rows.T.contiguous(), bias=bias)


def _by_first_layer(
    head: Head,
    measure: ExampleLoss,
    y: Tensor,
    positions: tuple[int, ...],
    known: PublicColumns,
    seen: Observation,
    hold: bool,
) -> Cosine:
    """The cosine of one round where what the public columns add to the first layer is computed once."""
    weight, bias = f"{head.name}weight", f"{head.name}bias"
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
            for layer in head.rest:
                output = layer(leaves, output)
            loss = measure(output, y).mean()
            found = torch.autograd.grad(
                loss, [reached, *leaves.values()], create_graph=codes.requires_grad, materialize_grads=True
            )
            slope, others = found[0], dict(zip(leaves, found[1:], strict=True))
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
    """The cosine of one round of any network, in train mode as its client ran it."""
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
