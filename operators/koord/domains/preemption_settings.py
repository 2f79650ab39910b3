"""Whether units preempt others, and how: the section ``preemption`` of the configuration."""

from typing import Final

from pydantic import Field

from koord.core.model.gang_history import MAX_EPISODES
from koord.core.model.patience import Patience
from koord.domains.section import Seconds, Section

_DEFAULT_ASK: Final = 300.0
_DEFAULT_GRACE: Final = 30.0
"""``terminationGracePeriodSeconds`` of pods that do not say it."""


class PreemptionSettings(Section):
    """Whether units of higher priority preempt, and how."""

    enabled: bool = Field(default=True, strict=True)
    """Whether units of higher priority preempt others at all."""
    min_runtime: Seconds = Field(default=0.0, ge=0)
    """Pods that run for less are neither preempted nor reclaimed. For a gang it doubles each time
    that it was within 24 hours."""
    max_per_day: int = Field(default=0, ge=0, le=MAX_EPISODES)
    """A gang that was preempted this often within 24 hours is not evicted as a whole for others
    than system priorities; 0 is no limit."""
    stuck_after: Seconds = Field(default=60.0, gt=0)
    """Room of pods that leave is counted on until this long after their grace period; then they
    count as staying, and another plan is made if there is one."""
    grace_limit: Seconds | None = Field(default=None, ge=1)
    """How long at most victims may take to stop after they are deleted: longer grace periods are
    cut. By default twice `softEvictionLimit`, at least 30 s."""
    soft_eviction_limit: Seconds = Field(default=_DEFAULT_ASK, ge=0)
    """How long at most victims may take to end by themselves, if their annotation
    `operators.koordinator.sh/soft-eviction-time` wants time; 0: they get none."""
    respect_budgets: bool = Field(default=False, strict=True)
    """Victims are evicted, so that PodDisruptionBudgets may refuse it; otherwise they are deleted,
    as by kube-scheduler, and budgets only count in the choice of victims."""

    @property
    def most_grace(self) -> float:
        """What ``grace_limit`` is in effect; where nobody may ask for time, grace is as usual."""
        if self.grace_limit is not None:
            return self.grace_limit
        soft_limit: float = self.soft_eviction_limit or _DEFAULT_ASK
        return max(2 * soft_limit, _DEFAULT_GRACE)

    @property
    def patience(self) -> Patience:
        """Until when room is counted on that is being left."""
        return Patience(self.stuck_after, self.most_grace, self.soft_eviction_limit)
