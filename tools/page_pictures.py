"""Takes the pictures of the page that README and docs show, in Chromium, about a small cluster.

    PYTHONPATH=. .venv/bin/python tools/page_pictures.py

Needs what ``make page-test`` installs.
"""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.page.stage import KEY, open_stage
from tests.see.scene import make_scene
from tests.see.test_app import ON_DEMAND
from tests.usage.books import make_book

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
PICTURES = {
    "page-overview": ("", "Quotas", 706),
    "page-unit": ("unit/default/podgroup/moe", "tried", 650),
    "page-map": ("map", "stranded", 500),
    "page-usage": ("usage?month=2026-10&quota=research", "38,420.5", 1080),
}
"""Name -> address below the page, what is waited for, height."""


def main() -> None:
    path = os.environ.get("KOORD_CHROMIUM") or shutil.which("chromium")
    on_demand = replace(ON_DEMAND, read_usage=make_book)
    scene = make_scene(time.time(), 24)
    with open_stage(scene, on_demand=on_demand) as stage, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{stage.root}/page/#k={KEY}")
        page.get_by_text("GPUs").first.wait_for()
        for name, (address, text, height) in PICTURES.items():
            page.set_viewport_size({"width": 1100, "height": height})
            page.goto(f"{stage.root}/page/{address}")
            page.get_by_text(text).first.wait_for()
            page.wait_for_timeout(500)
            page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
