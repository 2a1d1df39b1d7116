"""Completeness and origin of a recording: as facts of the ledger, and in words for terminal and report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedxray.audit.plan.recorded import BY_ITSELF, ON_WORD, SAME, named_stretches, rounds_named, span
from fedxray.errors import printable

if TYPE_CHECKING:
    from fedxray.federation.recording.transcribe import Chosen

SHOWN = 3  # messages and reasons that are named
NOT_KNOWN = "not known, as the list of mods was not recognised"
IDLE, TOGETHER = "filters without effect", "filters measured together"
NOTES = ("filters_idle", "filters_changed", "left_out", "not_recorded")  # of a recorder, beside what was sent
WHOSE = {
    BY_ITSELF: "recorded by the node itself",
    SAME: "proved by the node's own recording, which holds the same replies",
    ON_WORD: "treated as the auditor's own on the user's word",
}
RecordingFacts = Mapping[str, Any]


def whole_facts(chosen: Chosen) -> dict[str, Any]:
    """Return missing rounds and replies, why the recorder stopped, what is left out, and mods around the recorder."""
    messages = [message for _, message in sorted(chosen.trained.items())]
    unknown = chosen.recording.side == "client" and any(
        message.inside is None or message.outside is None for message in messages
    )
    inside, outside = (
        list(dict.fromkeys(mod for mods in lists for mod in reversed(mods or ())))
        for lists in ([message.inside for message in messages], [message.outside for message in messages])
    )
    return _filter_facts(chosen) | {
        "rounds_missing": [list(stretch) for stretch in chosen.missing],
        "unanswered": [
            round for round, message in sorted(chosen.trained.items()) if message.reply is None and not message.secure
        ],
        "stopped": list(chosen.recording.stops),
        "cut_off": len(chosen.lost),
        "left_out": list(chosen.lost[:SHOWN]),
        "changed_before": None if unknown else inside,  # in the order in which the update met them
        "changed_after": None if unknown else outside,
    }


def _filter_facts(chosen: Chosen) -> dict[str, Any]:
    """Return by filter, or by those that were measured together, the rounds in which they changed nothing."""
    idle: dict[str, list[int]] = {}
    together: dict[str, None] = {}
    for round, message in sorted(chosen.trained.items()):
        filters, alone = list(reversed(message.inside or ())), message.config.get("filters_idle")
        whole = message.config.get("filters_changed")
        if isinstance(alone, list):
            names = [name for name in filters if name in alone]
        else:
            names = [", ".join(filters)] if filters and whole is False else []
            together |= {", ".join(filters): None} if len(filters) > 1 and whole is True else {}
        for name in names:
            idle.setdefault(name, []).append(round)
    return ({"filters_without_effect": idle} if idle else {}) | (
        {"filters_together": list(together)} if together else {}
    )


def heading(facts: RecordingFacts) -> str:
    """Return the side and node of a recording, and the rounds that it holds."""
    rounds = list(facts.get("rounds") or ())
    count = f"{len(rounds)} round{'' if len(rounds) == 1 else 's'}"
    asked = "" if facts.get("rounds_asked") is None else ", as the plan asks"
    which = f" ({span(rounds)}{asked})" if rounds else ""
    return printable(f"{facts.get('side')} side, node {facts.get('node')}, {count}{which}")


def whose(facts: RecordingFacts) -> str:
    """Return the node, and why it is treated as the auditor's own; empty where that was not noted."""
    ground = WHOSE.get(str(facts.get("owner")))
    return "" if ground is None else printable(f"node {facts.get('node')}, {ground}")


def unlike(facts: RecordingFacts) -> str:
    """Return a warning where the records do not look like those trained on; empty where they do, or without replies."""
    fell, rounds = facts.get("learnt") or (0, 0)
    seen = f"the loss on them fell in {fell} of {rounds} rounds"
    return f"These records do not look like what the node trained on: {seen}" if 2 * fell < rounds else ""


def place(facts: RecordingFacts) -> str:
    """Return where the recorder stood between the training and the network; empty where that is not known."""
    if facts.get("side") != "client":
        return "at the server" if facts.get("side") == "server" else ""
    before, after = facts.get("changed_before"), facts.get("changed_after")
    if before is None or after is None:
        return NOT_KNOWN
    return printable(" > ".join(["training", *before, "recorder", *after, "network"]))


def shortcomings(facts: RecordingFacts) -> list[tuple[str, str]]:
    """Return what is missing from the recording: a heading and a sentence each."""
    missing, stopped = facts.get("rounds_missing") or [], facts.get("stopped") or []
    lost = facts.get("cut_off") or 0
    lines = []
    if missing:
        text = f"{named_stretches(missing)} (the first is 0): the node was not picked then, or was not recorded"
        lines.append(("rounds missing", text))
    unanswered = facts.get("unanswered")
    if unanswered:
        text = f"{span(unanswered)}: nothing came back, or it was not recorded"
        lines.append(("replies missing", text))
    if stopped:
        lines.append(("recorder stopped", "; ".join(stopped[:SHOWN]) + _more(len(stopped))))
    if lost:
        named = "; ".join(facts.get("left_out") or ())
        lines.append((f"message{'' if lost == 1 else 's'} left out", f"{lost} ({named}{_more(lost)})"))
    return [(word, printable(text)) for word, text in lines]


def measured_filters(facts: RecordingFacts) -> list[tuple[str, str]]:
    """Return filters that changed nothing, and those measured only together: a heading and a sentence each."""
    lines = []
    for names, rounds in (facts.get("filters_without_effect") or {}).items():
        text = f"{names} in {rounds_named(rounds)}: the update was equal before and after, up to rounding"
        lines.append((IDLE, text))
    for names in facts.get("filters_together") or ():
        lines.append((TOGETHER, f"{names}: which of them changed the update is not known"))
    return [(word, printable(text)) for word, text in lines]


def spoken(facts: RecordingFacts) -> str:
    """Return the recorded rounds in words."""
    rounds = list(facts.get("rounds") or ())
    return rounds_named(rounds) if rounds else "no rounds"


def recordings_of(document: Mapping[str, Any]) -> list[RecordingFacts]:
    """Return the recordings that the cases of a document come from, each once."""
    recordings: list[RecordingFacts] = []
    for case in document["cases"]:
        facts = case["ledger"].get("recording")
        if isinstance(facts, Mapping) and facts not in recordings:
            recordings.append(facts)
    return recordings


def _more(count: int) -> str:
    return f"; and {count - SHOWN} more" if count > SHOWN else ""
