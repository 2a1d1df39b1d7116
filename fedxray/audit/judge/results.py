"""The document results.json: built, checked against its schema, written as a whole or not at all, and read.

The schema is checked here, by the few rules that it uses: jsonschema is a dependency of the tests alone.

Reading needs neither torch nor a plan's code, so a report can be made wherever the file is.
"""

from __future__ import annotations

import io
import json
import math
import operator
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from fedxray.errors import BadInput, printable, some
from fedxray.files import fault, read_json, write_whole

FORMAT = 2
IDENTITY = ("plan", "attack", "role", "defence", "aware", "metric")  # of a row of the summary
EXACT_INPUT = ("split", "swaps", "draws", "record_variance")  # keys of a case that exact tests need
PRIVATE = ("draws",)  # keys of a case that the judge reads and results.json does not hold
OLD = (
    "These results are of an older format and were judged again, by the primary metric of every attack and the run "
    "test alone: re-run with --resume for the exact tests."
)
RESULTS = "results.json"
AGAIN = "Run the audit again, or give the folder of an audit that ended."
RESUME = "Continue with --resume, or choose another --out."
MOST_CLIENTS = 100_000  # of a plan: the swap test draws orders of all clients of a run
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
PLAIN = {types[-1]: name for name, types in TYPES.items()}  # by the class of a value that was read; float is a number


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
    primary: Mapping[str, str] | None = None,
    looks: Sequence[Mapping[str, Any]] = (),
    claims: Sequence[Mapping[str, Any]] = (),
    canaries: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the results of an audit as plain values, checked against the schema.

    `power`, `claims` and `canaries` hold the rows of power checks, claims and canaries, `attacks` by label what a
    report states about each attack, `third_party` the plug-ins that the plan uses; `ceilings`, `expected`, `primary`
    and `looks` are the summary's. Private scores of a case (`draws`) serve its tests and are left out.
    """
    from fedxray.audit.judge.summary import seed_of_draws, summarise

    rows = summarise(cases, ceilings=ceilings, expected=expected, power=power, primary=primary, looks=looks)
    public = [{key: value for key, value in case.items() if key not in PRIVATE} for case in cases]
    parts: dict[str, Any] = {"plan": plan, "versions": versions, "cases": public, "summary": rows, "utility": utility}
    parts |= {"seed_of_draws": seed_of_draws(cases)}
    optional = {"power": power, "attacks": attacks, "third_party": third_party, "looks": looks}
    optional |= {"claims": claims, "canaries": canaries}
    parts |= {key: value for key, value in optional.items() if value}
    content = {"format": FORMAT, **{key: plain(value, key) for key, value in parts.items()}}
    validate(content)
    return content


def plain(value: Any, place: str) -> Any:
    """Return the value in the types of JSON; a number that is not finite becomes None.

    What is plain already is returned as it is, so that results share the cases of thousands of clients.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        made = {str(key): plain(inner, f"{place}.{key}") for key, inner in value.items()}
        same = all(
            before is after
            for pair in zip(value.items(), made.items(), strict=False)
            for before, after in zip(*pair, strict=True)
        )
        return value if type(value) is dict and same else made
    if isinstance(value, Sequence):
        items = [plain(inner, f"{place}[{index}]") for index, inner in enumerate(value)]
        return value if type(value) is list and all(map(operator.is_, value, items)) else items
    expected = "a text, number, true, false, nothing, list or table"
    remedy = "Turn it into plain values before it goes into the results."
    raise BadInput(place, expected=expected, got=type(value).__name__, remedy=remedy)


def write(content: Mapping[str, Any], path: Path) -> Path:
    """Write results.json, or the given file: a reader sees the old or the new one, never a part.

    An equal file is left alone, so that a report of it stays newer.
    """
    target = path / RESULTS if path.is_dir() else path
    stream = io.StringIO()  # not json.dumps, which holds a million pieces before it joins them
    json.dump(content, stream, indent=1, allow_nan=False)
    text = f"{stream.getvalue()}\n".encode("ascii")
    if not (target.is_file() and target.read_bytes() == text):
        write_whole(target, text, "results", fault)
    return target


