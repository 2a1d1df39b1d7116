"""The document results.json: built, checked against its schema, written as a whole or not at all, and read.

Reading needs neither torch nor a plan's code, so a report can be made wherever the file is.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput
from fedxray.files import fault, read_json, write_whole

FORMAT = 1
RESULTS = "results.json"
AGAIN = "Run the audit again, or give the folder of an audit that ended."
RESUME = "Remove this file and go on with --resume, or choose another --out."
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def document(
    plan: Mapping[str, Any],
    versions: Mapping[str, Any],
    cases: Sequence[Mapping[str, Any]],
    utility: Sequence[Mapping[str, Any]],
    *,
    ceilings: Mapping[str, str] | None = None,
    expected: Mapping[str, Sequence[str]] | None = None,
    power: Sequence[Mapping[str, Any]] = (),
    attacks: Mapping[str, Mapping[str, Any]] | None = None,
    third_party: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The results of an audit as plain values.

    `power` holds the rows of its power checks, `attacks` by label what a report states about each attack,
    `third_party` the plug-ins that the plan uses; `ceilings` and `expected` are the summary's.
    """
    from fedxray.audit.judge.summary import summarise
    from fedxray.audit.run.power import powers

    rows = summarise(cases, ceilings=ceilings, expected=expected, power=powers(power))
    whole: dict[str, Any] = {
        "plan": plan,
        "versions": versions,
        "cases": cases,
        "summary": rows,
        "utility": utility,
    }
    optional = {"power": power, "attacks": attacks, "third_party": third_party}
    whole |= {key: value for key, value in optional.items() if value}
    made = {"format": FORMAT, **{key: plain(value, key) for key, value in whole.items()}}
    validate(made)
    return made


