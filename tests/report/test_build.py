"""The page: complete, self-contained, reproducible, and immune to planted markup."""

from __future__ import annotations

import copy
import itertools
import json
import re
import stat
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import results
from fedxray.errors import BadInput
from fedxray.report import build_report, states
from fedxray.report.build import contents, render
from fedxray.report.gallery import Galleries
from fedxray.report.rows import shown_rows
from fedxray.report.words import escaped
from tests.report.reading import Page, read_page
from tests.report.states import ROWS, make_results, make_row
from tests.report.synthetic import STORIES, make_cases, make_document, make_gallery, make_guesses

PLANTED = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&{{ 7*7 }}$x$</style></title>"
# Fixed words of the format, which a reader checks.
KEPT = {"status", "verdict", "kind", "unit", "state", "scope", "test", "group"}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return make_document()


def build(folder: Path, document: dict[str, Any], gallery: list[dict[str, Any]] | None = None) -> str:
    results.write(document, folder)
    if gallery is not None:
        (folder / "gallery.json").write_text(json.dumps(gallery))
    return build_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("report"), made, make_gallery())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return read_page(text)


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return make_document(make_cases(STORIES[3:]))


def plant(value: Any, key: str = "") -> Any:
    """The same document with markup in every text and every free key."""
    if isinstance(value, str):
        return value if key in KEPT else value + PLANTED
    if isinstance(value, list):
        return [plant(inner, key) for inner in value]
    if isinstance(value, dict):
        free = key in (
            "scores",
            "floors",
            "controls",
            "versions",
            "data",
            "model",
            "by_class",
            "exposed",
            "worst_record",
            "point",
        )
        return {(name + PLANTED if free else name): plant(inner, name) for name, inner in value.items()}
    return value


def test_all_parts_are_there_in_order(page: Page) -> None:
    ids = [attributes["id"] for tag, attributes in page.elements if tag == "h2"]
    assert ids == [
        "verdict",
        "defences",
        "about",
        "results",
        "where",
        "power",
        "utility",
        "epsilon",
        "examples",
        "curves",
        "ledger",
        "failures",
        "method",
        "references",
        "plan",
    ]
    for words in (
        "digits-pilot",
        "Gains below 1 dB do not count as a leak.",
        "the nearest public image",
        "another client's messages",
        "the attacker's own loss grew without bound",
        "oracle-records",
        "image 0, PSNR 20 dB seed 0, client 0",
        "client 0, 6 images (case inverting-gradients-server-none-s0-c0)",
        "attacker's own loss",
        "12 trials in each of 10 cases",
        "Inverting Gradients: How easy is it to break privacy",
        "Holm: A Simple Sequentially Rejective",
        '"learning_rate": 0.05',
        "2.13.0",
        "Seeds: 0, 1, 2, 3, 4",
        "psnr by client, inverting-gradients",
        "psnr by class, inverting-gradients",
        "Most exposed records",
    ):
        assert words in page.text


def test_every_row_of_the_summary_is_in_a_table(page: Page, made: dict[str, Any]) -> None:
    for row in shown_rows(made):
        assert " ".join(states.reason(row).split()) in page.text


@pytest.mark.parametrize("kind", ROWS)
def test_every_state_has_a_page_and_a_text(tmp_path: Path, kind: str) -> None:
    row = make_row(kind)
    page = read_page(build(tmp_path, make_results(row)))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for sentence in (states.headline(row), states.evidence(row), states.margin(row)):
        assert " ".join(sentence.split()) in page.text and str(escaped(sentence)) in text
    assert "No leak shown" not in page.text and "No leak shown" not in text


def test_results_of_an_earlier_format_have_a_page_with_a_notice(tmp_path: Path, made: dict[str, Any]) -> None:
    old = copy.deepcopy(made) | {"format": 1}
    del old["seed_of_draws"]
    added = {"primary", "state", "scope", "test", "trace", "family", "seen", "upper", "more_seeds", "resolution"}
    added |= {"p", "p_adjusted", "p_split", "p_swap"}
    for row in old["summary"]:
        row["verdict"] = row["verdict"] or "inconclusive"
        for key in added:
            del row[key]
    page = read_page(build(tmp_path, old))
    assert "Results of an earlier format. These results are of an older format and were judged again" in page.text
    assert "metric without verdict" in page.text and "judged again" in (tmp_path / "report.md").read_text()


