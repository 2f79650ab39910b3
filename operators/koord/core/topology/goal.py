"""A wish, read against the layers that there are, and the order in which its parts count.

What is asked of a layer that does not exist cannot be met: with ``MustGather`` nothing fits, with
``PreferGather`` nothing changes.
"""

from dataclasses import dataclass
from math import lcm

from koord.core.topology_constraint import GatherStrategy, TopologyConstraint


@dataclass(frozen=True, slots=True)
class Goal:
    """A wish in numbers of layers: 0 is the root, the last one the nodes.

    ``must`` is the deepest layer of which all members share one domain; 0 asks nothing. ``units``
    holds, per layer, of what the number of members in every domain has to be a multiple: what was
    asked of the layer, joined with what follows from the layers below.
    """

    must: int
    prefer: tuple[int, ...]
    units: tuple[int, ...]

    @property
    def depth(self) -> int:
        """The number of the node layer."""
        return len(self.units) - 1

    @property
    def order(self) -> tuple[int, ...]:
        """Layers in the order in which using fewer domains of them counts.

        First those that are to be gathered, the deepest before all, then the others from the top.
        """
        preferred = sorted(set(self.prefer), reverse=True)
        rest = [layer for layer in range(1, self.depth + 1) if layer not in preferred]
        return (*preferred, *rest)

    def without_multiples(self) -> "Goal":
        """Return the same goal with every number of members allowed."""
        return Goal(self.must, self.prefer, (1,) * len(self.units))


def make_goal(wish: TopologyConstraint, layers: tuple[str, ...]) -> Goal | frozenset[str]:
    """Read a wish against layers, root first.

    Return the layers that must be shared and do not exist, if there are such.
    """
    must = wish.layers_with(GatherStrategy.MUST)
    if must - set(layers):
        return must - set(layers)
    number = {layer: at for at, layer in enumerate(layers)}
    prefer = wish.layers_with(GatherStrategy.PREFER)
    return Goal(
        must=max((number[layer] for layer in must), default=0),
        prefer=tuple(number[layer] for layer in prefer if number.get(layer)),
        units=_join(wish.multiples, layers),
    )


def _join(multiples: dict[str, int], layers: tuple[str, ...]) -> tuple[int, ...]:
    units = [1] * len(layers)
    below = 1
    for at in range(len(layers) - 1, -1, -1):
        below = units[at] = lcm(below, multiples.get(layers[at], 1))
    return tuple(units)
