"""Small federations on which every attack must keep its promises, and views of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from fedxray.adversary import roles
from fedxray.adversary.disclose import disclose
from fedxray.adversary.grants import ROLES
from fedxray.adversary.view import Channel, Exchange, View
from fedxray.attacks.base import Attack
from fedxray.audit import catalog
from fedxray.audit.run.comparisons import declared_grants, open_channel
from fedxray.audit.run.grid import ABOUT_WHOLE_SUMS, SUMS
from fedxray.data.catalog import load
from fedxray.data.dataset import Dataset, Records, Space
from fedxray.data.split import split
from fedxray.errors import BadInput, Refused
from fedxray.federation.recipe import Recipe
from fedxray.federation.round_loop import simulate
from fedxray.federation.setting import Federation, in_dtype
from fedxray.federation.tamper import Tamper
from fedxray.federation.transcript import MemoryShelf, Parts, Transcript
from fedxray.federation.truth import Truth
from fedxray.models import build
from fedxray.params import Params
from fedxray.seeds import fork

CLIENTS = 3
LETTERS = 10


@dataclass(frozen=True, eq=False)
class World:
    """A recorded federation with its truth."""

    transcript: Transcript
    truth: Truth
    noise: int | None = None  # seed of the noise that stands for whatever clients reply from now on


def attacks() -> list[str]:
    """Every attack of the catalogue."""
    return sorted(catalog.ATTACKS)


def small(name: str) -> Attack:
    """The attack with the settings under which it is quick."""
    maker: Any = catalog.resolve("attacks", name)
    attack: Attack = maker(**maker.small)
    return attack


def world_of(attack: Attack, seed: int = 0, *, secure: bool = False) -> World:
    """The first world on whose view the attack does not refuse to run, those made for its kind first."""
    return _maker_for(attack)(seed, secure=secure)


def on_linear(attack: Attack) -> bool:
    """Whether the world of an attack has a linear model."""
    return _maker_for(attack) is linear_world


def float32_world_of(attack: Attack) -> World:
    """The world of an attack with messages in float32."""
    return linear_world(dtype="float32") if on_linear(attack) else world_of(attack)


_makers: dict[str, Callable[..., World]] = {}  # by identity of the attack


def _maker_for(attack: Attack) -> Callable[..., World]:
    if attack.identity() not in _makers:
        _makers[attack.identity()] = _first_that_fits(attack)
    return _makers[attack.identity()]


def _first_that_fits(attack: Attack) -> Callable[..., World]:
    """The first world where `attack.check` passes the view of one of the attack's roles."""
    made_for = FOR_ACTIVE if attack.kind == "model" and attack.roles[0] == "active-server" else FOR_KIND
    made_for = FOR_REPORTS if attack.by_reports else made_for
    reasons = []
    for maker in dict.fromkeys((*made_for[attack.kind], *chain.from_iterable(FOR_KIND.values()))):
        for role in attack.roles:
            try:
                attack.check(view_of(attack, maker(secure=role == "secure-aggregation"), role=role))
            except (Refused, BadInput) as error:
                reasons.append(f"{maker.__name__}, {role}: {error}")
            else:
                return maker
    raise AssertionError(f"{attack.name} works on no world of the contract: {'; '.join(reasons)}")


@functools.lru_cache(maxsize=8)
def table_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clinics of 60 visits that overfit for a few rounds."""
    dataset = load("clinic", seed=seed, clients=CLIENTS, records=80)
    model = build("mlp", dataset.space, generator=fork(seed, "model"), hidden=[32])
    recipe = Recipe(loss="mse", learning_rate=0.05, epochs=5, batch_size=16)
    return _run(dataset, model, recipe, rounds=8, partition="as-given", seed=seed, secure=secure)


@functools.lru_cache(maxsize=8)
def class_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clients with 40 digits each, whose classes they overfit for a few rounds."""
    dataset = load("digits")
    model = build("mlp", dataset.space, generator=fork(seed, "model"), hidden=[64])
    recipe = Recipe(loss="cross-entropy", learning_rate=0.1, epochs=10, batch_size=8)
    return _run(dataset, model, recipe, rounds=4, partition="iid", seed=seed, limit=40, secure=secure)


