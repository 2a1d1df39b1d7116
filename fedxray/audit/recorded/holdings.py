"""What a recording holds, in lines for people; nothing is attacked, and no records are needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedxray.audit.recorded.recipe import span
from fedxray.errors import BadInput, printable, some
from fedxray.federation.recording.form import Heard
from fedxray.federation.recording.reading import Recording, title

SHOWN = 12  # nodes, arrays and names


def holdings(recording: Recording) -> list[str]:
    """Side, runs, every node with its rounds and what it was told, and the arrays of a message."""
    facts = [("recording", f"{recording.side} side, {len(recording.messages)} messages")]
    runs = recording.runs()
    if len(runs) > 1:
        facts.append(("runs", some(runs, SHOWN, nothing="nothing")))
    nodes = recording.nodes()
    facts += [(f"node {node}", _node(messages)) for node, messages in list(nodes.items())[:SHOWN]]
    if len(nodes) > SHOWN:
        facts.append(("", f"and {len(nodes) - SHOWN} more nodes"))
    told = list(dict.fromkeys(name for message in recording.messages for name in message.config))
    facts.append(("told", some(told, SHOWN, nothing="nothing")))
    faults = [_fault(recording, message) for message in recording.messages]
    facts += _arrays(recording, faults)
    left = [*recording.cut, *(why for why in faults if why is not None)]
    facts += [("left out", why) for why in left[:SHOWN]]
    if len(left) > SHOWN:
        facts.append(("", f"and {len(left) - SHOWN} more messages"))
    facts += [("stopped", why) for why in recording.stops[:SHOWN]]
    return [f"{printable(word):<11} {printable(text)}".rstrip() for word, text in facts]


def _node(messages: Sequence[Heard]) -> str:
    trained = [message for message in messages if message.what == "train"]
    replied = sum(message.reply is not None for message in trained)
    numbers = sorted({message.round - 1 for message in trained if message.round is not None})
    which = f" ({span(numbers)})" if numbers else ""
    counts = sorted({message.examples for message in trained if message.examples is not None})
    examples = f", {' or '.join(map(str, counts[:3]))} examples" if counts else ""
    return f"{len(trained)} rounds{which}, {replied} replies{examples}"


def _fault(recording: Recording, message: Heard) -> str | None:
    """Why one message cannot be used, None where it can."""
    for kept in (message.sent, message.reply):
        try:
            why = None if kept is None else recording.fault(kept)
        except BadInput as problem:  # too large to be read
            why = f"{problem.got}; {problem.remedy}"
        if why is not None:
            return f"{title(message)}: {why}"
    return None


def _arrays(recording: Recording, faults: Sequence[str | None]) -> list[tuple[str, str]]:
    """Names and shapes of the first model that can be used."""
    whole = [message for message, why in zip(recording.messages, faults, strict=True) if why is None]
    if not whole:
        return [("arrays", "none that can be used")]
    forms = recording.forms(whole[0].sent)
    total = sum(math.prod(value.shape) for value in forms.values())
    facts = [("arrays", f"{len(forms)}, {total:,} numbers in all")]
    for name, value in list(forms.items())[:SHOWN]:
        facts.append(("", f"{name} {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"))
    return facts + ([("", f"and {len(forms) - SHOWN} more")] if len(forms) > SHOWN else [])
