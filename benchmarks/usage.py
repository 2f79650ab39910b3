"""Resource usage of processes, as counted by the kernel (`/proc`)."""

import os
import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import Final, Self

_TICK: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_EVERY: Final = 0.02  # seconds
_MIB_IN_KIB: Final = 1024


def read_cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, all its threads together."""
    # What follows the name, which may hold spaces: state, …, utime and stime are fields 14 and 15.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK


def read_busy_seconds() -> float:
    """Return the processor time that all processes of the machine have used."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) * _TICK


def read_peak_mib(pid: int) -> float:
    """Return the peak memory of a process."""
    return _read_mib(pid, "VmHWM:")


def read_rss_mib(pid: int) -> float:
    """Return the memory that a process holds now."""
    return _read_mib(pid, "VmRSS:")


def _read_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / _MIB_IN_KIB
    raise ValueError(f"process {pid} holds no memory")


class Meter(threading.Thread):
    """Samples the processor time of a process."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="meter", daemon=True)
        self._pid = pid
        self._times: list[float] = []
        self._used: list[float] = []
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._ended.wait(_EVERY):
            used = read_cpu_seconds(self._pid)
            self._times.append(time.time())
            self._used.append(used)

    def between(self, began: float, ended: float) -> float:
        """Return the processor time used between two moments, in seconds since the epoch."""
        return self._used_at(ended) - self._used_at(began)

    def _used_at(self, moment: float) -> float:
        return self._used[min(bisect_left(self._times, moment), len(self._used) - 1)]
