"""Settings of a plan become fields of a frozen dataclass, each checked against its annotation."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedxray.errors import BadInput, unknown_key

SubAttack = Callable[[Any, str], Any]
OTHERWISE = {"lr": "learning_rate"}  # what an optimiser calls a setting -> what most attacks call it
NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class UnfitError(Exception):
    """A value does not fit its annotation; carries what would."""


def fill_fields(cls: type, settings: Mapping[str, Any], argument: str, sub_attack: SubAttack) -> Any:
    """An object of a settings dataclass from plain values, or BadInput that names the field."""
    known = {one.name: one for one in fields(cls) if one.init}
    hints = get_type_hints(cls)
    filled: dict[str, Any] = {}
    for key, value in settings.items():
        place = f"{argument}.{key}"
        if key not in known:
            raise unknown_key(place, key, known, of=getattr(cls, "name", cls.__name__))
        try:
            filled[key] = fit(hints[key], value, place, sub_attack)
        except UnfitError as error:
            raise BadInput(
                place, expected=str(error), got=repr(value), remedy=_default_remedy(known[key])
            ) from None
    missing = [name for name, one in known.items() if name not in filled and not _has_default(one)]
    if missing:
        raise BadInput(
            f"{argument}.{missing[0]}",
            expected=describe(hints[missing[0]]),
            got="nothing",
            remedy=f"Give {missing[0]} a value.",
        )
    try:
        return cls(**filled)
    except BadInput as error:
        inner = error.argument if error.argument in known else OTHERWISE.get(error.argument, error.argument)
        raise error.at(f"{argument}.{inner}") from error


def fit(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    """The value as its annotation wants it, or UnfitError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _fit_union(hint, value, place, sub_attack)
    if origin is Literal:
        return _accept(any(value == one and type(value) is type(one) for one in arguments), value, hint)
    if hint in (bool, str):
        return _accept(isinstance(value, hint), value, hint)
    if hint is int:
        return _accept(isinstance(value, int) and not isinstance(value, bool), value, hint)
    if hint is float:
        _accept(isinstance(value, int | float) and not isinstance(value, bool), value, hint)
        return float(value)
    if hint is type(None):
        return _accept(value is None, value, hint)
    if origin in (tuple, list, Sequence):
        return _fit_sequence(origin, arguments, hint, value, place, sub_attack)
    if origin in (dict, Mapping):
        _accept(isinstance(value, Mapping), value, hint)
        return {key: fit(arguments[1], inner, f"{place}.{key}", sub_attack) for key, inner in value.items()}
    return _fit_object(hint, value, place, sub_attack)


def _fit_object(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    if _is_attack(hint):
        made = value if isinstance(value, hint) else sub_attack(value, place)
        return _accept(isinstance(made, hint), made, hint)
    if is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        _accept(isinstance(value, Mapping), value, hint)
        return fill_fields(hint, value, place, sub_attack)
    raise TypeError(f"{place}: a setting cannot be annotated as {hint!r}")


def _fit_union(hint: Any, value: Any, place: str, sub_attack: SubAttack) -> Any:
    """The first member that takes the value; sub-attacks last, so that their own message is seen."""
    for member in sorted(
        get_args(hint), key=lambda one: (_is_attack(one) or is_dataclass(one), one is not type(value))
    ):
        try:
            return fit(member, value, place, sub_attack)
        except UnfitError:
            continue
    raise UnfitError(describe(hint))


def _fit_sequence(
    origin: Any, arguments: Any, hint: Any, value: Any, place: str, sub_attack: SubAttack
) -> Any:
    _accept(isinstance(value, list | tuple), value, hint)
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        _accept(len(value) == len(arguments), value, hint)
        members = list(arguments)
    else:
        members = [arguments[0]] * len(value)
    inner = [
        fit(member, one, f"{place}[{index}]", sub_attack)
        for index, (member, one) in enumerate(zip(members, value, strict=True))
    ]
    return inner if origin is list else tuple(inner)


def _accept(right: bool, value: Any, hint: Any) -> Any:
    if not right:
        raise UnfitError(describe(hint))
    return value


def describe(hint: Any) -> str:
    """An annotation in plain words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(one) for one in arguments if one is not type(None))
    if origin is Literal:
        return (
            "one of " + ", ".join(repr(one) for one in arguments)
            if len(arguments) > 1
            else repr(arguments[0])
        )
    if origin is tuple and Ellipsis not in arguments:
        return f"[{', '.join(describe(one) for one in arguments)}]"
    if origin in (tuple, list, Sequence):
        return f"a list, each {describe(arguments[0])}"
    if origin in (dict, Mapping):
        return "a table"
    if _is_attack(hint):
        return "the name of an attack, or a table with its name"
    if is_dataclass(hint):
        return "a table"
    return NUMBERS.get(hint, str(hint))


def _is_attack(hint: Any) -> bool:
    from fedxray.attacks.base import Attack

    return isinstance(hint, type) and issubclass(hint, Attack)


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


def _default_remedy(one: Field[Any]) -> str:
    if (
        one.default is MISSING
        or one.default is None
        or not isinstance(one.default, int | float | str | bool | tuple)
    ):
        return "Change the value, or leave the key out."
    return f"The default is {one.default!r}."
