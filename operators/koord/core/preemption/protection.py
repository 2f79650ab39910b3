"""Which pods must never be evicted, whatever else runs: what one pod says by itself."""

from typing import Final

from koord.core.pods import Handling, Pod
from koord.core.preemption.reasons import Protection

SYSTEM_CRITICAL: Final = 2_000_000_000
"""Pods of this priority and above keep the cluster alive."""
_HARDWIRED: Final = frozenset({"DaemonSet", "Node"})
"""Kinds of owners whose pods belong to their node."""


def find_lasting_protection(pod: Pod) -> Protection | None:
    """Return why a pod must not be evicted for as long as it is as it is; None if it may be."""
    if pod.is_protected or pod.is_non_preemptible:
        return Protection.LABEL
    if pod.priority >= SYSTEM_CRITICAL:
        return Protection.CRITICAL
    if pod.handling is Handling.NOT_OURS and pod.recorded is None:
        return Protection.FOREIGN
    if pod.owners and any(one.kind in _HARDWIRED for one in pod.owners):
        return Protection.DAEMON
    return None


def is_evictable(pod: Pod) -> bool:
    """Whether a pod runs, and may be evicted at some time."""
    return bool(pod.node) and pod.is_alive and find_lasting_protection(pod) is None
