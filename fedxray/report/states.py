"""The state of a judged row in sentences: headline, measurement, evidence, scope, and the command that settles it.

A row comes from `rows.judged`: the primary metric of an attack, with `runs` and `recorded` added. Its state is the
audit's own; nothing here is inferred from numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fedxray.audit.judge.verdict import COPIES_ONLY, LEAST_RUNS, is_bounded, is_unproven
from fedxray.metrics import units
from fedxray.metrics.table import BY_PERSON, base_metric
from fedxray.report import words
from fedxray.report.noise import EPSILON
from fedxray.report.rows import Row

MEANINGS: Mapping[str, str] = {  # worst first
    "leaks": "more than the margin, and not luck",
    "suspected": "above the margin, not settled",
    "small": "leaks a little, less than the margin",
    "trace": "reveals something, below the margin",
    "blinded": "the defence blinds this attack; another may work",
    "reversed": "far below chance: with its sign changed it may leak",
    "coarse": "only a large leak would show",
    "open": "not decided",
    "stopped": "this attack leaks without the defence, not with it; another may",
    "no leak found": "not above the margin; the attack detects a planted leak",
}
STATES = tuple(MEANINGS)
UNDECIDED = ("blinded", "reversed", "coarse", "open")
TONES: Mapping[str, str] = {"leaks": "leaks", "no leak found": "safe", "stopped": "safe"}  # others are "open"
NOT_SAFETY = "This is not safety."
OTHER_RUNS = "the interval is for other runs"


def severity(row: Row) -> tuple[int, float]:
    """Return a sort key of rows, the worst first: by state, then by the gain, or the detection limit, in margins."""
    size = row["seen"] if row["state"] in ("no leak found", "stopped") else row["difference"]
    return STATES.index(row["state"]), -(size or 0.0) / (row["margin"] or 1.0)


def worst_state(states: Sequence[str]) -> str:
    """Return the worst of some states."""
    return min(states, key=STATES.index)


# Sentences on one row


def headline(row: Row) -> str:
    """Return what a row decides, in a few words."""
    where = "" if row["runs"] > 1 else ", in this recording" if row["recorded"] else ", in this run"
    if row["state"] == "small" and (where or is_bounded(row)):
        return f"It leaks a little{where}, less than the margin of {size(row['margin'], row)}."
    if row["state"] == "small":
        return f"It leaks a little in these runs; in others perhaps more than the margin of {size(row['margin'], row)}."
    if row["state"] == "leaks":
        return f"{it_leaks(row)}{where or here(row)}."
    if row["state"] == "coarse" and row["seen"] is not None:
        return f"Not decided: {detected(row)} would have been detected."
    if row["state"] == "stopped" and row["upper"] is not None:
        return f"The leak is stopped, as far as this attack shows: at most {most(row)} are left."
    if row["state"] == "trace" and (row["difference"] or 0.0) <= 0:
        return "No gain, but the messages reveal something: a stronger attack may leak."
    return {
        "suspected": "A leak is suspected, not settled.",
        "trace": "The messages reveal something, but less than what counts as a leak.",
        "blinded": "This defence blinds the attack. That is not safety.",
        "reversed": "Not decided: the attack answers the wrong way round.",
        "no leak found": "No leak found, by an attack that detects a planted one.",
    }.get(row["state"], "Not decided.")


SYNTHETIC = "synthetic records"


def it_leaks(row: Row) -> str:
    """Return that a row leaks; on synthetic records, which are the easiest case, that it can."""
    return f"It can leak ({SYNTHETIC})" if row.get("synthetic") else "It leaks"


def here(row: Row) -> str:
    """Return of which runs a leak is shown where its interval, which is for other runs, includes 0; else nothing."""
    known = row["state"] == "leaks" and row["runs"] > 1 and row["low"] is not None
    return f" in these {row['runs']} runs" if known and row["low"] <= 0 else ""


def measured(row: Row, secret: str | None) -> str:
    """Return score, floor and gain in words."""
    metric = row["metric"]
    if metric is None or row["mean"] is None:
        return "Nothing was measured."
    score = words.finding_words(row["role"], metric, units.value(row["mean"], metric), secret)
    if row["floor"] is None:
        return score
    gain = units.value(row["difference"], metric, sign=True)
    ends = units.between(row["low"], row["high"], metric, sign=True, floor=row["floor"])
    spread = ends.partition(units.GLUE)[0].replace("+", "")
    known = "" if row["low"] is None else f" (95{units.GLUE}% interval {spread})"
    if row["low"] is not None and base_metric(metric) in units.BOUNDED and row["high"] - row["low"] >= 1:
        known = f" ({words.count(row['runs'], 'run')}: too few for a useful interval)"
    return (
        f"{score} Without any message {units.value(row['floor'], metric)} would be possible "
        f"(floor: {words.floor_words(row['over'], row['public'])}). Gain: {gain}{known}."
    )


def despite(row: Row) -> str:
    """Return why a row has its state although its interval seems to say otherwise; empty where it does not."""
    if row["low"] is None or row["margin"] is None or row["runs"] < 2:
        return ""
    if row["state"] == "leaks" and row["low"] < row["margin"] and row["p_adjusted"] is not None:
        return f"In these {row['runs']} runs it is not luck ({probability(row['p_adjusted'])}); {OTHER_RUNS}."
    if row["state"] != "suspected" or row["low"] <= row["margin"]:
        return ""
    if row["p_adjusted"] is not None and row["p_adjusted"] <= _level(row):
        return "The messages matter, but the gain may come from easy records."
    needed = f", about {row['runs'] + row['more_seeds']} needed" if row["more_seeds"] else ""
    return f"Not yet shown to be more than luck: {row['runs']} runs{needed}."


def _level(row: Row) -> float:
    """Return the p-value that is needed."""
    return float((row["family"] or {}).get("spent", 0.05))


def margin(row: Row) -> str:
    """Return what the margin of a row means; empty where there is none."""
    if row["margin"] is None:
        return ""
    below = "are a small leak" if row["state"] == "small" else "do not count as a leak"
    return f"Gains below {size(row['margin'], row)} {below}."


def evidence(row: Row) -> str:
    """Return why a row has its state."""
    return {
        "leaks": _not_luck,
        "small": _small,
        "suspected": _suspected,
        "trace": _trace,
        "blinded": _blinded,
        "reversed": _reversed,
        "coarse": _coarse,
        "stopped": _reason,
        "no leak found": _no_leak,
    }.get(row["state"], _open)(row)


def scope(row: Row) -> str:
    """Return of which runs a decided row speaks, and of which clients any row does where some were drawn."""
    runs = "" if row["scope"] is None else _scope_of_runs(row)
    if not row.get("sampled"):
        return runs
    chosen, clients = row["sampled"]
    return f"{runs} {chosen:,} of {clients:,} clients were attacked, drawn at random.".strip()


def _scope_of_runs(row: Row) -> str:
    if row["recorded"]:
        return "This recording only, provided that its held-out records resemble those trained on."
    if row["runs"] < 2:
        return "This run only: how much other runs would leak is not known."
    if row["state"] == "small" and row["upper"] is not None:
        return f"The leak: these {row['runs']} runs. Its bound: runs like these, with other seeds."
    if row["scope"] == "runs like these":
        return f"Runs like these {row['runs']}: same data, model and training, other seeds."
    return f"These {row['runs']} runs. Other seeds of the same set-up: expect a mean gain within the interval."


def most(row: Row) -> str:
    """Return the upper bound of a gain, at most what the floor leaves."""
    return units.value(units.possible_gain(row["upper"], row["metric"], row["floor"]), row["metric"], sign=True)


def detected(row: Row) -> str:
    """Return which leaks an audit like this one detects: from the detection limit on, if the floor leaves as much."""
    if units.possible_gain(row["seen"], row["metric"], row["floor"]) < row["seen"]:
        return "not even the largest possible leak"
    return f"only a leak of {size(row['seen'], row)} or more"


def size(amount: float, row: Row) -> str:
    """Return a gain, margin or detection limit with its unit, without a sign."""
    return units.amount(amount, row["metric"])


def probability(p: float) -> str:
    """Return a p-value."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _adjusted(row: Row) -> str:
    """Return the p-value that decided, with the number of rows that it was corrected for."""
    p, rows = row["p_adjusted"], (row["family"] or {}).get("rows", 1)
    if p is None:
        return "no p-value"
    return probability(p) + (f", corrected for {rows} comparisons of an attack under a defence" if rows > 1 else "")


