"""Preemption in every domain that the planner knows: devices, reservations, quotas, budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota, select_labels
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.device.test_plugin import gpu_cluster, minors, part, settle, whole
from tests.objects import upsert_namespace, upsert_priority_class, upsert_reservation
from tests.preemption.test_search import places_of, running, search, victims_of, waiting
from tests.reservation.make import make_reservation

from koord.core.eviction.model import Exempt, Preemption, VictimKind
from koord.core.eviction.protection import ALLOWED_IN
from koord.core.eviction.reasons import (
    OnlySurplus,
    PreemptionNever,
    Protection,
    VictimsProtected,
    WaitsForTermination,
)
from koord.core.eviction.search import PreemptionContext, PreemptionOptions, plan_preemption
from koord.core.model.budgets import Budget
from koord.core.model.pods import Handling, Pod
from koord.core.reservation.lifecycle import PriorityClass
from koord.core.reservation.model import ReservationUse


def observe(cluster: FakeCluster, **fields: object) -> None:
    """Let all assumed pods be seen running, with some fields changed."""
    for uid in list(cluster.state.assumed):
        pod = cluster.state.pods[uid]
        cluster.state.upsert_pod(replace(pod, handling=Handling.BIND, is_gated=False, **fields))


def test_free_halves_of_gpus_are_no_room_and_one_pod_too_many_stays() -> None:
    """Two GPUs are needed, on each of which two pods share: three of four pods would be wrong."""
    cluster = gpu_cluster(1)
    settle(cluster, *(part(f"low{at}", 50) for at in range(16)))
    observe(cluster)
    answer = search(cluster, make_unit("hp", [whole("hp0", 2).priority(10)]))
    assert isinstance(answer, Preemption)
    assert len(answer.pods) == 4
    taken = sorted(minors(answer.placement.assignments[0]))
    assert taken == sorted({minor for pod in answer.pods for minor in _minors_of(pod)})


def _minors_of(pod: Pod) -> list[int]:
    return [share.minor for allocation in pod.allocations for share in allocation.shares]  # type: ignore[attr-defined]


def test_a_reservation_of_lower_priority_makes_room() -> None:
    cluster = make_cluster().nodes(make_node("n1").cpu(8000))
    held = make_reservation("r", "n1", cpu=8000)
    upsert_priority_class(cluster.state, PriorityClass("batch", 5))
    upsert_reservation(cluster.state, replace(held, priority_class="batch"))
    answer = search(cluster, waiting("hp", 1, 8, 10))
    assert isinstance(answer, Preemption)
    assert [victim.kind for victim in answer.victims] == [VictimKind.RESERVATION]


def test_a_reservation_that_pods_use_stays() -> None:
    cluster = make_cluster().nodes(make_node("n1").cpu(8000))
    held = make_reservation("r", "n1", cpu=8000, priority_class="batch")
    upsert_priority_class(cluster.state, PriorityClass("batch", 5))
    upsert_reservation(cluster.state, held)
    user = running("user", "n1", 1, 10).build()
    user = replace(user, allocations=(ReservationUse(user.uid, "r", "uid-r"),))
    cluster.pods(user)
    assert not isinstance(search(cluster, waiting("hp", 1, 7, 10)), Preemption)
    cluster.state.remove_pod(user.uid)
    assert isinstance(search(cluster, waiting("hp", 1, 7, 10)), Preemption)


def test_a_reservation_without_priority_stays() -> None:
    cluster = make_cluster().nodes(make_node("n1").cpu(8000))
    held = make_reservation("r", "n1", cpu=8000)
    upsert_reservation(cluster.state, held)
    assert not isinstance(search(cluster, waiting("hp", 1, 8, 10)), Preemption)


class QuotaScene:
    """16 GPUs on two nodes; quota ``b`` is guaranteed 8 of them."""

    def __init__(self, a: int = 0, b: int = 8) -> None:
        self.cluster = make_cluster(2)
        for name, least in (("a", a), ("b", b)):
            self.cluster.quotas(make_quota(name, min={GPU: least}, max={GPU: 16}))

    def run(self, name: str, node: str, gpus: int, quota: str) -> None:
        pod = make_pod(name).gpu(gpus).quota(quota).released(node, "p").running(node)
        self.cluster.pods(pod)

    def search(self, gpus: int, quota: str) -> object:
        pod = make_pod("hp").gpu(gpus).quota(quota).priority(10).build()
        self.cluster.pods(pod)
        return search(self.cluster, make_unit("hp", [pod]))


def test_guaranteed_use_of_another_quota_is_not_preempted() -> None:
    scene = QuotaScene(a=8)
    for node in ("n0", "n1"):
        scene.run(f"low-{node}", node, 4, "b")
    answer = scene.search(8, "a")
    assert isinstance(answer, VictimsProtected)
    assert answer.protected == ((Protection.QUOTA, 2),)
    assert answer.text() == (
        "no pod with a priority below 10 may be evicted: 2 of quota b, which uses 8 nvidia.com/gpu "
        "and is guaranteed 8"
    )


def test_a_gang_that_is_larger_than_what_was_borrowed_is_told_with_amounts_that_add_up() -> None:
    """It is 8 beyond what its quota is guaranteed, and takes 16 with it."""
    scene = QuotaScene(a=8, b=8)
    scene.cluster.gang("low", 2)
    for at in range(2):
        pod = make_pod(f"low-{at}").gpu(8).quota("b").gang("default/low")
        scene.cluster.pods(pod.released(f"n{at}", "p", "default/low", 2, 2).running(f"n{at}"))
    answer = scene.search(8, "a")
    assert isinstance(answer, VictimsProtected)
    assert answer.text() == (
        "no pod with a priority below 10 may be evicted: 2 of quota b, which uses 16 "
        "nvidia.com/gpu, 8 more than the 8 that it is guaranteed, in pods and gangs of 16 or more"
    )


def test_borrowed_use_of_another_quota_is() -> None:
    scene = QuotaScene(a=8, b=4)
    for node in ("n0", "n1"):
        scene.run(f"low-{node}", node, 4, "b")
    answer = scene.search(8, "a")
    assert isinstance(answer, Preemption)
    assert len(answer.pods) == 1


def test_a_full_quota_makes_room_for_its_own_on_any_node() -> None:
    """Blocked by its quota, not by nodes: the peers run on several of them."""
    cluster = make_cluster(4)
    cluster.quotas(make_quota("a", max={GPU: 4}), make_quota("b", max={GPU: 32}))
    for at in range(4):
        pod = make_pod(f"low{at}").gpu(1).quota("a")
        cluster.pods(pod.released(f"n{at}", "p").running(f"n{at}"))
    cluster.pods(make_pod("other").gpu(1).quota("b").released("n0", "p").running("n0"))
    unit = make_unit("hp", [make_pod("hp").gpu(3).quota("a").priority(10)])
    answer = search(cluster, unit)
    assert isinstance(answer, Preemption)
    assert len(answer.pods) == 3
    assert {pod.quota for pod in answer.pods} == {"a"}


def test_budgets_come_before_priority() -> None:
    cluster = make_cluster().nodes(*(make_node(f"n{at}").cpu(4000) for at in (1, 2)))
    cluster.pods(running("cheap", "n1", 4, 1).labels(app="a"), running("dear", "n2", 4, 5))
    budget = Budget("default", select_labels(app="a"), 0)
    unit = waiting("hp", 1, 4, 10)
    answer = plan_preemption(cluster.state, unit, context=PreemptionContext(budgets=(budget,)))
    assert victims_of(answer) == "dear"
    assert victims_of(plan_preemption(cluster.state, unit)) == "cheap"


def test_a_gang_above_its_minimum_loses_its_last_member_first() -> None:
    cluster = make_cluster(2).pod_groups(make_pod_group("default/g", 1))
    for at in range(2):
        pod = make_pod(f"g-{at}").gpu(8).gang("default/g").index(at)
        cluster.pods(pod.released(f"n{at}", "p", "default/g", 2, 1).running(f"n{at}"))
    answer = search(cluster, make_unit("hp", [make_pod("hp").gpu(8).priority(10)]))
    assert victims_of(answer) == "g-1"
    assert isinstance(answer, Preemption)
    assert answer.cost.gangs == 0


def test_a_gang_at_its_minimum_goes_as_a_whole_with_its_group() -> None:
    cluster = make_cluster(3)
    group = ("default/g", "default/h")
    for at, name in enumerate(("g", "h")):
        cluster.pod_groups(make_pod_group(f"default/{name}", 1).group(*group))
        pod = make_pod(f"{name}-0").gpu(8).gang(f"default/{name}")
        cluster.pods(pod.released(f"n{at}", "p", ",".join(group), 2, 1).running(f"n{at}"))
    cluster.pods(make_pod("top").gpu(8).priority(50).released("n2", "p").running("n2"))
    answer = search(cluster, make_unit("hp", [make_pod("hp").gpu(8).priority(10)]))
    assert victims_of(answer) == "g-0 h-0"
    assert isinstance(answer, Preemption)
    assert answer.cost.gangs == 2


def test_a_single_pod_goes_before_a_gang() -> None:
    cluster = make_cluster(2).pod_groups(make_pod_group("default/g", 1))
    pod = make_pod("g-0").gpu(8).gang("default/g")
    cluster.pods(pod.released("n0", "p", "default/g", 1, 1).running("n0"))
    cluster.pods(make_pod("single").gpu(8).priority(5).released("n1", "p").running("n1"))
    answer = search(cluster, make_unit("hp", [make_pod("hp").gpu(8).priority(10)]))
    assert victims_of(answer) == "single"


def test_less_work_is_lost_since_the_last_checkpoint() -> None:
    cluster = make_cluster(2)
    for at, saved in ((0, 900.0), (1, 0.0)):
        pod = make_pod(f"low{at}").gpu(8).released(f"n{at}", "p").running(f"n{at}").build()
        cluster.pods(replace(pod, started=500.0, checkpointed=saved))
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)])
    answer = plan_preemption(cluster.state, unit, context=PreemptionContext(now=1000.0))
    assert victims_of(answer) == "low0"
    assert isinstance(answer, Preemption)
    assert answer.cost.work == 100 * 800


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"is_protected": True}, Protection.LABEL),
        ({"is_non_preemptible": True, "quota": "q"}, Protection.LABEL),
        ({"handling": Handling.NOT_OURS, "recorded": None}, Protection.FOREIGN),
        ({"started": 990.0}, Protection.YOUNG),
    ],
)
def test_who_is_protected(fields: dict[str, object], why: Protection) -> None:
    cluster = make_cluster(1).quotas(make_quota("q", min={GPU: 8}, max={GPU: 8}))
    upsert_namespace(cluster.state, "default", {ALLOWED_IN: "true"})
    pod = make_pod("low").gpu(8).released("n0", "p").running("n0").build()
    cluster.pods(replace(pod, **{"started": 1.0, **fields}))  # type: ignore[arg-type]
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)])
    options = PreemptionOptions(min_runtime=60)
    answer = plan_preemption(cluster.state, unit, options, context=PreemptionContext(now=1000.0))
    assert isinstance(answer, VictimsProtected)
    assert answer.protected == ((why, 1),)
    assert answer.text()


def test_a_unit_that_was_refused_is_exempt() -> None:
    cluster = make_cluster(1)
    pod = make_pod("low").gpu(8).released("n0", "p").running("n0").build()
    cluster.pods(pod)
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)])
    answer = plan_preemption(cluster.state, unit, exempt=Exempt({pod.uid}))
    assert isinstance(answer, VictimsProtected)
    assert answer.protected == ((Protection.EXEMPT, 1),)


def test_room_of_terminating_pods_is_waited_for() -> None:
    cluster = make_cluster(2)
    for at in range(2):
        cluster.pods(make_pod(f"low{at}").gpu(8).released(f"n{at}", "p").running(f"n{at}"))
    cluster.pods(make_pod("low0").gpu(8).released("n0", "p").running("n0").terminating())
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)])
    answer = search(cluster, unit)
    assert isinstance(answer, WaitsForTermination)
    assert answer.pods == ("default/low0",)


def test_policy_of_any_member_counts() -> None:
    cluster = make_cluster(1)
    cluster.pods(make_pod("low").gpu(8).released("n0", "p").running("n0"))
    pods = [make_pod(f"hp{at}").gpu(4).priority(10).build() for at in range(2)]
    unit = make_unit("hp", [pods[0], replace(pods[1], never_preempts=True)])
    answer = search(cluster, unit)
    assert isinstance(answer, PreemptionNever)
    assert "its preemptionPolicy is Never" in answer.text()


def test_surplus_preempts_nobody() -> None:
    cluster = make_cluster(1)
    cluster.pods(make_pod("low").gpu(8).released("n0", "p").running("n0"))
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)], required=0)
    assert isinstance(search(cluster, unit), OnlySurplus)


def test_only_the_required_members_preempt_and_others_use_what_is_free() -> None:
    cluster = make_cluster(2)
    for node in ("n0", "n1"):
        cluster.pods(make_pod(f"low-{node}").gpu(8).released(node, "p").running(node))
    pods = [make_pod(f"hp{at}").gpu(4).priority(10) for at in range(4)]
    answer = search(cluster, make_unit("hp", pods, required=1))
    assert isinstance(answer, Preemption)
    assert len(answer.pods) == 1
    assert len(places_of(answer)) == 2


def test_room_that_is_kept_for_others_is_not_used() -> None:
    cluster = make_cluster(2)
    cluster.pods(make_pod("low").gpu(8).released("n0", "p").running("n0"))
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)])

    def keep(cycle) -> None:  # type: ignore[no-untyped-def]
        cycle.charge(cluster.row("n1"), cluster.state.table.column(GPU), 8)

    answer = plan_preemption(cluster.state, unit, context=PreemptionContext(prepare=keep))
    assert victims_of(answer) == "low"


def test_a_gang_runs_since_its_oldest_member_started() -> None:
    """So nobody protects a gang by deleting one of its pods from time to time."""
    cluster = make_cluster(2).pod_groups(make_pod_group("default/g", 2))
    unit = make_unit("hp", [make_pod("hp").gpu(8).priority(10)])
    options, context = PreemptionOptions(min_runtime=60), PreemptionContext(now=1000.0)
    for started in (990.0, 1.0):
        for at, since in enumerate((started, 980.0)):
            pod = make_pod(f"g-{at}").gpu(8).gang("default/g")
            built = pod.released(f"n{at}", "p", "default/g", 2, 2).running(f"n{at}").build()
            cluster.pods(replace(built, started=since, uid=f"{at}-{started}"))
        answer = plan_preemption(cluster.state, unit, options, context=context)
        assert isinstance(answer, Preemption) == (started == 1.0)
