"""A pod stays charged to the quota that it started in, whatever its labels say later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import remove_quota, upsert_quota
from tests.support.laws import examples

from koord.answers.quota_audit import find_drift
from koord.core.model.pods import RecordedPlan
from koord.core.quota import cache
from koord.core.quota.model import DEFAULT, ROOT, SYSTEM
from koord.domains.registry import make_cluster_state

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState
    from koord.core.model.pods import Pod

MINE = make_quota("mine", "q", namespaces=("default",), max={GPU: 64}, shared_with=())
SPARE = make_quota("spare", "q", max={GPU: 64}, shared_with=("default",))
THEIRS = make_quota("theirs", "other", max={GPU: 64}, shared_with=())


def used(state: ClusterState) -> dict[str, int]:
    state.refresh()
    usage = state.quotas.usage.usage()
    return {
        name: usage_of_quota.used[GPU]
        for name, usage_of_quota in usage.items()
        if usage_of_quota.used.get(GPU)
    }


def restart(state: ClusterState) -> ClusterState:
    """Return a state made of the same objects, as another process makes it."""
    fresh = make_cluster_state()
    for spec in state.quotas.catalog.written.values():
        upsert_quota(fresh, spec)
    for node in state.table.nodes:
        if node is not None:
            fresh.upsert_node(node)
    for uid in state.pods:
        observed = state.observed(uid)
        assert observed is not None
        fresh.upsert_pod(observed)
    return fresh


def bind(state: ClusterState, pod: Pod) -> None:
    """Bind a pod as the operators do, with the record of its quota."""
    quota = state.quotas.charges_of([pod]).get(pod.uid, "")
    recorded = RecordedPlan("n0", "p", "", 1, quota=quota)
    state.upsert_pod(replace(pod, node="n0", is_gated=False, recorded=recorded))


@pytest.mark.parametrize("label", ["", "spare", "theirs", "gone", SYSTEM, DEFAULT, ROOT])
@pytest.mark.parametrize("is_ours", [True, False])
def test_relabelling_a_running_pod_changes_nothing(label: str, is_ours: bool) -> None:  # noqa: FBT001
    cluster = make_cluster(1).quotas(MINE, SPARE, THEIRS)
    waiting = make_pod("a").gpu(8).quota("mine")
    cluster.pods(waiting)
    if is_ours:
        bind(cluster.state, cluster.pod("a"))
    else:
        cluster.pods(waiting.running("n0").not_ours())
    assert used(cluster.state) == {"mine": 8}
    cluster.pods(replace(cluster.pod("a"), quota=label))
    assert used(cluster.state) == {"mine": 8}
    # Leaving its gang, or joining one, does not matter either.
    cluster.pod_groups(make_pod_group("default/g", 1))
    gang = make_pod("b").gang("default/g").build().gang
    cluster.pods(replace(cluster.pod("a"), gang=gang))
    assert used(cluster.state) == {"mine": 8}
    assert not find_drift(cluster.state)
    if is_ours or label != "spare":
        assert used(restart(cluster.state)) == {"mine": 8}


def test_what_quotas_say_later_moves_no_running_pod() -> None:
    cluster = make_cluster(1).quotas(MINE, SPARE, THEIRS).pods(make_pod("a").gpu(8))
    bind(cluster.state, cluster.pod("a"))
    assert used(cluster.state) == {"mine": 8}
    cluster.quotas(replace(MINE, namespaces=()), replace(THEIRS, namespaces=("default",)))
    assert used(cluster.state) == used(restart(cluster.state)) == {"mine": 8}
    cluster.pods(make_pod("b").gpu(1))
    bind(cluster.state, cluster.pod("b"))
    assert used(cluster.state) == {"mine": 8, "theirs": 1}


def test_a_pod_outside_of_quotas_counts_where_its_namespace_belongs_by_now() -> None:
    cluster = make_cluster(1).quotas(THEIRS).pods(make_pod("a").gpu(8))
    bind(cluster.state, cluster.pod("a"))
    assert used(cluster.state) == {DEFAULT: 8}
    cluster.quotas(MINE)
    assert used(cluster.state) == used(restart(cluster.state)) == {"mine": 8}


def test_a_pod_whose_binding_failed_counts_where_its_label_says() -> None:
    cluster = make_cluster(1).quotas(MINE, SPARE).pods(make_pod("a").gpu(8))
    cluster.state.assume("uid-default-a", "n0")
    assert used(cluster.state) == {"mine": 8}
    cluster.state.forget("uid-default-a")
    assert used(cluster.state) == {}
    cluster.pods(make_pod("a").gpu(8).quota("spare"))
    cluster.state.assume("uid-default-a", "n0")
    assert used(cluster.state) == {"spare": 8}


def test_a_record_counts_again_when_its_quota_is_back() -> None:
    cluster = make_cluster(1).quotas(SPARE).pods(make_pod("a").gpu(8).quota("spare"))
    bind(cluster.state, cluster.pod("a"))
    fresh = restart(cluster.state)
    remove_quota(fresh, "q/spare")
    upsert_quota(fresh, THEIRS)
    assert used(fresh) == {DEFAULT: 8}
    upsert_quota(fresh, SPARE)
    assert used(fresh) == {"spare": 8}


def test_with_compat_the_label_decides_at_any_time() -> None:
    cluster = make_cluster(1, compat=True).quotas(MINE, THEIRS).pods(make_pod("a").gpu(8))
    bind(cluster.state, cluster.pod("a"))
    assert used(cluster.state) == {"mine": 8}
    cluster.pods(replace(cluster.pod("a"), quota="theirs"))
    assert used(cluster.state) == {"theirs": 8}


class Tenant:
    """What somebody who may edit namespace ``default`` can do to four pods there."""

    def __init__(self) -> None:
        theirs = make_pod("other/x").gpu(5).quota("theirs").running("n0").not_ours()
        cluster = make_cluster(1).quotas(MINE, SPARE, THEIRS).pods(theirs)
        self.state = cluster.state

    def create(self, at: int, label: str) -> None:
        if f"default/p{at}" not in {pod.key for pod in self.state.pods.values()}:
            self.state.upsert_pod(make_pod(f"p{at}").gpu(at + 1).quota(label).build())

    def start(self, at: int, _: str) -> None:
        """Have the operators start a pod, if its quota lets them."""
        pod = self.pod(at)
        if pod is not None and not pod.node and self.state.quotas.reason_of(pod) is None:
            bind(self.state, pod)

    def start_elsewhere(self, at: int, label: str) -> None:
        pod = self.pod(at)
        if pod is not None and not pod.node:
            started = make_pod(f"p{at}").gpu(at + 1).quota(label).running("n0").not_ours()
            self.state.upsert_pod(started.build())

    def relabel(self, at: int, label: str) -> None:
        pod = self.pod(at)
        if pod is not None:
            self.state.upsert_pod(replace(pod, quota=label))

    def regroup(self, at: int, _: str) -> None:
        pod = self.pod(at)
        if pod is not None:
            gang = None if pod.gang else make_pod("b").gang("default/g").build().gang
            self.state.upsert_pod(replace(pod, gang=gang))

    def end(self, at: int, _: str) -> None:
        self.state.remove_pod(f"uid-default-p{at}")

    def restart(self, *_: object) -> None:
        self.state = restart(self.state)

    def pod(self, at: int) -> Pod | None:
        return self.state.pod_by_key(f"default/p{at}")


LABELS = ["", "mine", "spare", "theirs", "gone", SYSTEM, DEFAULT, ROOT]
DEEDS = ["create", "start", "start_elsewhere", "relabel", "regroup", "end", "restart"]
STEP = st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.sampled_from(LABELS))


@settings(max_examples=examples(40))
@given(st.lists(STEP, max_size=30))
def test_a_tenant_changes_no_use_of_others_and_hides_none_of_its_own(steps) -> None:
    tenant = Tenant()
    for deed, at, label in steps:
        tenant.state.refresh()
        getattr(tenant, deed)(at, label)
        amounts = used(tenant.state)
        assert amounts.pop("theirs") == 5
        assert amounts.keys() <= {"mine", "spare"}
        running = [pod for pod in tenant.state.pods.values() if pod.node]
        assert sum(amounts.values()) == sum(dict(pod.shape.requests)[GPU] for pod in running) - 5


def test_what_is_remembered_of_pods_that_are_gone_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(cache, "MOST_STALE", 4)
    cluster = make_cluster(1).quotas(MINE)
    for at in range(20):
        cluster.pods(make_pod("a").uid(f"{at}").gpu(1).quota(f"q{at}").running("n0"))
        assert used(cluster.state) == {"mine": 1}
    quotas = cluster.state.quotas
    assert len(quotas.charged) <= 8
    assert len(quotas._bindings_of) <= 8
