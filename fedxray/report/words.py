"""The names of results in plain words, and numbers as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fedxray.audit.judge import verdict
from fedxray.errors import BadInput, printable

METRICS: Mapping[str, str] = {
    "accuracy": "share of records told rightly",
    "balanced_accuracy": "share told rightly, each category counting the same",
    "within_tolerance": "share of values told closely enough",
    "auc": "how well members are told from non-members (0.5 = not at all)",
    "tpr_at_1pct_fpr": "share of members named before more than 1 % of non-members are "
    "(fewer than 100 non-members: before the first one)",
    "psnr": "likeness of rebuilt images (PSNR, in dB)",
    "ssim": "likeness of rebuilt images in structure (SSIM, 1 = the same)",
    "mse": "error of rebuilt images (MSE, 0 = the same)",
    "rec": "share of images rebuilt recognisably",
    "retrieval": "share of rebuilt images that point to their original among many",
    "lpips": "perceived distance of rebuilt images (LPIPS, 0 = the same)",
    "class_ssim": "likeness of an image of the class in structure (SSIM)",
    "class_psnr": "likeness of an image of the class (PSNR, in dB)",
    "label_error": "labels told wrongly, in examples",
    "label_accuracy": "share of labels told rightly",
    "values_recovered": "share of values rebuilt",
    "zest": "likeness of the rebuilt model to the client's",
    "parameter_distance": "distance of the rebuilt model to the client's",
    "training_loss": "loss of the rebuilt model on the client's training records",
    "training_accuracy": "share of the client's training records that the rebuilt model predicts rightly",
    "training_mape": "mean relative error of the rebuilt model on the client's training records",
}
# Where the sensitive column is known, the metrics of attributes name it.
OF_COLUMN: Mapping[str, str] = {
    "accuracy": "share of records whose {} was told rightly",
    "balanced_accuracy": "share of records whose {} was told rightly, each category counting the same",
    "within_tolerance": "share of records whose {} was told closely enough",
}
FLOORS: Mapping[str, str] = {
    "majority": "always naming the most common value",
    "imputation": "filling in from public records",
    "marginals": "guessing by known frequencies",
    "mean-image": "the mean public image",
    "nearest-public-image": "the nearest public image",
    "class-mean": "the mean image of the class",
    "chance": "blind guessing",
    "owner-share": "naming the largest client",
    "other-optimum": "another client's best model",
}
CONTROLS: Mapping[str, str] = {
    "held-out": "same client, records never trained on",
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
    "eavesdropper": "someone who reads the network links",
    "active-server": "a server that may change what it sends",
    "curious-client": "another client",
    "secure-aggregation": "a server under secure aggregation",
}
KINDS: Mapping[str, str] = {
    "record": "record-level",
    "client": "client-level",
    "population": "population-level",
}
KIND_MEANINGS: Mapping[str, str] = {
    "record": "It gives away the very records that were trained on, more than records that were not.",
    "client": "It gives away this client more than other messages do; that single records leak was not shown.",
    "population": "Other messages and records never trained on give as much: "
    "it is about people like these, not about these people.",
}
GRANTS: Mapping[str, str] = {
    "recipe": "how clients train (epochs, batch size, learning rate)",
    "examples": "how many examples each client has",
    "contributors": "which clients took part",
    "defence": "which defence is used, with its settings",
    "labels": "the labels of the client's records",
    "label-counts": "how often each label occurs at the client",
    "batch-labels": "the labels of every batch",
    "public-attributes": "all columns but the sensitive one, and the target",
    "target-records": "complete records, some trained on and some not, without saying which",
    "source-records": "training records of several clients, without saying whose",
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
    "refused": "could not be tried from this seat",
    "undetermined": "found no answer",
    "diverged": "did not settle",
    "truncated": "cut short by the budget",
    "failed": "stopped with an error",
}
UTILITY: Mapping[str, str] = {
    "accuracy": "share of held-out records predicted rightly",
    "mape": "mean relative error on held-out records, less is better",
    "loss": "loss on held-out records, less is better",
    "standardised loss": "squared error on held-out records, less is better (1 = no better than naming the mean)",
}
# Shares read best as percent; everything else keeps its own unit.
SHARES = frozenset(
    {"accuracy", "balanced_accuracy", "within_tolerance", "tpr_at_1pct_fpr", "rec", "retrieval"}
    | {"label_accuracy", "values_recovered", "mape", "training_accuracy", "training_mape"}
)
# Metrics that end at 0 and 1: charts stay within.
BOUNDED = SHARES - {"mape", "training_mape"} | {"auc", "ssim", "class_ssim"}
# Metrics that end at 0 only.
NOT_NEGATIVE = frozenset(
    {"mape", "training_mape", "lpips", "mse", "label_error", "zest", "parameter_distance"}
)
# Decimals of the others, so that numbers of one column can be compared at sight.
DECIMALS: Mapping[str, int] = {
    "auc": 3, "ssim": 3, "class_ssim": 3, "lpips": 3, "zest": 3, "parameter_distance": 3, "mse": 4, "label_error": 1,
    "psnr": 1, "class_psnr": 1, "own_psnr": 1, "training_loss": 3,
}  # fmt: skip
UNITS: Mapping[str, str] = {"psnr": "dB", "class_psnr": "dB", "own_psnr": "dB", "label_error": "examples"}
GLUE = "\N{NO-BREAK SPACE}"  # between a number and its unit


def base_metric(metric: str) -> str:
    """A metric's name without the suffix of a paper's variant or of matching by index."""
    return re.sub(r"_\d{3}$", "", metric.removesuffix("_by_index"))


def metric_words(metric: str | None, column: str | None = None) -> str:
    """What a metric says, of a sensitive column where one is named; its bare name where it is not a known one."""
    if metric is None:
        return "not scored"
    if column is not None and metric in OF_COLUMN:
        return OF_COLUMN[metric].format(quoted(column))
    return METRICS.get(base_metric(metric)) or _metric_line(metric) or metric


def _metric_line(metric: str) -> str | None:
    """The description of a metric in the table of metrics, for one that has no words of its own here."""
    from fedxray.metrics.table import METRICS as TABLE

    entry = TABLE.get(base_metric(metric))
    return None if entry is None else entry.what


def is_down(metric: str | None) -> bool:
    """Whether smaller values of a metric leak more; unknown names are taken for the other way."""
    from fedxray.metrics.table import metric as metric_named

    try:
        return metric is not None and metric_named(metric).better == "down"
    except BadInput:
        return False


def value(amount: float | None, metric: str | None, *, sign: bool = False) -> str:
    """A score as a reader sees it: shares in percent and their differences in points, decibels with their unit."""
    if amount is None:
        return "–"
    base = base_metric(metric or "")
    if base in SHARES:
        return _signed(f"{100 * amount:.1f}", sign) + GLUE + ("points" if sign else "%")
    text = f"{amount:.{DECIMALS[base]}f}" if base in DECIMALS and abs(amount) < 1e6 else short(amount)
    return _signed(text, sign) + (GLUE + UNITS[base] if base in UNITS else "")


def between(low: float | None, high: float | None, metric: str | None, *, sign: bool = False) -> str:
    """An interval as a reader sees it."""
    if low is None or high is None:
        return "no interval"
    base = base_metric(metric or "")
    if not sign and base in BOUNDED:
        # A t-interval does not know that no share is above 1; only a relative error may be.
        low, high = max(low, -1.0 if base.endswith("ssim") else 0.0), min(high, 1.0)
    elif not sign and base in NOT_NEGATIVE:
        low = max(low, 0.0)
    elif base in BOUNDED and not base.endswith("ssim"):
        low, high = max(low, -1.0), min(high, 1.0)  # nor a difference of two shares
    first, last = value(low, metric, sign=sign), value(high, metric, sign=sign)
    return f"{first.partition(GLUE)[0]} to {last}"


def least(margin: float, metric: str | None) -> str:
    """The least gain that counts, without needless digits."""
    base = base_metric(metric or "")
    if base in SHARES:
        return f"{100 * margin:.3g}{GLUE}points"
    return f"{margin:.3g}" + (GLUE + UNITS[base] if base in UNITS else "")


def short(amount: float) -> str:
    """Three digits that matter, without an exponent where that reads well."""
    if amount == 0 or 1e-4 <= abs(amount) < 1e5:
        digits = 3 if abs(amount) < 10 else 2 if abs(amount) < 100 else 1
        return f"{amount:.{digits}f}" if abs(amount) >= 0.1 or amount == 0 else f"{amount:.3g}"
    return f"{amount:.2e}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers with runs drawn together, as in 0-19, 30."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs) or "none"


def aware_words(row: Mapping[str, Any]) -> str:
    """Whether the attacker knew the defence."""
    known = {True: "attacker knows it", False: "attacker does not know it"}
    return (
        known.get(row["aware"], "the same whether or not the attacker knows it")
        if row["aware"] is not None
        else ""
    )


def role_words(role: str) -> str:
    """A seat in words."""
    return ROLES.get(role, role)


def defence_words(defence: str) -> str:
    """A defence in words."""
    return "no defence" if defence == "none" else defence


def floor_words(floor: str | None) -> str:
    """A floor in words."""
    return "nothing" if floor is None else FLOORS.get(floor, floor)


def quoted(name: str) -> str:
    """A name of the reader's own in a sentence."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{name}\N{RIGHT DOUBLE QUOTATION MARK}"


