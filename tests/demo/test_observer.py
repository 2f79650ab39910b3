"""What becomes of events: moments that stay, deletions that are inferred, waiting that ends."""

import itertools
import threading

import msgspec
import pytest

from koord.demo.observed import Condition
from koord.demo.observer import Observer
from koord.demo.wire import WireNode, WirePod, WirePodGroup


def make_pod(name="a-0", *, node=None, phase="Pending", gpus="8", **status):
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": {"pod-group.scheduling.sigs.k8s.io": "a"},
            },
            "spec": {
                "containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}, {}],
                **({} if node is None else {"nodeName": node}),
            },
            "status": {"phase": phase, **status},
        },
        WirePod,
    )


@pytest.fixture
def observer():
    """Its clock gives 0, 1, 2 …"""
    return Observer(itertools.count().__next__)


def the_pod(observer):
    (pod,) = observer.look().pods
    return pod


def test_moments_are_those_of_the_first_sight(observer):
    for pod in (
        make_pod(),
        make_pod(node="n"),
        make_pod(node="n", phase="Running"),
        make_pod(node="n", phase="Succeeded"),
        make_pod(node="n", phase="Succeeded"),
    ):
        observer.pods.upsert(pod)
    pod = the_pod(observer)
    assert (pod.created_at, pod.bound_at, pod.ended_at) == (0, 1, 3)
    assert (pod.gang, pod.gpus, pod.node, pod.phase) == ("a", 8, "n", "Succeeded")
    assert not pod.is_bound


def test_a_deleted_pod_stays_as_ended(observer):
    observer.pods.upsert(make_pod(node="n"))
    observer.pods.remove(make_pod(node="n"))
    assert the_pod(observer).ended_at is not None
    assert observer.look().on_node("n") == []


def test_what_a_list_does_not_have_has_ended(observer):
    observer.pods.replace([make_pod("a-0"), make_pod("a-1")])
    observer.pods.replace([make_pod("a-1"), make_pod("a-2")])
    assert {pod.name: pod.is_present for pod in observer.look().pods} == {
        "a-0": False,
        "a-1": True,
        "a-2": True,
    }


def test_a_deleted_node_is_gone(observer):
    node = msgspec.convert(
        {"metadata": {"name": "n", "uid": "u"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}},
        WireNode,
    )
    observer.nodes.upsert(node)
    assert observer.look().nodes[0].gpus == 4
    observer.nodes.remove(node)
    assert observer.look().nodes == ()


def test_conditions_are_seen(observer):
    condition = {"type": "Placed", "status": "False", "reason": "R", "message": "m"}
    group = {
        "metadata": {"name": "a", "uid": "u"},
        "spec": {"minMember": 2},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    observer.gangs.upsert(msgspec.convert(group, WirePodGroup))
    gang = observer.look().gang("a")
    assert (gang.min_member, gang.phase) == (2, "Pending")
    assert gang.obstacle() == Condition("Placed", False, "R", "m")


def test_waiting_ends_when_it_is_seen():
    observer = Observer()
    threading.Timer(0.05, observer.pods.upsert, [make_pod()]).start()
    assert observer.wait(lambda cluster: bool(cluster.pods), 30, lambda: None)


def test_waiting_ends_with_its_time(observer):
    assert not observer.wait(lambda cluster: bool(cluster.pods), 2, lambda: None)


def test_waiting_ends_when_it_is_of_no_use():
    def check():
        raise LookupError

    with pytest.raises(LookupError):
        Observer().wait(lambda _: False, 30, check)
