"""What has happened to the cluster since somebody looked last: what its readers go by.

Level-triggered: a change names what is to be looked at again, never what to do about it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from koord.core.constraints import PodConstraints, PodLabels
from koord.core.gang.model import GangKey


@dataclass(slots=True)
class Changes:
    """What happened since the last look: the level-triggered input of the queue.

    ``freed`` holds nodes that may take more than before; ``gangs`` and ``singles`` (pod uids) those
    whose own members or settings changed. ``arrived`` and ``left`` tell which pods came to a node
    or are no longer on it, ``claims`` which volume claims (``namespace/name``) changed or came out
    of use. ``is_regrouped`` says that nodes or namespaces came, went, or changed their labels.
    """

    freed: set[str] = field(default_factory=set)
    gangs: set[GangKey] = field(default_factory=set)
    singles: set[str] = field(default_factory=set)
    arrived: set[PodLabels] = field(default_factory=set)
    left: set[tuple[PodLabels, PodConstraints | None]] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)
    is_regrouped: bool = False

    def __bool__(self) -> bool:
        return self.may_help or bool(self.gangs or self.singles)

    @property
    def may_help(self) -> bool:
        """Whether pods may have a place now that had none, though nothing about them changed."""
        nearby = self.freed or self.arrived or self.left or self.claims
        return bool(nearby) or self.is_regrouped

    def add(self, other: "Changes") -> None:
        """Take in what else happened."""
        self.freed |= other.freed
        self.gangs |= other.gangs
        self.singles |= other.singles
        self.arrived |= other.arrived
        self.left |= other.left
        self.claims |= other.claims
        self.is_regrouped |= other.is_regrouped


class Feed:
    """One reader's view of the changes; every reader drains its own."""

    def __init__(self, publish: Callable[[], None]) -> None:
        self._publish = publish
        self._pending = Changes()

    def note(self, changes: Changes) -> None:
        """Add changes to what this reader has not seen yet."""
        self._pending.add(changes)

    def drain(self) -> Changes:
        """Return what changed since the last call."""
        self._publish()
        changes, self._pending = self._pending, Changes()
        return changes
