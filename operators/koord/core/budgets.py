"""PodDisruptionBudgets: which of several evictions the budgets would not allow.

Semantics are those of kube-scheduler's preemption: budgets are used up in the order in which pods
are looked at, and a pod that its budget already counts as disrupted costs nothing more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from koord.core.selectors import LabelSelector, is_selected


class Evictable(Protocol):
    """What a budget looks at."""

    @property
    def namespace(self) -> str:
        """The pod's namespace."""

    @property
    def name(self) -> str:
        """The pod's name."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels."""


E = TypeVar("E", bound=Evictable)


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget; ``disrupted`` are names of pods whose eviction is under way."""

    namespace: str
    selector: LabelSelector
    allowed: int
    disrupted: frozenset[str] = frozenset()

    def covers(self, pod: Evictable) -> bool:
        """Whether evicting a pod takes from this budget; an empty selector covers none."""
        return (
            bool(self.selector)
            and bool(pod.labels)
            and pod.namespace == self.namespace
            and pod.name not in self.disrupted
            and is_selected(pod.labels, self.selector)
        )


@dataclass(frozen=True, slots=True)
class BudgetSplit(Generic[E]):
    """Pods in their order, by whether some budget forbids their eviction."""

    violating: tuple[E, ...]
    others: tuple[E, ...]


def split_by_budgets(pods: Iterable[E], budgets: Iterable[Budget]) -> BudgetSplit[E]:
    """Return which of the pods could not all be evicted without breaking a budget."""
    known = tuple(budgets)
    left = [budget.allowed for budget in known]
    violating: list[E] = []
    others: list[E] = []
    for pod in pods:
        covering = [at for at, budget in enumerate(known) if budget.covers(pod)]
        for at in covering:
            left[at] -= 1
        (violating if any(left[at] < 0 for at in covering) else others).append(pod)
    return BudgetSplit(tuple(violating), tuple(others))
