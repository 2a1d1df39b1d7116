"""The report in a real browser: nothing fails, nothing is asked of the network, nothing runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import results
from fedxray.report import build_report
from tests.report.synthetic import make_document, make_gallery, write_store
from tests.report.test_build import plant


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    document, gallery = make_document(), make_gallery()
    for name, (content, pictures) in {
        "plain": (document, gallery),
        "planted": (plant(document), plant(gallery)),
    }.items():
        folder = tmp_path_factory.mktemp(name)
        results.write(content, folder)
        (folder / "gallery.json").write_text(json.dumps(pictures))
        made[name] = build_report(folder)
    return made


@pytest.mark.parametrize("name", ["plain", "planted"])
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_it_opens_without_errors_and_fits_the_screen(
    browser: Any, reports: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    asked: list[str] = []

    def shut(dialog: Any) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.on("dialog", shut)
    page.on("request", lambda request: asked.append(request.url))
    address = reports[name].as_uri()
    page.goto(address)
    assert complaints == []
    assert [one for one in asked if one != address and not one.startswith("data:")] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    # Five searches have two charts each. Planted names match no utility that could be drawn against leakage.
    assert page.locator("svg.chart").count() == {"plain": 30, "planted": 27}[name]
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 22, 28)")
    page.close()


@pytest.mark.parametrize(("width", "height", "most"), [(1280, 800, 8), (390, 844, 15)])
def test_the_answer_is_on_the_first_screen_and_the_rest_is_folded(
    browser: Any, reports: dict[str, Path], width: int, height: int, most: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(reports["plain"].as_uri())
    assert page.evaluate("document.documentElement.scrollHeight") <= most * height
    box = page.locator(".answer .lead").bounding_box()
    assert box["y"] + box["height"] < height / 2, "the answer stands in the upper half of the first screen"
    assert page.locator(".answer .steps li").count() >= 1 and page.locator(".answer .findings li").count() <= 4
    page.close()


def test_links_lead_to_their_parts(browser: Any, reports: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(reports["plain"].as_uri())
    for link in page.locator("nav a").all():
        link.click()
        target = page.locator(link.get_attribute("href"))
        assert target.is_visible()
    page.close()


def test_paper_shows_what_the_screen_folds_away(browser: Any, reports: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(reports["plain"].as_uri())
    closed = "[...document.querySelectorAll('details:not([open])')]"
    heights = f"{closed}.map(part => part.getBoundingClientRect().height)"
    folded = page.evaluate(heights)
    page.emulate_media(media="print")
    printed = page.evaluate(heights)
    assert len(folded) > 15 and all(after > before for before, after in zip(folded, printed, strict=True))
    page.close()


def test_a_thousand_cases_make_a_small_page_that_opens_and_can_be_clicked_through(
    browser: Any, tmp_path: Path, record_property: Any
) -> None:
    document = write_store(tmp_path, seeds=10, clients=7)
    report = build_report(tmp_path)
    size = report.stat().st_size
    record_property("cases", len(document["cases"]))
    record_property("bytes", size)
    assert len(document["cases"]) > 1000 and size < 30e6
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    for link in page.locator("nav a").all():
        link.click()
    folded = page.locator("details:not([open]) > summary")
    for _ in range(folded.count()):
        folded.first.click()
    assert folded.count() == 0
    for name in ("order-best", "order-worst", "size-2"):
        page.locator(f"#{name}").check()
    page.locator(".pairs label").first.click()
    assert page.locator(".enlarge:checked").count() == 1
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert page.locator("tbody tr").count() > 50 and complaints == []
    page.close()
