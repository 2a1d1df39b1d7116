"""Settings stated at the field or argument: what is allowed, how it is refused, how it is listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from fedxray.errors import BadInput
from fedxray.settings import REQUIRED, Setting, allowed_values, check_arguments, check_fields, setting, settings_of


@dataclass(frozen=True, kw_only=True)
class Example:
    scale: float = setting(REQUIRED, "Required.", least=0, example=0.5)
    steps: int = setting(400, "Steps.", least=1, most=1000)
    rate: float = setting(0.1, "Rate.", above=0, most=1e6)
    share: float | None = setting(None, "Share.", least=0, below=1)
    limit: float = setting(1.0, "May be infinite.", least=0, finite=False)
    betas: tuple[float, float] = setting((0.9, 0.999), "Betas.", least=0, below=1)
    rates: tuple[float, ...] = setting((1.0,), "Rates.", above=0, fewest=1)
    mode: Literal["pairs", "drawn"] | None = setting("pairs", "Mode.")
    match: str = setting("l2", "Distance.", choices=("l1", "l2"))
    box: bool = setting(True, "Box.")
    even: int = setting(2, "Even.", check=lambda value: refuse_odd(value))
    made: list[int] = setting(list, "Made for every object.")
    unexplained: int = 3

    def __post_init__(self) -> None:
        check_fields(self)


def refuse_odd(value: int) -> None:
    if value % 2:
        raise BadInput("even", expected="an even number", got=value, remedy="Try 2.")


def function(
    *, width: Annotated[int, Setting("Width.", least=1)] = 3, sizes: Annotated[Sequence[int], Setting("S.")] = (1,)
) -> None:
    """A function with settings."""


ALLOWED: list[dict[str, Any]] = [
    {},
    {"steps": 1, "rate": 1e6, "share": 0, "limit": float("inf"), "betas": [0.0, 0.5], "mode": None},
    {"mode": "drawn", "match": "l1", "box": False, "share": None, "rates": (1e-9, 5), "unexplained": "anything"},
]


@pytest.mark.parametrize("values", ALLOWED)
def test_allowed_values_pass(values: dict[str, Any]) -> None:
    check_fields(Example(scale=1, **values))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scale": -1}, "scale: expected a number of at least 0, got -1. Try scale = 0.5."),
        ({"scale": float("nan")}, "got nan"),
        ({"scale": float("inf")}, "got inf"),
        ({"limit": float("nan")}, "got nan"),
        ({"steps": 0}, "a whole number from 1 to 1,000, got 0. Try steps = 400."),
        ({"steps": 2.0}, "a whole number"),
        ({"steps": True}, "a whole number"),
        ({"rate": 0}, "a number above 0 and up to 1e+06"),
        ({"rate": 10**400}, "a number above 0 and up to 1e+06"),
        ({"rate": "fast"}, "got 'fast'"),
        ({"share": 1.0}, "a number of at least 0 and below 1, got 1.0. Leave it out."),
        ({"betas": (0.9,)}, "betas"),
        ({"betas": (0.9, 1.0)}, "got [0.9, 1.0]. Try betas = [0.9, 0.999]."),
        ({"rates": ()}, "a list of at least 1"),
        ({"rates": 1.0}, "a list of at least 1"),
        ({"mode": "pair"}, "one of 'pairs', 'drawn', got 'pair'. Did you mean pairs?"),
        ({"match": "cosine"}, "one of 'l1', 'l2'"),
        ({"box": 1}, "true or false"),
        ({"even": 3}, "an even number"),
    ],
)
def test_other_values_are_refused_with_a_remedy(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Example(**{"scale": 1.0, **values})
    assert words in str(caught.value)


def test_settings_are_listed_with_default_meaning_and_range() -> None:
    listed = {one.name: one for one in settings_of(Example)}
    assert list(listed)[:3] == ["scale", "steps", "rate"]
    assert listed["scale"].default is REQUIRED and listed["made"].default == []
    assert listed["unexplained"].setting.sentence == ""
    assert allowed_values(listed["betas"].setting, listed["betas"].hint).startswith("[a number of at least 0")
    assert allowed_values(listed["share"].setting, float | None) == "a number of at least 0 and below 1"


def test_arguments_of_a_function_are_listed_and_checked() -> None:
    width, sizes = settings_of(function)
    assert (width.default, width.setting.sentence, sizes.default) == (3, "Width.", (1,))
    check_arguments(function, {"width": 5, "sizes": [1, 2], "other": 0})
    with pytest.raises(BadInput, match="of at least 1, got 0"):
        check_arguments(function, {"width": 0})
    with pytest.raises(BadInput, match="a list, each a whole number"):
        check_arguments(function, {"sizes": [1.5]})


def test_a_class_inside_a_function_is_checked_by_its_defaults() -> None:
    """Its annotations may name types that nothing outside the function knows."""

    class Unknown:
        pass

    @dataclass(frozen=True, kw_only=True)
    class Local:
        steps: int = setting(3, "Steps.", least=1)
        other: Unknown | None = None

    check_fields(Local(steps=2))
    with pytest.raises(BadInput, match="steps: expected a whole number of at least 1, got 0"):
        check_fields(Local(steps=0))
