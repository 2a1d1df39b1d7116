"""The settings that DLF shares with its baselines: they differ in how they simulate the client, and in the prior."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fedxray.attacks.aim import At, check_at
from fedxray.attacks.base import Attack
from fedxray.attacks.inversion.distance import BY_DEPTH, distance_named
from fedxray.attacks.inversion.dlf_presets import PRESETS
from fedxray.attacks.inversion.known import check_count, check_label_attack, check_weight
from fedxray.attacks.inversion.replay import BatchNorm, check_batch_norm
from fedxray.attacks.labels.dlf import LabelsDlf
from fedxray.decays import Exponential
from fedxray.errors import BadInput, unknown_name
from fedxray.methods import Adam
from fedxray.priors import EPOCH_PRIORS


@dataclass(frozen=True, kw_only=True)
class DlfSettings:
    """Fields of every attack of the family; a number left out is that of the preset."""

    preset: Literal["femnist", "cifar100"] = "femnist"
    steps: int = 400
    learning_rate: float | None = None  # femnist 0.4, cifar100 0.1
    decay: float | None = None  # of the learning rate: femnist 0.995 every 10 steps, cifar100 0.997 every 20
    match: str = BY_DEPTH  # l2-by-depth (the authors' code) | cosine (the paper) | cosine-by-layer | l2 | l1
    match_weight: tuple[float, float] | None = (
        None  # first and from half way on: femnist 1 to 2, cifar100 4 to 2
    )
    total_variation: float | None = None  # femnist 1e-3, cifar100 2e-4
    clip: float | None = None  # weight of what is outside the range of pixels: femnist 2, cifar100 10
    label_order: Literal["given", "sorted", "random"] = "given"  # given: see the header of dlf.py
    labels: Attack = field(default_factory=LabelsDlf)  # used when neither labels nor counts are granted
    restarts: int = 1
    keep: Literal["last", "best"] = "last"  # best: of the attacker's own loss in the second half of the steps
    at: At = "first"
    batch_norm: BatchNorm = "batch"


def check_dlf(settings: DlfSettings) -> None:
    """Refuse settings that cannot be meant."""
    if settings.preset not in PRESETS:
        raise unknown_name("preset", settings.preset, PRESETS)
    method_of(settings)
    check_at(settings.at)
    check_batch_norm(settings.batch_norm)
    check_count("restarts", settings.restarts)
    check_label_attack(settings.labels)
    distance_named(settings.match, [])
    _one_of("label_order", settings.label_order, ("given", "sorted", "random"))
    _one_of("keep", settings.keep, ("last", "best"))
    check_weight("total_variation", _or(settings.total_variation, 0.0))
    check_weight("clip", _or(settings.clip, 0.0))
    given = (1.0, 1.0) if settings.match_weight is None else settings.match_weight
    if len(given) != 2 or not all(0 < weight < float("inf") for weight in given):
        raise BadInput(
            "match_weight",
            expected="two finite numbers above 0",
            got=repr(settings.match_weight),
            remedy="Try [1.0, 2.0].",
        )


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The weights of one attack with the preset's where none was given."""

    match_weight: tuple[float, float]
    total_variation: float
    clip: float


def numbers_of(settings: DlfSettings) -> Numbers:
    """The weights of the loss."""
    preset = PRESETS[settings.preset]
    return Numbers(
        match_weight=preset.match_weight if settings.match_weight is None else settings.match_weight,
        total_variation=_or(settings.total_variation, preset.total_variation),
        clip=_or(settings.clip, preset.clip),
    )


def method_of(settings: DlfSettings) -> Adam:
    """Adam with a learning rate that falls smoothly."""
    preset = PRESETS[settings.preset]
    decay = _or(settings.decay, preset.decay)
    if not 0 < decay <= 1:
        raise BadInput("decay", expected="a number above 0, at most 1", got=repr(decay), remedy="Try 0.995.")
    return Adam(
        steps=settings.steps,
        lr=_or(settings.learning_rate, preset.learning_rate),
        decay=Exponential(by=decay, every=preset.decay_every),
    )


def prior_of(preset: str, name: str | None, weight: float | None) -> tuple[str, float]:
    """The name and the weight of the prior, the preset's where none was given."""
    told = PRESETS[preset]
    chosen = told.prior if name is None else name
    if chosen not in EPOCH_PRIORS:
        raise unknown_name("prior", chosen, EPOCH_PRIORS)
    check_weight("prior_weight", _or(weight, 0.0))
    return chosen, _or(weight, told.prior_weights[chosen])


def _or(given: float | None, other: float) -> float:
    return other if given is None else given


def _one_of(argument: str, got: object, known: tuple[str, ...]) -> None:
    if got not in known:
        raise unknown_name(argument, str(got), known)
