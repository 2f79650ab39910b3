"""What the controller of preemptions works with: settings, outcomes, and what it writes through."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from koord.core.eviction.search import DEFAULT_OPTIONS, PreemptionOptions
from koord.core.model.budgets import Budget
from koord.core.model.patience import Patience
from koord.core.model.pods import Nominated, Pod, PreemptedBy
from koord.kube.evictor import Eviction


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
