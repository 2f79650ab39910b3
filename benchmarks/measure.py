"""One measurement: a scheduler places the pods of one cell, and everything is counted.

Durations are from the first request to the last answer in the API server's audit log, which is the
same for all schedulers. Latencies are those that a watch shows.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.ceiling import Order as CeilingOrder
from benchmarks.cluster import Cluster
from benchmarks.creator import Order
from benchmarks.objects import NAMESPACE, list_teams
from benchmarks.observer import Observer
from benchmarks.processes import Ceiling, Contender, Failed, KubeScheduler, Operators
from benchmarks.scenarios import Cell, Mode, Who
from benchmarks.usage import Meter, read_cpu_seconds, read_peak_mib
from koord.kube.config import load_kubeconfig
from koord.runtime.settings import Settings
from koord_sandbox import AuditedWrite, Component

Attach = Callable[[str, int], None]
"""Receives the name of a row and the measured process of the operators."""
Create = Callable[[Order], None]
"""Creates the pods of an order; returns when all exist."""

_CREATED: Final = 201
_IDLE_SECONDS: Final = 20.0
_PATIENCE: Final = 120.0
_SLOWEST: Final = 20  # pods per second; anything slower counts as broken


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of placing the pods of a cell; latencies in seconds."""

    pods_per_s: float
    writes_per_pod: float
    p50: float
    p99: float
    cpu_ms_per_pod: float
    rss_mib: float
    noise: float
    """Processors that the rest of the machine used just before."""
    pace: float
    """Speed of the processors, in milliseconds; see ``Pace``."""
    idle_cpu: float | None = None
    """Processors used after everything is placed and reported, with the resident pods."""


@dataclass(frozen=True, slots=True)
class _Span:
    """In seconds since the epoch."""

    began: float
    ended: float


class Laboratory:
    """Measures on one cluster."""

    def __init__(self, cluster: Cluster, attach: Attach | None = None) -> None:
        self._cluster = cluster
        self._attach = attach
        self._access = load_kubeconfig(str(cluster.box.kubeconfig))

    def measure(self, cell: Cell, who: Who, create: Create | None = None) -> Measurement:
        """Let a scheduler place the pods; ``create`` replaces their creation."""
        return self._measure(cell, self.make_contender(who), create)

    def measure_ceiling(self, cell: Cell) -> Measurement:
        """Let the client without planning place them."""
        order = CeilingOrder(
            kubeconfig=str(self._cluster.kubeconfig),
            namespace=NAMESPACE,
            size=cell.load.size,
            gated=cell.gated,
            in_flight=Settings().bind_concurrency,
            nodes=tuple(self._cluster.nodes),
            has_devices=cell.load.has_devices,
        )
        path = self._cluster.write_order("ceiling", order)
        return self._measure(cell, Ceiling(self._cluster.box.directory, path))

    def make_contender(self, who: Who) -> Contender:
        """Return a scheduler that can be started."""
        directory = self._cluster.box.directory
        if who is Who.OPERATORS:
            return Operators(directory, self._cluster.kubeconfig)
        command = self._cluster.command_of(Component.SCHEDULER, KubeScheduler.ARGUMENTS)
        return KubeScheduler(directory, command)

    def _measure(
        self, cell: Cell, contender: Contender, create: Create | None = None
    ) -> Measurement:
        cluster = self._cluster
        order = _make_order(cluster, cell, contender.scheduler)
        create = create or cluster.create
        noise = cluster.rest()
        cluster.forget_writes()
        try:
            if cell.mode is Mode.DRAINED:
                create(order)
                cluster.rest()
            observer = Observer(self._access, cell.load.pods)
            with contender, Meter(contender.pid) as meter:
                if self._attach is not None and isinstance(contender, Operators):
                    self._attach(cell.name(Who.OPERATORS), contender.pid)
                if cell.mode is Mode.BURST:
                    contender.wait_ready()
                    cluster.rest()
                    create(order)
                _wait_bound(cell, contender, observer)
                writes = self._settle(contender)
                settled = time.time()
                peak = read_peak_mib(contender.pid)
                idle = _measure_idleness(contender.pid) if cell.load.residents else None
            if cell.load.has_devices and isinstance(contender, Operators):
                cluster.check_holders()
            own = [one for one in writes if one.user == contender.user]
            span = _find_span(cell, writes, own)
            latencies = observer.latencies(None if cell.mode is Mode.BURST else span.began)
            return Measurement(
                pods_per_s=cell.load.pods / (span.ended - span.began),
                writes_per_pod=len(own) / cell.load.pods,
                p50=percentile(latencies, 50),
                p99=percentile(latencies, 99),
                cpu_ms_per_pod=meter.between(span.began, settled) / cell.load.pods * 1e3,
                rss_mib=peak,
                noise=noise,
                pace=cluster.pace.between(span.began, span.ended),
                idle_cpu=idle,
            )
        finally:
            cluster.clear()

    def _settle(self, contender: Contender) -> list[AuditedWrite]:
        """Return all writes, once the last has been counted."""
        while True:
            now, writes = time.time(), self._cluster.read_writes()
            if now - max(one.answered for one in writes) >= contender.quiet_seconds:
                return writes
            time.sleep(0.5)


def _measure_idleness(pid: int) -> float:
    before, began = read_cpu_seconds(pid), time.monotonic()
    time.sleep(_IDLE_SECONDS)
    return (read_cpu_seconds(pid) - before) / (time.monotonic() - began)


def _make_order(cluster: Cluster, cell: Cell, scheduler: str) -> Order:
    return Order(
        kubeconfig=str(cluster.box.kubeconfig),
        namespace=NAMESPACE,
        groups=cell.load.groups,
        size=cell.load.size,
        requests=dict(cell.load.requests),
        scheduler=scheduler,
        gated=cell.gated,
        must_gather=cell.load.must_gather,
        quotas=tuple(list_teams()) if cell.load.has_quotas else (),
    )


def _wait_bound(cell: Cell, contender: Contender, observer: Observer) -> None:
    deadline = time.monotonic() + _PATIENCE + cell.load.pods / _SLOWEST
    while not observer.is_done(0.5):
        contender.check()
        if time.monotonic() > deadline:
            count = f"{len(observer.bound)} of {cell.load.pods} pods are bound"
            raise Failed(f"{count}; {contender.read_log()}")


def _find_span(cell: Cell, writes: Sequence[AuditedWrite], own: Sequence[AuditedWrite]) -> _Span:
    """Return when placing began and ended; ``own`` are the writes of the scheduler."""
    bound = [one for one in own if one.subresource == "binding" and one.code == _CREATED]
    if len(bound) != cell.load.pods:
        raise Failed(f"{len(bound)} bindings of {cell.load.pods} pods are in the audit log")
    if cell.mode is Mode.BURST:
        first = [one for one in writes if _is_creation(one)]
    else:
        first = [one for one in own if one.resource == "pods"]
    return _Span(min(one.received for one in first), max(one.answered for one in bound))


def _is_creation(write: AuditedWrite) -> bool:
    return write.verb == "create" and write.resource == "pods" and not write.subresource


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that ``percent`` of the values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
