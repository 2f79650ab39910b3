"""Who has what of a node besides amounts: the bookkeeping that exact allocations share.

:class:`NodeAllocations` stands beside the cluster state, :class:`CycleChanges` is what a cycle has
changed of it, so that a what-if needs no copy. What is allocated, and what is left of a node, only
the plugin knows.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from koord.core.engine.cycle import UndoLog
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import hold_owner_of

A = TypeVar("A")
T = TypeVar("T")
_NOBODY: Final[Mapping[str, PodCharge]] = MappingProxyType({})


class NodeAllocations(Generic[A]):
    """What pods were given, by uid, and which of them are on which row.

    What a pod was given when it was first seen on its node does not change: later annotations are
    not believed. It keeps that while it is discharged and charged again, until :meth:`forget_gone`.
    """

    def __init__(self) -> None:
        self.given: dict[str, A] = {}
        """Pod uid -> what it was given."""
        self.hold_used_by: dict[str, str] = {}
        """Pod uid -> the pod whose held room it uses."""
        self._on_row: dict[int, dict[str, PodCharge]] = {}
        self.discharged: set[str] = set()
        """Pods that left their nodes: gone, unless they come back until :meth:`forget_gone`."""

    def find(self, charge: PodCharge, recorded: A | None) -> A | None:
        """Return what counts of a pod, of which ``recorded`` is what it says now.

        Of held room that is what it says now: it changes with what pods use of it.
        """
        return recorded if charge.is_held else self.given.get(charge.uid) or recorded

    def charge(self, row: int, charge: PodCharge, count: int, given: A) -> None:
        """Count a pod on a row (1), or no longer (-1); on a negative row it is on no known node."""
        uid = charge.uid
        self.given[uid] = given
        if count < 0:
            self.discharged.add(uid)
            self._on_row.get(row, {}).pop(uid, None)
            return
        self.discharged.discard(uid)
        holder = "" if charge.is_held else hold_owner_of(charge.allocations)
        if holder:
            self.hold_used_by[uid] = holder
        if row >= 0:
            self._on_row.setdefault(row, {})[uid] = charge

    def on_row(self, row: int) -> Mapping[str, PodCharge]:
        """Return the pods on a row, by uid."""
        return self._on_row.get(row, _NOBODY)

    def remove_row(self, row: int) -> None:
        """Forget which pods are on a row; what they were given is kept until they are gone."""
        self._on_row.pop(row, None)

    def forget_gone(self) -> None:
        """Forget pods that left their nodes and did not come back; for ``Plugin.absorb``."""
        for uid in self.discharged:
            del self.given[uid]
            self.hold_used_by.pop(uid, None)
        self.discharged.clear()


class CycleChanges(dict[str, T]):
    """What a cycle has changed, by uid: other values are those beside the cluster state."""

    __slots__ = ("_undo",)

    def __init__(self, undo: UndoLog) -> None:
        super().__init__()
        self._undo = undo

    def change(self, uid: str, value: T) -> None:
        """Set a value, until the cycle is rolled back."""
        if uid in self:
            self._undo.push(self.__setitem__, uid, self[uid])
        else:
            self._undo.push(self.__delitem__, uid)
        self[uid] = value
