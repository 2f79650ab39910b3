"""Which pods must never be evicted, whatever else runs: what one pod is by itself.

Owners decide nothing. Whoever creates a pod writes them, and may create a DaemonSet as well: pods
of daemons are spared by their priority, as by kube-scheduler.
"""

from typing import Final

from koord.core.eviction.label_protection import Rights, is_spared
from koord.core.eviction.reasons import Protection
from koord.core.model.pods import Handling, Pod

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
