"""Collects what three watches deliver, and lets one wait until something has been seen."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from koord.demo.observed import Cluster, SeenGang, SeenNode, SeenPod
from koord.demo.watch import Server, Watch
from koord.demo.wire import (
    NODES,
    POD_GROUPS,
    PODS,
    WireNode,
    WireObject,
    WirePod,
    WirePodGroup,
    lose_pod,
    see_gang,
    see_node,
    see_pod,
)

_CHECK_INTERVAL = 0.2  # seconds

_Wire = TypeVar("_Wire", bound=WireObject)
_Seen = TypeVar("_Seen")


class Collection(Generic[_Wire, _Seen]):
    """What has been seen of one kind, by uid, in the order of appearance.

    ``see`` makes a value of an object and of what was known of it before; ``lose`` says what
    remains of a deleted one, nothing by default. All moments are told by ``clock``.
    """

    def __init__(
        self,
        changed: threading.Condition,
        clock: Callable[[], float],
        see: Callable[[_Wire, _Seen | None, float], _Seen],
        lose: Callable[[_Seen, float], _Seen | None] = lambda _seen, _now: None,
    ) -> None:
        self.seen: dict[str, _Seen] = {}
        self._changed = changed
        self._clock = clock
        self._see = see
        self._lose = lose

    def replace(self, objects: Sequence[_Wire]) -> None:
        """Take a complete list: what is not in it is gone."""
        with self._changed:
            for uid in self.seen.keys() - {one.metadata.uid for one in objects}:
                self._drop(uid)
            for one in objects:
                self._put(one)

    def upsert(self, changed: _Wire) -> None:
        """Take an object that is new or has changed."""
        with self._changed:
            self._put(changed)

    def remove(self, deleted: _Wire) -> None:
        """Take the last state of an object that is gone."""
        with self._changed:
            self._put(deleted)
            self._drop(deleted.metadata.uid)

    def _put(self, wire: _Wire) -> None:
        uid = wire.metadata.uid
        self.seen[uid] = self._see(wire, self.seen.get(uid), self._clock())
        self._changed.notify_all()

    def _drop(self, uid: str) -> None:
        remains = self._lose(self.seen[uid], self._clock())
        if remains is None:
            del self.seen[uid]
        else:
            self.seen[uid] = remains
        self._changed.notify_all()


class Observer:
    """All that has been seen so far; safe to ask from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self.nodes = Collection[WireNode, SeenNode](self._changed, clock, see_node)
        self.gangs = Collection[WirePodGroup, SeenGang](self._changed, clock, see_gang)
        self.pods = Collection[WirePod, SeenPod](self._changed, clock, see_pod, lose_pod)

    def look(self) -> Cluster:
        """Return all that has been seen so far."""
        with self._changed:
            return Cluster(
                nodes=tuple(sorted(self.nodes.seen.values(), key=lambda node: node.name)),
                gangs=tuple(self.gangs.seen.values()),
                pods=tuple(self.pods.seen.values()),
            )

    def wait(
        self, is_seen: Callable[[Cluster], bool], seconds: float, check: Callable[[], None]
    ) -> bool:
        """Return whether it was seen within the time.

        ``check`` is called now and then; it raises when waiting any longer is of no use.
        """
        end = self._clock() + seconds
        with self._changed:
            while not is_seen(self.look()):
                left = end - self._clock()
                if left <= 0:
                    return False
                check()
                self._changed.wait(min(left, _CHECK_INTERVAL))
        return True

    @contextmanager
    def watch(self, server: Server) -> Iterator[None]:
        """Read from an API server while the context lasts."""
        watches: list[Watch[Any]] = [
            Watch(server, NODES, WireNode, self.nodes),
            Watch(server, POD_GROUPS, WirePodGroup, self.gangs),
            Watch(server, PODS, WirePod, self.pods),
        ]
        for one in watches:
            one.start()
        try:
            yield
        finally:
            for one in watches:
                one.stop()
