"""What was moved lately: nothing goes back to the node it left, and nothing moves twice in an hour.

A workload does not get onto a node that one of its pods left within half an hour. If a pod of it is
moved off that node again, it had come back: the time doubles with each return. The memory is made
of values, so that a status keeps it over a restart. Times are seconds of the caller's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from koord.core.balance.detectors import Detectors
from koord.core.balance.model import BalancePod

AVOIDED_SECONDS: Final = 1800.0
SETTLED_SECONDS: Final = 3600.0
MOST_DOUBLINGS: Final = 6
MOST_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class PastMove:
    """A pod of a workload was moved off a node, ``returns`` times after it had come back."""

    workload: str
    left: str
    target: str
    at: float
    returns: int = 0

    @property
    def avoided_until(self) -> float:
        """Until when the workload does not go back to the node."""
        return self.at + AVOIDED_SECONDS * (1 << min(self.returns, MOST_DOUBLINGS))

    @property
    def settled_at(self) -> float:
        """From when what went to the target may move again."""
        return self.at + SETTLED_SECONDS

    @property
    def forgotten_at(self) -> float:
        """From when a return no longer counts as one."""
        return max(self.settled_at, self.avoided_until + AVOIDED_SECONDS)


@dataclass(slots=True)
class MoveMemory:
    """The latest move of each workload off each node, to each target."""

    _moves: dict[str, dict[tuple[str, str], PastMove]] = field(default_factory=dict)

    def values(self) -> tuple[PastMove, ...]:
        """Return all moves, the latest first."""
        moves = (move for by_nodes in self._moves.values() for move in by_nodes.values())
        return tuple(sorted(moves, key=lambda move: (-move.at, move.workload, move.left)))

    def put(self, moves: Iterable[PastMove]) -> None:
        """Go on with what a status kept."""
        self._moves = {}
        for move in moves:
            self._moves.setdefault(move.workload, {})[move.left, move.target] = move

    def drop_old(self, now: float) -> int:
        """Forget what is over; return how many moves were forgotten because there are too many."""
        current = [move for move in self.values() if now < move.forgotten_at]
        self.put(current[:MOST_REMEMBERED])
        return max(0, len(current) - MOST_REMEMBERED)

    def note(self, pod: BalancePod, target: str, now: float) -> None:
        """Note a move, and the return that it follows."""
        past = [move for move in self._of(pod) if move.left == pod.node and now < move.forgotten_at]
        came_back = any(pod.created >= move.at for move in past)
        returns = max((move.returns for move in past), default=0) + came_back
        move = PastMove(_workload_of(pod), pod.node, target, now, returns)
        self._moves.setdefault(move.workload, {})[move.left, move.target] = move

    def avoids(self, pod: BalancePod, node: str, now: float) -> bool:
        """Whether a node was left by the workload of a pod not long ago."""
        return any(move.left == node and now < move.avoided_until for move in self._of(pod))

    def has_settled(self, pod: BalancePod, now: float) -> bool:
        """Whether a pod has run long enough to move: it, or its like, did not just come here.

        What is back where it came from, whoever put it there, has to wait longer each time.
        """
        return not any(
            pod.created >= move.at
            and (
                (move.target == pod.node and now < move.settled_at)
                or (move.left == pod.node and now < move.avoided_until)
            )
            for move in self._of(pod)
        )

    def _of(self, pod: BalancePod) -> Iterable[PastMove]:
        return self._moves.get(_workload_of(pod), {}).values()


def _workload_of(pod: BalancePod) -> str:
    return pod.workload or pod.uid


@dataclass(slots=True)
class BalancePast:
    """What a policy remembers of earlier rounds."""

    detectors: Detectors = field(default_factory=Detectors)
    moves: MoveMemory = field(default_factory=MoveMemory)
