"""The six parameters of paper 002, as its Bayesian search tuned them for four cases (Table 3), and their ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedxray.federation.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of the last layer of each kind, of enhanced layers, and the shares of layers looked at for that.

    None as the weight of a last layer: as many as there are layers of its kind.
    """

    q_conv: float | None
    q_norm: float | None
    q_linear: float | None
    q_enhance: float
    p_mean: float
    p_var: float


def _tuned(*numbers: float) -> Weights:
    conv, norm, linear, enhance, mean, var = numbers
    return Weights(q_conv=conv, q_norm=norm, q_linear=linear, q_enhance=enhance, p_mean=mean, p_var=var)


PRESETS: dict[str, Weights] = {
    "case1": _tuned(519.19, 802.55, 42.83, 946.44, 0.24, 0.07),  # one epoch of one batch
    "case2": _tuned(236.31, 552.31, 54.28, 837.80, 0.11, 0.13),  # several epochs of one batch
    "case3": _tuned(547.17, 222.48, 394.39, 899.47, 0.31, 0.01),  # one epoch of several batches
    "case4": _tuned(655.98, 692.94, 283.42, 665.28, 0.40, 0.33),  # several of both
    "ramp": Weights(q_conv=None, q_norm=None, q_linear=None, q_enhance=1.0, p_mean=0.0, p_var=0.0),
    "none": _tuned(1.0, 1.0, 1.0, 1.0, 0.0, 0.0),
}
BY_CASE = "by-case"  # the tuned ones of the case at hand
RANGES: Mapping[str, tuple[float, float, str]] = {
    "q_conv": (1.0, 1000.0, "linear"),
    "q_norm": (1.0, 1000.0, "linear"),
    "q_linear": (1.0, 1000.0, "linear"),
    "q_enhance": (1.0, 1000.0, "linear"),
    "p_mean": (0.0, 0.5, "linear"),
    "p_var": (0.0, 0.5, "linear"),
}  # Table 2


def case_of(recipe: Recipe, examples: int) -> str:
    """Which of the paper's four cases a round of this client is."""
    epochs = recipe.epochs if recipe.kind == "weights" else 1
    batches = -(-examples // recipe.batch_length(examples))
    return {(False, False): "case1", (True, False): "case2", (False, True): "case3", (True, True): "case4"}[
        epochs > 1, batches > 1
    ]


def weights_of(preset: str, recipe: Recipe, examples: int) -> Weights:
    """The parameters of a preset for a round of this client."""
    return PRESETS[case_of(recipe, examples) if preset == BY_CASE else preset]
