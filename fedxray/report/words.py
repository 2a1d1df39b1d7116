"""The vocabulary of the report: names and method notes in sentences, and text that is safe in Markdown.

Descriptions of metrics come from `fedxray.metrics.table`, numbers with their units from `fedxray.metrics.units`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import Any

from markupsafe import Markup, escape

from fedxray.adversary.grants import GRANTS, OTHER_RECORDS
from fedxray.errors import BadInput, printable
from fedxray.metrics import units
from fedxray.metrics.table import BY_PERSON, base_metric, metric as metric_named

Row = Mapping[str, Any]

# Names of the catalogue in words

FLOORS: Mapping[str, str] = {
    "majority": "always the most common value",
    "imputation": "a classifier trained on public records",  # with their share where it is known
    "marginals": "random values with known frequencies",
    "mean-image": "the mean public image",
    "nearest-public-image": "the nearest public image",
    "class-mean": "the mean public image of the class",
    "random-public-image": "a random public image of the class",
    "chance": "chance",
    "owner-share": "always the largest client",
    "other-optimum": "another client's optimal model",
    "without-messages": "the same attack without any message",
}
CONTROLS: Mapping[str, str] = {
    "held-out": "same client, records held out of training",
    "other-client": "another client's messages",
    "global-model": "the global model instead of the client's",
}
CONTROLS_SHOW: Mapping[str, str] = {  # what follows where a control reaches as much as the attack
    "held-out": "Held-out records: what they give as well concerns people outside the training data, too.",
    "other-client": "Another client: what its messages give as well does not come from this client's messages.",
    "global-model": "Global model: what it gives as well, anyone who holds the trained model can infer.",
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
LEVEL_MEANINGS: Mapping[str, str] = {
    "record": "Record: training records are exposed more than held-out records.",
    "client": "Client: a client's own messages reveal more than another client's. Everyone at this client may be "
    "exposed: no difference was shown between records trained on and held out.",
    "population": "Population: other clients' messages and held-out records give as much, so the attack also works for "
    "people outside the training data.",
}
OF_PEOPLE = "Person: people with records in training are exposed more than people held out."
HELPS_PEOPLE = (
    "What helps: noise in training (dp-sgd) for an epsilon that holds for a person: the records of one add up."
)
BY_ANYONE = "Population: anyone who holds the trained model can do this, also for people outside the training data."
TWO = "Secure aggregation among two clients hides neither from the other."
HELPS_SUMS = "What helps: secure aggregation, which hides single updates."
NO_SUMS = "Secure aggregation does not help: the model itself reveals it."
HELPS: Mapping[str, str] = {  # what helps against a leak of this level
    "record": "What helps: noise in training (dp-sgd), which bounds what one record reveals.",
    "client": "What helps: secure aggregation, which hides single updates, or noise on them.",
    "population": NO_SUMS + " What helps: {column}noise that blurs the model, as far as it is blurred.",
}
NOISES = {"gaussian-noise", "laplace-noise"}  # on updates
HIDDEN_SO_FAR = "What helps: more clients per round."
HIDDEN = "What helps: more clients per round, or noise on their updates: single ones are hidden already."
ENCRYPT = "Encrypt the connections (TLS): then an eavesdropper reads nothing."
NO_LEVEL = "Not determined: the controls are missing or too imprecise."
STATUSES: Mapping[str, str] = {
    "refused": "not possible in this role",
    "undetermined": "no answer found",
    "diverged": "training or the attack diverged",
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


def floor_words(floor: str | None, public: float | None = None) -> str:
    """Return a floor in words; `public` is the share of records taken as public, None where it is not known."""
    if floor == "imputation" and public:
        return f"a classifier trained on the records taken as public ({100 * public:g}{units.GLUE}%)"
    return "nothing" if floor is None else FLOORS.get(floor, floor)


def aware_words(row: Row) -> str:
    """Return whether the attacker knows the defence; empty where there is none."""
    if row["aware"] is None:
        return ""
    known = {
        True: "attacker knows the defence",
        False: "attacker does not know the defence",
        "unused": "attack cannot use knowledge of the defence",
    }
    return known.get(row["aware"], "with or without knowledge of the defence")


def level(row: Row) -> str | None:
    """Return the level of a leak in a word."""
    by_person = row["kind"] == "record" and row["metric"] in BY_PERSON
    return "person" if by_person else row["kind"]


def level_words(row: Row) -> str:
    """Return the level of a leak and what follows from it."""
    if row["kind"] == "population" and "global-model" in row["controls"]:
        return BY_ANYONE
    if level(row) == "person":
        return OF_PEOPLE
    return LEVEL_MEANINGS.get(row["kind"] or "", NO_LEVEL)


def help_words(
    row: Row, column: str | None, clients: int | None = None, audited: AbstractSet[str] = frozenset()
) -> str:
    """Return what helps against a leak of this level in this role; `column` is the sensitive one, if any.

    Among two `clients` a sum hides neither from the other. What was `audited` (names of defences) is not proposed.
    """
    on_updates, in_training = bool(audited & NOISES), "dp-sgd" in audited
    if row["role"] == "eavesdropper":
        return ENCRYPT
    if row["kind"] == "client" and row["role"] in ("secure-aggregation", "curious-client"):
        return HIDDEN_SO_FAR if on_updates else HIDDEN
    if row["kind"] == "client" and clients == 2:
        return TWO if on_updates else f"What helps: noise on updates. {TWO}"
    if level(row) == "person":
        return "" if in_training else HELPS_PEOPLE
    if row["kind"] == "record" and in_training:
        return ""
    if row["kind"] == "client" and on_updates:
        return HELPS_SUMS
    if row["kind"] == "population" and (on_updates or in_training):
        left_out = "" if column is None else f" What helps: leaving {quoted(column)} out of training."
        return NO_SUMS + left_out
    left_out = "" if column is None else f"leaving {quoted(column)} out of training, or "
    return HELPS.get(row["kind"] or "", "").format(column=left_out)


def grant_words(grants: Sequence[str], public: float | None, metric: str | None = None) -> str:
    """Return what an attacker knows; `public` is the share of records taken as public, None where it is not known."""
    others = {"target-records": OTHER_RECORDS} if metric == "auc_subject_other" else {}
    meanings = {**GRANTS, **others}
    share = f" ({100 * public:g}{units.GLUE}% of all records)" if public else ""
    known = [
        meanings.get(grant, grant) + (share if grant in ("public-records", "public-images") else "") for grant in grants
    ]
    return "; ".join(["The model's architecture and the messages that its role sees", *known]) + "."


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
    "auc_subject": "{who} separates people with records in training from others with a ROC AUC of {score} "
    "(0.5 = chance), by all of a person's records together.",
    "auc_subject_other": "{who} separates people with records in training from others with a ROC AUC of {score} "
    "(0.5 = chance), by records of theirs that were never trained on.",
    "tpr_at_1pct_fpr": "{who} identifies {score} of the members at a false-positive rate of 1 %.",
    "tpr_at_0p1pct_fpr": "{who} identifies {score} of the members at a false-positive rate of 0.1 %.",
    "psnr": "{who} reconstructs training images with a PSNR of {score} (recognisable from about 20 dB).",
    "ssim": "{who} reconstructs training images with an SSIM of {score} (1 = identical).",
    "mse": "{who} reconstructs training images with a mean squared error of {score} (0 = identical).",
    "rec": "{who} reconstructs {score} of the training images recognisably.",
    "retrieval": "{who} reconstructs {score} of the training images well enough to identify the original.",
    "lpips": "{who} reconstructs training images with a perceptual distance (LPIPS) of {score} (0 = identical).",
    "class_ssim": "{who} reconstructs an image of each class with an SSIM of {score}.",
    "class_psnr": "{who} reconstructs an image of each class with a PSNR of {score}.",
    "class_recognised": "{who} reconstructs an image of each class, of which {score} are recognised.",
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


METRIC_NAMES: Mapping[str, str] = {
    "auc": "ROC AUC", "auc_subject": "ROC AUC by person", "auc_subject_other": "ROC AUC by person, other records",
    "tpr_at_1pct_fpr": f"TPR at 1{units.GLUE}% FPR", "psnr": "PSNR", "ssim": "SSIM", "lpips": "LPIPS",
    "tpr_at_0p1pct_fpr": f"TPR at 0.1{units.GLUE}% FPR",
    "mse": "mean squared error", "class_ssim": "SSIM of classes", "class_psnr": "PSNR of classes", "zest": "Zest",
    "rec": "recognisable images", "retrieval": "identified images", "class_recognised": "recognised classes",
}  # fmt: skip
# Of what the score of one client is a share.
SHARE_OF: Mapping[str, str] = {
    "accuracy": "records", "within_tolerance": "records", "tpr_at_1pct_fpr": "members",
    "tpr_at_0p1pct_fpr": "members", "rec": "images",
    "retrieval": "images", "label_accuracy": "labels", "class_recognised": "classes",
}  # fmt: skip


def metric_name(metric: str | None) -> str:
    """Return the short name of a metric."""
    return METRIC_NAMES.get(base_metric(metric or ""), (metric or "score").replace("_", " "))


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


def class_words(name: str) -> str:
    """Return the name of a class with that word, once: "class 1" for "1", for "class 1" and "Class 1" what they are."""
    return name if name.casefold().startswith("class") else f"class {name}"


def quoted(name: str) -> str:
    """Return a name of the reader's own, such as a column, in quotation marks."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}"


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


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
        "messages reveal more than other messages, for its people whether or not their record was trained on. "
        "**Population-level**: above the floor, but all controls reach as much, so it concerns people like these. "
        "Where controls are missing or too imprecise, no level is stated.",
    ),
    (
        "Primary metric and margin",
        "Each attack is judged by one **primary metric**; the others are shown with intervals and without a verdict. "
        "The **margin** is the smallest gain that counts as a leak: the dashed line in the charts.",
    ),
    (
        "95 % interval",
        "It speaks of runs like these: other seeds, same data and training. The unit is one client in one run "
        "(client-run). Clients of one run share a model, so the interval is built over runs. Differences are paired "
        "unit by unit. Intervals are not widened for the number of rows; verdicts are corrected for it.",
    ),
    (
        "Not luck",
        "Three tests show that a gain is no accident. **Split test**: the seed drew which records were trained on; "
        "redrawing that choice shows which scores arise by chance. **Swap test**: the attack is repeated with the "
        "messages of other clients; if they were as good, some other pairing of messages and clients would often "
        "score as high. **Run test**: Student's t over runs. p is the probability of such a result without a leak, "
        "corrected for all rows of the audit; at most 0.05 counts, or the part of it that each look at the results may "
        'spend where the audit looks repeatedly (seeds = "auto", --resume --seeds).',
    ),
    (
        "Verdict and state",
        "**Leaks**: the gain is above the margin and not luck; holds for the runs that happened. **Small**: it leaks, "
        "shown by the split or swap test, but the gain in these runs is at most the margin. **No leak found**: "
        "for runs like these the gain is at most the margin, the same attack detects a planted leak under the same "
        "defence, and a leak of two margins would have been detected in 4 of 5 such audits. **Stopped**: the attack "
        "leaks without the defence and is bounded in the same way with it, but planted leaks are hidden too; another "
        "attack may succeed. All else is inconclusive: "
        "**suspected** (above the margin, may be luck), **trace** (the messages carry information, but the attack "
        "gains less than the margin), **blinded** (the attack detects the planted leak only without the defence), "
        "**reversed** (far below chance), **coarse** (only a large leak would have been detected), **open** (other "
        "reasons). None of these is safety, and neither is a failed attack.",
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
