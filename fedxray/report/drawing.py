"""A drawing by matplotlib that stands in the page and in files for papers, in the colours of each."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fedxray.errors import printable
from fedxray.report.svg import PAGE_COLOURS, PAPER_COLOURS, embed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedxray",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.unicode_minus": True,
    "text.usetex": False,
    "path.simplify": False,
}
FORMATS = ("svg", "pdf", "png")
METADATA: Mapping[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
SHARP = 200  # dots per inch of a PNG


@dataclass(frozen=True, kw_only=True)
class Inks:
    """The colours of a drawing."""

    ink: str = "#010101"
    muted: str = "#020202"
    band: str = "#030303"
    line: str = "#040404"
    page: str = "#050505"
    leaks: str = "#060606"
    open: str = "#070707"
    safe: str = "#080808"

    def of(self, verdict: str) -> str:
        """The colour of a verdict, plain ink where there is none."""
        known = {"leaks": self.leaks, "no leak found": self.safe, "inconclusive": self.open}
        return known.get(verdict, self.ink)


STANDING = Inks()  # colours that stand for others: every place gives them its own
PAPER = Inks(**{name: PAPER_COLOURS[colour] for name, colour in vars(STANDING).items()})
Paint = Callable[["Figure", Inks], None]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What is drawn; a text "@3" in it stands for texts[3], so that no name is taken for markup or mathematics."""

    name: str  # for ids and files, of plain letters
    title: str
    description: str
    texts: tuple[str, ...]
    size: tuple[float, float]  # points
    paint: Paint


def on_page(drawing: Drawing) -> Markup:
    """The drawing as SVG that follows the colours of the page."""
    return Markup(_svg(drawing, PAGE_COLOURS, alone=False))


def as_file(drawing: Drawing, ending: str) -> bytes:
    """The drawing as the content of a file: svg, pdf or png; the same drawing gives the same bytes."""
    if ending == "svg":
        return (_svg(drawing, PAPER_COLOURS, alone=True) + "\n").encode()
    from matplotlib import rc_context
    from matplotlib.text import Text

    with rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # drawn as a box
        figure = _painted(drawing, PAPER)
        for text in figure.findobj(Text):
            found = re.fullmatch(r"@(\d+)", text.get_text())
            text.set_parse_math(False)
            if found:
                text.set_text(printable(drawing.texts[int(found.group(1))]))
        drawn = io.BytesIO()
        figure.savefig(drawn, format=ending, dpi=SHARP, facecolor="white", metadata=METADATA[ending])
    return drawn.getvalue()


def _svg(drawing: Drawing, colours: Mapping[str, str], *, alone: bool) -> str:
    return embed(
        _drawn(drawing),
        name=drawing.name,
        title=drawing.title,
        description=drawing.description,
        texts=drawing.texts,
        colours=colours,
        alone=alone,
    )


@lru_cache(maxsize=200)  # for the page and for a file
def _drawn(drawing: Drawing) -> str:
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        drawn = io.StringIO()
        _painted(drawing, STANDING).savefig(drawn, format="svg", metadata=METADATA["svg"])
    return drawn.getvalue()


def _painted(drawing: Drawing, inks: Inks) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.size[0] / 72, drawing.size[1] / 72), dpi=72)
    FigureCanvasAgg(figure)  # savefig takes the canvas of each format
    figure.patch.set_visible(inks is not STANDING)
    drawing.paint(figure, inks)
    return figure
