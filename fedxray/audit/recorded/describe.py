"""How whole a recording is and where it was made: as facts of the ledger, and in words for terminal and report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedxray.audit.plan.recorded import BY_ITSELF, ON_WORD, SAME
from fedxray.errors import printable

if TYPE_CHECKING:
    from fedxray.federation.recording.transcribe import Chosen

SHOWN = 3  # messages and reasons that are named
NOT_KNOWN = "not known, as the list of mods was not recognised"
WHOSE = {
    BY_ITSELF: "recorded by the node itself",
    SAME: "proved by the node's own recording, which holds the same replies",
    ON_WORD: "taken for the auditor's own on the user's word",
}
Told = Mapping[str, Any]


def whole_facts(chosen: Chosen) -> dict[str, Any]:
    """Rounds and replies that are missing, why the recorder stopped, what is left out, and mods around the recorder."""
    messages = [heard for _, heard in sorted(chosen.trained.items())]
    unknown = chosen.recording.side == "client" and any(
        heard.inside is None or heard.outside is None for heard in messages
    )
    inside, outside = (
        list(dict.fromkeys(mod for mods in lists for mod in reversed(mods or ())))
        for lists in ([heard.inside for heard in messages], [heard.outside for heard in messages])
    )
    return {
        "rounds_missing": [list(stretch) for stretch in chosen.missing],
        "unanswered": [
            round for round, one in sorted(chosen.trained.items()) if one.reply is None and not one.secure
        ],
        "stopped": list(chosen.recording.stops),
        "cut_off": len(chosen.lost),
        "left_out": list(chosen.lost[:SHOWN]),
        "changed_before": None if unknown else inside,  # in the order in which the update met them
        "changed_after": None if unknown else outside,
    }


def heading(told: Told) -> str:
    """Whose recording it is, and which rounds it holds."""
    rounds = list(told.get("rounds") or ())
    count = f"{len(rounds)} round{'' if len(rounds) == 1 else 's'}"
    asked = "" if told.get("rounds_asked") is None else ", as the plan asks"
    span = f" ({stretches(_runs(rounds))}{asked})" if rounds else ""
    return printable(f"{told.get('side')} side, node {told.get('node')}, {count}{span}")


def whose(told: Told) -> str:
    """Which node it is, and on what ground it is taken for the auditor's own; empty where that was not noted."""
    ground = WHOSE.get(str(told.get("owner")))
    return "" if ground is None else printable(f"node {told.get('node')}, {ground}")


def unlike(told: Told) -> str:
    """That the records do not look like what was trained on; empty where they do, or where nothing came back."""
    fell, rounds = told.get("learnt") or (0, 0)
    seen = f"the loss on them fell in {fell} of {rounds} rounds"
    return f"These records do not look like what the node trained on: {seen}" if 2 * fell < rounds else ""


def place(told: Told) -> str:
    """Where the recorder stood between the training and the network; empty where there is no such place."""
    if told.get("side") != "client":
        return "at the server" if told.get("side") == "server" else ""
    before, after = told.get("changed_before"), told.get("changed_after")
    if before is None or after is None:
        return NOT_KNOWN
    return printable(" > ".join(["training", *before, "recorder", *after, "network"]))


def shortcomings(told: Told) -> list[tuple[str, str]]:
    """What is not in the recording: a word for each, and what is to be said."""
    missing, stopped = told.get("rounds_missing") or [], told.get("stopped") or []
    lost = told.get("cut_off") or 0
    found = []
    if missing:
        text = f"{stretches(missing)} (the first is 0): the node was not picked then, or was not recorded"
        found.append(("rounds missing", text))
    unanswered = told.get("unanswered")
    if unanswered:
        text = f"{stretches(_runs(unanswered))}: nothing came back, or it was not recorded"
        found.append(("replies missing", text))
    if stopped:
        found.append(("recorder stopped", "; ".join(stopped[:SHOWN]) + _more(len(stopped))))
    if lost:
        named = "; ".join(told.get("left_out") or ())
        found.append((f"message{'' if lost == 1 else 's'} left out", f"{lost} ({named}{_more(lost)})"))
    return [(word, printable(text)) for word, text in found]


def spoken(told: Told) -> str:
    """Which rounds were recorded, in words."""
    rounds = list(told.get("rounds") or ())
    return f"round{'' if len(rounds) == 1 else 's'} {stretches(_runs(rounds))}" if rounds else "no rounds"


def stretches(pairs: Iterable[Sequence[int]]) -> str:
    """First and last of each stretch of rounds."""
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in pairs]
    return ", ".join(texts[:10]) + (f", ... {texts[-1]}" if len(texts) > 10 else "")


def recordings_of(document: Mapping[str, Any]) -> list[Told]:
    """The recordings that the cases of a document come from, each once."""
    found: list[Told] = []
    for case in document["cases"]:
        told = case["ledger"].get("recording")
        if isinstance(told, Mapping) and told not in found:
            found.append(told)
    return found


def _runs(rounds: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for round in rounds:
        if runs and runs[-1][1] == round - 1:
            runs[-1] = (runs[-1][0], round)
        else:
            runs.append((round, round))
    return runs


def _more(count: int) -> str:
    return f"; and {count - SHOWN} more" if count > SHOWN else ""
