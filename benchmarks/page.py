"""What the page costs a browser: first paint, first rows, a long queue, the map, many changes.

    python -m benchmarks.page [--nodes 5000] [--units 10000] [--changes 60]

Needs Chromium and Playwright (make page-test). The processor of the browser is slowed down four
times, as that of a weak notebook; what the server takes to answer is in the times.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.page.stage import KEY, open_stage
from tests.see.scene import GPU, LAYERS

if TYPE_CHECKING:
    from tests.cluster import FakeCluster
    from tests.page.stage import Stage

SLOWER: Final = 4
CHANGED: Final = 500
"""Rows per change."""
WATCH: Final = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
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


def add_waiting(cluster: FakeCluster, units: int, now: float) -> FakeCluster:
    return cluster.pods(
        *(make_pod(f"waits-{at:05}").gpu(8).created(now - units + at) for at in range(units))
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

    def read(self, expression: str) -> float:
        return float(self.page.evaluate(expression))

    def heap(self) -> float:
        """Return MB in use after collecting what is not."""
        self.devtools.send("HeapProfiler.collectGarbage")
        return self.read(HEAP) / 1e6


def change(cluster: FakeCluster, now: float) -> None:
    """Let some pods that wait be others, which come last."""
    cluster.delete_pods(*(f"waits-{number:05}" for number in range(CHANGED)))
    add_waiting(cluster, CHANGED, now)


def measure(looked: Measured, changes: int) -> None:
    looked.open("queue", "tbody a")
    print(f"first contentful paint  {looked.read(PAINT):8.0f} ms")
    print(f"first rows              {looked.read('window.firstRow'):8.0f} ms")
    print(f"longest task, queue     {looked.read('window.longest'):8.0f} ms")
    rows = looked.read("document.querySelectorAll('tbody tr').length")
    print(f"rows in the document    {rows:8.0f}")
    before = looked.heap()
    looked.page.evaluate("window.longest = 0")
    for at in range(changes):
        looked.stage.change(partial(change, looked.stage.cluster, time.time() + at))
    looked.page.wait_for_timeout(2000)
    print(f"longest task, {changes:3} changes {looked.read('window.longest'):7.0f} ms")
    print(f"heap before and after   {before:8.1f} {looked.heap():8.1f} MB")
    print(f"map to its first cell   {looked.open('map', 'canvas'):8.0f} ms")
    looked.page.wait_for_timeout(1000)
    print(f"longest task, map       {looked.read('window.longest'):8.0f} ms")
    print(f"heap with the map       {looked.heap():8.1f} MB")


def main() -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not needed for --help

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=60)
    options = parser.parse_args()
    path = os.environ.get("KOORD_CHROMIUM") or shutil.which("chromium")
    arguments = ["--no-sandbox", "--enable-precise-memory-info"]
    cluster = make_large(options.nodes, options.units, time.time())
    with open_stage(cluster) as stage, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        measure(Measured(browser, stage), options.changes)
        browser.close()


if __name__ == "__main__":
    main()
