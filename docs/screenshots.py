"""Pictures of the main views of a report, for these pages: `python docs/screenshots.py out/demo/report.html`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
# Name, width and height of the window, colours, and the part that is shown (none: the first screen).
VIEWS = (
    ("report", 1200, 900, "light", None),
    ("report-dark", 1200, 900, "dark", None),
    ("report-phone", 400, 850, "light", None),
    ("report-results", 1200, 900, "light", "section.attack"),
    ("report-where", 1200, 900, "light", "section[aria-labelledby=where]"),
    ("report-tradeoff", 1200, 900, "light", ".beside"),
    ("report-gallery", 1200, 900, "light", ".gallery"),
    ("report-course", 1200, 900, "light", "section[aria-labelledby=course]"),
)
LARGEST = 1300  # pixels of height


def main(report: Path) -> None:
    from playwright.sync_api import sync_playwright

    found = os.environ.get("FEDXRAY_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for name, width, height, scheme, part in VIEWS:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            target = IMAGES / f"{name}.png"
            if part is None:
                page.screenshot(path=target)
            elif page.locator(part).count():
                box = page.locator(part).first.bounding_box()
                clip = {**box, "height": min(box["height"], LARGEST)}
                page.screenshot(path=target, clip=clip, full_page=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
