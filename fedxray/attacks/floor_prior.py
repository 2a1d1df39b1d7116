"""The floor as a prior: what is known without messages, combined with how well each answer fits the messages.

    P(answer) ~ P(answer without messages)^trust * exp(-weight * misfit),    weight = 1 / temperature

Both are fitted on what the attacker holds, never on the truth:
- attributes: the public records, whose values are known, get the same misfits. Trust and weight have the lowest log
  loss on them, with a prior from models that were fitted without the record. No client trained on them, so that the
  weight is rather too small where training records fit better than others.
- values sought together (from gradients), and labels: a shadow client, whose records the attacker knows, trains by the
  recipe from the models that were sent, and is attacked in the same way.
Both are at least LEAST, the weight in units of the misfits' spread: where the prior is even, the best fit decides, and
where all fit the same, the prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks import floors
from fedxray.attacks.base import Need, public_records
from fedxray.attacks.evidence import Evidence, of_attributes
from fedxray.seeds import uniform_like

Prior = Literal["none", "floor"]
PRIOR = "Knowledge without messages that is combined with them: none, or the probabilities of the floor."
LEAST, MOST = 1e-6, 1e3  # of the weight, in units of the misfits' spread
SWEEPS, HALVINGS = 12, 40  # over trust and weight, and of the bisection for each
EVEN = 0.1  # share of an even guess in the prior of numbers


def needs_of(prior: Prior, *more: Need) -> tuple[Need, ...]:
    """Return the needs that this setting adds."""
    return (public_records(), *more) if prior == "floor" else ()


def grants_of(prior: Prior, *more: str) -> tuple[str, ...]:
    """Return the grants that this setting adds."""
    return ("public-records", *more) if prior == "floor" else ()


@dataclass(frozen=True, kw_only=True)
class Weights:
    """How much the log prior and the misfits count."""

    trust: float
    weight: float


def combined(known: Tensor, misfits: Tensor, by: Weights) -> Tensor:
    """Return the log posterior up to a constant, of log priors and misfits, both float64 [records, answers]."""
    return by.trust * known - by.weight * misfits


def fitted(known: Tensor, misfits: Tensor, real: Tensor) -> Weights:
    """Return the weights with the lowest log loss of real answers [records], of log priors and misfits of all answers.

    The log loss is convex in both, so each is fitted in turn with the other held.
    """
    usable = torch.isfinite(misfits).all(1)
    known, misfits, real = known[usable], misfits[usable], real[usable]
    unit = spread(misfits)
    if unit == 0:
        return Weights(trust=1.0, weight=1.0)
    trust, weight, misfits = 1.0, 1.0, misfits / unit
    for _ in range(SWEEPS):
        weight = _best_factor(trust * known, misfits, real)
        trust = _best_factor(-weight * misfits, -known, real)
    return Weights(trust=trust, weight=weight / unit)


def _best_factor(held: Tensor, misfits: Tensor, real: Tensor) -> float:
    """Return the factor f with the lowest log loss of softmax(held - f misfits).

    Its slope, the mean of misfit(real) - E[misfit], rises with f: bisection finds its root.
    """
    reached, low, high = misfits.gather(1, real[:, None])[:, 0], LEAST, MOST
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        expected = (torch.softmax(held - middle * misfits, 1) * misfits).sum(1)
        low, high = (low, middle) if float((reached - expected).mean()) > 0 else (middle, high)
    return low


def spread(misfits: Tensor) -> float:
    """Return the mean over records of the standard deviation over answers; 0 without any record."""
    return float(misfits.std(1, unbiased=False).mean()) if len(misfits) else 0.0


# Attributes


@dataclass(frozen=True, kw_only=True)
class ValuePrior:
    """Log-probabilities of candidate values without messages, float64."""

    asked: Tensor  # [records, values] of the records in question
    public: Tensor  # [public, values] of public records, by models fitted without them
    real: Tensor  # [public] the candidate that is the public record's value


def of_values(view: View, candidates: Tensor) -> ValuePrior:
    """Return the probabilities of the imputation floor for these candidates [values, positions]."""
    column = view.space.column(view.space.sensitive or "")
    learn, guess = floors.other_columns(view)
    known = floors.known_records(view).x  # public records first, then those of a curious client
    granted = view.grants.public_records
    assert granted is not None
    real = (known[:, None, list(column.positions)] - candidates[None]).abs().sum(-1).argmin(1)
    if column.kind == "categorical":
        asked = floors.category_probabilities(learn, real, guess, len(candidates))
        public = _crossed_probabilities(learn, real, len(candidates))
    else:
        asked, public = _around_imputed(learn, known[:, list(column.positions)], guess, candidates)
    return ValuePrior(asked=asked.log(), public=public.log()[: len(granted)], real=real[: len(granted)])


def of_asked(view: View, candidates: Tensor) -> Tensor:
    """Return the probabilities of these candidates [values, positions] without messages, float64 [records, values].

    Without any public record all candidates are equally likely.
    """
    asked = view.grants.public_attributes
    assert asked is not None
    if not len(view.grants.public_records or ()):
        size = (len(asked.x), len(candidates))
        return torch.full(size, 1 / len(candidates), dtype=torch.float64, device=asked.x.device)
    column = view.space.column(view.space.sensitive or "")
    learn, guess = floors.other_columns(view)
    known = floors.known_records(view).x
    if column.kind == "categorical":
        return floors.category_probabilities(learn, floors.categories_of(known, column), guess, len(candidates))
    return _around_imputed(learn, known[:, list(column.positions)], guess, candidates)[0]


def _crossed_probabilities(learn: Tensor, real: Tensor, values: int) -> Tensor:
    """Return the probabilities of every public record's values, each by a model fitted without it."""
    seen, counts = torch.unique(real, return_counts=True)
    shares = torch.zeros((len(real), values), dtype=torch.float64, device=real.device)
    found = floors.out_of_fold(learn, real, "classes") if len(seen) > 1 else None
    shares[:, seen] = (
        counts.double() / len(real) if found is None else torch.as_tensor(found, device=real.device).to(shares)
    )
    return (shares * len(real) + 1) / (len(real) + values)


