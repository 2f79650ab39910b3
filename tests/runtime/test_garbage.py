"""Garbage is looked for seldom, and what was read at the start is left alone."""

import subprocess
import sys

PROGRAM = """
import gc
from koord.runtime.gc_tuning import YOUNG, leave_alone_what_is_there, look_seldom

look_seldom()
kept = [[] for _ in range(1000)]
leave_alone_what_is_there()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold()[0] == YOUNG
before = gc.get_stats()[0]["collections"]
more = [[] for _ in range(YOUNG // 2)]
assert gc.get_stats()[0]["collections"] == before
more += [[] for _ in range(YOUNG)]
assert gc.get_stats()[0]["collections"] == before + 1
"""


def test_what_was_there_is_not_looked_through_again() -> None:
    # A process of its own: what is frozen stays so.
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False)
    assert done.returncode == 0
