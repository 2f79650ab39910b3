"""Which quota a pod belongs to, and whether that quota takes pods.

Source: Koordinator's label ``quota.scheduling.koordinator.sh/name``, then the quota named like the
pod's namespace, then the quota that lists the namespace, then the default quota.
"""

from collections.abc import Callable
from enum import StrEnum

from koord.core.quota.model import DEFAULT, ROOT, SYSTEM, QuotaName, QuotaRules, QuotaSpec
from koord.core.quota.registry import Registry


class QuotaSource(StrEnum):
    """What makes a pod belong to its quota."""

    LABEL = "Label"
    NAMESPACE_NAME = "NamespaceName"
    NAMESPACES = "Namespaces"
    DEFAULT = "Default"


def find_quota(
    label: str,
    namespace: str,
    registry: Registry,
    rules: QuotaRules,
    is_written: Callable[[QuotaName], bool] = lambda _: False,
) -> tuple[QuotaName, QuotaSource] | None:
    """Return the quota of a pod and why it is that one; None if it is under no quota.

    A quota that is written but not in force (``is_written``) keeps its pods: they wait for it
    instead of starting without a limit.
    """
    named, source = _named(label, namespace, registry, rules)
    if named and (named in registry.specs or named in {DEFAULT, SYSTEM} or is_written(named)):
        return named, source
    return (DEFAULT, QuotaSource.DEFAULT) if rules.has_default_quota else None


def takes_pods(spec: QuotaSpec | None, rules: QuotaRules) -> bool:
    """Whether pods may be bound to a quota: to a parent only where that is allowed."""
    return spec is None or not spec.is_parent or spec.name == DEFAULT or rules.parents_take_pods


def _named(
    label: str, namespace: str, registry: Registry, rules: QuotaRules
) -> tuple[QuotaName, QuotaSource]:
    if label and label != ROOT:
        return label, QuotaSource.LABEL
    if not rules.has_default_quota:
        return "", QuotaSource.LABEL
    like = registry.get(namespace)
    if like is not None and like.namespace == namespace:
        return namespace, QuotaSource.NAMESPACE_NAME
    return registry.owner_of.get(namespace, ""), QuotaSource.NAMESPACES
