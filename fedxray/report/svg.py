"""What matplotlib draws, made fit to stand inside a page: own ids, page colours, a text alternative, no scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from fedxray.errors import printable

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
KEPT = frozenset({"svg", "g", "path", "use", "defs", "clipPath", "rect", "text"})
# Colours of a drawing that stand for others: for variables of the page, so that a chart follows light and dark,
# and for those of the light page on paper.
PAGE_COLOURS: Mapping[str, str] = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--band)",
    "#040404": "var(--line)",
    "#050505": "var(--page)",
    "#060606": "var(--leaks)",
    "#070707": "var(--open)",
    "#080808": "var(--safe)",
}
PAPER_COLOURS: Mapping[str, str] = {
    "#010101": "#16202c",
    "#020202": "#55606e",
    "#030303": "#e3e7ed",
    "#040404": "#cdd3db",
    "#050505": "#ffffff",
    "#060606": "#b3261e",
    "#070707": "#7a5200",
    "#080808": "#17663f",
}


def embed(
    drawn: str,
    *,
    name: str,
    title: str,
    description: str,
    texts: Sequence[str],
    colours: Mapping[str, str] = PAGE_COLOURS,
    alone: bool = False,
) -> str:
    """SVG for a page, or a file that stands alone; a text "@3" becomes texts[3], which matplotlib never sees.

    So no name can be taken for markup or mathematics, or lack a glyph.
    """
    root = ET.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", drawn, count=1, flags=re.DOTALL))
    _prune(root)
    for element in root.iter():
        _adapt(element, name, texts, colours)
    for attribute in ("version",) if alone else ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        words = ET.Element(
            f"{{{SVG}}}{tag}", {"id": f"{name}-{'title' if tag == 'title' else 'description'}"}
        )
        words.text = printable(text)
        root.insert(place, words)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return ET.tostring(root, encoding="unicode")


def _prune(element: ET.Element) -> None:
    """Drop metadata, styles and everything else that a drawing does not need."""
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] not in KEPT:
            element.remove(child)
        else:
            _prune(child)


def _adapt(element: ET.Element, name: str, texts: Sequence[str], colours: Mapping[str, str]) -> None:
    """Ids that are unique in the page, colours of the page, and the real texts."""
    tag = element.tag.rpartition("}")[2]
    own = element.attrib.pop("id", None)
    if own is not None and tag in ("path", "clipPath"):
        element.set("id", f"{name}-{own}")
    for key, value in element.attrib.items():
        if key == f"{{{XLINK}}}href":
            element.set(key, f"#{name}-{value.removeprefix('#')}")
        elif key == "clip-path":
            element.set(key, value.replace("url(#", f"url(#{name}-"))
        elif key == "style":
            element.set(key, re.sub("|".join(colours), lambda found: colours[found.group()], value))
    if tag == "text":
        found = re.fullmatch(r"@(\d+)", (element.text or "").strip())
        if found:
            element.text = printable(texts[int(found.group(1))])
