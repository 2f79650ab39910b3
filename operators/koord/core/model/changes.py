"""Changes since a reader last asked: of the cluster state, or of objects of one kind.

Level-triggered: changes name objects to look at again, never what to do about them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from koord.core.model.constraints import PodConstraints, PodLabels
from koord.core.model.gangs import GangKey


@dataclass(slots=True)
class Changes:
    """Objects that changed since the last read.

    ``freed`` are nodes with more room than before, ``removed`` those that are gone. ``gangs`` and
    ``singles`` (pod uids) are those whose members or settings changed. ``arrived`` and ``left`` are
    pods that were added to or removed from nodes, ``claims`` the volume claims (``namespace/name``)
    that changed or became unused. ``is_relabelled``: nodes or namespaces were added, removed or
    relabelled.
    """

    freed: set[str] = field(default_factory=set)
    gangs: set[GangKey] = field(default_factory=set)
    singles: set[str] = field(default_factory=set)
    arrived: set[PodLabels] = field(default_factory=set)
    left: set[tuple[PodLabels, PodConstraints | None]] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)
    is_relabelled: bool = False
    removed: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.may_help or bool(self.gangs or self.singles)

    @property
    def may_help(self) -> bool:
        """Whether unchanged pods that were refused may fit now."""
        nearby = self.freed or self.arrived or self.left or self.claims
        return bool(nearby) or self.is_relabelled

    def add(self, other: "Changes") -> None:
        self.freed |= other.freed
        self.removed |= other.removed
        self.gangs |= other.gangs
        self.singles |= other.singles
        self.arrived |= other.arrived
        self.left |= other.left
        self.claims |= other.claims
        self.is_relabelled |= other.is_relabelled


class Feed:
    """Changes for one reader."""

    def __init__(self, publish: Callable[[], None]) -> None:
        self._publish = publish
        self._pending = Changes()

    def note(self, changes: Changes) -> None:
        self._pending.add(changes)

    def drain(self) -> Changes:
        """Return and clear the changes since the last call."""
        self._publish()
        changes, self._pending = self._pending, Changes()
        return changes


class ChangeLog:
    """Objects (by name) in the order of their last changes; readers remember how far they read."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the last change."""
        self._number_of: dict[str, int] = {}

    def note(self, name: str) -> None:
        self.last += 1
        self._number_of.pop(name, None)
        self._number_of[name] = self.last

    def drop(self, name: str) -> None:
        """Forget an object that is gone."""
        self._number_of.pop(name, None)

    def after(self, number: int) -> Iterator[str]:
        """Yield the objects that changed after the change of this number, the last one first."""
        for name in reversed(self._number_of):
            if self._number_of[name] <= number:
                return
            yield name