def test_nothing_is_loaded_and_nothing_may_be(page: Page) -> None:
    policies = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]
    assert not {"script", "iframe", "object", "embed", "form", "base", "foreignobject"} & {t for t, _ in page.elements}
    for _, attributes in page.elements:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "href", "xlink:href"):
                assert value.startswith(("data:image/png;base64,", "#")) or value == "data:,"
            if key == "style":
                assert "url(" not in value


def test_the_style_loads_nothing() -> None:
    style = files("fedxray.report").joinpath("templates", "style.css").read_text()
    assert "url(" not in style and "@import" not in style and "<" not in style


def test_it_can_be_read_without_seeing_it(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "href"):
            for target in attributes.get(key, "").split():
                assert key != "aria-labelledby" or target in ids
                assert not target.startswith("#") or target.removeprefix("#") in ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert page.all("img") and all(image["alt"] for image in page.all("img"))
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    for drawing in page.all("svg"):
        assert drawing.get("aria-hidden") == "true" or drawing.get("role") == "img"


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two colours."""

    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    brighter, darker = sorted((light(first), light(second)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_has_enough_contrast_in_light_and_dark(scheme: int) -> None:
    style = files("fedxray.report").joinpath("templates", "style.css").read_text()
    blocks = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in style.split(":root")[1:3]]
    colours = blocks[scheme]
    for ink in ("ink", "muted", "link", "leaks", "open", "safe"):
        for ground in ("page", "raised"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for name in ("leaks", "open", "safe"):
        for ink in (name, "ink", "muted"):
            assert contrast(colours[ink], colours[f"{name}-soft"]) >= 4.5, (ink, name)


def test_the_same_results_give_the_same_bytes(tmp_path: Path, made: dict[str, Any], text: str) -> None:
    assert build(tmp_path, made, make_gallery()) == text
    written = ["figures", "gallery.json", "report.html", "report.md", "results.json"]
    assert sorted(one.name for one in tmp_path.iterdir()) == written


def test_planted_markup_stays_text(tmp_path: Path, made: dict[str, Any], page: Page) -> None:
    clean = page
    page = read_page(build(tmp_path, plant(made), plant(make_gallery())))
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in clean.elements}
    assert not page.all("script") and len(page.all("style")) == 1 and len(page.all("img")) == len(clean.all("img"))
    for _, attributes in page.elements:
        assert not any(key.startswith("on") for key in attributes)
    assert "{{ 7*7 }}" in page.text and "alert(1)" in page.text
    for word in ("digits-pilot", "inverting-gradients", "gaussian-noise", "image 0, PSNR 20 dB"):
        assert word + PLANTED in page.text


def test_a_few_galleries_stand_for_the_others_of_their_defence(tmp_path: Path, small: dict[str, Any]) -> None:
    (gallery,) = make_gallery()
    several = [{**gallery, "case": case["id"]} for case in small["cases"][:5]]
    page = read_page(build(tmp_path, small, [*several, {**gallery, "case": "gone"}]))
    assert page.text.count("local-model-oracle, no defence") >= 1 and "2 more cases not shown" in page.text
    assert len(page.all("img")) == 4 * 2 * len(gallery["images"])
    ranks = [one["style"] for one in page.all("li") if "--best" in one.get("style", "")]
    assert len(set(ranks[:18])) == 18 and ranks[5].startswith("--best: 0;"), "the last ring is the best one"


def test_guessed_values_stand_beside_the_records(tmp_path: Path, made: dict[str, Any]) -> None:
    page = read_page(build(tmp_path, made, make_guesses()))
    assert "attribute-from-model, no defence: 4 inferred values" in page.text
    assert "record 1 seed 0, client 0 smoker yes yes yes" in page.text
    assert "record 0 seed 0, client 0 smoker yes no no" in page.text


def test_private_pictures_go_to_the_private_folder(tmp_path: Path, small: dict[str, Any]) -> None:
    results.write(small, tmp_path)
    (tmp_path / "private").mkdir(mode=0o700)
    secret = [{**make_gallery()[0], "title": "secret face"}, {**make_guesses()[0], "title": "secret value"}]
    (tmp_path / "private" / "gallery.json").write_text(json.dumps(secret))
    shared = build_report(tmp_path)
    assert shared == tmp_path / "report.html"
    page = read_page(shared.read_text())
    assert "secret" not in page.text and "inferred value" in page.text and not page.all("img")
    assert not any("secret" in one.read_text() for one in (tmp_path / "report.md", *tmp_path.glob("figures/*")))
    before = sorted(one.name for one in tmp_path.iterdir())
    assert "of private records are left out" in page.text and "fedxray report DIR --show-private" in page.text
    placed_there = contents({**small, "out": "my out"}, Galleries(shown=(), private=1, beyond=0))
    assert "fedxray report 'my out' --show-private" in read_page(render(placed_there)).text
    private = build_report(tmp_path, show_private=True)
    assert private == tmp_path / "private" / "report.html"
    page = read_page(private.read_text())
    assert sorted(one.name for one in tmp_path.iterdir()) == before
    assert "secret value" in page.text and "smoker yes yes yes" in page.text
    assert "secret face" in page.text and "This copy shows private records" in page.text
    assert "secret face" not in shared.read_text()
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700


def test_private_pictures_are_never_written_through_a_link(tmp_path: Path, small: dict[str, Any]) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "audit").mkdir()
    results.write(small, tmp_path / "audit")
    (tmp_path / "audit" / "private").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="private: expected a folder, got a symbolic link"):
        build_report(tmp_path / "audit", show_private=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert build_report(tmp_path / "audit") == tmp_path / "audit" / "report.html"


def test_an_audit_in_which_nothing_worked_still_has_a_report(tmp_path: Path, made: dict[str, Any]) -> None:
    cases = copy.deepcopy(made["cases"])
    for case in cases:
        case |= {"status": "failed", "reason": None, "scores": {}, "floors": {}, "controls": {}, "ledger": {}}
    page = read_page(build(tmp_path, results.document(made["plan"], made["versions"], cases, [])))
    assert "No attack read any message" in page.text and "Utility was not measured" in page.text
    assert "No case ended" in page.text and "leaks</span>" not in page.text


def test_the_first_screen_says_once_why_a_training_diverged(tmp_path: Path, made: dict[str, Any]) -> None:
    cases = copy.deepcopy(made["cases"])
    for case in cases:
        case |= {"status": "diverged", "reason": "training diverged (NaN)", "scores": {}, "floors": {}, "controls": {}}
    page = read_page(build(tmp_path, results.document(made["plan"], made["versions"], cases, [])))
    first = page.text.partition("Verdict by defence")[0]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for shown in (first, text):
        assert shown.count("cases failed: ") == 1 and shown.count("They never count as safety.") == 1


def test_a_command_breaks_between_its_words_only(tmp_path: Path) -> None:
    page = build(tmp_path, make_results(make_row("suspected")))
    assert "<span>--resume</span> <span>--seeds</span> <span>" in page


def test_no_leak_found_states_its_detection_limit_at_once(tmp_path: Path) -> None:
    page = read_page(build(tmp_path, make_results(make_row("no leak found"))))
    assert "would have been detected in 4 of 5 such audits" in page.text.partition("What to do next")[0]


def test_an_audit_of_nothing_has_a_report(tmp_path: Path) -> None:
    page = read_page(build(tmp_path, results.document({}, {}, [], [])))
    assert "No attack was run." in page.text


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        build_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_needs_no_torch(tmp_path: Path, small: dict[str, Any]) -> None:
    results.write(small, tmp_path)
    heavy = {"torch", "scipy", "pydantic", "matplotlib"}
    code = (
        "import sys; from pathlib import Path; from fedxray.report import build_report;"
        f"build_report(Path({str(tmp_path)!r})); sys.exit(bool({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_control_character_reaches_the_page(tmp_path: Path) -> None:
    document = json.loads(
        json.dumps(make_document()).replace("inverting-gradients", "inverting\\u001b[2J\\u0085\\u202e")
    )
    results.write(document, tmp_path / "results.json")
    build_report(tmp_path)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "inverting" in text and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