def read_results(path: Path) -> dict[str, Any]:
    """Return the checked document of a folder or file; BadInput states what is wrong with it."""
    source = path / RESULTS if path.is_dir() else path
    if not source.is_file():
        below = sorted(str(file.parent) for file in path.glob(f"*/{RESULTS}")) if path.is_dir() else []
        remedy = f"Did you mean {printable(some(below))}?" if below else AGAIN
        raise BadInput(str(source), expected="the results of an audit", got="no such file", remedy=remedy)
    content: Any = read_json(source, remedy=AGAIN)
    if not isinstance(content, dict) or "format" not in content:
        raise BadInput(str(source), expected="results of fedxray", got="another kind of file", remedy=AGAIN)
    _check_format(source, content["format"])
    if content["format"] == 1:
        rule = {"required": ["plan", "cases"], "properties": {"cases": {"type": "array", "items": {"type": "object"}}}}
        _check_fit(content, rule, str(source), AGAIN)
        content = _without_exact_tests(content)
        content |= {"format": FORMAT, "summary": judged_again(content, str(source)), "notice": OLD}
    validate(content, str(source))
    for number, row in enumerate(content["summary"]):
        _check_row(row, f"{source}.summary[{number}]")
    _check_exact_input(content, str(source))
    return dict(content)


