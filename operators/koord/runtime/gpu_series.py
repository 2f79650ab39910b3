"""The series of the device agent: what the GPUs of its node do, and what containers say of them.

Knows no file and no library of a vendor: it names values of ``agent``. With the names of HAMi's
older releases there is a second series of the same value, so they are for nodes on which HAMi's own
monitor does not run.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from koord.agent.gpu_samples import (
    ECC_ERRORS,
    FIGURES,
    MEMORY_USED,
    UTILIZATION,
    CardSample,
    GpuSampler,
)
from koord.agent.nvidia import Card
from koord.agent.region import Unreadable
from koord.agent.regions import ContainerCard, RegionReader, RegionReading

_CARD: Final = ("node", "minor", "uuid", "model")
_CONTAINER: Final = ("node", "uuid", "namespace", "pod", "container")
_SELF_REPORTED: Final = "by what its processes say of themselves."
_HAMI_CARD: Final = ("nodeid", "deviceidx", "deviceuuid", "devicetype", "zone")
_HAMI_CONTAINER: Final = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid", "zone")
_ZONE: Final = "vGPU"
_TEXTS: Final = {
    MEMORY_USED: "Memory of the GPU that is used, what the driver keeps included.",
    "memory_total_bytes": "Memory of the GPU.",
    UTILIZATION: "Part of the time in which work ran on the GPU.",
    "memory_controller_percent": "Part of the time in which memory was read or written.",
    "temperature_celsius": "Temperature of the GPU.",
    "power_milliwatts": "Power that the GPU takes.",
    ECC_ERRORS: "Errors of memory that could not be corrected, since the driver was loaded.",
}
_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


class _HamiFigure(NamedTuple):
    name: str
    figure: str
    text: str


_HAMI_FIGURES: Final = (
    _HamiFigure("HostGPUMemoryUsage", MEMORY_USED, "Memory of the GPU that is used, in bytes."),
    _HamiFigure("HostCoreUtilization", UTILIZATION, "Utilization of the GPU, in percent."),
)


@dataclass(frozen=True, slots=True, eq=False)
class GpuCollector(Collector):
    """Reads at every scrape; ``regions`` is None where containers are not asked."""

    node: str
    sampler: GpuSampler
    regions: RegionReader | None = None
    has_hami_names: bool = False
    clock: Callable[[], float] = time.time

    @override
    def collect(self) -> Iterator[Metric]:
        samples = self.sampler.read()
        yield from self._cards(samples)
        yield self._xids()
        if self.has_hami_names:
            yield from _hami_cards(self.node, samples)
        if self.regions is not None:
            reading = self.regions.read()
            yield from self._containers(reading)
            yield _problems(self.node, self.regions)
            if self.has_hami_names:
                yield _hami_containers(reading)

    def _cards(self, samples: Iterable[CardSample]) -> Iterator[Metric]:
        answered = GaugeMetricFamily(
            "koord_gpu_up", "1 for a GPU that has answered in time, else 0.", labels=_CARD
        )
        families = {name: _make_family(name) for name in FIGURES}
        for card, values in samples:
            labels = self._labels(card)
            answered.add_metric(labels, float(values is not None))
            for name, value in (values or {}).items():
                families[name].add_metric(labels, value)
        yield answered
        yield from families.values()

    def _labels(self, card: Card) -> list[str]:
        return [self.node, str(card.minor), card.uuid, card.model]

    def _xids(self) -> Metric:
        family = CounterMetricFamily(
            "koord_gpu_xid_errors", "Errors that the driver has reported.", labels=(*_CARD, "xid")
        )
        source = self.sampler.source
        cards = {card.uuid: self._labels(card) for card in source.cards}
        for (uuid, xid), count in sorted(source.xids.items()):
            family.add_metric([*cards.get(uuid, [self.node, "", uuid, ""]), str(xid)], count)
        return family

    def _containers(self, reading: RegionReading) -> Iterator[Metric]:
        figures: tuple[tuple[str, str, Callable[[ContainerCard], int | None]], ...] = (
            ("memory_used_bytes", "Memory that the container uses", lambda card: card.used),
            ("memory_limit_bytes", "Memory that it may use", lambda card: card.limit or None),
            ("utilization_percent", "Part of the GPU that it keeps busy", lambda card: card.load),
        )
        for name, text, value_of in figures:
            family = GaugeMetricFamily(
                f"koord_gpu_container_{name}", f"{text}, {_SELF_REPORTED}", labels=_CONTAINER
            )
            for card in reading.cards:
                value = value_of(card)
                if value is not None:
                    pod = [card.holder.namespace, card.holder.name, card.container]
                    family.add_metric([self.node, card.uuid, *pod], value)
            yield family
        kernels = GaugeMetricFamily(
            "koord_gpu_container_last_kernel_seconds",
            f"Time since the container last started work on a GPU, {_SELF_REPORTED}",
            labels=("node", "namespace", "pod", "container"),
        )
        now = self.clock()
        for holder, container, last in reading.kernels:
            labels = [self.node, holder.namespace, holder.name, container]
            kernels.add_metric(labels, max(0.0, now - last))
        yield kernels


def _make_family(name: str) -> _Family:
    kind = CounterMetricFamily if name == ECC_ERRORS else GaugeMetricFamily
    return kind(f"koord_gpu_{name}", _TEXTS[name], labels=_CARD)


def _problems(node: str, regions: RegionReader) -> Metric:
    family = CounterMetricFamily(
        "koord_gpu_container_claims_refused",
        "Files of containers, and entries of them, that did not count.",
        labels=("node", "reason"),
    )
    for why in Unreadable:
        family.add_metric([node, why], regions.problems[why])
    return family


def _hami_cards(node: str, samples: Iterable[CardSample]) -> Iterator[Metric]:
    for name, figure, text in _HAMI_FIGURES:
        family = GaugeMetricFamily(name, text, labels=_HAMI_CARD)
        for card, values in samples:
            if values and figure in values:
                labels = [node, str(card.index), card.uuid, f"NVIDIA-{card.name}", _ZONE]
                family.add_metric(labels, values[figure])
        yield family


def _hami_containers(reading: RegionReading) -> Metric:
    family = GaugeMetricFamily(
        "vGPU_device_memory_usage_in_bytes",
        f"Memory of the GPU that the container uses, {_SELF_REPORTED}",
        labels=_HAMI_CONTAINER,
    )
    for card in reading.cards:
        pod = [card.holder.namespace, card.holder.name, card.container]
        family.add_metric([*pod, str(card.number), card.uuid, _ZONE], card.used)
    return family
