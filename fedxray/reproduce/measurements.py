"""Measurements of papers that are no audits; apart from `aia` and `awa`, which describe them, as they need torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedxray.adversary import roles
from fedxray.adversary.view import Grants, View
from fedxray.attacks.attributes.from_model import with_value
from fedxray.attacks.base import Attack
from fedxray.attacks.evidence import model_params
from fedxray.attacks.local_model.linear import LocalModelLinear
from fedxray.audit.plan import make_plan
from fedxray.audit.run.dry_run import loss_on
from fedxray.audit.run.prepare import prepare
from fedxray.data.dataset import Column, Records, Space
from fedxray.errors import BadInput
from fedxray.federation.local import in_train_mode, train_alone
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, in_dtype
from fedxray.losses import losses, squared_error
from fedxray.metrics.scoring import RATES, STEPS
from fedxray.models import build
from fedxray.params import buffers_of, flatten, norm, parameters_of, subtract, unflatten
from fedxray.seeds import fork
from fedxray.theory import gradient

# The federation of two clients of Figure 2 (Diana et al. 2025), and the attacks on it

RECORDS, COLUMNS, ROUNDS = 2048, 10, 300
READ = tuple(range(0, 240, 20))  # twelve rounds: as many as there are weights, bias and a constant


def attack_toy(seed: int, batch: int) -> list[tuple[str, int, dict[str, float]]]:
    """Return (kind, client, scores): the accuracy of attributes and the relative distance to the client's optimum."""
    clients = toy_records()
    everyone = Records(torch.cat([own.x for own in clients]), torch.cat([own.y for own in clients]))
    results = []
    for dtype in ("float32", "float64"):
        transcript, _ = simulate(toy_federation(clients, seed, batch, dtype), seed=seed)
        for client, own in enumerate(clients):
            view = roles.server(transcript, client=client, rounds=READ)
            best = torch.linalg.lstsq(_design(own.x), own.y[:, None].double()).solution[:, 0]
            kinds = [f"inverse-{dtype}", f"least-squares-{dtype}"]
            for kind in [*kinds, "last-returned"] if dtype == "float32" else kinds:
                params = _model(view, kind)
                distance = float((flatten(params).double() - best).norm() / best.norm())
                scores = {"accuracy": _accuracy(view, params, everyone), "parameter_distance": distance}
                results.append((kind, client, scores))
    return results


def toy_records() -> tuple[Records, Records]:
    """Return both clients' records in float32, the same for every seed, as in the notebook."""
    draw = fork(42, "toy")
    x = torch.rand(RECORDS, COLUMNS, generator=draw, dtype=torch.float64, device="cpu")
    x[:, -1] = (x[:, -1] > 0.5).double()
    weight = torch.randn(COLUMNS, generator=draw, dtype=torch.float64, device="cpu")
    bias = torch.rand(1, generator=draw, dtype=torch.float64, device="cpu")
    y = x @ weight + bias + 0.1 * torch.randn(RECORDS, generator=draw, dtype=torch.float64, device="cpu")
    x, y, half = x.float(), y.float(), RECORDS // 2
    return Records(x[:half], y[:half]), Records(x[half:], y[half:])


def toy_federation(clients: tuple[Records, Records], seed: int, batch: int, dtype: str) -> Federation:
    """Return two clients with a linear model and batches in a fixed order."""
    sensitive = Column(
        name="s", kind="categorical", positions=(COLUMNS - 1,), categories=("0", "1"), codes=((0.0,), (1.0,))
    )
    space = Space(
        kind="table", shape=(COLUMNS,), target="regression", columns=(sensitive,), sensitive="s", target_name="y"
    )
    model = build("linear", space, generator=fork(seed, "model"))
    recipe = Recipe(loss="mse", learning_rate=0.05 * batch / RECORDS, epochs=1, batch_size=batch, shuffle="never")
    federation = Federation(space=space, clients=clients, model=model, recipe=recipe, rounds=ROUNDS, record=READ)
    return in_dtype(federation, dtype)


def _model(view: View, kind: str) -> dict[str, Tensor]:
    if kind == "last-returned":
        last = view.of_target()[-1]
        return {name: value + last.update[name] for name, value in last.start.items()}
    if kind.startswith("inverse"):
        return _by_inverse(view)
    return model_params(LocalModelLinear().run(view, generator=fork(0)))[0]


def _by_inverse(view: View) -> dict[str, Tensor]:
    """Return the notebook's solution: the square matrix of twelve messages, inverted in their number type."""
    messages = view.of_target()
    starts = torch.stack([flatten(message.start) for message in messages])  # (12, 11)
    changes = -torch.stack([flatten({name: message.update[name] for name in message.start}) for message in messages])
    square = torch.cat([changes, torch.ones_like(changes[:, :1])], 1)  # (12, 12)
    # start = change A + optimum for an affine map; the last row of the solution is the optimum
    return unflatten((torch.linalg.inv(square) @ starts)[-1], messages[0].start)


def _design(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], 1).double()


def _accuracy(view: View, params: dict[str, Tensor], records: Records) -> float:
    """Return the share of the records whose binary column is inferred correctly by the lower loss."""
    like = next(iter(params.values()))
    x, y, position = records.x.to(like.dtype), records.y.to(like.dtype), (COLUMNS - 1,)
    fits = [
        losses(view.model, params, {}, with_value(x, position, torch.full_like(x[0, :1], value)), y, squared_error)
        for value in (0.0, 1.0)
    ]
    return float(((fits[1] < fits[0]) == (x[:, -1] > 0.5)).double().mean())


# Distances between the clients' optimal models (Figure 5 of Driouich et al.)


