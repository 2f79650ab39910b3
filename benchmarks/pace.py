"""Samples how fast the processors are.

A virtual machine shares them with other machines: the same work may take twice as long a minute
later, without more load here. So a small loop runs on each processor all the time, for a thirtieth
of it, and its duration is the unit in which costs are compared.

    python -m benchmarks.pace PROCESSOR FILE
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Final, Self

_ROUNDS: Final = 20_000
_EVERY: Final = 0.06  # seconds


class Pace:
    """Measures while it is used as a context; keeps the results in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._files = {
            processor: directory / f"pace-{processor}.txt"
            for processor in sorted(os.sched_getaffinity(0))
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for processor, file in self._files.items():
            file.touch()
            command = [sys.executable, "-m", "benchmarks.pace", str(processor), str(file)]
            self._running.append(subprocess.Popen(command, cwd=Path(__file__).parents[1]))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._running:
            one.kill()
            one.wait()

    def between(self, began: float, ended: float) -> float:
        """Return how many milliseconds of a processor the loop took, on average.

        Times are in seconds since the epoch. Raises ValueError if nothing was measured then.
        """
        taken = [
            ms for file in self._files.values() for at, ms in _read(file) if began <= at <= ended
        ]
        if not taken:
            raise ValueError("too short to tell how fast the processors were")
        return mean(taken)


def _read(file: Path) -> list[tuple[float, float]]:
    lines = file.read_text().splitlines(keepends=True)
    whole = (line.split() for line in lines if line.endswith("\n"))
    return [(float(at), float(ms)) for at, ms in whole]


def main() -> None:
    """Measure one processor until killed, or until whoever started it is gone."""
    processor, file, parent = int(sys.argv[1]), Path(sys.argv[2]), os.getppid()
    os.sched_setaffinity(0, {processor})
    with file.open("a", buffering=1) as out:
        while os.getppid() == parent:
            out.write(f"{time.time():.3f} {_take_loop() * 1e3:.4f}\n")
            time.sleep(_EVERY)


def _take_loop() -> float:
    """Return the processor time of the loop, in seconds."""
    began, total = time.thread_time(), 0
    for number in range(_ROUNDS):
        total += number * number
    return time.thread_time() - began


if __name__ == "__main__":
    main()
