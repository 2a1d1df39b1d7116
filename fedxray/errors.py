"""Errors that a user can fix, and the checks and wording behind them.

Every message has one shape: which argument, what was expected, what came, what to do. `BadInput` is wrong input,
`Refused` an attack without the knowledge it needs, `Diverged` a training that left the finite numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence, Set
from functools import partial

LONGEST = 1500  # characters of one part of a message
MOST_NAMES = 40  # known names that a message lists


class FedxrayError(Exception):
    """An error that a user can fix; shown without a traceback."""


class BadInput(FedxrayError):
    """An argument, key or file is not what was asked for."""

    quotes = True  # whether `got` may be a value of the user's data

    def __init__(self, argument: str, *, expected: str, got: object, remedy: str) -> None:
        """Build the message from its four parts; `got` is turned into text."""
        parts = (_cut(str(part)) for part in (argument, expected, got, remedy))
        self.argument, self.expected, self.got, self.remedy = parts
        Exception.__init__(self, f"{self.argument}: expected {self.expected}, got {self.got}. {self.remedy}")

    def at(self, argument: str) -> BadInput:
        """A copy about another argument, whose name the user knows."""
        return type(self)(argument, expected=self.expected, got=self.got, remedy=self.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the four parts, so that the message survives the way between processes."""
        parts = {"expected": self.expected, "got": self.got, "remedy": self.remedy}
        return (partial(type(self), **parts), (self.argument,))


class MissingData(BadInput):
    """A data set of the catalogue whose file is not here; `argument` is "data set NAME"."""


class Diverged(BadInput):
    """A training whose numbers became infinite or NaN: an outcome of its settings that only running them shows."""

    quotes = False


class Refused(FedxrayError):
    """An attack cannot run in this role: names the missing knowledge and what would give it."""

    def __init__(self, attack: str, *, missing: str, remedy: str) -> None:
        """Build the message: which attack, what it lacks, and which role or grant would supply it."""
        self.attack, self.missing, self.remedy = attack, missing, remedy
        Exception.__init__(self, f"{attack} cannot run: it needs {missing}. {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the three parts, so that the message survives the way between processes."""
        return (partial(type(self), missing=self.missing, remedy=self.remedy), (self.attack,))


def _cut(text: str) -> str:
    """A part of a message: a long one, which quotes a file or a plan, keeps its beginning."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def printable(text: str) -> str:
    """Untrusted text on one line, without any character that a terminal or XML would act upon."""
    flat = re.sub(r"\s+", " ", text)
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in flat)


def unknown_name(argument: str, got: object, known: Iterable[str]) -> BadInput:
    """The refusal of a name that is not in a table, with the nearest known names as the remedy."""
    remedy = _nearest(str(got), sorted(known), "names", 3, cutoff=0.5)
    return BadInput(argument, expected="a known name", got=repr(got), remedy=remedy)


def unknown_key(
    argument: str, key: str, known: Iterable[str], *, of: str | None = None, home: str | None = None
) -> BadInput:
    """The refusal of an unknown key, with the nearest known keys as the remedy.

    `of` names what has these settings; `home` is the table of the plan that the key belongs to, where there is one.
    """
    names = sorted(known) if isinstance(known, Set) else list(known)
    expected = "a known key" if of is None else f"a setting of {of}"
    remedy = _nearest(key, names, "keys", 1, cutoff=0.6) if home is None else f"It belongs to [{home}]."
    shown = repr(key) if len(key) <= 80 else f"{key[:77]!r}..."
    return BadInput(argument, expected=expected, got=f"the unknown key {shown}", remedy=remedy)


def missing_extra(argument: str, library: str, extra: str, otherwise: str | None = None) -> BadInput:
    """The refusal where an optional library is missing, with how to install it; `otherwise` is an alternative."""
    remedy = f"In the project's folder: .venv/bin/python -m pip install -c constraints.txt -e '.[{extra}]'"
    remedy += "." if otherwise is None else f"; or {otherwise}."
    return BadInput(argument, expected=f"{library} to be installed", got="none", remedy=remedy)


def _nearest(got: str, names: list[str], what: str, most: int, *, cutoff: float) -> str:
    near = difflib.get_close_matches(got, names, n=most, cutoff=cutoff)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known {what}: {some(names, MOST_NAMES)}."


def some(names: Sequence[str], most: int = 5, *, between: str = ", ", nothing: str = "none") -> str:
    """At most `most` of the names, joined by `between`, and the number of those left out; `nothing` for none."""
    if len(names) <= most:
        return between.join(names) or nothing
    return f"{between.join(names[:most])}{between if between != ', ' else ' '}and {len(names) - most} more"


def check_one_of(argument: str, value: object, known: Sequence[str]) -> None:
    """Refuse a value that is not among the known words."""
    if value not in known:
        near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5) or known
        raise BadInput(argument, expected=" or ".join(known), got=repr(value), remedy=f"Try {near[0]!r}.")


def check_whole(argument: str, value: object, *, least: int, usual: int, most: int | None = None) -> None:
    """Refuse a value that is no whole number from `least` to `most`; `usual` is offered as the remedy."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        upper = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise BadInput(argument, expected=f"a whole number {upper}", got=repr(value), remedy=f"Try {usual}.")
