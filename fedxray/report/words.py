"""The names of results in plain words, and numbers as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.errors import BadInput

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
    return METRICS.get(base_metric(metric), metric)


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
