"""Privacy claims: the epsilon that is configured, accounted and measured by canaries, and sentences that compare them.

The first half makes the rows of results.json from what the canaries of all runs show; the second half compares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedxray.audit.judge.gate import label_of, parts, plans_of
from fedxray.metrics.epsilon import (
    LEVEL,
    Measured,
    coin_bound,
    correct_guesses,
    gaussian_coin_bound,
    guesses_for,
    one_shot,
)

# Rows of results.json

DELTA = 1e-5  # where the defence has none
CanaryScores = Mapping[str, Any]  # what one run with canaries stored
Row = dict[str, Any]


def canary_rows(
    found: Mapping[str, Sequence[CanaryScores]],
    claims: Sequence[Mapping[str, Any]] = (),
    lost: Mapping[str, Sequence[str]] | None = None,
) -> list[Row]:
    """Return one row per defence, unit of protection, view and method; canaries of all runs are counted together.

    That is allowed since a canary changes one run alone. The bounds of one unit share the 5 %, since the largest of
    them is read; both by coin follow from the same guesses and count once. `claims` are rows of results.json; `lost`
    are the reasons of failed runs, each a row without numbers.
    """
    stated = {(claim["defence"], claim["unit"]): claim for claim in claims}
    rows = []
    for defence, runs in found.items():
        client, record = (_compared(defence, unit, stated.get((defence, unit))) for unit in ("client", "record"))
        for reason in (lost or {}).get(defence, ()):
            empty = dict.fromkeys(("canaries", "seen", "method", "estimate", "low", "ceiling"))
            rows.append({**record, **empty, "n": 0, "runs": 1, "reason": reason})
        if not runs:
            continue
        client |= {"runs": len(runs), "canaries": "updates"}
        rows += [client | row for row in _client_rows(runs, client["delta"])]
        record |= {"runs": len(runs), "canaries": runs[0]["kind"]}
        rows += [record | row for row in _record_rows(runs, record["delta"])]
    return rows


def _compared(defence: str, unit: str, claim: Mapping[str, Any] | None) -> Row:
    """Return the keys of a row that are those of the claim it measures; without one there is no epsilon."""
    claim = {"delta": DELTA, "configured": None, "accounted": None} if claim is None else claim
    return {"defence": defence, "unit": unit, **{key: claim[key] for key in ("delta", "configured", "accounted")}}


def _client_rows(runs: Sequence[CanaryScores], delta: float) -> list[Row]:
    rows, level = [], LEVEL / len(runs[0].get("clients", {"": 0}))
    for seen in ("replies", "aggregates", "final-model"):
        cosines = [cosine for run in runs for cosine in run.get("clients", {}).get(seen, ())]
        if cosines:
            most = 1.0 if seen == "replies" else math.fsum(run["most"]["clients"] for run in runs) / len(runs)
            measured = one_shot(cosines, runs[0]["dimension"], delta, most=most, level=level)
            rows.append({"seen": seen, "method": "one-shot", "n": len(cosines), **_numbers(measured)})
    return rows


def _record_rows(runs: Sequence[CanaryScores], delta: float) -> list[Row]:
    scores = [score for run in runs for score in run.get("scores", ())]
    inside = [coin for run in runs for coin in run.get("inside", ())]
    if not scores:
        return []
    seen, rows = {"seen": runs[0]["seen"]}, []
    level = LEVEL / 2 if runs[0]["kind"] == "gradients" else LEVEL
    cosines = [score for score, coin in zip(scores, inside, strict=True) if coin]
    if runs[0]["kind"] == "gradients" and cosines:
        most = math.fsum(run["most"]["records"] * sum(run["inside"]) for run in runs) / len(cosines)
        measured = one_shot(cosines, runs[0]["dimension"], delta, most=most, level=level)
        rows.append({**seen, "method": "one-shot", "n": len(cosines), **_numbers(measured)})
    guesses = guesses_for(len(scores))
    correct = correct_guesses(scores, inside, guesses)
    for method, bound in (("coin", coin_bound), ("coin-gaussian", gaussian_coin_bound)):
        measured = bound(correct, guesses, len(scores), delta, level=level)
        counts = {"guesses": guesses, "correct": correct}
        rows.append({**seen, "method": method, "n": len(scores), **counts, **_numbers(measured)})
    return rows


def _numbers(measured: Measured) -> dict[str, float | None]:
    return {"estimate": measured.estimate, "low": measured.low, "ceiling": measured.ceiling}


# Claims

NEAR_NOTHING = 0.1  # a bound below is near 0
WEAK = "A bound near 0 means a weak attack, not privacy."
METHODS = {
    "one-shot": "one-shot, if the noise is Gaussian",
    "coin": "by coin, whatever the noise",
    "coin-gaussian": "by coin, if the noise is Gaussian",
}
PLACES = {"replies": "in replies", "aggregates": "in mean updates", "final-model": "in the final model"}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim: the epsilon that is configured, accounted and measured, for one unit of protection."""

    subject: str  # a defence or filter
    unit: str  # what is protected: one record, one client
    delta: float
    rounds: int | None  # composed by the accountant
    configured: float | None = None
    accounted: float | None = None
    how: str = ""  # accountant
    measured: tuple[Mapping[str, Any], ...] = ()  # rows of results.json
    faults: tuple[str, ...] = ()  # what is wrong with the setting itself

    @staticmethod
    def shown(epsilon: float | None) -> str:
        """Return a configured or accounted epsilon for a table."""
        return "none" if epsilon is None else spell(epsilon)

    @property
    def bounds(self) -> str:
        """The measured lower bounds with their ceilings, in words."""
        words = [
            f"{_at_least(row['low'], row['ceiling'])} {PLACES[row['seen']]} ({METHODS[row['method']]}, "
            f"{row['n']} canaries, which can show at most {spell(row['ceiling'])})"
            if row["method"]
            else f"nothing in a run that failed: {row['reason']}"
            for row in self.measured
        ]
        return "; ".join(words) or "not measured"

    @property
    def sentence(self) -> str:
        """What the three numbers mean together."""
        return " ".join([*self.faults, *self._accounting(), *self._measuring()])

    def _accounting(self) -> list[str]:
        if self.configured is None or self.accounted is None:
            return []
        if self.accounted > self.configured * 1.01:
            return [f"Configured is {spell(self.configured)}, but what is done adds up to {spell(self.accounted)}."]
        return [f"Configured is {spell(self.configured)}, and the accountant confirms at most {spell(self.accounted)}."]

    def _measuring(self) -> list[str]:
        lows = [row["low"] for row in self.measured if row["low"] is not None]
        if not lows:
            return []
        claims = [value for value in (self.configured, self.accounted) if value is not None]
        ceilings = [row["ceiling"] for row in self.measured if row["method"] is not None]
        best, ceiling = max(lows), max(math.inf if value is None else value for value in ceilings)
        if claims and best > min(claims):
            return [f"The claim of {spell(min(claims))} does not hold: at least {spell(best)} was measured."]
        weak = [WEAK] if best < NEAR_NOTHING else []
        if not claims:
            return weak or [f"No epsilon is claimed for {self.unit}; at least {spell(best)} was measured."]
        if ceiling < min(claims):
            return [
                f"So few canaries cannot contradict {spell(min(claims))}: they show at most {spell(ceiling)}.",
                *weak,
            ]
        return [f"At least {spell(best)} was measured, which does not contradict {spell(min(claims))}.", *weak]