def _not_luck(row: Row) -> str:
    family: Row = row["family"] or {}
    runs = family.get("runs", row["runs"])  # at the look where it was shown
    if runs < row["runs"]:
        return f"Not luck: shown by the first {runs} of {row['runs']} runs already ({_adjusted(row)})."
    if row["test"] == "swap":
        return f"Not luck: {_swapped(row)} ({_adjusted(row)})."
    if row["test"] == "split":
        who = "people whose records" if row["metric"] in BY_PERSON else "records that"
        like = ", if these are like them" if row["recorded"] else ""
        return f"Not luck: {who} were trained on score above held-out ones{like} ({_adjusted(row)})."
    return f"Not luck: the gain repeats over {words.count(runs, 'run')} ({_adjusted(row)})."


def _small(row: Row) -> str:
    gain = units.value(row["difference"], row["metric"], sign=True)
    bound = "" if row["upper"] is None else f", at most {most(row)} in runs like these"
    return f"{gain} over the floor{bound}. {_not_luck(row)} A stronger attack may leak more."


def _swapped(row: Row) -> str:
    """Return how the attack does with the messages of other clients."""
    other = row["controls"].get("other-client")
    mean = (
        "" if other is None else f"with other clients' messages it reaches {units.value(other['mean'], row['metric'])}"
    )
    pairings = "" if not row["resolution"] else _pairings(row["p_swap"], row["resolution"])
    return "; ".join(part for part in (mean, pairings) if part) or "other clients' messages do not give as much"