def capital(text: str) -> str:
    """A text that begins a sentence."""
    return text[:1].upper() + text[1:]


def _signed(text: str, sign: bool) -> str:
    """The text with a real minus, or a plus where a sign is wanted; nothing rounded away is negative."""
    if not text.strip("-0."):
        return text.removeprefix("-")
    return text.replace("-", "\N{MINUS SIGN}") if not sign or text.startswith("-") else f"+{text}"


# --- Why a verdict is what it is, in the words of the page; results.json keeps its own.


Row = Mapping[str, Any]

PROVES_NOTHING: Mapping[str, str] = {
    verdict.POWER_FAILED: "But this attack did not find a planted leak either, so this proves nothing.",
    verdict.NOT_ALL_ENDED: "But not every case ended, so this proves nothing.",
    verdict.TOO_COARSE: "But so few client-runs would have seen a large leak only, so this proves nothing.",
}
UNTESTED = "But this attack was never tested on a planted leak, so this proves nothing."
NOBODY_KNOWS_WHOSE = "Whose data it is about was not shown."


def doubt(row: Row) -> str:
    """Why a row stays open, as one word."""
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
    """The reason of a row's verdict, for somebody who has read the page down to it."""
    why = {"leaks": _leaks, "no leak found": _no_leak}.get(row["verdict"], _open)(row)
    bound = "An upper bound that no attacker could have. " if row["oracle"] else ""
    losses = re.search(r"; of (\d+ cases?: .+)$", row["reason"], flags=re.DOTALL)
    return f"{bound}{why}" + (f" Of {losses.group(1)}." if losses else "")


