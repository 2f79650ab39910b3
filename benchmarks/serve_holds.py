# ruff: noqa: SLF001 - it looks into what it measures
"""Runs ``koord serve`` and notes what keeps those waiting who ask: by name, and for how long.

    python -m benchmarks.serve --holds

Steps of the thread of answers, callbacks of the event loop, and collections of garbage, in
processor time of their thread: what else the machine does matters little. It begins with SIGUSR1,
and writes what it has noted with SIGUSR2, to the file that is given before the command line of
``koord``. Noting itself takes some microseconds each time.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from asyncio import events
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from koord.cli.main import main as koord
from koord.see.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
MOST_NAMES: Final = 20


class Holds:
    """Seconds of a processor that each thing took, by its name, since they were noted anew."""

    def __init__(self) -> None:
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        self._collecting = 0.0

    def time(self, name: str, work: Callable[[], T]) -> T:
        began = time.thread_time()
        try:
            return work()
        finally:
            self.took[name].append(time.thread_time() - began)

    def note_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
            return
        name = f"collection of garbage, generation {info['generation']}"
        self.took[name].append(time.thread_time() - self._collecting)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What took longest at a time, with how often that was in all."""
        rows = [
            {
                "name": name,
                "count": len(took),
                "longest": 1000 * max(took),
                "p95": 1000 * sorted(took)[int(0.95 * (len(took) - 1))],
                "sum": 1000 * sum(took),
            }
            for name, took in self.took.items()
        ]
        return sorted(rows, key=lambda row: -row["longest"])[:MOST_NAMES]


def _name_work(work: Any) -> str:
    """Return what work of the thread of answers is: functions in partials and closures say it."""
    if isinstance(work, partial):
        steps = next((each for each in work.args if hasattr(each, "gi_frame")), None)
        if steps is not None and steps.gi_frame is not None:
            part = steps.gi_frame.f_locals.get("part")
            return f"answers: part {getattr(part, '__name__', steps.__qualname__)}"
        return f"answers: {_name_work(work.func)}"
    for cell in getattr(work, "__closure__", None) or ():
        inner = cell.cell_contents
        route = getattr(inner, "route", None)
        topic = getattr(inner, "_topic", None)
        if route is not None:
            query = " ".join(sorted(f"{key}={value[:6]}" for key, value in inner.params.items()))
            return f"answers: {route.answer} {query}"
        if topic is not None:
            return f"answers: event of {topic.route.answer}"
    return f"answers: {getattr(work, '__qualname__', repr(work))}"


def _name_handle(handle: events.Handle) -> str:
    callback: Any = handle._callback
    task = getattr(callback, "__self__", None)
    if not hasattr(task, "get_coro"):
        return f"loop: {getattr(callback, '__qualname__', repr(callback)[:60])}"
    inner = task.get_coro()
    while (deeper := getattr(inner, "cr_await", None)) is not None and hasattr(deeper, "cr_code"):
        inner = deeper
    return f"loop: task {getattr(inner, '__qualname__', '')}"


def watch(holds: Holds) -> None:
    """Have everything noted that this process will run."""
    run_in_thread, run_handle = Snapshots._in_thread, events.Handle._run

    async def run_noted(self: Snapshots, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if executor is not self._answerer:
            return await run_in_thread(self, executor, work)
        name = _name_work(work)
        return await run_in_thread(self, executor, lambda: holds.time(name, work))

    def run_handle_noted(handle: events.Handle) -> None:
        holds.time(_name_handle(handle), lambda: run_handle(handle))

    Snapshots._in_thread = run_noted  # type: ignore[method-assign]
    events.Handle._run = run_handle_noted  # type: ignore[attr-defined]
    gc.callbacks.append(holds.note_collection)


def main() -> None:
    target, holds = Path(sys.argv.pop(1)), Holds()
    watch(holds)
    signal.signal(signal.SIGUSR1, lambda *_: holds.took.clear())

    def write(*_: object) -> None:
        target.write_text(json.dumps(holds.rows))

    signal.signal(signal.SIGUSR2, write)
    koord()


if __name__ == "__main__":
    main()
