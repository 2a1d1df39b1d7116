"""`search` of an [[attack]] as it is written: a table of trials, sampler, batch, starts, ranges and give_up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from fedxray.attacks.base import Attack
from fedxray.audit.course import MOST_TRIALS
from fedxray.audit.search import SAMPLERS, Point, Ranges, Scale, Study, check
from fedxray.errors import BadInput, unknown_key, unknown_name

KEYS = ("trials", "sampler", "batch", "starts", "ranges", "give_up")


def study_of(attack: Attack, table: Any, place: str) -> Study:
    """The search that a plan asks for, or BadInput; ranges that it leaves out are the attack's own."""
    if not attack.searched:
        raise BadInput(
            place,
            expected="an attack with settings that can be searched",
            got=attack.name,
            remedy="`fedxray show NAME` tells which have any; leave search out.",
        )
    if not isinstance(table, Mapping):
        raise BadInput(
            place, expected="a table", got=repr(table), remedy="For instance search = { trials = 16 }."
        )
    for key in table:
        if key not in KEYS:
            raise unknown_key(f"{place}.{key}", str(key), KEYS)
    sampler = table.get("sampler", "random")
    if sampler not in SAMPLERS:
        raise unknown_name(f"{place}.sampler", str(sampler), SAMPLERS)
    made = Study(
        ranges=_ranges(attack, table.get("ranges"), f"{place}.ranges"),
        trials=_count(table, "trials", 16, place),
        sampler=sampler,
        batch=_count(table, "batch", 8, place),
        starts=_count(table, "starts", 10, place) if "starts" in table else None,
        give_up=_share(table["give_up"], f"{place}.give_up") if "give_up" in table else None,
    )
    try:
        check(made)
    except BadInput as error:
        raise error.at(f"{place}.{error.argument}") from None
    _check_not_set(attack, made, place)
    _check_ends(attack, made, f"{place}.ranges")
    _check_give_up(attack, made, f"{place}.give_up")
    return made


def with_point(attack: Attack, point: Point) -> Attack:
    """The attack with these settings."""
    return replace(attack, **point)  # type: ignore[type-var]


def judged_after(attack: Attack, share: float) -> int:
    """The steps after which a trial may be given up."""
    steps: int = _settings(attack)["steps"]
    return max(1, round(share * steps))


def _check_not_set(attack: Attack, study: Study, place: str) -> None:
    """Refuse a setting that has a value of its own: the search would go over it without a word."""
    own = {field.name: field.default for field in fields(attack)}  # type: ignore[arg-type]
    for name in study.ranges:
        value = getattr(attack, name)
        if value != own[name]:
            raise BadInput(
                place,
                expected=f"{name} either set or searched",
                got=f"{name} = {value!r} and a range of it",
                remedy=f"Leave {name} out, or name under ranges only what is to be searched.",
            )


def _check_ends(attack: Attack, study: Study, place: str) -> None:
    """Refuse ranges with an end that the attack does not take."""
    for name, (low, high, scale) in study.ranges.items():
        for value in (low, high):
            try:
                with_point(attack, {name: int(value) if scale == "int" else value})
            except BadInput as error:
                raise BadInput(
                    f"{place}.{name}",
                    expected=error.expected,
                    got=error.got,
                    remedy=f"`fedxray show {attack.name}` tells its own range.",
                ) from None


def _check_give_up(attack: Attack, study: Study, place: str) -> None:
    """Refuse to give up trials of an attack that cannot end early, or at a step where nothing is left to save."""
    if study.give_up is None:
        return
    known = _settings(attack)
    if "give_up" not in known or "steps" not in known:
        raise BadInput(
            place,
            expected="an attack that can end early",
            got=attack.name,
            remedy="Leave give_up out of search.",
        )
    if known["give_up"] is not None:
        raise BadInput(
            place,
            expected="an attack without a give_up of its own",
            got=f"give_up = {known['give_up']!r}",
            remedy="Leave one of them out.",
        )
    at = judged_after(attack, study.give_up)
    if at >= known["steps"]:
        raise BadInput(
            place,
            expected=f"a share that leaves some of {known['steps']} steps",
            got=study.give_up,
            remedy="Take more steps, or leave give_up out.",
        )
    try:
        replace(attack, give_up=(at, 0.0))  # type: ignore[type-var]
    except BadInput as error:
        raise BadInput(
            place,
            expected=f"{error.argument} = {error.expected}",
            got=error.got,
            remedy="Leave give_up out of search.",
        ) from None


def _settings(attack: Attack) -> dict[str, Any]:
    return {field.name: getattr(attack, field.name) for field in fields(attack)}  # type: ignore[arg-type]


def _ranges(attack: Attack, given: Any, place: str) -> Ranges:
    """The ranges of a plan, lists of lowest and highest; how they are spaced is the attack's to say."""
    if given is None:
        return cast(Ranges, dict(attack.searched))
    if not isinstance(given, Mapping) or not given:
        raise BadInput(
            place, expected="a table of [lowest, highest]", got=repr(given), remedy="Leave it out."
        )
    found: dict[str, tuple[float, float, Scale]] = {}
    for name, value in given.items():
        if name not in attack.searched:
            raise unknown_key(f"{place}.{name}", str(name), attack.searched, of=attack.name)
        numbers = isinstance(value, list | tuple) and len(value) == 2 and all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in value
        )  # fmt: skip
        if not numbers:
            raise BadInput(
                f"{place}.{name}",
                expected="[lowest, highest]",
                got=repr(value),
                remedy=f"By itself it is [{attack.searched[name][0]:g}, {attack.searched[name][1]:g}].",
            )
        found[name] = (value[0], value[1], cast(Scale, attack.searched[name][2]))
    return found


def _count(table: Mapping[str, Any], key: str, otherwise: int, place: str) -> int:
    value = table.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TRIALS:
        raise BadInput(
            f"{place}.{key}",
            expected=f"a whole number from 1 to {MOST_TRIALS:,}",
            got=repr(value),
            remedy=f"Try {otherwise}.",
        )
    return value


def _share(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise BadInput(
            place, expected="a share of the steps, between 0 and 1", got=repr(value), remedy="Try 0.5."
        )
    return float(value)
