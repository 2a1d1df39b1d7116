"""The vocabulary of the report: names, reasons and method notes in sentences, and text that is safe in Markdown.

Descriptions of metrics come from `fedxray.metrics.table`, numbers with their units from `fedxray.metrics.units`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fedxray.audit.judge import verdict
from fedxray.errors import BadInput, printable
from fedxray.metrics.table import base_metric, metric as metric_named
from fedxray.metrics.units import GLUE, margin_of

Row = Mapping[str, Any]

# Names of the catalogue in words

FLOOR = "floor (baseline without messages)"  # at its first use on a page, then "floor"
FLOORS: Mapping[str, str] = {
    "majority": "always the most common value",
    "imputation": "a classifier trained on public records",
    "marginals": "random values with known frequencies",
    "mean-image": "the mean public image",
    "nearest-public-image": "the nearest public image",
    "class-mean": "the mean public image of the class",
    "chance": "chance",
    "owner-share": "always the largest client",
    "other-optimum": "another client's optimal model",
}
CONTROLS: Mapping[str, str] = {
    "held-out": "same client, records held out of training",
    "other-client": "another client's messages",
    "global-model": "the global model instead of the client's",
}
SHORT_CONTROLS: Mapping[str, str] = {
    "held-out": "held-out records",
    "other-client": "another client",
    "global-model": "global model",
}
ROLES: Mapping[str, str] = {
    "server": "the server",
    "eavesdropper": "a network eavesdropper",
    "active-server": "an active server",
    "curious-client": "a curious client",
    "secure-aggregation": "the server under secure aggregation",
}
LEVELS: Mapping[str, str] = {"record": "record-level", "client": "client-level", "population": "population-level"}
LEVEL_MEANINGS: Mapping[str, str] = {
    "record": "Level: record. Training records are exposed more than held-out records.",
    "client": "Level: client. A client's own messages reveal more than another client's; leakage of single records was "
    "not demonstrated.",
    "population": "Level: population. Other clients' messages and held-out records give as much, so the attack also "
    "works for people outside the training data; hiding this client's updates does not help.",
}
BY_ANYONE = (
    "Level: population. Anyone who holds the trained model can do this, also for people outside the training data; "
    "hiding single updates does not help."
)
NO_LEVEL = "Level: not determined, the controls are missing or too imprecise."
GRANTS: Mapping[str, str] = {
    "recipe": "how clients train (epochs, batch size, learning rate)",
    "examples": "the number of examples of each client",
    "contributors": "which clients took part",
    "defence": "which defence is used, with its settings",
    "labels": "the labels of the client's records",
    "label-counts": "how often each label occurs at the client",
    "batch-labels": "the labels of every batch",
    "public-attributes": "all columns but the sensitive one, and the target",
    "target-records": "complete records, members and non-members, unmarked",
    "source-records": "training records of several clients, without their owners",
    "own-data": "the adversary's own records",
    "public-records": "records from outside the federation",
    "public-images": "images from outside the federation",
    "bn-statistics": "normalisation statistics of the client's batches",
    "oracle-records": "the true records (oracle)",
    "oracle-groups": "the true grouping (oracle)",
    "oracle-loss": "the true loss (oracle)",
    "oracle-order": "the true order of batches (oracle)",
}
STATUSES: Mapping[str, str] = {
    "refused": "not possible in this role",
    "undetermined": "no answer found",
    "diverged": "the attack diverged",
    "truncated": "cut off by the time limit",
    "failed": "stopped with an error",
}
UTILITY: Mapping[str, str] = {
    "accuracy": "share of held-out records predicted correctly",
    "mape": "mean relative error on held-out records, less is better",
    "loss": "loss on held-out records, less is better",
    "standardised loss": "squared error on held-out records, less is better (1 = predicting the mean)",
}


def role_words(role: str) -> str:
    """Return a role in words."""
    return ROLES.get(role, role)


def defence_words(defence: str) -> str:
    """Return a defence in words."""
    return "no defence" if defence == "none" else defence


def floor_words(floor: str | None) -> str:
    """Return a floor in words."""
    return "nothing" if floor is None else FLOORS.get(floor, floor)


def aware_words(row: Row) -> str:
    """Return whether the attacker knows the defence; empty where there is none."""
    if row["aware"] is None:
        return ""
    known = {True: "attacker knows the defence", False: "attacker does not know the defence"}
    return known.get(row["aware"], "with or without knowledge of the defence")


def level_words(row: Row) -> str:
    """Return the level of a leak and what follows from it."""
    if row["kind"] == "population" and "global-model" in row["controls"]:
        return BY_ANYONE
    return LEVEL_MEANINGS.get(row["kind"] or "", NO_LEVEL)


# Metrics in words

# Where the sensitive column is known, the metrics of attributes name it.
OF_COLUMN: Mapping[str, str] = {
    "accuracy": "share of records whose {} is inferred correctly",
    "balanced_accuracy": "mean over the categories of {} of the share inferred correctly",
    "within_tolerance": "share of records whose {} is inferred within the tolerance",
}
# What an attacker does, with its score; {who}, {what} (the secret) and {score} are filled in.
FINDINGS: Mapping[str, str] = {
    "accuracy": "{who} infers {what} correctly for {score} of records.",
    "balanced_accuracy": "{who} infers {what} correctly for {score} of records, averaged over its categories.",
    "within_tolerance": "{who} infers {what} within the tolerance for {score} of records.",
    "auc": "{who} separates members from non-members with a ROC AUC of {score} (0.5 = chance).",
    "tpr_at_1pct_fpr": "{who} identifies {score} of the members at a false-positive rate of 1 %.",
    "psnr": "{who} reconstructs training images with a PSNR of {score}.",
    "ssim": "{who} reconstructs training images with an SSIM of {score} (1 = identical).",
    "mse": "{who} reconstructs training images with a mean squared error of {score} (0 = identical).",
    "rec": "{who} reconstructs {score} of the training images recognisably.",
    "retrieval": "{who} reconstructs {score} of the training images well enough to identify the original.",
    "lpips": "{who} reconstructs training images with a perceptual distance (LPIPS) of {score} (0 = identical).",
    "class_ssim": "{who} reconstructs an image of each class with an SSIM of {score}.",
    "class_psnr": "{who} reconstructs an image of each class with a PSNR of {score}.",
    "label_error": "{who} infers the label counts with an error of {score}.",
    "label_accuracy": "{who} infers {score} of the labels correctly.",
    "values_recovered": "{who} recovers {score} of the values of training records.",
    "zest": "{who} reconstructs the client's own model with a similarity (Zest) of {score}.",
    "parameter_distance": "{who} reconstructs the client's own model with a relative parameter distance of {score}.",
    "training_loss": "{who} reconstructs a model whose loss on the client's training records is {score}.",
    "training_accuracy": "{who} reconstructs a model that predicts {score} of the client's training records correctly.",
    "training_mape": "{who} reconstructs a model with a relative error of {score} on the client's training records.",
}


def metric_words(metric: str | None, column: str | None = None) -> str:
    """Return what a metric measures, for the sensitive `column` where one is named; an unknown metric's bare name."""
    if metric is None:
        return "not scored"
    if column is not None and metric in OF_COLUMN:
        return OF_COLUMN[metric].format(quoted(column))
    try:
        return metric_named(metric).what.partition(";")[0]  # remarks on variants follow the semicolon
    except BadInput:
        return metric


