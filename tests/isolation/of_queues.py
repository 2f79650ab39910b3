"""Loops of looks at what waits, and at what has changed."""

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import Any

from tests.autoscaler.test_requests import Play as RequestPlay
from tests.builders import make_pod, make_pod_group
from tests.cluster import SCORING, make_cluster
from tests.isolation.plays import NAMES, Patch, fail_on_bad, is_bad, play
from tests.owners.frameworks import Jobs
from tests.owners.test_room_for_later_pods import leader_ready, submit

from koord.controllers import decision_tracer
from koord.controllers.decision_tracer import DecisionTracer
from koord.controllers.queue_looks import QueueLooks
from koord.controllers.scale_up_requests import LOOK_SECONDS, RequestChannel
from koord.core.autoscaler.demand import DemandFinder, NodeDemand
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.autoscaler.requests import unit_of
from koord.core.awaited.plugin import AwaitedRooms
from koord.core.owners.backlog import Backlog, Recheck


@play("queue-looks")
def promises(patch: Patch) -> list[str]:
    seen, cluster = list[str](), make_cluster(1).pods(make_pod("runs").gpu(8).running("n0"))
    for name in NAMES:
        cluster.pod_groups(make_pod_group(f"default/{name}", 1))
        cluster.pods(make_pod(name).gang(f"default/{name}").gpu(8))
    looks = QueueLooks(
        cluster.state, cluster.queue, SCORING, lambda: 0.0, lambda: True, lambda: False
    )

    def read(_: object, unit: Any) -> None:
        if is_bad(unit):
            raise ZeroDivisionError
        seen.append(unit.pods[0].name)

    patch.setattr(QueueLooks, "_read_promise", read)
    cluster.step()
    looks.look()
    assert len(looks.standings) == len(NAMES)
    return seen


@play("tracing")
def traces(patch: Patch) -> list[str]:
    cluster = make_cluster(1).pods(*(make_pod(name).gpu(8) for name in NAMES))
    units = cluster.take()
    fail_on_bad(patch, decision_tracer, "trace")
    wishes = SimpleNamespace(top_scores=3, shows_failures=True, dumps=False)
    tracer = DecisionTracer(wishes, SCORING, lambda: 0.0)
    with closing(cluster.state.open_cycle()) as cycle:
        tracer.begin(cycle)
        for unit in units:
            cycle.before_unit(unit)
    return [unit.pods[0].name for unit in units if tracer.find(unit.key) is not None]


@play("scale-up")
def demands(patch: Patch) -> list[str]:
    """The nodes are full: each pod needs another one."""
    cluster = make_cluster(1).pods(make_pod("runs").gpu(8).running("n0"))
    cluster.pods(*(make_pod(name).gpu(8) for name in NAMES))
    cluster.step()
    fail_on_bad(patch, DemandFinder, "_charge")
    with closing(cluster.state.open_cycle()) as cycle:
        blocked = [cluster.queue.blocked[key] for key in sorted(cluster.queue.blocked)]
        found = DemandFinder(cycle, AutoscalerOptions(Signal.MARK)).find(blocked)
    return [pod.name for demand in found for pod in demand.pods]


@play("provisioning-requests")
def requests(patch: Patch) -> list[str]:
    pods = [make_pod(name).gpu(8).build() for name in NAMES]
    requests = RequestPlay()
    fail_on_bad(patch, RequestChannel, "_find_owner")
    demands = [NodeDemand(pod.uid, (pod,), 1) for pod in pods]
    for now in (0.0, 10 * LOOK_SECONDS):
        asyncio.run(requests.channel.tell(demands, now))
    made = {request.unit for request in requests.there}
    return [demand.pods[0].name for demand in demands if unit_of(demand) in made]


@play("awaited-rooms")
def rooms_for_later_pods(patch: Patch) -> list[str]:
    jobs = Jobs(nodes=16)
    for name in NAMES:
        submit(jobs, leader_ready(name))
    fail_on_bad(patch, AwaitedRooms, "_settle")
    return [name.removesuffix("-0") for name in jobs.run()]


@play("owner-looks")
def looks_at_owners(_: Patch) -> list[str]:
    seen = list[str]()

    def look(_: str, __: Recheck, target: str) -> None:
        if is_bad(target):
            raise ZeroDivisionError
        seen.append(target)

    Backlog(look).put("team", Recheck.POD, NAMES)
    return seen
