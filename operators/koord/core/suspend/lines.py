"""The lines of suspended Jobs: who waits before whom, and which Jobs are planned.

A line is that of a namespace and a quota. Only its first Jobs are planned, so that neither many
Jobs nor large ones of a tenant cost others anything. Knows no stand-ins.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection
from typing import Final, Protocol, TypeAlias

from koord.core.gang.group import MAX_GANGS

MOST_IN_LINE: Final = 512
"""Pods that the first Jobs of a line are planned with; the first Job in any case."""
MOST_LINES: Final = 16
"""Lines of one namespace that are planned: whoever invents quotas does not get more room."""

Line: TypeAlias = tuple[str, str]
"""Namespace, and the quota that pods name."""
_Order: TypeAlias = tuple[int, float, str, str, int]


class InLine(Protocol):
    """A Job, or something else for whose pods stand-ins wait; ``size`` is how many there are."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def size(self) -> int: ...
    @property
    def quota(self) -> str:
        """The quota that its pods name."""

    @property
    def gang(self) -> str:
        """The gang that its pods name; empty for none."""


class Lines:
    """The Jobs that wait, by line, in the order of priority and age."""

    def __init__(self) -> None:
        self._lines: dict[Line, list[_Order]] = {}
        self._places: dict[str, tuple[Line, _Order]] = {}
        """Job -> its line, and its order there."""
        self._gang_of: dict[str, str] = {}
        self._naming: Counter[str] = Counter()
        """Gang that pods name -> how many Jobs that wait name it."""
        self._crossed: set[str] = set()
        """Gangs that too many name since, or no longer."""
        self._of_namespace: dict[str, list[Line]] = {}
        self._planned: dict[Line, dict[str, str]] = {}
        """Line -> the Jobs of it that are planned, and the gangs that their pods name."""
        self._gangs: dict[str, set[str]] = {}
        """Gang that pods name -> the Jobs that are planned with it."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def join(self, job: InLine, priority: int) -> Line:
        """Let a Job wait; return its line."""
        line = (job.namespace, job.quota)
        place = line, (-priority, job.created, job.name, job.uid, job.size)
        if self._places.get(job.uid) != place or self._gang_of.get(job.uid, "") != job.gang:
            self.leave(job.uid)
            self._places[job.uid] = place
            if job.gang:
                self._gang_of[job.uid] = job.gang
                self._count_naming(job.gang, 1)
            if line not in self._lines:
                self._lines[line] = []
                insort(self._of_namespace.setdefault(job.namespace, []), line)
            insort(self._lines[line], place[1])
        return line

    def leave(self, uid: str) -> Line | None:
        """Return the line that a Job waited in; None if it did not wait."""
        line, order = self._places.pop(uid, (None, None))
        if line is None or order is None:
            return None
        gang = self._gang_of.pop(uid, "")
        if gang:
            self._count_naming(gang, -1)
        orders = self._lines[line]
        del orders[bisect_left(orders, order)]
        if not orders:
            del self._lines[line]
            lines = self._of_namespace[line[0]]
            lines.remove(line)
            if not lines:
                del self._of_namespace[line[0]]
        return line

    def _count_naming(self, gang: str, count: int) -> None:
        was_crowded = self.is_crowded(gang)
        self._naming[gang] += count
        if self.is_crowded(gang) != was_crowded:
            self._crossed ^= {gang}
        if not self._naming[gang]:
            del self._naming[gang]

    def is_crowded(self, gang: str) -> bool:
        """Whether more Jobs that wait name a gang than can start together: none of them can."""
        return self._naming.get(gang, 0) > MAX_GANGS

    def take_crossed(self) -> bool:
        """Return whether that is otherwise now for a gang."""
        crossed, self._crossed = self._crossed, set()
        return bool(crossed)

    def of(self, namespace: str) -> list[Line]:
        """Return the lines of a namespace that are planned."""
        return self._of_namespace.get(namespace, [])[:MOST_LINES]

    def choose(self, line: Line, most: int) -> list[str]:
        """Return the Jobs of a line that are to be planned, in order: so many at most."""
        chosen: list[str] = []
        count = 0
        for order in self._lines.get(line, ()) if line in self.of(line[0]) else ():
            if self.is_crowded(self._gang_of.get(order[3], "")):
                continue
            count += order[4]
            if len(chosen) == most or (chosen and count > MOST_IN_LINE):
                break
            chosen.append(order[3])
        return chosen

    def why_crowded(self, gang: str) -> str:
        """Return why Jobs that name a gang cannot start; empty if they can."""
        count = self._naming.get(gang, 0)
        if count <= MAX_GANGS:
            return ""
        return f"{count} Jobs that wait name its gang, and at most {MAX_GANGS} start together"

    def plan(self, line: Line, gangs: dict[str, str]) -> set[str]:
        """Note the Jobs of a line that are planned, and their gangs; return those that were."""
        before = self._planned.pop(line, {})
        for uid, gang in before.items():
            self._gangs[gang].discard(uid)
            if not self._gangs[gang]:
                del self._gangs[gang]
        for uid, gang in gangs.items():
            self._gangs.setdefault(gang, set()).add(uid)
        if gangs:
            self._planned[line] = gangs
        return set(before)

    def planned_with(self, gang: str) -> Collection[str]:
        """Return the Jobs that are planned and name a gang."""
        return self._gangs.get(gang, ()) if gang else ()

    def is_planned_with(self, uid: str, gang: str) -> bool:
        """Whether a Job is one of them."""
        return uid in self._gangs.get(gang, ())
