"""Screenshots of the main views of a report, for these pages: `python docs/screenshots.py out/demo/report.html`."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
# Name, width and height of the window, colour scheme, and the part that is shown (None: the first screen).
VIEWS = (
    ("report", 1200, 900, "light", None),
    ("report-dark", 1200, 900, "dark", None),
    ("report-phone", 400, 850, "light", None),
    ("report-results", 1200, 900, "light", "section.attack"),
    ("report-where", 1200, 900, "light", "section[aria-labelledby=where]"),
    ("report-tradeoff", 1200, 900, "light", ".beside"),
    ("report-gallery", 1200, 900, "light", ".gallery"),
    ("report-curves", 1200, 900, "light", "section[aria-labelledby=curves]"),
)
LARGEST = 1300  # pixels of height
COLOURS = 128  # of the palette, which keeps the files small


def main(report: Path) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("FEDXRAY_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, width, height, scheme, part in VIEWS:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            shot = None
            if part is None:
                shot = page.screenshot()
            elif page.locator(part).count():
                page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
                box = page.locator(part).first.bounding_box()
                clip = {**box, "height": min(box["height"], LARGEST)}
                shot = page.screenshot(clip=clip, full_page=True)
            if shot is not None:
                target = IMAGES / f"{name}.png"
                Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS).save(target, optimize=True)
                print(f"{target.name}: {target.stat().st_size // 1000} kB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