def _pairings(p: float | None, resolution: float) -> str:
    others = round(1 / resolution) - 1
    better = round((p or resolution) / resolution) - 1
    number = f"{better:,}" if better else "none"
    return f"{number} of {others:,} other pairings of messages and clients score{'' if better > 1 else 's'} as high"


def _suspected(row: Row) -> str:
    p, level = row["p_adjusted"], _level(row)
    if p is None:
        return "The gain is above the margin, but no test can show here that it is not luck."
    if p <= level:
        return f"The messages matter ({_adjusted(row)}), but the gain over the floor may come from easy records."
    return f"The gain is above the margin, but it may be luck ({_adjusted(row)}; at most {level:g} is needed)."


def _trace(row: Row) -> str:
    if row["p_swap"] is not None and row["p_swap"] <= 0.05:
        text = f"{words.capital(_swapped(row))} ({probability(row['p_swap'])})"
    else:
        p = "" if row["p_split"] is None else f" ({probability(row['p_split'])})"
        text = f"Records that were trained on score higher than chance allows{p}"
    text += ". The messages may carry information" if is_unproven(row) else ". The messages carry information"
    below = "below the floor" if (row["difference"] or 0.0) <= 0 else "within the margin"
    return f"{text}, but the score stays {below}. An attack that uses more may leak. {NOT_SAFETY}"


def _blinded(row: Row) -> str:
    return (
        "The attack detects a planted leak without this defence, not with it. An attacker who undoes the defence was "
        f"not tried. {NOT_SAFETY}"
    )


def _reversed(row: Row) -> str:
    if row["mean"] is None or row["floor"] is None:
        return _reason(row)
    flipped = units.value(2 * row["floor"] - row["mean"], row["metric"])
    return f"The score is far below chance: with its sign changed it would be {flipped}. {NOT_SAFETY}"


