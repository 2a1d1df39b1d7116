"""Limits on what may leak, judged on the results of an audit: passed, failed or inconclusive.

A limit passes only where the results show that more does not leak: on *no leak found*, an attack that is *stopped* or a
*small* leak that is bounded by the limit, or where the whole interval is within the limit and the attack has shown
under the same defence that it sees a leak. It fails on *leaks* and *small* above the limit, and where the whole
interval is. Everything else is inconclusive: a trace, a blinded attack, too few runs. `m_over_floor` is judged on the
gain, a plain `m` on the mean; a limit on the gain in accuracy is one on the balanced accuracy where that carries the
verdict, and no limit on another metric passes beside a leak that nothing limits. Of several rows that match (roles,
attackers who know the defence or not) the worst one counts. Everything is read from the results: no code of a plan is
imported.

`recommend` chooses among the defences of an audit by the same limits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedxray.audit.judge import verdict
from fedxray.errors import BadInput, some, unknown_key, unknown_name
from fedxray.files import parse_toml
from fedxray.metrics.table import base_metric
from fedxray.metrics.units import BOUNDED, OVER_FLOOR, gated, possible, possible_gain, value as value_words

KEYS = ("attack", "role", "defence", "metric", "limit")
REQUIRED = ("attack", "metric", "limit")
LARGEST = 1_000_000  # bytes of a policy
FOLLOWS = ("accuracy", "balanced_accuracy")  # a limit on the gain of the first is judged on the second, if primary
MEAN = ("mean", "mean_low", "mean_high")
CHANCE = {"auc": 0.5, "auc_subject": 0.5, "auc_subject_other": 0.5}  # floors that are the same in every audit
BOUNDED_STATES = {  # with what a passed limit then states
    "small": "it leaks a little, in runs like these not above {}",
    "no leak found": "no leak found above {}",
    "stopped": "the defence stops this attack, not above {}; another may succeed",
}
RANK = {"pass": 0, "inconclusive": 1, "fail": 2}

Row = Mapping[str, Any]
GateOutcome = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One limit with its outcome, and the row that decided."""

    attack: str
    metric: str
    limit: float
    defence: str
    asked: str | None  # the role that the limit names
    outcome: GateOutcome
    reason: str
    role: str | None = None  # the role that decided; this and the following are None where nothing was measured
    aware: bool | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None  # over which a gain was measured
    state: str | None = None  # of the row's attack: that of the primary metric
    measured: str | None = None  # the metric of the row that decided
    primary: str | None = None  # the metric that carries the verdict

    @property
    def title(self) -> str:
        """The limit in words."""
        role = f", role {self.asked}" if self.asked else ""
        limit = gated(self.limit, self.metric)
        return f"{self.attack}: {self.metric} at most {limit} under {self.defence}{role}"


def judge_gates(document: Mapping[str, Any], policy: Sequence[Row] | None = None) -> list[Judged]:
    """Judge every limit of the plan, or of a policy in its place, on the defence that it names or the deployed one."""
    rules = policy
    if rules is None:
        rules = [rule for plan in plans_of(document).values() for rule in checked_rules(plan.get("gate") or ())]
    if not rules:
        expected = "at least one [[gate]], which states what must hold"
        remedy = "Add one to the plan, or give --policy FILE."
        raise BadInput("gate", expected=expected, got="none in the plan", remedy=remedy)
    return [_judged(document, rule, f"gate[{index}]", rules) for index, rule in enumerate(rules)]


def read_policy(path: Path) -> list[Row]:
    """Return the [[gate]] tables of a policy file."""
    try:
        if path.stat().st_size > LARGEST:
            raise _policy(path, f"{path.stat().st_size} bytes", "Check that this is a policy.")
        content = parse_toml(path.read_bytes())
    except OSError as problem:
        raise _policy(path, problem.strerror or str(problem), "Check the path.") from None
    except (ValueError, RecursionError) as problem:  # also a number of too many digits
        raise _policy(path, str(problem) or "tables nested too deeply", "Fix it.") from None
    others = [key for key in content if key not in ("format", "gate")]
    if others:
        raise unknown_key(others[0], others[0], {"format", "gate"})
    rules = content.get("gate")
    if content.get("format", 1) != 1 or not isinstance(rules, list) or not rules:
        raise _policy(path, "none of this format", "Write at least one [[gate]] with attack, metric, limit.")
    return checked_rules(rules)


