"""Pods by the object that controls them."""

from collections.abc import Collection, Iterable
from typing import Final

from koord.core.model.pods import Pod

INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"


class OwnedPods:
    """Which pods an object controls, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, set[str]] = {}
        self._owner_of: dict[str, str] = {}

    def add(self, pod: Pod) -> None:
        owner = next((owner for owner in pod.owners if owner.is_controller), None)
        if owner is not None and pod.uid not in self._owner_of:
            self._owner_of[pod.uid] = owner.uid
            self._pods.setdefault(owner.uid, set()).add(pod.uid)

    def remove(self, uid: str) -> None:
        owner = self._owner_of.pop(uid, None)
        if owner is not None:
            self._pods[owner].discard(uid)
            if not self._pods[owner]:
                del self._pods[owner]

    def owner_of(self, pod: Pod) -> str:
        """Return the uid of what controls a pod; empty for nothing."""
        return self._owner_of.get(pod.uid, "")

    def of(self, owner: str) -> Collection[str]:
        return self._pods.get(owner, ())


def is_double(pod: Pod, siblings: Iterable[Pod]) -> bool:
    """Whether a pod has the index of another one that lives, and has come before it."""
    index = pod.profile.labels.get(INDEX_LABEL)
    return index is not None and any(
        other.profile.labels.get(INDEX_LABEL) == index
        and other.is_alive
        and (other.node or (other.created, other.uid) < (pod.created, pod.uid))
        for other in siblings
        if other.uid != pod.uid
    )