def _coarse(row: Row) -> str:
    least = "only a very large leak" if row["seen"] is None else detected(row)
    needed = "" if row["margin"] is None else f"; at most {size(2 * row['margin'], row)} (two margins) is needed"
    return f"{words.capital(least)} would have been detected in 4 of 5 such audits{needed}. {NOT_SAFETY}"


def _no_leak(row: Row) -> str:
    power = "The same attack detects a leak that was planted on purpose under the same defence."
    power += f" There {COPIES_ONLY}." if row["metric"] == "auc_subject_other" else ""
    return f"A gain above {most(row)} does not fit these runs. {power}" if row["upper"] is not None else power


def limit(row: Row) -> str:
    """Return the smallest leak that would have been detected, where none was; empty for other states."""
    if row["state"] not in ("no leak found", "stopped") or row["seen"] is None:
        return ""
    return f"A leak of {size(row['seen'], row)} or more would have been detected in 4 of 5 such audits."


def _open(row: Row) -> str:
    if row["upper"] is not None and row["margin"] is not None and row["upper"] > row["margin"]:
        return f"In runs like these the gain may be as large as {most(row)}, above the margin. {NOT_SAFETY}"
    return _reason(row)


def _reason(row: Row) -> str:
    return f"{words.capital(row['reason']).rstrip('.')}."


# The cell of a table, and the command that would settle a row


def reason(row: Row) -> str:
    """Return why a row of a table has its verdict, or why it has none."""
    if not row["primary"]:
        return "Not judged: the verdict uses the attack's primary metric."
    bound = "Upper bound by an oracle, not reachable by an attacker. " if row["oracle"] else ""
    level = words.level_words(row) if row["verdict"] == "leaks" and row["kind"] is None else ""
    return bound + " ".join(part for part in (evidence(row), limit(row), margin(row), scope(row), level) if part)


NO_STEP = "Nothing to fix. Audit again when data, model or training change."
STOPPED = (
    "Nothing to fix against this attack. Audit again when stronger ones appear, or data, model or training change."
)
STOPPED_SO_FAR = "To be surer, audit another attack of this kind under the same defence: append it to the plan:"
ANOTHER = "Try another attack of this kind: append it to the plan:"
COMBINE = "Combine the messages with what is known without them: append to the plan, with the attack's other settings:"
SIMULATE = "A recording is one run. To settle it, simulate the federation: the same plan without [transcript], with:"
COMPARE = (
    "A recording cannot compare defences, nor settle what is suspected: simulate the federation, with the same plan "
    "without [transcript], with [[defence]] tables and:"
)
MORE_SEEDS = "--resume --seeds"
FEW_RUNS = f"Too few runs to say how many would settle it: run at least {LEAST_RUNS} seeds:"
UNTESTED = "Treat the defence as untested, and audit another one. To list them:"
AS_A_LEAK = "fedxray has no other attack of this kind: treat it as a leak. "
NEW_DEFENCE = "To audit noise as a defence, append to the plan:"
STRONGER, LIST = "Audit a stronger setting, or another defence. To list them:", "fedxray list defences"


