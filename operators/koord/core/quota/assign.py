"""Which quota a pod belongs to, and whether that quota takes pods.

Source: Koordinator's label ``quota.scheduling.koordinator.sh/name``, then the quota named like the
pod's namespace, then the quota that lists the namespace, then the default quota.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koord.core.quota.model import DEFAULT, ROOT, SYSTEM, QuotaName, QuotaRules, QuotaSpec
from koord.core.quota.registry import ActiveQuotas


class QuotaSource(StrEnum):
    """What makes a pod belong to its quota."""

    LABEL = "Label"
    NAMESPACE_NAME = "NamespaceName"
    NAMESPACES = "Namespaces"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class Absent:
    """Quotas that are written but not in force, and the namespaces whose pods they would have."""

    names: Collection[QuotaName] = ()
    owner_of: Mapping[str, tuple[QuotaName, QuotaSource]] = field(default_factory=dict)


NONE_ABSENT: Final = Absent()


def find_absent(specs: Iterable[QuotaSpec]) -> Absent:
    """Return what quotas would have that are not in force; the first has a namespace."""
    specs = list(specs)
    owner_of: dict[str, tuple[QuotaName, QuotaSource]] = {}
    for spec in specs:
        if spec.name == spec.namespace:
            owner_of[spec.namespace] = (spec.name, QuotaSource.NAMESPACE_NAME)
    for spec in specs:
        for namespace in spec.namespaces:
            owner_of.setdefault(namespace, (spec.name, QuotaSource.NAMESPACES))
    return Absent({spec.name for spec in specs}, owner_of)


def find_quota(
    label: str,
    namespace: str,
    registry: ActiveQuotas,
    rules: QuotaRules,
    absent: Absent = NONE_ABSENT,
) -> tuple[QuotaName, QuotaSource] | None:
    """Return the quota of a pod and why it is that one; None if it is under no quota.

    A quota that is written but not in force (``absent``) keeps its pods: they wait for it instead
    of starting without a limit.
    """
    named, source = _named(label, namespace, registry, rules)
    if named and (named in registry.specs or named in {DEFAULT, SYSTEM} or named in absent.names):
        return named, source
    if not rules.has_default_quota:
        return None
    if not named and namespace in absent.owner_of:
        return absent.owner_of[namespace]
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
