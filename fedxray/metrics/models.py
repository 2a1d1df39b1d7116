"""Scores of a guessed local model: distance of parameters, fit to the client's records, and Zest.

Zest compares the local explanations of two models, so it needs inputs cut into segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from fedxray.data.dataset import Space
from fedxray.errors import BadInput, missing_extra, unknown_name
from fedxray.losses import example_loss
from fedxray.params import Params, same_shapes
from fedxray.seeds import fork, uniform_like

# Of a guess that is not finite, or of any guess but zero where the truth is all zero; also the largest loss.
WORST_DISTANCE = 1e10


def parameter_distance(guess: Params, truth: Params) -> float:
    """|guess - truth| / |truth| in L2 over all parameters by name; at most 1e10."""
    if not same_shapes(guess, truth):
        odd = sorted(guess.keys() ^ truth.keys()) or "other shapes"
        remedy = "Compare two models of the same architecture."
        raise BadInput("guess", expected="the truth's names and shapes", got=odd, remedy=remedy)
    error = sum(float(((guess[name].double() - value.double()) ** 2).sum()) for name, value in truth.items())
    size = sum(float((value.double() ** 2).sum()) for value in truth.values())
    if error == 0:
        return 0.0
    if not math.isfinite(error) or size == 0:
        return WORST_DISTANCE
    return min(math.sqrt(error / size), WORST_DISTANCE)


def distance_scores(guess: Params, truth: Params) -> dict[str, float]:
    """The distance of one model; absent for models without parameters."""
    return {"parameter_distance": parameter_distance(guess, truth)} if truth else {}


def fit_scores(output: Tensor, y: Tensor, loss: str, space: Space, everyone: Tensor) -> dict[str, float]:
    """Loss, accuracy or relative error of a model with these outputs [n, outputs] on the client's own targets y [n].

    The loss of a regression is divided by the variance of the targets of all clients (`everyone` [m]), so that it does
    not depend on their unit.
    """
    if not len(y):
        return {}
    value = float(example_loss(loss)(output, y).double().mean())
    if space.target == "classification":
        hits = (output.argmax(-1) == y) & torch.isfinite(output).all(-1)
        return {"training_loss": _capped(value), "training_accuracy": float(hits.double().mean())}
    scores = {"training_loss": _capped(value / (float(everyone.double().var(correction=0)) or 1.0))}
    error = relative_error(output[:, 0], y, space)
    return scores if error is None else {**scores, "training_mape": _capped(error)}


def relative_error(guess: Tensor, y: Tensor, space: Space) -> float | None:
    """Mean of |guess - y| / y, both [n], in the units of the data; None unless all targets are above 0."""
    raw, guessed = (values.double() * space.target_std + space.target_mean for values in (y, guess))
    return float(((guessed - raw) / raw).abs().mean()) if bool((raw > 0).all()) else None


def _capped(value: float) -> float:
    """The value, or 1e10 where it is larger or not finite."""
    return min(value, WORST_DISTANCE) if math.isfinite(value) else WORST_DISTANCE


# Segments: entries of an input that are blanked together
#
# Tables: all entries that encode one column. Images: superpixels by quickshift with the settings of Zest and LIME where
# scikit-image is installed (the extra `images`), otherwise squares of a grid; an image in which quickshift finds fewer
# than four superpixels (a very small one) gets the grid too.

Cut = Literal["auto", "quickshift", "grid"]
CUTS = ("auto", "quickshift", "grid")
GRID = 8  # squares along each side of an image
FEWEST = 4  # superpixels


def segments_of(x: Tensor, space: Space, cut: Cut = "auto") -> Tensor:
    """The number of the segment of each entry of x [n, *shape], counted from 0; int64, same shape.

    `cut` chooses the segments of images: quickshift, a grid, or quickshift where it is installed ("auto").
    """
    if cut not in CUTS:
        raise unknown_name("cut", cut, CUTS)
    if space.kind == "table":
        return by_column(space, x.device).expand(x.shape)
    grid = squares(space, x.device)
    if cut == "grid" or (cut == "auto" and find_spec("skimage") is None):
        return grid.expand(x.shape)
    shifted = superpixels(space.to_pixels(x))[:, None].expand(x.shape)
    enough = shifted.flatten(1).amax(1) + 1 >= FEWEST
    return torch.where(enough.reshape(-1, 1, 1, 1), shifted, grid)


def by_column(space: Space, device: torch.device) -> Tensor:
    """The column of every entry of a table, shape [entries]; an entry of no column is a segment by itself."""
    (entries,) = space.shape
    first = torch.arange(entries, dtype=torch.int64, device=device)  # of the column of each entry
    for column in space.columns:
        first[list(column.positions)] = min(column.positions)
    numbered: Tensor = torch.unique(first, return_inverse=True)[1]
    return numbered


def squares(space: Space, device: torch.device) -> Tensor:
    """A grid of at most 8 x 8 equal squares over an image, the same in every channel, shape [c, h, w]."""
    _, height, width = space.shape
    sides = [torch.arange(side, dtype=torch.int64, device=device) * min(GRID, side) // side for side in (height, width)]
    return (sides[0][:, None] * min(GRID, width) + sides[1]).expand(space.shape)


def superpixels(pixels: Tensor) -> Tensor:
    """Quickshift superpixels of images [n, c, h, w] in 0..1, shape [n, h, w]; needs scikit-image."""
    if find_spec("skimage") is None:
        raise missing_extra("cut", "scikit-image (for quickshift)", "images", 'use cut = "grid"')
    import numpy as np
    from skimage.segmentation import quickshift

    valid = pixels.detach().cpu().double().clamp(0, 1)
    colours = valid if valid.shape[1] == 3 else valid.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    segments = [
        quickshift(image, kernel_size=4, max_dist=200, ratio=0.2, rng=0)
        for image in colours.permute(0, 2, 3, 1).numpy()
    ]
    return torch.from_numpy(np.stack(segments).astype(np.int64)).to(pixels.device)


# Zest (Jia et al. 2022): two models are similar if their local explanations are
#
#     1. Choose some records as references, and cut each into segments.
#     2. Blank random segments of it, many times, and evaluate the model (the first mask blanks nothing).
#     3. Fit its outputs by a linear function of the masks (LIME): one weight per segment and output.
#     4. The weights of all references are the signature of the model; the score is the cosine of two signatures.
#
# As in the authors' code the fit is plain least squares without intercept, the outputs are raw, and both models get the
# same masks. Where we differ: the references are evenly spread over the given records, not the first 128; there are
# five masks per segment, at least 200, not 1,000; references with equally many segments share their masks, so that one
# factorisation serves them all. The authors blank with zero in standardised inputs, which is the mean: so do we, also
# for tables. Classes are not aligned, since both models use the same names for them.
#
# A useless model can have a high score, so read the loss and the accuracy on the client's records beside it.

Answer = Callable[[Tensor], Tensor]  # inputs [n, *shape] to outputs [n, outputs]
ENTRIES_AT_ONCE = 4_000_000  # numbers of blanked inputs held at a time
WORST = -1.0  # similarity to a model whose outputs are not finite


@dataclass(frozen=True, kw_only=True)
class Lime:
    """Settings of the explanations."""

    references: int = 128
    masks_per_segment: int = 5
    least_masks: int = 200
    intercept: bool = False
    cut: Cut = "auto"

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("references", "masks_per_segment", "least_masks"):
            if getattr(self, name) < 1:
                raise BadInput(name, expected="at least 1", got=getattr(self, name), remedy="Try the default.")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The inputs on which both models are explained: references with their segments, the blank input, and the masks."""

    references: Tensor  # [references, *shape]
    segments: Tensor  # [references, *shape]
    blank: Tensor  # [*shape], the values of blanked segments
    masks: dict[int, Tensor]  # by number of segments: [masks, segments] of bool
    intercept: bool = False

    @cached_property
    def solvers(self) -> dict[int, Tensor]:
        """By number of segments, what turns outputs into weights [weights, masks]; all models asked share it."""
        return {size: torch.linalg.pinv(_design(masks, self.intercept)) for size, masks in self.masks.items()}


