"""Which pods must never be evicted, whatever else runs: what one pod is by itself, and its labels.

Its owner writes the labels: each has a price or needs a right. Otherwise owners decide nothing.
Whoever creates a pod writes its owner references, and may create a DaemonSet as well: pods of
daemons are spared by their priority, as by kube-scheduler.

``preemptible: "false"`` is paid for: it counts for a pod that was admitted with it under a quota,
against what that quota is guaranteed (``min``), of every extended resource and all that ``max``
limits. Without a quota, of resources that are not guaranteed, or put on a pod that runs already, it
costs nothing, and is worth nothing. Members of a
gang end together, so it spares a gang if all of them have paid: otherwise one small member would
keep the room of all others.

``disable-preemptible: "true"`` costs nothing. It counts in namespaces whose label allows it: users
who may edit what is in a namespace cannot write its labels.

With ``compat`` both labels count everywhere, as in Koordinator.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from koord.core.eviction.reasons import Protection
from koord.core.gang.cache import GangCache
from koord.core.model.pods import Handling, Pod
from koord.core.model.units import PODS, is_extended
from koord.core.quota.cache import QuotaCache
from koord.core.quota.model import SYSTEM, QuotaRules, QuotaSpec
from koord.core.quota.usage import count_devices

ALLOWED_IN: Final = "operators.koordinator.sh/allow-disable-preemptible"


class Rights(Protocol):
    """What decides whether a label counts; the state of the cluster."""

    @property
    def quotas(self) -> QuotaCache: ...

    @property
    def gangs(self) -> GangCache: ...

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str]: ...


def is_spared(rights: Rights, pod: Pod) -> bool:
    """Whether a label of a pod spares it."""
    if rights.gangs.compat:
        return pod.is_protected or pod.is_non_preemptible
    return has_right(rights, pod) or has_paid(rights.quotas, pod)


def has_right(rights: Rights, pod: Pod) -> bool:
    """Whether ``disable-preemptible`` counts, or there is no pod yet that could be evicted."""
    if pod.handling is Handling.STAND_IN:
        return True
    labels = rights.labels_of_namespace(pod.namespace) if pod.is_protected else {}
    return labels.get(ALLOWED_IN) == "true"


def has_paid(quotas: QuotaCache, pod: Pod) -> bool:
    """Whether ``preemptible: "false"`` counts."""
    if not pod.is_non_preemptible:
        return False
    name = quotas.quota_of(pod)
    if name == SYSTEM:  # a right of certain namespaces
        return quotas.rules.restricts_use
    catalog = quotas.catalog
    spec = catalog.registry.get(name) or catalog.inactive.specs.get(name)
    if spec is None:
        return False
    if not _is_guaranteed(spec, quotas.requests_of(pod), quotas.rules):
        return False
    if pod.handling is Handling.RESERVE:
        return _is_within(spec, quotas)
    return pod.recorded is not None


def _is_guaranteed(spec: QuotaSpec, requests: Iterable[tuple[str, int]], rules: QuotaRules) -> bool:
    """Whether ``min`` names what a pod is spared with: what is scarce, and all that ``max`` limits.

    A little CPU that is guaranteed pays for no GPUs that are not. A resource may be guaranteed by
    any of the names that the quota counts it by.
    """
    has_paid_any = False
    for key, amount in requests:
        if not amount or key == PODS:
            continue
        names = count_devices({key: amount}, rules).keys()
        if any(name in spec.min for name in names):
            has_paid_any = True
        elif is_extended(key) or any(name in spec.max for name in names):
            return False
    return has_paid_any


def _is_within(spec: QuotaSpec, quotas: QuotaCache) -> bool:
    """Whether a quota is guaranteed all that is to be spared in it.

    Labels of a reservation can be written at any time, and no signed plan remembers them.
    """
    used = quotas.usage.of(spec.name).non_preemptible_used
    return all(used.get(key, 0) <= least for key, least in spec.min.items())


def spares_gang(rights: Rights, members: Iterable[Pod]) -> bool:
    """Whether labels of its members spare a gang from being evicted as a whole."""
    pods = tuple(members)
    is_enough = is_spared if rights.gangs.compat else has_right
    if any(is_enough(rights, pod) for pod in pods):
        return True
    return bool(pods) and all(has_paid(rights.quotas, pod) for pod in pods)


SYSTEM_CRITICAL: Final = 2_000_000_000
"""Pods of this priority and above keep the cluster alive."""


def find_lasting_protection(rights: Rights, pod: Pod) -> Protection | None:
    """Return why a pod must not be evicted for as long as it is as it is; None if it may be."""
    return Protection.LABEL if is_spared(rights, pod) else _find_fixed_protection(pod)


def is_foreign(pod: Pod) -> bool:
    """Whether another scheduler placed a pod, and would place it again."""
    return pod.handling is Handling.NOT_OURS and pod.recorded is None


def is_evictable(pod: Pod) -> bool:
    """Whether a pod runs, and may be evicted at some time; what its labels are worth may change."""
    return bool(pod.node) and pod.is_alive and _find_fixed_protection(pod) is None


def _find_fixed_protection(pod: Pod) -> Protection | None:
    if pod.priority >= SYSTEM_CRITICAL:
        return Protection.CRITICAL
    return Protection.FOREIGN if is_foreign(pod) else None
