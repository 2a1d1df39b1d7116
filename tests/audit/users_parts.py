"""Defences and networks as users might write them: each is refused before anything runs, or runs as it should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedxray.data.dataset import Space
from fedxray.defences.base import Defence, Hooks, Kept, Work


@dataclass(frozen=True, kw_only=True)
class Own(Defence):
    """A defence with these hooks and words."""

    name: ClassVar[str] = "own"
    given: Any
    words: Any = "mine"

    def hooks(self, work: Work) -> Hooks:
        found: Hooks = self.given
        return found

    def describe(self) -> str:
        text: str = self.words
        return text


def _outgoing(change: Any) -> Defence:
    return Own(given=Hooks(outgoing=lambda update, state, generator: (change(update), state)))


def flat() -> Defence:
    return _outgoing(lambda update: {name: value.flatten() for name, value in update.items()})


def broken() -> Defence:
    return _outgoing(lambda update: 1 / 0)


def no_hooks() -> Defence:
    return Own(given=None)


def no_words() -> Defence:
    return Own(given=Hooks(), words=3)


def keeps_nothing_known() -> Defence:
    return Own(given=Hooks(kept=Kept(params=("nowhere.weight",))))


def ambient() -> Defence:
    """Draws as torch does, without the generator it is given."""

    def noisy(update: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value + torch.randn_like(value) for name, value in update.items()}

    return _outgoing(noisy)


def recurrent(space: Space) -> nn.Module:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.GRU(1, 2, batch_first=True), nn.Linear(2, space.outputs)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(self.cells(x[..., None])[0][:, -1])
            return found

    return Recurrent()


def running(space: Space) -> nn.Module:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.InstanceNorm1d(1, track_running_stats=True)
            self.head = nn.Linear(space.shape[0], space.outputs)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(self.norm(x[:, None])[:, 0])
            return found

    return Running()


def double(space: Space) -> nn.Module:
    return nn.Linear(space.shape[0], space.outputs).double()


def half(space: Space) -> nn.Module:
    return nn.Linear(space.shape[0], space.outputs).half()


class Copying(nn.Module):
    """A network that copies the first example of its batch into a buffer, beside one that no record changes."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, outputs)
        self.register_buffer("last", torch.zeros(width))
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.last.copy_(x[0].detach())
            self.steps.add_(1)
        found: Tensor = self.head(x * self.scale)
        return found


def copying(space: Space) -> nn.Module:
    return Copying(space.shape[0], space.outputs)


def flips() -> Defence:
    """Sends every update with its sign changed: it hides, and whoever knows it reads on."""
    return _outgoing(lambda update: {name: -value for name, value in update.items()})
