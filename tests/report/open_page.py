"""Opens a report in a real browser as two readers would, and says what is wrong with it.

    python -m tests.report.open_page REPORT

Wide and light, narrow and dark, everything unfolded: no message or error, nothing asked of the network, no scrolling
sideways, every picture shown, words for all that is drawn or clicked, enough contrast.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import BROWSERS
from tests.report.conftest import QUIET
from tests.report.test_access import BARE, CONTRAST, OPEN

SCREENS = ((1200, "light"), (400, "dark"))


def faults(page: Any, address: str) -> Iterator[str]:
    """Everything wrong with a page that is about to be opened, in words."""
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.evaluate(OPEN)
    if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
        yield "scrolls sideways"
    if not page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)"):
        yield "a picture is not shown"
    yield from (f"no words for {one}" for one in page.evaluate(BARE))
    told = page.evaluate(CONTRAST)
    yield from (f"hard to read: {one['words'][:80]}" for one in told if one["ratio"] < one["least"])
    if len(told) < 50:
        yield f"nearly empty: {len(told)} pieces of text"
    yield from (f"says {one}" for one in said)
    yield from (f"asks for {one}" for one in asked if one != address and not one.startswith("data:"))


def main(report: Path) -> int:
    from playwright.sync_api import sync_playwright

    names = (os.environ.get("FEDXRAY_CHROMIUM", ""), *BROWSERS)
    path = next(found for found in map(shutil.which, filter(None, names)) if found)
    found = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=QUIET)
        for width, scheme in SCREENS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(120_000)
            address = report.absolute().as_uri()
            found += [f"{width} px, {scheme}: {fault}" for fault in faults(page, address)]
            page.close()
        browser.close()
    print("\n".join(found) or f"{report.name}: opened at {' and '.join(f'{w} px, {s}' for w, s in SCREENS)}, no fault")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
