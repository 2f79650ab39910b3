"""Supply and use are summed over the same nodes and pods, whatever has happened before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.objects import remove_quota

from koord.answers.quota_audit import find_drift
from koord.core.model.device_names import GPU_CORE
from koord.core.model.selectors import Requirement, SelectorOperator, is_selected
from koord.core.quota.model import is_closed

if TYPE_CHECKING:
    from koord.core.model.nodes import Node
    from koord.core.model.pods import Pod
    from koord.core.quota.model import QuotaSpec

IN_POOL = (Requirement("pool", SelectorOperator.IN, ("a",)),)
NAMES = ("n0", "n1", "n2", "n3")
TEAM = make_quota("team", "default", min={GPU: 32}, max={GPU: 32})
POOLED = make_quota("pooled", "default", parent="root", tree_id="t", max={GPU: 64})
QUOTAS = ("team", "pooled", "")


def make_root(total: int, closed: int = 0) -> QuotaSpec:
    return make_quota(
        "root", "default", created=1.0, is_parent=True, tree_id="t", is_tree_root=True,
        min={GPU: total}, max={GPU: 1000}, total={GPU: total}, unschedulable={GPU: closed},
        selector=IN_POOL,
    )  # fmt: skip


def total(cluster: FakeCluster, tree: str = "", key: str = GPU) -> int:
    cluster.state.open_ledger()
    return cluster.state.quotas.solutions[tree].inputs.total.get(key, 0)


def worker(name: str, node: str, gpus: int = 8, quota: str = "team") -> Pod:
    return make_pod(name).gpu(gpus).quota(quota).running(node).build()


def resize(cluster: FakeCluster, name: str, **offers: int) -> None:
    node = next(
        node for node in cluster.state.table.nodes if node is not None and node.name == name
    )
    cluster.nodes(replace(node, allocatable={**node.allocatable, **offers}))


@pytest.mark.parametrize("offer", [7, 0])
def test_a_job_within_min_starts_though_a_node_offers_less_than_is_used(offer: int) -> None:
    cluster = make_cluster(4).quotas(TEAM)
    cluster.pods(worker("a-0", "n0"), worker("a-1", "n1"))
    resize(cluster, "n0", **{GPU: offer})
    cluster.gang("b", 2)
    cluster.pods(*(replace(cluster.pod(f"b-{at}"), quota="team") for at in range(2)))
    assert sorted(cluster.step()) == ["b-0", "b-1"]
    assert total(cluster) == 32


def test_shares_of_a_failed_device_that_is_in_use_are_not_missing_elsewhere() -> None:
    team = make_quota("team", "default", min={GPU_CORE: 1600}, max={GPU_CORE: 1600})
    cluster = make_cluster().quotas(team)
    for name in ("n0", "n1"):
        cluster.nodes(make_node(name).resource(GPU_CORE, 800).resource(GPU, 8))
    cluster.pods(make_pod("d").resource(GPU_CORE, 800).quota("team").running("n0"))
    resize(cluster, "n0", **{GPU_CORE: 700})
    assert total(cluster, key=GPU_CORE) == 1600


@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_node_counts_the_same_before_and_after_a_restart(*, restarts: bool) -> None:
    cluster = make_cluster(4).quotas(TEAM).pods(worker("a", "n0"))
    cluster.state.remove_node("n0")
    assert total(restart(cluster) if restarts else cluster) == 32


def test_a_node_that_leaves_its_pool_takes_nothing_from_either_side() -> None:
    cluster = make_cluster().quotas(make_root(16), POOLED, TEAM)
    pool = [make_node(name).gpu(8).label("pool", "a").build() for name in NAMES[:2]]
    cluster.nodes(*pool, *(make_node(name).gpu(8) for name in NAMES[2:]))
    cluster.pods(worker("x", "n0", quota="pooled"))
    cluster.nodes(replace(pool[0], labels={})).quotas(make_root(8))
    # Of the pool 8 are left on its node, and 8 are used; of the others there are two nodes free.
    assert (total(cluster, "t"), total(cluster)) == (16, 16)
    cluster.delete_pods("x")
    assert (total(cluster, "t"), total(cluster)) == (8, 24)


def test_pods_of_others_in_a_pool_cost_nothing_elsewhere() -> None:
    cluster = make_cluster().quotas(make_root(8), POOLED, TEAM)
    cluster.nodes(make_node("n0").gpu(8).label("pool", "a"), make_node("n1").gpu(8))
    cluster.pods(worker("daemon", "n0", 2, quota=""))
    assert total(cluster) == 8
    cluster.pods(worker("guest", "n0", 4))
    assert total(cluster) == 12


def test_the_rest_of_a_pool_is_used_before_anything_is_added_for_it() -> None:
    cluster = make_cluster().quotas(make_root(4), POOLED, TEAM)
    cluster.nodes(make_node("n0").gpu(8).label("pool", "a"), make_node("n1").gpu(8))
    cluster.pods(worker("guest", "n0", 4))
    assert total(cluster) == 12, "half of the pool's node is not the pool's"


# Any history


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, object]:
    kind = draw(st.sampled_from(("node", "no node", "pod", "no pod", "quota", "no quota")))
    if kind == "node":
        node = make_node(draw(st.sampled_from(NAMES))).gpu(draw(st.integers(0, 8)))
        if draw(st.booleans()):
            node = node.label("pool", "a")
        closed = draw(st.sampled_from(("", "", "is_unschedulable", "is_terminating")))
        return kind, replace(node.build(), **{closed: True} if closed else {})
    if kind == "no node":
        return kind, draw(st.sampled_from(NAMES))
    name = f"p{draw(st.integers(0, 5))}"
    if kind == "pod":
        at, quota = draw(st.sampled_from(NAMES)), draw(st.sampled_from(QUOTAS))
        return kind, replace(worker(name, at, draw(st.integers(1, 8)), quota), uid=name)
    if kind == "quota":
        return kind, draw(st.sampled_from((POOLED, TEAM, make_root(16), make_root(8))))
    return kind, draw(st.sampled_from((TEAM.name, name))) if kind == "no quota" else name


def apply(cluster: FakeCluster, step: tuple[str, object]) -> None:
    """Have something happen; the label of a pod that runs stays.

    Whoever relabels a running pod of another scheduler changes what is charged for it only at the
    next restart, as docs/quota.md says: nothing records that it was charged elsewhere.
    """
    kind, what = step
    act = {
        "node": cluster.nodes,
        "no node": cluster.state.remove_node,
        "pod": lambda pod: cluster.pods(replace(pod, quota=_label_of(cluster, pod))),
        "no pod": cluster.state.remove_pod,
        "quota": cluster.quotas,
        "no quota": lambda name: remove_quota(cluster.state, f"default/{name}"),
    }
    act[kind](what)  # type: ignore[operator]


def _label_of(cluster: FakeCluster, pod: Pod) -> str:
    running = next((same for same in cluster.state.pods.values() if same.uid == pod.uid), pod)
    return running.quota


def restart(cluster: FakeCluster) -> FakeCluster:
    """Return a cluster that has seen nothing but what there is now."""
    state = cluster.state
    fresh = make_cluster().quotas(*state.quotas.catalog.written.values())
    fresh.nodes(*(node for node in state.table.nodes if node is not None))
    return fresh.pods(*state.pods.values())


def totals(cluster: FakeCluster) -> dict[str, dict[str, int]]:
    cluster.state.open_ledger()
    solutions = cluster.state.quotas.solutions
    return {tree: dict(solution.inputs.total) for tree, solution in solutions.items()}


def free_on(cluster: FakeCluster, node: Node) -> int:
    used = sum(dict(pod.shape.requests)[GPU] for pod in cluster.state.pods_on(node.name))
    return max(0, node.allocatable[GPU] - used)


@given(st.lists(steps(), max_size=25))
def test_what_is_left_of_supply_is_free_on_nodes_and_a_restart_changes_nothing(
    history: list[tuple[str, object]],
) -> None:
    cluster = make_cluster().quotas(TEAM, make_root(0), POOLED)
    for step in history:
        apply(cluster, step)
        # The profile keeps the root of the tree in step with the nodes of the pool.
        pool = _pool_of(cluster)
        closed = sum(node.allocatable[GPU] for node in pool if is_closed(node))
        cluster.quotas(make_root(sum(node.allocatable[GPU] for node in pool), closed))
        total_of_tree = totals(cluster)
        if (
            GPU in total_of_tree.get("", {})
            and "team" in cluster.state.quotas.catalog.registry.specs
        ):
            used = cluster.state.quotas.usage.of("team").used.get(GPU, 0)
            free = sum(free_on(cluster, node) for node in _open_nodes_of(cluster))
            assert total_of_tree[""][GPU] - used == free
    # Only now, which takes as long as all of the history; others end earlier.
    assert totals(cluster) == totals(restart(cluster))
    assert not find_drift(cluster.state)


def _nodes_of(cluster: FakeCluster) -> list[Node]:
    return [node for node in cluster.state.table.nodes if node is not None]


def _pool_of(cluster: FakeCluster) -> list[Node]:
    nodes = _nodes_of(cluster)
    return [node for node in nodes if is_selected(node.labels, IN_POOL) and not node.is_terminating]


def _open_nodes_of(cluster: FakeCluster) -> list[Node]:
    pool = _pool_of(cluster)
    return [
        node
        for node in _nodes_of(cluster)
        if node not in pool and not (is_closed(node) or node.is_terminating)
    ]


def test_as_koordinator_has_it_capacity_is_what_nodes_offer_and_nothing_piles_up() -> None:
    cluster = make_cluster(2, compat=True).quotas(TEAM)
    for at in range(20):
        cluster.pods(replace(worker("a", f"gone-{at}"), uid=f"uid-{at}"))
        assert total(cluster) == 16
    assert not cluster.state.quotas.usage.take_touched()
    assert len(cluster.state.quotas.usage.nodes()) == 1
