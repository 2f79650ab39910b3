"""How many pods of a size fit into the free GPUs of nodes, and into as many if they were together.

Arithmetic only: it knows neither nodes nor devices.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

SIZES: Final = (1, 2, 4, 8)
"""GPUs per pod that most jobs ask for."""


@dataclass(frozen=True, slots=True)
class SizeLoss:
    """Pods of ``size`` GPUs: how many can be placed, and how many if all that is free were one."""

    size: int
    placeable: int
    ideal: int

    @property
    def lost(self) -> int:
        """GPUs that no such pod can use because they are on different nodes."""
        return (self.ideal - self.placeable) * self.size


def measure_losses(free: Collection[int], sizes: Collection[int] = SIZES) -> tuple[SizeLoss, ...]:
    """Return the losses by size for nodes with so many free GPUs each."""
    together = sum(free)
    return tuple(
        SizeLoss(size, sum(cards // size for cards in free), together // size) for size in sizes
    )
