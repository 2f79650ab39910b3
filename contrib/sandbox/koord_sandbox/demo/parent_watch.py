"""Ends a process when another one, which is not its parent, has ended.

The operators of the demo end with their sandbox, however that ends: with the demo, killed or not,
or later by ``koord sandbox down``. Runs as a process of its own, ``python -I -S parent_watch.py
OTHER PID``; it imports only the standard library, to be up in milliseconds.
"""

import os
import select
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Wait for one of the two processes; if it is OTHER, end PID."""
    with suppress(ProcessLookupError):
        held = os.pidfd_open(int(sys.argv[2]))
        poll = select.poll()
        poll.register(held, select.POLLIN)
        try:
            poll.register(os.pidfd_open(int(sys.argv[1])), select.POLLIN)
            poll.poll()
        finally:
            # Harmless if it has ended: a pidfd never means another process.
            signal.pidfd_send_signal(held, signal.SIGTERM)


if __name__ == "__main__":
    main()
