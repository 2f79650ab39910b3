"""Which device requests are valid, and how one becomes a list of parts, one per device.

Source of the table and the splits: Koordinator (deviceshare). A request is valid if its resources
of one type are exactly one of the listed combinations and obey its rule. What Koordinator checks in
an admission webhook when a pod is created are functions here, so that they can run where no webhook
has; limits are treated like requests, from which they must not differ.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from koord.core.device.model import (
    NO_HINT,
    AllocateStrategy,
    DeviceRequest,
    DeviceRules,
    Exclusive,
    Hint,
    Joint,
    Part,
    PartitionHint,
    TypeRequest,
    make_part,
)
from koord.core.device.vendors import find_plugins
from koord.core.model.device_names import (
    AMD_GPU,
    CARDS,
    DCU_GPU,
    FPGA_SHARE,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    RDMA_SHARE,
    WHOLE,
    DeviceType,
    group_by_type,
    needs_device_object,
    rename,
)
from koord.core.model.units import Amounts

_FIELD: Final = "pod.spec.containers[*].resources.requests"
_GPU_PARTS: Final = (GPU_CORE, GPU_MEMORY_RATIO)
_GPU_NAMES: Final = frozenset({KOORD_GPU, GPU_SHARED, GPU_MEMORY, *_GPU_PARTS})


# --- what the webhook of Koordinator does --------------------------------------------------------


def normalise(amounts: Amounts, *, is_strict: bool = False) -> dict[str, int]:
    """Replace ``gpu`` by its two parts, and add on how many GPUs the request is spread.

    With ``is_strict`` exactly as Koordinator: also where the result is not valid (whole NPUs), or
    where it hides that the request contradicts itself (``gpu`` beside one of its parts).
    """
    normal = dict(rename(amounts))
    if _GPU_NAMES.isdisjoint(normal) or (NPU_CORE in normal and not is_strict):
        return normal
    if KOORD_GPU in normal and (is_strict or normal.keys().isdisjoint(_GPU_PARTS)):
        normal |= dict.fromkeys(_GPU_PARTS, normal.pop(KOORD_GPU))
    if GPU_SHARED not in normal and KOORD_GPU not in normal:
        size = normal.get(GPU_MEMORY_RATIO, normal.get(GPU_CORE, 0))
        is_whole = size > WHOLE and size % WHOLE == 0
        normal[GPU_SHARED] = size // WHOLE if is_whole else 1
    return normal


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """What is wrong with the GPU requests of a container.

    ``amount`` is the invalid value; None if the combination of resources is forbidden.
    """

    message: str
    amount: int | None = None

    def describe(self) -> str:
        """Return the message of Koordinator's webhook."""
        kind = "Forbidden" if self.amount is None else f'Invalid value: "{self.amount}"'
        return f"{_FIELD}: {kind}: {self.message}"


def describe_problems(problems: Iterable[RequestProblem]) -> str:
    """Return all problems as the API server reports them; empty if there are none."""
    texts = list(dict.fromkeys(problem.describe() for problem in problems))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def find_problems(amounts: Amounts) -> Iterator[RequestProblem]:
    """Yield the problems of the GPU requests of a container."""
    requests = rename(amounts)
    if KOORD_GPU in requests and GPU_SHARED in requests:
        yield RequestProblem("declare GPU and GPU share at same time")
    elif KOORD_GPU in requests:
        yield from _check_gpu(requests[KOORD_GPU])
    elif GPU_SHARED in requests:
        yield from _check_shared(requests)


def _check_gpu(gpu: int) -> Iterator[RequestProblem]:
    if not gpu:
        yield RequestProblem("the requested GPU must be greater than zero", gpu)
    if gpu > WHOLE and gpu % WHOLE:
        yield RequestProblem("the requested GPU must be percentage of 100", gpu)


def _check_shared(requests: Amounts) -> Iterator[RequestProblem]:
    shared = requests[GPU_SHARED]
    if not shared:
        yield RequestProblem("the requested GPU must be greater than zero", shared)
    if requests.get(NPU_CORE):
        return
    memory, ratio = requests.get(GPU_MEMORY, 0), requests.get(GPU_MEMORY_RATIO, 0)
    if not memory and not ratio:
        yield RequestProblem("GPU memory and GPU memory ratio all is zero")
    if memory and ratio:
        yield RequestProblem("declare GPU memory and GPU memory ratio at same time")
    for name, word in ((GPU_CORE, "gpuCore"), (GPU_MEMORY_RATIO, "gpuMemoryRatio")):
        amount = requests.get(name, 0)
        if shared and amount % shared:
            yield RequestProblem(f"the requested {word} must multiple of shared", amount)


_Rule: TypeAlias = Callable[[Amounts], bool]
MOST_DEVICES: Final = 1024
"""No node has more; larger requests are kept as one more than this, and fit nowhere."""
_SPLIT: Final = (GPU_CORE, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY_RATIO, GPU_MEMORY)
"""What is divided by the number of GPUs."""


