"""Devices for room that is held around pods that run: all that these have, and more.

What the pods have must be included; it does not limit which devices are added.
"""

from collections.abc import Iterable
from dataclasses import replace

from koord.core.device.allocate import AllocationSettings, allocate
from koord.core.device.causes import INSUFFICIENT, DeviceCause
from koord.core.device.holds import subtract
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import ANYWHERE, DeviceRequest, DeviceShare, DeviceTerms


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
        there = [share for share in inside if share.kind == type_.kind]
        if there and (
            type_.is_shared or not all(_is_enough(share, type_.parts[0]) for share in there)
        ):
            return DeviceCause(INSUFFICIENT, type_.kind, len(type_.parts))
        if len(there) < len(type_.parts):
            types.append(replace(type_, parts=type_.parts[len(there) :]))
    more = replace(request, types=tuple(types))
    added = allocate(ledger, more, settings=settings) if types else ()
    if isinstance(added, DeviceCause):
        return added
    return tuple(sorted((*inside, *added), key=lambda share: (share.kind, share.minor)))


def _is_enough(share: DeviceShare, part: Iterable[tuple[str, int]]) -> bool:
    amounts = dict(share.part)
    return all(amounts.get(name, 0) >= amount for name, amount in part)
