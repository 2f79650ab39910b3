"""The reader of the demo's own against a real API server."""

from tests.demo.conftest import wait_for

from koord.api.keys import gang as keys
from koord.demo import watch
from koord.demo.observer import Observer
from koord.demo.watch import Server, make_cut

GATED = {"schedulingGates": [{"name": "example.com/held"}]}


def create_pod(sandbox, namespace, name):
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {keys.POD_GROUP: namespace}},
        "spec": GATED | {"containers": [container]},
    }
    sandbox.client.create(f"/api/v1/namespaces/{namespace}/pods", pod)


def delete_pod(sandbox, namespace, name):
    sandbox.client.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")


def see(observer, namespace):
    return {pod.name: pod.is_present for pod in observer.look().members(namespace)}


def test_what_happens_is_seen(sandbox, namespace):
    observer = Observer()
    create_pod(sandbox, namespace, "before")
    with observer.watch(Server.of(sandbox)):
        create_pod(sandbox, namespace, "after")
        assert wait_for(lambda: see(observer, namespace) == {"before": True, "after": True})
        delete_pod(sandbox, namespace, "before")
        assert wait_for(lambda: see(observer, namespace) == {"before": False, "after": True})
    assert all(pod.gpus == 2 for pod in observer.look().members(namespace))


def test_what_happens_while_the_connection_is_cut_is_seen_afterwards(
    sandbox, namespace, monkeypatch
):
    observer, cuts = Observer(), []
    connect = Server.connect
    monkeypatch.setattr(
        watch, "make_cut", lambda connection: cuts.append(make_cut(connection)) or cuts[-1]
    )
    create_pod(sandbox, namespace, "lost")
    with observer.watch(Server.of(sandbox)):
        assert wait_for(lambda: see(observer, namespace) == {"lost": True})
        monkeypatch.setattr(Server, "connect", refuse)
        for cut in cuts:
            cut()
        delete_pod(sandbox, namespace, "lost")
        create_pod(sandbox, namespace, "new")
        monkeypatch.setattr(Server, "connect", connect)
        assert wait_for(lambda: see(observer, namespace) == {"lost": False, "new": True})


def refuse(_):
    raise ConnectionRefusedError
