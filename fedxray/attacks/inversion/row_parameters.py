"""Rows of a table as free parameters: numbers within their range, and scores whose softmax mixes categories."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedxray.data.space import Column, Space
from fedxray.priors import clip
from fedxray.seeds import fork, normal_like

Point = dict[str, Tensor]
NUMBERS = "numbers"
SURE = 1e4  # a score beside which all others count as nothing


@dataclass(frozen=True)
class RowParameters:
    """Where numbers and categories stand in a row; positions that no column names are numbers without a range."""

    width: int
    numbers: tuple[int, ...]
    categories: tuple[Column, ...]
    low: Tensor  # [numbers]
    high: Tensor  # [numbers]

    def start(self, examples: int, like: Tensor, generator: torch.Generator) -> Point:
        """Standard normal numbers, back in their range, and standard normal scores."""
        shapes = {NUMBERS: len(self.numbers)} | {_key(one): len(one.codes) for one in self.categories}
        drawn = {
            name: normal_like(like.new_empty(examples, size), fork(generator, name))
            for name, size in shapes.items()
        }
        return self.project(drawn)

    def project(self, point: Point) -> Point:
        """Numbers back into their range; everything else as it is."""
        return point | {NUMBERS: clip(point[NUMBERS], self.low, self.high)}

    def rows(self, point: Point) -> Tensor:
        """Encoded rows [examples, width]: numbers as they are, mixed codes of categories."""
        return self._put_together(
            point[NUMBERS],
            [torch.softmax(point[_key(one)], -1) @ one.candidates(point[NUMBERS]) for one in self.categories],
        )

    def decided(self, point: Point) -> Tensor:
        """Encoded rows [examples, width] with the likeliest category of every column."""
        return self.rows(self.sure(point))

    def sure(self, point: Point) -> Point:
        """The same point with all probability on the likeliest category of every column."""
        sharp = {
            _key(one): SURE * functional.one_hot(point[_key(one)].argmax(-1), len(one.codes))
            for one in self.categories
        }
        return point | {name: value.to(point[NUMBERS].dtype) for name, value in sharp.items()}

    def pooled(self, points: list[Point]) -> Point:
        """Corresponding rows of several guesses in one: the median of numbers, the mean of probabilities."""
        mixed = {NUMBERS: torch.stack([one[NUMBERS] for one in points]).median(0).values}
        for column in self.categories:
            chances = torch.stack([torch.softmax(one[_key(column)], -1) for one in points]).mean(0)
            mixed[_key(column)] = chances.log()
        return mixed

    def _put_together(self, numbers: Tensor, codes: list[Tensor]) -> Tensor:
        places = [*self.numbers, *(place for one in self.categories for place in one.positions)]
        back = torch.tensor(places, dtype=torch.int64, device=numbers.device).argsort()
        return torch.cat([numbers, *codes], 1)[:, back]


def row_parameters(space: Space, like: Tensor) -> RowParameters:
    """The parameters of rows of this table, with ranges of the type and on the device of `like`."""
    categories = tuple(one for one in space.columns if one.kind == "categorical" and len(one.codes) > 1)
    taken = {place for one in categories for place in one.positions}
    numbers = tuple(place for place in range(space.shape[0]) if place not in taken)
    low, high = space.bounds(like)
    return RowParameters(space.shape[0], numbers, categories, low[list(numbers)], high[list(numbers)])


def _key(column: Column) -> str:
    return f"category {column.name}"