def optimum_distances(plan: Mapping[str, Any], seed: int) -> list[list[float]]:
    """Return the distance of every client's optimal model (row) from every other's, relative to the latter's norm."""
    attack = [{"name": "last-returned"}]
    prepared = prepare(make_plan({"format": 1, "name": "distances", "attack": attack, **plan}, Path()), "none", seed)
    federation = prepared.federation
    model, start = federation.model, parameters_of(federation.model)
    optima = [
        train_alone(
            model,
            federation.recipe.loss,
            records,
            start,
            buffers_of(model),
            steps=STEPS,
            rates=RATES,
            generator=fork(seed, "local optimum", client),
        ).outcome.best
        for client, records in enumerate(federation.clients)
    ]
    return [[float(norm(subtract(left, right)) / norm(right)) for right in optima] for left in optima]


# Distances between the updates of true images and of images with a little noise: the landscape a match descends on
# (`awa-landscape`, Song et al. 2023)


def landscape_federation(plan: Mapping[str, Any], seed: int) -> Federation:
    """Return the federation of a plan in plain values."""
    return prepare(make_plan({"format": 1, "name": "awa-landscape", **plan}, Path()), "none", seed).federation


def landscape_distances(federation: Federation, client: int, seed: int, noises: Sequence[float]) -> dict[float, float]:
    """Return the relative squared distance of the noisy images' gradient from the true one, by size of noise."""
    space, records = federation.space, federation.clients[client]
    pixels = space.to_pixels(records.x)  # (images, channels, height, width) in 0..1
    source = fork(seed, "landscape", client)
    # one direction for all sizes of noise, drawn on the CPU so that devices agree
    direction = torch.randn(pixels.shape, generator=source, device="cpu").to(pixels)
    near = [space.from_pixels((pixels + noise * direction).clamp(0, 1)) for noise in noises]
    return dict(zip(noises, relative_distances(federation, records, near), strict=True))


def relative_distances(federation: Federation, records: Records, near: Sequence[Tensor]) -> list[float]:
    """Return the squared distance of the gradient on other inputs from that on the records, relative to the latter."""
    network = in_train_mode(federation.model)
    start = parameters_of(network)

    def gradient_of(x: Tensor) -> dict[str, Tensor]:
        return gradient(partial(loss_on, network, federation.recipe.loss, replace(records, x=x)), start)

    true = gradient_of(records.x)
    return [float(norm(subtract(gradient_of(x), true)) / norm(true)) ** 2 for x in near]


PAIR_MOVES = ("together", "apart", "mean", "mean-together", "mean-apart")


def pair_of(labels: Tensor, *, alike: bool) -> tuple[int, int]:
    """Return the indices of the first two records of one class, or of two classes."""
    found = [
        (first, second)
        for second in range(len(labels))
        for first in range(second)
        if bool(labels[first] == labels[second]) == alike
    ]
    if not found:
        expected, remedy = "one class" if alike else "two classes", "Give every client more images."
        raise BadInput("limit", expected=f"two images of {expected}", got="none", remedy=remedy)
    return found[0]


def pair_distances(federation: Federation, client: int, seed: int, noise: float, *, alike: bool) -> dict[str, float]:
    """Return by how much the gradient of two images changes if they are moved, or replaced by their mean.

    Both are moved by one drawn direction, together or apart, from the images and from their mean; all distances are
    squared and relative to the gradient of the images.
    """
    space, records = federation.space, federation.clients[client]
    pair = records.take(torch.tensor(pair_of(records.y, alike=alike), device=records.y.device))
    pixels = space.to_pixels(pair.x)  # (2, channels, height, width) in 0..1
    mean = pixels.mean(0, keepdim=True).expand_as(pixels)
    draw = torch.randn(pixels.shape[1:], generator=fork(seed, "pairs", client), device="cpu")
    step = noise * draw.to(pixels)
    together, apart = torch.stack([step, step]), torch.stack([step, -step])
    values = relative_distances(
        federation, pair, [space.from_pixels(x) for x in (pixels + together, pixels + apart, mean)]
    )
    at_mean = replace(pair, x=space.from_pixels(mean))
    values += relative_distances(federation, at_mean, [space.from_pixels(x) for x in (mean + together, mean + apart)])
    return dict(zip(PAIR_MOVES, values, strict=True))


def pair_attacked(
    federation: Federation, client: int, seed: int, attack: Attack, *, alike: bool
) -> tuple[Tensor, Tensor]:
    """Return the pixels of two images of a client and those an attack reconstructs from their update, in their order.

    The two images are all that a client trains on; the server knows their labels. Both are [2, c, h, w].
    """
    records = federation.clients[client]
    pair = records.take(torch.tensor(pair_of(records.y, alike=alike), device=records.y.device))
    transcript, _ = simulate(replace(federation, clients=(pair,), holdout=()), seed=seed)
    names = ("recipe", "examples", "labels")
    grants = Grants(names=names, recipe=federation.recipe, examples=len(pair), labels=pair.y)
    evidence = attack.run(roles.server(transcript, client=0, grants=grants), generator=fork(seed, "pairs", client))
    true, guess = (federation.space.to_pixels(x) for x in (pair.x, evidence.tensors["inputs"]))
    swapped = guess.flip(0)
    return true, swapped if float((swapped - true).square().sum()) < float((guess - true).square().sum()) else guess


def pair_correlations(true: Tensor, guess: Tensor) -> dict[str, float]:
    """Return how the sum and the difference of two guessed images [2, ...] correlate with those of the true ones."""
    both = torch.stack([true, guess]).flatten(2)  # (true and guess, image, pixels)
    parts = {"sum": both[:, 0] + both[:, 1], "difference": both[:, 0] - both[:, 1]}
    return {name: float(torch.corrcoef(rows)[0, 1]) for name, rows in parts.items()}
