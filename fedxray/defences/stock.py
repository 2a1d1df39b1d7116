"""Filters that NVFlare 2.9 and mods that Flower 1.41 ship, by their own formulas, settings and defaults.

Notation: u is the update as one vector, n its length, s the local steps by which NVFlare divides it where the training
script reports them (else 1), Lap(b) Laplace noise of scale b.
    nvflare-percentile        v = u/s; entries below the percentile of |v| become 0; the rest, cut to +-gamma, times s
    nvflare-svt               k = ceil(fraction n) entries are chosen by noisy comparisons with a noisy threshold;
                              of these (v cut to +-gamma) + Lap(2 gamma/noise_var), times s, is sent, the rest is 0
    nvflare-exclude           tensors whose name matches are not sent
    flower-local-dp           u min(1, clip/|u|) + N(0, std^2), std = sensitivity sqrt(2 ln(1.25/delta))/epsilon
    flower-fixed-clipping     u min(1, clip/|u|)
    flower-adaptive-clipping  the same; after a round clip *= exp(-rate (share of clipped updates - quantile))
    flower-secagg             u up or down to a multiple of 2 range max_weight/(levels examples), right on average
Updates are what the filters get with NVFlare's WEIGHT_DIFF; Flower's noise on weights is noise on updates. The noise
that Flower's server adds to a mean is not part of them: the server has seen the updates by then. With FedSGD an update
is a gradient, 1/learning rate times that difference: simulate FedAvg with one step to see what a filter does to it.
Running statistics of BatchNorm layers pass, where the frameworks filter the whole state. SecAgg+ also cuts weights
beyond range max_weight / examples, 80 for 100 examples by default, which no update shows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedxray.defences.base import Clipped, Defence, Hooks, KnownDefence, Work, stateless
from fedxray.defences.noise import laplace_like
from fedxray.errors import BadInput
from fedxray.params import Params, is_finite
from fedxray.seeds import normal_like, uniform_like
from fedxray.settings import REQUIRED, setting

MOST_PASSES = 10_000  # over all entries, until enough are chosen
STEPS_REPORTED = "Whether the training script reports its local steps, by which NVFlare divides the update."
ROUNDING = 1e-3  # relative, of a clipped length
TINY = 1e-200  # of a squared length
LEAST_NORM, MOST_NORM = 1e-90, 1e90  # beyond which nothing, or everything, passes
CLIPPING_NORM = "Largest Euclidean norm of an update."


# NVFlare


@dataclass(frozen=True, kw_only=True)
class NvflarePercentile(Defence):
    """NVFlare's PercentilePrivacy: the smallest entries of an update become zero, the others are cut to a range."""

    name: ClassVar[str] = "nvflare-percentile"

    percentile: float = setting(10.0, "Per cent of all entries that become zero.", least=0, most=100)
    gamma: float = setting(0.01, "Largest magnitude of an entry for each local step.", above=0)
    steps_reported: bool = setting(True, STEPS_REPORTED)

    def hooks(self, work: Work) -> Hooks:
        """Cut the update; an attacker that knows it replays the range and matches entries that are left."""
        steps = work.steps if self.steps_reported else 1

        def filtered(update: Params, generator: torch.Generator) -> dict[str, Tensor]:
            if not is_finite(update):  # of a training that diverges
                return dict(update)
            magnitudes = torch.cat([value.detach().abs().flatten() for value in update.values()])
            cutoff = percentile(magnitudes, self.percentile)
            kept = {name: value * (value.detach().abs() >= cutoff) for name, value in update.items()}
            return _except_scalars(update, within(kept, self.gamma * steps))

        in_range = stateless(lambda update, _: _except_scalars(update, within(update, self.gamma * steps)))
        return Hooks(outgoing=stateless(filtered), known=KnownDefence(replay=Hooks(outgoing=in_range), cut=True))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"NVFlare's PercentilePrivacy: {self.percentile:g} % of the entries zero, the rest cut to {self.gamma:g}"


