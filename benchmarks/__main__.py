"""The command: `python -m benchmarks`.

Prints a table and writes `build/bench/placement.json`. See docs/performance.md.
"""

import argparse
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.cluster import open_cluster
from benchmarks.processes import ROOT
from benchmarks.profiler import Profiler
from benchmarks.report import show, write_json
from benchmarks.runner import Choice, run

_WIDTH = 176
_DIRECTORY = ROOT / "build" / "bench"


def main() -> None:
    options = _parse()
    choice = Choice(options.only, options.repeat, options.quick)
    if not choice.names():
        known = ", ".join(Choice(quick=options.quick).names())
        sys.exit(f"no scenario is called {options.only}; there are {known}")
    console = Console(stderr=True)
    rows = []
    with ExitStack() as stack:
        profiler = stack.enter_context(Profiler(_DIRECTORY)) if options.profile else None
        cluster = stack.enter_context(open_cluster())
        attach = profiler.attach if profiler else None
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        console.print(f"{os.cpu_count()} processors, load {load}", highlight=False)
        for row in run(cluster, choice, lambda text: console.print(text, style="dim"), attach):
            rows.append(row)
            write_json(rows, options.json)  # rows so far are kept if a later one fails
    show(rows, Console(width=_WIDTH))
    console.print(f"written to {options.json}", highlight=False)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures how fast pods are placed, as a share of what the API server can do.",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="rows whose name it finds, a regular expression",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="median of N runs")
    parser.add_argument("--quick", action="store_true", help="small sizes, in about a minute")
    parser.add_argument("--json", type=Path, default=_DIRECTORY / "placement.json", metavar="FILE")
    parser.add_argument(
        "--profile", action="store_true", help=f"record the operators with py-spy to {_DIRECTORY}"
    )
    options = parser.parse_args()
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only}: {error}")
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    return options


if __name__ == "__main__":
    main()
