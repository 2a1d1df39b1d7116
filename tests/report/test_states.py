"""Every state of a row in sentences."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from fedxray.metrics.units import GLUE
from fedxray.report import states
from tests.report.states import ROWS, make_row

FIVE = f"5{GLUE}points"


@pytest.mark.parametrize(
    ("kind", "changes", "wanted"),
    [
        ("leaks", {}, "It leaks."),
        ("leaks", {"runs": 1}, "It leaks, in this run."),
        ("leaks", {"runs": 1, "recorded": True}, "It leaks, in this recording."),
        ("suspected", {}, "A leak is suspected, not settled."),
        ("trace", {}, "No gain, but the messages reveal something: a stronger attack may leak."),
        ("trace by split", {}, "The messages reveal something, but less than what counts as a leak."),
        ("no leak found", {}, "No leak found, by an attack that detects a planted one."),
        ("coarse", {}, f"Not decided: only a leak of 13{GLUE}points or more would have been detected."),
        ("coarse", {"seen": None}, "Not decided."),
        ("blinded", {}, "This defence blinds the attack. That is not safety."),
        ("stopped", {}, f"The leak is stopped, as far as this attack shows: at most +4.1{GLUE}points are left."),
        ("reversed", {}, "Not decided: the attack answers the wrong way round."),
        ("open", {}, "Not decided."),
    ],
)
def test_headlines(kind: str, changes: dict[str, Any], wanted: str) -> None:
    assert states.headline(make_row(kind, **changes)) == wanted


@pytest.mark.parametrize(
    ("kind", "changes", "wanted"),
    [
        (
            "leaks",
            {},
            f"Not luck: with other clients' messages it reaches 60.2{GLUE}%; none of 215 other pairings of messages "
            "and clients scores as high (p = 0.009, corrected for 16 comparisons of an attack under a defence).",
        ),
        (
            "leaks",
            {"p_swap": 3 / 216, "controls": {}},
            "Not luck: 2 of 215 other pairings of messages and clients score as",
        ),
        ("leaks", {"resolution": None, "controls": {}}, "Not luck: other clients' messages do not give as much (p ="),
        ("leaks", {"family": {"rows": 1}, "p_adjusted": 0.0004}, "clients scores as high (p < 0.001)."),
        ("leaks by split", {}, "records that were trained on score above held-out ones"),
        (
            "leaks by runs",
            {},
            "Not luck: the gain repeats over 3 runs (p = 0.021, corrected for 16 comparisons of an attack under a "
            "defence).",
        ),
        (
            "leaks by runs",
            {"runs": 20, "family": {"rows": 1, "runs": 5}},
            "Not luck: shown by the first 5 of 20 runs already (p = 0.021).",
        ),
        ("leaks by runs", {"family": {"rows": 1, "runs": 3}}, "Not luck: the gain repeats over 3 runs (p = 0.021)."),
        (
            "suspected",
            {},
            "it may be luck (p = 0.16, corrected for 16 comparisons of an attack under a defence; at most 0.05 is "
            "needed).",
        ),
        ("suspected", {"p_adjusted": None}, "no test can show here that it is not luck."),
        (
            "suspected",
            {"p_adjusted": 0.01},
            "The messages matter (p = 0.01, corrected for 16 comparisons of an attack under a defence), but the gain",
        ),
        ("trace", {}, f"With other clients' messages it reaches 34.9{GLUE}%; none of 215 other pairings"),
        ("trace", {}, "(p = 0.005). The messages carry information, but the score stays below the floor."),
        (
            "trace by split",
            {},
            "score higher than chance allows (p < 0.001). The messages carry information, but the score",
        ),
        ("trace", {"p_adjusted": 0.06}, "(p = 0.005). The messages may carry information, but"),
        (
            "small by split",
            {},
            "+0.041 over the floor, at most +0.047 in runs like these. Not luck: records that were trained on",
        ),
        ("small", {}, f"+2.9{GLUE}points over the floor, at most +4.5{GLUE}points in runs"),
        ("small", {}, "pairings of messages and clients scores as high (p = 0.009, corrected for 16 comparisons of an"),
        ("small", {}, "A stronger attack may leak more."),
        ("trace by split", {}, "stays within the margin. An attack that uses more may leak. This is not safety."),
        (
            "no leak found",
            {},
            f"A gain above +3.6{GLUE}points does not fit these runs. The same attack detects a leak that",
        ),
        ("no leak found", {"upper": None}, "The same attack detects a leak that was planted on purpose under the same"),
        (
            "coarse",
            {},
            f"Only a leak of 13{GLUE}points or more would have been detected in 4 of 5 such audits; at most 10{GLUE}p",
        ),
        ("blinded", {}, "The attack detects a planted leak without this defence, not with it."),
        ("stopped", {}, "The same attack gains +18 points without this defence, at most +4.1 points with it."),
        ("reversed", {}, "The score is far below chance: with its sign changed it would be 0.860. This is not safety."),
        ("open", {}, f"In runs like these the gain may be as large as +11.0{GLUE}points, above the margin."),
        ("open", {"upper": None}, "The gain may lie on either side of the margin."),
        (
            "open",
            {"upper": None, "reason": "no case ended; of 3 cases: 3 diverged"},
            "No case ended; of 3 cases: 3 diverged.",
        ),
    ],
)
def test_evidence(kind: str, changes: dict[str, Any], wanted: str) -> None:
    assert wanted in states.evidence(make_row(kind, **changes))


@pytest.mark.parametrize("kind", ROWS)
def test_only_no_leak_found_sounds_safe_and_states_its_detection_limit(kind: str) -> None:
    row = make_row(kind)
    seen = {"no leak found": "4.2", "stopped": "6"}.get(kind)
    limit = f"A leak of {seen}{GLUE}points or more would have been detected in 4 of 5 such audits."
    assert states.limit(row) == (limit if seen else "")
    text = f"{states.headline(row)} {states.evidence(row)}"
    assert ("No leak found" in text) == (kind == "no leak found")
    assert "No leak shown" not in text
    if row["state"] in ("trace", "coarse", "blinded", "reversed"):
        assert "not safety" in text


@pytest.mark.parametrize(
    ("kind", "changes", "wanted"),
    [
        ("leaks", {}, "These 3 runs. Other seeds of the same set-up: expect a mean gain within the interval."),
        ("leaks", {"runs": 1}, "This run only: how much other runs would leak is not known."),
        (
            "leaks",
            {"recorded": True},
            "This recording only, provided that its held-out records resemble those trained on.",
        ),
        ("small", {}, "The leak: these 3 runs. Its bound: runs like these, with other seeds."),
        ("no leak found", {}, "Runs like these 3: same data, model and training, other seeds."),
        (
            "no leak found",
            {"sampled": (50, 1000)},
            "Runs like these 3: same data, model and training, other seeds. 50 of 1,000 clients were attacked, drawn "
            "at random.",
        ),
        ("open", {}, ""),
        ("open", {"sampled": (50, 1000)}, "50 of 1,000 clients were attacked, drawn at random."),
    ],
)
def test_scope(kind: str, changes: dict[str, Any], wanted: str) -> None:
    assert states.scope(make_row(kind, **changes)) == wanted


def test_score_then_floor_then_gain_then_margin() -> None:
    row = make_row()
    assert states.measured(row, "smoking status") == (
        f"The server infers smoking status correctly for 78.6{GLUE}% of records. Without any message 62.2{GLUE}% would "
        f"be possible (floor: a classifier trained on public records). Gain: +16.4{GLUE}points (95{GLUE}% interval 6.6 "
        "to 26.2)."
    )
    assert f"(floor: a classifier trained on the records taken as public (10{GLUE}%))" in states.measured(
        make_row(public=0.1), None
    )
    assert states.margin(row) == f"Gains below {FIVE} do not count as a leak."
    assert states.margin(make_row("small")) == f"Gains below {FIVE} are a small leak."
    assert states.measured(make_row(mean=None), None) == "Nothing was measured."
    assert (
        "Without" not in states.measured(make_row(floor=None), "smoker") and states.margin(make_row(margin=None)) == ""
    )
    assert states.measured(make_row(low=None), None).endswith(f"Gain: +16.4{GLUE}points.")


@pytest.mark.parametrize(
    ("kind", "changes", "text", "command"),
    [
        (
            "suspected",
            {},
            "About 2 more seeds would settle it (about 4 minutes",
            "fedxray audit release.toml --out r9 --resume --seeds 5",
        ),
        ("open", {"more_seeds": 1}, "About 1 more seed would settle it (about 2 min", "--seeds 4"),
        ("open", {"more_seeds": None}, "attack more clients", ""),
        ("open", {"more_seeds": None, "upper": 0.01}, "More seeds alone would not settle it", ""),
        ("coarse", {"more_seeds": None}, "attack more clients, or use more records", ""),
        ("trace", {"more_seeds": 2}, "About 2 more seeds", "--seeds 5"),
        (
            "trace",
            {},
            "treat it as a leak. To audit noise as a defence, append to",
            "epsilon = 8.0\n# then: fedxray audit release.toml --out r9 --resume",
        ),
        ("trace", {"defence": "dp-sgd"}, "treat it as a leak. Audit a stronger setting", "fedxray list defences"),
        ("trace", {"recorded": True}, "treat it as a leak. A recording cannot compare defences", 'seeds = "auto"'),
        ("stopped", {}, "Nothing to fix against this attack.", ""),
        ("open", {"runs": 2, "more_seeds": None, "upper": None}, "Too few runs to say", "--resume --seeds 3"),
        ("open", {"mean": None, "more_seeds": None, "upper": None}, "Nothing was measured: fix what made", ""),
        ("blinded", {}, "Treat the defence as untested, and audit another one", "fedxray list defences"),
        ("no leak found", {}, "Nothing to fix. Audit again when data", ""),
        ("small", {}, "set a limit", ""),
        ("suspected", {"family": {"rows": 1, "left": 0.0}}, "run a new one with more seeds, in another folder", ""),
        ("reversed", {}, "Treat it as a suspected leak", ""),
        ("suspected", {"recorded": True}, "A recording is one run. To settle it, simulate", 'seeds = "auto"'),
    ],
)
def test_what_would_settle_a_row(kind: str, changes: dict[str, Any], text: str, command: str) -> None:
    step, given = states.settle(make_row(kind, **changes), 120.0)
    assert text in step and given.endswith(command) and bool(given) == bool(command)


@pytest.mark.parametrize("kind", ["trace", "trace by split", "blinded"])
def test_an_attack_that_was_not_tried_comes_before_more_seeds(kind: str) -> None:
    step, command = states.settle(make_row(kind, more_seeds=2), 120.0, "attribute-from-gradients")
    assert step == states.ANOTHER and command.startswith('[[attack]]\nname = "attribute-from-gradients"\n# then: ')


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("seeds", [None, 2])
@pytest.mark.parametrize("kind", ROWS)
def test_no_state_ends_without_a_step(kind: str, seeds: int | None, recorded: bool) -> None:
    assert states.settle(make_row(kind, more_seeds=seeds, recorded=recorded), 120.0)[0]


def test_a_trace_is_first_combined_with_the_floor() -> None:
    step, command = states.settle(make_row("trace"), 120.0, "attribute-from-gradients", "attribute-from-model")
    assert step == states.COMBINE and tomllib.loads(command)["attack"][0] == {
        "name": "attribute-from-model", "label": "attribute-from-model with prior", "prior": "floor",
    }  # fmt: skip
    assert states.settle(make_row("blinded"), 120.0, None, "attribute-from-model")[0] == states.UNTESTED


def test_a_plan_among_several_is_settled_alone() -> None:
    step, command = states.settle(make_row("suspected", plan="demo-clinic"), 120.0)
    assert step.endswith("Audit this plan alone; its file is beside the report:")
    assert command == "fedxray audit plan-demo-clinic.toml --seeds 5"


def test_the_worst_row_comes_first_and_the_weakest_reassurance() -> None:
    rows = [
        make_row(kind)
        for kind in ("no leak found", "stopped", "open", "trace", "small", "leaks", "suspected", "blinded")
    ]
    ordered = sorted(rows, key=states.severity)
    wanted = ["leaks", "suspected", "small", "trace", "blinded", "open", "stopped", "no leak found"]
    assert [row["state"] for row in ordered] == wanted
    assert {row["state"] for row in map(make_row, ROWS)} == set(states.STATES)
    coarse, fine = make_row("no leak found", seen=0.09), make_row("no leak found", seen=0.02)
    assert min([fine, coarse], key=states.severity) is coarse
    assert states.worst_state(["no leak found", "coarse", "trace"]) == "trace"


def test_a_table_says_why_and_judges_the_primary_metric_only() -> None:
    assert states.reason(make_row(primary=False, state=None)) == (
        "Not judged: the verdict uses the attack's primary metric."
    )
    text = states.reason(make_row("no leak found"))
    assert f"4.2{GLUE}points" in text and FIVE in text and "Runs like these 3" in text
    assert "Not determined: the controls" in states.reason(make_row(kind=None))
    assert states.reason(make_row(oracle=True)).startswith("Upper bound by an oracle")


def test_an_interval_as_wide_as_the_score_is_not_printed() -> None:
    said = states.measured(make_row("open", low=-1.0, high=1.0, runs=2), None)
    assert said.endswith("(2 runs: too few for a useful interval).") and "interval -" not in said
    assert f"(95{GLUE}% interval" in states.measured(make_row("open"), None)


def test_a_state_that_its_interval_seems_to_contradict_gives_its_reason() -> None:
    leaks = make_row("leaks by split", low=-0.307, high=0.505, runs=2, p_adjusted=0.002)
    assert states.despite(leaks) == "In these 2 runs it is not luck (p = 0.002); the interval is for other runs."
    suspected = make_row("suspected", low=0.085, high=0.147, runs=6, more_seeds=6)
    assert states.despite(suspected) == "Not yet shown to be more than luck: 6 runs, about 12 needed."
    assert states.despite(suspected | {"more_seeds": None}).endswith("luck: 6 runs.")
    assert "easy records" in states.despite(suspected | {"p_adjusted": 0.001})
    assert not any(states.despite(make_row(kind)) for kind in ROWS), "where both agree nothing is added"
    assert not states.despite(leaks | {"runs": 1}) and not states.despite(leaks | {"low": None})


def test_no_bound_is_beyond_what_the_floor_leaves() -> None:
    row = make_row("open", upper=1.31, high=0.873)
    assert f"as large as +37.8{GLUE}points" in states.evidence(row) and "to 37.8)" in states.measured(row, None)
    stopped = states.headline(make_row("stopped", upper=1.31))
    assert f"at most +37.8{GLUE}points are left" in stopped
    coarse = make_row("coarse", seen=1.31)
    assert states.headline(coarse) == "Not decided: not even the largest possible leak would have been detected."
    assert states.evidence(coarse).startswith("Not even the largest possible leak would")
    assert states.evidence(make_row("coarse")).startswith("Only a leak of 13")


def test_a_detection_limit_has_one_digit_after_the_point() -> None:
    assert states.size(0.0917, make_row("no leak found")) == f"9.2{GLUE}points"
    assert states.size(0.05, make_row("no leak found")) == f"5{GLUE}points"
