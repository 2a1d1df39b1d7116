"""The formula that the label attacks of Geng et al. and of DLF share: counts = N (p - G / O) along a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.aim import At, check_at, known_examples, observation_at
from fedxray.attacks.base import Context, Need, any_update, classification
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.labels.counts import evidence_of
from fedxray.attacks.labels.dummies import Statistics, statistics_of
from fedxray.attacks.labels.head import HeadGradient, head_bias, head_gradient, known_steps, linear_head
from fedxray.errors import BadInput

Source = Literal["rows", "bias"]


def estimate(
    view: View,
    context: Context,
    places: Callable[[int], Sequence[float]],
    *,
    samples: int,
    source: Source,
    at: At,
) -> Evidence:
    """Counts by the formula at the given places of the round, from the number of steps; 0 is its start, 1 its end."""
    gradient = head_gradient(view, at)
    along = places(gradient.steps)
    start = statistics_of(context, view, "start", samples, at)
    end = statistics_of(context, view, "end", samples, at) if any(along) else start
    raw = raw_counts(gradient, start, end, along, source)
    facts = {"source": source, "steps": gradient.steps, "round": observation_at(view, at).round,
             "examples": gradient.examples, "activation": [float(one.activation) for one in (start, end)]}  # fmt: skip
    return evidence_of(raw, gradient.examples, facts, _doubt(gradient, start, end, source))


def raw_counts(
    gradient: HeadGradient, start: Statistics, end: Statistics, along: Sequence[float], source: Source
) -> Tensor:
    """The mean of N (p - G / O) over places along the round [classes]; all steps weigh as in the update."""
    where = torch.tensor(along, dtype=start.prediction.dtype, device=start.prediction.device)[:, None]
    prediction = (1 - where) * start.prediction + where * end.prediction  # [places, classes]
    activation = (1 - where) * start.activation + where * end.activation  # [places, 1]
    if source == "bias":
        assert gradient.bias is not None
        share = prediction - gradient.bias
    else:
        share = prediction - gradient.rows.sum(1) / activation
    weights = gradient.pulls if len(along) == gradient.steps else torch.ones_like(where[:, 0])
    return gradient.examples * (weights / weights.sum()) @ share


def needs_of_formula(source: Source, at: At) -> tuple[Need, ...]:
    """An update with a linear head, how it was made and on how many examples; for the bias form, one with a bias."""
    needs = (any_update(), classification(), known_examples(at), linear_head(), known_steps(at))
    return (*needs, head_bias('source = "rows"')) if source == "bias" else needs


def check_settings(samples: int, source: str, at: str) -> None:
    """Check the settings that all of them have."""
    check_at(at)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise BadInput(
            "samples", expected="a whole number of at least 2", got=repr(samples), remedy="Try 3000."
        )
    if source not in ("rows", "bias"):
        raise BadInput("source", expected='"rows" or "bias"', got=repr(source), remedy='Try "rows".')


def _doubt(gradient: HeadGradient, start: Statistics, end: Statistics, source: Source) -> str:
    """Why the formula cannot tell, or nothing."""
    if not bool(gradient.rows.any()):
        return "the last layer did not change"
    same_side = bool(start.activation.sign() == end.activation.sign())
    if source == "rows" and not (start.clear and end.clear and same_side):
        return "what enters the last layer sums to about zero, by which the formula divides"
    return ""
