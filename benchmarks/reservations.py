"""Speed of planning with reservations, in process and without a cluster.

    python -m benchmarks.reservations [--reservations 5000] [--nodes 1000] [--pods 1000]

Single pods are planned in one cycle: those that match reservations, and those that match none, with
and without reservations in the cluster, measured alternately (ABAB). Times are processor times.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Final

from tests.cluster import make_cluster, plan_once
from tests.objects import upsert_reservation

from koord.core.engine.state import ClusterState
from koord.core.model.constraints import PodLabels
from koord.core.model.nodes import Node
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.reservation.model import Owner, ReservationInfo, ReservationPhase, ReservationState

GIB: Final = 1 << 30
APPS: Final = 100
"""Groups of pods; each may use as many of the reservations."""
HELD: Final = {"cpu": 4_000, "memory": 16 * GIB}
SHAPE: Final = PodShape((("cpu", 1_000), ("memory", GIB), ("pods", 1)))
_uids = count()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reservations", description=__doc__)
    parser.add_argument("--reservations", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000, help="per plan")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    pods = options.pods
    reserved = make_state(options.nodes, options.reservations)
    # Without reservations as much is used of each node, so that both plan on equal nodes.
    plain = make_state(options.nodes, options.reservations, holds=False)
    print(f"{options.reservations} reservations on {options.nodes} nodes; {pods} single pods")
    matching = _time(lambda: plan(reserved, pods, matches=True), options.runs)
    print(f"pods that match {options.reservations // APPS} each: {_describe(matching, pods)}")
    others = {
        "beside them": lambda: plan(reserved, pods, matches=False),
        "without them": lambda: plan(plain, pods, matches=False),
    }
    times: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(2 * options.runs):
        for name, run in others.items():
            times[name] += _time(run, 1)
    for name, found in times.items():
        print(f"pods that match none, {name}: {_describe(found, pods)}")
    ratio = statistics.median(times["beside them"]) / statistics.median(times["without them"])
    print(f"ratio of the medians: {ratio:.3f}")


def make_state(nodes: int, reservations: int, *, holds: bool = True) -> ClusterState:
    state = make_cluster().state
    allocatable = {"cpu": 64_000, "memory": 512 * GIB, "pods": 110}
    for at in range(nodes):
        state.upsert_node(Node(name=f"node-{at:05}", labels={}, allocatable=allocatable))
    for at in range(reservations):
        node = f"node-{at % nodes:05}"
        if holds:
            upsert_reservation(state, make_reservation(at, node))
        else:
            shape = PodShape(tuple(sorted(HELD.items())))
            state.upsert_pod(Pod(f"held-{at}", "default", f"held-{at}", shape, node=node))
    state.refresh()
    return state


def make_reservation(at: int, node: str) -> ReservationInfo:
    app = (Requirement("app", SelectorOperator.IN, (f"app-{at % APPS}",)),)
    status = ReservationState(ReservationPhase.AVAILABLE, node, HELD)
    return ReservationInfo(
        f"r{at}",
        f"r{at}",
        None,
        owners=(Owner(selector=app),),
        status=status,
        namespace="default",
        is_once=False,
    )


def plan(state: ClusterState, pods: int, *, matches: bool) -> None:
    """Plan single pods, and forget the plan."""
    units = [_make_unit(state, at, matches=matches) for at in range(pods)]
    outcome = plan_once(state, units)
    if len(outcome.placements) != pods:
        raise RuntimeError(f"{len(outcome.placements)} of {pods} pods were placed")
    for unit in units:
        state.remove_pod(unit.pods[0].uid)


def _make_unit(state: ClusterState, at: int, *, matches: bool) -> Unit:
    name = f"pod-{next(_uids)}"
    labels = _labels(f"app-{at % APPS}" if matches else f"other-{at % APPS}")
    pod = Pod(name, "default", name, SHAPE, profile=labels, handling=Handling.RELEASE_AND_BIND)
    state.upsert_pod(pod)
    return Unit(name, (Demand("", (pod,), 1),))


@cache
def _labels(app: str) -> PodLabels:
    """Return equal labels as one value, as they are when pods have been read."""
    return PodLabels("default", {"app": app})


def _time(run: Callable[[], None], runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return found


def _describe(seconds: list[float], pods: int) -> str:
    each = statistics.median(seconds) / pods * 1000
    return f"{each:.3f} ms per pod (median of {len(seconds)})"


if __name__ == "__main__":
    main()
