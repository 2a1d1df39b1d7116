"""Settings of attacks, defences, restorers and networks: default, meaning and allowed values, stated once.

A class states a setting as a field:      steps: int = setting(400, "Optimisation steps.", least=1)
A function as a keyword argument:         width: Annotated[int, Setting("Channels.", least=1)] = 32
Allowed words come from a `Literal` annotation or from `choices`. `check_fields` and `check_arguments` refuse values
that are not allowed; `settings_of` lists all settings of a class or function for the command line and the docs.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fedxray.errors import BadInput

REQUIRED = MISSING  # as the default of a setting: it has none
NOTHING = type(None)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Setting:
    """The meaning of a setting and the values it may have; bounds hold for every number of a list.

    `check` is called with a value whose type and range are fine, and raises BadInput; `example` is a value to suggest
    where there is no default.
    """

    sentence: str = ""
    _: KW_ONLY
    least: float | None = None  # inclusive bounds
    most: float | None = None
    above: float | None = None  # exclusive bounds
    below: float | None = None
    finite: bool = True
    fewest: int = 0  # entries of a list
    choices: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None
    example: object = None
    later: bool = False  # than stored results: at its default it is left out of identities, which so stay theirs


UNEXPLAINED = Setting()


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One setting of a class or function: its name, annotation, default (REQUIRED for none) and explanation."""

    name: str
    hint: Any
    default: Any
    setting: Setting


def setting(default: Any, sentence: str, **allowed: Any) -> Any:
    """Return a dataclass field with this default, meaning and allowed values (see `Setting`).

    A class as the default is called for every object; REQUIRED makes the setting one that must be given.
    """
    metadata = {"setting": Setting(sentence, **allowed)}
    if isinstance(default, type) and default is not REQUIRED:
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(entry: Any) -> list[Listed]:
    """Return the settings of a dataclass (its fields) or of a function (its keyword-only arguments), in order."""
    if isinstance(entry, type) and is_dataclass(entry):
        hints = _hints(entry)
        return [
            Listed(
                name=one.name,
                hint=hints.get(one.name, type(one.default)),
                default=one.default if one.default_factory is MISSING else one.default_factory(),
                setting=one.metadata.get("setting", UNEXPLAINED),
            )
            for one in fields(entry)
        ]
    if not inspect.isfunction(entry):
        return []
    annotated = get_type_hints(entry, include_extras=True)
    arguments = inspect.signature(entry).parameters.values()
    return [_argument(one, annotated[one.name]) for one in arguments if one.kind is one.KEYWORD_ONLY]


def _hints(entry: type[Any]) -> dict[str, Any]:
    """Return the annotations of a class; none where they name something that only its author's function knows."""
    try:
        return get_type_hints(entry)
    except NameError:
        return {}


def _argument(parameter: inspect.Parameter, annotated: Any) -> Listed:
    hint, explained = annotated, UNEXPLAINED
    if get_origin(annotated) is Annotated:
        hint, explained = annotated.__origin__, annotated.__metadata__[0]
    default = REQUIRED if parameter.default is parameter.empty else parameter.default
    return Listed(name=parameter.name, hint=hint, default=default, setting=explained)


_listed: Callable[[Any], list[Listed]] = functools.cache(settings_of)


def check_fields(owner: Any) -> None:
    """Refuse an object one of whose fields holds a value that its setting does not allow."""
    if any("setting" in one.metadata for one in fields(owner)):
        for listed in _listed(type(owner)):
            _check(listed, getattr(owner, listed.name))