def ask(x: Tensor, everyone: Tensor, space: Space, generator: torch.Generator, lime: Lime | None = None) -> Question:
    """The inputs for explanations of models on x [n, *shape]; blanks hold the mean of `everyone` [m, *shape]."""
    lime = lime or Lime()
    count = min(lime.references, len(x))
    references = x[torch.arange(count, device=x.device) * len(x) // max(count, 1)]
    segments = segments_of(references, space, lime.cut)
    sizes = sorted(set(_sizes(segments)))
    masks = {size: draw_masks(size, lime, fork(generator, "masks", size), x) for size in sizes}
    blank = mean_input(everyone, space)
    return Question(references=references, segments=segments, blank=blank, masks=masks, intercept=lime.intercept)


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
    """The LIME weights of a model for all references in one row, [segments * outputs of all], float64.

    `answer` gives the outputs of the model; a reference with k segments has k weights for each output.
    """
    if not len(question.references):
        return question.references.new_zeros(0, dtype=torch.float64)
    sizes = _sizes(question.segments)
    weights_of: dict[int, Tensor] = {}  # by index of the reference, [segments * outputs]
    for size, masks in question.masks.items():
        solver = question.solvers[size]
        members = [index for index, segments in enumerate(sizes) if segments == size]
        step = max(1, ENTRIES_AT_ONCE // (len(masks) * question.blank.numel()))
        for first in range(0, len(members), step):
            chunk = members[first : first + step]
            outputs = answer(_blanked(question, chunk, masks)).double()  # [references * masks, outputs]
            weights = solver @ outputs.unflatten(0, (len(chunk), len(masks)))  # [references, weights, outputs]
            weights_of.update(zip(chunk, weights[:, :size].flatten(1), strict=True))
    return torch.cat([weights_of[index] for index in range(len(sizes))])


def similarity(left: Tensor, right: Tensor) -> float:
    """Cosine of two signatures, -1..1; 0 if one of them is zero, -1 if one is not finite, 1 if they are equal."""
    if not bool(torch.isfinite(left).all() and torch.isfinite(right).all()):
        return WORST
    if torch.equal(left, right):
        return 1.0
    # Scaled by their largest entry first, so that the squares of the norm cannot overflow.
    left, right = (row / row.abs().max().clamp(min=torch.finfo(row.dtype).tiny) for row in (left, right))
    sizes = left.norm() * right.norm()
    return 0.0 if float(sizes) == 0 else max(-1.0, min(1.0, float(left @ right / sizes)))


def _design(masks: Tensor, intercept: bool) -> Tensor:
    numbers = masks.double()
    return torch.cat([numbers, torch.ones_like(numbers[:, :1])], 1) if intercept else numbers


def _blanked(question: Question, chosen: list[int], masks: Tensor) -> Tensor:
    """Every chosen reference under every mask, shape [references * masks, *shape]."""
    x, segments = question.references[chosen], question.segments[chosen]
    kept = masks[:, segments]  # [masks, references, *shape]
    return torch.where(kept, x, question.blank).transpose(0, 1).flatten(0, 1)


def _sizes(segments: Tensor) -> list[int]:
    """Number of segments of each reference."""
    counts: list[int] = (segments.flatten(1).amax(1) + 1).tolist()
    return counts