@functools.lru_cache(maxsize=8)
def row_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clinics with two visits each and one gradient."""
    dataset = load("clinic", seed=seed, clients=CLIENTS, records=80)
    model = build("mlp", dataset.space, generator=fork(seed, "model"), hidden=[64])
    recipe = Recipe(loss="mse", algorithm="fedsgd", learning_rate=0.1, batch_size="all")
    return _run(dataset, model, recipe, rounds=1, partition="as-given", seed=seed, limit=2, secure=secure)


@functools.lru_cache(maxsize=8)
def linear_world(seed: int = 0, *, dtype: str = "float64", secure: bool = False) -> World:
    """Three clinics, two of which in every round take one full step of a linear regression."""
    dataset = load("clinic", seed=seed, clients=CLIENTS, records=80)
    model = build("linear", dataset.space, generator=fork(seed, "model"))
    recipe = Recipe(loss="mse", learning_rate=0.05, epochs=5, batch_size="all")
    part: dict[str, Any] = {"partition": "as-given", "participation": 0.67, "dtype": dtype, "secure": secure}
    return _run(dataset, model, recipe, rounds=40, seed=seed, **part)


@functools.lru_cache(maxsize=8)
def image_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clients with two digits each and one gradient."""
    return _digits(seed, images=2, secure=secure)


@functools.lru_cache(maxsize=8)
def label_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clients with 30 digits each and one gradient: enough labels for a guess to be wrong by several."""
    return _digits(seed, images=30, secure=secure)


@functools.lru_cache(maxsize=8)
def mixed_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clients with classes in shares of their own."""
    dataset = load("digits")
    model = build("mlp", dataset.space, generator=fork(seed, "model"), hidden=[32])
    recipe = Recipe(loss="cross-entropy", learning_rate=0.1, batch_size=16)
    return _run(dataset, model, recipe, rounds=8, partition="dirichlet", seed=seed, secure=secure)


@functools.lru_cache(maxsize=8)
def letter_world(seed: int = 0, *, secure: bool = False) -> World:
    """Three clients that each draw the same ten letters in their own way, learnt by a linear model."""
    draw, each = fork(seed, "letters"), 20
    ink = (torch.rand((CLIENTS, LETTERS, 1, 8, 8), generator=draw) < 0.5).float() * 0.8 + 0.1
    x = ink.repeat_interleave(each, 1).flatten(0, 1) + 0.05 * torch.randn(
        (CLIENTS * LETTERS * each, 1, 8, 8), generator=draw
    )
    classes = tuple(str(letter) for letter in range(LETTERS))
    space = Space(kind="image", shape=(1, 8, 8), target="classification", classes=classes)
    y = torch.arange(LETTERS).repeat_interleave(each).repeat(CLIENTS)
    owner = torch.arange(CLIENTS).repeat_interleave(LETTERS * each)
    dataset = Dataset(name="letters", x=x.clamp(0, 1), y=y, space=space, owner=owner)
    model = build("linear", dataset.space, generator=fork(seed, "model"))
    recipe = Recipe(loss="cross-entropy", learning_rate=0.1, epochs=20, batch_size=16)
    return _run(dataset, model, recipe, rounds=4, partition="as-given", seed=seed, secure=secure)


# Worlds by the kind of guess, in the order in which they are tried; membership and sources have a regression and a
# classification.
FOR_KIND: dict[str, tuple[Callable[..., World], ...]] = {
    "attributes": (table_world,),
    "membership": (class_world, table_world),  # with enough held-out records to see a weak attack
    "sources": (table_world, class_world),
    "model": (table_world, linear_world),
    "images": (image_world,),
    "labels": (label_world,),
    "rows": (row_world,),
    "class-images": (letter_world,),
}
# An active attack steers its model to the client's own optimum, which only a linear model has alone.
FOR_ACTIVE = {"model": (linear_world,)}
FOR_REPORTS = {"labels": (mixed_world,)}


def _digits(seed: int, *, images: int, secure: bool) -> World:
    dataset = load("digits")
    model = build("mlp", dataset.space, generator=fork(seed, "model"), hidden=[64])
    recipe = Recipe(loss="cross-entropy", algorithm="fedsgd", learning_rate=0.1, batch_size="all")
    part: dict[str, Any] = {"partition": "iid", "limit": images, "secure": secure}
    return _run(dataset, model, recipe, rounds=1, seed=seed, **part)


def _run(
    dataset: Dataset,
    model: Any,
    recipe: Recipe,
    *,
    rounds: int,
    partition: str,
    seed: int,
    limit: int | None = None,
    participation: float = 1.0,
    dtype: str = "float32",
    secure: bool = False,
) -> World:
    parts = split(dataset, clients=CLIENTS, partition=partition, seed=seed, limit=limit, holdout=0.2, public=0.1)

    def records(index: torch.Tensor) -> Records:
        return Records(dataset.x[index], dataset.y[index])

    federation = Federation(
        space=dataset.space,
        clients=tuple(map(records, parts.train)),
        holdout=tuple(map(records, parts.holdout)),
        public=records(parts.public),
        model=model,
        recipe=recipe,
        rounds=rounds,
        participation=participation,
        secure_aggregation=secure,
    )
    return World(*simulate(in_dtype(federation, dtype), seed=seed))


