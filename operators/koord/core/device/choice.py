"""Which devices a request may use on a node, how they score, and choosing some regardless of place.

An attempt looks at candidates: devices that the hints of the pod and the terms of the attempt
allow, with their free amounts. Choosing by partition or place uses the same candidates.
Scores are from 0 to 100 per type. Source: Koordinator (deviceshare, scoringStrategy).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from koord.core.device.ledger import DeviceLedger, complete
from koord.core.device.model import (
    DeviceLocation,
    DeviceRequest,
    DeviceRules,
    DeviceScoring,
    DeviceTerms,
    Exclusive,
    Hint,
    NodeDevice,
    Part,
    TypeRequest,
)
from koord.core.model.device_names import (
    FPGA_SHARE,
    GPU,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA_SHARE,
)
from koord.core.model.selectors import is_selected
from koord.core.model.units import Amounts

MAX_POINTS: Final = 100
DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    GPU_MEMORY_RATIO: 1,
    GPU_MEMORY: 1,
    RDMA_SHARE: 1,
    FPGA_SHARE: 1,
}


def score(total: Amounts, free: Amounts, request: Amounts, scoring: DeviceScoring) -> int:
    """Return the points for amounts of which ``request`` is to be taken."""
    points = weights = 0
    for key, weight in scoring.weights.items():
        whole = total.get(key, 0)
        if whole <= 0:
            continue
        used = whole - free.get(key, 0) + request.get(key, 0)
        if scoring.packs:
            value = min(used, whole) * MAX_POINTS // whole
        else:
            value = (whole - used) * MAX_POINTS // whole if used <= whole else 0
        points += weight * value
        weights += weight
    return points // weights if weights else 0


def score_node(
    ledger: DeviceLedger, request: DeviceRequest, scoring: DeviceScoring, rules: DeviceRules
) -> int:
    """Return the sum of the points of all types that are asked for."""
    return sum(_score_type(ledger, type_, scoring, rules) for type_ in request.types)


def _score_type(
    ledger: DeviceLedger, request: TypeRequest, scoring: DeviceScoring, rules: DeviceRules
) -> int:
    total: dict[str, int] = {}
    free: dict[str, int] = {}
    requested: dict[str, int] = {}
    devices = ledger.inventory.of(request.kind)
    for device in devices:
        _add(total, dict(device.total))
        _add(free, ledger.free[request.kind, device.minor])
    if not rules.counts_all_devices:
        return score(total, free, dict(request.parts[0]), scoring)
    healthy = next((dict(device.total) for device in devices if device.total), {})
    for part in request.parts:
        _add(requested, dict(complete(part, healthy) if request.kind == GPU else part))
    return score(total, free, requested, scoring)


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for key, amount in amounts.items():
        total[key] = total.get(key, 0) + amount


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that may be used: its free amounts, free virtual functions, and points."""

    device: NodeDevice
    free: Mapping[str, int]
    functions: tuple[int, ...]
    is_used: bool
    is_preferred: bool
    points: int

    @property
    def place(self) -> DeviceLocation:
        return self.device.place or DeviceLocation()

    def fits(self, part: Part) -> bool:
        return all(self.free.get(key, 0) >= amount for key, amount in part)


Picked: TypeAlias = list[tuple[Candidate, Part]]
"""Devices, with the part taken of each."""


def count_preferred(picked: Picked) -> int:
    return sum(candidate.is_preferred for candidate, _ in picked)


def find_candidates(
    ledger: DeviceLedger,
    request: TypeRequest,
    terms: DeviceTerms,
    rules: DeviceRules,
    scoring: DeviceScoring | None,
) -> list[Candidate]:
    """Return the devices that a request may use, in the order of minors."""
    kind, hint = request.kind, request.hint
    barred = _barred_switches(ledger, request, rules)
    candidates = []
    for device in ledger.inventory.of(kind):
        key = (kind, device.minor)
        use = ledger.use_of(*key)
        free: Mapping[str, int] = ledger.free[key]
        if terms.required is not None:
            free = _cap(free, terms.required.get(key))
        if (
            not any(free.values())
            or not is_selected(dict(device.labels), hint.selector)
            or not _is_near(device, terms)
            or (device.place is not None and device.place.pcie in barred)
            or (rules.keeps_exclusive and hint.exclusive is Exclusive.DEVICE and use.users)
        ):
            continue
        functions = _free_functions(device, hint, use.functions, terms.functions.get(key))
        if hint.function_selector is not None and not functions:
            continue
        total, part = dict(device.total), dict(request.parts[0])
        points = score(total, free, part, scoring) if scoring else 0
        is_preferred = key in terms.preferred
        candidates.append(Candidate(device, free, functions, bool(use.users), is_preferred, points))
    if kind == GPU and ledger.foreign:
        return _spare_foreign(candidates, request, ledger)
    return candidates


