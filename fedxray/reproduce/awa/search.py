"""Figure 1: weights sought by Bayesian optimisation, and what they are worth on images that they were not sought on.

A study of 50 trials on the fifth group, 100 steps each, 12 of them drawn at random, is judged by the attacker's own
loss without weights. Its row also has DLG at equal compute: 50 restarts of 100 steps, chosen by its own loss. In case
4 DLG would replay both epochs, at twice the cost of a step of AWA; there the restarts match the interpolated epoch
without weights, so that steps cost the same and the losses of both are one function. The next row takes the weights of
the study to the four groups (250 steps), beside the paper's weights, a plain ramp that nobody searched for, DLG in the
same steps, and DLG with 50 restarts. With several seeds the weights are those of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedxray.reproduce.awa.setting import (
    ATTACKS,
    FIFTH,
    METRICS,
    WHY,
    attack,
    data,
    federation,
    network,
    paper,
)
from fedxray.reproduce.base import Difference, Follows, Reproduction, Request, columns_of
from fedxray.reproduce.following import chosen_point

SEARCHED, RESTARTED = "searched", "dlg-restarts"
TRIALS, STARTS, TRIAL_STEPS = 50, 12, 100
BATCH = 2  # trials that are asked for together
CASES = ("case1", "case4")
UNWEIGHTED = {"case1": ATTACKS["dlg-rate"], "case4": {"name": "awa", "preset": "none"}}  # what restarts
ROWS = tuple(row for case in CASES for row in (f"{case}-study", case))
WORDS = {
    SEARCHED: "AWA",
    "awa": "AWA with the paper's weights",
    "awa-untuned": "AWA with a plain ramp",
    "dlg-rate": "",
    RESTARTED: f"no weights, {TRIALS} restarts of {TRIAL_STEPS} steps",
}


def plan(request: Request, row: str) -> dict[str, Any]:
    """A study on the fifth group, or its weights on the others; few trials at the small scale."""
    case, _, study = row.partition("-")
    trials, starts, steps = (6, 3, 40) if request.is_small else (TRIALS, STARTS, TRIAL_STEPS)
    sought = {"trials": trials, "sampler": "gp", "starts": starts, "batch": BATCH}
    restarted = {**UNWEIGHTED[case], "restarts": trials}
    on_fifth = {"targets": [FIFTH], "steps": steps}
    if study:
        attacks = [
            attack(request, SEARCHED, ATTACKS["awa"], search=sought, **on_fifth),
            attack(request, "awa", ATTACKS["awa"], **on_fifth),
            attack(request, "awa-untuned", ATTACKS["awa-untuned"], **on_fifth),
            attack(request, "dlg-rate", ATTACKS["dlg-rate"], **on_fifth),
            attack(request, RESTARTED, restarted, **on_fifth),
        ]
    else:
        attacks = [
            attack(request, SEARCHED, ATTACKS["awa"]),
            attack(request, "awa", ATTACKS["awa"]),
            attack(request, "awa-untuned", ATTACKS["awa-untuned"]),
            attack(request, "dlg-rate", ATTACKS["dlg-rate"]),
            attack(request, RESTARTED, restarted, steps=steps),
        ]
    return {
        "seeds": request.pick_seeds(),
        "data": data(),
        "model": network(),
        "federation": federation(case),
        "attack": attacks,
    }


def with_found_weights(plan: dict[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of the four groups with the weights that the study found."""
    if not any(one["label"] == SEARCHED for one in plan["attack"]):
        return plan
    found = chosen_point(study, SEARCHED)
    attacks = [{**one, **found} if one["label"] == SEARCHED else one for one in plan["attack"]]
    return {**plan, "attack": attacks}


SEARCH = Reproduction(
    name="awa-search",
    shows="What weights are worth that were sought on other images, and what DLG does with the compute of the search.",
    paper=paper(
        "Figure 1",
        trend="the smallest loss keeps falling over 50 trials; DLG is never given the compute of the search",
    ),
    rows=ROWS,
    small_rows=ROWS[:2],
    follows={case: Follows(row=f"{case}-study", fill=with_found_weights) for case in CASES},
    columns=columns_of(WORDS, METRICS),
    differences=tuple(
        Difference(left=left, right=right, metrics=METRICS[:2])
        for left, right in (
            (SEARCHED, "awa"),
            (SEARCHED, "awa-untuned"),
            (SEARCHED, "dlg-rate"),
            (SEARCHED, RESTARTED),
            ("awa", RESTARTED),
            (RESTARTED, "dlg-rate"),
        )
    ),
    plan=plan,
    why=f"the paper plots no numbers; it seems to search on the images that it attacks; {WHY}",
)
