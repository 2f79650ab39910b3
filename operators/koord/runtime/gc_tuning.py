"""How often Python looks for garbage that refers to itself: seldom, and not among what stays.

A cluster is tens of thousands of objects that live long, next to many that die at once and by
themselves. Looked through as often as Python does it by default, they took a tenth of the time.
"""

import gc
from typing import Final

YOUNG: Final = 50_000
"""So many more objects than before, and the youngest are looked through."""
OLDER: Final = 10
"""So many times, and those that survived are, too."""


def look_seldom() -> None:
    """Let more objects come together before they are looked through."""
    gc.set_threshold(YOUNG, OLDER, OLDER)


def leave_alone_what_is_there() -> None:
    """Never look again through what lives now; for when everything has been read."""
    gc.collect()
    gc.freeze()
