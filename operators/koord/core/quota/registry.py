"""The quotas in force, and which of them a pod belongs to.

Holds valid quotas only, so children, namespaces and trees never contradict each other; nothing is
checked here (see ``validation``). A pod belongs to the quota of its label
``quota.scheduling.koordinator.sh/name``, else to the quota named like its namespace, else to the
quota that lists the namespace, else to the default quota (source: Koordinator). Quotas of different
node pools may list the same namespace: then the pod says which pool it means, without a label of
ours: by its required node labels, or by the devices that it requests. Nodes are not looked at, so
the answer does not change with them.

A label is written by the owner of the pod, so it only chooses among the quotas that the pod's
namespace may use; that is decided by the quota. A label that names another one is refused, and the
pod counts as if it had none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from koord.core.model.pods import PodShape
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, SelectorTerm
from koord.core.model.units import Amounts
from koord.core.quota.model import (
    BUILT_IN,
    DEFAULT,
    DEFAULT_TREE,
    EVERYONE,
    ROOT,
    SYSTEM,
    QuotaName,
    QuotaRules,
    QuotaSpec,
    TreeId,
    with_parents,
)
from koord.core.quota.reasons import QuotaAmbiguous, QuotaNotAllowed, QuotaReason, QuotaUnknown


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


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the pods of quotas, for the rules that depend on them.

    ``labels`` are the quotas that pods name, ``namespaces`` those that have pods,
    ``used`` is what the own pods of each quota use. ``guaranteed`` is computed where not given.
    """

    labels: Collection[QuotaName] = ()
    namespaces: Collection[str] = ()
    used: Mapping[QuotaName, Amounts] = field(default_factory=dict)
    guaranteed: Mapping[QuotaName, Amounts] = field(default_factory=dict)

    def has_pods(self, spec: QuotaSpec) -> bool:
        """Whether pods are bound to a quota: by label, by its name, by the namespaces it lists."""
        return spec.name in self.labels or any(
            namespace in self.namespaces for namespace in (spec.name, *spec.namespaces)
        )


NO_FACTS: Final = Facts()