def checked_rules(rules: Sequence[Any]) -> list[Row]:
    """Return limits after checking their keys and types; results and policies may have been altered."""
    if not isinstance(rules, list | tuple):
        raise BadInput("gate", expected="tables", got=repr(rules)[:80], remedy="Write each as [[gate]].")
    return [_checked(rule, f"gate[{index}]") for index, rule in enumerate(rules)]


def _policy(path: Path, got: str, remedy: str) -> BadInput:
    return BadInput(f"policy {path.name}", expected="a TOML file of [[gate]] tables", got=got, remedy=remedy)


def _checked(rule: Any, place: str) -> Row:
    """Return one limit after checking its keys and types."""
    if not isinstance(rule, Mapping):
        raise BadInput(place, expected="a table", got=repr(rule)[:80], remedy="Write it as [[gate]].")
    for key, value in rule.items():
        if key not in KEYS:
            raise unknown_key(f"{place}.{key}", key, set(KEYS))
        if not (_is_finite(value) if key == "limit" else isinstance(value, str)):
            expected = "a finite number" if key == "limit" else "a text"
            raise BadInput(f"{place}.{key}", expected=expected, got=repr(value)[:80], remedy="Change the value.")
    for key in REQUIRED:
        if key not in rule:
            raise BadInput(f"{place}.{key}", expected="a value", got="nothing", remedy="Add the key.")
    check_limited(place, str(rule["metric"]), float(rule["limit"]))
    return rule


def _is_finite(value: Any) -> bool:
    """Return whether a value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _judged(document: Mapping[str, Any], rule: Row, place: str, rules: Sequence[Row]) -> Judged:
    """Judge one limit by the worst row that matches."""
    _check_names(document, rule, place)
    own = [row for row in document["summary"] if row["attack"] == rule["attack"]]
    own = [row for row in own if rule.get("role") in (None, row["role"])]
    defence = rule.get("defence") or deployed(document, own)
    judged = _by_rows(document, rule, [row for row in own if row["defence"] == defence], rules)
    if not judged:
        return Judged(
            attack=str(rule["attack"]),
            metric=str(rule["metric"]),
            limit=float(rule["limit"]),
            defence=defence,
            asked=rule.get("role"),
            outcome="inconclusive",
            reason="it was not measured",
        )
    return max(judged, key=lambda limit: (RANK[limit.outcome], limit.high is None, limit.high or 0.0))


def _by_rows(document: Mapping[str, Any], rule: Row, rows: Sequence[Row], rules: Sequence[Row]) -> list[Judged]:
    """Judge the limit on each of the rows that it is about; `rules` are all limits."""
    metric, role = str(rule["metric"]).removesuffix(OVER_FLOOR), rule.get("role")
    own = [row for row in rows if row["attack"] == rule["attack"] and row["metric"] == metric]
    asked = [row for row in own if role in (None, row["role"])]
    unaware = {row["role"] for row in asked if row["aware"] is False}
    # An attacker who cannot use the defence answers as one who does not know it, who counts in its place.
    counted = [row for row in asked if row.get("adapts") is not False or row["role"] not in unaware]
    return [_by_row(document, rule, row, rules) for row in counted]


def _check_names(document: Mapping[str, Any], rule: Row, place: str) -> None:
    """Refuse names that the results do not hold."""
    rows = document["summary"]
    for key in ("attack", "defence", "role"):
        known = list(dict.fromkeys(row[key] for row in rows))
        if rule.get(key) is not None and rule[key] not in known:
            raise unknown_name(f"{place}.{key}", rule[key], known)


def check_limited(place: str, name: str, limit: float) -> None:
    """Refuse an unknown metric and a limit that can never fail.

    A limit is an upper one, so a falling metric can only be limited as a difference.
    """
    from fedxray.metrics.table import METRICS, metric

    try:
        limited = metric(name.removesuffix(OVER_FLOOR))
    except BadInput:
        known = [*METRICS, *(f"{known_metric}{OVER_FLOOR}" for known_metric in METRICS)]
        raise unknown_name(f"{place}.metric", name, known) from None
    if limited.down and not name.endswith(OVER_FLOOR):
        remedy = f"Use {name}{OVER_FLOOR}."
        raise BadInput(f"{place}.metric", expected="a metric that grows with the leak", got=name, remedy=remedy)
    most = _most(name, limited.best)
    if most is not None and limit >= most:
        expected = f"less than {gated(most, name)}, which no attack can exceed"
        remedy = "Lower it: a limit that can never fail checks nothing."
        if most <= 1 < limit:
            remedy = f"Shares are written from 0 to 1: 0.05 is {gated(0.05, name)}."
        raise BadInput(f"{place}.limit", expected=expected, got=gated(limit, name), remedy=remedy)


def _most(name: str, best: float | None) -> float | None:
    """Return the largest value that a limited score can have; None where it is unbounded."""
    plain = name.removesuffix(OVER_FLOOR)
    if best is None or base_metric(plain) not in BOUNDED:
        return None
    return best - CHANCE.get(plain, 0.0) if plain != name else best


def deployed(document: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return the label of the defence that is judged: the one marked as deployed, or the only one."""
    names = {row.get("plan") for row in rows}
    labels = list(dict.fromkeys(row["defence"] for row in rows))
    marked = []
    for name, plan in plans_of(document).items():
        listed = parts(plan, "defence") if name in names else ()
        marked += [label_of(part) for part in listed if part.get("deployed")]
    fitting = [label for label in labels if any(label == mark or label.startswith(f"{mark}[") for mark in marked)]
    chosen = fitting or ([] if marked else labels)
    if len(chosen) != 1:
        expected = "one defence that is marked as deployed, or only one in the plan"
        remedy = 'Mark one with deployed = true, or name it in the limit: defence = "...".'
        raise BadInput("defence.deployed", expected=expected, got=some(labels), remedy=remedy)
    return str(chosen[0])