def percentile(values: Tensor, percent: float) -> Tensor:
    """Return a percentile of a vector by linear interpolation, as NumPy's; `torch.quantile` refuses long vectors."""
    ordered, place = values.sort().values, (len(values) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def within(update: Params, most: float) -> dict[str, Tensor]:
    """Return entries cut to plus or minus `most`."""
    return {name: value.clamp(-most, most) for name, value in update.items()}


def _except_scalars(before: Params, after: Params) -> dict[str, Tensor]:
    """Return the changed tensors, but scalars as they were: NVFlare passes them on."""
    return {name: after[name] if before[name].ndim else before[name] for name in before}


@dataclass(frozen=True, kw_only=True)
class NvflareSvt(Defence):
    """NVFlare's SVTPrivacy: few entries are chosen by noisy comparisons, cut to a range and sent with Laplace noise."""

    name: ClassVar[str] = "nvflare-svt"

    fraction: float = setting(0.1, "Share of the entries that are chosen.", above=0, most=1)
    epsilon: float = setting(0.1, "Privacy budget of the choice alone.", above=0)
    noise_var: float = setting(0.1, "Privacy budget of each value that is sent.", above=0)
    gamma: float = setting(1e-5, "Largest magnitude of an entry for each local step.", above=0)
    tau: float = setting(1e-6, "Threshold of the choice before noise.", least=0)
    steps_reported: bool = setting(True, STEPS_REPORTED)

    def hooks(self, work: Work) -> Hooks:
        """Choose entries and add noise; an attacker that knows it matches what was sent.

        The range is not replayed: it is so narrow that a replayed update would hardly depend on the records.
        """
        steps = work.steps if self.steps_reported else 1

        def filtered(update: Params, generator: torch.Generator) -> dict[str, Tensor]:
            if not is_finite(update):  # of a training that diverges
                return dict(update)
            names = sorted(update)
            flat = torch.cat([update[name].double().flatten() for name in names]) / steps
            sizes = [update[name].numel() for name in names]
            pieces = (self._sent(flat, generator) * steps).split(sizes)
            shaped = {name: piece.reshape(update[name].shape) for name, piece in zip(names, pieces, strict=True)}
            return _except_scalars(update, {name: shaped[name].to(update[name]) for name in update})

        variance = 2 * (2 * self.gamma / self.noise_var * steps) ** 2
        return Hooks(outgoing=stateless(filtered), known=KnownDefence(cut=True, update_variance=variance))

    def _sent(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Return the entries [entries] that are sent, zero where they are not."""
        count = min(math.ceil(len(values) * self.fraction), len(values))
        threshold_budget = self.epsilon / (1 + (2 * count) ** (2 / 3))
        query = 2 * self.gamma * count / (self.epsilon - threshold_budget)
        cut = values.clamp(-self.gamma, self.gamma)
        threshold = self.tau + self.gamma / threshold_budget * laplace_like(values[:1], generator)
        accepted = torch.zeros_like(values, dtype=torch.bool)
        for _ in range(MOST_PASSES):
            if int(accepted.sum()) >= count:
                break
            accepted |= cut.abs() + query * laplace_like(values, generator) >= threshold
        else:
            expected, got = "a threshold that entries reach", f"too few after {MOST_PASSES} passes, as in NVFlare"
            raise BadInput("defence.tau", expected=expected, got=got, remedy="Lower tau, or raise gamma.")
        places = accepted.nonzero().flatten()
        drawn = torch.randint(len(places), (count,), generator=generator, device="cpu")  # with replacement
        chosen = places[drawn.to(places.device)]
        noise = 2 * self.gamma / self.noise_var * laplace_like(values[:count], generator)
        return torch.zeros_like(values).index_put((chosen,), cut[chosen] + noise)

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        share, budget = f"{100 * self.fraction:g} % of the entries", f"{self.epsilon:g}"
        return f"NVFlare's SVTPrivacy: {share}, cut to {self.gamma:g}, with Laplace noise; epsilon {budget} as stated"


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        remedy = 'For instance "^bn" or "bias$".'
        raise BadInput("names", expected="a regular expression", got=f"{pattern!r}: {error}", remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class NvflareExclude(Defence):
    """NVFlare's ExcludeVars: tensors whose name matches are not sent, so that the server keeps its own."""

    name: ClassVar[str] = "nvflare-exclude"

    names: str = setting(
        REQUIRED, "Regular expression that the names of the tensors match somewhere.", check=_check_pattern,
        example="bias",
    )  # fmt: skip

    def hooks(self, work: Work) -> Hooks:
        """Send zeros for these tensors; an attacker that knows it does not match them."""

        def filtered(update: Params, generator: torch.Generator) -> dict[str, Tensor]:
            hidden = re.compile(self.names).search
            return {name: torch.zeros_like(value) if hidden(name) else value for name, value in update.items()}

        without = stateless(filtered)
        return Hooks(outgoing=without, known=KnownDefence(replay=Hooks(outgoing=without)))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"NVFlare's ExcludeVars: tensors with names like {self.names!r} are not sent"


# Flower


def clipped(update: Params, norm: float) -> dict[str, Tensor]:
    """Return an update scaled down to this Euclidean norm over all tensors, where it is longer."""
    square = torch.stack([value.double().square().sum() for value in update.values()]).sum()
    factor = (norm / square.clamp(min=TINY).sqrt()).clamp(max=1.0)
    return {name: value * factor.to(value) for name, value in update.items()}


@dataclass(frozen=True, kw_only=True)
class FlowerLocalDp(Defence):
    """Flower's LocalDpMod: the update is clipped, then every entry gets normal noise for the stated sensitivity."""

    name: ClassVar[str] = "flower-local-dp"

    clipping_norm: float = setting(REQUIRED, CLIPPING_NORM, above=0, example=1.0)
    sensitivity: float = setting(REQUIRED, "Sensitivity that the noise is meant for.", least=0, example=1e-4)
    epsilon: float = setting(REQUIRED, "Stated privacy budget of a round.", above=0, example=10.0)
    delta: float = setting(REQUIRED, "Stated failure probability.", above=0, below=1, example=1e-5)

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the noise."""
        return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def hooks(self, work: Work) -> Hooks:
        """Clip and add noise; an attacker that knows it replays the clipping."""

        def noisy(update: Params, generator: torch.Generator) -> dict[str, Tensor]:
            short = clipped(update, self.clipping_norm)
            return {name: value + self.deviation * normal_like(value, generator) for name, value in short.items()}

        replay = Hooks(outgoing=stateless(lambda update, _: clipped(update, self.clipping_norm)))
        return Hooks(outgoing=stateless(noisy), known=KnownDefence(replay=replay, update_variance=self.deviation**2))

    def clip_of(self, what: Clipped) -> float | None:
        """Return the norm of updates."""
        return self.clipping_norm if what == "updates" else None

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        noise = f"noise of standard deviation {self.deviation:.3g}"
        return f"Flower's LocalDpMod: clipping to {self.clipping_norm:g}, {noise}; epsilon {self.epsilon:g} as stated"


@dataclass(frozen=True, kw_only=True)
class FlowerFixedClipping(Defence):
    """Flower's fixedclipping_mod: an update longer than the norm is scaled down to it."""

    name: ClassVar[str] = "flower-fixed-clipping"

    clipping_norm: float = setting(REQUIRED, CLIPPING_NORM, above=0, example=1.0)

    def hooks(self, work: Work) -> Hooks:
        """Clip; an attacker that knows it replays the clipping."""
        clip = stateless(lambda update, _: clipped(update, self.clipping_norm))
        return Hooks(outgoing=clip, known=KnownDefence(replay=Hooks(outgoing=clip)))

    def clip_of(self, what: Clipped) -> float | None:
        """Return the norm of updates."""
        return self.clipping_norm if what == "updates" else None

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"Flower's fixedclipping_mod: clipping to {self.clipping_norm:g}"


@dataclass(frozen=True, kw_only=True)
class FlowerSecagg(Defence):
    """Flower's SecAgg+: how it rounds replies; use it with `secure_aggregation = true`."""

    name: ClassVar[str] = "flower-secagg"

    clipping_range: float = setting(8.0, "Largest magnitude of a weighted entry.", above=0)
    quantization_range: int = setting(4_194_304, "Number of values between minus and plus that magnitude.", least=1)
    max_weight: float = setting(1000.0, "Largest number of examples that is expected.", above=0)

    def hooks(self, work: Work) -> Hooks:
        """Round; an attacker that knows it knows the variance, at most a quarter of the squared step."""
        step = 2 * self.clipping_range * self.max_weight / (self.quantization_range * max(1, work.examples))

        def rounded(update: Params, generator: torch.Generator) -> dict[str, Tensor]:
            return {
                name: ((value.double() / step + uniform_like(value.double(), generator)).floor() * step).to(value.dtype)
                for name, value in update.items()
            }

        return Hooks(outgoing=stateless(rounded), known=KnownDefence(update_variance=step**2 / 4))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"rounding of Flower's SecAgg+: {self.quantization_range:,} values from -{self.clipping_range:g} up"


@dataclass(frozen=True, kw_only=True)
class FlowerAdaptiveClipping(Defence):
    """Flower's adaptiveclipping_mod: as fixed clipping, by a norm that changes with the share of clipped updates.

    As measured with Flower 1.41, the norm falls while most updates are clipped.
    """

    name: ClassVar[str] = "flower-adaptive-clipping"

    initial_clipping_norm: float = setting(0.1, "Largest Euclidean norm of an update in the first round.", above=0)
    target_clipped_quantile: float = setting(0.5, "Share of updates that are to be clipped.", least=0, most=1)
    clip_norm_lr: float = setting(0.2, "Rate at which the norm changes.", above=0, most=100)

    def hooks(self, work: Work) -> Hooks:
        """Clip by the present norm; no attack here reads the norm of a round, so none counts as knowing it."""
        return Hooks(outgoing=stateless(lambda update, _: clipped(update, self.initial_clipping_norm)))

    def adapts(self) -> bool:
        """Return that the norm changes."""
        return True

    def after_round(self, updates: Sequence[Params]) -> Defence:
        """Return this defence with the norm of the next round, by the replies of this one."""
        lengths = [
            float(torch.stack([value.double().square().sum() for value in update.values()]).sum().sqrt())
            for update in updates
        ]
        # Clipped updates have the norm itself as their length, up to rounding.
        share = sum(length >= self.initial_clipping_norm * (1 - ROUNDING) for length in lengths) / len(lengths)
        factor = math.exp(-self.clip_norm_lr * (share - self.target_clipped_quantile))
        return replace(self, initial_clipping_norm=min(max(self.initial_clipping_norm * factor, LEAST_NORM), MOST_NORM))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"Flower's adaptiveclipping_mod: clipping to {self.initial_clipping_norm:g} in the first round"
