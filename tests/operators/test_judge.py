"""The judge finds what must never happen in a history of pods."""

from typing import Any

from tests.operators.judge import find_faults


def make_event(uid: str, node: str, kind: str = "MODIFIED", **requests: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": requests}}]}
    meta = {"name": uid, "uid": uid}
    pod = {"metadata": meta, "spec": spec | ({"nodeName": node} if node else {}), "status": {}}
    return {"type": kind, "object": pod}


class Client:
    """Answers with two nodes."""

    def get(self, _: str) -> dict[str, Any]:
        status = {"allocatable": {"cpu": "2", "pods": "2"}}
        return {"items": [{"metadata": {"name": name}, "status": status} for name in ("n0", "n1")]}


def judge(*events: dict[str, Any], monkeypatch: Any) -> list[str]:
    monkeypatch.setattr("tests.operators.judge._replay", lambda _: iter(events))
    cluster: Any = type("Cluster", (), {"namespace": "ns", "box": None})()
    cluster.box = type("Box", (), {"client": Client()})()
    return find_faults(cluster)


def test_nothing_is_found_in_a_good_history(monkeypatch: Any) -> None:
    assert not judge(
        make_event("a", ""),
        make_event("a", "n0", cpu="2"),
        make_event("a", "n0", "DELETED", cpu="2"),
        make_event("b", "n0", cpu="1500m"),
        make_event("c", "n1", cpu="2"),
        monkeypatch=monkeypatch,
    )


def test_pod_on_two_nodes_is_found(monkeypatch: Any) -> None:
    history = (make_event("a", "n0"), make_event("a", "n1"))
    assert judge(*history, monkeypatch=monkeypatch) == ["a a was on ['n0', 'n1']"]


def test_resource_that_was_exceeded_for_a_moment_is_found(monkeypatch: Any) -> None:
    history = [make_event(name, "n0", cpu="1001m") for name in ("a", "b")]
    history += [make_event("a", "n0", "DELETED")]
    assert judge(*history, monkeypatch=monkeypatch) == ["n0 held 2002 of 2000 cpu"]
    slots = [make_event(name, "n0") for name in ("a", "b", "c")]
    assert judge(*slots, monkeypatch=monkeypatch) == ["n0 held 3 of 2 pods"]