def _around_imputed(learn: Tensor, wanted: Tensor, guess: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return normal probabilities of candidate numbers around the imputed one, for asked and public records.

    The deviation is that of the errors on public records that were left out of the fit.
    """
    real, steps = wanted[:, 0].double(), candidates[:, 0].double()
    found = floors.out_of_fold(learn, wanted[:, 0], "values")
    public = real.mean().expand_as(real) if found is None else torch.as_tensor(found, device=real.device).to(real)
    error = (public - real).square().mean().sqrt().clamp(min=float((steps[-1] - steps[0]).abs()) / len(steps) / 2)
    imputed = floors.impute_value(learn, wanted, guess)[:, 0].double()
    asked, public = (torch.softmax(-(((one[:, None] - steps) / error) ** 2) / 2, 1) for one in (imputed, public))
    return tuple((1 - EVEN) * one + EVEN / len(steps) for one in (asked, public))  # type: ignore[return-value]


def drawn_values(prior: Tensor, generator: torch.Generator) -> Tensor:
    """Return values [records] drawn from these probabilities [records, values]."""
    return (uniform_like(prior[:, :1], generator) > prior.cumsum(1)[:, :-1]).sum(1)


def likeliest_values(candidates: Tensor, known: Tensor, misfits: Tensor, by: Weights, **more: Any) -> Evidence:
    """Return the candidates with the largest posterior, and those where all values are equally frequent."""
    scores = combined(known, misfits, by)
    ordered = scores.sort(1, descending=True).values
    fair = candidates[(scores - torch.softmax(by.trust * known, 1).mean(0).log()).argmax(1)]
    evidence = of_attributes(candidates[scores.argmax(1)], (ordered[:, 0] - ordered[:, 1]).to(candidates.dtype), **more)
    return replace(evidence, tensors={**evidence.tensors, "codes_balanced": fair})