def _leaks(row: Row) -> str:
    why = f"The gain is above {_least(row)}, the least that counts as a leak."
    why += _alone(row)
    return why if row["kind"] else f"{why} {NOBODY_KNOWS_WHOSE}"


def _no_leak(row: Row) -> str:
    seen = re.search(rf"{verdict.SMALLEST}: ([0-9.]+)", row["reason"])
    size = f" of {least(float(seen.group(1)), row['metric'])}" if seen else ""
    found = f"The same attack finds a planted leak, and this audit would have seen one{size} in four of five cases."
    return f"The gain is below {_least(row)}. {found}{_alone(row)}"


def _alone(row: Row) -> str:
    """That one run or one recording speaks of itself only."""
    signs = [sign for sign in (verdict.ONE_RUN, verdict.ONE_RECORDING) if sign in row["reason"]]
    return "".join(f" {capital(sign)}." for sign in signs)


def _open(row: Row) -> str:
    least = _least(row)
    enough = f"{least}, the least that counts as a leak"
    more = "seeds" if row["unit"] == "client-run" else "records"
    because = verdict.PERFECT_GUESSES.get(row["over"] or "")
    said = next((text for sign, text in PROVES_NOTHING.items() if sign in row["reason"]), UNTESTED)
    return {
        "ended": "No case ended.",
        "lost": "Fewer than half of the cases ended, so the rest would be a choice of the lucky ones.",
        "floor": "There is no guess to compare it with.",
        "room": f"{capital(verdict.NO_ROOM)}{f': {because}' if because else ''}.",
        "spread": f"{capital(verdict.NO_SPREAD)}.",
        "units": f"{count(row['n'], row['unit'])}; at least {verdict.LEAST_UNITS} and an interval are needed. "
        + ("Add seeds or target clients." if more == "seeds" else ""),
        "adjusted": f"The gain is above {enough}, but not clearly enough for so many comparisons. "
        f"More {more} would settle it.",
        "either": f"The gain may be above or below {enough}. More {more} would narrow it.",
        "power": f"The gain is below {least}. {said}",
    }[doubt(row)]


def _least(row: Row) -> str:
    """The margin: the least gain that counts."""
    return "the least that counts" if row["margin"] is None else least(row["margin"], row["metric"])


