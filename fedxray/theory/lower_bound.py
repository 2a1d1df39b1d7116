"""A client whose model no adversary can know before d messages (papers 000 Prop. 2 and 003 Prop. 3).

From theta(0) = 0, with one full-batch step per round, the client's curvature hands each round's change on to
one more parameter, and the other clients (X = I, y = 0) only shrink it; so the last parameter's curvature
stays unseen for d - 1 rounds.

Corrections: the matrix of 000's footnote 9 is the Cholesky factor L with H = L L', so the design matrix is
its transpose; after round t the client's model has t + 1 entries that are not zero and the server's, before
it, t (Eq. 24 is off by one).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedxray.errors import BadInput


def hard_curvature(parameters: int, *, like: Tensor) -> Tensor:
    """H [d, d]: 1 on the diagonal, -1/2 beside it."""
    if parameters < 1:
        raise BadInput("parameters", expected="at least 1", got=parameters, remedy="Try 5.")
    ones = torch.ones(parameters, dtype=like.dtype, device=like.device)
    return torch.diag(ones) - (torch.diag(ones[1:], 1) + torch.diag(ones[1:], -1)) / 2


def hard_client(parameters: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Records x [d, d], y [d] with x'x = H and x'y = (1/2, 0, ..., 0)."""
    factor = torch.linalg.cholesky(hard_curvature(parameters, like=like))
    wanted = torch.zeros(parameters, 1, dtype=like.dtype, device=like.device)
    wanted[0] = 0.5
    return factor.T, torch.linalg.solve_triangular(factor, wanted, upper=False)[:, 0]


def twin_client(parameters: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Records [d, d], [d] that no one can tell from the hard client's in the first d - 1 rounds: H without its end."""
    x, y = hard_client(parameters - 1, like=like)
    wide = torch.zeros(parameters, parameters, dtype=like.dtype, device=like.device)
    wide[:-1, :-1] = x
    return wide, torch.cat([y, torch.zeros_like(y[:1])])


def idle_client(parameters: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Any other client: x = I, y = 0."""
    eye = torch.eye(parameters, dtype=like.dtype, device=like.device)
    return eye, torch.zeros_like(eye[0])


def hard_optimum(parameters: int, *, like: Tensor) -> Tensor:
    """The hard client's own optimum 1 - i / (d + 1), shape [d]."""
    steps = torch.arange(1, parameters + 1, dtype=like.dtype, device=like.device)
    return 1 - steps / (parameters + 1)
