"""Many tabs of one browser share a stream; headless, all of them are seen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.builders import make_pod
from tests.page.test_views import look

if TYPE_CHECKING:
    from tests.page.stage import Stage
    from tests.page.test_views import Looked

TABS = 5
FEW_SECONDS = 5.0


def open_tabs(looked: Looked, *addresses: tuple[str, str]) -> list[Any]:
    """Open more tabs of the browser of a page: addresses below the page, and what they show."""
    tabs = []
    for address, text in addresses:
        tab = looked.page.context.new_page()
        tab.set_default_timeout(10_000)
        tab.goto(f"{looked.root}/page/{address}")
        tab.get_by_text(text).first.wait_for()
        tabs.append(tab)
    return tabs


def add_late(stage: Stage, name: str) -> None:
    stage.change(lambda: stage.cluster.pods(make_pod(name).gpu(1).created(time.time())))


def wait_for_one_stream(stage: Stage) -> bool:
    """A server sees that nobody reads a stream any more when it has something to write."""
    for _ in range(50):
        if stage.streams == 1:
            return True
        stage.read_again()
        time.sleep(0.05)
    return False


def test_tabs_have_one_stream_and_another_takes_over(browser: Any, stage: Stage) -> None:
    with look(browser, stage) as looked:
        looked.open("queue", "default/moe")
        tabs = open_tabs(looked, *([("queue", "default/moe")] * TABS))
        add_late(stage, "late")
        for tab in tabs:
            tab.get_by_role("link", name="default/late").wait_for()
        assert wait_for_one_stream(stage)
        looked.page.goto("about:blank")  # as if it were closed
        began = time.monotonic()
        tabs.pop().close()
        add_late(stage, "later")
        for tab in tabs:
            tab.get_by_role("link", name="default/later").wait_for()
        assert time.monotonic() - began < FEW_SECONDS
        assert wait_for_one_stream(stage)


def test_what_a_stream_has_no_place_for_is_asked_for(browser: Any, stage: Stage) -> None:
    """Tabs with more topics than one stream has, and one with a question that is refused."""
    units = [(f"unit/default/podgroup/{name}", "Members") for name in ("moe", "tune")]
    views = [("map", "stranded"), ("quotas/team-a", "default/bert-0"), ("node/gpu-00", "Devices")]
    with look(browser, stage) as looked:
        looked.open("", "owed 16")
        refused = ("time?from=yesterday", "is no time such as")
        for tab in open_tabs(looked, *units, *views, refused, ("reservations", "nightly")):
            tab.close()
        add_late(stage, "late")
        looked.open("queue", "default/late")
