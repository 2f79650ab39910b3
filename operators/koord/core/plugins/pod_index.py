"""Index of pods on nodes: counts, per row, the pods that a selector selects.

One slot per pod, one *kind* per distinct profile: labels are compared once per kind, and counting
is two array operations over all pods. Counts are computed on demand and not stored.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from koord.core.engine.arrays import Ids, Ints, Mask
from koord.core.engine.columns import Column, Columns
from koord.core.model.constraints import PodLabels, PodSelector

NOWHERE: Final = -1
_FIRST: Final = 64

Namespaces = dict[str, Mapping[str, str]]
"""Namespace -> its labels."""


class _Kinds:
    """Distinct profiles, each with a number and a count of its pods."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._columns = Columns(_FIRST)
        self._namespace = Column(_FIRST)
        self._number_of: dict[PodLabels, int] = {}
        self._pods: list[int] = [0] * _FIRST
        self._profiles: list[PodLabels | None] = [None] * _FIRST
        self._free = list(range(_FIRST - 1, -1, -1))

    def enter(self, profile: PodLabels) -> int:
        """Return the number of a profile and count one more pod."""
        number = self._number_of.get(profile)
        if number is None:
            if not self._free:
                self._grow()
            number = self._number_of[profile] = self._free.pop()
            self._profiles[number] = profile
            self._columns.write(number, profile.labels)
            self._namespace.write(number, profile.namespace)
            if self._namespace.is_stale:
                self._number_namespaces()
        self._pods[number] += 1
        return number

    def leave(self, number: int) -> None:
        """Undo one :meth:`enter`."""
        self._pods[number] -= 1
        profile = self._profiles[number]
        if self._pods[number] or profile is None:
            return
        del self._number_of[profile]
        self._profiles[number] = None
        self._columns.clear(number)
        self._namespace.write(number, None)
        self._free.append(number)

    def selected(self, pods: PodSelector) -> Mask:
        named = [
            namespace
            for namespace in self._namespace.values
            if pods.selects_namespace(namespace, self._namespaces.get(namespace, {}))
        ]
        return self._namespace.having(named) & self._columns.selected(pods.selector)

    def _number_namespaces(self) -> None:
        """Forget the namespaces that are gone."""
        self._namespace = Column(len(self._profiles))
        for number, profile in enumerate(self._profiles):
            self._namespace.write(number, None if profile is None else profile.namespace)

    def _grow(self) -> None:
        size = len(self._pods)
        self._columns.grow(2 * size)
        self._namespace.grow(2 * size)
        self._pods += [0] * size
        self._profiles += [None] * size
        self._free.extend(range(2 * size - 1, size - 1, -1))


class PodIndex:
    """All pods that hold a place on a node."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._kinds = _Kinds(namespaces)
        self._kind: Ids = np.zeros(_FIRST, dtype=np.int32)
        self._row: Ids = np.full(_FIRST, NOWHERE, dtype=np.int32)
        self._is_terminating: Mask = np.zeros(_FIRST, dtype=np.bool_)
        self._free = list(range(_FIRST - 1, -1, -1))

    @property
    def size(self) -> int:
        """The number of slots, used or free."""
        return len(self._row)

    def add(self, profile: PodLabels, row: int, *, is_terminating: bool) -> int:
        """Add a pod and return its slot."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._kind[slot] = self._kinds.enter(profile)
        self._row[slot] = row
        self._is_terminating[slot] = is_terminating
        return slot

    def remove(self, slot: int) -> None:
        self._kinds.leave(int(self._kind[slot]))
        self._row[slot] = NOWHERE
        self._free.append(slot)

    def count(self, pods: tuple[PodSelector, ...], rows: int, *, alive_only: bool = False) -> Ints:
        """Count, per row, the pods that all selectors select.

        ``alive_only`` leaves out pods that are being deleted.
        """
        kinds = self._kinds.selected(pods[0])
        for other in pods[1:]:
            kinds &= self._kinds.selected(other)
        if not kinds.any():
            return np.zeros(rows, dtype=np.int64)
        # A free slot has no row, so it does not matter which kind it had.
        selected = kinds[self._kind] & (self._row >= 0)
        if alive_only:
            selected &= ~self._is_terminating
        return np.bincount(self._row[selected], minlength=rows)

    def _grow(self) -> None:
        size = len(self._row)
        self._kind = np.concatenate([self._kind, np.zeros(size, dtype=np.int32)])
        self._row = np.concatenate([self._row, np.full(size, NOWHERE, dtype=np.int32)])
        self._is_terminating = np.concatenate(
            [self._is_terminating, np.zeros(size, dtype=np.bool_)]
        )
        self._free.extend(range(2 * size - 1, size - 1, -1))
