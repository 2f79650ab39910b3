"""All that waits in a state, for questions: made once, and again of what has changed since.

One question asks for it several times, and each edit that is tried once more. Knows no question.
"""

from dataclasses import replace

from koord.core.engine.queue import Queue
from koord.core.engine.state import ClusterState
from koord.core.model.changes import Changes
from koord.core.model.plan import Unit


class PendingUnits:
    """A queue that follows one state; it never refuses or takes a unit."""

    def __init__(self, state: ClusterState) -> None:
        self._queue = Queue()
        self._feed = state.feed()
        self._units: list[Unit] | None = None

    def follow(self, state: ClusterState) -> Queue:
        """Return the queue as of now."""
        changes = self._feed.drain()
        if changes or self._units is None:
            self._queue.absorb(self._without_settled(changes, state), state)
            self._units = None
        return self._queue

    def _without_settled(self, changes: Changes, state: ClusterState) -> Changes:
        """Leave out pods that neither wait nor did: at first that is nearly all there is."""

        def matters(uid: str) -> bool:
            pod, queue = state.pods.get(uid), self._queue
            waits = pod is not None and pod.is_waiting
            return waits or uid in queue.waiting or bool(queue.units_of(uid))

        return replace(changes, singles=set(filter(matters, changes.singles)))

    def list_units(self, state: ClusterState) -> list[Unit]:
        """Return all waiting units in order; nobody may change the list."""
        queue = self.follow(state)
        # A plugin that orders them may look at more than what has changed of them.
        if self._units is None or state.sorter is not None:
            self._units = queue.pending()
        return self._units


def find_pending(state: ClusterState) -> list[Unit]:
    """Return all waiting units of a state, in order; nobody may change the list."""
    return _pending_of(state).list_units(state)


def find_queue(state: ClusterState) -> Queue:
    """Return the queue of a state, of which nothing is taken."""
    return _pending_of(state).follow(state)


def _pending_of(state: ClusterState) -> PendingUnits:
    return state.follower(PendingUnits, lambda: PendingUnits(state))
