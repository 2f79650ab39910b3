"""Preemption: the worked examples, and who may be evicted for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit

from koord.core.eviction.model import Preemption
from koord.core.eviction.reasons import NobodyLower, PreemptionNotHelpful
from koord.core.eviction.search import plan_preemption

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.model.plan import Unit
    from koord.core.model.reasons import Reason


def running(name: str, node: str, cpu: int, priority: int = 0) -> PodBuilder:
    pod = make_pod(name).requests(cpu=cpu * 1000).priority(priority)
    return pod.released(node, "p").running(node)


def waiting(name: str, count: int, cpu: int, priority: int) -> Unit:
    pods = [
        make_pod(f"{name}{at}").requests(cpu=cpu * 1000).priority(priority) for at in range(count)
    ]
    return make_unit(name, pods)


def search(cluster: FakeCluster, unit: Unit) -> Preemption | Reason:
    return plan_preemption(cluster.state, unit)


def victims_of(answer: Preemption | Reason) -> str:
    assert isinstance(answer, Preemption), answer
    return " ".join(sorted(pod.name for pod in answer.pods))


def places_of(answer: Preemption | Reason) -> dict[str, str]:
    assert isinstance(answer, Preemption), answer
    return {assignment.pod.name: assignment.node for assignment in answer.placement.assignments}


def test_gang_over_two_nodes_takes_both() -> None:
    """Each worker gets a node of its own: siblings count while victims are searched (16.5)."""
    cluster = make_cluster().nodes(*(make_node(f"n{at}").cpu(4000) for at in (1, 2)))
    cluster.pods(running("low1", "n1", 4, 1000), running("low2", "n2", 4, 1000))
    answer = search(cluster, waiting("hp", 2, 3, 1_000_000))
    assert victims_of(answer) == "low1 low2"
    assert places_of(answer) == {"hp0": "n1", "hp1": "n2"}


def test_equal_priority_is_no_victim() -> None:
    cluster = make_cluster().nodes(make_node("n1").cpu(4000)).pods(running("same", "n1", 4, 10))
    answer = search(cluster, waiting("w", 1, 4, 10))
    assert isinstance(answer, NobodyLower)
    assert answer.text() == "none of 1 running pod has a priority below 10"
    assert answer.text(compat=True).endswith(" (No preemption victims found for incoming pod)")


def test_nobody_is_evicted_unless_all_members_fit() -> None:
    cluster = make_cluster().nodes(make_node("n1").cpu(4000)).pods(running("low", "n1", 4))
    answer = search(cluster, waiting("w", 2, 4, 10))
    assert isinstance(answer, PreemptionNotHelpful)
