"""The base of all restorers: settings and a loaded prior turn evidence into evidence, without a view or the truth."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor

from fedxray.attacks.evidence import Evidence
from fedxray.data.dataset import Space
from fedxray.errors import BadInput
from fedxray.lookup import users_code
from fedxray.progress import Report, silent
from fedxray.settings import REQUIRED, check_fields, setting

KINDS = ("images", "class-images")
GUIDANCE = "Classifier-free guidance towards the class, where the model knows classes; 1 is none."
Prior = TypeVar("Prior", bound="Shaped")


@dataclass(frozen=True, kw_only=True, eq=False)
class Shaped:
    """What all priors state: the shape of their images, the names of their classes, and their origin."""

    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...] = ()  # names of the classes it can be conditioned on; empty for none
    seen: frozenset[str] = frozenset()  # hashes of the records it was trained on, where known
    facts: Mapping[str, Any] = field(default_factory=dict)  # plain values for the attacker knowledge


@dataclass(frozen=True, kw_only=True)
class Restored:
    """Restored pixels in 0..1 [n, c, h, w], and plain facts."""

    pixels: Tensor
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Restorer(ABC, Generic[Prior]):
    """Base of all restorers; a subclass is a frozen keyword dataclass whose fields are its settings.

    `prior` is a folder or the name of a model on the hub with its `revision`; the caller of `restore` has loaded it.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]  # kinds of priors it can use

    prior: str = setting(REQUIRED, "Folder with the prior model, or its name on the hub.", example="prior-folder")
    revision: str | None = setting(None, "Commit of a model on the hub, 40 hex digits; required there.")

    def __post_init__(self) -> None:
        """Check every setting."""
        check_fields(self)

    @abstractmethod
    def check(self, prior: Prior) -> None:
        """Refuse a prior that cannot be used with these settings."""

    @abstractmethod
    def pixels(
        self, raw: Tensor, labels: Tensor | None, prior: Prior, generator: torch.Generator, report: Report
    ) -> Restored:
        """Return restored pixels of raw ones in 0..1 [n, c, h, w]; labels [n] are the prior's own class numbers."""

    @final
    def restore(
        self, evidence: Evidence, prior: Prior, *, space: Space, generator: torch.Generator, report: Report = silent
    ) -> Evidence:
        """Return the evidence with restored images; images that are not finite stay unchanged."""
        check_evidence(self.name, evidence.kind)
        check_shape(self.name, prior.shape, space)
        inputs = evidence.tensors["inputs"]
        usable = torch.isfinite(inputs.flatten(1)).all(1)
        if not bool(usable.any()):
            return replace(evidence, facts={**evidence.facts, "restored_by": self.name})
        raw = space.to_pixels(inputs[usable]).clamp(0, 1)
        labels = known_labels(evidence, usable, prior.classes, space.classes)
        result = self.pixels(raw, labels, prior, generator, report)
        restored = inputs.clone()
        restored[usable] = space.from_pixels(result.pixels.clamp(0, 1)).to(inputs)
        return replace(
            evidence,
            tensors={**evidence.tensors, "inputs": restored},
            facts={**evidence.facts, "restored_by": self.name, **result.facts},
        )


