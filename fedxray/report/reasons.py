"""Why a verdict is what it is, in the words of the page; results.json keeps its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fedxray.audit import verdict
from fedxray.report import words

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
    size = f" of {words.least(float(seen.group(1)), row['metric'])}" if seen else ""
    found = f"The same attack finds a planted leak, and this audit would have seen one{size} in four of five cases."
    return f"The gain is below {_least(row)}. {found}{_alone(row)}"


def _alone(row: Row) -> str:
    """That one run or one recording speaks of itself only."""
    signs = [sign for sign in (verdict.ONE_RUN, verdict.ONE_RECORDING) if sign in row["reason"]]
    return "".join(f" {words.capital(sign)}." for sign in signs)


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
        "room": f"{words.capital(verdict.NO_ROOM)}{f': {because}' if because else ''}.",
        "spread": f"{words.capital(verdict.NO_SPREAD)}.",
        "units": f"{words.count(row['n'], row['unit'])}; at least {verdict.LEAST_UNITS} and an interval are needed. "
        + ("Add seeds or target clients." if more == "seeds" else ""),
        "adjusted": f"The gain is above {enough}, but not clearly enough for so many comparisons. "
        f"More {more} would settle it.",
        "either": f"The gain may be above or below {enough}. More {more} would narrow it.",
        "power": f"The gain is below {least}. {said}",
    }[doubt(row)]


def _least(row: Row) -> str:
    """The margin: the least gain that counts."""
    return "the least that counts" if row["margin"] is None else words.least(row["margin"], row["metric"])
