"""The names of Koordinator 0.7 that pods request: nodes publish them only while they are needed.

A kubelet rejects a pod that requests ``kubernetes.io/gpu-core`` from a node that does not list it.
"""

from koord.core.model.device_names import CURRENT_NAME
from koord.core.model.pods import PodShape


class OldNames:
    """``names`` are those that live pods request."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._of: dict[str, frozenset[str]] = {}

    def note(self, uid: str, shape: PodShape | None) -> bool:
        """Note the requests of a pod, None when it is gone; return whether ``names`` changed."""
        requests = shape.requests if shape is not None else ()
        old = frozenset(name for name, _ in requests if name in CURRENT_NAME)
        if old == self._of.get(uid, frozenset()):
            return False
        self._of[uid] = old
        if not old:
            del self._of[uid]
        before, self.names = self.names, frozenset[str]().union(*self._of.values())
        return self.names != before