def _without_exact_tests(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return results without the input of exact tests, which format 1 did not have."""
    cases = [{key: value for key, value in case.items() if key not in EXACT_INPUT} for case in content["cases"]]
    return {key: value for key, value in content.items() if key != "looks"} | {"cases": cases}


def _check_row(row: Mapping[str, Any], name: str) -> None:
    """Refuse a row of the summary that lacks what its state and its test always come with."""
    needed: dict[str, str] = {}
    if row["primary"]:
        needed["state"] = "a state, since this row is primary"
    if row["state"] not in (None, "open"):
        needed |= dict.fromkeys(("metric", "margin", "difference"), f"a value, since the state is {row['state']}")
    if row["test"] in ("split", "swap"):
        needed |= dict.fromkeys(("p_adjusted", "family"), f"a value, since the test is {row['test']}")
    for key, expected in needed.items():
        if row[key] is None:
            raise BadInput(f"{name}.{key}", expected=expected, got="nothing", remedy=AGAIN)
    rates = row.get("roc") or {"fpr": [], "tpr": []}
    if len(rates["fpr"]) != len(rates["tpr"]):
        raise BadInput(f"{name}.roc", expected="as many fpr as tpr", got="others", remedy=AGAIN)


def _check_exact_input(content: Mapping[str, Any], name: str) -> None:
    """Refuse looks and cases that fit the schema, but of which no exact test can be made."""

    def check(holds: bool, place: str, expected: str) -> None:
        if not holds:
            raise BadInput(f"{name}.{place}", expected=expected, got="others", remedy=AGAIN)

    spent = math.fsum(look["spent"] for look in content.get("looks", ()))
    check(spent <= 0.05 + 1e-9, "looks", "looks that spend at most 0.05 together")
    for number, case in enumerate(content["cases"]):
        if case.get("split"):
            check(_is_split(case["split"]), f"cases[{number}].split", "numbers, or lists of one length, that agree")
        if case.get("swaps"):
            expected = f"clients of the run, which has at most {MOST_CLIENTS}"
            check(_are_of_run(case), f"cases[{number}].swaps", expected)


def _is_split(split: Mapping[str, Any]) -> bool:
    """Return whether the numbers of a split are of the same classes, and no class has more ties than records."""
    columns = [split[key] for key in ("u", "n1", "n0", "ties")]
    if not isinstance(split["u"], list):
        columns = [[column] for column in columns]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) > 0 for column in columns):
        return False
    return all(
        not isinstance(members, list)
        and not isinstance(others, list)
        and isinstance(ties, list)
        and not any(isinstance(tie, list) for tie in ties)
        and sum(ties) <= members + others
        for _, members, others, ties in zip(*columns, strict=True)
    )


def _are_of_run(case: Mapping[str, Any]) -> bool:
    """Return whether a case and its swaps name clients of the run, and not the adversary's own."""
    ledger, names = case["ledger"], [str(case["client"]), *case["swaps"]]
    if not all(name.isdecimal() and name.isascii() and len(name) < 10 for name in names):
        return False
    if "clients" not in ledger:
        return True
    own = ledger.get("seats", ())
    return ledger["clients"] <= MOST_CLIENTS and all(
        int(name) < ledger["clients"] and int(name) not in own for name in names
    )


def judged_again(content: Mapping[str, Any], name: str = RESULTS) -> list[dict[str, Any]]:
    """Return the summary of results judged again from their public cases alone, each plan as a family of its own.

    So a reader can check every verdict: p-values of swap and run tests are the same, those of split tests the normal
    tail in place of the redrawn labels, which need the private scores. Results of format 1 have only the run test.
    """
    from fedxray.audit.judge.summary import summarise

    for key, rule in (("cases", "case"), ("power", "power")):
        _check_fit(content.get(key, []), {"type": "array", "items": {"$ref": rule}}, f"{name}.{key}", AGAIN)
    old = content.get("summary")
    before = [row for row in old if isinstance(row, dict)] if isinstance(old, list) else []
    before = [row for row in before if isinstance(row.get("attack"), str) and isinstance(row.get("metric"), str)]
    expected: dict[str, list[str]] = {}
    for row in before:
        expected.setdefault(row["attack"], []).append(row["metric"])
    rows = []
    for plan in dict.fromkeys(case.get("plan") for case in content["cases"]):
        rows += [
            row | ({} if plan is None else {"plan": plan})
            for row in summarise(
                [case for case in content["cases"] if case.get("plan") == plan],
                power=[row for row in content.get("power", []) if row.get("plan") == plan],
                expected=expected,
                primary={row["attack"]: row["metric"] for row in before if row.get("primary")},
                looks=content.get("looks", ()),
            )
        ]
    known = {tuple(row.get(name) for name in IDENTITY): row for row in before}
    for row in rows:
        old_row = known.get(tuple(row.get(name) for name in IDENTITY), {})
        # Which attack is whose ceiling follows from their kinds, which old results do not hold
        row["ceiling"] = old_row.get("ceiling", row["ceiling"])
        row |= {"roc": old_row["roc"]} if "roc" in old_row else {}  # it needs the private ranks
    return [plain(row, "summary") for row in rows]


def _check_format(source: Path, given: object) -> None:
    """Refuse a newer or unknown format with its own remedy."""
    if given in (1, FORMAT) and not isinstance(given, bool):
        return
    newer = isinstance(given, int) and not isinstance(given, bool) and given > FORMAT
    remedy = "A newer fedxray wrote it: upgrade fedxray to read it." if newer else AGAIN
    raise BadInput(f"{source}: format", expected=f"{FORMAT}", got=repr(given)[:80], remedy=remedy)


def validate(content: object, name: str = RESULTS) -> None:
    """Check a document against the schema; BadInput names the first place that does not fit."""
    _check_fit(content, schema(), name, AGAIN)


def check_part(content: object, rule: str, path: Path, remedy: str) -> None:
    """Check a file that holds one part of the document against that rule of the schema."""
    _check_fit(content, schema()["$defs"][rule], str(path), remedy)


def _check_fit(content: object, rule: Mapping[str, Any], name: str, remedy: str) -> None:
    problem = misfit(content, rule)
    if problem is not None:
        place, expected, got = problem
        raise BadInput(f"{name}{place}", expected=expected, got=got, remedy=remedy)


@cache
def schema() -> dict[str, Any]:
    """Return the JSON schema of results.json."""
    text = files("fedxray.audit.judge").joinpath("results.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def misfit(value: Any, rule: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return the first place where a value does not fit the schema's rule as (place, expected, got), or None."""
    while "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].rpartition("/")[2]]
    if not rule:
        return None
    wrong = _wrong_value(value, rule)
    if wrong is not None:
        return ("", *wrong)
    if isinstance(value, dict):
        return _wrong_member(value, rule)
    return _wrong_item(value, rule["items"]) if isinstance(value, list) and "items" in rule else None


def _wrong_value(value: Any, rule: Mapping[str, Any]) -> tuple[str, str] | None:
    """Check type, constant, choice, smallest and largest value."""
    wanted = rule.get("type", [])
    names = [wanted] if isinstance(wanted, str) else wanted
    if names and PLAIN.get(type(value)) not in names and not any(_is(value, name) for name in names):
        return " or ".join(names), _kind(value)
    choices = rule["enum"] if "enum" in rule else [rule["const"]] if "const" in rule else None
    if choices is not None and not any(_same(value, choice) for choice in choices):
        return f"one of {', '.join(map(repr, choices))}", repr(value)[:80]
    if "minimum" in rule and _is(value, "number") and value < rule["minimum"]:
        return f"at least {rule['minimum']}", repr(value)[:80]
    if "maximum" in rule and _is(value, "number") and value > rule["maximum"]:
        return f"at most {rule['maximum']}", repr(value)[:80]
    return None


def _wrong_member(value: Mapping[str, Any], rule: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Check the members of an object."""
    missing = [key for key in rule.get("required", ()) if key not in value]
    if missing:
        return f".{missing[0]}", "a value", "nothing"
    known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    rest = others if isinstance(others, dict) else {}
    for key, inner in value.items():
        if key not in known and others is False:
            return f".{key}", "no such key", "one"
        problem = misfit(inner, known.get(key, rest))
        if problem is not None:
            return f".{key}{problem[0]}", *problem[1:]
    return None


def _wrong_item(value: Sequence[Any], rule: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Check the items of a list."""
    for index, inner in enumerate(value):
        problem = misfit(inner, rule)
        if problem is not None:
            return f"[{index}]{problem[0]}", *problem[1:]
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    # JSON does not distinguish 1.0 from 1.
    return isinstance(value, TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())


def _same(value: Any, choice: Any) -> bool:
    # In Python True == 1, in JSON it does not.
    return isinstance(value, bool) == isinstance(choice, bool) and bool(value == choice)


def _kind(value: Any) -> str:
    return next((name for name in TYPES if _is(value, name)), type(value).__name__)


# Versions of the libraries that computed the results

OPTIONAL = ("scikit-image", "opacus")  # of image metrics and privacy accounting
LIBRARIES = ("fedxray", "torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors")


def versions() -> dict[str, str | None]:
    """Return the versions of Python, the system and the libraries; None for an optional one that is not installed."""
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


# Trials of a search as results hold them: the best, and those that the loss does not distinguish from it

NEARLY = 0.1  # of the lowest loss


def best_trial(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first trial of the smallest loss, as the attacker chooses; none that was given up."""
    return min(_ended(trials), key=lambda trial: float(trial["loss"]))


def nearly_as_good(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the trials whose loss is at most a tenth above the lowest."""
    lowest = best_trial(trials)["loss"]
    most = lowest + NEARLY * abs(lowest)  # a loss below 0 must not shut its own trial out
    return [trial for trial in _ended(trials) if trial["loss"] <= most]


def _ended(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [trial for trial in trials if trial["loss"] is not None and not trial.get("given_up")]


# The line on cases that failed or were cut off: how many, why, and what to change. Terminal, log and report print it,
# and the exit code is 4 where there is one.

Case = Mapping[str, Any]

TRAINING_DIVERGED = "training diverged"  # start of the reason of a case whose run diverged
FAILED = ("failed", "refused", "diverged")
RETRY = "Full texts are in private/; --resume retries failed cases."
MORE = "The report lists {} more reason{}."


def failed_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that ended without a score: by an error, refused, or diverged."""
    return [case for case in cases if case["status"] in FAILED and not _scored(case)]


def cut_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that --budget cut off before they had a score."""
    return [case for case in cases if case["status"] == "truncated" and not _scored(case)]


def _scored(case: Case) -> bool:
    return any(value is not None for value in case["scores"].values())


def failure_line(cases: Sequence[Case]) -> str | None:
    """Return how many cases failed or were cut off, the most frequent reason and its remedy; None where none did."""
    failed, cut = failed_cases(cases), cut_cases(cases)
    of_all = f"of {len(cases)} case{'' if len(cases) == 1 else 's'}"
    parts = [f"{len(failed)} {of_all} failed: {_why(failed, cases)}"] if failed else []
    parts += [f"{len(cut)} {of_all} cut off by --budget; continue with --resume."] if cut else []
    return " ".join(parts) or None


def _why(failed: Sequence[Case], cases: Sequence[Case]) -> str:
    groups: dict[str, list[Case]] = {}
    for case in failed:
        groups.setdefault(_cause(case), []).append(case)
    cause, group = max(groups.items(), key=lambda item: len(item[1]))
    text = printable(_located(cause, group, cases))
    sentences = [text if text.endswith((".", "!", "?")) else f"{text}."]
    others = len(groups) - 1
    sentences += [MORE.format(others, "" if others == 1 else "s")] if others else []
    sentences += [RETRY] if any(case["status"] == "failed" for case in failed) else []
    return " ".join(sentences)


def _cause(case: Case) -> str:
    return str(case["reason"] or case["status"])


def _located(cause: str, group: Sequence[Case], cases: Sequence[Case]) -> str:
    """Return a cause with the seeds that it concerns for a training, else with the attacks, where there are others."""
    defences = _names(group, "defence")
    under = f" under {some(defences)}" if len(_names(cases, "defence")) > len(defences) else ""
    if cause.startswith(TRAINING_DIVERGED):
        seeds = _names(group, "seed")
        where = f"{TRAINING_DIVERGED} in seed{'' if len(seeds) == 1 else 's'} {some(seeds)}{under}"
        return where + cause.removeprefix(TRAINING_DIVERGED)
    attacks = _names(group, "attack")
    which = f"{some(attacks)}: " if len(_names(cases, "attack")) > len(attacks) else ""
    return f"{which}{cause}"


def _names(cases: Sequence[Case], key: str) -> list[str]:
    return [str(value) for value in dict.fromkeys(case[key] for case in cases)]


# Rows of utility: quality of the final models over the seeds, beside the weakest privacy promise of a defence

GUESS = "_guess"  # after a metric: that of a constant prediction in place of the model's


def utility_rows(
    defences: Sequence[str],
    seeds: Sequence[int],
    scores: Mapping[tuple[str, int], Mapping[str, float | None]],
    promises: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> list[dict[str, Any]]:
    """Return one row per defence and metric over the seeds, with its interval and the weakest privacy promise.

    `scores` are those of `utility_of` by defence and seed. `guess` is the mean score of a constant prediction.
    """
    from fedxray.audit.judge.statistics import interval  # it imports numpy, which reading does without

    rows = []
    for defence in defences:
        promise = (promises or {}).get(defence)
        runs = [scores.get((defence, seed), {}) for seed in seeds]
        for metric in dict.fromkeys(metric for run in runs for metric in run if not metric.endswith(GUESS)):
            values = [value for run in runs if (value := run.get(metric)) is not None]  # None: it was not finite
            guesses = [guess for run in runs if (guess := run.get(metric + GUESS)) is not None]
            spread = interval(values, list(range(len(values)))) if values else None
            rows.append(
                {
                    "defence": defence,
                    "metric": metric,
                    "value": spread and spread.mean,
                    "low": spread and spread.low,
                    "high": spread and spread.high,
                    "n": len(values),
                    "epsilon": promise and promise["epsilon"],
                    **({"guess": math.fsum(guesses) / len(guesses)} if guesses else {}),
                    **({} if promise is None else {"privacy": privacy_words(promise)}),
                }
            )
    return rows


def privacy_words(promise: Mapping[str, Any]) -> str:
    """Return delta, accountant and note of a promise, to stand beside its epsilon."""
    parts = [f"delta {promise['delta']:g}", f"accountant {promise['accountant']}", promise["note"]]
    return ", ".join(part for part in parts if part)
