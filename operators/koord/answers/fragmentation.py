"""Whether free GPUs lie apart: by model, what is free where, and what no pod can use.

Only whole GPUs are counted as free; one that is shared counts as used. Every GPU is in exactly one
of used, held, free, stranded, broken and down. Decides nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from koord.answers.encoding import encode
from koord.answers.pod_tallies import PodTallies, tally_pods
from koord.core.device.fragmentation import SizeLoss, measure_losses
from koord.core.device.ledger import DeviceLedger
from koord.core.device.plugin import Devices
from koord.core.device.status import DeviceState, NodeDeviceStatus, observe_devices
from koord.core.device.vendors import MODEL_LABEL
from koord.core.engine.arrays import Ints
from koord.core.engine.cycle import Cycle
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import CARDS, GPU
from koord.core.model.nodes import Node
from koord.core.model.pod_charge import node_charged
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.units import CPU, MEMORY, PODS
from koord.isolation import Isolation

if TYPE_CHECKING:
    from koord.core.device.model import DeviceReport

_MODEL_LABELS: Final = (MODEL_LABEL, "nvidia.com/gpu.product", "amd.com/gpu.product-name")
_STOPPING: Final = frozenset({"NoSchedule", "NoExecute"})
CORDONED: Final = "cordoned"
TAINTED: Final = "tainted"
_ISOLATED: Final = Isolation("answers")


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of a node; ``used``, ``held``, ``free``, ``stranded`` and ``broken`` add up.

    ``used`` are those of pods, ``shared`` of them in part; ``held`` those of reservations that no
    pod uses; ``stranded`` are free and no pod can take them, for ``stranded_by``. A node that is
    ``down`` offers none of them.
    """

    node: str
    model: str
    used: int
    held: int
    free: int
    broken: int = 0
    shared: int = 0
    stranded: int = 0
    stranded_by: str = ""
    is_down: bool = False

    @property
    def total(self) -> int:
        return self.used + self.held + self.free + self.stranded + self.broken