def finding_words(role: str, metric: str, score: str, secret: str | None) -> str:
    """Return one sentence on what an attacker in this role does, with its score."""
    who, text = capital(role_words(role)), FINDINGS.get(base_metric(metric))
    if text is None:  # a metric's own name may contain braces
        return f"{who} reaches a score of {score} ({metric})."
    return text.format(who=who, what=secret or "the value", score=score)


# Numbers and names in sentences


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


def ranges(numbers: Sequence[int]) -> str:
    """Return whole numbers with consecutive ones drawn together, as in 0–19, 30."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs) or "none"


def quoted(name: str) -> str:
    """Return a name of the reader's own, such as a column, in quotation marks."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}"


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


# Reasons of verdicts; results.json keeps its own sentences

PROVES_NOTHING: Mapping[str, str] = {
    verdict.POWER_FAILED: "Not evidence of safety: this attack did not find a planted leak either.",
    verdict.NOT_ALL_ENDED: "Not evidence of safety: some cases failed.",
    verdict.TOO_COARSE: "Not evidence of safety: with so few client-runs only a large leak would have been detected.",
}
UNTESTED = "Not evidence of safety: this attack was not tested on a planted leak."


def doubt(row: Row) -> str:
    """Return why a row is inconclusive, as a key of `overview.DOUBTS`."""
    low, high, margin, reason = row["low"], row["high"], row["margin"], row["reason"]
    for name, sign in (("lost", verdict.MOST_LOST), ("room", verdict.NO_ROOM), ("spread", verdict.NO_SPREAD)):
        if sign in reason:
            return name
    if row["mean"] is None:
        return "ended"
    if row["floor"] is None:
        return "floor"
    if low is None or high is None or row["n"] < verdict.LEAST_UNITS:
        return "units"
    if low > margin:
        return "adjusted"
    return "either" if high > margin else "power"


