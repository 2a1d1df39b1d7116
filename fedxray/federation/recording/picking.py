"""Which run and node of a recording is meant: the only one, or the one that is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedxray.errors import BadInput, printable
from fedxray.federation.recording.form import Heard

MOST_LISTED = 20  # nodes or runs that a refusal names


def one_of(
    argument: str,
    noun: str,
    given: str | None,
    known: Sequence[str],
    more: Callable[[str], str] | None = None,
) -> str:
    """The given one of several, or the only one; `more` says something about each."""
    if given is None and len(known) == 1:
        return known[0]
    if given is None or given not in known:
        listed = "; ".join(
            printable(f"{name} ({more(name)})" if more else name) for name in known[:MOST_LISTED]
        )
        listed += f"; and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
        got = "nothing" if given is None else repr(given)
        short = argument.rpartition(".")[2]
        raise BadInput(
            argument,
            expected=f"a {noun} of this recording: {listed}",
            got=got,
            remedy=f'Name it: {short} = "{printable(known[0])}".',
        )
    return given


def rounds_of(messages: Sequence[Heard], node: str) -> str:
    """How many rounds a node trained in, and which, counted from 0."""
    rounds = [m.round for m in messages if m.node == node and m.what == "train"]
    numbers = [round - 1 for round in rounds if round is not None]
    if not rounds:
        return "never trained"
    if len(numbers) < len(rounds):
        return f"{len(rounds)} rounds"
    first, last, count = min(numbers), max(numbers), len(rounds)
    return f"1 round: {first}" if count == 1 else f"{count} rounds from {first} to {last}"


def trainers(messages: Sequence[Heard]) -> list[str]:
    """The nodes that were sent a model to train."""
    return list(dict.fromkeys(message.node for message in messages if message.what == "train"))
