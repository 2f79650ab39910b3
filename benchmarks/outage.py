"""An outage of the operators: its effect on other pods, and how fast the backlog is placed.

    python -m benchmarks.outage --minutes 10

Gangs, and single pods for kube-scheduler, are created all the time. After the outage the backlog is
placed as in the scenario `drained`, and the rate is compared with the same ceiling.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.cluster import Cluster, open_cluster
from benchmarks.creator import Order
from benchmarks.measure import Laboratory, percentile
from benchmarks.objects import Pod, groups_path, make_group, make_namespace, make_pod, pods_path
from benchmarks.processes import ROOT, KubeScheduler
from benchmarks.scenarios import CPU, Cell, Load, Mode, Who
from koord_sandbox import AuditedWrite

OTHERS = "others"
"""Namespace of the pods that are not ours."""
NODES = 100
SIZE = 10


class Figures(msgspec.Struct, frozen=True):
    """The result. Latencies are of kube-scheduler's pods, from creation to binding."""

    minutes: float
    backlog_pods: int
    pods_per_s: float
    ceiling_pods_per_s: float
    share: float
    others: int
    others_not_bound: int
    others_p50_ms_before: float
    others_p99_ms_before: float
    others_p50_ms_during: float
    others_p99_ms_during: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outage", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long they are gone")
    parser.add_argument("--pods", type=int, default=2000, help="that pile up meanwhile")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "faults" / "outage.json", metavar="FILE"
    )
    options = parser.parse_args()
    with open_cluster() as cluster:
        figures = measure_outage(cluster, options.minutes, options.pods)
    text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(text + b"\n")
    print(text.decode())


def measure_outage(cluster: Cluster, minutes: float, pods: int) -> Figures:
    """Run the operators, stop them for a while, and start them again."""
    cluster.box.client.create("/api/v1/namespaces", make_namespace(OTHERS))
    cluster.furnish(NODES, 0)
    laboratory = Laboratory(cluster)
    load = Load("outage", pods // SIZE, SIZE, NODES, CPU)
    cell = Cell(load, Mode.DRAINED, gated=True, who=(Who.OPERATORS,))
    outage = _Outage(cluster, minutes * 60.0)
    with laboratory.make_contender(Who.KUBE_SCHEDULER) as scheduler:
        scheduler.wait_ready()
        ceilings = [laboratory.measure_ceiling(cell).pods_per_s]
        with laboratory.make_contender(Who.OPERATORS) as operators:
            operators.wait_ready()
            before = outage.look(min(60.0, minutes * 60.0))
        rate = laboratory.measure(cell, Who.OPERATORS, outage.pile_up).pods_per_s
        ceilings.append(laboratory.measure_ceiling(cell).pods_per_s)
    ceiling = statistics.mean(ceilings)
    during = outage.latencies
    return Figures(
        minutes=minutes,
        backlog_pods=load.pods,
        pods_per_s=rate,
        ceiling_pods_per_s=ceiling,
        share=rate / ceiling,
        others=len(before) + outage.others,
        others_not_bound=outage.others - len(during),
        others_p50_ms_before=percentile(before, 50) * 1e3,
        others_p99_ms_before=percentile(before, 99) * 1e3,
        others_p50_ms_during=percentile(during, 50) * 1e3,
        others_p99_ms_during=percentile(during, 99) * 1e3,
    )


class _Outage:
    """Creates gangs and other pods, evenly over the outage."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self.latencies: Sequence[float] = ()
        """Of the other pods during the outage, in order."""
        self.others = 0
        """How many there were."""
        self._cluster = cluster
        self._seconds = seconds
        self._numbers = iter(range(1 << 30))

    def look(self, seconds: float) -> Sequence[float]:
        """Create only other pods; return how long they waited."""
        self._cluster.forget_writes()
        for _ in spread(int(seconds * 2), seconds):
            self._create_other()
        time.sleep(2.0)
        return find_latencies(self._cluster.read_writes())

    def pile_up(self, order: Order) -> None:
        """Create the pods of the order over the whole time, and other pods beside them."""
        most = max(1, int(self._seconds * 2 / order.groups))
        for group in spread(order.groups, self._seconds):
            self._create_gang(order, group)
            for _ in range(most):
                self._create_other()
                self.others += 1
        time.sleep(2.0)
        self.latencies = find_latencies(self._cluster.read_writes())

    def _create_gang(self, order: Order, group: int) -> None:
        client, name = self._cluster.box.client, f"gang-{group}"
        client.create(groups_path(order.namespace), make_group(name, order.size))
        for member in range(order.size):
            pod = Pod(
                order.namespace,
                f"pod-{group}-{member}",
                order.requests,
                scheduler=order.scheduler,
                group=name,
                gated=order.gated,
            )
            client.create(pods_path(order.namespace), make_pod(pod))

    def _create_other(self) -> None:
        name = f"other-{next(self._numbers)}"
        pod = Pod(OTHERS, name, CPU, scheduler=KubeScheduler.scheduler)
        self._cluster.box.client.create(pods_path(OTHERS), make_pod(pod))


def spread(count: int, seconds: float) -> Iterator[int]:
    """Count up, evenly over that many seconds."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number * seconds / count - time.monotonic()))
        yield number


def find_latencies(writes: Sequence[AuditedWrite], namespace: str = OTHERS) -> Sequence[float]:
    """Return how long each pod of a namespace waited for its node, in order."""
    created, bound = {}, {}
    for one in writes:
        if one.namespace != namespace or one.resource != "pods" or one.code >= 300:
            continue
        if one.subresource == "binding":
            bound[one.name] = one.answered
        elif one.verb == "create":
            created[one.name] = one.answered
    return sorted(bound[name] - created[name] for name in bound.keys() & created.keys())


if __name__ == "__main__":
    main()
