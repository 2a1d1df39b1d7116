"""How near a guessed model is to the true one, and how well it fits the client's records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from fedxray.data.dataset import Space
from fedxray.errors import BadInput, missing_extra, unknown_name
from fedxray.losses import example_loss
from fedxray.params import Params, same_shapes
from fedxray.seeds import fork, uniform_like

WORST_DISTANCE = (
    1e10  # where the guess is not finite, or the truth is all zero and the guess is not; any loss
)


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
    """How well a model with these outputs [n, outputs] fits the client's own records y [n].

    Of a regression the loss is in units of the variance of everyone's targets, so that it does not depend on theirs.
    """
    if not len(y):
        return {}
    value = float(example_loss(loss)(output, y).double().mean())
    if space.target == "classification":
        hits = (output.argmax(-1) == y) & torch.isfinite(output).all(-1)
        return {"training_loss": _held(value), "training_accuracy": float(hits.double().mean())}
    found = {"training_loss": _held(value / (float(everyone.double().var(correction=0)) or 1.0))}
    off = relative_error(output[:, 0], y, space)
    return found if off is None else {**found, "training_mape": _held(off)}


def relative_error(guess: Tensor, y: Tensor, space: Space) -> float | None:
    """Mean of |guess - y| / y, both [n], in the units of the data; None unless all targets are above 0."""
    raw, told = (one.double() * space.target_std + space.target_mean for one in (y, guess))
    return float(((told - raw) / raw).abs().mean()) if bool((raw > 0).all()) else None


def _held(value: float) -> float:
    """At most 1e10, which is also what is not finite."""
    return min(value, WORST_DISTANCE) if math.isfinite(value) else WORST_DISTANCE


# --- Which entries of an input belong together when it is explained: a column of a table, a patch of an
# image.
#
# Tables: all entries that encode one column. Images: superpixels by quickshift with the settings of Zest
# and LIME where scikit-image is installed (the extra `images`), else squares of a grid; a picture in which
# quickshift finds fewer than four superpixels (a very small one) gets the grid too.


Cut = Literal["auto", "quickshift", "grid"]
CUTS = ("auto", "quickshift", "grid")
GRID = 8  # squares along each side of an image
FEWEST = 4  # superpixels


def segments_of(x: Tensor, space: Space, cut: Cut = "auto") -> Tensor:
    """The number of the segment that each entry of x [n, *shape] is in, counted from 0; int64, same shape."""
    if cut not in CUTS:
        raise unknown_name("cut", cut, CUTS)
    if space.kind == "table":
        return by_column(space, x.device).expand(x.shape)
    grid = squares(space, x.device)
    if cut == "grid" or (cut == "auto" and find_spec("skimage") is None):
        return grid.expand(x.shape)
    found = superpixels(space.to_pixels(x))[:, None].expand(x.shape)
    enough = found.flatten(1).amax(1) + 1 >= FEWEST
    return torch.where(enough.reshape(-1, 1, 1, 1), found, grid)


def by_column(space: Space, device: torch.device) -> Tensor:
    """The column of every entry of a table, shape [entries]; entries of no column stand alone."""
    (entries,) = space.shape
    found = torch.arange(entries, dtype=torch.int64, device=device)
    for column in space.columns:
        found[list(column.positions)] = min(column.positions)
    numbered: Tensor = torch.unique(found, return_inverse=True)[1]
    return numbered


def squares(space: Space, device: torch.device) -> Tensor:
    """A grid of at most 8 x 8 equal squares over an image, the same in every channel, shape [c, h, w]."""
    _, height, width = space.shape
    sides = [
        torch.arange(side, dtype=torch.int64, device=device) * min(GRID, side) // side
        for side in (height, width)
    ]
    return (sides[0][:, None] * min(GRID, width) + sides[1]).expand(space.shape)


def superpixels(pixels: Tensor) -> Tensor:
    """Quickshift superpixels of images [n, c, h, w] in 0..1, shape [n, h, w]; needs scikit-image."""
    if find_spec("skimage") is None:
        raise missing_extra("cut", "scikit-image (for quickshift)", "images", 'use cut = "grid"')
    import numpy as np
    from skimage.segmentation import quickshift

    shown = pixels.detach().cpu().double().clamp(0, 1)
    colours = shown if shown.shape[1] == 3 else shown.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    found = [
        quickshift(image, kernel_size=4, max_dist=200, ratio=0.2, rng=0)
        for image in colours.permute(0, 2, 3, 1).numpy()
    ]
    return torch.from_numpy(np.stack(found).astype(np.int64)).to(pixels.device)


# --- Zest (Jia et al. 2022): two models are alike when they explain their answers alike.
#
#     1. Take some records as references, and cut each into segments.
#     2. Blank random segments of it, many times, and ask the model (first mask: nothing is blanked).
#     3. Fit its answers by a linear function of the masks (LIME): one weight per segment and output.
#     4. The weights of all references together are the model's signature; likeness is the cosine of two of them.
#
# As in the authors' code the fit is plain least squares without intercept, the answers are raw outputs and
# both models see the same masks. Where we differ: the references are evenly spread over the given records,
# not the first 128; there are five masks per segment, at least 200, not 1,000; references with equally many
# segments share their masks, so that one factorisation serves them all. The authors blank with zero in
# standardised inputs, which is the mean: so do we, for tables too. Classes are not aligned, since both
# models name them alike.
#
# Likeness can be had by a model that is of no use, so read the loss and the accuracy on the client's
# records beside it.


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