# --- requests of a pod ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """The resources of one type are no valid request.

    ``unit``: the resource whose amount is neither a part of a device nor whole devices; "" if the
    combination is wrong. ``nearest``: a valid request close to it, if one was found.
    """

    amounts: Part
    unit: str = ""
    nearest: Part = ()

    @property
    def problems(self) -> list[str]:
        """What Koordinator's webhook refuses when such a pod is created: field and value."""
        return [problem.describe() for problem in find_problems(dict(self.amounts))]

    def describe(self) -> str:
        """Return the message of Koordinator."""
        if not self.amounts:
            return "pod request should not be empty"
        if self.unit:
            return f"invalid resource unit {self.unit}: {dict(self.amounts)[self.unit]}"
        return f"invalid resource device requests: [{' '.join(key for key, _ in self.amounts)}]"


@dataclass(frozen=True, slots=True)
class DeviceAllocationHints:
    """What the annotations and labels of a pod say about its devices.

    ``gpu_parts``: amounts per GPU, where they are not equal. ``problems`` are annotations that
    cannot be read: field and what is wrong.
    """

    hints: tuple[tuple[DeviceType, Hint], ...] = ()
    joint: Joint | None = None
    partition: PartitionHint | None = None
    isolation: str = ""
    gpu_parts: tuple[Part, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


NO_ALLOCATION_HINTS: Final = DeviceAllocationHints()


def _is_whole(amount: int) -> bool:
    return amount <= WHOLE or amount % WHOLE == 0


def _obey_percent(*keys: str) -> _Rule:
    return lambda amounts: all(_is_whole(amounts[key]) for key in keys)


def _obey_shared(amounts: Amounts) -> bool:
    shared = amounts[GPU_SHARED]
    return all(
        amounts[key] % shared == 0 and amounts[key] // shared <= WHOLE
        for key in (GPU_CORE, GPU_MEMORY_RATIO)
        if key in amounts
    )


def _obey_npu(amounts: Amounts) -> bool:
    return amounts[GPU_SHARED] <= 1 and amounts.get(NPU_DVPP, 0) <= WHOLE


def _anything(amounts: Amounts) -> bool:  # noqa: ARG001 - one of the rules
    return True


_UNITS: Final = frozenset({KOORD_GPU, FPGA_SHARE, RDMA_SHARE})
"""Hundredths of one device, or whole devices; always alone."""
_RULES: Final[Mapping[frozenset[str], _Rule]] = {
    frozenset(keys): rule
    for keys, rule in (
        ((NVIDIA_GPU,), _anything),
        ((AMD_GPU,), _anything),
        ((DCU_GPU,), _anything),
        ((KOORD_GPU,), _obey_percent(KOORD_GPU)),
        ((FPGA_SHARE,), _obey_percent(FPGA_SHARE)),
        ((RDMA_SHARE,), _obey_percent(RDMA_SHARE)),
        ((GPU_MEMORY,), _anything),
        ((GPU_MEMORY_RATIO,), _obey_percent(GPU_MEMORY_RATIO)),
        ((GPU_CORE, GPU_MEMORY), _obey_percent(GPU_CORE)),
        ((GPU_CORE, GPU_MEMORY_RATIO), _obey_percent(GPU_CORE, GPU_MEMORY_RATIO)),
        ((NPU_CORE, GPU_MEMORY_RATIO), _obey_percent(GPU_MEMORY_RATIO)),
        ((GPU_SHARED, GPU_MEMORY), _obey_shared),
        ((GPU_SHARED, GPU_MEMORY_RATIO), _obey_shared),
        ((GPU_SHARED, GPU_CORE, GPU_MEMORY), _obey_shared),
        ((GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO), _obey_shared),
        ((GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY), _obey_npu),
        ((GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY), _obey_npu),
    )
}


def _is_valid(amounts: Amounts) -> bool:
    rule = _RULES.get(frozenset(amounts))
    return rule is not None and rule(amounts)


def convert(amounts: Amounts) -> dict[str, int] | InvalidRequest:
    """Check the requests of one type, and return them in normal form: whole GPUs as shares."""
    if not _is_valid(amounts):
        unit = "" if len(amounts) > 1 else next(iter(_UNITS & amounts.keys()), "")
        return InvalidRequest(make_part(amounts), unit, _find_nearest(amounts))
    for card in CARDS:
        if card in amounts:
            return dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO), WHOLE * amounts[card])
    if KOORD_GPU in amounts:
        return dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO), amounts[KOORD_GPU])
    return dict(amounts)


def _find_nearest(amounts: Amounts) -> Part:
    """Return a valid request that differs in one resource, if there is one."""
    return next((make_part(variant) for variant in _variants(amounts) if _is_valid(variant)), ())


