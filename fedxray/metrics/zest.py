"""Zest (Jia et al. 2022): two models are alike when they explain their answers alike.

    1. Take some records as references, and cut each into segments.
    2. Blank random segments of it, many times, and ask the model (first mask: nothing is blanked).
    3. Fit its answers by a linear function of the masks (LIME): one weight per segment and output.
    4. The weights of all references together are the model's signature; likeness is the cosine of two of them.

As in the authors' code the fit is plain least squares without intercept, the answers are raw outputs and both
models see the same masks. Where we differ: the references are evenly spread over the given records, not the first
128; there are five masks per segment, at least 200, not 1,000; references with equally many segments share their
masks, so that one factorisation serves them all. The authors blank with zero in standardised inputs, which is the
mean: so do we, for tables too. Classes are not aligned, since both models name them alike.

Likeness can be had by a model that is of no use, so read the loss and the accuracy on the client's records beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedxray.data.space import Space
from fedxray.errors import BadInput
from fedxray.metrics.segments import Cut, segments_of
from fedxray.seeds import fork, uniform_like

Answer = Callable[[Tensor], Tensor]  # inputs [n, *shape] to outputs [n, outputs]
ENTRIES_AT_ONCE = 4_000_000  # numbers of blanked inputs held at a time
WORST = -1.0  # likeness to a model whose answers are not finite


@dataclass(frozen=True, kw_only=True)
class Lime:
    """How models are explained."""

    references: int = 128
    masks_per_segment: int = 5
    least_masks: int = 200
    intercept: bool = False
    cut: Cut = "auto"

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("references", "masks_per_segment", "least_masks"):
            if getattr(self, name) < 1:
                raise BadInput(
                    name, expected="at least 1", got=getattr(self, name), remedy="Try the default."
                )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What both models are asked: references with their segments, what blanks, and the masks."""

    references: Tensor  # [references, *shape]
    segments: Tensor  # [references, *shape]
    blank: Tensor  # [*shape]
    masks: dict[int, Tensor]  # by number of segments: [masks, segments] of bool
    intercept: bool = False


def ask(
    x: Tensor, everyone: Tensor, space: Space, generator: torch.Generator, lime: Lime | None = None
) -> Question:
    """The question about records x [n, *shape]; what is blanked takes the mean of everyone's records [m, *shape]."""
    lime = lime or Lime()
    count = min(lime.references, len(x))
    references = x[torch.arange(count, device=x.device) * len(x) // max(count, 1)]
    segments = segments_of(references, space, lime.cut)
    sizes = sorted(set(_sizes(segments)))
    return Question(
        references=references,
        segments=segments,
        blank=mean_input(everyone, space),
        masks={size: draw_masks(size, lime, fork(generator, "masks", size), x) for size in sizes},
        intercept=lime.intercept,
    )


def mean_input(x: Tensor, space: Space) -> Tensor:
    """The mean of every entry of a table, of every channel of images, shape [*shape]."""
    dims = (0,) if space.kind == "table" else (0, 2, 3)
    return x.mean(dims, keepdim=True)[0].expand(space.shape)


def draw_masks(size: int, lime: Lime, generator: torch.Generator, like: Tensor) -> Tensor:
    """Random masks [masks, size] of bool, true where a segment is kept; the first keeps all."""
    count = max(lime.masks_per_segment * size, lime.least_masks)
    chance = uniform_like(torch.empty((count, size), dtype=torch.float32, device=like.device), generator)
    return (chance < 0.5) | (torch.arange(count, device=like.device) == 0)[:, None]


def signature(answer: Answer, question: Question) -> Tensor:
    """The LIME weights of a model for all references in one row, float64."""
    if not len(question.references):
        return question.references.new_zeros(0, dtype=torch.float64)
    sizes = _sizes(question.segments)
    found: dict[int, Tensor] = {}  # by place of the reference
    for size, masks in question.masks.items():
        solver = torch.linalg.pinv(_design(masks, question.intercept))  # [weights, masks]
        places = [place for place, one in enumerate(sizes) if one == size]
        step = max(1, ENTRIES_AT_ONCE // (len(masks) * question.blank.numel()))
        for first in range(0, len(places), step):
            some = places[first : first + step]
            said = answer(_blanked(question, some, masks)).double()
            weights = solver @ said.unflatten(0, (len(some), len(masks)))  # [references, weights, outputs]
            found.update(zip(some, weights[:, :size].flatten(1), strict=True))
    return torch.cat([found[place] for place in range(len(sizes))])


def likeness(left: Tensor, right: Tensor) -> float:
    """Cosine of two signatures, -1..1; 0 if one of them is zero, -1 if one is not finite, 1 if they are equal."""
    if not bool(torch.isfinite(left).all() and torch.isfinite(right).all()):
        return WORST
    if torch.equal(left, right):
        return 1.0
    left, right = (one / one.abs().max().clamp(min=torch.finfo(one.dtype).tiny) for one in (left, right))
    sizes = left.norm() * right.norm()
    return 0.0 if float(sizes) == 0 else max(-1.0, min(1.0, float(left @ right / sizes)))


def _design(masks: Tensor, intercept: bool) -> Tensor:
    numbers = masks.double()
    return torch.cat([numbers, torch.ones_like(numbers[:, :1])], 1) if intercept else numbers


def _blanked(question: Question, places: list[int], masks: Tensor) -> Tensor:
    """Every chosen reference under every mask, shape [references * masks, *shape]."""
    x, segments = question.references[places], question.segments[places]
    kept = masks[:, segments]  # [masks, references, *shape]
    return torch.where(kept, x, question.blank).transpose(0, 1).flatten(0, 1)


def _sizes(segments: Tensor) -> list[int]:
    """How many segments each reference has."""
    found: list[int] = (segments.flatten(1).amax(1) + 1).tolist()
    return found
