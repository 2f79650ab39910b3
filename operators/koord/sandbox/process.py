"""Processes that are not our children: whether they are alive, and how to end them.

The kernel reuses process numbers, so a process is identified by number and start time.
"""

import os
import select
import signal
from pathlib import Path

import msgspec

_PATIENCE = 10.0  # seconds; the supervisor needs a fraction of one
_STATE, _START = 0, 19  # fields of /proc/PID/stat after the command's name
_ENDED = {"Z", "X"}


class Process(msgspec.Struct, frozen=True):
    """A process, identified by number and start time."""

    pid: int
    started: str
    """In clock ticks since boot, as the kernel writes it."""

    def is_alive(self) -> bool:
        """Whether this process, not a later one of its number, still runs."""
        return _read_start(self.pid) == self.started

    def end(self) -> None:
        """Terminate it, then kill it; return when it has ended."""
        descriptor = self._open()
        if descriptor is None:
            return
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(descriptor, number)
                if _has_ended(descriptor):
                    return
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # Only now it is certain that the descriptor belongs to this process.
        if self.is_alive():
            return descriptor
        os.close(descriptor)
        return None


def describe_process(pid: int) -> Process:
    """Return the identity of a running process."""
    return Process(pid, _read_start(pid) or "")


def _read_start(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the command is in parentheses and may itself contain some.
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in _ENDED else fields[_START]


def _has_ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(_PATIENCE * 1000))