def _variants(amounts: Amounts) -> Iterator[dict[str, int]]:
    rounded = {
        key: amount if _is_whole(amount) else amount // WHOLE * WHOLE + WHOLE
        for key, amount in amounts.items()
        if key in _UNITS | {GPU_CORE, GPU_MEMORY_RATIO}
    }
    yield {**amounts, **rounded}
    most = max(amounts.get(GPU_CORE, 0), amounts.get(GPU_MEMORY_RATIO, 0))
    yield {**amounts, GPU_SHARED: max(1, -(-most // WHOLE))}
    for key in (GPU_MEMORY_RATIO, GPU_MEMORY):
        yield {**amounts, key: amounts.get(key, 0) or WHOLE * amounts.get(GPU_SHARED, 1)}
    for dropped in sorted(amounts):
        yield {key: amount for key, amount in amounts.items() if key != dropped}


def split_gpus(amounts: Amounts, rules: DeviceRules) -> tuple[int, Part, bool]:
    """Return the number of GPUs, the part of each, and whether others may use the rest."""
    if rules.fills_in_shared:
        amounts = normalise(amounts)
    ratio, shared = (amounts.get(key, 0) for key in (GPU_MEMORY_RATIO, GPU_SHARED))
    if shared > 0:
        count = shared
    elif ratio > WHOLE and ratio % WHOLE == 0:
        count = ratio // WHOLE
    else:
        count = 1
    part = {key: amounts[key] // count for key in _SPLIT if amounts.get(key, 0)}
    count = min(count, MOST_DEVICES + 1)
    if GPU_MEMORY_RATIO in part:
        return count, make_part(part), part[GPU_MEMORY_RATIO] < WHOLE
    return count, make_part(part), GPU_MEMORY in part


def split_others(kind: DeviceType, amount: int, hint: Hint) -> TypeRequest:
    """Return the request for ``amount`` of devices that are no GPUs."""
    name = {"rdma": RDMA_SHARE, "fpga": FPGA_SHARE}[kind]
    count, per_device = 1, amount
    if amount > WHOLE and amount % WHOLE == 0:
        count, per_device = amount // WHOLE, WHOLE
    elif hint.strategy is AllocateStrategy.REQUESTS_AS_COUNT:
        count, per_device = amount, WHOLE if hint.exclusive is Exclusive.DEVICE else 1
    parts = (((name, per_device),),) * min(count, MOST_DEVICES + 1)
    return TypeRequest(kind, parts, is_shared=per_device < WHOLE, hint=hint)


def read_request(
    requests: Amounts, allocation_hints: DeviceAllocationHints, rules: DeviceRules
) -> DeviceRequest | InvalidRequest | None:
    """Return what a pod asks for; None if it asks for no device."""
    groups: dict[DeviceType, Amounts] = {}
    for kind, amounts in group_by_type(requests).items():
        normal = convert(amounts)
        if isinstance(normal, InvalidRequest):
            return normal
        groups[kind] = normal
    request = read_normal(groups, allocation_hints, rules) if groups else None
    if not isinstance(request, DeviceRequest):
        return request
    needs = needs_device_object(requests)
    return replace(request, plugins=find_plugins(requests), needs_device_object=needs)


def read_normal(
    groups: Mapping[DeviceType, Amounts],
    allocation_hints: DeviceAllocationHints,
    rules: DeviceRules,
) -> DeviceRequest | InvalidRequest:
    """Return what a pod asks for by requests in normal form."""
    types: list[TypeRequest] = []
    hints = dict(allocation_hints.hints)
    for kind, amounts in sorted(groups.items()):
        hint = hints.get(kind, NO_HINT)
        if kind == GPU:
            type_request = _read_gpus(amounts, allocation_hints.gpu_parts, hint, rules)
        else:
            type_request = split_others(kind, next(iter(amounts.values())), hint)
        if isinstance(type_request, InvalidRequest):
            return type_request
        types.append(type_request)
    joint = _reduce_joint(allocation_hints.joint, types)
    return DeviceRequest(
        tuple(types), joint, allocation_hints.partition, allocation_hints.isolation
    )


def _read_gpus(
    amounts: Amounts, parts: Sequence[Part], hint: Hint, rules: DeviceRules
) -> TypeRequest | InvalidRequest:
    if not parts:
        count, part, is_shared = split_gpus(amounts, rules)
        return TypeRequest(GPU, (part,) * count, is_shared, hint)
    sums: dict[str, int] = {}
    for part in parts:
        for key, amount in part:
            sums[key] = sums.get(key, 0) + amount
    expected = {key: amount for key, amount in amounts.items() if key != GPU_SHARED}
    if not all(parts) or sums != expected or amounts.get(GPU_SHARED, len(parts)) != len(parts):
        sums[GPU_SHARED] = len(parts)
        return InvalidRequest(make_part(amounts), nearest=make_part(sums))
    return TypeRequest(GPU, tuple(parts), is_shared=True, hint=hint)


def _reduce_joint(joint: Joint | None, types: Sequence[TypeRequest]) -> Joint | None:
    """Leave out types that are not asked for, and those that are taken from every device."""
    if joint is None:
        return None
    requested = {
        type_.kind for type_ in types if type_.hint.strategy is not AllocateStrategy.APPLY_FOR_ALL
    }
    kinds = tuple(kind for kind in dict.fromkeys(joint.kinds) if kind in requested)
    return Joint(kinds, joint.scope) if kinds else None
