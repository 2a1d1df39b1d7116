"""The annex for those who sign, and the same facts for programs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import results
from fedxray.cli import app
from fedxray.report.annex import FAMILIES, privacy_card, write_annex
from tests.report.reading import read_page
from tests.report.states import make_results, make_row
from tests.report.synthetic import make_document
from tests.report.test_build import plant


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results.write(make_document(), tmp_path)
    (tmp_path / "plan.toml").write_text("seeds = [0]\n")
    (tmp_path / "log").write_text("2026-01-02 03:04:05Z begun\nno time\n2026-01-02 04:00:00Z ended\n")
    return tmp_path


def test_the_card_has_time_versions_hashes_and_every_judged_row(folder: Path) -> None:
    document = json.loads((folder / "results.json").read_bytes())
    page, file = write_annex(folder)
    card = json.loads(file.read_bytes())
    assert (page.name, file.name) == ("annex.html", "privacy-card.json")
    assert card["when"] == {"first": "2026-01-02 03:04:05Z", "last": "2026-01-02 04:00:00Z"}
    assert card["versions"] == document["versions"]
    assert card["sha256"]["plan.toml"] == hashlib.sha256(b"seeds = [0]\n").hexdigest()
    assert card["sha256"]["results.json"] == hashlib.sha256((folder / "results.json").read_bytes()).hexdigest()
    rows = {(row["attack"], row["role"], row["defence"], row["metric"]) for row in card["results"]}
    judged = {
        (row["attack"], row["role"], row["defence"], row["metric"])
        for row in document["summary"]
        if row["primary"] and not row["oracle"]
    }
    assert rows == judged and len(rows) > 3
    shares = [row["score"] for row in card["results"] if row["metric"] == "accuracy"]
    assert all(0 <= share <= 1 for share in shares)


def test_the_card_names_data_columns_runs_controls_and_judged_limits(tmp_path: Path) -> None:
    document = make_results(make_row("leaks"))
    bare = privacy_card(document, tmp_path)
    assert bare["limits"] == [] and bare["records"] is None and "the data" not in bare["sha256"]
    document["data"] = {"records": 600, "sha256": "ab" * 32}
    rule = {"attack": "attribute-from-model", "metric": "accuracy_over_floor", "limit": 0.05, "defence": "none"}
    document["plan"]["gate"] = [rule]
    results.write(document, tmp_path)
    page, file = write_annex(tmp_path)
    card = json.loads(file.read_bytes())
    assert card["records"] == 600 and card["sha256"]["the data"] == "ab" * 32
    assert {"Predicts: “bill”.", "Runs: 3 runs of each defence, seeds 0–2."} <= set(card["set_up"])
    assert any(line.startswith("Must not leak: “smoker”") for line in card["set_up"])
    assert [one["outcome"] for one in card["limits"]] == ["fail"] and "+16.4" in card["limits"][0]["measured"]
    assert [text.partition(":")[0] for text in card["controls_show"]] == ["Another client"]
    text = read_page(page.read_text()).text
    assert "Records: 600." in text and "fail : attribute-from-model: accuracy_over_floor at most 5" in text
    document["plan"]["gate"] = [{**rule, "attack": "nothing"}]
    assert privacy_card(document, tmp_path)["limits"][0]["outcome"] == "not judged"


def test_every_kind_of_attack_is_tested_or_says_why_not(tmp_path: Path) -> None:
    document = make_results(make_row("leaks"), make_row("no leak found", defence="gaussian-noise", aware=True))
    families = {one["family"]: one for one in privacy_card(document, tmp_path)["families"]}
    assert list(families) == list(FAMILIES)
    assert families["Attribute inference"]["outcome"] == "tested"
    assert families["Attribute inference"]["worst"] == "leaks"
    assert families["Membership inference"]["outcome"] == "not tested"
    assert all(one["attacks"] or one["reason"] for one in families.values())
    assert families["Exfiltration"]["outcome"] == "not tested"


def test_the_unit_of_protection_is_the_person_where_the_plan_names_one(tmp_path: Path) -> None:
    document = make_results(make_row("leaks"))
    assert privacy_card(document, tmp_path)["units_of_protection"] == ["record"]
    document["plan"]["data"]["subject"] = "patient_id"
    assert privacy_card(document, tmp_path)["units_of_protection"] == ["person"]


def test_subgroups_of_attackers_who_know_the_defence_and_who_do_not_are_kept_apart(tmp_path: Path) -> None:
    rows = [make_row("leaks", defence="quantise", aware=aware, mean=0.8 + 0.1 * aware) for aware in (True, False)]
    document, metric = make_results(*rows), rows[0]["metric"]
    (first, *_) = (case for case in document["cases"] if case["attack"] == rows[0]["attack"])
    document["cases"] = [
        {**first, "defence": "quantise", "aware": aware, "by_class": {metric: {
            name: {"mean": mean, "n": 4} for name, mean in means.items()
        }}}
        for aware, means in ((True, {"0": 0.9, "1": 0.5}), (False, {"0": 0.5, "class 1": 0.7}))
    ]  # fmt: skip
    subgroups = privacy_card(document, tmp_path)["subgroups"]
    assert len(subgroups) == 2
    assert sum("attacker knows the defence: class 0 (90.0" in text for text in subgroups) == 1
    assert sum("attacker does not know the defence: class 1 (70.0" in text for text in subgroups) == 1
    exposed = privacy_card(document, tmp_path)["most_exposed"]
    assert len(set(exposed)) == len(exposed) == 2 and all("the defence: " in text for text in exposed)


def test_the_page_loads_nothing_and_planted_markup_stays_text(tmp_path: Path) -> None:
    results.write(plant(make_document()), tmp_path)
    page = read_page(write_annex(tmp_path)[0].read_text())
    assert {tag for tag, _ in page.elements} & {"script", "img", "iframe", "form"} == set()
    assert "9. Not looked at, and when to test again" in page.text


def test_it_prints_to_two_to_four_pages(browser: Any, folder: Path) -> None:
    page = browser.new_page()
    page.goto(write_annex(folder)[0].as_uri())
    pdf = page.pdf(prefer_css_page_size=True)
    assert 2 <= len(re.findall(rb"/Type\s*/Page[^s]", pdf)) <= 4
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    page.close()


def test_the_command_writes_both_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["report", str(folder), "--annex"], standalone_mode=False)
    assert capsys.readouterr().out.split() == [str(folder / "annex.html"), str(folder / "privacy-card.json")]
    assert not (folder / "report.html").exists()


def test_a_contradicted_claim_is_stated_on_the_page_that_is_signed(folder: Path) -> None:
    document = make_document()
    canary = {"defence": "dp-sgd", "unit": "record", "canaries": "gradients", "seen": "replies", "method": "one-shot"}
    canary |= {"n": 100, "runs": 1, "delta": 1e-5, "estimate": 11.0, "low": 11.0, "ceiling": 50.0}
    canary |= {"configured": 1.0, "accounted": None}
    results.write(document | {"canaries": [canary]}, folder)
    page, _ = write_annex(folder)
    assert (
        "dp-sgd, one record: The claim of 1 does not hold: at least 11 was measured."
        in read_page(page.read_text()).text
    )


def test_metrics_that_an_attack_read_are_not_called_unattacked(tmp_path: Path) -> None:
    document = make_results(make_row("leaks"))
    assert "were not attacked" in privacy_card(document, tmp_path)["leaves_a_site"][-1]
    document["cases"][0] |= {"attack": "labels-from-metrics", "ledger": {"grants": ["metrics"]}}
    assert "were attacked by labels-from-metrics" in privacy_card(document, tmp_path)["leaves_a_site"][-1]


def test_a_recording_is_not_said_to_send_record_counts(tmp_path: Path) -> None:
    document = make_results(make_row("leaks"))
    assert "weights updates" in privacy_card(document, tmp_path)["leaves_a_site"][0]
    document["plan"] |= {"transcript": {"folder": "recording"}, "federation": {}}
    assert "if the recorded framework sends it" in privacy_card(document, tmp_path)["leaves_a_site"][0]
