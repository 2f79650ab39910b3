"""The lines of suspended Jobs: who waits before whom, and which Jobs are planned.

A line is that of a namespace and a quota. Only its first Jobs are planned, so that neither many
Jobs nor large ones of a tenant cost others anything. Knows no stand-ins.
"""

from bisect import insort
from collections.abc import Collection
from typing import Final, TypeAlias

from koord.core.suspend.model import QueuedJob

MOST_IN_LINE: Final = 512
"""Pods that the first Jobs of a line are planned with; the first Job in any case."""
MOST_LINES: Final = 16
"""Lines of one namespace that are planned: whoever invents quotas does not get more room."""

Line: TypeAlias = tuple[str, str]
"""Namespace, and the quota that pods name."""
_Order: TypeAlias = tuple[int, float, str, str, int]


class Lines:
    """The Jobs that wait, by line, in the order of priority and age."""

    def __init__(self) -> None:
        self._lines: dict[Line, list[_Order]] = {}
        self._places: dict[str, tuple[Line, _Order]] = {}
        """Job -> its line, and its order there."""
        self._planned: dict[Line, dict[str, str]] = {}
        """Line -> the Jobs of it that are planned, and the gangs that their pods name."""
        self._gangs: dict[str, set[str]] = {}
        """Gang that pods name -> the Jobs that are planned with it."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._places

    def join(self, job: QueuedJob, priority: int) -> Line:
        """Let a Job wait; return its line."""
        line = (job.namespace, job.quota)
        place = line, (-priority, job.created, job.name, job.uid, job.size)
        if self._places.get(job.uid) != place:
            self.leave(job.uid)
            self._places[job.uid] = place
            insort(self._lines.setdefault(line, []), place[1])
        return line

    def leave(self, uid: str) -> Line | None:
        """Return the line that a Job waited in; None if it did not wait."""
        line, order = self._places.pop(uid, (None, None))
        if line is None or order is None:
            return None
        self._lines[line].remove(order)
        if not self._lines[line]:
            del self._lines[line]
        return line

    def of(self, namespace: str) -> list[Line]:
        """Return the lines of a namespace that are planned."""
        return sorted(line for line in self._lines if line[0] == namespace)[:MOST_LINES]

    def choose(self, line: Line, most: int) -> list[str]:
        """Return the Jobs of a line that are to be planned, in order: so many at most."""
        chosen: list[str] = []
        count = 0
        for order in self._lines.get(line, ()) if line in self.of(line[0]) else ():
            count += order[4]
            if len(chosen) == most or (chosen and count > MOST_IN_LINE):
                break
            chosen.append(order[3])
        return chosen

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