@dataclass(frozen=True, slots=True)
class ModelFragmentation:
    """The GPUs of one model: ``free_by_node`` is how many nodes have so many free ones."""

    model: str
    nodes: int
    total: int
    used: int
    held: int
    free: int
    stranded: Mapping[str, int]
    broken: int
    down: int
    shared: int
    free_by_node: Mapping[int, int]
    sizes: tuple[SizeLoss, ...]


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The GPUs of all models."""

    models: tuple[ModelFragmentation, ...]


def view_fragmentation(state: ClusterState) -> tuple[ModelFragmentation, ...]:
    """Return the fragmentation by model, sorted by its name."""
    state.refresh()
    counted, by_model = _counted_nodes(state), dict[str, list[NodeGpus]]()
    for gpus in counted.count(state):
        by_model.setdefault(gpus.model, []).append(gpus)
    return tuple(counted.sum_up(model, nodes) for model, nodes in sorted(by_model.items()))


def sum_up(model: str, nodes: Sequence[NodeGpus]) -> ModelFragmentation:
    """Return what the nodes of a model have together."""
    up = [gpus for gpus in nodes if not gpus.is_down]
    stranded: Counter[str] = Counter()
    for gpus in up:
        stranded[gpus.stranded_by] += gpus.stranded
    free = [gpus.free for gpus in up]
    return ModelFragmentation(
        model=model,
        nodes=len(nodes),
        total=sum(gpus.total for gpus in nodes),
        used=sum(gpus.used for gpus in up),
        held=sum(gpus.held for gpus in up),
        free=sum(free),
        stranded={cause: count for cause, count in sorted(stranded.items()) if count},
        broken=sum(gpus.broken for gpus in up),
        down=sum(gpus.total for gpus in nodes if gpus.is_down),
        shared=sum(gpus.shared for gpus in up),
        free_by_node=dict(sorted(Counter(free).items())),
        sizes=measure_losses(free),
    )


@dataclass(frozen=True, slots=True)
class GpuCounts:
    """The GPUs of one model, counted quickly: reserved ones are used, stranded ones free."""

    model: str
    used: int
    free: int
    broken: int
    down: int
    sizes: tuple[SizeLoss, ...]


def count_by_model(state: ClusterState) -> tuple[GpuCounts, ...]:
    """Return the GPUs by model, sorted by its name, without looking at pods."""
    devices, table = state.plugin(Devices), state.table
    columns = [table.columns[card] for card in CARDS if card in table.columns]
    counts_of: dict[DeviceLedger, tuple[int, int, int]] = {}
    by_model: dict[str, list[NodeGpus]] = {}
    for name, row in table.live_rows():
        node, ledger = table.node_at(row), devices.ledger_of(name)
        if ledger is not None and ledger.inventory.of(GPU):
            if ledger not in counts_of:
                counts_of[ledger] = _count_of_ledger(ledger)
            used, free, broken = counts_of[ledger]
        else:
            total = sum(node.allocatable.get(card, 0) for card in CARDS)
            used = min(sum(int(table.used[column, row]) for column in columns), total)
            free, broken = total - used, 0
        if used or free or broken:
            gpus = NodeGpus(name, "", used, 0, free, broken, is_down=node.has_failed)
            by_model.setdefault(model_of(node), []).append(gpus)
    summed = {model: sum_up(model, nodes) for model, nodes in sorted(by_model.items())}
    return tuple(
        GpuCounts(model, gpus.used, gpus.free, gpus.broken, gpus.down, gpus.sizes)
        for model, gpus in summed.items()
    )


def _count_of_ledger(ledger: DeviceLedger) -> tuple[int, int, int]:
    """Return how many GPUs are used, free and broken."""
    gpus = ledger.inventory.of(GPU)
    healthy = [gpu for gpu in gpus if any(amount for _, amount in gpu.total)]
    free = sum(not ledger.use_of(GPU, gpu.minor).users for gpu in healthy)
    free = max(0, free - ledger.foreign)
    return len(healthy) - free, free, len(gpus) - len(healthy)


def count_gpus_of_nodes(state: ClusterState) -> Mapping[str, NodeGpus]:
    """Return the GPUs of every node that has some, by its name."""
    return {gpus.node: gpus for gpus in find_gpus(state)}


def find_gpus(state: ClusterState) -> Iterator[NodeGpus]:
    """Yield the GPUs of every node that has some."""
    yield from _counted_nodes(state).count(state)


def _counted_nodes(state: ClusterState) -> "CountedNodes":
    return state.follower(CountedNodes, CountedNodes)


class CountedNodes:
    """The GPUs of the nodes of one state, which are counted again where something has changed."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[Node, DeviceReport | None, NodeGpus]] = {}
        """Node -> the objects that its GPUs were counted from, and they."""
        self._use_read = 0
        """The last change of the use of devices that was counted."""
        self._amounts: Ints | None = None
        """What there was and what was used of each row then, of all that GPUs are counted by."""
        self._per_gpu: Mapping[str, int] = {}
        self._summed: dict[str, tuple[list[NodeGpus], ModelFragmentation]] = {}
        """Model -> the nodes that were summed up last, and what they have together."""

    def _compare(self, amounts: Ints) -> list[bool]:
        """Return which rows have other amounts than the last time."""
        before, self._amounts = self._amounts, amounts
        if before is None or before.shape != amounts.shape:
            return [True] * amounts.shape[1]
        changed: list[bool] = (before != amounts).any(axis=0).tolist()
        return changed

    def sum_up(self, model: str, nodes: list[NodeGpus]) -> ModelFragmentation:
        """Return what the nodes of a model have together; of the same ones as before the same."""
        before, summed = self._summed.get(model, (None, None))
        if summed is None or before != nodes:
            summed = sum_up(model, nodes)
            self._summed[model] = nodes, summed
        return summed

    def count(self, state: ClusterState) -> Iterator[NodeGpus]:
        devices, cycle = state.plugin(Devices), state.open_cycle()
        tallies = tally_pods(state)
        reserving = tallies.reserving.values()
        holding = frozenset(pod.key for pod in reserving)
        partly_held = {where for pod in reserving if (where := node_charged(pod))}
        per_gpu = _find_usual_pod(tallies)
        before = self._counted if per_gpu == self._per_gpu else {}
        self._counted, self._per_gpu = {}, per_gpu
        is_other = self._compare(_list_amounts(cycle))
        use = devices.changes_of_use
        is_used_otherwise = frozenset(use.after(self._use_read))
        self._use_read = use.last

        def count(node: Node, row: int) -> NodeGpus:
            report = devices.reports.get(node.name)
            status = None if report is None else observe_devices(devices, report, state.pods)
            if status is not None and GPU in status.counts:
                gpus = _count_reported(node, status, holding)
            else:
                by_pods = None
                if node.name in partly_held:
                    by_pods = _used_by_pods(state.pods_on(node.name))
                gpus = _count_plain(node, cycle, row, by_pods)
            return _strand(gpus, node, cycle, row, per_gpu) if gpus.total else gpus

        for name, row in state.table.live_rows():
            node, report, kept = (
                state.table.node_at(row),
                devices.reports.get(name),
                before.get(name),
            )
            is_same = kept is not None and kept[0] is node and kept[1] is report
            if kept is not None and is_same and not is_other[row] and name not in is_used_otherwise:
                gpus: NodeGpus | None = kept[2]
            else:
                gpus = _ISOLATED.call(name, count, node, row)
                if kept is not None and gpus == kept[2]:
                    gpus = kept[2]  # the same object as long as it says the same
            if gpus is None:
                continue
            if name not in partly_held:
                self._counted[name] = node, report, gpus
            if gpus.total:
                yield gpus


def _list_amounts(cycle: Cycle) -> Ints:
    """Return what is there and what is used of each row, of all that GPUs are counted by."""
    columns = [cycle.table.columns.get(name) for name in (*sorted(CARDS), CPU, MEMORY, PODS)]
    present = [column for column in columns if column is not None]
    return np.concatenate((cycle.table.allocatable[present], cycle.used[present]))


