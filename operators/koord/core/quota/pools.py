"""Which of several quotas a pod belongs to that share a namespace, each in a node pool of its own.

A team can have a quota of A100s and one of H100s. The pod says which it means without a label of
ours: by its required node labels, or by the devices that it requests. Nodes are not looked at, so
the answer does not change with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koord.core.model.pods import PodShape
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, SelectorTerm
from koord.core.quota.model import QuotaName, QuotaSpec, TreeId


@dataclass(frozen=True, slots=True)
class PoolRequirements:
    """What of a pod tells the pool that it means."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    resources: tuple[str, ...] = ()

    def alternatives(self) -> tuple[tuple[Requirement, ...], ...]:
        """Return its requirements on labels of nodes; it goes where one set of them holds."""
        own = tuple(
            Requirement(key, SelectorOperator.IN, (value,)) for key, value in self.node_selector
        )
        terms = (SelectorTerm(),) if self.terms is None else self.terms
        return tuple((*own, *term.expressions) for term in terms)


def requirements_of(shape: PodShape) -> PoolRequirements:
    """Return what of a pod tells the pool that it means."""
    resources = tuple(name for name, amount in shape.requests if amount)
    return PoolRequirements(shape.node_selector, shape.terms, resources)


def choose_quotas(
    requirements: PoolRequirements,
    quotas: Sequence[QuotaSpec],
    pools: Mapping[TreeId, tuple[LabelSelector, ...]],
) -> tuple[QuotaName, ...]:
    """Return the quotas that a pod can mean; one if it says enough.

    A pool that the pod's required labels name counts more than one that they only allow. Then those
    count that have all devices of the pod that any of the quotas has.
    """
    alternatives = requirements.alternatives()
    named = [quota for quota in quotas if _names(alternatives, pools.get(quota.tree_id, ()))]
    open_to = named or [
        quota for quota in quotas if _allows(alternatives, pools.get(quota.tree_id, ()))
    ]
    devices = {key for key in requirements.resources if any(key in quota.max for quota in open_to)}
    fitting = [quota for quota in open_to if devices <= quota.max.keys()]
    return tuple(sorted(quota.name for quota in fitting))


def _names(
    alternatives: Sequence[tuple[Requirement, ...]], selectors: Iterable[LabelSelector]
) -> bool:
    """Whether wherever a pod goes is in a pool."""
    return bool(alternatives) and all(
        any(_implies(mine, selector) for selector in selectors if selector) for mine in alternatives
    )


def _allows(
    alternatives: Sequence[tuple[Requirement, ...]], selectors: Iterable[LabelSelector]
) -> bool:
    """Whether nothing keeps a pod from all nodes of a pool."""
    return any(
        not any(_contradict(requirement, other) for requirement in mine for other in selector)
        for mine in alternatives
        for selector in selectors
        if selector
    )


def _implies(mine: Sequence[Requirement], selector: Sequence[Requirement]) -> bool:
    """Whether every requirement of a selector follows from one of the pod's."""
    return all(any(_follows(requirement, wanted) for requirement in mine) for wanted in selector)


def _follows(requirement: Requirement, wanted: Requirement) -> bool:
    if requirement.key != wanted.key:
        return False
    if requirement.operator is not SelectorOperator.IN:
        return requirement == wanted
    values = set(requirement.values)
    match wanted.operator:
        case SelectorOperator.IN:
            return values <= set(wanted.values)
        case SelectorOperator.NOT_IN:
            return not values & set(wanted.values)
        case SelectorOperator.EXISTS:
            return True
        case _:
            return False


def _contradict(requirement: Requirement, other: Requirement) -> bool:
    """Whether no label can meet both; bounds (``Gt``, ``Lt``) are not compared."""
    if requirement.key != other.key:
        return False
    kinds = {requirement.operator: requirement, other.operator: other}
    absent = kinds.get(SelectorOperator.DOES_NOT_EXIST)
    if absent is not None:
        return SelectorOperator.IN in kinds or SelectorOperator.EXISTS in kinds
    if requirement.operator is other.operator is SelectorOperator.IN:
        return not set(requirement.values) & set(other.values)
    if kinds.keys() == {SelectorOperator.IN, SelectorOperator.NOT_IN}:
        return set(kinds[SelectorOperator.IN].values) <= set(kinds[SelectorOperator.NOT_IN].values)
    return False
