"""One preemption that is being carried out: how far it is, and which of its victims go next.

Victims that may stay long after their deletion (``Patience.is_doubtful``) are deleted before the
others, so that nobody goes for a unit that then cannot start. Pods whose namespace has pods that
hang come next: their owner may have done something that cannot be seen.

Also the rules and outcomes of preemptions, and what their controller writes through.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption
from koord.core.eviction.progress import name_of, write_considered
from koord.core.eviction.search import DEFAULT_OPTIONS, PreemptionOptions
from koord.core.model.budgets import Budget
from koord.core.model.patience import Patience
from koord.core.model.plan import Unit
from koord.core.model.pods import Nominated, Pod, PreemptedBy
from koord.core.model.text import named, plural
from koord.core.plugins.nominations import Nomination
from koord.kube.evictor import Eviction

log = logging.getLogger(__name__)


class Outcome(StrEnum):
    """How preemptions end."""

    BOUND = "Bound"
    NOT_NEEDED = "NotNeeded"
    """The preemptor fits without it."""
    PREEMPTOR_GONE = "PreemptorGone"
    """The preemptor was deleted, or changed."""
    INVALID = "Invalid"
    """The preemptor would not fit any more, for example because a node went."""
    FAILED = "Failed"
    """The API server refused a write."""
    STUCK = "VictimStuck"
    """Victims did not go; another plan is tried."""
    UNMARKED = "VictimUnmarked"
    """A victim could not be marked; another plan is made at once."""
    EXPIRED = "Expired"
    """The preemptor was not bound although its victims had time enough to go."""


WHY: Final[Mapping[Outcome, str]] = {
    Outcome.NOT_NEEDED: "the preemptor fits without it",
    Outcome.PREEMPTOR_GONE: "the preemptor was deleted or changed",
    Outcome.INVALID: "the preemptor would not fit any more",
    Outcome.FAILED: "the API server refused a write",
    Outcome.STUCK: "victims do not terminate",
    Outcome.UNMARKED: "a victim cannot be marked, so another plan is made",
    Outcome.EXPIRED: "the preemptor was not bound in the time that room is kept for it",
}
WITHOUT_PAUSE: Final = frozenset(
    {Outcome.BOUND, Outcome.NOT_NEEDED, Outcome.STUCK, Outcome.UNMARKED}
)
"""Outcomes after which a unit may be tried at once: the next plan is another one."""


class PodNominator(Protocol):
    """Writes nominations; see ``Nominator``."""

    async def nominate(self, pod: Pod, nominated: Nominated) -> bool: ...
    async def clear(self, pod: Pod) -> bool: ...


class VictimEvictor(Protocol):
    """Marks and deletes pods; see ``Evictor``."""

    async def mark_preempted(
        self, pod: Pod, by: PreemptedBy, text: str, *, seconds: float
    ) -> bool: ...
    async def unmark_preempted(self, pod: Pod, text: str) -> bool: ...
    async def delete(self, pod: Pod) -> Eviction: ...
    async def evict(self, pod: Pod) -> Eviction: ...
    async def list_budgets(self) -> tuple[Budget, ...]: ...


class PreemptionReporter(Protocol):
    """Reports to users."""

    def announce_preempting(self, pods: Collection[Pod], text: str) -> None: ...
    def announce_soft_eviction(self, pods: Collection[Pod], text: str) -> None: ...
    def announce_preempted(self, pods: Collection[Pod], text: str, *, by: str) -> None: ...
    def announce_cancelled(self, pods: Collection[Pod], text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """``stuck_after`` are seconds beyond the grace period of a victim.

    Victims that want time to end by themselves get it, up to ``soft_eviction_limit`` seconds, and
    then a grace period of up to ``grace_limit`` seconds.

    With ``uses_eviction_api`` victims are evicted, so that PodDisruptionBudgets are binding.
    """

    is_on: bool = True
    options: PreemptionOptions = DEFAULT_OPTIONS
    stuck_after: float = 60.0
    grace_limit: float = 600.0
    soft_eviction_limit: float = 0.0
    uses_eviction_api: bool = False
    scheduler: str = "koord-scheduler"

    @property
    def patience(self) -> Patience:
        return Patience(self.stuck_after, self.grace_limit, self.soft_eviction_limit)


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