def _count_reported(node: Node, status: NodeDeviceStatus, holding: frozenset[str]) -> NodeGpus:
    """Count the GPUs of a node that reports which it has."""
    gpus = [device for device in status.devices if device.kind == GPU]
    healthy = [device for device in gpus if device.is_healthy]
    taken = [device for device in healthy if device.pods]
    held = sum(holding.issuperset(device.pods) for device in taken)
    free = len(healthy) - len(taken)
    unknown = min(status.foreign, free)  # nobody knows which, and they are not free
    return NodeGpus(
        node.name,
        model_of(node),
        used=len(taken) - held + unknown,
        held=held,
        free=free - unknown,
        broken=len(gpus) - len(healthy),
        shared=sum(map(_is_shared, taken)),
        is_down=node.has_failed,
    )


def _is_shared(device: DeviceState) -> bool:
    return any(amount for _, amount in device.free)


def _count_plain(node: Node, cycle: Cycle, row: int, by_pods: int | None) -> NodeGpus:
    """Count the GPUs of a node of which only the number is known; ``by_pods`` None: of no other."""
    total = sum(node.allocatable.get(card, 0) for card in CARDS)
    columns = [column for card in CARDS if (column := cycle.table.columns.get(card)) is not None]
    taken = min(int(sum(cycle.used[column, row] for column in columns)), total)
    used = taken if by_pods is None else min(by_pods, taken)
    return NodeGpus(
        node.name,
        model_of(node),
        used=used,
        held=taken - used,
        free=total - taken,
        is_down=node.has_failed,
    )


def model_of(node: Node) -> str:
    """Return the model of the GPUs of a node; the name of the resource where no label tells."""
    labels = (node.labels[label] for label in _MODEL_LABELS if label in node.labels)
    return next(labels, None) or next((card for card in CARDS if node.allocatable.get(card)), GPU)


def _used_by_pods(pods: Iterable[Pod]) -> int:
    """Return how many GPUs the pods on a node use; reservations are none."""
    return sum(cards_of(pod) for pod in pods if pod.handling is not Handling.RESERVE)


def cards_of(pod: Pod) -> int:
    """Return how many whole GPUs a pod asks for."""
    return _cards_in(pod.shape)


def _cards_in(shape: PodShape) -> int:
    return sum(amount for name, amount in shape.requests if name in CARDS)


def _find_usual_pod(tallies: PodTallies) -> Mapping[str, int]:
    """Return what a GPU usually takes with it: the median of the whole ones that pods hold.

    What only waits says nothing of it: anybody may have thousands of such pods, which hold nothing.
    """
    requests = [
        (dict(tallies.shapes[key].requests), cards, count)
        for key, count in tallies.holding.items()
        if (cards := _cards_in(tallies.shapes[key]))
    ]
    return {name: _find_median(requests, name) for name in (CPU, MEMORY) if requests}


def _find_median(requests: Iterable[tuple[Mapping[str, int], int, int]], name: str) -> int:
    """Return the median amount per GPU, over all GPUs; each request is there so many times."""
    amounts = sorted(
        (amounts.get(name, 0) // cards, cards * count) for amounts, cards, count in requests
    )
    left = sum(cards for _, cards in amounts) // 2
    for amount, cards in amounts:
        left -= cards
        if left < 0:
            return amount
    return amounts[-1][0]


def _strand(
    gpus: NodeGpus, node: Node, cycle: Cycle, row: int, per_gpu: Mapping[str, int]
) -> NodeGpus:
    """Take those of the free GPUs out that no pod can take, and say why."""
    cause, left = _find_limit(node, cycle, row, per_gpu, gpus.free)
    if left == gpus.free:
        return gpus
    return replace(gpus, free=left, stranded=gpus.free - left, stranded_by=cause)


def _find_limit(
    node: Node, cycle: Cycle, row: int, per_gpu: Mapping[str, int], free: int
) -> tuple[str, int]:
    """Return how many of the free GPUs pods can take, and what keeps the others."""
    if node.is_unschedulable:
        return CORDONED, 0
    if any(taint.effect in _STOPPING and taint.key not in CARDS for taint in node.taints):
        return TAINTED, 0
    room = dict.fromkeys(per_gpu, free)
    for name, amount in {**per_gpu, PODS: 1}.items():
        column = cycle.table.columns.get(name)
        if column is not None and amount:
            spare = int(cycle.table.allocatable[column, row] - cycle.used[column, row])
            room[name] = max(spare, 0) // amount
    room[PODS] = free if room.get(PODS, 1) else 0  # one pod can take them all
    cause = min(room, key=lambda name: room[name])
    return cause, min(room[cause], free)


class SizeLossDocument(TypedDict):
    """How many pods of ``size`` GPUs can be placed; ``lost`` GPUs are too far apart."""

    size: int
    placeable: int
    ideal: int
    lost: int


@encode.register
def _(loss: SizeLoss) -> SizeLossDocument:
    return {
        "size": loss.size,
        "placeable": loss.placeable,
        "ideal": loss.ideal,
        "lost": loss.lost,
    }