def plans_of(document: Mapping[str, Any]) -> dict[str | None, Row]:
    """Return every plan by the name that its rows carry; None where there is only one."""
    plan = document["plan"]
    if not isinstance(plan.get("plans"), list):
        return {None: plan}
    return {str(part.get("name")): part for part in parts(plan, "plans")}


def parts(plan: Row, key: str) -> list[Row]:
    """Return the tables of a list in a plan, as [[attack]] or [[defence]]."""
    listed = plan.get(key)
    return [part for part in listed if isinstance(part, Mapping)] if isinstance(listed, list) else []


def label_of(part: Row) -> str:
    """Return the label of a part as rows carry it, by default its name or factory."""
    return str(part.get("label") or part.get("name") or part.get("factory"))


def _by_row(document: Mapping[str, Any], rule: Row, row: Row, rules: Sequence[Row]) -> Judged:
    """Judge the limit on one row."""
    over = str(rule["metric"]).endswith(OVER_FLOOR)
    primary = _primary(document, row)
    if over and (row["metric"], primary["metric"]) == FOLLOWS:
        row = primary
    value, low, high = (row[name] for name in (("difference", "low", "high") if over else MEAN))
    outcome, reason = _outcome(document, rule, row, primary)
    if outcome == "pass" and (leak := _unlimited(rule, row, primary, rules)) is not None:
        outcome, reason = "inconclusive", leak
    return Judged(
        **{"attack": row["attack"], "metric": str(rule["metric"]), "limit": float(rule["limit"])},
        **{name: row[name] for name in ("defence", "role", "aware")},
        asked=rule.get("role"),
        outcome=outcome,
        value=value,
        low=low,
        high=high,
        floor=row.get("floor"),
        reason=reason,
        state=primary["state"],
        measured=row["metric"],
        primary=primary["metric"],
    )


def _unlimited(rule: Row, row: Row, primary: Row, rules: Sequence[Row]) -> str | None:
    """Return that the attack's verdict is a leak in another metric than the limited one, which no limit is about."""
    if row is primary or primary["state"] != "leaks":
        return None
    same = [other for other in rules if all(other.get(key) == rule.get(key) for key in ("attack", "defence"))]
    limited = {str(other["metric"]) for other in same if other.get("role") in (None, row["role"])}
    follows = {FOLLOWS[1]} if f"{FOLLOWS[0]}{OVER_FLOOR}" in limited else set()
    if primary["metric"] in {name.removesuffix(OVER_FLOOR) for name in limited} | follows:
        return None
    gain = value_words(primary["difference"], primary["metric"], sign=True)
    return f"the verdict's metric {_words(primary['metric'])} leaks ({gain}): limit that one"


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _outcome(document: Mapping[str, Any], rule: Row, row: Row, primary: Row) -> tuple[GateOutcome, str]:
    """Return the outcome of a limit on one row, and why; `primary` is the row that carries the attack's verdict."""
    limit, written = float(rule["limit"]), gated(float(rule["limit"]), str(rule["metric"]))
    over = str(rule["metric"]).endswith(OVER_FLOOR)
    value, low, high = (row[name] for name in (("difference", "low", "high") if over else MEAN))
    state, why = primary["state"], primary["reason"]
    if row is not primary:
        why = f"verdict by {_words(primary['metric'])}: {why}"
    if value is None:
        return "inconclusive", f"nothing was measured: {why}"
    if row is primary and state in ("leaks", "small") and value > limit:
        return "fail", f"it leaks, above {written}"
    if low is not None and low > limit:
        return "fail", f"the whole interval is above {written}"
    lost = lost_cases(document, row)
    if lost is not None:
        return "inconclusive", lost
    bounded = row is primary and state in BOUNDED_STATES and over and (row["upper"] or 0.0) <= limit
    if high is None or (high > limit and not bounded):
        return "inconclusive", f"the interval contains {written}; {why}"
    doubt = unproven(document, primary)
    if doubt is not None:
        return "inconclusive", doubt if row is primary else why
    within = BOUNDED_STATES[state] if bounded else "the whole interval is within {}"
    return "pass", within.format(written)