def _at_least(low: float | None, ceiling: float | None) -> str:
    return "not finite" if low is None or ceiling is None else f"at least {spell(low)}"


def spell(epsilon: float | None) -> str:
    """Return an epsilon in three digits; without any it is infinite."""
    if epsilon is None or math.isinf(epsilon):
        return "infinite"
    return f"{epsilon:.2e}" if epsilon >= 1e7 else f"{epsilon:,.0f}" if epsilon >= 1000 else f"{epsilon:.3g}"


OF_RECORDS = "It holds for single records: a person with several (subject) is protected less."


def claims_of(document: Mapping[str, Any], configured: float | None = None) -> list[Claim]:
    """Return the claims in the results of an audit: by plan and defence, for records and for clients.

    `configured` is a claimed epsilon for one record, in place of the plan's.
    """
    stated, rows = document.get("claims", ()), document.get("canaries", ())
    stated = stated or _budgets(document)
    places = dict.fromkeys((row.get("plan"), row["defence"]) for row in (*document["utility"], *stated, *rows))
    claims = []
    for place, unit in itertools.product(places, ("record", "client")):
        own, measured = (
            tuple(row for row in listed if (row.get("plan"), row["defence"], row["unit"]) == (*place, unit))
            for listed in (stated, rows)
        )
        asked = configured if unit == "record" else None
        if own or measured or asked is not None:
            known = {"configured": None, "accounted": None, "delta": DELTA, **dict(next(iter((*own, *measured)), {}))}
            known |= {} if asked is None else {"configured": asked}
            claims.append(_claim(plans_of(document).get(place[0], {}), known, place, unit, measured))
    return claims


def _budgets(document: Mapping[str, Any]) -> list[Row]:
    """Return the claims in results of an earlier version: an epsilon beside the utility, unless canaries state one."""
    measured = {(row.get("plan"), row["defence"]) for row in document.get("canaries", ()) if row["unit"] == "record"}
    claims = {}
    for row in document["utility"]:
        plan = plans_of(document).get(row.get("plan"), {})
        settings = next((part for part in parts(plan, "defence") if label_of(part) == row["defence"]), {})
        place = row.get("plan"), row["defence"]
        if row.get("epsilon") is not None and place not in measured:
            claims[place] = {
                **{key: row[key] for key in ("plan", "defence") if key in row},
                "unit": "record",
                "delta": settings.get("delta", DELTA),
                "configured": settings.get("epsilon"),
                "accounted": row["epsilon"],
                "how": str(row.get("privacy") or ""),
            }
    return list(claims.values())


def _claim(
    plan: Mapping[str, Any], known: Row, place: tuple[str | None, str], unit: str, measured: tuple[Row, ...]
) -> Claim:
    several = unit == "record" and bool((plan.get("data") or {}).get("subject"))
    return Claim(
        subject=", ".join(name for name in place if name),
        unit="one record, not a person" if several else f"one {unit}",
        delta=known["delta"],
        rounds=known.get("rounds", (plan.get("federation") or {}).get("rounds")),
        configured=known["configured"],
        accounted=known["accounted"],
        how=known.get("how", ""),
        measured=measured,
        faults=(*known.get("faults", ()), *((OF_RECORDS,) if several else ())),
    )
