"""An audit in a notebook: its tables as data frames, its charts as matplotlib figures, and its short page.

`Completed`, which `run_audit` returns, calls these when they are asked for.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedxray.errors import BadInput, missing_extra, printable, unknown_name
from fedxray.report import charts, overview
from fedxray.report.attacks import attack_sections, tradeoffs
from fedxray.report.charts import METADATA, PAPER, SETTINGS, WIDTH, Drawing, clipped, fill_in
from fedxray.report.gallery import GalleryGroup, Pair, gallery_groups, read_galleries
from fedxray.report.terminal import primary_tables

if TYPE_CHECKING:
    import pandas

Document = Mapping[str, Any]

# Data frames


def frame(document: Document, table: str) -> pandas.DataFrame:
    """Return a table of the results: "summary", "cases" (a row per case and metric) or "utility"."""
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("frame", "pandas", "notebook", "read results.json") from error

    if table not in FRAMES:
        raise unknown_name("table", table, FRAMES)
    return pandas.DataFrame(FRAMES[table](document))


def _summary(document: Document) -> list[dict[str, Any]]:
    """Return the rows of the summary with the means of their controls as columns; details stay in results.json."""
    return [
        {key: value for key, value in row.items() if not isinstance(value, dict | list)}
        | {f"control_{name}": control["mean"] for name, control in row["controls"].items()}
        for row in document["summary"]
    ]


def _cases(document: Document) -> list[dict[str, Any]]:
    """Return a row for each metric of each case; a case without a score has one row."""
    rows = []
    for case in document["cases"]:
        about = {key: value for key, value in case.items() if not isinstance(value, dict | list)}
        for metric, score in (case["scores"] or {None: None}).items():
            compared = {
                f"{kind}_{name}": scores.get(metric)
                for kind, named in (("floor", case["floors"]), ("control", case["controls"]))
                for name, scores in named.items()
            }
            rows.append(about | {"metric": metric, "score": score} | compared)
    return rows


def _utility(document: Document) -> list[dict[str, Any]]:
    return [dict(row) for row in document["utility"]]


FRAMES: Mapping[str, Callable[[Document], list[dict[str, Any]]]] = {
    "summary": _summary,
    "cases": _cases,
    "utility": _utility,
}

# Figures

TITLE = 22.0  # points above each chart
PAIR = 72.0  # points, of an image
MOST_PAIRS = 8  # of one attack and defence
DPI = 100


class NotebookFigure(Figure):
    """A figure that a notebook shows as it is; pyplot does not know it, so it is never shown twice."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with rc_context(SETTINGS):
            self.savefig(content, format="png", dpi=DPI, facecolor="white", metadata=METADATA["png"])
        return content.getvalue()


def figure(document: Document, folder: Path, kind: str, *, attack: str | None, show_private: bool) -> Figure:
    """Return a figure: "leakage" with floors, "trade-off", or "reconstructions" beside their originals."""
    if kind not in FIGURES:
        raise unknown_name("kind", kind, FIGURES)
    if attack is not None:
        labels = {case["attack"] for case in document["cases"]}
        if attack not in labels:
            raise unknown_name("attack", attack, labels)
        parts = {name: [row for row in document[name] if row["attack"] == attack] for name in ("summary", "cases")}
        document = {**document, **parts}
    if kind == "reconstructions":
        return _reconstructions(document, folder, show_private)
    drawings = FIGURES[kind](document)
    if not drawings:
        expected = {"leakage": "a scored attack", "trade-off": "an attack on two defences with their utility"}[kind]
        raise BadInput("kind", expected=expected, got="none in this audit", remedy="Look at frame().")
    return _stacked(drawings)


def _leakage(document: Document) -> list[tuple[str, Drawing]]:
    """Return the chart of the metric that decides, for each attack and role."""
    sections = [section for section in attack_sections(document) if section.charts]
    return [(f"{section.attack} ({section.role})", section.charts[0].drawing) for section in sections]


def _tradeoffs(document: Document) -> list[tuple[str, Drawing]]:
    """Return the scatter chart of each attack and role, with its defences named above it."""
    return [
        (", ".join(f"{line['mark']} {line['defence']}" for line in part.lines) + f": {part.title}", part.drawing)
        for part in tradeoffs(document)
    ]


FIGURES: Mapping[str, Callable[[Document], list[tuple[str, Drawing]]]] = {
    "leakage": _leakage,
    "trade-off": _tradeoffs,
    "reconstructions": lambda document: [],
}