def view_of(
    attack: Attack, world: World, *, client: int = 1, role: str | None = None, grants: list[str] | None = None
) -> View:
    """The view of the attack's first role (or another) with what the attack declares to need."""
    names = sorted(declared_grants(attack)) if grants is None else grants
    seat = role or attack.roles[0]
    about, seats = asked(attack, seat, client)
    given = disclose(world.truth, names, client=about, seats=seats, transcript=world.transcript)
    if world.noise is not None and given.metrics is not None:  # reports are messages too
        given = replace(given, metrics={round: {"loss": 1.0, "accuracy": 0.5} for round in given.metrics})
    if seat == "curious-client":
        own = [world.truth.train[one] for one in seats]
        return roles.curious_client(world.transcript, seat=seats, own=own, grants=given)
    if seat == "secure-aggregation":
        return roles.secure_aggregation(world.transcript, grants=given)
    if seat == "active-server":
        return roles.active_server(world.transcript, client=client, channel=channel_of(world), grants=given)
    take = {"server": roles.server, "eavesdropper": roles.eavesdropper}[seat]
    return take(world.transcript, client=client, grants=given)


def asked(attack: Attack, role: str, client: int) -> tuple[int | None, tuple[int, ...]]:
    """Whose records are asked for, None for everyone's, and which clients sit in the seat.

    Where a sum is read about everyone, the client before the named one sits in the seat, so that seats differ too.
    """
    whole = role in SUMS and attack.kind in ABOUT_WHOLE_SUMS and not attack.by_reports
    if role != "curious-client":
        return None if whole else client, ()
    return (None, ((client - 1) % CLIENTS,)) if whole else (client, (0,))


def channel_of(world: World) -> Channel | None:
    """The line to the clients, in a world of noise with nothing but noise on it."""
    real, seed = open_channel(world.transcript, world.truth), world.noise
    if real is None or seed is None:
        return real

    def channel(tamper: Tamper, *, rounds: int, clients: Sequence[int]) -> Exchange:
        deaf = NoiseTamper(tamper, fork(seed, "replies"))
        found = real(deaf, rounds=rounds, clients=clients)
        heard = tuple(replace(one, update=update) for one, update in zip(found.observations, deaf.heard, strict=True))
        return replace(found, observations=heard)

    return channel


class NoiseTamper:
    """A tamper that hears noise in place of every reply."""

    def __init__(self, inner: Tamper, generator: torch.Generator) -> None:
        """Start without replies."""
        self.inner, self.generator = inner, generator
        self.heard: list[dict[str, torch.Tensor]] = []

    def start(self) -> Any:
        """As the inner one."""
        self.heard.clear()
        return self.inner.start()

    def send(self, state: Any, round: int, client: int, broadcast: Params) -> tuple[dict[str, torch.Tensor], Any]:
        """As the inner one."""
        return self.inner.send(state, round, client, broadcast)

    def receive(self, state: Any, round: int, client: int, update: Params) -> Any:
        """Noise of the size of the reply."""
        self.heard.append({name: noise_like(value, self.generator) for name, value in update.items()})
        return self.inner.receive(state, round, client, self.heard[-1])


def noised(world: World, *, reader: str | None, seed: int = 5) -> World:
    """The world with every message that this reader cannot see (or with all of them) replaced by noise."""
    shelf, generator, done = MemoryShelf(), fork(seed, "noise"), set()
    visible = {m.parts for m in world.transcript.messages if reader is not None and reader in m.readers}
    for message in world.transcript.messages:
        if message.parts in done:
            continue
        done.add(message.parts)
        parts = world.transcript.shelf.get(message.parts)
        shelf.put(
            message.parts,
            parts
            if message.parts in visible
            else Parts(
                {name: noise_like(value, generator) for name, value in parts.params.items()},
                {name: noise_like(value, generator) for name, value in parts.buffers.items()},
            ),
        )
    transcript = replace(world.transcript, shelf=shelf)
    return replace(world, transcript=transcript, noise=seed if reader is None else None)


def noise_like(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal draws of the spread of a tensor, shape kept; counters and classes stay."""
    if not value.is_floating_point():
        return value
    if not value.numel():
        return value
    drawn = torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return drawn * value.std(unbiased=False).clamp(min=1e-3)


def reader_of(role: str) -> str:
    """The reader behind a role."""
    return "client:0" if role == "curious-client" else ROLES[role].reader
