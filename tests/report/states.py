"""Made-up results of format 2: one attack on a table under two defences, in every state that a row can have."""

from __future__ import annotations

import copy
from typing import Any

from tests.report.synthetic import STORIES, make_cases, make_document

LEAKS: dict[str, Any] = {
    "mean": 0.786, "mean_low": 0.71, "mean_high": 0.86, "floor": 0.622, "over": "imputation",
    "difference": 0.164, "low": 0.066, "high": 0.262, "margin": 0.05, "n": 9, "kind": "client",
    "state": "leaks", "verdict": "leaks", "scope": "these runs", "test": "swap",
    "p": 1 / 216, "p_adjusted": 0.009, "p_split": None, "p_swap": 1 / 216, "resolution": 1 / 216,
    "family": {"rows": 16, "group": "swap and runs", "share": 0.05, "spent": 0.05}, "trace": True, "seen": 0.11,
    "more_seeds": None, "upper": 0.26, "primary": True, "reason": "0.164 better than imputation",
    "controls": {"other-client": {"mean": 0.602, "difference": 0.184, "low": 0.1, "high": 0.27}},
}  # fmt: skip
OPEN: dict[str, Any] = {"verdict": "inconclusive", "scope": None, "test": None, "kind": None, "trace": False}
CHANCE: dict[str, Any] = {"metric": "auc", "over": "chance", "floor": 0.5, "attack": "membership-loss"}
ROWS: dict[str, dict[str, Any]] = {
    "leaks": LEAKS,
    "leaks by split": LEAKS | CHANCE | {
        "mean": 0.64, "difference": 0.14, "low": 0.1, "high": 0.18, "test": "split", "p_split": 2e-5, "p_swap": None,
        "p_adjusted": 4e-5, "resolution": None, "controls": {}, "kind": "record",
    },
    "leaks by runs": LEAKS | {"test": "runs", "kind": "population", "p_adjusted": 0.021, "p_swap": 0.4},
    "suspected": LEAKS | OPEN | {
        "state": "suspected", "mean": 0.719, "difference": 0.097, "low": -0.03, "high": 0.22, "p_adjusted": 0.16,
        "p_swap": 0.125, "more_seeds": 2,
    },
    "small": LEAKS | {
        "state": "small", "mean": 0.651, "difference": 0.029, "low": 0.012, "high": 0.046, "upper": 0.045, "seen": 0.03,
    },
    "small by split": LEAKS | CHANCE | {
        "state": "small", "mean": 0.541, "difference": 0.041, "low": 0.036, "high": 0.046, "upper": 0.047,
        "seen": 0.008, "test": "split", "p_split": 1e-13, "p_adjusted": 1e-11, "p_swap": None, "resolution": None,
        "controls": {}, "kind": "record",
    },
    "trace": LEAKS | OPEN | {
        "state": "trace", "test": "swap",
        "mean": 0.431, "floor": 0.512, "difference": -0.081, "low": -0.12, "high": -0.04,
        "p_swap": 0.005, "p_adjusted": 0.04, "trace": True,
        "controls": {"other-client": {"mean": 0.349, "difference": 0.082, "low": 0.02, "high": 0.14}},
    },
    "trace by split": LEAKS | OPEN | CHANCE | {
        "state": "trace", "mean": 0.541, "difference": 0.041, "low": 0.02, "high": 0.06, "p_split": 0.0009,
        "test": "split",
        "p_swap": None, "controls": {}, "trace": True,
    },
    "no leak found": LEAKS | {
        "state": "no leak found", "verdict": "no leak found", "scope": "runs like these", "test": None, "trace": False,
        "mean": 0.628, "difference": 0.006, "low": -0.02, "high": 0.03, "upper": 0.036, "seen": 0.042, "kind": None,
    },
    "coarse": LEAKS | OPEN | {
        "state": "coarse", "mean": 0.612, "difference": -0.01, "low": -0.06, "high": 0.04, "seen": 0.13,
        "upper": 0.04, "more_seeds": 2,
    },
    "blinded": LEAKS | OPEN | {
        "state": "blinded", "mean": 0.498, "difference": -0.124, "low": -0.15, "high": -0.1,
        "defence": "gaussian-noise", "aware": True,
    },
    "stopped": LEAKS | OPEN | {
        "state": "stopped", "scope": "runs like these", "mean": 0.63, "difference": 0.008, "low": -0.02, "high": 0.03,
        "upper": 0.041, "seen": 0.06, "defence": "dp-sgd", "aware": True,
        "reason": "the same attack gains +18 points without this defence, at most +4.1 points with it",
    },
    "reversed": LEAKS | OPEN | CHANCE | {
        "state": "reversed", "mean": 0.14, "difference": -0.36, "low": -0.4, "high": -0.32, "controls": {},
    },
    "open": LEAKS | OPEN | {
        "state": "open", "mean": 0.66, "difference": 0.038, "low": -0.03, "high": 0.11, "more_seeds": 7,
        "p_adjusted": 1.0, "upper": 0.11, "reason": "the gain may lie on either side of the margin",
    },
}  # fmt: skip


def make_row(kind: str = "leaks", /, **changes: Any) -> dict[str, Any]:
    """Return a row as `rows.shown_rows` hands it over: three runs of a simulation unless `changes` state otherwise."""
    base = {"attack": "attribute-from-model", "role": "server", "defence": "none", "aware": None, "metric": "accuracy"}
    shown = {"oracle": False, "unit": "client-run", "ceiling": None, "runs": 3, "recorded": False, "public": None}
    known = {"audit": "fedxray audit release.toml --out r9", "listed": True, "noise": 0.03}
    worst = {"value": 0.83, "client": 1, "seed": 2, "record": None}
    return {**base, **shown, **known, "worst": worst, **copy.deepcopy(ROWS[kind]), **changes}


def make_results(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return results of format 2 with these rows, utility of three defences and cases of three runs."""
    cases = make_cases(STORIES[1:3], seeds=range(3), clients=range(3))
    document = make_document([case | {"role": "server", "status": "ok"} for case in cases])
    document["plan"]["seeds"] = [0, 1, 2]
    document["plan"]["defence"] = [{"name": "none"}, {"name": "gaussian-noise", "scale": 0.1}, {"name": "dp-sgd"}]
    return {**document, "summary": [copy.deepcopy(row) for row in rows]}
