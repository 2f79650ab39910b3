"""Refused units by what may wake them: so a change costs what it may concern, not all that waits.

A tenant may have thousands of units that wait. Decides nothing: what concerns a unit, hints say.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason, WakesOn

_ROOM: Final = frozenset({WakesOn.ROOM, WakesOn.RELABELLED_NODES})


@dataclass(frozen=True, slots=True)
class Blocked:
    """A refused unit (or the surplus of a placed one) and the reason."""

    unit: Unit
    pods: tuple[Pod, ...]
    reason: Reason


class RefusedUnits(dict[UnitKey, Blocked]):
    """All that are blocked, and some of them by what wakes them."""

    def __init__(self) -> None:
        super().__init__()
        self._by_domain: dict[str, dict[UnitKey, None]] = {}
        """Plugin that says when its refusals are worth another try -> those."""
        self._need_room: dict[UnitKey, None] = {}
        """Units that wait for room alone, or for labels of nodes that give it: other pods that come
        or go do not matter to them."""
        self._others: dict[UnitKey, None] = {}

    def by_domain(self) -> Mapping[str, Collection[UnitKey]]:
        """Return the units that domains have refused, by domain."""
        return self._by_domain

    def concerned_by(self, *, is_room_only: bool) -> Iterator[tuple[UnitKey, Blocked]]:
        """Yield those of no domain that changes may concern.

        ``is_room_only``: also those that nothing but room, or labels of nodes, may help.

        They may be removed on the way.
        """
        for keys in (self._need_room, self._others) if is_room_only else (self._others,):
            for key in list(keys):
                yield key, self[key]

    @override
    def __setitem__(self, key: UnitKey, blocked: Blocked) -> None:
        if key in self:
            del self[key]
        super().__setitem__(key, blocked)
        self._keys_like(blocked)[key] = None

    @override
    def __delitem__(self, key: UnitKey) -> None:
        self.pop(key)

    @override
    def pop(self, key: UnitKey, *default: Any) -> Any:
        if key not in self:
            return super().pop(key, *default)
        blocked = super().pop(key)
        keys = self._keys_like(blocked)
        del keys[key]
        if not keys and blocked.reason.wakes_on is WakesOn.DOMAIN:
            del self._by_domain[blocked.reason.domain]
        return blocked

    @override
    def clear(self) -> None:
        super().clear()
        for keys in (self._by_domain, self._need_room, self._others):
            keys.clear()

    def _keys_like(self, blocked: Blocked) -> dict[UnitKey, None]:
        """Return the keys of the units that the same changes may wake."""
        wakes_on = blocked.reason.wakes_on
        if wakes_on is WakesOn.DOMAIN:
            return self._by_domain.setdefault(blocked.reason.domain, {})
        is_plain = wakes_on in _ROOM and all(map(_needs_room_only, blocked.pods))
        return self._need_room if is_plain else self._others


def _needs_room_only(pod: Pod) -> bool:
    return not pod.claims and not pod.pinned and pod.shape.constraints is None
