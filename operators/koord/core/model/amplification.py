"""How many times the CPUs and the memory of a node are offered: a value that nodes carry.

What offers them is not known here; what a pinned CPU costs is decided with the CPUs.
"""

import math
from dataclasses import dataclass
from typing import Final

ONCE: Final = 1000
"""A ratio of 1; ratios are in thousandths."""


def to_hundredths(ratio: float) -> int:
    """Return the two decimals that count of a ratio, halves rounded up: 120 for 1.2."""
    return math.floor(round(ratio * 100, 6) + 0.5)


@dataclass(frozen=True, slots=True)
class Amplification:
    """The ratios of one node, in thousandths: 1500 offers two CPUs as three.

    ``problem``: why they cannot be read; then nothing is known of what is offered.
    """

    cpu: int = ONCE
    memory: int = ONCE
    problem: str = ""


FIELD: Final = "metadata.annotations[node.koordinator.sh/resource-amplification-ratio]"
"""Where a node says it."""
NOT_AMPLIFIED: Final = Amplification()
