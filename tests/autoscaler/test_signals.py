"""When members are marked for autoscalers, and when their marks are taken off."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import FakeCluster, make_cluster

from koord.answers.reason_context import ContextFinder
from koord.controllers.scale_up import LOOK_SECONDS, VAIN_SECONDS, ScaleUpSignals
from koord.controllers.scale_up_marks import AGAIN_SECONDS, MOST_WRITES, MarkChannel
from koord.core.autoscaler.nodes import YOUNG_SECONDS
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.model.pods import Nominated, Pod
from koord.domains.registry import make_pod_translator
from koord.kube.translate.pod_conditions import SCALE_UP, find_unschedulable
from koord.kube.wire import WirePod

if TYPE_CHECKING:
    from koord.core.model.nodes import Node
    from koord.core.model.plan import Unit
    from koord.core.model.reasons import Reason

DELAY = 30.0
TYPE = "node.kubernetes.io/instance-type"


@dataclass
class Play:
    """A cluster, who marks its pods, and the marks as the API server has them."""

    cluster: FakeCluster
    options: AutoscalerOptions = field(default=AutoscalerOptions(Signal.MARK, DELAY))
    marked: dict[str, Pod] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    preempting: dict[str, Reason] = field(default_factory=dict)
    writes: list[tuple[str, str]] = field(default_factory=list)
    noted: list[set[str]] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the process, again: it knows what the API server has."""
        self.signals = ScaleUpSignals(
            state=self.cluster.state,
            queue=self.cluster.queue,
            options=self.options,
            channels={
                Signal.MARK: MarkChannel(self, self.marked, self.cluster.state.assumed),
            },
            preempting=self.preempting.get,
            note=lambda gangs, _: self.noted.append(gangs),
            is_synced=lambda: True,
            clock=lambda: self.now,
        )

    async def put(self, pod: Pod, message: str) -> bool:
        self.writes.append(("put", pod.name))
        self.marked[pod.uid], self.texts[pod.name] = pod, message
        return True

    async def take_off(self, pod: Pod) -> bool:
        self.writes.append(("off", pod.name))
        del self.marked[pod.uid]
        return True

    async def after(self, seconds: float = 0.0) -> list[str]:
        """Return who is marked after so long."""
        self.now += seconds
        self.cluster.state.advance(self.now)
        self.cluster.step()
        await self.signals.look()
        return sorted(pod.name for pod in self.marked.values())


MEMBERS = [f"train-{at}" for at in range(3)]


async def test_members_are_marked_after_a_delay_and_kept_so() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    assert await play.after() == []
    assert await play.after(DELAY - 1) == []
    assert await play.after(1) == MEMBERS
    assert await play.after(100) == MEMBERS
    assert len(play.writes) == 3
    assert set(play.texts.values()) == {f"{SCALE_UP}gang default/train lacks nodes with room"}


async def test_a_restart_neither_waits_again_nor_writes_again() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    play.start()
    assert await play.after() == MEMBERS
    assert len(play.writes) == 3


async def test_marks_go_when_the_signal_is_switched_off() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    play.options = AutoscalerOptions()
    play.start()
    assert await play.after() == []


async def test_pods_that_get_their_nodes_are_left_alone() -> None:
    """Their bindings set the condition."""
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    play.cluster.nodes(*(make_node(f"new{at}").gpu(8) for at in range(2)))
    assert await play.after(1) == MEMBERS
    assert len(play.cluster.state.assumed) == 3
    assert len(play.writes) == 3


async def test_another_reason_takes_the_mark_off_and_it_comes_back_after_a_minute() -> None:
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    (key,) = play.cluster.queue.blocked
    play.preempting[key] = play.cluster.reason()
    assert await play.after(1) == []
    play.preempting.clear()
    assert await play.after(AGAIN_SECONDS - 1) == []
    assert await play.after(DELAY) == MEMBERS


