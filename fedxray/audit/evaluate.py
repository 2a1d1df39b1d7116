"""One case from its transcript to its scores: the attack, its floors and its controls, all scored alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedxray.adversary import roles
from fedxray.adversary.disclose import records_in_question
from fedxray.adversary.view import View
from fedxray.attacks.evidence import Evidence
from fedxray.audit.bench import (
    Bench,
    adapts,
    check_inner_kinds,
    declared_grants,
    grant_names,
    guess_on,
    inner_attacks,
    make_view,
    rounds_read,
    score_on,
)
from fedxray.audit.comparisons import (
    Scored,
    ceilings_of,
    chosen_controls,
    controls_of,
    floors_of,
    next_client,
    strongest,
    without_client_model,
)
from fedxray.audit.exposure import by_class, exposed_records
from fedxray.audit.restoring import restoring_facts
from fedxray.audit.within import Within, within_run
from fedxray.metrics.scores import Scores

__all__ = [
    "Bench",
    "Outcome",
    "adapts",
    "check_inner_kinds",
    "chosen_controls",
    "declared_grants",
    "evaluate",
    "grant_names",
    "inner_attacks",
    "ledger_of",
    "make_view",
    "next_client",
    "rounds_read",
    "strongest",
    "without_client_model",
]


# What an attack tells of the records of its own seat: they are never scored, but they may have been found.
OWN = ("own_share", "own_images", "own_found", "own_psnr")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a case came to."""

    evidence: Evidence
    score: Scores
    ledger: dict[str, Any]
    oracle: bool
    floors: dict[str, dict[str, float]]
    controls: dict[str, dict[str, float]]
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    within: dict[str, Within] = field(default_factory=dict)  # intervals over records, of a recording
    exposed: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # the most exposed records
    by_class: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)


def evaluate(bench: Bench) -> Outcome:
    """Run the attack, its floors and its controls."""
    view = make_view(bench, bench.attack)
    evidence = guess_on(bench, bench.attack, view)
    guess = Scored(evidence=evidence, scores=score_on(bench, evidence))
    floors, controls = floors_of(bench), controls_of(bench)
    return Outcome(
        evidence=evidence,
        score=guess.scores,
        ledger=ledger_of(bench, view)
        | {name: evidence.facts[name] for name in OWN if name in evidence.facts},
        oracle=view.grants.is_oracle,
        floors={name: dict(one.scores.means) for name, one in floors.items()},
        controls={name: dict(one.scores.means) for name, one in controls.items()},
        ceilings=ceilings_of(bench),
        within=within_run(bench, guess, floors, controls) if bench.transcript.recorded else {},
        exposed=exposed_records(bench, guess),
        by_class=by_class(bench, guess, floors),
    )


def ledger_of(bench: Bench, view: View) -> dict[str, Any]:
    """Who sees what and was told what, in plain values."""
    hidden = bench.transcript.secure_aggregation and roles.ROLES[view.role].single_replies
    space = bench.truth.space
    return {
        **view.ledger(),
        "sees": roles.ROLES["secure-aggregation" if hidden else view.role].sees,
        "examples_in_question": len(records_in_question(bench.truth, bench.client, bench.part.seats)),
        "floor_records": len(bench.truth.public),  # floors are always given the public share
        "defence": bench.truth.defence.describe(),
        "aware": bench.aware,
        "target": bench.client,
        "sensitive": space.sensitive,
        "target_column": space.target_name,
        "target_standardised": space.target == "regression" and space.target_std != 1.0,
        "seats": list(bench.part.seats),
        **restoring_facts(bench.part),
        "controls_left_out": [
            name for name in bench.attack.controls if name not in chosen_controls(bench.part, bench.attack)
        ],
    }