def plain(value: Any, place: str) -> Any:
    """The value in the types of JSON, where a number that is not finite is missing."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{place}.{key}") for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [plain(inner, f"{place}[{index}]") for index, inner in enumerate(value)]
    raise BadInput(
        place,
        expected="a text, number, true, false, nothing, list or table",
        got=type(value).__name__,
        remedy="Turn it into plain values before it goes into the results.",
    )


def write(content: Mapping[str, Any], path: Path) -> Path:
    """Write results.json, or the given file: a reader sees the old or the new one, never a part.

    A file that says the same already is left alone, so that what was made from it stays newer.
    """
    target = path / RESULTS if path.is_dir() else path
    text = (json.dumps(content, indent=1, allow_nan=False) + "\n").encode("ascii")
    if not (target.is_file() and target.read_bytes() == text):
        write_whole(target, text, "results", fault)
    return target


def read_results(path: Path) -> dict[str, Any]:
    """The checked document of a folder or file; BadInput says what is wrong with it."""
    source = path / RESULTS if path.is_dir() else path
    if not source.is_file():
        raise BadInput(str(source), expected="the results of an audit", got="no such file", remedy=AGAIN)
    found = read_json(source, remedy=AGAIN)
    if not isinstance(found, dict) or "format" not in found:
        raise BadInput(str(source), expected="results of fedxray", got="another kind of file", remedy=AGAIN)
    _check_format(source, found["format"])
    validate(found, str(source))
    return found


def _check_format(source: Path, found: object) -> None:
    """Refuse a newer or unknown format with its own remedy."""
    if found == FORMAT and not isinstance(found, bool):
        return
    newer = isinstance(found, int) and not isinstance(found, bool) and found > FORMAT
    raise BadInput(
        f"{source}: format",
        expected=f"{FORMAT}",
        got=repr(found)[:80],
        remedy="A newer fedxray wrote it: upgrade fedxray to read it." if newer else AGAIN,
    )


def validate(content: object, name: str = RESULTS) -> None:
    """Check a document against the schema; BadInput names the first place that does not fit."""
    problem = misfit(content, schema())
    if problem is not None:
        place, expected, got = problem
        raise BadInput(f"{name}{place}", expected=expected, got=got, remedy=AGAIN)


def check_part(found: object, rule: str, path: Path, remedy: str) -> None:
    """The same for a file that holds one part of the document, as the schema names it."""
    problem = misfit(found, schema()["$defs"][rule])
    if problem is not None:
        place, expected, got = problem
        raise BadInput(f"{path}{place}", expected=expected, got=got, remedy=remedy)


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of results.json."""
    text = files("fedxray.audit.judge").joinpath("results.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def misfit(value: Any, rule: Mapping[str, Any], place: str = "") -> tuple[str, str, str] | None:
    """The first place where a value does not fit the schema's rule: (place, expected, got), or None."""
    if "$ref" in rule:
        return misfit(value, schema()["$defs"][rule["$ref"].rpartition("/")[2]], place)
    return (
        _wrong_value(value, rule, place)
        or _wrong_member(value, rule, place)
        or _wrong_item(value, rule, place)
    )


def _wrong_value(value: Any, rule: Mapping[str, Any], place: str) -> tuple[str, str, str] | None:
    """Type, constant, choice and smallest value."""
    wanted = rule.get("type", [])
    names = [wanted] if isinstance(wanted, str) else wanted
    if names and not any(_is(value, name) for name in names):
        return place, " or ".join(names), _kind(value)
    choices = rule["enum"] if "enum" in rule else [rule["const"]] if "const" in rule else None
    if choices is not None and not any(_same(value, choice) for choice in choices):
        return place, f"one of {', '.join(map(repr, choices))}", repr(value)[:80]
    if "minimum" in rule and value < rule["minimum"]:
        return place, f"at least {rule['minimum']}", repr(value)
    return None


def _wrong_member(value: Any, rule: Mapping[str, Any], place: str) -> tuple[str, str, str] | None:
    """Members of an object."""
    if not isinstance(value, dict):
        return None
    missing = [key for key in rule.get("required", ()) if key not in value]
    if missing:
        return f"{place}.{missing[0]}", "a value", "nothing"
    known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    for key, inner in value.items():
        inside = f"{place}.{key}"
        if key not in known and others is False:
            return inside, "no such key", "one"
        found = misfit(inner, known.get(key, others if isinstance(others, dict) else {}), inside)
        if found is not None:
            return found
    return None


def _wrong_item(value: Any, rule: Mapping[str, Any], place: str) -> tuple[str, str, str] | None:
    """Items of a list."""
    if isinstance(value, list) and "items" in rule:
        for index, inner in enumerate(value):
            found = misfit(inner, rule["items"], f"{place}[{index}]")
            if found is not None:
                return found
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    # JSON does not tell 1.0 from 1.
    return isinstance(value, TYPES[name]) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


def _same(value: Any, choice: Any) -> bool:
    # Python takes True for 1, JSON does not.
    return isinstance(value, bool) == isinstance(choice, bool) and bool(value == choice)


def _kind(value: Any) -> str:
    return next((name for name in TYPES if _is(value, name)), type(value).__name__)


# --- What computed the results.


OPTIONAL = ("scikit-image", "opacus")  # they explain images and reckon budgets
LIBRARIES = ("fedxray", "torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors")


def versions() -> dict[str, str | None]:
    """Python, the system and the libraries; an optional one that is not installed is None."""
    return {
        "python": platform.python_version(),
        "platform": platform.system(),
        **{name: version(name) for name in LIBRARIES},
        **{name: _version_if_there(name) for name in OPTIONAL},
    }


def _version_if_there(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# --- What trials of a search say, as results tell them: which was best, and which the loss does not tell
# from it.


NEARLY = 0.1  # of the lowest loss


def best_trial(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first trial of the smallest loss, as the attacker chooses; none that was given up."""
    return min(_ended(trials), key=lambda one: float(one["loss"]))


def nearly_as_good(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The trials whose loss is at most a tenth above the lowest: what the loss does not tell apart from the chosen."""
    lowest = best_trial(trials)["loss"]
    most = lowest + NEARLY * abs(lowest)  # a loss below 0 must not shut its own trial out
    return [one for one in _ended(trials) if one["loss"] <= most]


def _ended(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in trials if one["loss"] is not None and not one.get("given_up")]