class ActiveQuotas:
    """Quotas by name, as a forest below the virtual root, and owners by namespace."""

    def __init__(self, specs: Iterable[QuotaSpec] = ()) -> None:
        self.specs: dict[QuotaName, QuotaSpec] = {}
        self.owners: dict[str, tuple[QuotaName, ...]] = {}
        """Namespace -> the quotas whose annotation lists it: one, or of different node pools."""
        self._limiting = set[QuotaName]()
        """Quotas with a ``max_priority``; most clusters have none."""
        self._children: dict[QuotaName, set[QuotaName]] = {}
        """Parent -> its children in force; the parent itself may be no quota in force."""
        self._usable: dict[str, list[QuotaName]] | None = None
        """Namespace -> the quotas that its pods may name, as far as those name the namespace."""
        for spec in specs:
            self.put(spec)

    def get(self, name: QuotaName) -> QuotaSpec | None:
        return self.specs.get(name)

    def children(self, name: QuotaName) -> list[QuotaSpec]:
        return [self.specs[child] for child in sorted(self._children.get(name, ()))]

    def has_children(self, name: QuotaName) -> bool:
        return name in self._children

    def family(self, name: QuotaName) -> set[QuotaName]:
        """Return a quota and all below it."""
        return {name, *self.descendants(name)}

    def descendants(self, name: QuotaName) -> set[QuotaName]:
        below, left = set[QuotaName](), [name]
        while left:
            new = self._children.get(left.pop(), set()) - below
            below |= new
            left += new
        return below - {name}

    def orphans(self) -> list[QuotaSpec]:
        """Return the quotas that no chain of quotas in force connects to the root."""
        attached = self.descendants(ROOT) if self.specs else set()
        return [spec for name, spec in self.specs.items() if name not in attached]

    def trees(self) -> set[TreeId]:
        return {spec.tree_id for spec in self.specs.values()}

    def pools(self) -> dict[TreeId, tuple[LabelSelector, ...]]:
        """Return where pods may go, of each tree that is confined to some nodes."""
        selectors_of: dict[TreeId, tuple[LabelSelector, ...]] = {}
        for spec in self.specs.values():
            if spec.is_tree_root and spec.tree_id != DEFAULT_TREE:
                selectors_of[spec.tree_id] = (*selectors_of.get(spec.tree_id, ()), spec.selector)
        return {tree: selectors for tree, selectors in selectors_of.items() if all(selectors)}

    @property
    def limits_priority(self) -> bool:
        """Whether any quota has a ``max_priority``."""
        return bool(self._limiting)

    @property
    def shared(self) -> frozenset[str]:
        """The namespaces that several quotas list."""
        return frozenset(filter(self.is_shared, self.owners))

    def is_shared(self, namespace: str) -> bool:
        """Whether several quotas list a namespace, so that more of a pod decides on its quota."""
        return len(self.owners.get(namespace, ())) > 1

    def usable_in(self, namespace: str) -> tuple[QuotaName, ...]:
        """Return the quotas that name a namespace for their pods and take pods, by name."""
        if self._usable is None:
            self._usable = {}
            for name, spec in sorted(self.specs.items()):
                for user in {spec.namespace, *spec.namespaces, *spec.shared_with}:
                    if not spec.is_parent:
                        self._usable.setdefault(user, []).append(name)
        return tuple(self._usable.get(namespace, ()))

    def find_priority_limit(self, name: QuotaName) -> tuple[QuotaName, int] | None:
        """Return the lowest ``max_priority`` of a quota and those above it, and whose it is."""
        limits = (
            (spec.max_priority, spec.name)
            for spec in with_parents(self.specs.get(name), self.specs)
            if spec.max_priority is not None
        )
        lowest = min(limits, key=lambda limit: limit[0], default=None)  # the nearest, of equal ones
        return None if lowest is None else (lowest[1], lowest[0])

    def put(self, spec: QuotaSpec) -> None:
        """Bring a quota into force, instead of what was there under its name."""
        self.drop(spec.name)
        self._usable = None
        self.specs[spec.name] = spec
        if spec.max_priority is not None:
            self._limiting.add(spec.name)
        self._children.setdefault(spec.parent, set()).add(spec.name)
        for namespace in spec.namespaces:
            self.owners[namespace] = tuple(sorted({*self.owners.get(namespace, ()), spec.name}))

    def drop(self, name: QuotaName) -> None:
        """Take a quota out of force; its children stay, as orphans."""
        spec = self.specs.pop(name, None)
        if spec is None:
            return
        self._usable = None
        self._limiting.discard(name)
        siblings = self._children[spec.parent]
        siblings.discard(name)
        if not siblings:
            del self._children[spec.parent]
        for namespace in spec.namespaces:
            left = tuple(owner for owner in self.owners.pop(namespace, ()) if owner != name)
            if left:
                self.owners[namespace] = left


class PodQuotaKey(NamedTuple):
    """What decides on the quota of a pod.

    ``requirements`` are given where quotas of several pools may have it.
    """

    label: str
    namespace: str
    requirements: PoolRequirements = PoolRequirements()


class QuotaSource(StrEnum):
    """Why a pod belongs to its quota."""

    LABEL = "Label"
    NAMESPACE_NAME = "NamespaceName"
    NAMESPACES = "Namespaces"
    DEFAULT = "Default"


class Binding(NamedTuple):
    """The quota of a pod, and why; ``reason`` is what keeps the pod from starting there."""

    quota: QuotaName
    source: QuotaSource
    reason: QuotaReason | None = None


OUTSIDE: Final = Binding(DEFAULT, QuotaSource.DEFAULT)


@dataclass(frozen=True, slots=True)
class InactiveQuotas:
    """Quotas that exist but are not in force, and the namespaces whose pods they would have."""

    specs: Mapping[QuotaName, QuotaSpec] = field(default_factory=dict)
    owner_of: Mapping[str, Binding] = field(default_factory=dict)


NO_INACTIVE: Final = InactiveQuotas()