def _primary(document: Mapping[str, Any], row: Row) -> Row:
    """Return the row that carries the verdict of the same attack, role, defence and awareness."""
    if row["primary"]:
        return row
    same = ("plan", "attack", "role", "defence", "aware")
    rows = [other for other in document["summary"] if all(other.get(name) == row.get(name) for name in same)]
    return next((other for other in rows if other["primary"]), row)


def lost_cases(document: Mapping[str, Any], row: Row) -> str | None:
    """Return the numbers of cases of a row that failed or lack its score, or None: a failed attack shows no safety."""
    keys = ("attack", "role", "defence", "aware")
    own = [case for case in document["cases"] if all(case[key] == row[key] for key in keys)]
    lost = Counter(case["status"] for case in own if case["status"] != "ok")
    ended = [case for case in own if case["status"] == "ok"]
    lost += Counter(verdict.UNSCORED for case in ended if case["scores"].get(row["metric"]) is None)
    if not lost:
        return None
    listed = ", ".join(f"{number} {status}" for status, number in lost.items())
    return f"{verdict.NOT_ALL_ENDED}: of {len(own)}, {listed}"


def unproven(document: Mapping[str, Any], primary: Row) -> str | None:
    """Return why it is not proven that a leak would have been seen, or None.

    An attack that leaks has shown what it sees; else the planted leak must be seen under the same defence, and the
    messages must show no trace. One or two runs say nothing about others.
    """
    if primary["upper"] is None:
        return str(primary["reason"])
    if primary["state"] in verdict.DECIDED:
        return None
    check = verdict.power_check(document.get("power", ()), primary)
    if primary["state"] in ("coarse", "open", "suspected") and check is not None and check.passed:
        return None
    return str(primary["reason"])


# Recommendation: the defence of best utility among those under which every gated score keeps its limit
#
# A limit is kept where it passes as in a gate, for the worst role and attacker that match: a score that was not
# measured keeps no limit, nor does one of which a case failed, or which does not prove that it would have seen a leak.


# In the order in which they are preferred; smaller is better for those that are marked.
UTILITY: Mapping[str, bool] = {"accuracy": False, "mape": True, "loss": True}


@dataclass(frozen=True, kw_only=True)
class DefenceChoice:
    """One defence with the limits that it breaks, and its utility."""

    defence: str
    broken: tuple[str, ...]  # in words, one for every limit that is not kept
    fails: bool = False  # whether one is exceeded; else it is not settled
    metric: str | None = None  # of utility
    value: float | None = None
    low: float | None = None
    high: float | None = None
    cost: float | None = None  # in utility, against the best setting of all
    epsilon: float | None = None
    guess: float | None = (
        None  # the utility of a constant guess, where only without the defence it is shown to be better
    )

    @property
    def holds(self) -> bool:
        """Whether every limit is kept."""
        return not self.broken


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """All settings in the order of the results, and the one that is recommended, if any."""

    settings: tuple[DefenceChoice, ...]
    chosen: DefenceChoice | None
    limits: tuple[str, ...]
    unlimited: tuple[str, ...] = ()  # attacks without a limit


