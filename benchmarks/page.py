"""What the page costs a browser: first paint, first rows, a long queue, the map, many changes.

    python -m benchmarks.page [--nodes 5000] [--units 10000] [--changes 60] [--runs 3] [--tabs 0]

With ``--tabs`` only tabs are opened, so many, of one browser: how many streams they have, and in
how long another one takes over when the one that has it is closed.

Needs Chromium and Playwright (make page-test). The processor of the browser is slowed down four
times, as that of a weak notebook; what the server takes to answer is in the times. As in
``koord serve`` the cluster is followed: why something waits was told by the operators, and nothing
is planned (of ten thousand units that takes longer than all that is measured here). Medians of the
runs, and of changes the worst. Tasks are measured in processor time of the browser's main thread,
so other work of this machine is not in them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.page.stage import KEY, open_stage
from tests.see.scene import GPU, LAYERS

from benchmarks.see import Bar
from koord.answers.reading import Reading
from koord.answers.reports import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.cluster import FakeCluster
    from tests.page.stage import Stage

SLOWER: Final = 4
CHANGED: Final = 500
"""Rows per change: the first ones, so that all that are in sight are others afterwards."""
REPORT: Final = Reported(
    "Placed",
    "False",
    "InsufficientNodes",
    "Room for 0 of 1 pods. 4750 of 5000 nodes: Insufficient nvidia.com/gpu (8 asked).",
    "2026-11-25T08:00:00Z",
)
WATCH: Final = """
window.firstRow = 0;
new MutationObserver(() => {
  if (!window.firstRow && document.querySelector("tbody a")) window.firstRow = performance.now();
}).observe(document, { childList: true, subtree: true });
"""
PAINT: Final = 'performance.getEntriesByName("first-contentful-paint")[0].startTime'
HEAP: Final = "performance.memory.usedJSHeapSize"


def make_large(nodes: int, units: int, now: float) -> FakeCluster:
    """Make nodes of eight GPUs, most of them in use, and single pods that wait."""
    cluster = make_cluster().topology(*LAYERS)
    teams = [f"team-{at:02}" for at in range(40)]
    cluster.quotas(*(make_quota(team, min={GPU: 100}, max={GPU: 40_000}) for team in teams))
    for at in range(nodes):
        node = make_node(f"gpu-{at:04}").gpu(8)
        cluster.nodes(node.label("rack", f"r{at // 16}").label("block", f"b{at // 256}"))
        if at % 20:
            pod = make_pod(f"runs-{at:04}").gpu(8).quota(teams[at % 40]).running(f"gpu-{at:04}")
            cluster.pods(pod.created(now - 3600))
    return add_waiting(cluster, units, now)


def add_waiting(cluster: FakeCluster, units: int, now: float, first: int = 0) -> FakeCluster:
    numbers = range(first, first + units)
    return cluster.pods(
        *(make_pod(f"waits-{at:05}").gpu(8).created(now - units + at - first) for at in numbers)
    )


def look_at(cluster: FakeCluster) -> Reading:
    """Return the cluster as one that is followed."""
    pods = (pod for pod in cluster.state.pods.values() if pod.is_waiting)
    return Reading(
        cluster.state, is_followed=True, reports=dict.fromkeys((pod.key for pod in pods), REPORT)
    )


class Measured:
    """A browser that looks at a stage, slowed down."""

    def __init__(self, browser: Any, stage: Stage) -> None:
        self.stage = stage
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self.page.set_default_timeout(120_000)
        self.page.add_init_script(WATCH)
        self.devtools = self.page.context.new_cdp_session(self.page)
        self.page.goto(f"{stage.root}/page/#k={KEY}")
        self.page.get_by_text("GPUs").first.wait_for()
        self.devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})

    def open(self, path: str, selector: str) -> float:
        """Return in how many milliseconds a view shows something."""
        began = time.perf_counter()
        self.page.goto(f"{self.stage.root}/page/{path}")
        self.page.locator(selector).first.wait_for()
        return 1000 * (time.perf_counter() - began)

    def measure_longest(self, act: Callable[[], object], wait_ms: int = 1000) -> float:
        """Return the longest task of what an act causes, in milliseconds of processor time."""
        events: list[Any] = []
        is_over: list[object] = []

        def take(part: Any) -> None:
            events.extend(part["value"])

        self.devtools.on("Tracing.dataCollected", take)
        self.devtools.once("Tracing.tracingComplete", lambda end: is_over.append(end))  # noqa: PLW0108 - it is marked
        config = {"includedCategories": ["toplevel"]}
        self.devtools.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": config})
        act()
        self.page.wait_for_timeout(wait_ms)
        self.devtools.send("Tracing.end")
        while not is_over:
            self.page.wait_for_timeout(20)
        self.devtools.remove_listener("Tracing.dataCollected", take)
        return _find_longest(events)

    def scroll(self, script: str) -> None:
        """Scroll in steps, each drawn before the next; ``script`` goes to ``at`` of 40."""
        self.page.evaluate(
            "(async () => { for (let at = 0; at <= 40; at += 1) {"
            f"{script}; await new Promise(requestAnimationFrame); }} }})()"
        )

    def read(self, expression: str) -> float:
        return float(self.page.evaluate(expression))

    def heap(self) -> float:
        """Return MB in use after collecting what is not."""
        self.devtools.send("HeapProfiler.collectGarbage")
        return self.read(HEAP) / 1e6


def _find_longest(events: Sequence[Mapping[str, Any]]) -> float:
    """Return the longest task of a main thread of a page, in milliseconds."""
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = (
        event.get("tdur", 0)
        for event in events
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in mains
    )
    return max(tasks, default=0) / 1000


def change(cluster: FakeCluster, units: int, number: int) -> None:
    """Let the pods that have waited longest be others, which come last."""
    first = CHANGED * number
    cluster.delete_pods(*(f"waits-{at:05}" for at in range(first, first + CHANGED)))
    add_waiting(cluster, CHANGED, time.time() + number, units + first)


def measure(looked: Measured, units: int, changes: int, runs: int) -> Iterator[Bar]:
    cluster, longest = looked.stage.cluster, looked.measure_longest
    opened = [_open_queue(looked) for _ in range(runs)]
    for what, most, values in zip(_OPENED, _MOST, zip(*opened, strict=True), strict=True):
        yield Bar(f"queue: {what}", median(values), "ms", most)
    rows = looked.read("document.querySelectorAll('tbody tr').length")
    yield Bar("queue: rows in the document", rows, "", 62)
    before = looked.heap()
    worst = max(
        longest(partial(looked.stage.change, partial(change, cluster, units, at)))
        for at in range(changes)
    )
    yield Bar(f"queue: longest task, {changes} changes of {CHANGED} rows", worst, "ms", 50)
    yield Bar("heap before them", before, "MB", 80)
    yield Bar("heap behind them", looked.heap(), "MB", 80)
    down = "document.querySelector('.table').scrollTo(0, at * 70)"
    yield Bar("queue: longest task, scrolling", longest(lambda: looked.scroll(down)), "ms", 50)
    tasks = [longest(lambda: looked.open("map", "canvas")) for _ in range(runs)]
    yield Bar("map: longest task", median(tasks), "ms", 200)
    down = "window.scrollTo(0, at * 200)"
    yield Bar("map: longest task, scrolling", longest(lambda: looked.scroll(down)), "ms", 50)
    free = partial(cluster.delete_pods, "runs-0001")
    freed = longest(lambda: looked.stage.change(free), 5000)
    yield Bar("map: longest task, a change", freed, "ms", 50)
    yield Bar("heap with the map", looked.heap(), "MB", 80)


def measure_tabs(browser: Any, stage: Stage, count: int) -> Iterator[Bar]:
    """Open tabs of one browser; headless, all of them are seen."""
    context = browser.new_context()
    tabs = [context.new_page() for _ in range(count)]
    tabs[0].goto(f"{stage.root}/page/#k={KEY}")
    tabs[0].get_by_text("waits-00000").first.wait_for(timeout=120_000)
    for tab in tabs:
        tab.goto(f"{stage.root}/page/queue")
        tab.get_by_text("waits-00000").first.wait_for(timeout=120_000)
    stage.read_again()
    yield Bar(f"streams of {count} tabs", stage.streams, "", 1)
    yield Bar("a change is in the last tab", _measure_change(stage, tabs, "late"), "s", 5)
    tabs.pop(0).close()  # which has the stream
    yield Bar("so with another owner", _measure_change(stage, tabs, "later"), "s", 5)


def _measure_change(stage: Stage, tabs: Sequence[Any], name: str) -> float:
    """Return in how many seconds a new pod is in the first tab and in the last one."""
    began = time.perf_counter()
    pod = make_pod(name).gpu(1).created(time.time())
    stage.change(partial(stage.cluster.pods, pod))
    for tab in (tabs[0], tabs[-1]):
        tab.get_by_text(name, exact=False).first.wait_for(timeout=120_000)
    return time.perf_counter() - began


_OPENED: Final = ("first contentful paint", "first rows", "longest task")
_MOST: Final = (1000, 1500, 200)


def _open_queue(looked: Measured) -> tuple[float, float, float]:
    longest = looked.measure_longest(lambda: looked.open("queue", "tbody a"))
    return looked.read(PAINT), looked.read("window.firstRow"), longest


def main() -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not needed for --help

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tabs", type=int, default=0)
    options = parser.parse_args()
    path = os.environ.get("KOORD_CHROMIUM") or shutil.which("chromium")
    arguments = ["--no-sandbox", "--enable-precise-memory-info"]
    cluster = make_large(options.nodes, options.units, time.time())
    with open_stage(cluster, look=look_at) as stage, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        print("| What | measured | bar |\n|---|---|---|")
        bars = (
            measure_tabs(browser, stage, options.tabs)
            if options.tabs
            else measure(Measured(browser, stage), options.units, options.changes, options.runs)
        )
        for bar in bars:
            print(bar.line, flush=True)
        browser.close()


if __name__ == "__main__":
    main()
