"""PodDisruptionBudgets: which of several evictions they do not allow.

Semantics are those of kube-scheduler's preemption: budgets are used up in the order of the pods,
and a pod that its budget already counts as disrupted does not use the budget again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from koord.core.model.selectors import LabelSelector, is_selected


class Evictable(Protocol):
    """The fields of a pod that budgets use."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


E = TypeVar("E", bound=Evictable)


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget; ``disrupted`` are names of pods whose eviction is under way."""

    namespace: str
    selector: LabelSelector
    allowed: int
    disrupted: frozenset[str] = frozenset()

    def covers(self, pod: Evictable) -> bool:
        """Whether evicting a pod uses this budget; an empty selector covers no pod."""
        return (
            bool(self.selector)
            and bool(pod.labels)
            and pod.namespace == self.namespace
            and pod.name not in self.disrupted
            and is_selected(pod.labels, self.selector)
        )


@dataclass(frozen=True, slots=True)
class BudgetSplit(Generic[E]):
    """Pods whose eviction violates a budget, and the others, in their order."""

    violating: tuple[E, ...]
    permitted: tuple[E, ...]


def split_by_budgets(pods: Iterable[E], budgets: Iterable[Budget]) -> BudgetSplit[E]:
    """Split pods by whether evicting them, in this order, violates a budget."""
    distinct = tuple(budgets)
    left = [budget.allowed for budget in distinct]
    violating: list[E] = []
    permitted: list[E] = []
    for pod in pods:
        covering = [at for at, budget in enumerate(distinct) if budget.covers(pod)]
        for at in covering:
            left[at] -= 1
        (violating if any(left[at] < 0 for at in covering) else permitted).append(pod)
    return BudgetSplit(tuple(violating), tuple(permitted))