def recommend(document: Mapping[str, Any], rules: Sequence[Row] | None = None) -> Recommendation:
    """Return all settings and the one of least utility loss that keeps every limit, of the plan or given."""
    gates = checked_rules(document["plan"].get("gate") or ()) if rules is None else rules
    if not gates:
        raise BadInput(
            "gate",
            expected="at least one [[gate]] in the plan, which states what must hold",
            got="none",
            remedy="Give --policy FILE with [[gate]] tables, so that the audit need not be run again; for instance "
            'attack = "...", metric = "accuracy_over_floor", limit = 0.05.',
        )
    names = list(dict.fromkeys(row["defence"] for row in document["summary"]))
    measured = {row["metric"] for row in document["utility"]}
    metric = next((name for name in UTILITY if name in measured), None)
    utility = {row["defence"]: row for row in document["utility"] if row["metric"] == metric}
    settings = tuple(_setting(name, gates, document, utility, metric) for name in names)
    held = [setting for setting in settings if setting.holds and setting.guess is None]
    known = [setting for setting in held if setting.cost is not None]
    best = min(known, key=lambda setting: setting.cost or 0.0, default=None)
    # Without held-out records utility is not known; then the first that holds is chosen.
    first = held[0] if held else None
    limits = dict.fromkeys(_limit_words(gate) for gate in gates)
    limited = {gate["attack"] for gate in gates}
    tried = dict.fromkeys(row["attack"] for row in document["summary"] if not row["oracle"])
    unlimited = tuple(attack for attack in tried if attack not in limited)
    return Recommendation(settings=settings, chosen=best or first, limits=tuple(limits), unlimited=unlimited)


def _setting(
    name: str, gates: Sequence[Row], document: Row, utility: Mapping[str, Row], metric: str | None
) -> DefenceChoice:
    own = [row for row in document["summary"] if row["defence"] == name and not row["oracle"]]
    judged = [_by_rows(document, gate, own, gates) for gate in gates]
    broken = tuple(reason for gate, limits in zip(gates, judged, strict=True) if (reason := _broken(gate, limits)))
    fails = any(limit.outcome == "fail" for limits in judged for limit in limits)
    choice = DefenceChoice(defence=name, broken=broken, fails=fails)
    row = utility.get(name)
    if row is None or metric is None:
        return choice
    measured = {key: row[key] for key in ("value", "low", "high", "epsilon")}
    undefended = [utility["none"]] if "none" in utility else utility.values()
    guess = row["guess"] if not learned(row) and any(map(learned, undefended)) else None
    return replace(choice, metric=metric, cost=_cost(row["value"], utility, metric), guess=guess, **measured)


def learned(utility: Row) -> bool:
    """Whether the whole interval of a utility beats a constant guess, of one run its value; True if unknown."""
    value, guess = utility["value"], utility.get("guess")
    if value is None or guess is None:
        return True
    if UTILITY[utility["metric"]]:
        return bool((value if utility["high"] is None else utility["high"]) < guess)
    return bool((value if utility["low"] is None else utility["low"]) > guess)


def _cost(value: float | None, utility: Mapping[str, Row], metric: str) -> float | None:
    """Return the utility that is lost against the best setting."""
    known = [row["value"] for row in utility.values() if row["value"] is not None]
    if value is None or not known:
        return None
    return float(value - min(known) if UTILITY[metric] else max(known) - value)


def _broken(gate: Row, limits: Sequence[Judged]) -> str | None:
    """Return why a limit is not kept, by the worst of the rows that it is about; None where it is kept."""
    name = f"{gate['attack']} {gate['metric']}"
    if not limits:
        return f"{name} was not measured"
    worst = max(limits, key=lambda limit: (limit.outcome != "pass", limit.high is None, limit.high or 0.0))
    if worst.measured != worst.metric.removesuffix(OVER_FLOOR):
        name = f"{name}, judged on {_words(str(worst.measured))},"
    if worst.outcome == "pass":
        return None
    if worst.value is None:
        return f"{name}: {worst.reason}"
    if worst.high is None:
        return f"{name} has no interval: add seeds or target clients"
    if worst.high > worst.limit:
        # An interval may pass the ends of a metric, as in the report.
        over, metric = worst.metric.endswith(OVER_FLOOR), str(worst.measured)
        end = possible_gain(worst.high, metric, worst.floor) if over else possible(worst.high, metric)
        value, high = (None if found is None else round(found, 3) for found in (worst.value, end))
        return f"{name} {gated(value, worst.metric)}, up to {gated(high, worst.metric)}"
    return f"{name}: {worst.reason}"


def _limit_words(gate: Row) -> str:
    role = f" by {gate['role']}" if gate.get("role") else ""
    limit = gated(gate["limit"], str(gate["metric"]))
    return f"{gate['attack']}{role}: {gate['metric']} at most {limit}"