def _cap(free: Mapping[str, int], most: Part | None) -> Mapping[str, int]:
    return {key: min(free.get(key, 0), amount) for key, amount in most or ()}


def _is_near(device: NodeDevice, terms: DeviceTerms) -> bool:
    if terms.numa is None:
        return True
    return device.place is not None and (device.place.numa < 0 or device.place.numa in terms.numa)


def _free_functions(
    device: NodeDevice, hint: Hint, taken: frozenset[int], only: frozenset[int] | None
) -> tuple[int, ...]:
    if hint.function_selector is None:
        return ()
    return tuple(
        sorted(
            number
            for group in device.groups
            if is_selected(dict(group.labels), hint.function_selector)
            for number in group.numbers
            if number not in taken and (only is None or number in only)
        )
    )


def _barred_switches(ledger: DeviceLedger, request: TypeRequest, rules: DeviceRules) -> set[str]:
    """Return the PCIe switches that others keep for themselves, or that must not be shared."""
    if not rules.keeps_exclusive or not ledger.used:
        return set()
    wants_alone = request.hint.exclusive is Exclusive.PCIE
    return {
        device.place.pcie
        for device in ledger.inventory.of(request.kind)
        if device.place is not None and device.place.pcie
        if (use := ledger.use_of(request.kind, device.minor)).exclusive
        or (wants_alone and use.users)
    }


def _spare_foreign(
    candidates: list[Candidate], request: TypeRequest, ledger: DeviceLedger
) -> list[Candidate]:
    """Leave as many whole GPUs as pods use without a record of which ones.

    Beside cards, any of which the kubelet may have given out, nobody shares an unused GPU. Parts
    that nobody has recorded are taken to be on the first unused ones, where we would put them.
    """
    unused = [candidate for candidate in candidates if not candidate.is_used]
    if request.is_shared:
        unused.sort(key=lambda candidate: candidate.device.minor)
        spared = unused if ledger.unrecorded.cards else unused[: ledger.foreign]
        return [candidate for candidate in candidates if candidate not in spared]
    spare = len(unused) - ledger.foreign
    return candidates if spare >= len(request.parts) else []


def pick(candidates: Sequence[Candidate], request: TypeRequest) -> Picked | None:
    """Take the first candidates that give the parts of a request; None if they do not suffice."""
    parts = request.parts
    if request.is_uniform:
        fitting = [candidate for candidate in candidates if candidate.fits(parts[0])][: len(parts)]
        return (
            [(candidate, parts[0]) for candidate in fitting] if len(fitting) == len(parts) else None
        )
    return _match(candidates, parts)


def _match(candidates: Sequence[Candidate], parts: Sequence[Part]) -> Picked | None:
    """Give every part a device of its own (augmenting paths); unequal parts are few."""
    part_on: dict[int, int] = {}

    def place(part: int, tried: set[int]) -> bool:
        for index, candidate in enumerate(candidates):
            if index in tried or not candidate.fits(parts[part]):
                continue
            tried.add(index)
            if index not in part_on or place(part_on[index], tried):
                part_on[index] = part
                return True
        return False

    if not all(place(part, set()) for part in range(len(parts))):
        return None
    return [(candidates[index], parts[part]) for index, part in sorted(part_on.items())]


def in_order(candidates: Iterable[Candidate], switches: Sequence[str] = ()) -> list[Candidate]:
    """Order candidates: preferred ones, then by points, then by minor.

    Those at the given PCIe switches come first, one switch after the other, in rounds; unless
    some candidates are preferred.
    """
    ordered = sorted(
        candidates,
        key=lambda candidate: (
            not candidate.is_preferred,
            -candidate.points,
            candidate.device.minor,
        ),
    )
    if not switches or any(candidate.is_preferred for candidate in ordered):
        return ordered
    near = [
        [candidate for candidate in ordered if candidate.place.pcie == switch]
        for switch in switches
    ]
    rounds = [
        candidate for level in zip_longest(*near) for candidate in level if candidate is not None
    ]
    return rounds + [
        candidate for candidate in ordered if candidate.place.pcie not in set(switches)
    ]
