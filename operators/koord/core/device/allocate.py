"""The devices that a pod is given on one node: one pure function for every purpose.

Placing pods, counting how many fit, preemption, and explanations all ask :func:`allocate`. It has
no side effects and gives the same answer for the same values.

Devices of several types that must be on the same PCIe switches are tried by sets of switches: the
best GPUs alone may be next to NICs that are taken, while other GPUs fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final, TypeAlias

from koord.core.device.causes import (
    ADAPTER,
    INSUFFICIENT,
    ISOLATION,
    JOINT,
    NO_FUNCTIONS,
    NO_SUCH_DEVICE,
    PRIMARY,
    SHARING,
    TEMPLATE,
    DeviceCause,
)
from koord.core.device.choice import (
    Candidate,
    Picked,
    count_preferred,
    find_candidates,
    in_order,
    pick,
)
from koord.core.device.gpu_topology import (
    choose_by_partition,
    choose_by_scope,
    must_honor,
    parts_within,
)
from koord.core.device.ledger import DeviceLedger, complete
from koord.core.device.model import (
    ANYWHERE,
    OURS,
    AllocateStrategy,
    DeviceRequest,
    DeviceRules,
    DeviceScoring,
    DeviceShare,
    DeviceTerms,
    Exclusive,
    Inventory,
    Joint,
    JointScope,
    Part,
    TypeRequest,
    make_part,
)
from koord.core.device.vendors import DEVICE_PLUGINS, AdapterRejected, AllocatedGpu
from koord.core.model.device_names import GPU, NPU_CORE, DeviceType
from koord.core.model.selectors import is_selected

MOST_SWITCHES: Final = 16
"""A node with more tries sets of the first ones only."""


def rank_switches(
    candidates: Sequence[Candidate],
    request: TypeRequest,
    other_candidates: Sequence[Sequence[Candidate]],
    other_requests: Sequence[TypeRequest],
) -> Iterator[Picked]:
    """Yield choices of the first type, one per set of switches on which all types fit.

    Fewer switches come first, and among as many those of fewer NUMA nodes. Every switch of a set
    is used by every type.
    """
    eligible = _eligible(candidates, request, other_candidates, other_requests)[:MOST_SWITCHES]
    for size in range(1, min(len(eligible), len(request.parts)) + 1):
        sets = combinations(eligible, size)
        for switches in sorted(sets, key=lambda switch_set: len({numa for numa, _ in switch_set})):
            names = [name for _, name in switches]
            for other, devices in zip(other_requests, other_candidates, strict=True):
                part = other.parts[0]
                fitting = sum(
                    device.place.pcie in names and device.fits(part) for device in devices
                )
                if fitting < max(len(other.parts), size):
                    break
            else:
                picked = _pick_on_each(candidates, request, names)
                if picked is not None:
                    yield picked


def _eligible(
    candidates: Sequence[Candidate],
    request: TypeRequest,
    other_candidates: Sequence[Sequence[Candidate]],
    other_requests: Sequence[TypeRequest],
) -> list[tuple[int, str]]:
    """Return the switches, by NUMA node and name, with a fitting device of every type."""
    smallest = min(request.parts)
    switches = {
        (candidate.place.numa, candidate.place.pcie)
        for candidate in candidates
        if candidate.fits(smallest)
    }
    for other, devices in zip(other_requests, other_candidates, strict=True):
        usable = {device.place.pcie for device in devices if device.fits(other.parts[0])}
        switches = {switch for switch in switches if switch[1] in usable}
    return sorted(switches)


def _pick_on_each(
    candidates: Sequence[Candidate], request: TypeRequest, switches: Sequence[str]
) -> Picked | None:
    """Take devices from exactly these switches: one of each first, then the rest."""
    inside = [candidate for candidate in candidates if candidate.place.pcie in switches]
    first = [
        next(
            candidate
            for candidate in inside
            if candidate.place.pcie == name and _fits_any(candidate, request)
        )
        for name in switches
    ]
    return pick(first + [candidate for candidate in inside if candidate not in first], request)


def _fits_any(candidate: Candidate, request: TypeRequest) -> bool:
    return any(candidate.fits(part) for part in request.parts)


Templates: TypeAlias = Mapping[str, Mapping[Part, str]]
"""``vendor-model`` -> amounts -> name of the template: how NPUs of a model can be sliced."""

MOST_ALTERNATIVES: Final = 32
"""Choices of the type that decides first that are tried with the other types."""
SLICED: Final = frozenset({NPU_CORE})
"""A shared request for any of these must equal a template."""


@dataclass(frozen=True, slots=True)
class AllocationSettings:
    """What allocation follows besides the ledger and the request."""

    rules: DeviceRules = OURS
    templates: Templates | None = None
    scoring: DeviceScoring | None = None


DEFAULTS: Final = AllocationSettings()


def allocate(
    ledger: DeviceLedger,
    request: DeviceRequest,
    terms: DeviceTerms = ANYWHERE,
    settings: AllocationSettings = DEFAULTS,
) -> tuple[DeviceShare, ...] | DeviceCause:
    """Return the devices for a request, sorted by type and minor; or why there are none."""
    return _NodeAttempt(ledger, request, terms, settings).run()


def drop_planned(ledger: DeviceLedger, request: DeviceRequest) -> DeviceRequest:
    """Return what decides whether a node can meet a request.

    Where NICs are planned for every choice of whole GPUs, the GPUs alone do.
    """
    joint = request.joint
    if joint is None or request.is_gpu_shared or not ledger.inventory.is_well_planned:
        return request
    secondary = joint.kinds[1:]
    types = tuple(type_ for type_ in request.types if type_.kind not in secondary)
    return replace(request, types=types, joint=replace(joint, kinds=joint.kinds[:1]))


def size(inventory: Inventory, request: TypeRequest) -> TypeRequest | DeviceCause:
    """Return how many devices a request is for on a node."""
    devices = inventory.of(request.kind)
    hint = request.hint
    if not devices:
        return DeviceCause(NO_SUCH_DEVICE, request.kind, len(request.parts))
    if hint.function_selector is not None and not any(device.groups for device in devices):
        return DeviceCause(NO_FUNCTIONS, request.kind, len(request.parts))
    if hint.strategy is AllocateStrategy.APPLY_FOR_ALL and len(request.parts) == 1:
        count = sum(is_selected(dict(device.labels), hint.selector) for device in devices)
        if not count:
            return DeviceCause(NO_SUCH_DEVICE, request.kind)
        request = replace(request, parts=request.parts * count)
    return request


@dataclass(frozen=True, slots=True)
class _NodeAttempt:
    """One request on one node."""

    ledger: DeviceLedger
    request: DeviceRequest
    terms: DeviceTerms
    settings: AllocationSettings

    def run(self) -> tuple[DeviceShare, ...] | DeviceCause:
        sized: dict[DeviceType, TypeRequest] = {}
        for type_ in self.request.types:
            exact = size(self.ledger.inventory, type_)
            if isinstance(exact, DeviceCause):
                return exact
            sized[type_.kind] = exact
        gate = self._check_sharing(sized.get(GPU))
        if gate is not None:
            return gate
        joint = self.request.joint
        chosen = self._choose_joint(sized, joint) if joint is not None and len(sized) > 1 else {}
        if isinstance(chosen, DeviceCause):
            return chosen
        for kind, type_request in sized.items():
            if kind in chosen:
                continue
            ways = self._ways(type_request)
            if isinstance(ways, DeviceCause):
                return ways
            chosen[kind] = next(iter(ways))
        shares = tuple(
            share
            for kind in sorted(chosen)
            for share in self._make_shares(sized[kind], chosen[kind])
        )
        return self._check_plugin(shares) or shares

    def _check_plugin(self, shares: tuple[DeviceShare, ...]) -> DeviceCause | None:
        """Return what a device plugin that the pod needs cannot serve."""
        vendor = self.ledger.inventory.vendor
        if vendor not in self.request.plugins:
            return None
        gpus = [
            AllocatedGpu(share.minor, dict(share.part), template=share.template)
            for share in shares
            if share.kind == GPU
        ]
        adapted = DEVICE_PLUGINS[vendor].adapt(gpus, "") if gpus else {}
        if isinstance(adapted, AdapterRejected):
            return DeviceCause(ADAPTER, GPU, len(gpus), named=adapted.describe())
        return None

    def _check_sharing(self, gpus: TypeRequest | None) -> DeviceCause | None:
        if gpus is None or not gpus.is_shared:
            return None
        inventory = self.ledger.inventory
        if inventory.unshareable:
            return DeviceCause(SHARING, GPU, named=inventory.unshareable)
        if self.request.isolation and self.request.isolation != inventory.isolation:
            return DeviceCause(ISOLATION, GPU)
        if self._is_sliced(gpus) and self._template_of(gpus) is None:
            return DeviceCause(TEMPLATE, GPU)
        return None

    @staticmethod
    def _is_sliced(gpus: TypeRequest) -> bool:
        return gpus.is_shared and any(key in SLICED for key, _ in gpus.parts[0])

    def _template_of(self, gpus: TypeRequest) -> str | None:
        templates = (self.settings.templates or {}).get(self.ledger.inventory.model, {})
        return templates.get(gpus.parts[0])

    def _candidates(self, request: TypeRequest) -> list[Candidate]:
        settings = self.settings
        return find_candidates(self.ledger, request, self.terms, settings.rules, settings.scoring)

    def _ways(self, request: TypeRequest) -> list[Picked] | DeviceCause:
        """Return ways to meet the request for one type, the best one first."""
        candidates = self._candidates(request)
        if request.kind == GPU:
            ways = self._gpu_ways(request, candidates)
            if ways is not None:
                return ways
        picked = pick(in_order(candidates), request)
        if picked is None:
            return DeviceCause(INSUFFICIENT, request.kind, len(request.parts), len(candidates))
        return [picked]

    def _gpu_ways(
        self, request: TypeRequest, candidates: Sequence[Candidate]
    ) -> list[Picked] | DeviceCause | None:
        """Return GPUs by partition, then by place; None if neither is known."""
        rules, tables = self.settings.rules, None
        if not request.is_shared:
            tables = choose_by_partition(self.ledger, self.request, request, candidates, rules)
            is_known = not isinstance(tables, DeviceCause) and not self.terms.preferred
            if is_known or must_honor(self.ledger, self.request):
                return tables
        ways = choose_by_scope(self.ledger, request, candidates, rules)
        if tables and not isinstance(tables, DeviceCause) and _is_as_good(tables, ways):
            return tables
        if isinstance(ways, DeviceCause) and not ways.is_resolvable and request.hint.scope is None:
            return None
        return ways

    def _choose_joint(
        self, sized: Mapping[DeviceType, TypeRequest], joint: Joint
    ) -> dict[DeviceType, Picked] | DeviceCause:
        """Choose the devices of the first type, then those of the others next to them."""
        primary, *secondary = (sized[kind] for kind in joint.kinds)
        ways = self._ways(primary)
        if isinstance(ways, DeviceCause):
            return DeviceCause(PRIMARY, primary.kind, len(primary.parts), ways.available, ways)
        cause = DeviceCause(JOINT, primary.kind, len(primary.parts))
        other_candidates = [self._candidates(other) for other in secondary]
        for way in self._alternatives(primary, secondary, other_candidates, ways):
            chosen = self._choose_next_to(way, secondary, other_candidates)
            if not isinstance(chosen, DeviceCause):
                return {primary.kind: way, **chosen}
            if way is ways[0]:
                cause = chosen
        return cause

    def _alternatives(
        self,
        primary: TypeRequest,
        secondary: Sequence[TypeRequest],
        other_candidates: Sequence[Sequence[Candidate]],
        ways: Sequence[Picked],
    ) -> Iterator[Picked]:
        if not self.settings.rules.tries_alternatives:
            yield ways[0]
            return
        yield from islice(ways, MOST_ALTERNATIVES)
        joint = self.request.joint
        if joint is None or joint.scope is not JointScope.SAME_PCIE:
            return
        if primary.kind == GPU and must_honor(self.ledger, self.request):
            yield from ways[MOST_ALTERNATIVES:]
            return
        candidates = self._candidates(primary)
        parts = parts_within(self.ledger.inventory, primary.hint.scope, self.settings.rules)
        for part in parts if primary.kind == GPU else ():
            inside = [candidate for candidate in candidates if part >> candidate.device.minor & 1]
            yield from rank_switches(inside, primary, other_candidates, secondary)

    def _choose_next_to(
        self,
        way: Picked,
        secondary: Sequence[TypeRequest],
        other_candidates: Sequence[Sequence[Candidate]],
    ) -> dict[DeviceType, Picked] | DeviceCause:
        joint = self.request.joint
        is_strict = joint is not None and joint.scope is JointScope.SAME_PCIE
        switches = list(dict.fromkeys(candidate.place.pcie for candidate, _ in way))
        chosen: dict[DeviceType, Picked] = {}
        for other, candidates in zip(secondary, other_candidates, strict=True):
            wanted = max(len(other.parts), len(switches))
            ordered = in_order(candidates, switches)
            fitting = [candidate for candidate in ordered if candidate.fits(other.parts[0])][
                :wanted
            ]
            least = wanted if is_strict else len(other.parts)
            if len(fitting) < least:
                return DeviceCause(
                    JOINT if is_strict else INSUFFICIENT, other.kind, least, len(fitting)
                )
            if is_strict and {candidate.place.pcie for candidate in fitting} != set(switches):
                return DeviceCause(JOINT, other.kind, least, len(fitting))
            chosen[other.kind] = [(candidate, other.parts[0]) for candidate in fitting]
        return chosen

    def _make_shares(self, request: TypeRequest, picked: Picked) -> Iterator[DeviceShare]:
        hint = request.hint
        keeps = self.settings.rules.keeps_exclusive
        template = (self._template_of(request) or "") if self._is_sliced(request) else ""
        for candidate, part in sorted(picked, key=lambda pair: pair[0].device.minor):
            total = dict(candidate.device.total)
            is_alone = keeps and hint.exclusive is Exclusive.DEVICE
            taken = make_part({key: total[key] for key, _ in part}) if is_alone else part
            yield DeviceShare(
                request.kind,
                candidate.device.minor,
                complete(taken, total) if request.kind == GPU else taken,
                candidate.functions[:1],
                template,
                is_exclusive=keeps and hint.exclusive is Exclusive.PCIE,
            )


def _is_as_good(tables: Sequence[Picked], ways: Sequence[Picked] | DeviceCause) -> bool:
    """Whether a partition has as many of the preferred devices as there can be together."""
    if isinstance(ways, DeviceCause):
        return True
    return count_preferred(tables[0]) >= count_preferred(ways[0])