def _stacked(drawings: Sequence[tuple[str, Drawing]]) -> Figure:
    """Return drawings one below the other in the colours of paper, each with its title."""
    heights = [drawing.size[1] + TITLE for _, drawing in drawings]
    with rc_context(SETTINGS):
        whole = _empty(WIDTH, sum(heights))
        parts = whole.subfigures(len(drawings), 1, squeeze=False, height_ratios=heights)
        for part, height, (title, drawing) in zip(parts[:, 0], heights, drawings, strict=True):
            inner = part.subfigures(2, 1, height_ratios=[TITLE, height - TITLE])
            text = inner[0].text(charts.SIDE, 0.5, "", va="center", fontweight="bold", parse_math=False)
            text.set_text(printable(clipped(title, 74)))
            drawing.paint(inner[1], PAPER)
            fill_in(inner[1], drawing.texts)
    return whole


def _empty(width: float, height: float) -> NotebookFigure:
    made = NotebookFigure(figsize=(width / 72, height / 72), dpi=72)
    FigureCanvasAgg(made)
    return made


def _reconstructions(document: Document, folder: Path, show_private: bool) -> Figure:
    """Return originals above the reconstructions that were matched to them, a pair of lines per attack and defence."""
    found = read_galleries(folder, show_private=show_private, document=document)
    cases = {case["id"] for case in document["cases"]}
    shown = [gallery for gallery in found.shown if gallery.case in cases]
    groups = [group for group in gallery_groups(document, shown) if group.pairs]
    if not groups:
        private = " that may be shown" if found.private else ""
        remedy = "Give show_private=True." if found.private else "Audit images with an attack that reconstructs them."
        raise BadInput("kind", expected=f"image reconstructions{private}", got="none", remedy=remedy)
    across = max(min(len(group.pairs), MOST_PAIRS) for group in groups)
    height = TITLE + 2 * PAIR + TITLE
    with rc_context(SETTINGS):
        whole = _empty(max(WIDTH, PAIR * across), height * len(groups))
        parts = whole.subfigures(len(groups), 1, squeeze=False)
        for part, group in zip(parts[:, 0], groups, strict=True):
            _draw_group(part, group, across)
    return whole


def _draw_group(part: Any, group: GalleryGroup, across: int) -> None:
    """Draw the first pairs of one attack and defence, each with its quality below."""
    part.suptitle("", parse_math=False, fontsize=10).set_text(printable(clipped(f"{group.title}: original, guess", 74)))
    axes = part.subplots(2, across, squeeze=False)
    part.subplots_adjust(left=0.02, right=0.98, top=0.85, bottom=0.12, wspace=0.1, hspace=0.05)
    for cell in axes.flat:
        cell.set_axis_off()
    for column, pair in enumerate(shown.pair for shown in group.pairs[:MOST_PAIRS]):
        for line, pixels in enumerate(_pixels(pair)):
            axes[line, column].imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        if pair.quality is not None:
            below = axes[1, column]
            below.text(0.5, -0.04, f"{pair.quality:.1f}", transform=below.transAxes, ha="center", va="top", fontsize=8)


def _pixels(pair: Pair) -> list[Any]:
    """Return original and guess as arrays of numbers from 0 to 1."""
    from matplotlib.image import imread

    contents = (base64.b64decode(url.partition(",")[2]) for url in (pair.original, pair.guess))
    return [imread(io.BytesIO(content), format="png") for content in contents]


# The short page: the answer and the table of primary rows

HEADINGS = ("attack", "defence", "score", "floor", "gain (95 % interval)", "state")


def page(document: Document) -> str:
    """Return the first answer of the report, its findings and the main table as HTML; every name is escaped."""
    answer = overview.answer(document, overview.cards(document))
    head = Markup("").join(Markup("<th>{}</th>").format(heading) for heading in HEADINGS)
    lines = [_line([title, *cells]) for title, rows, _ in primary_tables(document) for cells in rows]
    findings = [Markup("<li>{}: {}</li>").format(finding.title, finding.sentence) for finding in answer.findings]
    return str(
        Markup(
            "<p><strong>{}</strong></p><ul>{}</ul><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
        ).format(answer.text, Markup("").join(findings), head, Markup("").join(lines))
    )


def _line(cells: Sequence[str]) -> Markup:
    return Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(escape(cell)) for cell in cells))
