"""From a TOML file to a checked plan; a refusal names the key, the expected and the given value, and a remedy."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from fedxray.audit.plan.checks import check_plan, for_gradients
from fedxray.audit.plan.recorded import for_recording, for_schema
from fedxray.audit.plan.schema import FORMAT, Plan, key_names, values_of
from fedxray.errors import BadInput, unknown_key
from fedxray.files import parse_toml
from fedxray.lookup import with_colon

LARGEST = 1_000_000  # bytes of a plan


def read_plan(path: str | Path) -> Plan:
    """Return the plan in a TOML file, checked against the catalogue; none of the user's code is imported."""
    # Not Path.expanduser, which breaks on the home of a user who does not exist.
    file = Path(os.path.expanduser(path))
    text = _read(file)
    document = _parse(file, text)
    given = document.get("format", FORMAT)
    if isinstance(given, int) and given > FORMAT:
        remedy = "Update fedxray, or write the plan for this version."
        raise BadInput("format", expected=f"a plan of format {FORMAT} or older", got=given, remedy=remedy)
    document.setdefault("name", re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._") or "audit")
    return make_plan(document, file.resolve().parent, text).of_file(file.name)


def make_plan(document: dict[str, Any], folder: Path, text: bytes | None = None) -> Plan:
    """Return the plan in plain values, checked against the catalogue.

    Relative paths start at `folder`; `text` is the plan as it was written, if it was.
    """
    _check_plain(document, "plan")
    document = for_gradients(for_schema(for_recording(document)))
    try:
        plan = Plan.from_document(document, folder, text)
    except ValidationError as error:
        raise _first_refusal(error, document) from None
    check_plan(plan)
    return plan


def _read(file: Path) -> bytes:
    try:
        if not file.is_file():
            from fedxray.data.checks import nearest_file  # loads torch, which a report does without

            remedy = "Give the path of the plan itself, such as plan.toml." if file.is_dir() else nearest_file(file)
            raise BadInput("plan", expected="a TOML file", got=f"no file at {file}", remedy=remedy)
        if file.suffix.lower() == ".csv":
            remedy = f"Make a plan of it: fedxray init hospital-table {file.name}"
            raise BadInput("plan", expected="a TOML file", got=f"the table {file.name}", remedy=remedy)
        if file.stat().st_size > LARGEST:
            expected = f"a TOML file of at most {LARGEST} bytes"
            remedy = "Check that this is a plan."
            raise BadInput("plan", expected=expected, got=f"{file.stat().st_size} bytes", remedy=remedy)
        return file.read_bytes()
    except (OSError, ValueError) as error:
        raise BadInput(
            "plan", expected="a readable TOML file", got=str(error), remedy="Check the path and its permissions."
        ) from None


def _parse(file: Path, text: bytes) -> dict[str, Any]:
    try:
        document = parse_toml(text)
        _check_plain(document, "plan")
        return document
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"plan {file.name}", expected="valid TOML", **_twice(str(error))) from None
    except UnicodeDecodeError as error:
        raise BadInput(
            f"plan {file.name}",
            expected="a text file in UTF-8",
            got=f"byte {error.start} is not",
            remedy="Save it as UTF-8.",
        ) from None
    except RecursionError:
        expected = "valid TOML"
        remedy = "Check that this is a plan."
        raise BadInput(f"plan {file.name}", expected=expected, got="tables nested too deeply", remedy=remedy) from None
    except ValueError as error:  # a date that is none, a number of too many digits
        raise BadInput(f"plan {file.name}", expected="valid TOML", got=str(error), remedy="Fix that value.") from None


TWICE = re.compile(r"Cannot mutate immutable namespace \('(\w+)',\)(.*)")  # a line name = [...], then [[name]]


def _twice(message: str) -> dict[str, str]:
    """Return what is wrong with a TOML text and how to fix it; a list beside tables of the same name in plain words."""
    match = TWICE.match(message)
    if match is None:
        return {"got": message, "remedy": "Fix that line."}
    name = match[1]
    remedy = f"Delete the line {name} = ... or the [[{name}]] tables."
    return {"got": f"{name} is given twice, as a line and as [[{name}]]{match[2]}", "remedy": remedy}


def _check_plain(value: Any, place: str) -> None:
    """Refuse dates and numbers that JSON cannot hold."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_plain(inner, name if place == "plan" else f"{place}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_plain(inner, f"{place}[{index}]")
    elif isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        got = value if isinstance(value, float) else "a whole number of more than 300 digits"
        raise BadInput(place, expected="a finite number", got=got, remedy="Leave the key out, or give a number.")
    elif not isinstance(value, str | int | float | bool):
        expected = "text, numbers, true or false, lists or tables"
        raise BadInput(place, expected=expected, got=repr(value), remedy="Put it in quotes.")


def _first_refusal(error: ValidationError, document: Mapping[str, Any]) -> BadInput:
    """Return the first error of pydantic as a refusal; unknown keys first, as they explain missing ones."""
    errors = error.errors(include_url=False)
    worst = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])
    place, value, there = _walk(document, worst["loc"], worst["type"] in ("extra_forbidden", "missing"))
    section, field = _declared(worst["loc"])
    if worst["type"] == "extra_forbidden":
        name = str(worst["loc"][-1])
        return unknown_key(place, name, key_names(section), home=_home_of(name))
    expected = values_of(field) if field is not None else "a valid value"
    got = repr(value) if there else "nothing"
    remedy = "Add the key." if not there else "Change the value."
    if isinstance(value, str) and "number" in expected and '"' not in expected and "text" not in expected:
        got, remedy = f"the text {value!r}", "Write a number, without quotes."
    if there and isinstance(value, str):
        near = difflib.get_close_matches(value, re.findall(r"[\w-]+", expected), n=1)
        remedy = f"Did you mean {near[0]}?" if near else remedy
    if isinstance(value, str) and worst["loc"][-1] == "factory":
        remedy = with_colon(value) or remedy
    return BadInput(place, expected=expected, got=got, remedy=remedy)


def _walk(document: Any, location: tuple[int | str, ...], to_end: bool) -> tuple[str, Any, bool]:
    """Return the path of a key as a plan writes it, its value, and whether it is given at all."""
    place, value = "", document
    for step in location:
        if isinstance(value, Mapping) and step in value:
            place, value = f"{place}.{step}" if place else str(step), value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            place, value = f"{place}[{step}]", value[step]
        elif to_end:
            return (f"{place}.{step}" if place else str(step)), None, False
        elif not isinstance(value, list):  # pydantic adds the branch of a union to the path
            break
    return place, value, True


def _declared(location: tuple[int | str, ...]) -> tuple[type[BaseModel], Any]:
    """Return the section that a path lies in, and the key's declaration if it has one."""
    section: type[BaseModel] = Plan
    field = None
    for step in location:
        if isinstance(step, int):
            continue
        known = key_names(section)
        if step not in known:
            break
        field = known[step]
        inner = _section_inside(field.annotation)
        if inner is None:
            break
        section = inner
    return section, field


def _section_inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        section = _section_inside(inner)
        if section is not None:
            return section
    return None


def _home_of(name: str) -> str | None:
    """Return the table of a plan that has a key of this name."""
    for title, field in key_names(Plan).items():
        inner = _section_inside(field.annotation)
        if inner is not None and name in key_names(inner):
            return title
    return None
