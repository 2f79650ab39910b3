"""Finds the reservations that a pod may own without asking each: by names, owners and labels.

What is found is a superset; ``matching`` decides.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from koord.core.model.pods import Pod
from koord.core.model.selectors import SelectorOperator
from koord.core.reservation.model import Owner, ReservationInfo

Key: TypeAlias = tuple[str, ...]
_ANY: Key = ("any",)
_OF_LABELS = frozenset({"any", "label"})


class OwnerIndex:
    """Reservations (uid) by what their owners must have."""

    def __init__(self) -> None:
        self._uids_of: dict[Key, dict[str, None]] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._naming = 0

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def names_pods(self) -> bool:
        """Whether any names pods or controllers, so that labels are not all that counts."""
        return self._naming > 0

    def add(self, reservation: ReservationInfo) -> None:
        self.discard(reservation.uid)
        keys = tuple(dict.fromkeys(map(_key_of, reservation.owners)))
        self._keys[reservation.uid] = keys
        for key in keys:
            self._uids_of.setdefault(key, {})[reservation.uid] = None
            self._naming += key[0] not in _OF_LABELS

    def discard(self, uid: str) -> None:
        for key in self._keys.pop(uid, ()):
            del self._uids_of[key][uid]
            self._naming -= key[0] not in _OF_LABELS
            if not self._uids_of[key]:
                del self._uids_of[key]

    def by_labels(self, pod: Pod) -> Iterator[str]:
        """Yield what only depends on labels, which many pods share."""
        yield from self._uids_of.get(_ANY, ())
        for name, value in pod.profile.labels.items():
            yield from self._uids_of.get(("label", name, value), ())

    def by_identity(self, pod: Pod) -> Iterator[str]:
        """Yield what names the pod itself or its controllers."""
        keys = [("pod", pod.name), ("pod-uid", pod.uid)]
        keys += [("owner", owner.name) for owner in pod.owners]
        keys += [("owner-uid", owner.uid) for owner in pod.owners]
        for key in keys:
            yield from self._uids_of.get(key, ())


def _key_of(owner: Owner) -> Key:
    """Return one thing that an owner must have."""
    named: Iterable[tuple[str, str]] = ()
    if owner.pod is not None:
        named = (("pod-uid", owner.pod.uid), ("pod", owner.pod.name))
    elif owner.controller is not None:
        named = (("owner-uid", owner.controller.uid), ("owner", owner.controller.name))
    for key in named:
        if key[1]:
            return key
    for requirement in owner.selector or ():
        if requirement.operator is SelectorOperator.IN and len(requirement.values) == 1:
            return ("label", requirement.key, requirement.values[0])
    return _ANY
