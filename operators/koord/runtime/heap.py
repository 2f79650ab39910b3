"""How the C library keeps the memory of threads. Knows nothing of what is in it."""

import ctypes
from contextlib import suppress
from typing import Final

_ARENA_MAX: Final = -8
"""``M_ARENA_MAX`` of glibc."""


def share_heap() -> bool:
    """Have all threads allocate from one heap; return whether the C library knows how.

    By itself glibc gives each thread a heap of its own, so that they need not wait for each other.
    Python's threads wait for each other anyway, and what one has freed no other could use: a tenth
    of the memory of a process that computes large answers. To be called before threads begin.
    """
    with suppress(AttributeError, OSError):
        return bool(ctypes.CDLL(None).mallopt(_ARENA_MAX, 1))
    return False