def check_arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Refuse keyword arguments of a function that its annotations do not allow; unknown names are not looked at."""
    for listed in _listed(function):
        if listed.name in values:
            _check(listed, values[listed.name])


def checked(function: F) -> F:
    """Decorate a function so that its keyword arguments are checked whenever it is called."""

    @functools.wraps(function)
    def call(*positional: Any, **values: Any) -> Any:
        check_arguments(function, values)
        return function(*positional, **values)

    return cast(F, call)


def _check(listed: Listed, value: Any) -> None:
    rule = listed.setting
    if rule is UNEXPLAINED:
        return
    if not _is_allowed(rule, listed.hint, value):
        expected = allowed_values(rule, listed.hint) or str(listed.hint)
        raise BadInput(listed.name, expected=expected, got=_shown(value), remedy=_remedy(listed, value))
    if rule.check is not None:
        rule.check(value)


def _is_allowed(rule: Setting, hint: Any, value: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is_allowed(rule, member, value) for member in arguments)
    if hint is NOTHING:
        return value is None
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in arguments)
    if hint in (int, float):
        number = int if hint is int else int | float
        return isinstance(value, number) and not isinstance(value, bool) and _is_within(rule, value)
    if origin in (tuple, list, Sequence):
        if not isinstance(value, list | tuple):
            return False
        fixed = origin is tuple and Ellipsis not in arguments
        members = arguments if fixed else arguments[:1] * len(value)
        fits = len(members) == len(value) >= rule.fewest
        return fits and all(map(functools.partial(_is_allowed, rule), members, value))
    if hint in (bool, str) and not isinstance(value, hint):
        return False
    return not rule.choices or value in rule.choices


def _is_within(rule: Setting, value: float) -> bool:
    """Return whether a number is finite, unless it need not be, and inside all bounds that are set."""
    return (
        # By comparison: math.isfinite overflows on whole numbers beyond the range of floats.
        (-math.inf < value < math.inf if rule.finite else value == value)
        and (rule.least is None or value >= rule.least)
        and (rule.most is None or value <= rule.most)
        and (rule.above is None or value > rule.above)
        and (rule.below is None or value < rule.below)
    )


def allowed_values(rule: Setting, hint: Any) -> str:
    """Return what a setting accepts in words; empty for types without words here, such as an attack."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [allowed_values(rule, member) for member in arguments if member is not NOTHING]
        return " or ".join(members) if all(members) else ""
    if origin is Literal or rule.choices:
        return "one of " + ", ".join(map(repr, rule.choices or arguments))
    if hint in (int, float):
        return f"{'a whole number' if hint is int else 'a number'}{_range(rule)}"
    if origin in (tuple, list, Sequence):
        if origin is tuple and Ellipsis not in arguments:
            return f"[{', '.join(allowed_values(rule, member) for member in arguments)}]"
        return f"a list{_at_least(rule.fewest)}, each {allowed_values(rule, arguments[0])}"
    return {bool: "true or false", str: "a text"}.get(hint, "")


def _at_least(fewest: int) -> str:
    return f" of at least {fewest}" if fewest else ""


def _range(rule: Setting) -> str:
    if rule.least is not None and rule.most is not None:
        return f" from {_number(rule.least)} to {_number(rule.most)}"
    bounds = (("of at least", rule.least), ("above", rule.above), ("up to", rule.most), ("below", rule.below))
    parts = [f"{words} {_number(bound)}" for words, bound in bounds if bound is not None]
    return f" {' and '.join(parts)}" if parts else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _remedy(listed: Listed, value: Any) -> str:
    choices = listed.setting.choices or _literals(listed.hint)
    if choices and isinstance(value, str):
        near = difflib.get_close_matches(value, choices, n=1, cutoff=0.5)
        if near:
            return f"Did you mean {near[0]}?"
    usual = listed.default if listed.setting.example is None else listed.setting.example
    if usual is None:
        return "Leave it out."
    return "Give it a value." if usual is REQUIRED else f"Try {listed.name} = {_shown(usual)}."


def _literals(hint: Any) -> tuple[str, ...]:
    """Return the words that a Literal annotation allows, alone or in a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(word for member in get_args(hint) for word in _literals(member))
    return ()


def _shown(value: Any) -> str:
    """Return a value as a plan would write it, cut where it is long."""
    text = str(value).lower() if isinstance(value, bool) else repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."
