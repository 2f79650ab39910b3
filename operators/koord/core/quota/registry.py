"""The quotas in force, and which of them a pod belongs to.

Holds valid quotas only, so children, namespaces and trees never contradict each other; nothing is
checked here (see ``validation``). A pod belongs to the quota of its label
``quota.scheduling.koordinator.sh/name``, else to the quota named like its namespace, else to the
quota that lists the namespace, else to the default quota (source: Koordinator).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from koord.core.quota.model import DEFAULT, ROOT, SYSTEM, QuotaName, QuotaRules, QuotaSpec, TreeId
from koord.core.units import Amounts

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the pods of quotas, for the rules that depend on them.

    ``labels`` are the quotas that pods name, ``namespaces`` those that have pods,
    ``used`` is what the own pods of each quota use.
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
        self.owner_of: dict[str, QuotaName] = {}
        """Namespace -> the quota whose annotation lists it."""
        for spec in specs:
            self.put(spec)

    @cached_property
    def _forest(self) -> "nx.DiGraph[QuotaName]":
        """An edge from each parent to each child in force; a parent may be no quota in force."""
        # Imported with the first quota: the import takes longer than all of koord's own.
        import networkx as nx  # noqa: PLC0415

        return nx.DiGraph()

    def get(self, name: QuotaName) -> QuotaSpec | None:
        return self.specs.get(name)

    def children(self, name: QuotaName) -> list[QuotaSpec]:
        below = self._forest.successors(name) if name in self._forest else ()
        return [self.specs[child] for child in sorted(below)]

    def has_children(self, name: QuotaName) -> bool:
        return name in self._forest and self._forest.out_degree(name) > 0

    def descendants(self, name: QuotaName) -> set[QuotaName]:
        import networkx as nx  # noqa: PLC0415

        return nx.descendants(self._forest, name) if name in self._forest else set()

    def orphans(self) -> list[QuotaSpec]:
        """Return the quotas that no chain of quotas in force connects to the root."""
        attached = self.descendants(ROOT) if self.specs else set()
        return [spec for name, spec in self.specs.items() if name not in attached]

    def trees(self) -> set[TreeId]:
        return {spec.tree_id for spec in self.specs.values()}

    def put(self, spec: QuotaSpec) -> None:
        """Bring a quota into force, instead of what was there under its name."""
        self.drop(spec.name)
        self.specs[spec.name] = spec
        self._forest.add_edge(spec.parent, spec.name)
        for namespace in spec.namespaces:
            self.owner_of[namespace] = spec.name

    def drop(self, name: QuotaName) -> None:
        """Take a quota out of force; its children stay, as orphans."""
        spec = self.specs.pop(name, None)
        if spec is None:
            return
        self._forest.remove_edge(spec.parent, name)
        unused = [one for one in (spec.parent, name) if not self._forest.degree(one)]
        self._forest.remove_nodes_from(unused)
        for namespace in spec.namespaces:
            if self.owner_of.get(namespace) == name:
                del self.owner_of[namespace]


class QuotaSource(StrEnum):
    """Why a pod belongs to its quota."""

    LABEL = "Label"
    NAMESPACE_NAME = "NamespaceName"
    NAMESPACES = "Namespaces"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class InactiveQuotas:
    """Quotas that exist but are not in force, and the namespaces whose pods they would have."""

    names: Collection[QuotaName] = ()
    owner_of: Mapping[str, tuple[QuotaName, QuotaSource]] = field(default_factory=dict)


NO_INACTIVE: Final = InactiveQuotas()


def find_inactive(specs: Iterable[QuotaSpec]) -> InactiveQuotas:
    """Return the namespaces of quotas that are not in force; the first claim to one counts."""
    specs = list(specs)
    owner_of: dict[str, tuple[QuotaName, QuotaSource]] = {}
    for spec in specs:
        if spec.name == spec.namespace:
            owner_of[spec.namespace] = (spec.name, QuotaSource.NAMESPACE_NAME)
    for spec in specs:
        for namespace in spec.namespaces:
            owner_of.setdefault(namespace, (spec.name, QuotaSource.NAMESPACES))
    return InactiveQuotas({spec.name for spec in specs}, owner_of)


def find_quota(
    label: str,
    namespace: str,
    registry: ActiveQuotas,
    rules: QuotaRules,
    inactive: InactiveQuotas = NO_INACTIVE,
) -> tuple[QuotaName, QuotaSource] | None:
    """Return the quota of a pod and why; None if it belongs to no quota.

    A quota that exists but is not in force (``inactive``) keeps its pods: they stay pending instead
    of starting without a limit.
    """
    named, source = _named(label, namespace, registry, rules)
    if named and (named in registry.specs or named in {DEFAULT, SYSTEM} or named in inactive.names):
        return named, source
    if not rules.has_default_quota:
        return None
    if not named and namespace in inactive.owner_of:
        return inactive.owner_of[namespace]
    return DEFAULT, QuotaSource.DEFAULT


def takes_pods(spec: QuotaSpec | None, rules: QuotaRules) -> bool:
    """Whether pods may be bound to a quota: to a parent only where that is allowed."""
    return spec is None or not spec.is_parent or spec.name == DEFAULT or rules.parents_take_pods


def _named(
    label: str, namespace: str, registry: ActiveQuotas, rules: QuotaRules
) -> tuple[QuotaName, QuotaSource]:
    if label and label != ROOT:
        return label, QuotaSource.LABEL
    if not rules.has_default_quota:
        return "", QuotaSource.LABEL
    like = registry.get(namespace)
    if like is not None and like.namespace == namespace:
        return namespace, QuotaSource.NAMESPACE_NAME
    return registry.owner_of.get(namespace, ""), QuotaSource.NAMESPACES
