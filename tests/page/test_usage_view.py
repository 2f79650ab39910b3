"""The view of usage in Chromium: what a team lead asks, light and dark, by keyboard, as a file."""

from __future__ import annotations

import csv
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.stage import open_stage
from tests.page.test_views import PICTURES, find_unclear, look
from tests.see.scene import make_scene
from tests.usage.books import make_book

from koord.see.snapshots import OnDemand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.page.stage import Stage


@pytest.fixture
def kept() -> Iterator[Stage]:
    """A server that has a store."""
    on_demand = OnDemand(None, None, None, read_usage=make_book)
    with open_stage(make_scene(time.time()), on_demand=on_demand) as stage:
        yield stage


def last_month() -> str:
    return f"{datetime.now(UTC).replace(day=1) - timedelta(days=1):%Y-%m}"


def test_a_team_lead_gets_all_answers_within_three_clicks(browser: Any, kept: Stage) -> None:
    with look(browser, kept) as looked:
        page = looked.page
        page.get_by_role("link", name="Usage").click()
        page.get_by_label("Month").select_option(last_month())
        page.get_by_role("link", name="research").click()
        page.get_by_text("No: 214.5 hours that were guaranteed").wait_for()
        page.get_by_role("heading", name="Did research get its share?").wait_for()
        page.get_by_role("region", name="Usage by user").get_by_text("ada").wait_for()
        assert page.get_by_text("edgar").count() == 0
        page.get_by_text("At most 4.0 hours").wait_for()
        assert page.url.endswith(f"usage?month={last_month()}&quota=research")
        page.reload()
        page.get_by_text("No: 214.5 hours").wait_for()


def test_it_is_clear_in_light_and_dark_and_narrow_and_by_keyboard(
    browser: Any, kept: Stage, stage: Stage
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, server in (("usage", kept), ("usage-of-pods", stage)):
        with look(browser, server) as looked:
            page = looked.page
            page.keyboard.press("g")
            page.keyboard.press("h")
            page.get_by_role("heading", name="Who used what").wait_for()
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=PICTURES / f"{name}-{scheme}.png", full_page=True)
                assert find_unclear(looked) == [], (name, scheme)
            page.set_viewport_size({"width": 360, "height": 740})
            page.screenshot(path=PICTURES / f"{name}-narrow.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


def test_tables_are_kept_as_files(browser: Any, kept: Stage) -> None:
    with look(browser, kept) as looked:
        looked.open("usage?by=job", "team-nlp/llm")
        with looked.page.expect_download() as download:
            looked.page.get_by_role("button", name="Download CSV of job").click()
        assert download.value.suggested_filename.startswith("usage-job-")
        rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
        assert rows[0]["job"] == "team-nlp/llm"
        assert rows[0]["gpuHours"] == "38420.500"
        assert int(rows[0]["heldMilliGpuMs"]) == 38_420_500 * 3_600_000