def reason_words(row: Row) -> str:
    """Return the reason of a row's verdict."""
    reason = {"leaks": _leaks, "no leak found": _no_leak}.get(row["verdict"], _inconclusive)(row)
    bound = "Upper bound by an oracle, not reachable by an attacker. " if row["oracle"] else ""
    losses = re.search(r"; of (\d+ cases?: .+)$", row["reason"], flags=re.DOTALL)
    return f"{bound}{reason}" + (f" Of {losses.group(1)}." if losses else "")


def _leaks(row: Row) -> str:
    reason = f"The whole interval of the gain is above the margin of {_margin(row)}.{_one_run(row)}"
    return reason if row["kind"] else f"{reason} {NO_LEVEL}"


def _no_leak(row: Row) -> str:
    smallest = re.search(rf"{verdict.SMALLEST}: ([0-9.]+)", row["reason"])
    size = f" of {margin_of(float(smallest.group(1)), row['metric'])}" if smallest else ""
    power = f"The attack finds a planted leak; this audit would detect one{size} with 80{GLUE}% probability."
    return f"The whole interval of the gain is below the margin of {_margin(row)}. {power}{_one_run(row)}"


def _one_run(row: Row) -> str:
    """Return that the result holds for one run or one recording only, where it does."""
    signs = [sign for sign in (verdict.ONE_RUN, verdict.ONE_RECORDING) if sign in row["reason"]]
    return "".join(f" {capital(sign)}." for sign in signs)


def _inconclusive(row: Row) -> str:
    margin = f"the margin of {_margin(row)}"
    more = "seeds" if row["unit"] == "client-run" else "records"
    because = verdict.PERFECT_GUESSES.get(row["over"] or "")
    no_proof = next((text for sign, text in PROVES_NOTHING.items() if sign in row["reason"]), UNTESTED)
    return {
        "ended": "No case was completed.",
        "lost": "Fewer than half of the cases were completed; the rest may be a biased selection.",
        "floor": "No floor was measured to compare the score with.",
        "room": f"{capital(verdict.NO_ROOM)}{f': {because}' if because else ''}.",
        "spread": f"{capital(verdict.NO_SPREAD)}.",
        "units": f"{count(row['n'], row['unit'])}; at least {verdict.LEAST_UNITS} and an interval are needed. "
        + ("Add seeds or target clients." if more == "seeds" else ""),
        "adjusted": f"The interval of the gain is above {margin}, but not after the correction for all comparisons "
        f"of the audit. Add {more}.",
        "either": f"The interval of the gain contains {margin}. Add {more} to narrow it.",
        "power": f"The whole interval of the gain is below {margin}. {no_proof}",
    }[doubt(row)]


def _margin(row: Row) -> str:
    return "this metric" if row["margin"] is None else margin_of(row["margin"], row["metric"])


# Method notes of a report; `**` stands around the words that are defined