def find_inactive(specs: Iterable[QuotaSpec]) -> InactiveQuotas:
    """Return the namespaces of quotas that are not in force; the first claim to one counts."""
    by_name: dict[QuotaName, QuotaSpec] = {}
    owner_of: dict[str, Binding] = {}
    for spec in specs:
        by_name.setdefault(spec.name, spec)
        if spec.name == spec.namespace:
            owner_of[spec.namespace] = Binding(spec.name, QuotaSource.NAMESPACE_NAME)
    for spec in by_name.values():
        for namespace in spec.namespaces:
            owner_of.setdefault(namespace, Binding(spec.name, QuotaSource.NAMESPACES))
    return InactiveQuotas(by_name, owner_of)


def find_quota(
    quota_key: PodQuotaKey,
    registry: ActiveQuotas,
    rules: QuotaRules,
    inactive: InactiveQuotas = NO_INACTIVE,
) -> Binding | None:
    """Return the quota of a pod; None if it belongs to no quota.

    A quota that exists but is not in force (``inactive``) keeps its pods: they stay pending instead
    of starting without a limit.
    """
    label, namespace, requirements = quota_key
    if rules.restricts_use:
        reason = _refuse_label(label, namespace, registry, rules, inactive) if label else None
        label = "" if reason else label
    else:
        reason = None
    if label and label != ROOT:
        if label in registry.specs or label in {DEFAULT, SYSTEM} or label in inactive.specs:
            return Binding(label, QuotaSource.LABEL)
        return OUTSIDE if rules.has_default_quota else None
    if not rules.has_default_quota:
        return OUTSIDE._replace(reason=reason) if reason else None
    owner = _find_owner(namespace, registry, inactive, requirements)
    return owner._replace(reason=reason or owner.reason)


def may_use(spec: QuotaSpec, namespace: str) -> bool:
    """Whether pods of a namespace may name a quota."""
    return (
        namespace == spec.namespace
        or namespace in spec.namespaces
        or namespace in spec.shared_with
        or EVERYONE in spec.shared_with
    )


def takes_pods(spec: QuotaSpec | None, rules: QuotaRules) -> bool:
    """Whether pods may be bound to a quota: to a parent only where that is allowed."""
    return spec is None or not spec.is_parent or spec.name == DEFAULT or rules.parents_take_pods


def _find_owner(
    namespace: str, registry: ActiveQuotas, inactive: InactiveQuotas, requirements: PoolRequirements
) -> Binding:
    like = registry.get(namespace)
    if like is not None and like.namespace == namespace:
        return Binding(namespace, QuotaSource.NAMESPACE_NAME)
    owners = registry.owners.get(namespace, ())
    if len(owners) == 1:
        return Binding(owners[0], QuotaSource.NAMESPACES)
    if owners:
        specs = [registry.specs[name] for name in owners]
        chosen = choose_quotas(requirements, specs, registry.pools())
        if len(chosen) == 1:
            return Binding(chosen[0], QuotaSource.NAMESPACES)
        return OUTSIDE._replace(reason=QuotaAmbiguous(namespace, chosen or owners))
    return inactive.owner_of.get(namespace, OUTSIDE)


def _refuse_label(
    label: str,
    namespace: str,
    registry: ActiveQuotas,
    rules: QuotaRules,
    inactive: InactiveQuotas,
) -> QuotaReason | None:
    if label in BUILT_IN:
        allowed = rules.built_in_namespaces
        return None if namespace in allowed else QuotaNotAllowed(label, "", namespace, allowed)
    spec = registry.get(label) or inactive.specs.get(label)
    if spec is not None:
        if may_use(spec, namespace):
            return None
        allowed = tuple(dict.fromkeys((spec.namespace, *spec.namespaces, *spec.shared_with)))
        return QuotaNotAllowed(label, spec.namespace, namespace, allowed, spec.shared_with)
    usable = registry.usable_in(namespace)
    is_covered = (
        usable or _find_owner(namespace, registry, inactive, PoolRequirements()) is not OUTSIDE
    )
    return QuotaUnknown(label, namespace, usable) if is_covered else None
