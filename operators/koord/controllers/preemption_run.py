"""One preemption that is being carried out: how far it is, and which of its victims go next.

Victims that may stay long after their deletion (``Patience.is_doubtful``) are deleted before the
others, so that nobody goes for a unit that then cannot start. A pod whose namespace has pods that
hang is one of them: its owner may have done something that cannot be seen.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from koord.core.patience import Patience
from koord.core.plugins.nominations import Nomination
from koord.core.pods import Pod
from koord.core.state import ClusterState


class Phase(StrEnum):
    """Who acts on it."""

    WRITING = "Writing"
    """A task writes for it; nobody else acts on it."""
    WAITING = "Waiting"
    """Victims are marked, and deleted unless they were left over by a crash."""


@dataclass(slots=True)
class Run:
    """The state of one preemption in this process."""

    nomination: Nomination
    phase: Phase
    began: float
    victims: str = ""
    """Their names, for users."""
    is_marked: bool = False
    is_recovered: bool = False
    """Begun by a process before; its unit may not be known to the queue yet."""
    announce: Callable[[], None] = lambda: None
    """Reports the deletions once they are requested."""
    has_deleted: bool = False
    """Whether any victim was deleted by this process."""
    rechecked: float = float("-inf")
    deleted: float = float("-inf")


def find_hanging_namespaces(state: ClusterState, patience: Patience, now: float) -> frozenset[str]:
    """Return the namespaces of pods that hang on nodes."""
    return frozenset(
        pod.namespace
        for pod in state.pods.values()
        if pod.node and not pod.phase.is_terminal and patience.hangs(pod, now)
    )


def find_next(
    left: Collection[Pod],
    undeleted: Iterable[Pod],
    unit_of: Callable[[Pod], str],
    is_doubtful: Callable[[Pod], bool],
) -> list[Pod]:
    """Return the victims to delete now: as long as doubtful ones are there, these with their units.

    ``left`` are the victims that are still there, ``undeleted`` those to delete at some time.
    """
    doubtful = {unit_of(pod) for pod in left if is_doubtful(pod)}
    others = [pod for pod in left if unit_of(pod) not in doubtful]
    if not doubtful or not others:
        return list(undeleted)
    return [pod for pod in undeleted if unit_of(pod) in doubtful]