METHOD: tuple[tuple[str, str], ...] = (
    (
        "Message",
        "What clients and server exchange in training: the model, and the update that each client computes. Records "
        "never leave a client. The audit measures what the messages nevertheless reveal about them.",
    ),
    (
        "Floor (baseline without messages)",
        "A score alone says little: 96 % correct is no leak if 95 % is possible anyway. Every attack is compared "
        "with baselines that see no message, such as the most common value, a classifier trained on public records, "
        "or the nearest public image, scored in the same way. The **floor** is the strongest of them on average. "
        "Choosing it after the fact favours the floor slightly: it can hide a small leak but not invent one. The "
        "**gain** is the score minus the floor.",
    ),
    (
        "Control",
        "The same attack where it should not work: on held-out records of the same client, with another client's "
        "messages, or with the global model. What a control also reaches was not learned from this client's training "
        "records.",
    ),
    (
        "Level of a leak",
        "**Record-level**: training records are exposed more than held-out records. **Client-level**: this client's "
        "messages reveal more than other messages, but leakage of single records was not demonstrated. "
        "**Population-level**: above the floor, but all controls reach as much, so it concerns people like these. "
        "Where controls are missing or too imprecise, no level is stated.",
    ),
    (
        "95 % interval",
        "The unit is one client in one run (client-run). Clients of one run share a model and are not "
        "independent, so with several runs (seeds) the interval is built over runs: by Student's t with fewer "
        "than ten runs, by a bootstrap of runs from ten on. With a single run it is built over its clients "
        "and holds for that run only. Differences are paired unit by unit. Intervals are not widened for the "
        "number of comparisons; the verdict is corrected for it.",
    ),
    (
        "Verdict",
        "**Leaks**: the whole interval of the gain is above the **margin**, the smallest gain that counts (the "
        "dashed line in the charts), and the p-value, adjusted by Holm's method for all verdicts of the audit, is at "
        "most 0.05. **No leak found**: the whole interval is within the margin, the same attack was shown to find a "
        "planted leak (power check), and the smallest leak that this audit would detect is stated. "
        "**Inconclusive**: everything else, also fewer than six client-runs and attacks that failed. A failed attack "
        "never counts as safety.",
    ),
    (
        "Attacker who knows the defence",
        "Under a defence each attack is run twice: by an attacker who knows the defence and by one who does not. "
        "Equal results are shown once; otherwise the stronger attacker decides.",
    ),
    (
        "Oracle, upper bound",
        "Some attacks are given true values that no attacker could have. They bound what is possible, are marked as "
        "oracles everywhere, and do not count in the verdict.",
    ),
    (
        "Limits of this report",
        "It covers the attacks that were run, by attackers with the listed knowledge, on this data, model and recipe. "
        "A better attack may find more.",
    ),
)
DEFINED = re.compile(r"\*\*(.+?)\*\*")


def strong(text: str) -> Markup:
    """Return a method note as HTML."""
    return Markup(DEFINED.sub(r"<strong>\1</strong>", str(escape(text))))


def strong_text(text: str) -> Markup:
    """Return a method note as Markdown."""
    parts = DEFINED.split(text)  # every second one is defined
    return Markup("").join(
        Markup("**{}**").format(escaped(part)) if index % 2 else escaped(part) for index, part in enumerate(parts)
    )


# Text for Markdown in which nothing is markup, whatever a name contains

SPECIAL = re.compile(r"[\\`*_{}\[\]!|~^$]|(?<!&)#")
# What a Markdown reader may treat as HTML, a link or a user name even without brackets.
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
REPLACED = re.compile("|".join(map(re.escape, ENTITIES)))


def escaped(value: Any) -> Markup:
    """Return a value as inert Markdown; what is Markdown already stays."""
    if isinstance(value, Markup):
        return value
    safe = REPLACED.sub(lambda match: ENTITIES[match.group()], printable(str(value)))
    return Markup(SPECIAL.sub(r"\\\g<0>", safe))


def verbatim(text: str) -> Markup:
    """Return lines for a fenced code block, none of which can close it."""
    lines = [
        "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
        for line in text.split("\n")
    ]
    return Markup("\n".join(line.replace("```", "` ` `") for line in lines))
