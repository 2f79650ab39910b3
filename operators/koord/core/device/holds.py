"""Devices that are held for pods: what is left of them, and which of them a pod gets.

Devices are instances: what is left of two of them is never added up. A pod gets its devices out of
what is held if that suffices; of the types in ``strict`` it gets no others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    ANYWHERE,
    DeviceKey,
    DeviceRequest,
    DeviceShare,
    DeviceTerms,
    Part,
)
from koord.core.model.device_names import TYPE_OF, DeviceType


@dataclass(frozen=True)
class DeviceHold:
    """Devices that are held (``shares``), and what pods use of them, or besides them (``used``)."""

    shares: tuple[DeviceShare, ...] = ()
    used: tuple[DeviceShare, ...] = ()

    @cached_property
    def left(self) -> tuple[DeviceShare, ...]:
        return subtract(self.shares, self.used)

    def with_use(self, shares: tuple[DeviceShare, ...], count: int) -> "DeviceHold":
        """Return it with one more pod that uses shares (1), or one less (-1)."""
        if count > 0:
            return DeviceHold(self.shares, (*self.used, *shares))
        used = list(self.used)
        for share in shares:
            if share in used:
                used.remove(share)
        return DeviceHold(self.shares, tuple(used))

    def strict_types(self, names: Iterable[str]) -> frozenset[DeviceType]:
        """Return the types that are held, of those that these resources ask for."""
        return frozenset(share.kind for share in self.shares) & {
            TYPE_OF.get(name) for name in names
        }


NO_HOLD: Final = DeviceHold()


def subtract(shares: Iterable[DeviceShare], used: Iterable[DeviceShare]) -> tuple[DeviceShare, ...]:
    """Return what is left of shares, device by device."""
    taken: dict[DeviceKey, dict[str, int]] = {}
    functions: dict[DeviceKey, set[int]] = {}
    for share in used:
        amounts = taken.setdefault((share.kind, share.minor), {})
        for name, amount in share.part:
            amounts[name] = amounts.get(name, 0) + amount
        functions.setdefault((share.kind, share.minor), set()).update(share.functions)
    return tuple(_subtract(shares, taken, functions)) if taken else tuple(shares)


def _subtract(
    shares: Iterable[DeviceShare],
    taken: dict[DeviceKey, dict[str, int]],
    functions: dict[DeviceKey, set[int]],
) -> Iterator[DeviceShare]:
    for share in shares:
        key = (share.kind, share.minor)
        if key not in taken:
            yield share
            continue
        part = tuple((name, n - taken[key].get(name, 0)) for name, n in share.part)
        part = tuple((name, n) for name, n in part if n > 0)
        left = tuple(function for function in share.functions if function not in functions[key])
        if part or left:
            yield replace(share, part=part, functions=left)


@dataclass(frozen=True)
class DeviceHoldTerms:
    """What a pod may use of held devices; compared by value.

    ``left`` are those of all holders that it may use together, and ``strict`` the types of which
    none of them lets it use others.
    """

    left: tuple[DeviceShare, ...]
    strict: frozenset[DeviceType] = frozenset()

    def after(self, shares: tuple[DeviceShare, ...]) -> "DeviceHoldTerms":
        """Return what is left after a pod has got its devices."""
        return DeviceHoldTerms(subtract(self.left, shares), self.strict)

    def terms(self, lifted: DeviceLedger, request: DeviceRequest) -> Iterator[DeviceTerms]:
        """Yield the terms to try: only what is held first; ``lifted`` has it free."""
        requested_types = {type_.kind for type_ in request.types}
        held_types = {share.kind for share in self.left} & requested_types
        strict_types = self.strict & requested_types
        if held_types:
            yield DeviceTerms(required=self._required(lifted, held_types | strict_types))
        if not held_types or not held_types <= self.strict:
            preferred = frozenset((share.kind, share.minor) for share in self.left)
            required = self._required(lifted, strict_types) if strict_types else None
            yield replace(ANYWHERE, required=required, preferred=preferred)

    def _required(self, lifted: DeviceLedger, kinds: Iterable[DeviceType]) -> dict[DeviceKey, Part]:
        """Return what may be used: of these types what is left, of the others what is free."""
        kinds = set(kinds)
        usable = {
            key: tuple(free.items()) for key, free in lifted.free.items() if key[0] not in kinds
        }
        for share in self.left:
            if share.kind in kinds:
                key = (share.kind, share.minor)
                sums = dict(usable.get(key, ()))
                for name, amount in share.part:
                    sums[name] = sums.get(name, 0) + amount
                usable[key] = tuple(sums.items())
        return usable