def check_answer(ask: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> None:
    """Refuse a model that does not map one grey image of its shape to finite numbers of that shape."""
    blank = torch.zeros((1, *shape))
    expected = f"a model that answers an image of shape {list(shape)} with finite numbers of that shape"
    remedy = "Save or download it again, or train one with `fedxray train-prior`."
    with users_code("prior", expected, remedy), torch.no_grad():
        answer = ask(blank)
        finite = bool(torch.isfinite(answer).all())
    if answer.shape != blank.shape or not finite:
        got = f"shape {list(answer.shape)}" + ("" if finite else " with NaN or infinite values")
        raise BadInput("prior", expected=expected, got=got, remedy=remedy)


def check_evidence(name: str, kind: str) -> None:
    """Refuse evidence that holds no images."""
    if kind not in KINDS:
        expected = "an attack that gives images"
        raise BadInput(f"restore {name}", expected=expected, got=f"one that gives {kind}", remedy="Leave restore out.")


def check_shape(name: str, shape: tuple[int, ...], space: Space) -> None:
    """Refuse a prior for images of another size."""
    if tuple(shape) != tuple(space.shape):
        expected = f"a prior for images of shape {list(space.shape)}"
        remedy = "Train one with `fedxray train-prior --plan`, or set size in [data]."
        raise BadInput(f"restore {name}: prior", expected=expected, got=f"one for {list(shape)}", remedy=remedy)


def known_labels(
    evidence: Evidence, usable: Tensor, offered: tuple[str, ...], classes: tuple[str, ...]
) -> Tensor | None:
    """Return the prior's class numbers of the usable images [n]; None where attacker or prior knows no classes."""
    labels = evidence.tensors.get("labels")
    if labels is None or not offered or not set(classes) <= set(offered) or labels.ndim != 1:
        return None
    place = torch.tensor([offered.index(name) for name in classes], dtype=torch.int64, device=labels.device)
    return place[labels[usable].to(torch.int64)]


# A diffusion model as restorers use it. Images are in -1..1. At level t an image is sqrt(kept_t) x + sqrt(1 - kept_t)
# noise; divided by sqrt(kept_t) that is x + sigma_t noise with sigma_t = sqrt((1 - kept_t) / kept_t).

AT_ONCE = 64  # images
# Maps images [n, c, h, w], a level and class numbers [n] (None: no class) to the noise in them.
Noise = Callable[[Tensor, int, Tensor | None], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Diffusion(Shaped):
    """A frozen diffusion model."""

    kept: Tensor  # [levels], falling from nearly 1
    noise: Noise
    needs_classes: bool = False  # whether it requires a class

    def check(self) -> None:
        """Refuse a model that requires a class but names none, or that does not predict noise."""
        if self.needs_classes and not self.classes:
            raise self._without_labels("one whose classes have no names")
        chosen = torch.zeros(1, dtype=torch.int64) if self.needs_classes else None
        check_answer(lambda blank: self.noise(blank, len(self.kept) - 1, chosen), self.shape)

    def sigma(self, level: int) -> float:
        """Return the standard deviation of the noise of a level, relative to images of unchanged scale."""
        kept = float(self.kept[level])
        return math.sqrt((1 - kept) / kept)

    def predicted(self, x: Tensor, level: int, labels: Tensor | None, guidance: float = 1.0) -> Tensor:
        """Return the noise predicted in x [n, c, h, w]; guidance beyond 1 extrapolates towards the class."""
        if self.needs_classes and labels is None:
            raise self._without_labels("none")
        parts = []
        for place in range(0, len(x), AT_ONCE):
            part = x[place : place + AT_ONCE]
            chosen = None if labels is None else labels[place : place + AT_ONCE]
            noise_seen = self.noise(part, level, chosen)
            if guidance != 1.0 and chosen is not None and not self.needs_classes:
                plain = self.noise(part, level, None)
                noise_seen = plain + guidance * (noise_seen - plain)
            parts.append(noise_seen)
        return torch.cat(parts) if parts else x

    def levels(self, steps: int) -> list[int]:
        """Return `steps` levels, evenly spaced, from the noisiest to 0."""
        last = len(self.kept) - 1
        count = min(steps, last + 1)
        if count == 1:
            return [last]
        return [round(last * place / (count - 1)) for place in reversed(range(count))]

    def level_above(self, sigma: float) -> int:
        """Return the first level with at least this noise; the last where none has."""
        return next((level for level in range(len(self.kept)) if self.sigma(level) >= sigma), len(self.kept) - 1)

    def _without_labels(self, got: str) -> BadInput:
        remedy = "Use a prior that can do without, such as one of `fedxray train-prior`."
        return BadInput("prior", expected="labels that this class-conditional model knows", got=got, remedy=remedy)
