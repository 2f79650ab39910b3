"""Pods by the object of their namespace that controls them.

Whoever may create pods may name any object as their owner; those of other namespaces own none.
"""

from collections.abc import Collection, Mapping
from typing import TypeAlias

from koord.core.model.pods import Pod
from koord.core.suspend.model import QueuedJob

_Owner: TypeAlias = tuple[str, str]
"""Namespace, uid."""


class OwnedPods:
    """Which pods an object controls, by uid."""

    def __init__(self) -> None:
        self._pods: dict[_Owner, set[str]] = {}
        self._owner_of: dict[str, _Owner] = {}

    def add(self, pod: Pod) -> None:
        owner = next((owner for owner in pod.owners if owner.is_controller), None)
        if owner is not None and pod.uid not in self._owner_of:
            key = self._owner_of[pod.uid] = (pod.namespace, owner.uid)
            self._pods.setdefault(key, set()).add(pod.uid)

    def remove(self, uid: str) -> None:
        owner = self._owner_of.pop(uid, None)
        if owner is not None:
            self._pods[owner].discard(uid)
            if not self._pods[owner]:
                del self._pods[owner]

    def owner_of(self, pod: Pod) -> tuple[str, str]:
        """Return namespace and uid of what controls a pod; an empty uid for nothing."""
        return self._owner_of.get(pod.uid, ("", ""))

    def of(self, namespace: str, owner: str) -> Collection[str]:
        return self._pods.get((namespace, owner), ())


def find_end(pods: OwnedPods, jobs: Mapping[str, QueuedJob], pod: Pod) -> int | None:
    """Return when Kubernetes ends the Job of a pod; None: never, or it is not known."""
    namespace, uid = pods.owner_of(pod)
    job = jobs.get(uid)
    return None if job is None or job.namespace != namespace else job.ends_at
