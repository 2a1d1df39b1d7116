"""Figures as files and report.md: readable without the page, the same every time, and deaf to planted markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, strategies as st

from fedxray.errors import BadInput
from fedxray.report import build_report
from fedxray.report.charts import SVG, ChartLine, Drawing, as_file, interval_chart
from fedxray.report.words import escaped, verbatim
from tests.report.reading import read_page
from tests.report.synthetic import STORIES, make_cases, make_document
from tests.report.test_build import PLANTED, build, plant

HOSTILE = "</text><script>alert(1)</script>&$x$ \\frac{1}{2} 漢字"


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    """One attack with three metrics, so that little is drawn."""
    return make_document(make_cases(STORIES[:1], seeds=range(3)))


def drawing(label: str = "none") -> Drawing:
    line = ChartLine(label=label, mean=0.9, low=0.8, high=0.95, floor=0.5, state="leaks")
    return interval_chart([line], name="a", title=label, axis="accuracy", down=False)


def test_every_format_is_what_its_name_says_and_the_same_every_time() -> None:
    for ending, start in {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}.items():
        made = as_file(drawing(), ending)
        assert made.startswith(start) and as_file(drawing(), ending) == made


def test_a_figure_alone_has_its_own_colours_size_and_words() -> None:
    root = ET.fromstring(as_file(drawing(HOSTILE), "svg"))
    assert root.get("width") and root.get("height") and root.get("role") == "img"
    text = ET.tostring(root, encoding="unicode")
    assert "var(" not in text and "#010101" not in text and "#b3261e" in text and "<script" not in text
    assert any("<script>alert(1)</script>" in (one.text or "") for one in root.iter(f"{{{SVG}}}text"))


@pytest.mark.parametrize("ending", ["pdf", "png"])
def test_names_are_drawn_as_they_are_and_never_as_formulas(ending: str) -> None:
    assert as_file(drawing(HOSTILE), ending) and as_file(drawing("$\\frac{"), ending)


def test_report_and_figures_stand_in_the_folder(tmp_path: Path, small: dict[str, Any]) -> None:
    build(tmp_path, small)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((figures/[^)]+)\)", text)
    made = sorted(f"figures/{one.name}" for one in (tmp_path / "figures").iterdir())
    assert sorted(linked) == made and len(made) == len(set(made)) > 4
    assert all(re.fullmatch(r"figures/[a-z0-9-]+\.svg", name) for name in made)
    assert any("psnr" in name for name in made) and any("loss" in name for name in made)
    for word in (
        "## Verdict by defence",
        "digits-pilot",
        "## References",
        "inverting-gradients",
        "| learning\\_rate |",
    ):
        assert word in text


def test_other_formats_on_request_and_old_figures_go(tmp_path: Path, small: dict[str, Any]) -> None:
    build(tmp_path, small)
    figures = tmp_path / "figures"
    (figures / "99-results-gone.svg").write_text("x")
    (figures / "mine.svg").write_text("x")
    build_report(tmp_path, formats=("pdf",))
    names = {one.name for one in figures.iterdir()}
    assert "99-results-gone.svg" not in names and "mine.svg" in names
    assert {one.rpartition(".")[2] for one in names - {"mine.svg"}} == {"pdf", "svg"}, "the page links to SVG"
    with pytest.raises(BadInput, match="--figures"):
        build_report(tmp_path, formats=("gif",))


def test_figures_are_never_written_through_a_link(tmp_path: Path, small: dict[str, Any]) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="figures: expected a folder, got a symbolic link"):
        build(tmp_path / "audit", small)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_planted_markup_stays_text_in_markdown_and_figures(tmp_path: Path, small: dict[str, Any]) -> None:
    markdown = pytest.importorskip("markdown", reason="needs mkdocs: pip install 'fedxray[dev]'")
    build(tmp_path, plant(small))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    page = read_page(markdown.markdown(text, extensions=["tables", "fenced_code"]).replace("<hr />", ""))
    known = {"h1", "h2", "h3", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "img", "ul", "ol", "li"}
    assert {tag for tag, _ in page.elements} <= known | {"pre", "code"}
    assert all(one["src"].startswith("figures/") for one in page.all("img"))
    assert "alert(1)" in page.text and PLANTED[:20] in page.text
    for one in (tmp_path / "figures").iterdir():
        tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(one.read_bytes()).iter()}
        assert tags <= {"svg", "title", "desc", "g", "path", "use", "defs", "clipPath", "rect", "text"}


@given(st.text(max_size=60))
def test_whatever_a_name_holds_it_is_one_line_without_markup(name: str) -> None:
    made = str(escaped(name))
    assert "\n" not in made and "<" not in made and "://" not in made
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*_\[\]]", made.replace("\\\\", ""))
    assert "```" not in str(verbatim(name))