async def test_a_pod_with_a_nominated_node_is_not_marked() -> None:
    """X-35."""
    play = Play(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    await play.after(DELAY)
    pod = play.cluster.pod("train-0")
    play.cluster.pods(replace(pod, nominated=Nominated("n0", "p", "u", 3)))
    assert await play.after(1) == []


async def test_a_thousand_gangs_are_no_more_marks_than_allowed_and_few_writes_at_once() -> None:
    cluster = make_cluster(nodes=1)
    for at in range(1000):
        cluster.gang(f"g{at:04}", 2)
    play = Play(cluster, AutoscalerOptions(Signal.MARK, 0.0, max_pods=100))
    for unit in cluster.take(most=10_000):
        cluster.decide([unit])
    await play.signals.look()
    assert len(play.marked) == MOST_WRITES
    await play.signals.look()
    await play.signals.look()
    assert len(play.marked) == 100
    assert len({pod.gang.key for pod in play.marked.values() if pod.gang}) == 50


async def test_pods_that_cannot_be_marked_are_in_the_way_of_their_namespace_alone() -> None:
    cluster = make_cluster(nodes=1)
    gangs = [f"a/g{at}" for at in range(MOST_WRITES)] + ["b/g"]
    for gang in gangs:
        cluster.pod_groups(make_pod_group(gang, 2))
        cluster.pods(*(make_pod(f"{gang}-{at}").gang(gang).gpu(8) for at in range(2)))

    class Failing(Play):
        async def put(self, pod: Pod, message: str) -> bool:
            return pod.namespace != "a" and await super().put(pod, message)

    play = Failing(cluster, AutoscalerOptions(Signal.MARK, 0.0))
    for unit in cluster.take(most=10_000):
        cluster.decide([unit])
    await play.signals.look()
    assert {pod.namespace for pod in play.marked.values()} == {"b"}


async def test_slow_writes_delay_no_look() -> None:
    class Slow(Play):
        async def put(self, pod: Pod, message: str) -> bool:
            self.now += 60
            return await super().put(pod, message)

    play = Slow(make_cluster(nodes=1).gang("train", 3))
    await play.after()
    assert await play.after(DELAY) == MEMBERS
    assert play.signals.pause == LOOK_SECONDS


async def test_a_gang_that_gets_no_nodes_keeps_the_marks_from_nobody_for_ever() -> None:
    cluster = make_cluster(nodes=1)
    for gang, count, created in (("a/hog", 9, 1), ("b/g", 3, 2)):
        cluster.pod_groups(make_pod_group(gang, count))
        pods = (make_pod(f"{gang}-{at}").gang(gang).gpu(8) for at in range(count))
        cluster.pods(*(pod.created(created) for pod in pods))
    play = Play(cluster, AutoscalerOptions(Signal.MARK, DELAY, max_pods=10))
    await play.after()
    hog, small = [f"hog-{at}" for at in range(9)], [f"g-{at}" for at in range(3)]
    assert await play.after(DELAY) == hog
    assert await play.after(VAIN_SECONDS - 1) == hog
    await play.after(1)
    await play.after(1)
    assert await play.after(DELAY) == small
    # They get no nodes, either: then it is the turn of the other one again.
    await play.after(VAIN_SECONDS)
    await play.after(1)
    assert await play.after(DELAY) == hog


def starting(name: str, at: float) -> Node:
    """A node as it comes: neither ready nor with the GPUs that its device plugin adds."""
    node = make_node(name).label(TYPE, "h100").taint("node.kubernetes.io/not-ready")
    return replace(node.build(), created=at)


async def test_nodes_that_are_starting_are_waited_for_and_no_others_asked_for() -> None:
    cluster = make_cluster().nodes(make_node("n0").gpu(8).label(TYPE, "h100"))
    play = Play(cluster.gang("train", 3), AutoscalerOptions(Signal.MARK, 0.0))
    assert await play.after() == MEMBERS
    cluster.nodes(starting("new0", play.now))
    assert await play.after(1) == MEMBERS, "one is not enough"
    cluster.nodes(starting("new1", play.now))
    assert await play.after(1) == []
    assert play.noted[-1] == {"default/train"}
    reason = ContextFinder(cluster.state).add(*blocked(cluster))
    assert reason.text().startswith("2 new nodes are starting (new0, new1). Room for 1 of 3 pods.")
    assert reason.advice() == ("Wait until new0, new1 are ready.",)
    assert await play.after(YOUNG_SECONDS) == MEMBERS, "they do not get ready"
    assert ContextFinder(cluster.state).add(*blocked(cluster)).context is None


async def test_a_node_without_its_gpus_is_no_new_node_for_pods_that_need_none() -> None:
    cluster = make_cluster().nodes(make_node("n0").gpu(8).label(TYPE, "h100").cpu(100))
    cluster.pods(make_pod("filler").requests(cpu=63_000).running("new"))
    cluster.pods(make_pod("other").requests(cpu=2_000), make_pod("gpus").gpu(9))
    play = Play(cluster, AutoscalerOptions(Signal.MARK, 0.0))
    cluster.nodes(replace(starting("new", play.now), taints=()))
    assert await play.after() == ["other"]


def blocked(cluster: FakeCluster) -> tuple[Unit, Reason]:
    (found,) = cluster.queue.blocked.values()
    return found.unit, found.reason


@pytest.mark.parametrize(
    ("message", "is_ours"),
    [(f"{SCALE_UP}gang a/b lacks nodes with room", True), ("0/3 nodes are available", False)],
)
def test_our_mark_is_no_refusal_of_kube_scheduler(message: str, is_ours: bool) -> None:  # noqa: FBT001
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    wire = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"schedulingGates": [{"name": "operators.koordinator.sh/placement"}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    translator = make_pod_translator()
    decoded = msgspec.convert(wire, WirePod)
    assert (find_unschedulable(decoded) is None) is is_ours
    pod = translator.translate(decoded)
    assert (pod.uid in translator.marked) is is_ours
    translator.forget(pod)
    assert not translator.marked
