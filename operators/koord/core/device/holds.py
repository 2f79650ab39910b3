"""Holds of devices: the remainder of a hold, which of its devices a pod gets, what to hold.

Devices are instances: the remainders of two of them are never added up. A pod gets its devices out
of holds if these suffice; of the types in ``strict`` it gets no others. A hold around pods that
run includes all that these have; that does not limit which devices are added.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from koord.core.device.allocate import AllocationSettings, allocate
from koord.core.device.causes import INSUFFICIENT, DeviceCause
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
    """Return the remainder of shares, device by device."""
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

    ``left`` are those of all holds that it may use together, and ``strict`` the types of which
    none of them lets it use others.
    """

    left: tuple[DeviceShare, ...]
    strict: frozenset[DeviceType] = frozenset()

    def after(self, shares: tuple[DeviceShare, ...]) -> "DeviceHoldTerms":
        """Return the terms that remain after a pod has got its devices."""
        return DeviceHoldTerms(subtract(self.left, shares), self.strict)

    def terms(self, lifted: DeviceLedger, request: DeviceRequest) -> Iterator[DeviceTerms]:
        """Yield the terms to try: held devices alone first; in ``lifted`` they are free."""
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
        """Return usable amounts: of these types the remainder of holds, of others all free."""
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


# --- around pods that run ------------------------------------------------------------------------


def allocate_around(
    ledger: DeviceLedger,
    request: DeviceRequest,
    inside: tuple[DeviceShare, ...],
    settings: AllocationSettings,
) -> tuple[DeviceShare, ...] | DeviceCause:
    """Return the devices for a request that include ``inside``, which counts as used."""
    lifted = ledger.with_shares(inside, -1)
    keys = frozenset((share.kind, share.minor) for share in inside)
    kinds = {kind for kind, _ in keys}
    free = {
        key: tuple(amounts.items())
        for key, amounts in lifted.free.items()
        if key in keys or key[0] not in kinds
    }
    for terms in (replace(ANYWHERE, preferred=keys), DeviceTerms(required=free)):
        shares = allocate(lifted, request, terms, settings)
        if not isinstance(shares, DeviceCause) and not subtract(inside, shares):
            return shares
    return _add(ledger, request, inside, settings)


def _add(
    ledger: DeviceLedger,
    request: DeviceRequest,
    inside: tuple[DeviceShare, ...],
    settings: AllocationSettings,
) -> tuple[DeviceShare, ...] | DeviceCause:
    """Add whole devices to those that pods have."""
    types = []
    for type_ in request.types:
        of_type = [share for share in inside if share.kind == type_.kind]
        if of_type and (
            type_.is_shared or not all(_is_enough(share, type_.parts[0]) for share in of_type)
        ):
            return DeviceCause(INSUFFICIENT, type_.kind, len(type_.parts))
        if len(of_type) < len(type_.parts):
            types.append(replace(type_, parts=type_.parts[len(of_type) :]))
    missing = replace(request, types=tuple(types))
    added = allocate(ledger, missing, settings=settings) if types else ()
    if isinstance(added, DeviceCause):
        return added
    return tuple(sorted((*inside, *added), key=lambda share: (share.kind, share.minor)))


def _is_enough(share: DeviceShare, part: Iterable[tuple[str, int]]) -> bool:
    amounts = dict(share.part)
    return all(amounts.get(name, 0) >= amount for name, amount in part)
