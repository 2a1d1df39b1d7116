"""The report for everybody: enough contrast, words for what is drawn, everything within reach of the keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedxray.audit.judge import results
from fedxray.report import build_report
from tests.report.synthetic import make_document, make_gallery, make_guesses

# Every piece of text with its colour and the first ground behind it that can be seen, and its contrast by WCAG 2.
CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, words = walk.currentNode.data.trim();
    if (!words || !element.checkVisibility() || element.closest("title, desc, style")) continue;
    const style = getComputedStyle(element), drawn = element.namespaceURI.endsWith("svg");
    const ink = parse(drawn ? style.fill : style.color), size = parseFloat(style.fontSize);
    const pair = [light(ink), light(ground(element))].sort((a, b) => b - a);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    found.push({words, ratio: (pair[0] + 0.05) / (pair[1] + 0.05), least: large ? 3 : 4.5});
  }
  return found;
}"""
# What is drawn, clicked or headed without words for it.
BARE = """() => [
  ...[...document.images].filter(one => !one.alt.trim()),
  ...[...document.querySelectorAll('svg:not([aria-hidden])')].filter(one => one.getAttribute('role') !== 'img'
    || !one.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id).textContent.trim())),
  ...[...document.querySelectorAll('input')].filter(one => ![...one.labels].some(text => text.innerText.trim())),
  ...[...document.querySelectorAll('a, summary, caption, legend, h1, h2, h3')].filter(
    one => !one.textContent.trim()),
  ...[...document.querySelectorAll('[role=region], nav')].filter(one => !one.getAttribute('aria-label')),
  ...[...document.querySelectorAll('section')].filter(one => !document.getElementById(
    one.getAttribute('aria-labelledby'))),
].map(one => one.outerHTML.slice(0, 200))"""
OPEN = "for (const part of document.querySelectorAll('details')) part.open = true"
REACHABLE = "a[href], summary, input, [tabindex='0']"
# Of a group of radio buttons only the chosen one is a stop.
STOPS = f"[...document.querySelectorAll(\"{REACHABLE}\")].filter(e => e.type !== 'radio' || e.checked).length"
STEP = """() => {
  const here = document.activeElement, style = getComputedStyle(here);
  const told = here.matches('.enlarge') ? getComputedStyle(here.parentElement.querySelector('.pair')) : style;
  const all = [...document.querySelectorAll("*")];
  return {place: all.indexOf(here), tag: here.tagName, ring: told.outlineStyle !== 'none'};
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("access")
    results.write(make_document(), folder)
    (folder / "gallery.json").write_text(json.dumps(make_gallery() + make_guesses()))
    return build_report(folder)


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    opened.goto(report.as_uri())
    yield opened
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("media", ["screen", "print"])
def test_every_word_has_enough_contrast_where_it_stands(page: Any, scheme: str, media: str) -> None:
    page.emulate_media(color_scheme=scheme, media=media)
    page.evaluate(OPEN)
    found = page.evaluate(CONTRAST)
    assert len(found) > 500 and any("more leakage" in one["words"] for one in found), "charts too"
    assert [one for one in found if one["ratio"] < one["least"]] == []


def test_a_page_of_bad_contrast_would_be_noticed(page: Any) -> None:
    page.add_style_tag(content=".lead { color: #777 } .chart text { fill: #999 !important }")
    page.evaluate(OPEN)
    low = [one["words"] for one in page.evaluate(CONTRAST) if one["ratio"] < one["least"]]
    assert any("more leakage" in words for words in low)


def test_what_is_drawn_or_clicked_has_words(page: Any) -> None:
    page.evaluate(OPEN)
    assert page.evaluate(BARE) == []
    assert page.locator("svg[role=img]").count() > 10 and page.locator("img").count() == 12


def test_every_stop_is_reached_with_tab_and_seen(page: Any) -> None:
    page.evaluate(OPEN)
    expected, stops = page.evaluate(STOPS), []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    for _ in range(expected):
        stops.append(page.evaluate(STEP))
        page.keyboard.press("Tab")
    assert [one["place"] for one in stops] == sorted(one["place"] for one in stops), "in the order of the page"
    assert len({one["place"] for one in stops}) == expected > 40
    assert [one for one in stops if not one["ring"]] == [], "where one is can be seen"


def test_galleries_are_sorted_enlarged_and_folded_by_keyboard(page: Any) -> None:
    places = "[...document.querySelectorAll('.pairs li')].map(e => e.getBoundingClientRect()).map(r => [r.top, r.left])"

    def order() -> list[int]:
        found = page.evaluate(places)
        return sorted(range(len(found)), key=lambda index: found[index])

    page.locator("#examples").click()
    page.locator("#order-given").focus()
    assert order() == [0, 1, 2, 3, 4, 5]
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "order-best" and order() == [5, 4, 3, 2, 1, 0]
    page.keyboard.press("ArrowRight")
    assert order() == [0, 1, 2, 3, 4, 5], "the first ring is the worst one"
    first = page.locator(".pairs img").first
    width = first.bounding_box()["width"]
    page.locator("#size-1").focus()
    page.keyboard.press("ArrowRight")
    assert first.bounding_box()["width"] == pytest.approx(2 * width, abs=4)
    page.keyboard.press("ArrowLeft")
    page.locator(".enlarge").first.focus()
    page.keyboard.press("Space")
    assert first.bounding_box()["width"] == pytest.approx(4 * width, abs=8)
    assert page.locator(".pairs img").nth(2).bounding_box()["width"] == width, "the others stay"
    folded = page.locator("details:not([open]) > summary").first
    folded.focus()
    before = page.locator("details[open]").count()
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == before + 1
