"""What a reader must know before the verdict, where the audit was not of simulated clients with given data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.audit.plan.recorded import ON_WORD
from fedxray.audit.recorded.whole import NOT_KNOWN, place, recordings_of, shortcomings, spoken, unlike, whose
from fedxray.report import words
from fedxray.report.plans import plans_of, table

MADE_UP = (
    "The records were made up by a schema.",
    "They are the easiest case for an attacker that such columns or images allow: nothing can be filled in from other "
    "columns, and every client's model must hold the secret. A leak here shows what this network and this training can "
    "give away, not how much of your data would leak. No leak here does not prove that your data is safe. What the "
    "model is worth on these records says nothing about yours.",
)
RECORDED = (
    "This is a recording of one run of one node.",
    "The scores are over that node's own records, and the intervals too: another run, node or set of records may "
    "leak more or less. A fellow client is assumed to be sent the same global models. Nothing was reconstructed from "
    "what other nodes sent.",
)
UNLIKE = (
    "Whatever is said below is about these records and that node's messages, so it may say nothing about either. Are "
    "they all that it trained on and nothing else, as its network got them?"
)
NOT_WHOLE = "The recording is not whole."
ONLY_THERE = "Attacks read what is there, so they may have been weaker than they could be."
NO_PLACE = (
    "Where the recorder stood is not known.",
    "The list of mods was not recognised. If a mod changed the update after it was recorded, a server saw something "
    "else than what was attacked here.",
)
CHANGED = (
    "{} changed the update after it was recorded: a server saw something else than what was attacked here."
)
BY_WORD = (
    "That this node is the auditor's own is taken on the user's word.",
    "The node did not record this itself, and nothing in it proves that {} belongs to whoever gave the records. "
    "Scores are only against the records that were given.",
)
SEARCHED = (
    "Part of the recipe was searched.",
    "Nobody told {}; of the plan's candidates the one was taken under which a short attack explained the first reply "
    "best. The records played no part in it.",
)
ALIKE = (
    " Not told apart, since other candidates fit nearly as well: {}. If they are wrong, attacks were weaker."
)
ABSENT = (
    "Part of the network was not recorded.",
    "No message holds {}; the values that the plan's network gives were taken. If the node had others, the attacks "
    "were weaker than they could be.",
)
MOVED = (
    "A part that should stand still moved.",
    "The plan's network does not train {}, yet its values change in the recording; those of the first round were taken "
    "for all. If the node trains it, the attacks were weaker than they could be.",
)
SHOWN = 6  # names of parameters
LESS = (
    "Less was done than planned.",
    "The audit had to end within {}. So, before it began: {}. A leak that it would have taken more to see is not seen.",
)
CUT = (
    "The time was over.",
    "{} of {} cases were cut off by --budget; a row with such a case is never called safe. Go on with --resume.",
)


def recorded_notice(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """Whose node was recorded and what that means, where a recording was audited; it warns of nothing."""
    recordings = recordings_of(document)
    if not recordings:
        return None
    named = [f"{words.capital(whose(one))}, {spoken(one)}." for one in recordings if whose(one)]
    return (" ".join(named), " ".join(RECORDED)) if named else RECORDED


def notices(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Warnings: pairs of a headline and what follows from it."""
    plans = list(plans_of(document).values())
    found = _short_of_time(document)
    found += [MADE_UP] if any("schema" in table(plan, "data") for plan in plans) else []
    recordings = [case["ledger"]["recording"] for case in document["cases"] if "recording" in case["ledger"]]
    found += [(f"{text}.", UNLIKE) for text in dict.fromkeys(map(unlike, recordings)) if text]
    gone = list(
        dict.fromkeys(
            f"{words.capital(word)}: {text}." for one in recordings for word, text in shortcomings(one)
        )
    )
    if gone:
        found.append((NOT_WHOLE, " ".join([*gone, ONLY_THERE])))
    if any(place(one) == NOT_KNOWN for one in recordings):
        found.append(NO_PLACE)
    named = list(
        dict.fromkeys(f"node {one.get('node')}" for one in recordings if one.get("owner") == ON_WORD)
    )
    if named:
        found.append((BY_WORD[0], BY_WORD[1].format(words.listed(named))))
    searches = [
        one["recipe_searched"] for one in recordings if (one.get("recipe_searched") or {}).get("chosen")
    ]
    if searches:
        values = words.listed([f"{name} (now {value})" for name, value in searches[0]["chosen"].items()])
        doubt = ALIKE.format(words.listed(searches[0]["alike"])) if searches[0]["alike"] else ""
        found.append((SEARCHED[0], SEARCHED[1].format(values) + doubt))
    for key, (headline, text) in (("not_recorded", ABSENT), ("frozen_changed", MOVED)):
        names = list(dict.fromkeys(name for one in recordings for name in one.get(key) or ()))
        more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        if names:
            found.append((headline, text.format(words.listed(names[:SHOWN] + more))))
    later = list(dict.fromkeys(mod for one in recordings for mod in one.get("changed_after") or ()))
    if later:
        found.append(("What was attacked is not what was sent.", CHANGED.format(words.listed(later))))
    return found


def _short_of_time(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a limit on time took from an audit, before it began and when the time was over."""
    chosen, cases = document.get("budget") or {}, document["cases"]
    found = []
    if chosen.get("left_out"):
        found.append((LESS[0], LESS[1].format(chosen["budget"], "; ".join(chosen["left_out"]))))
    cut = sum(case.get("status") == "truncated" and not case.get("scores") for case in cases)
    if cut:
        found.append((CUT[0], CUT[1].format(cut, len(cases))))
    return found