def settle(
    row: Row, seconds: float, untried: str | None = None, alone: str | None = None, cause: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Return what would settle a row that does not leak, and what to type for it.

    `seconds` is the attacks' time of one more seed, `untried` an attack of the same kind that the plan lacks, `alone`
    the row's own attack where it could be combined with the floor, `cause` why cases found no answer with the remedy.
    """
    if row["state"] == "no leak found":
        return NO_STEP, ""
    if row["state"] == "stopped":
        return (STOPPED, "") if untried is None else (STOPPED_SO_FAR, _added(row, attack_table(untried)))
    if row["state"] == "small" and not row["more_seeds"]:
        return "It is decided. If less than the margin matters to you, set a limit ([[gate]] in the plan).", ""
    if row["state"] == "reversed":
        return "Treat it as a suspected leak: an attacker can change the sign. Check the attack's settings.", ""
    if row["state"] == "trace" and alone is not None:
        return COMBINE, _added(row, attack_table(alone, label=f"{alone} with prior", prior="floor"))
    if row["state"] in ("trace", "blinded") and untried is not None:
        return ANOTHER, _added(row, attack_table(untried))
    if row["state"] == "blinded":
        return UNTESTED, LIST
    if row["state"] == "trace" and not row["more_seeds"]:
        step, command = defend(row)
        return AS_A_LEAK + step, command
    if row["recorded"]:
        return SIMULATE, 'seeds = "auto"'
    if (row["family"] or {}).get("left") == 0:
        return "The looks at this audit have spent their 5 %: run a new one with more seeds, in another folder.", ""
    if row["more_seeds"]:
        seeds, total = words.count(row["more_seeds"], "more seed"), row["runs"] + row["more_seeds"]
        needed = row["more_seeds"] * seconds
        time = "under a minute" if needed < 60 else f"about {words.count(round(needed / 60), 'minute')}"
        step = f"About {seeds} would settle it ({time} of attacks, plus training)"
        if row.get("plan") is None:
            return f"{step}:", f"{row['audit']} {MORE_SEEDS} {total}"
        alone = "Audit this plan alone; its file is beside the report:"
        return f"{step}. {alone}", f"fedxray audit plan-{row['plan']}.toml --seeds {total}"
    if cause is not None:
        return cause
    if row["mean"] is None:
        return "Nothing was measured: fix what made the cases fail, then audit again.", ""
    if row["runs"] < LEAST_RUNS:
        return FEW_RUNS, f"{row['audit']} {MORE_SEEDS} {LEAST_RUNS}"
    wide = row["upper"] is not None and row["margin"] is not None and row["upper"] > row["margin"]
    if row["state"] == "open" and not wide:
        return "More seeds alone would not settle it: fix what the evidence names, then audit again.", ""
    return "A practical number of seeds would not settle it: attack more clients, or use more records.", ""


BASED = "it is based on another attack's answer: "  # how the reason of such a case begins
GRANT = (
    "An attacker who knows the classes needs no estimate of them: append to the plan, with the attack's other settings:"
)


def unanswered(row: Row, reasons: Sequence[str], cases: int, remedy: str = "") -> tuple[str, str]:
    """Return why most of the cases without an answer have none, of all `cases` of a row, and what to type.

    `remedy` is the attack's table with the classes granted, where it would otherwise estimate them.
    """
    often = max(reasons, key=reasons.count)
    text = f"{len(reasons)} of {words.count(cases, 'case')} found no answer: {often.removeprefix(BASED)}."
    if not often.startswith(BASED) or not remedy:
        return f"{text} More seeds alone would not settle it: fix this, then audit again.", ""
    return f"{text} {GRANT}", _added(row, remedy)


def attack_table(name: str, **settings: str | Sequence[str]) -> str:
    """Return the table of an attack, as it can be appended to a plan."""
    given = {"name": name, **settings}
    return "\n".join(
        ["[[attack]]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given.items())]
    )


def defend(row: Row) -> tuple[str, str]:
    """Return how to try a defence, or another one, against what a row reveals."""
    if row["recorded"]:
        return COMPARE, 'seeds = "auto"'
    if row["defence"] != "none":
        return STRONGER, LIST
    name = "gaussian-noise" if row["kind"] == "client" else "dp-sgd"  # what hides updates, or bounds a record
    setting = f"scale = {row['noise']:g}" if name == "gaussian-noise" else f"epsilon = {EPSILON}"
    lines = [] if row["listed"] else ["[[defence]]", 'name = "none"']
    return NEW_DEFENCE, _added(row, "\n".join([*lines, "[[defence]]", f'name = "{name}"', setting]))


def _added(row: Row, part: str) -> str:
    """Return a part to add to the plan, and under it the command that audits it: a comment, so both may be pasted."""
    alone = row.get("plan") is not None  # one of several plans, whose file is beside the report
    command = f"fedxray audit plan-{row['plan']}.toml" if alone else f"{row['audit']} --resume"
    return f"{part}\n# then: {command}"
