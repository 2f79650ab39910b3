"""Garbage collection runs rarely, and skips the objects read at the start."""

import subprocess
import sys

PROGRAM = """
import gc
from koord.runtime.app import GC_THRESHOLDS, GC_THRESHOLDS_LATER, freeze_garbage_collection

gc.set_threshold(*GC_THRESHOLDS)
YOUNG = GC_THRESHOLDS[0]
kept = [[] for _ in range(1000)]
freeze_garbage_collection()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold() == GC_THRESHOLDS_LATER
assert GC_THRESHOLDS_LATER[0] == YOUNG
before = gc.get_stats()[0]["collections"]
more = [[] for _ in range(YOUNG // 2)]
assert gc.get_stats()[0]["collections"] == before
more += [[] for _ in range(YOUNG)]
assert gc.get_stats()[0]["collections"] == before + 1
"""


def test_objects_read_at_the_start_are_not_collected_again() -> None:
    # In a separate process, because freezing cannot be undone for a part.
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False)
    assert done.returncode == 0
