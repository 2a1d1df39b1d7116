"""The line on cases that failed or were cut off: how many, why, and what to change.

Terminal, log and report print this line, and the exit code is 4 where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedxray.errors import printable, some

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
