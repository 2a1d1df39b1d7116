"""Privacy claims: the epsilon that is configured, accounted and measured by canaries, and sentences that compare them.

The first half makes the rows of results.json from what the canaries of all runs show; the second half compares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    promises: Mapping[str, Mapping[str, Any] | None],
    configured: Mapping[str, float | None],
    lost: Mapping[str, Sequence[str]] | None = None,
) -> list[Row]:
    """Return one row per defence, unit of protection, view and method; canaries of all runs are counted together.

    That is allowed since a canary changes one run alone. The bounds of one unit share the 5 %, since the largest of
    them is read; both by coin follow from the same guesses and count once. `promises` and `configured` are by defence,
    for one record; `lost` are the reasons of failed runs, each a row without numbers.
    """
    rows = []
    for defence, runs in found.items():
        promise = promises.get(defence)
        delta = DELTA if promise is None else promise["delta"]
        accounted = {"configured": configured.get(defence), "accounted": promise and promise["epsilon"]}
        for reason in (lost or {}).get(defence, ()):
            empty = dict.fromkeys(("canaries", "seen", "method", "estimate", "low", "ceiling"))
            place = {"defence": defence, "unit": "record", "delta": delta, **accounted}
            rows.append({**place, **empty, "n": 0, "runs": 1, "reason": reason})
        if not runs:
            continue
        shared = {"defence": defence, "runs": len(runs), "delta": delta}
        by_client = {"unit": "client", "canaries": "updates", "configured": None, "accounted": None}
        rows += [shared | by_client | row for row in _client_rows(runs, delta)]
        by_record = {"unit": "record", "canaries": runs[0]["kind"], **accounted}
        rows += [shared | by_record | row for row in _record_rows(runs, delta)]
    return rows


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
    """Return the claims in the results of an audit: by defence, for records and, where measured, for clients.

    `configured` is a claimed epsilon for one record, in place of the plan's.
    """
    rounds = document["plan"].get("federation", {}).get("rounds")
    settings = {_label(part): part for part in document["plan"].get("defence") or [{"name": "none"}]}
    rows: Sequence[Mapping[str, Any]] = document.get("canaries", [])
    accounted = {row["defence"]: row for row in document["utility"]}
    several = bool((document["plan"].get("data") or {}).get("subject"))
    claims = []
    for defence in dict.fromkeys([*accounted, *(row["defence"] for row in rows)]):
        own = [row for row in rows if row["defence"] == defence]
        promise, part = accounted.get(defence, {}), settings.get(defence, {})
        by_record = tuple(row for row in own if row["unit"] == "record")
        stated = next((row["configured"] for row in by_record), part.get("epsilon"))
        epsilon = next((row["accounted"] for row in by_record if row["accounted"] is not None), promise.get("epsilon"))
        if by_record or stated is not None or epsilon is not None or configured is not None:
            claims.append(
                Claim(
                    subject=defence,
                    unit="one record, not a person" if several else "one record",
                    delta=by_record[0]["delta"] if by_record else part.get("delta", DELTA),
                    rounds=rounds,
                    configured=stated if configured is None else configured,
                    accounted=epsilon,
                    how=str(promise.get("privacy") or ""),
                    measured=by_record,
                    faults=(OF_RECORDS,) if several else (),
                )
            )
        if by_client := tuple(row for row in own if row["unit"] == "client"):
            claims.append(
                Claim(
                    subject=defence, unit="one client", delta=by_client[0]["delta"], rounds=rounds, measured=by_client
                )
            )
    return claims


def _label(part: Mapping[str, Any]) -> str:
    return str(part.get("label") or part.get("name") or part.get("factory"))
