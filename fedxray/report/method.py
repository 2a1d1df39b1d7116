"""How to read a report, for somebody who has read no paper; `**` stands around the words that are defined."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from fedxray.report.markdown import escaped

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
