"""The quotas in force, with what has to be looked up in both directions.

Holds valid quotas only, so that children, namespaces and trees never contradict each other. The
built-in quotas are always there. Nothing is checked here (see ``validate`` and ``hierarchy``).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from koord.core.quota.model import QuotaName, QuotaSpec, TreeId
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the pods of quotas where a rule asks for it.

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


NO_FACTS = Facts()


class ActiveQuotas:
    """Quotas by name, children by parent, owners by namespace."""

    def __init__(self, specs: Iterable[QuotaSpec] = ()) -> None:
        self.specs: dict[QuotaName, QuotaSpec] = {}
        self.owner_of: dict[str, QuotaName] = {}
        """Namespace -> the quota whose annotation lists it."""
        self._children: dict[QuotaName, set[QuotaName]] = {}
        for spec in specs:
            self.put(spec)

    def get(self, name: QuotaName) -> QuotaSpec | None:
        """Return a quota in force."""
        return self.specs.get(name)

    def children(self, name: QuotaName) -> list[QuotaSpec]:
        """Return the children of a quota, by name."""
        return [self.specs[child] for child in sorted(self._children.get(name, ()))]

    def has_children(self, name: QuotaName) -> bool:
        """Whether any quota names this one as its parent."""
        return bool(self._children.get(name))

    def trees(self) -> set[TreeId]:
        """Return the ids of all trees that have a quota."""
        return {spec.tree_id for spec in self.specs.values()}

    def put(self, spec: QuotaSpec) -> None:
        """Bring a quota into force, instead of what was there under its name."""
        self.drop(spec.name)
        self.specs[spec.name] = spec
        self._children.setdefault(spec.parent, set()).add(spec.name)
        for namespace in spec.namespaces:
            self.owner_of[namespace] = spec.name

    def drop(self, name: QuotaName) -> None:
        """Take a quota out of force; its children stay and have no parent."""
        spec = self.specs.pop(name, None)
        if spec is None:
            return
        self._children[spec.parent].discard(name)
        for namespace in spec.namespaces:
            if self.owner_of.get(namespace) == name:
                del self.owner_of[namespace]
