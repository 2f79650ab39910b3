"""Pods that are being deleted: until when each counts, where that is not until it is gone.

Source of the rules: Koordinator's gates ElasticQuotaIgnoreTerminatingPod and
ElasticQuotaImmediateIgnoreTerminatingPod. What a pod uses is not known here.
"""

from koord.core.model.pods import Pod
from koord.core.quota.model import TerminatingUse


class TerminatingPods:
    """Pods that do not count any more, and those that will not; times are seconds of the epoch."""

    def __init__(self, use: TerminatingUse) -> None:
        self.now = 0.0
        self.ignored: set[str] = set()
        """uids of pods that have stopped counting, and are still there."""
        self._use = use
        self._until: dict[str, float] = {}
        """Uid of a pod that still counts -> when its grace period ends."""

    def note(self, pod: Pod) -> bool:
        """Take in a pod; return whether it has stopped counting."""
        if self._use is TerminatingUse.UNTIL_GONE:
            return False
        self.forget(pod.uid)
        if not pod.gone_by:
            return False
        if self._use is TerminatingUse.FOR_GRACE_PERIOD and pod.gone_by > self.now:
            self._until[pod.uid] = pod.gone_by
            return False
        self.ignored.add(pod.uid)
        return True

    def forget(self, uid: str) -> None:
        self.ignored.discard(uid)
        self._until.pop(uid, None)

    def clear(self) -> None:
        self.ignored.clear()
        self._until.clear()

    def take_due(self) -> list[str]:
        """Return the uids of pods whose grace period has ended; they are to be noted again."""
        due = [uid for uid, until in self._until.items() if until <= self.now]
        for uid in due:
            del self._until[uid]
        return due

    def next_due(self) -> float | None:
        return min(self._until.values(), default=None)
