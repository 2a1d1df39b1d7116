"""Penalties on guessed inputs: tensors in, a scalar out, pure and differentiable."""

from __future__ import annotations

from fedxray.priors.penalties import box_penalty, clip, l2, squared_total_variation, total_variation

__all__ = ["box_penalty", "clip", "l2", "squared_total_variation", "total_variation"]
