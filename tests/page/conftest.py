"""Chromium to look at the page with; without it these tests are skipped."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.stage import open_stage
from tests.see.scene import make_scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.page.stage import Stage

_MISSING = (
    "the page is not looked at: this needs Chromium (apt-get install chromium, or its path in "
    "KOORD_CHROMIUM) and Playwright (make page-test)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What drives a browser closes its own sockets, at its own time."""
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture
def stage() -> Iterator[Stage]:
    with open_stage(make_scene(time.time())) as opened:
        yield opened


@pytest.fixture(scope="module")  # its loop is in the way of asynchronous tests
def browser() -> Iterator[Any]:
    path = os.environ.get("KOORD_CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - perhaps not installed
    except ImportError:
        pytest.skip(_MISSING)
    if not path:
        pytest.skip(_MISSING)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
