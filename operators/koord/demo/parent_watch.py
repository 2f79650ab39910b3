"""Ends a process when another one, which is not its parent, has ended.

The operators of the demo end with their sandbox, however that ends: with the demo, killed or not,
or later by ``koord sandbox down``. Runs as a process of its own, ``python -I -S leash.py OTHER
PID``, and must not import anything outside the standard library, so that it is up in milliseconds.
"""

import os
import select
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Wait for one of the two processes; if it is the first, end the second."""
    with suppress(ProcessLookupError):
        held = os.pidfd_open(int(sys.argv[2]))
        try:
            _wait_for_one(os.pidfd_open(int(sys.argv[1])), held)
        finally:
            # Nothing happens when it has ended: a pidfd never means another process.
            signal.pidfd_send_signal(held, signal.SIGTERM)


def _wait_for_one(*descriptors: int) -> None:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    poll.poll()


if __name__ == "__main__":
    main()
