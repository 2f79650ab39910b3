"""How long a scheduler that starts in a full cluster takes to bind the one waiting pod."""

import time
from dataclasses import dataclass
from typing import Final

from benchmarks.cluster import Cluster
from benchmarks.creator import Order
from benchmarks.measure import Laboratory
from benchmarks.objects import NAMESPACE
from benchmarks.processes import Failed
from benchmarks.scenarios import CPU, ColdStart, Who
from benchmarks.usage import read_cpu_seconds, read_peak_mib

_PATIENCE: Final = 180.0
_INTERVAL: Final = 0.2


@dataclass(frozen=True, slots=True)
class Start:
    """From the start of the process to the answer of the API server to its first binding."""

    first_bind: float
    cpu: float
    rss_mib: float
    noise: float


def measure_start(cluster: Cluster, laboratory: Laboratory, cold: ColdStart, who: Who) -> Start:
    """Start one of the schedulers in a cluster where one pod waits."""
    cluster.furnish(cold.nodes, cold.residents)
    contender = laboratory.make_contender(who)
    is_gated = who is Who.OPERATORS
    order = Order(
        kubeconfig=str(cluster.box.kubeconfig),
        namespace=NAMESPACE,
        groups=1,
        size=1,
        requests=dict(CPU),
        scheduler=contender.scheduler,
        gated=is_gated,
    )
    try:
        cluster.create(order)
        noise = cluster.rest()
        cluster.forget_writes()
        began = time.time()
        with contender:
            bound = _wait_first_bind(cluster)
            used, peak = read_cpu_seconds(contender.pid), read_peak_mib(contender.pid)
        return Start(bound - began, used, peak, noise)
    finally:
        cluster.clear()


def _wait_first_bind(cluster: Cluster) -> float:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        for write in cluster.read_writes():
            if write.subresource == "binding":
                return write.answered
        time.sleep(_INTERVAL)
    raise Failed("nothing was bound after a cold start")
