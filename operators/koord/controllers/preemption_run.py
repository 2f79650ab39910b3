"""One preemption that is being carried out: how far it is, and which of its victims go next.

Victims that may stay long after their deletion (``Patience.is_doubtful``) are deleted before the
others, so that nobody goes for a unit that then cannot start. Pods whose namespace has pods that
hang come next: their owner may have done something that cannot be seen.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from koord.controllers.preemption_parts import PreemptionReporter
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption
from koord.core.eviction.progress import name_of, write_considered
from koord.core.model.patience import Patience
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.model.text import named, plural
from koord.core.plugins.nominations import Nomination

log = logging.getLogger(__name__)


class PreemptionPhase(StrEnum):
    """Who acts on it."""

    WRITING = "Writing"
    """A task writes for it; nobody else acts on it."""
    WAITING = "Waiting"
    """Victims are marked, and deleted unless they were left over by a crash."""


@dataclass(slots=True)
class PreemptionRun:
    """The state of one preemption in this process."""

    nomination: Nomination
    phase: PreemptionPhase
    began: float
    victims: str = ""
    """Their names, for users."""
    may_be_partial: bool = False
    """Begun by a process before, which may have marked a part of a gang only."""
    is_recovered: bool = False
    """Begun by a process before; its unit may not be known to the queue yet."""
    announce: Callable[[Collection[Pod]], None] = lambda _: None
    """Reports the deletions once they are requested."""
    reported: set[str] = field(default_factory=set)
    """uids of victims whose deletion is reported."""
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
    doubt: Callable[[Pod], int],
) -> list[Pod]:
    """Return the victims to delete now: the most doubtful units, until they are gone.

    ``left`` are the victims that are still there, ``undeleted`` those to delete at some time.
    """
    doubts: dict[str, int] = {}
    for pod in left:
        doubts[unit_of(pod)] = max(doubts.get(unit_of(pod), 0), doubt(pod))
    most = max(doubts.values(), default=0)
    return [pod for pod in undeleted if doubts.get(unit_of(pod), 0) == most]


@dataclass(frozen=True, slots=True)
class DeletionReport:
    """Reports the deletion of victims once: those that may not go are deleted before others."""

    run: PreemptionRun
    reporter: PreemptionReporter
    unit: Unit
    preemption: Preemption
    text: str

    def write(self, deleted: Collection[Pod]) -> None:
        run, plan_id = self.run, self.run.nomination.plan_id
        new = {pod.uid for pod in deleted} - run.reported
        considered, by = write_considered(self.preemption), name_of(self.unit)
        if not run.reported:
            nodes = sorted({assignment.node for assignment in run.nomination.assignments})
            self.reporter.announce_preempting(
                self.unit.pods,
                f"preempting {run.victims} ({plural(len(self.preemption.pods), 'pod')}) to free "
                f"{named(nodes)} (plan {plan_id}).{considered}",
            )
        run.reported |= new
        for victim in self.preemption.victims:
            pods = [pod for pod in victim.pods if pod.uid in new]
            if pods:
                values = {"unit": victim.name, "pods": len(pods), "by": by, "plan": plan_id}
                log.info("Preempted", extra=values)
                self.reporter.announce_preempted(pods, f"{self.text}.{considered}", by=by)
