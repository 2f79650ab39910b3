"""What the observer makes of changes; the watch itself runs against a real API server."""

import itertools
import threading

import msgspec
import pytest
from tests.demo.conftest import wait_for

from koord.api.keys import gang as keys
from koord.kube.store import Added, Deleted, Modified
from koord.kube.wire import WireCondition, WireCustomResource, WirePod
from koord_sandbox.demo import observer as module
from koord_sandbox.demo.observer import Observer

GATED = {"schedulingGates": [{"name": "example.com/held"}]}


def make_pod(name="a-0", *, node="", phase="Pending", gpus="8"):
    pod = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {keys.POD_GROUP: "a"}},
        "spec": {
            "containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}, {}],
            "nodeName": node,
        },
        "status": {"phase": phase},
    }
    return module._see_pod(msgspec.json.decode(msgspec.json.encode(pod), type=WirePod))


@pytest.fixture
def observer():
    """Its clock gives 0, 1, 2 ..."""
    return Observer(itertools.count().__next__)


def the_pod(observer):
    (pod,) = observer.look().pods
    return pod


def test_times_are_those_of_the_first_sight(observer):
    observer.take([Added(make_pod())])
    for pod in (
        make_pod(node="n"),
        make_pod(node="n", phase="Running"),
        make_pod(node="n", phase="Succeeded"),
        make_pod(node="n", phase="Succeeded"),
    ):
        observer.take([Modified(pod, pod)])
    pod = the_pod(observer)
    assert (pod.created_at, pod.bound_at, pod.ended_at) == (0, 1, 3)
    assert (pod.gang, pod.gpus, pod.node, pod.phase) == ("a", 8, "n", "Succeeded")
    assert not pod.is_bound


def test_a_deleted_pod_counts_as_ended(observer):
    observer.take([Added(make_pod(node="n"))])
    observer.take([Deleted(make_pod(node="n"))])
    assert the_pod(observer).ended_at is not None
    assert observer.look().present("a") == []


def test_conditions_of_a_pod_group_say_why_it_waits(observer):
    conditions = [
        {"type": "Bound", "status": "False"},
        {"type": "Placed", "status": "False", "reason": "R", "message": "m"},
        {"type": "QuorumReached", "status": "True"},
    ]
    group = {
        "metadata": {"name": "a", "uid": "u"},
        "spec": {"minMember": 2},
        "status": {"phase": "Pending", "conditions": conditions},
    }
    wire = msgspec.json.decode(msgspec.json.encode(group), type=WireCustomResource)
    observer.take([Added(module._see_gang(wire))])
    gang = observer.look().gang("a")
    assert gang.min_member == 2
    assert gang.waiting_condition() == WireCondition("Placed", "False", "R", "m")
    observer.take([Deleted(module._see_gang(wire))])
    assert observer.look().gang("a") is None


def test_wait_returns_when_it_is_seen():
    observer = Observer()
    threading.Timer(0.05, observer.take, [[Added(make_pod())]]).start()
    assert observer.wait(lambda cluster: bool(cluster.pods), 30, lambda: None)


def test_wait_returns_after_its_time(observer):
    assert not observer.wait(lambda cluster: bool(cluster.pods), 2, lambda: None)


def test_wait_raises_what_the_check_raises():
    def check():
        raise LookupError

    with pytest.raises(LookupError):
        Observer().wait(lambda _: False, 30, check)


@pytest.mark.sandbox
def test_pods_of_a_real_api_server_are_seen(sandbox, namespace):
    def create(name):
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {keys.POD_GROUP: namespace}},
            "spec": GATED | {"containers": [container]},
        }
        sandbox.client.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    def see():
        members = observer.look().members(namespace)
        return {pod.name: pod.ended_at is None for pod in members}

    observer = Observer()
    create("before")
    with observer.watch(sandbox.kubeconfig):
        create("after")
        assert wait_for(lambda: see() == {"before": True, "after": True})
        sandbox.client.delete(f"/api/v1/namespaces/{namespace}/pods/before")
        assert wait_for(lambda: see() == {"before": False, "after": True})
    assert all(pod.gpus == 2 for pod in observer.look().members(namespace))
