"""Churn: gangs, quotas and nodes come and go for an hour; the memory of the operators is read.

    python -m benchmarks.churn --minutes 60 --rate 10

Every name is new, and every gang asks for an amount of CPU that no other has asked for, so whatever
is remembered by name or by shape would show.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.cluster import SHAPE, Cluster, open_cluster
from benchmarks.measure import Laboratory
from benchmarks.objects import (
    NAMESPACE,
    QUOTAS_PATH,
    Pod,
    groups_path,
    make_group,
    make_pod,
    make_quota,
    pods_path,
)
from benchmarks.processes import ROOT
from benchmarks.scenarios import Who
from benchmarks.usage import read_cpu_seconds, read_rss_mib
from koord_sandbox.errors import SandboxApiError

NODES: Final = 100
SIZE: Final = 5
LIVE: Final = 40
"""Gangs that exist at a time; older ones are deleted."""
GANGS_PER_QUOTA: Final = 20
GANGS_PER_NODE: Final = 60
_SAMPLE_SECONDS: Final = 5.0


class Figures(msgspec.Struct, frozen=True):
    """The result; the slope is that of the second half."""

    minutes: float
    pods: int
    quotas: int
    nodes: int
    rss_mib_after_a_tenth: float
    rss_mib_at_the_end: float
    slope_mib_per_hour: float
    slope_bytes_per_pod: float
    cpu_ms_per_pod: float
    not_placed: int
    rss_mib: list[tuple[float, float]]
    """Seconds since the start, memory."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=10.0, help="pods per second")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "bench" / "churn.json", metavar="FILE"
    )
    options = parser.parse_args()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    with open_cluster() as cluster:
        figures = measure_churn(cluster, options.minutes * 60.0, options.rate)
    options.json.write_bytes(msgspec.json.encode(figures) + b"\n")
    print(msgspec.json.encode(figures).decode())


def measure_churn(cluster: Cluster, seconds: float, rate: float) -> Figures:
    cluster.furnish(NODES, 0)
    churn = _Churn(cluster)
    operators = Laboratory(cluster).make_contender(Who.OPERATORS)
    samples: list[tuple[float, float]] = []
    with cluster.kubelets(), operators:
        operators.wait_ready()
        used, began = read_cpu_seconds(operators.pid), time.monotonic()
        for number in itertools.count():
            passed = time.monotonic() - began
            if passed >= seconds:
                break
            if passed >= len(samples) * _SAMPLE_SECONDS:
                samples.append((passed, read_rss_mib(operators.pid)))
                operators.check()
            churn.step(number)
            time.sleep(max(0.0, began + (number + 1) * SIZE / rate - time.monotonic()))
        used = read_cpu_seconds(operators.pid) - used
    return _describe(churn, samples, used)


def _describe(churn: "_Churn", samples: list[tuple[float, float]], used: float) -> Figures:
    half = np.array(samples[len(samples) // 2 :])
    slope = float(np.polyfit(half[:, 0], half[:, 1], 1)[0])
    passed = samples[-1][0]
    return Figures(
        minutes=passed / 60.0,
        pods=churn.gangs * SIZE,
        quotas=churn.quotas,
        nodes=churn.nodes,
        rss_mib_after_a_tenth=samples[len(samples) // 10][1],
        rss_mib_at_the_end=samples[-1][1],
        slope_mib_per_hour=slope * 3600.0,
        slope_bytes_per_pod=slope * (1 << 20) * passed / (churn.gangs * SIZE),
        cpu_ms_per_pod=used / (churn.gangs * SIZE) * 1e3,
        not_placed=churn.not_placed,
        rss_mib=samples,
    )


class _Churn:
    """Creates and deletes, one gang with every step."""

    def __init__(self, cluster: Cluster) -> None:
        self.gangs = self.quotas = self.nodes = self.not_placed = 0
        self._cluster = cluster
        self._client = cluster.box.client
        self._nodes = list(cluster.nodes)

    def step(self, number: int) -> None:
        if number % GANGS_PER_QUOTA == 0:
            self._replace_quota(number // GANGS_PER_QUOTA)
        if number % GANGS_PER_NODE == GANGS_PER_NODE - 1:
            self._replace_node()
        self._create_gang(number)
        if number >= LIVE:
            self._delete_gang(number - LIVE)

    def _create_gang(self, number: int) -> None:
        self.gangs += 1
        self._client.create(groups_path(NAMESPACE), make_group(f"gang-{number}", SIZE))
        for name in _members(number):
            pod = Pod(
                NAMESPACE,
                name,
                {"cpu": f"{1000 + number}m"},
                scheduler="koord-scheduler",
                group=f"gang-{number}",
                quota=f"quota-{number // GANGS_PER_QUOTA}",
                gated=number % 2 == 0,
            )
            self._client.create(pods_path(NAMESPACE), make_pod(pod))

    def _delete_gang(self, number: int) -> None:
        for name in _members(number):
            with suppress(SandboxApiError):  # it may have been removed with its node
                path = f"{pods_path(NAMESPACE)}/{name}?gracePeriodSeconds=0"
                pod: dict[str, Any] = self._client.get(path)
                self.not_placed += "nodeName" not in pod["spec"]
                self._client.delete(path)
        self._client.delete(f"{groups_path(NAMESPACE)}/gang-{number}")

    def _replace_quota(self, number: int) -> None:
        self.quotas += 1
        self._client.create(QUOTAS_PATH, make_quota(f"quota-{number}", ""))
        unused = number - LIVE // GANGS_PER_QUOTA - 1
        if unused >= 0:
            self._client.delete(f"{QUOTAS_PATH}/quota-{unused}")

    def _replace_node(self) -> None:
        self.nodes += 1
        self._client.delete(f"/api/v1/nodes/{self._nodes.pop(0)}")
        self._nodes += self._cluster.box.add_nodes(1, SHAPE)


def _members(number: int) -> Iterator[str]:
    return (f"pod-{number}-{member}" for member in range(SIZE))


if __name__ == "__main__":
    main()
