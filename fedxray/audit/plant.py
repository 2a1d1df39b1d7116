"""Planted leaks: the plan's own federation, undefended, with records whose leak every attack of a kind should see.

Network, recipe, rounds and seats stay those of the plan; only the records change, and how many clients there are.
Without messages nothing of what is planted can be guessed: public records do not show it.

- attributes: the sensitive value is drawn at random, and the target of the clients' records tells it.
- membership: a few distinct records with random targets, repeated; the held-out ones are drawn alike.
- sources: every client has a target of its own.
- labels: few examples, three quarters of them of the class that is rarest in public.
- images, rows: one record per client (four where BatchNorm needs company), unlike the public ones.
- class-images: all images of a class are one picture that no public image resembles.
- model: every client has a rule of its own by which targets follow from inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedxray.audit.cases import ABOUT_WHOLE_SUMS, SUMS, Case, Run
from fedxray.audit.plan import Plan
from fedxray.audit.prepare import Prepared, prepare
from fedxray.data.records import Records
from fedxray.data.space import Column, Space
from fedxray.defences.base import NoDefence
from fedxray.federation.round_loop import Federation
from fedxray.models.inspect import has_batch_norm
from fedxray.seeds import fork, permutation, uniform_like

TARGETS = 6  # planted clients that are attacked
CANARIES = 4  # distinct members
FEW = 8  # examples whose labels are asked for
COMPANY = 4  # records that BatchNorm is given
WAVES = 3  # the finest detail of a planted picture
GOLDEN = (math.sqrt(5) - 1) / 2
FAR = 1.5  # standard deviations that a planted target lies off the mean
WRONG = 0.1  # share of planted classes that follow no rule, so that a client's optimum is finite

Draws = torch.Generator
Change = Callable[[Federation, Records, int, Draws], Records]


def prepare_for(plan: Plan, item: Run | Case) -> Prepared:
    """The federation of a run: that of the plan, or one with a planted leak."""
    prepared = prepare(plan, item.defence, item.seed)
    if item.plant is None:
        return prepared
    clients = planted_clients(plan, item.plant, prepared.federation.space)
    plain = prepared.federation
    if prepared.recorded is not None and not isinstance(plain.record, str):
        # As many rounds as the recording holds: their numbers are whatever a server wrote.
        plain = replace(plain, rounds=len(plain.record), record="all")
    federation = plant(plain, item.plant, clients=clients, seed=item.seed)
    names = tuple(f"planted {client}" for client in range(clients))
    return replace(
        prepared,
        federation=federation,
        split=replace(prepared.split, names=names, dropped=0),
        recorded=None,
    )


def planted_clients(plan: Plan, kind: str, space: Space) -> int:
    """How many clients a planted federation has: as many as the check needs, whatever the plan has.

    A client's records may stand for several, each planted anew. Where only sums are seen, more clients would make the
    case harder than the plan's own, and sources are told apart by their class.
    """
    seats = [seat for attack in plan.attacks for seat in attack.seats]
    enough = max([TARGETS + len(set(seats)), *(seat + 1 for seat in seats)])
    summed = any(part.role in (SUMS if kind in ABOUT_WHOLE_SUMS else SUMS[1:]) for part in plan.attacks)
    if plan.federation.secure_aggregation or summed:
        enough = min(enough, max(plan.clients, 2))
    if kind == "sources" and space.target == "classification":
        enough = min(enough, max(2, space.outputs))
    return enough


def plant(federation: Federation, kind: str, *, clients: int, seed: int) -> Federation:
    """The federation, undefended, with records whose leak is of this kind."""
    change, draws, public = CHANGES[kind], fork(seed, "plant", kind), federation.public
    plain = replace(
        federation,
        clients=_as_many(federation.clients, clients),
        holdout=_as_many(federation.holdout, clients),
        participation=1.0,
        defence=NoDefence(),
    )

    def made(of: tuple[Records, ...], name: str) -> tuple[Records, ...]:
        return tuple(
            change(plain, one, client, fork(draws, name, client)) if len(one) else one
            for client, one in enumerate(of)
        )

    return replace(
        plain,
        clients=tuple(_cut(plain, one, kind) for one in made(plain.clients, "train")),
        holdout=made(plain.holdout, "holdout") if kind in HELD_OUT_TOO else plain.holdout,
        public=_blind(plain, public, draws) if kind == "attributes" and public is not None else public,
    )


def _as_many(parts: tuple[Records, ...], clients: int) -> tuple[Records, ...]:
    return tuple(parts[client % len(parts)] for client in range(clients)) if parts else ()


def _cut(federation: Federation, records: Records, kind: str) -> Records:
    """No more examples than make the case easy; never a batch that BatchNorm cannot take."""
    count = len(records)
    if kind in ("images", "rows"):
        count = _whole(federation, COMPANY) if has_batch_norm(federation.model) else 1
    if kind == "labels":
        count = _whole(federation, FEW)
    records = records.take(torch.arange(min(count, len(records)), device=records.x.device))
    if kind != "membership":
        return records
    again = torch.arange(len(records), device=records.x.device) % min(CANARIES, len(records))
    return records.take(again)


def _whole(federation: Federation, most: int) -> int:
    return most - most % federation.recipe.batch_length(most)


def _blind(federation: Federation, public: Records, draws: Draws) -> Records:
    """Public records whose sensitive value has nothing to do with the target, not even by chance.

    From the least target to the largest, categories take turns, and numbers jump by the golden section of their range.
    """
    x, column = public.x.clone(), _sensitive(federation.space)
    shuffled = permutation(len(x), fork(draws, "public")).to(x.device)  # equal targets in any order
    rank = torch.empty_like(shuffled)
    rank[shuffled[public.y[shuffled].argsort(stable=True)]] = torch.arange(len(x), device=x.device)
    if column.kind == "continuous":
        rank = ((rank * GOLDEN) % 1.0).argsort().argsort()
    _write_secret(x, column, rank)
    return Records(x, public.y)


def _attributes(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    x, column = records.x.clone(), _sensitive(federation.space)
    level = _write_secret(x, column, permutation(len(x), draws).to(x.device))
    classes = federation.space.outputs
    if federation.space.target == "classification":
        values = len(column.codes) or classes
        told = (level * (values - 1)).round().long() % classes
        return Records(x, told.to(records.y.dtype))
    return Records(x, _off_the_mean(federation, records, 2 * level - 1))


def _write_secret(x: Tensor, column: Column, order: Tensor) -> Tensor:
    """Write sensitive values, evenly over categories or range, in this order; how far up each is, 0..1 [records]."""
    if column.kind == "continuous":
        level = order.to(x.dtype) / max(len(x) - 1, 1)
        x[:, list(column.positions)] = (column.low + (column.high - column.low) * level)[:, None]
        return level
    codes = column.candidates(x)
    category = order % len(codes)
    x[:, list(column.positions)] = codes[category]
    return category.to(x.dtype) / max(len(codes) - 1, 1)


def _sensitive(space: Space) -> Column:
    return space.column(space.sensitive or "")


def _membership(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    return Records(records.x, _random_targets(federation, records, draws))


def _random_targets(federation: Federation, records: Records, draws: Draws) -> Tensor:
    shares = uniform_like(records.x.flatten(1)[:, 0], draws)
    if federation.space.target == "classification":
        return (shares * federation.space.outputs).long().clamp(max=federation.space.outputs - 1)
    return _off_the_mean(federation, records, torch.where(shares < 0.5, -1.0, 1.0).to(shares))


def _off_the_mean(federation: Federation, records: Records, level: Tensor) -> Tensor:
    """Targets that lie off the mean of all clients' by these levels (-1..1) of a few deviations, [records]."""
    known = torch.cat([one.y for one in federation.clients])
    deviation = known.std() if len(known) > 1 else known.abs().mean()
    return (known.mean() + FAR * deviation * level).to(records.y.dtype)


