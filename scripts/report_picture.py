"""Writes docs/images/report.png from the report that is given, as fedxray-out/demo/report.html."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "report.png"
WIDTH, HEIGHT, COLOURS = 1200, 1315, 128


def main(report: Path) -> None:
    browser_path = shutil.which(os.environ.get("FEDXRAY_CHROMIUM", "chromium"))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.resolve().as_uri())
        shot = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    PICTURE.parent.mkdir(exist_ok=True)
    shot.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
