"""A differentiable piece of work that keeps only what went in, and is done again when its derivative is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# Tensors in, tensors out; the second argument says whether the result must be differentiable.
Work = Callable[[Sequence[Tensor], bool], tuple[Tensor, ...]]


def checkpointed(work: Work, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What `work` makes of the tensors, with the same gradients (of first order), for the memory of one such piece."""
    found: tuple[Tensor, ...] = _Checkpoint.apply(work, *tensors)  # type: ignore[no-untyped-call]
    return found


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Do the work without a graph."""
        ctx.work = work
        ctx.save_for_backward(*tensors)
        found = tuple(one.detach() for one in work([one.detach() for one in tensors], False))
        ctx.mark_non_differentiable(*(one for one in found if not one.is_floating_point()))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """Do it again with a graph, and go back through it."""
        wanted = ctx.needs_input_grad[1:]
        leaves = [
            one.detach().requires_grad_(want) for one, want in zip(ctx.saved_tensors, wanted, strict=True)
        ]
        with torch.enable_grad():
            found = ctx.work(leaves, True)
        pairs = [(one, slope) for one, slope in zip(found, slopes, strict=True) if one.requires_grad]
        slopes_in = iter(
            torch.autograd.grad(
                [one for one, _ in pairs],
                [leaf for leaf, want in zip(leaves, wanted, strict=True) if want],
                [slope for _, slope in pairs],
                allow_unused=True,
            )
        )
        return None, *(next(slopes_in) if want else None for want in wanted)
