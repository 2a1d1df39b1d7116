"""The first screen: headline, a card per defence, next steps."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedxray.attacks import floor_prior
from fedxray.audit import catalog
from fedxray.metrics.units import GLUE
from fedxray.report import states
from fedxray.report.noise import noise_of, noise_scale
from fedxray.report.overview import ATTACKS, INFORMED, PRIOR, SECRETS, SUMS, Card, answer, cards, overall, strongest
from fedxray.report.rows import attack_facts, placed
from fedxray.report.words import HELPS, grant_words
from fedxray.settings import settings_of
from tests.report.states import ROWS, make_results, make_row

DEFENCES = ("none", "gaussian-noise", "dp-sgd")
MEMBERSHIP: dict[str, Any] = {"attack": "membership-loss", "metric": "auc", "over": "chance"}


def card_of(*rows: dict[str, Any]) -> Card:
    (card,) = cards(make_results(*rows))
    return card


def across(*kinds: str) -> dict[str, Any]:
    """Return results with one row per defence, in these states."""
    return make_results(*(make_row(kind) | {"defence": name} for kind, name in zip(kinds, DEFENCES, strict=False)))


def facts(card: Card) -> dict[str, str]:
    return dict(card.facts)


def next_steps(document: dict[str, Any]) -> list[str]:
    return [f"{text}\n{command}".strip() for text, command in answer(document, cards(document)).steps]


def test_the_worst_row_of_a_defence_is_its_card_and_the_others_have_a_line() -> None:
    card = card_of(
        make_row("no leak found", **MEMBERSHIP, seen=0.03), make_row("suspected", role="eavesdropper"), make_row()
    )
    assert card.state == "leaks" and card.headline == "It leaks." and f"78.6{GLUE}%" in card.sentence
    assert card.attack == "attribute-from-model, run by the server"
    assert [state for *_, state in card.others] == ["suspected", "no leak found"]
    assert card.others[0][:2] == (
        "attribute-from-model, run by a network eavesdropper",
        f"+9.7{GLUE}points (accuracy 71.9{GLUE}%, floor 62.2{GLUE}%)",
    )
    assert card.others[1][1].endswith("; detection limit 0.03)") and "(ROC AUC " in card.others[1][1]


def test_a_card_states_evidence_margin_scope_level_and_the_most_exposed() -> None:
    knows = "Attacker knows"
    assert list(facts(card_of(make_row()))) == [knows, "Evidence", "Margin", "Holds for", "Level", "Most exposed"]
    assert facts(card_of(make_row()))["Level"].startswith("Client: ")
    quiet = facts(card_of(make_row("no leak found")))
    assert list(quiet) == [knows, "Evidence", "Detection limit", "Margin", "Holds for"]
    assert list(facts(card_of(make_row("trace")))) == [knows, "Evidence", "Margin"]


def test_a_card_states_who_set_the_margin() -> None:
    assert facts(card_of(make_row()))["Margin"] == (
        f"Gains below 5{GLUE}points do not count as a leak. fedxray sets the margin of each metric; limits of "
        "your own: [[gate]] in the plan."
    )


def test_a_card_states_what_the_attacker_knows_from_the_grants_of_its_own_cases() -> None:
    made = make_results(make_row(defence="dp-sgd", aware=True, role="server"))
    for case in made["cases"]:
        mine = (case["attack"], case["defence"]) == ("attribute-from-model", "dp-sgd")
        case["ledger"]["grants"] = ["public-attributes", "public-records", "defence"] if mine else ["oracle-records"]
    assert facts(cards(made)[0])["Attacker knows"] == (
        "The model's architecture and the messages that its role sees; the client's training records without the "
        f"sensitive column; records of the same kind that belong to no client (10{GLUE}% of all records)."
    )
    for case in made["cases"]:
        case["ledger"] = {}
    assert "Attacker knows" not in facts(cards(made)[0])


def test_every_grant_has_words_and_an_unknown_one_its_name() -> None:
    from fedxray.adversary.disclose import GRANTS

    for grant, text in GRANTS.items():
        assert grant_words([grant], None) == f"The model's architecture and the messages that its role sees; {text}."
    assert grant_words(["new-grant"], 0.1).endswith("sees; new-grant.")
    assert grant_words([], 0.1) == "The model's architecture and the messages that its role sees."


def test_metrics_without_a_verdict_and_oracles_do_not_count() -> None:
    other = make_row(metric="balanced_accuracy", primary=False, state=None, verdict=None)
    oracle = make_row(attack="local-model-oracle", oracle=True)
    card = card_of(other, oracle, make_row("no leak found"))
    assert card.state == "no leak found" and card.others == ()


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ([], ("open", "Nothing was measured.")),
        (["leaks"], ("leaks", "It leaks.")),
        (["no leak found"], ("no leak found", "No leak found, by an attack that detects a planted one.")),
        (
            ["leaks", "no leak found", "open"],
            ("leaks", "It leaks without a defence; not decided under dp-sgd; no leak found under gaussian-noise."),
        ),
        (["leaks", "leaks"], ("leaks", "It leaks without a defence and under gaussian-noise.")),
        (["open", "coarse"], ("coarse", "Not decided without a defence and under gaussian-noise.")),
        (
            ["no leak found", "suspected"],
            ("suspected", "A leak is suspected under gaussian-noise; no leak found without a defence."),
        ),
        (
            ["no leak found", "trace", "blinded"],
            (
                "trace",
                "The messages reveal something (trace) under gaussian-noise; not decided under dp-sgd; no leak found "
                "without a defence.",
            ),
        ),
        (["leaks", "suspected", "suspected"], ("leaks", "It leaks without a defence; suspected under both defences.")),
        (["no leak found"] * 3, ("no leak found", "No leak found without a defence and under both defences.")),
    ],
)
def test_the_worst_state_is_the_headline(kinds: list[str], wanted: tuple[str, str]) -> None:
    assert overall(cards(across(*kinds))) == wanted


def test_a_leak_whose_interval_includes_0_is_one_of_these_runs() -> None:
    assert overall(cards(across("leaks") | {"summary": [make_row(low=-0.089)]}))[1] == "It leaks in these 3 runs."
    rows = [make_row(low=-0.089), make_row("no leak found", defence="dp-sgd", aware=True)]
    headline = overall(cards(make_results(*rows)))[1]
    assert headline == "It leaks in these 3 runs without a defence; no leak found under dp-sgd."
    rows.append(make_row(defence="gaussian-noise", aware=True))
    headline = overall(cards(make_results(*rows)))[1]
    assert headline.startswith("It leaks without a defence and under gaussian-noise;"), "one is of other runs too"


@pytest.mark.parametrize("kind", [kind for kind in ROWS if kind != "no leak found"])
def test_no_leak_is_never_the_headline_while_a_row_is_anything_else(kind: str) -> None:
    rows = [make_row("no leak found", **MEMBERSHIP), make_row(kind, role="eavesdropper")]
    state, headline = overall(cards(make_results(*rows)))
    assert state == ROWS[kind]["state"] and not headline.startswith("No leak")


def test_headline_and_card_name_the_same_number() -> None:
    made = cards(across("leaks", "no leak found"))
    number = f"78.6{GLUE}%"
    assert number in strongest(made) and number in made[0].sentence and f"+16.4{GLUE}points" in strongest(made)
    assert strongest(cards(across("trace"))) == "" and strongest([]) == ""


def test_a_deployed_defence_comes_first() -> None:
    made = across("leaks", "open", "no leak found")
    assert [card.name for card in cards(made)] == ["none", "gaussian-noise", "dp-sgd"]
    made["plan"]["defence"][2]["deployed"] = True
    first, *_ = cards(made)
    assert first.name == "dp-sgd" and first.deployed


def test_the_stronger_attacker_decides() -> None:
    rows = [make_row("no leak found", defence="dp-sgd", aware=False), make_row(defence="dp-sgd", aware=True)]
    card = card_of(*rows)
    assert card.state == "leaks" and card.attack.endswith("(attacker knows the defence)")


def test_several_attacks_that_find_nothing_are_counted_once_each() -> None:
    rows = [
        make_row("no leak found", defence="dp-sgd", aware=aware, seen=0.03 + aware / 100) for aware in (False, True)
    ]
    assert card_of(*rows).headline == "No leak found, by an attack that detects a planted one."
    more = card_of(*rows, make_row("no leak found", **MEMBERSHIP, defence="dp-sgd"))
    assert more.headline == "No leak found, by 2 attacks that each detect a planted one."


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        (["leaks"], HELPS["client"] + " To audit noise as a defence, append to the plan:"),
        (
            ["leaks", "no leak found"],
            f"Use gaussian-noise: no leak found with it (cost: accuracy 86.0{GLUE}% instead of 91.0{GLUE}%).",
        ),
        (["leaks", "no leak found", "no leak found"], "Use gaussian-noise"),
        (["leaks", "leaks", "no leak found"], f"Use dp-sgd: no leak found with it (cost: accuracy 78.0{GLUE}%"),
        (
            ["leaks", "suspected"],
            "No audited defence is shown to stop every attack. With gaussian-noise this one gains "
            f"+9.7{GLUE}points, and the state is suspected (cost: ",
        ),
        (
            ["leaks", "trace"],
            "No audited defence is shown to stop every attack. With gaussian-noise this one gains "
            f"\N{MINUS SIGN}8.1{GLUE}points, but the state is trace (cost: ",
        ),
        (
            ["leaks", "leaks"],
            f"No audited defence stops it: gaussian-noise leaves +16.4{GLUE}points (cost: accuracy 86.0",
        ),
    ],
)
def test_the_step_after_a_leak_names_a_defence_and_its_measured_cost(kinds: list[str], wanted: str) -> None:
    made = across(*kinds)
    card = next(card for card in cards(made) if card.name == "none")
    assert card.step.startswith(wanted)


def test_under_what_is_added_to_the_plan_is_the_command_that_audits_it() -> None:
    for kind in ("leaks", "trace", "blinded", "stopped"):
        made = make_results(make_row(kind)) | {"plan_file": "p.toml", "out": "r9"}
        step, *_ = next_steps(made)
        assert step.endswith("\n# then: fedxray audit p.toml --out r9 --resume"), kind


def test_without_a_defence_the_step_ends_with_a_line_for_the_plan() -> None:
    block = tomllib.loads(card_of(make_row()).command)
    assert block == {"defence": [{"name": "gaussian-noise", "scale": 0.03}]}, "noise on updates, as the step says"
    assert 'name = "dp-sgd"' in card_of(make_row("leaks by split")).command
    bare = make_results(make_row("leaks by split"))
    bare["plan"]["defence"] = []
    names = [part["name"] for part in tomllib.loads(cards(bare)[0].command)["defence"]]
    assert names == ["none", "dp-sgd"], "what leaks without one is audited beside it"
    alone = card_of(make_row(defence="dp-sgd"))
    assert "Audit a stronger setting, or another defence" in alone.step and alone.command == "fedxray list defences"
    recorded = make_results(make_row())
    recorded["plan"]["transcript"] = {}
    assert "simulate the federation" in cards(recorded)[0].step
    assert not any("recommend" in step for step in next_steps(recorded)), "it has one setting only"


def test_the_noise_to_try_first_is_that_of_init() -> None:
    training = {"algorithm": "fedavg", "rounds": 1, "epochs": 1, "batch_size": 4, "learning_rate": 0.05}
    assert (
        noise_of({"federation": training}) == noise_scale(learning_rate=0.05, epochs=1, rounds=1, batch_size=4) == 0.06
    )
    assert noise_of({"federation": training | {"batch_size": "all"}, "data": {"limit": 8}}) == 0.03
    assert noise_of({"federation": {"algorithm": "fedsgd"}}) == 0.1
    assert noise_of({}) == 0.005, "defaults of the plan"


def test_the_most_exposed_client_has_its_name_and_the_share_its_whole() -> None:
    made = make_results(make_row(), make_row("leaks by split", role="eavesdropper", defence="dp-sgd"))
    assert facts(cards(made)[0])["Most exposed"] == f"Client 1, seed 2: 83.0{GLUE}% of its records."
    for case in made["cases"]:
        case["ledger"]["target_name"] = f"clinic {case['client']}"
    assert {facts(card)["Most exposed"] for card in cards(made)} == {
        f"Client 1 (clinic 1), seed 2: 83.0{GLUE}% of its records.",
        "Client 1 (clinic 1), seed 2: 0.830.",
    }


@pytest.mark.parametrize(
    ("role", "data", "known"),
    [
        ("server", {"public": 0.2}, True),
        ("curious-client", {"public": 0.2}, False),
        ("server", {"public": 0.2, "use": "part"}, False),
    ],
)
def test_the_share_of_public_records_is_stated_where_it_is_all_that_is_known(
    role: str, data: dict[str, Any], known: bool
) -> None:
    made = make_results(make_row(role=role))
    made["plan"]["data"] = data
    assert (f"taken as public (20{GLUE}%)" in cards(made)[0].sentence) == known


def test_a_defence_that_stops_one_attack_only_is_not_praised_for_more() -> None:
    rows = [make_row(), make_row("no leak found", defence="dp-sgd"), make_row(**MEMBERSHIP, defence="dp-sgd")]
    assert cards(make_results(*rows))[0].step.endswith("Another attack under it: leaks.")


@pytest.mark.parametrize(
    ("kind", "changes", "wanted"),
    [
        (
            "leaks by runs",
            {},
            "Secure aggregation does not help: the model itself reveals it. What helps: leaving “smoker” out of "
            "training, or noise that blurs the model, as far as it is blurred. To audit",
        ),
        (
            "leaks by split",
            {"kind": "population"},
            "Secure aggregation does not help: the model itself reveals it. What helps: noise that blurs the model",
        ),
        ("leaks by split", {}, "What helps: noise in training (dp-sgd), which bounds what one record reveals. To"),
        ("leaks", {}, "What helps: secure aggregation, which hides single updates, or noise on them"),
        ("leaks", {"role": "curious-client"}, "What helps: more clients per round, or noise on their updates"),
        ("leaks", {"role": "eavesdropper"}, "Encrypt the connections (TLS): then an eavesdropper reads nothing. To"),
        ("leaks", {"kind": None}, "To audit noise"),
    ],
)
def test_the_step_after_a_leak_names_what_helps_at_its_level(kind: str, changes: dict[str, Any], wanted: str) -> None:
    assert card_of(make_row(kind, **changes)).step.startswith(wanted)


IMAGES: dict[str, Any] = {"attack": "inverting-gradients", "metric": "psnr", "over": "mean-image"}


def test_cases_without_an_answer_state_their_cause_and_a_remedy() -> None:
    row = make_row("open", **IMAGES, more_seeds=None, upper=None, reason="of 9 cases: 4 undetermined")
    document = make_results(row)
    document["attacks"]["inverting-gradients"] = {"name": "inverting-gradients", "kind": "images"}
    ledger = {**document["cases"][0]["ledger"], "grants": ["examples", "recipe"]}
    of_images = {**document["cases"][0], "attack": "inverting-gradients", "defence": "none", "ledger": ledger}
    reason = "it is based on another attack's answer: no class has a negative gradient in the last layer"
    lost = {"status": "undetermined", "reason": reason}
    document["cases"] = [{**of_images, **(lost if index < 4 else {})} for index in range(9)]
    (card,) = cards(document)
    cause = "4 of 9 cases found no answer: no class has a negative gradient in the last layer."
    assert card.step == f"{cause} {states.GRANT}"
    (attack,) = tomllib.loads(card.command)["attack"]
    assert attack["name"] == "inverting-gradients" and attack["grants"] == ["examples", "recipe", "labels"]
    ledger["grants"].append("labels")
    assert cards(document)[0].step.startswith(cause) and not cards(document)[0].command


def test_what_was_audited_is_not_proposed_as_what_helps() -> None:
    rows = make_row("leaks by split"), make_row("leaks by split", defence="dp-sgd", aware=True)
    assert "What helps" not in cards(make_results(*rows))[0].step
    made = make_results(*rows)
    made["plan"]["defence"] = [{"name": "none"}, {"name": "mixup", "label": "dp-sgd"}]
    assert HELPS["record"] in cards(made)[0].step


def test_what_helps_follows_the_audited_defences_unless_one_stops_it() -> None:
    def step(other: str) -> str:
        return cards(make_results(make_row("leaks by runs"), make_row(other, defence="dp-sgd")))[0].step

    assert step("leaks").endswith(f"out of training. {states.STRONGER}") and "leaves" in step("leaks")
    assert "the state is trace" in step("trace")
    assert "First follow the step of dp-sgd. Secure" in step("trace")
    assert "What helps" not in step("no leak found")


@pytest.mark.parametrize(
    ("low", "guess", "measurable"), [(0.89, 0.4, True), (0.39, 0.4, False), (None, 0.9, True), (None, 0.91, False)]
)
def test_a_model_that_has_not_learned_has_no_cost(low: float | None, guess: float, measurable: bool) -> None:
    made = across("leaks", "no leak found")
    made["utility"][0] |= {"low": low, "guess": guess}
    cost = f"cost: accuracy 86.0{GLUE}% instead of 91.0{GLUE}%"
    missing = (
        f"cost not measurable: the model has hardly learned, accuracy 91.0{GLUE}% against "
        f"{100 * guess:.1f}{GLUE}% of a constant guess"
    )
    assert f"({cost if measurable else missing})" in cards(made)[0].step


def test_a_defence_under_which_nothing_was_learned_is_not_proposed() -> None:
    made = across("leaks", "no leak found", "no leak found")
    for row, low in zip(made["utility"], (0.89, 0.55, 0.7), strict=True):
        row |= {"low": low, "guess": 0.56}
    assert cards(made)[0].step.startswith("Use dp-sgd: no leak found")
    made["utility"][2]["low"] = 0.5
    assert cards(made)[0].step == (
        "gaussian-noise stops this leak, but the model is then not shown to be better than a constant guess "
        f"(accuracy 86.0{GLUE}% against 56.0{GLUE}%): audit a weaker setting of it."
    )
    made["utility"][0]["low"] = 0.5  # without the defence neither
    assert cards(made)[0].step.startswith("Use gaussian-noise: no leak found with it (cost not measurable")


@pytest.mark.parametrize(("high", "measurable"), [(0.19, True), (0.2, False)])
def test_of_an_error_the_upper_end_must_be_below_that_of_a_constant_guess(high: float, measurable: bool) -> None:
    made = across("leaks", "no leak found")
    made["utility"] = [
        {**row, "metric": "mape", "value": 0.1, "low": 0.05, "high": high, "guess": 0.2} for row in made["utility"]
    ]
    assert ("cost: mean relative error" in cards(made)[0].step) == measurable


@pytest.mark.parametrize("kind", ["trace", "blinded"])
def test_an_attack_of_the_same_kind_that_the_plan_lacks_is_named(kind: str) -> None:
    made = make_results(make_row(kind))
    made["plan"]["attack"] = [{"name": name, "prior": "floor"} for name in PRIOR]
    assert cards(made)[0].command.startswith('[[attack]]\nname = "attribute-from-gradients"\n')
    made["attacks"]["attribute-from-model"]["name"] = "attribute-from-gradients"
    assert cards(made)[0].command.startswith('[[attack]]\nname = "attribute-from-model"\n')
    for role in SUMS:
        assert 'name = "attribute' not in cards(make_results(make_row(kind, role=role)))[0].command


def test_a_trace_below_a_floor_that_knows_something_proposes_the_combination() -> None:
    made = make_results(make_row("trace"))
    wanted = '[[attack]]\nname = "attribute-from-model"\nlabel = "attribute-from-model with prior"\nprior = "floor"'
    assert cards(made)[0].command.startswith(wanted + "\n")
    for changes in ({"over": "chance"}, {"role": SUMS[0]}):
        assert "prior" not in cards(make_results(make_row("trace", **changes)))[0].command


def test_the_attacks_with_a_prior_are_those_of_the_catalogue() -> None:
    made = {name: catalog.resolve("attacks", name) for name in catalog.built_in("attacks")}
    assert sorted(PRIOR) == sorted(
        name
        for name, entry in made.items()
        if entry.kind != "labels"
        and any(one.name == "prior" and one.setting.sentence == floor_prior.PRIOR for one in settings_of(entry))
    )
    assert {floor for name in PRIOR for floor in made[name].floors} == set(INFORMED)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in ATTACKS.items() for name in names])
def test_the_attacks_that_are_proposed_are_in_the_catalogue(kind: str, name: str) -> None:
    assert catalog.resolve("attacks", name).kind == kind and kind in {"attributes", *SECRETS}


def test_every_kind_of_attack_has_one_to_propose() -> None:
    assert set(ATTACKS) == {catalog.resolve("attacks", name).kind for name in catalog.built_in("attacks")}


def test_the_level_of_a_leak_of_the_population() -> None:
    assert "Anyone" not in facts(card_of(make_row("leaks by runs")))["Level"]
    control = {"mean": 0.78, "difference": 0.0, "low": -0.01, "high": 0.01}
    anyone = card_of(make_row("leaks by runs", controls={"global-model": control}))
    assert "anyone who holds the trained model" in facts(anyone)["Level"]


def test_next_steps_name_the_setting_the_command_and_how_to_resume() -> None:
    made = across("leaks", "suspected")
    steps = next_steps(made)
    assert steps[0].startswith("no defence: No audited defence") and steps[1].startswith(
        "gaussian-noise: About 2 more seeds"
    )
    assert steps[1].endswith(":\nfedxray audit PLAN.toml --resume --seeds 5") and "fedxray gate" in steps[2]
    made["cases"][0]["status"] = "truncated"
    assert any("--resume" in step for step in next_steps(made)[2:])
    quiet = across("no leak found")
    assert next_steps(quiet) == [states.NO_STEP]


def test_a_step_of_several_defences_names_them_and_one_that_is_to_come_first_is_listed() -> None:
    seeds = [make_row("suspected", defence=name, more_seeds=more) for name, more in (("a", 8), ("b", 24))]
    (step,) = next_steps(make_results(*seeds))
    assert step.startswith("About 24 more seeds"), "it is of all"
    labelled = next_steps(make_results(make_row("no leak found"), *seeds))
    assert labelled[0].startswith("a and b: About 24 more seeds")
    made = across("leaks", "open")
    made["plan"]["defence"][0]["deployed"] = True
    first, second, *_ = next_steps(made)
    assert "First follow the step of gaussian-noise." in first and second.startswith("gaussian-noise: About 7 more")


SEEDS = {"none": 8, "gaussian-noise": 8, "dp-sgd": 24}  # that would settle it


def test_the_command_names_the_plan_and_the_folder_and_the_most_seeds() -> None:
    rows = [make_row("suspected", defence=name, more_seeds=more) for name, more in SEEDS.items()]
    made = make_results(*rows) | {"plan_file": "my release.toml", "out": "r9"}
    more = [step for step in next_steps(made) if "--seeds" in step]
    commands = [step.rpartition("\n")[2] for step in more]
    assert commands == ["fedxray audit 'my release.toml' --out r9 --resume --seeds 27"]
    usual = {**made, "out": f"fedxray-out/{made['plan']['name']}"}
    assert "--out" not in cards(usual)[0].command
    assert cards(make_results(*rows))[0].command.startswith("fedxray audit PLAN.toml --resume")
    assert placed(made, Path("out", "r9"))["out"] == "out/r9" and placed(made, Path("/elsewhere"))["out"] == "DIR"


def test_a_card_says_what_is_at_risk() -> None:
    made = make_results(make_row())
    assert cards(made)[0].secret == "\N{LEFT DOUBLE QUOTATION MARK}smoker\N{RIGHT DOUBLE QUOTATION MARK}"
    assert attack_facts(made, "attribute-from-model")["kind"] == "attributes"
    unknown = copy.deepcopy(made)
    unknown["summary"][0]["attack"] = "own-attack"
    assert cards(unknown)[0].secret is None
