"""What is to be looked at again after owners have changed: each thing once, so much per turn.

An owner may have thousands of pods and gangs, and whoever may write it may change it all the time.
Namespaces take turns, so those of one tenant keep no others waiting. Knows no owners and no gangs.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, TypeAlias

from koord.isolation import Isolation

LOOKS: Final = 128
"""At a time, of which there is one per pause."""
PAUSE_SECONDS: Final = 0.05


class Recheck(Enum):
    """What is looked at; those at all that something has are put back as looks at each."""

    PODS_BELOW = auto()
    GANGS_OF = auto()
    OTHERS_IN = auto()
    """The pods of a gang that nobody places through us."""
    POD = auto()
    GANG = auto()


Item: TypeAlias = tuple[Recheck, str]


class Backlog:
    """Does what it is given at once, and from the first plan on so much of it at a time."""

    def __init__(self, do: Callable[[str, Recheck, str], None]) -> None:
        self._do = do
        self._isolated = Isolation("owner-looks")
        self._waiting: OrderedDict[str, OrderedDict[Item, None]] = OrderedDict()
        self._left = float("inf")
        self._is_limited = False
        self._is_busy = False
        self._has_done = False
        """In this turn: the units that it changed are only made in the next one."""
        self._again_at = 0.0

    def limit(self) -> None:
        """Do so much at a time from now on, because others are waiting for plans."""
        self._is_limited = True

    def put(self, namespace: str, look: Recheck, ids: Iterable[str]) -> None:
        items = dict.fromkeys((look, target) for target in ids)
        if not items:
            return
        waiting = self._waiting.setdefault(namespace, OrderedDict())
        for item in items:
            waiting.setdefault(item)
        self._work()

    def begin_turn(self, now: float) -> None:
        if not now < self._again_at <= now + PAUSE_SECONDS:  # the clock may be set back
            self._again_at = now + PAUSE_SECONDS
            self._left = LOOKS if self._is_limited else float("inf")
        self._has_done = bool(self._waiting) and self._left > 0
        self._work()

    def next_due(self) -> float | None:
        """Return when the next turn is to begin; None if nothing is left."""
        return self._again_at if self._waiting or self._has_done else None

    def _work(self) -> None:
        if self._is_busy:
            return  # what is done puts more
        self._is_busy = True
        try:
            while self._waiting and self._left > 0:
                self._left -= 1
                namespace, look, target = self._take()
                with self._isolated.of(target):
                    self._do(namespace, look, target)
        finally:
            self._is_busy = False

    def _take(self) -> tuple[str, Recheck, str]:
        namespace = next(iter(self._waiting))
        items = self._waiting[namespace]
        (look, target), _ = items.popitem(last=False)
        if items:
            self._waiting.move_to_end(namespace)
        else:
            del self._waiting[namespace]
        return namespace, look, target