# --- Text for Markdown in which nothing is markup, whatever a name holds.


SPECIAL = re.compile(r"[\\`*_{}\[\]!|~^$]|(?<!&)#")
# What a reader might take for HTML, a link or somebody's name even without brackets.
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
FOUND = re.compile("|".join(map(re.escape, ENTITIES)))


def escaped(value: Any) -> Markup:
    """A value as Markdown that shows it and does nothing; what is Markdown already stays."""
    if isinstance(value, Markup):
        return value
    safe = FOUND.sub(lambda found: ENTITIES[found.group()], printable(str(value)))
    return Markup(SPECIAL.sub(r"\\\g<0>", safe))


def verbatim(text: str) -> Markup:
    """Lines inside a fence of code, of which none can close it."""
    lines = [
        "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)
        for line in text.split("\n")
    ]
    return Markup("\n".join(line.replace("```", "` ` `") for line in lines))


# --- How to read a report, for somebody who has read no paper; `**` stands around the words that are
# defined.


METHOD: tuple[tuple[str, str], ...] = (
    (
        "Message",
        "What clients and server send each other in training: the model, and the changes that each client makes to it. "
        "Records never leave a client. The question of an audit is what the messages tell of them all the same.",
    ),
    (
        "Floor: the guess without messages",
        "A score alone says nothing: 96 % right is no leak if 95 % can be guessed. So every attack is compared "
        "with the best guess by somebody who saw no message at all, such as the most common value, a classifier "
        "trained on public records, or the nearest public image. Every floor goes through the same scoring. Of "
        "several the strongest on average counts. Choosing it afterwards favours the floor a little, so it can "
        "hide a small leak but not invent one.",
    ),
    (
        "Control: the same attack where it should not work",
        "The attack is repeated on records of the same client that were never trained on, and with the messages "
        "of another client or the global model. What these reach as well was not learnt from the client's "
        "training records.",
    ),
    (
        "Kind of leak",
        "**Record-level**: training records are exposed more than records held out. **Client-level**: this "
        "client's messages give more than other messages, but single records were not shown to matter. "
        "**Population-level**: beyond the guess, but all controls reach as much, so it is about people like "
        "these. Where the controls cannot tell, whose data it is about was not shown.",
    ),
    (
        "95 % interval",
        "The unit is one client in one run (client-run). Clients of one run share a model and are not "
        "independent, so with several runs (seeds) the interval is built over runs: by Student's t with fewer "
        "than ten runs, by a bootstrap of whole runs from ten on. With a single run it is built over its clients "
        "and speaks of that run alone. Differences are taken unit by unit. Intervals are not widened for the "
        "number of comparisons; the verdict is.",
    ),
    (
        "Verdict",
        "**Leaks**: the whole interval of the gain lies above the margin of the metric (the least gain that "
        "counts; the dashed line in the charts), and the p-value, adjusted by Holm's method for all verdicts of "
        "the audit, is at most 0.05. **No leak found**: the whole interval lies within the margin, the same "
        "attack was shown to find a planted leak, and the smallest leak that this audit would have seen is "
        "stated. **Inconclusive**: everything else, also fewer than six client-runs and attacks that failed. An "
        "attack that fails never counts as safety.",
    ),
    (
        "Attacker who knows the defence",
        "Under a defence each attack is run twice, by an attacker who knows it and by one who does not. An attack "
        "that makes no use of this gives the same twice. Then it stands once, else the stronger one decides.",
    ),
    (
        "Oracle, upper bound",
        "Some attacks are given truths that nobody could have. They bound what is possible, are marked as oracles "
        "everywhere, and do not count in the verdict.",
    ),
    (
        "What this report cannot say",
        "It speaks of the attacks that were run, by attackers with the knowledge in the ledger, on this data, "
        "model and recipe. A better attack may find more.",
    ),
)
DEFINED = re.compile(r"\*\*(.+?)\*\*")


def strong(text: str) -> Markup:
    """A note of ours for the page."""
    return Markup(DEFINED.sub(r"<strong>\1</strong>", str(escape(text))))


def strong_text(text: str) -> Markup:
    """A note of ours for Markdown, where it has its form already."""
    parts = DEFINED.split(text)  # every second one is defined
    return Markup("").join(
        Markup("**{}**").format(escaped(part)) if place % 2 else escaped(part)
        for place, part in enumerate(parts)
    )