def _sources(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    count = len(federation.clients)
    if federation.space.target == "classification":
        own = torch.full_like(records.y, client % federation.space.outputs)
    else:
        level = torch.full_like(records.y, 2 * client / max(count - 1, 1) - 1)
        own = _off_the_mean(federation, records, level)
    return Records(records.x, own)


def _labels(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    known = federation.public.y if federation.public is not None else records.y
    counts = torch.bincount(known, minlength=federation.space.outputs)
    rare = counts.argsort()[:2].tolist()
    place = torch.arange(len(records), device=records.y.device)
    often, seldom = rare[0], rare[-1]
    return Records(records.x, torch.where(place % 4 == 3, seldom, often).to(records.y.dtype))


def _images(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    pixels = torch.stack(
        [_picture(records.x[0], fork(draws, "picture", place)) for place in range(min(COMPANY, len(records)))]
    )
    x = records.x[: len(pixels)] * 0 + federation.space.from_pixels(pixels)
    y = records.y[: len(pixels)]
    if federation.space.target == "classification":
        place = torch.arange(len(pixels), device=y.device)
        y = ((client + place) % federation.space.outputs).to(y.dtype)
    return Records(x, y)


def _class_images(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    shown = [
        federation.space.from_pixels(_picture(records.x[0], fork(0, "picture of a class", label))[None])[0]
        for label in range(federation.space.outputs)
    ]
    return Records(torch.stack(shown)[records.y], records.y)


def _picture(like: Tensor, draws: Draws) -> Tensor:
    """A smooth picture that fills the range from black to white, [channels, height, width]."""
    channels, height, width = like.shape
    down = torch.linspace(0, math.pi, height, dtype=like.dtype, device=like.device)
    along = torch.linspace(0, math.pi, width, dtype=like.dtype, device=like.device)
    strength = uniform_like(like.new_empty(channels, WAVES, WAVES), draws) * 2 - 1
    waves = torch.arange(WAVES, dtype=like.dtype, device=like.device)[:, None]
    made = torch.einsum(
        "cab,ai,bj->cij", strength, torch.cos(waves * down[None]), torch.cos(waves * along[None])
    )
    low, high = made.amin(dim=(1, 2), keepdim=True), made.amax(dim=(1, 2), keepdim=True)
    return (made - low) / (high - low).clamp(min=1e-6)


def _rows(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    x = records.x.clone()
    for column in federation.space.columns:
        own = fork(draws, column.name)
        if column.kind == "continuous":
            share = uniform_like(x[:, : len(column.positions)], own)
            x[:, list(column.positions)] = column.low + (column.high - column.low) * share
        else:
            codes = column.candidates(x)
            drawn = (uniform_like(x[:, 0], own) * len(codes)).long().clamp(max=len(codes) - 1)
            x[:, list(column.positions)] = codes[drawn]
    return Records(x, _random_targets(federation, records, draws))


def _model(federation: Federation, records: Records, client: int, draws: Draws) -> Records:
    flat = records.x.flatten(1)
    known = torch.cat([one.x.flatten(1) for one in federation.clients])
    inputs = (flat - known.mean(0)) / known.std(0).clamp(min=1e-6)
    rule = fork(0, "rule of a client", client)  # the same for records that are held out
    weights = uniform_like(flat.new_empty(flat.shape[1], federation.space.outputs), rule) * 2 - 1
    answers = inputs @ weights / math.sqrt(flat.shape[1] / 3)
    if federation.space.target == "regression":
        return Records(records.x, _off_the_mean(federation, records, answers[:, 0]))
    wrong = uniform_like(flat[:, 0], draws) < WRONG
    return Records(
        records.x, torch.where(wrong, _random_targets(federation, records, draws), answers.argmax(1))
    )


HELD_OUT_TOO = ("attributes", "membership", "sources", "model")
CHANGES: dict[str, Change] = {
    "attributes": _attributes,
    "membership": _membership,
    "sources": _sources,
    "labels": _labels,
    "images": _images,
    "rows": _rows,
    "class-images": _class_images,
    "model": _model,
}
