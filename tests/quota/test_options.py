"""The rules of quotas that administrators choose; see ``QuotaOptions``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_unit, plan_in

from koord.answers.quota_audit import recount, repair
from koord.core.quota.model import DEFAULT, QuotaOptions, TerminatingUse
from koord.core.quota.reasons import InsufficientMax, QuotaIsParent, QuotaUnknown

SMALL = make_quota(
    "small", "default", namespaces=("default",), min={"cpu": 4_000}, max={"cpu": 4_000}
)
NEW = make_pod("new").requests(cpu=4_000).quota("small").build()
NOW, GRACE_END = 1_000.0, 1_030.0


def make_cluster(*, compat: bool = False, **options: object) -> FakeCluster:
    cluster = FakeCluster(compat=compat, quota_options=QuotaOptions(**options))
    return cluster.nodes(make_node("n").cpu(16_000))


def used_of(cluster: FakeCluster, quota: str = "small") -> int:
    cluster.state.refresh()
    return cluster.state.quotas.usage.of(quota).used.get("cpu", 0)


def refusal_of(cluster: FakeCluster, *, quota: str = "", cpu: int = 4_000) -> object:
    pod = make_pod("new").requests(cpu=cpu).quota(quota).build()
    refusals = cluster.pods(pod).plan(make_unit("new", [pod])).refusals
    cluster.delete_pods("new")
    return refusals[0].reason if refusals else None


class TestDefaultQuota:
    def test_pods_without_a_label_are_limited_by_the_quota_of_their_namespace(self) -> None:
        assert isinstance(refusal_of(make_cluster().quotas(SMALL), cpu=5_000), InsufficientMax)

    @pytest.mark.parametrize("compat", [False, True])
    def test_without_it_only_labels_count(self, *, compat: bool) -> None:
        cluster = make_cluster(has_default_quota=False, compat=compat).quotas(SMALL)
        assert refusal_of(cluster, cpu=5_000) is None
        assert isinstance(refusal_of(cluster, quota="small", cpu=5_000), InsufficientMax)
        running = make_pod("r").requests(cpu=3_000).running("n")
        assert used_of(cluster.pods(running), DEFAULT) == 3_000

    def test_without_it_a_wrong_label_lifts_no_limit(self) -> None:
        cluster = make_cluster(has_default_quota=False).quotas(SMALL)
        assert isinstance(refusal_of(cluster, quota="smal"), QuotaUnknown)

    def test_with_compat_it_does(self) -> None:
        cluster = make_cluster(has_default_quota=False, compat=True).quotas(SMALL)
        assert refusal_of(cluster, quota="smal", cpu=5_000) is None


@pytest.mark.parametrize("compat", [False, True])
def test_parents_take_pods_if_they_may(*, compat: bool) -> None:
    parent = replace(SMALL, name="parent", is_parent=True)
    child = replace(SMALL, name="child", parent="parent")
    refused = make_cluster(compat=compat).quotas(parent, child)
    assert isinstance(refusal_of(refused, quota="parent"), QuotaIsParent)
    allowed = make_cluster(compat=compat, parents_take_pods=True).quotas(parent, child)
    assert refusal_of(allowed, quota="parent") is None


@pytest.mark.parametrize(("counts", "used"), [(True, 3_000), (False, 2_500)])
def test_overhead(*, counts: bool, used: int) -> None:
    pod = make_pod("r").requests(cpu=3_000).quota("small").running("n").build()
    pod = replace(pod, shape=replace(pod.shape, overhead=(("cpu", 500),)))
    cluster = make_cluster(counts_overhead=counts).quotas(SMALL).pods(pod)
    assert used_of(cluster) == used
    assert (refusal_of(cluster, quota="small", cpu=1_500) is None) is not counts


class TestTerminatingPods:
    def make(self, use: TerminatingUse) -> FakeCluster:
        cluster = make_cluster(terminating_use=use).quotas(SMALL)
        pod = make_pod("r").requests(cpu=3_000).quota("small").running("n").build()
        cluster.state.advance(NOW)
        assert used_of(cluster.pods(pod)) == 3_000
        return cluster.pods(replace(pod, is_terminating=True, gone_by=GRACE_END))

    @pytest.mark.parametrize(
        ("use", "in_grace", "after"),
        [
            (TerminatingUse.UNTIL_GONE, 3_000, 3_000),
            (TerminatingUse.FOR_GRACE_PERIOD, 3_000, 0),
            (TerminatingUse.NOT, 0, 0),
        ],
    )
    def test_they_count_as_long_as_chosen(self, use, in_grace, after) -> None:
        cluster = self.make(use)
        assert used_of(cluster) == in_grace
        assert (refusal_of(cluster, quota="small", cpu=4_000) is None) is not bool(in_grace)
        due = cluster.state.next_due()
        assert due == (GRACE_END if in_grace and not after else None)
        cluster.state.advance(GRACE_END)
        assert used_of(cluster) == after
        assert cluster.state.next_due() is None
        assert (refusal_of(cluster, quota="small", cpu=4_000) is None) is not bool(after)

    def test_who_waited_for_the_quota_is_tried_again(self) -> None:
        cluster = self.make(TerminatingUse.FOR_GRACE_PERIOD)
        cluster.pods(make_pod("w").requests(cpu=2_000).quota("small"))
        assert cluster.step() == []
        assert isinstance(cluster.reason(), InsufficientMax)
        cluster.state.advance(GRACE_END)
        assert cluster.step() == ["w"]

    def test_one_that_is_marked_for_eviction_counts_until_it_is_deleted(self) -> None:
        cluster = make_cluster(terminating_use=TerminatingUse.NOT).quotas(SMALL)
        pod = make_pod("r").requests(cpu=3_000).quota("small").running("n").build()
        cluster.pods(replace(pod, is_terminating=True, is_eviction_pending=True))
        assert used_of(cluster) == 3_000

    def test_it_keeps_its_room_on_the_node(self) -> None:
        cluster = self.make(TerminatingUse.NOT)
        big = make_pod("big").requests(cpu=14_000).build()
        assert cluster.pods(big).plan(make_unit("big", [big])).refusals

    def test_nothing_is_subtracted_twice_when_it_is_taken_off_in_a_cycle(self) -> None:
        cluster = self.make(TerminatingUse.NOT)
        other = make_pod("o").requests(cpu=3_000).quota("small").running("n").build()
        cluster.pods(other, NEW)
        with closing(cluster.open_cycle()) as cycle:
            cycle.remove([cluster.pod("r")])
            assert plan_in(cycle, [make_unit("new", [NEW])]).refusals
            cycle.remove([cluster.pod("o")])
            assert not plan_in(cycle, [make_unit("new", [NEW])]).refusals

    def test_a_recount_from_scratch_is_the_same(self) -> None:
        cluster = self.make(TerminatingUse.FOR_GRACE_PERIOD)
        cluster.state.advance(GRACE_END)
        assert used_of(cluster) == 0
        assert recount(cluster.state).account("small").used.get("cpu", 0) == 0
        repair(cluster.state)
        assert used_of(cluster) == 0
