"""Loops over batch pods, and over nodes on which prod pods need their room."""

from dataclasses import replace

from tests.eviction.test_batch_reclaim import batch, make_cluster, prod, report, run
from tests.isolation.plays import NAMES, Patch, fail_on_bad, is_bad, play

from koord.core.engine.state import ClusterState
from koord.core.eviction import batch_reclaim
from koord.core.eviction.mobility import describe
from koord.core.migration.model import MovedPod
from koord.core.model.pods import Pod


def leave_one_by_one() -> list[str]:
    """Return who leaves a short node, one look after the other."""
    pods: list[Pod] = [batch(name) for name in NAMES]
    cluster, gone = make_cluster(prod("web", gib=70), *pods), list[str]()
    for _ in NAMES:
        report(cluster)
        for eviction in run(cluster).reclaims:
            gone += [pod.name for pod in eviction.unit.pods]
            for pod in eviction.unit.pods:
                cluster.state.remove_pod(pod.uid)
    return sorted(gone)


@play("batch-reclaim")
def units(patch: Patch) -> list[str]:
    fail_on_bad(patch, batch_reclaim, "is_batch")
    return leave_one_by_one()


def _describe(state: ClusterState, pod: Pod) -> MovedPod:
    if is_bad(pod):
        raise ZeroDivisionError
    return describe(state, pod)


@play("batch-reclaim")
def rules(patch: Patch) -> list[str]:
    patch.setattr(batch_reclaim, "describe", _describe)
    return leave_one_by_one()


@play("batch-reclaim")
def nodes(patch: Patch) -> list[str]:
    cluster = make_cluster()
    for name in NAMES:
        cluster.nodes(replace(cluster.state.table.node_at(0), name=name, uid=name))
        cluster.pods(prod(f"web-{name}", name, 70), batch(name, name))
    report(cluster)
    fail_on_bad(patch, batch_reclaim, "find_memory_shortage")
    return sorted(pod.name for each in run(cluster).reclaims for pod in each.unit.pods)
