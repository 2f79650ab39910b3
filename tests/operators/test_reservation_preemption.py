"""Reservations that preempt and are preempted, on a real API server."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import MERGE, Someone, create_account
from tests.operators.test_preemption import HIGH, LOW, NEVER, NOMINATION, Scene
from tests.operators.test_reservations import PATH, Reservations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

MIDDLE = "test-middle"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


class Room(Scene):
    """Reservations beside pods, all with PriorityClasses."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        cluster.priority_class(MIDDLE, 100_000)
        self.reservations = Reservations(cluster)

    def reserve(self, name: str, priority: str, gpus: int = 8, **spec: Any) -> None:
        self.reservations.post(self.make(name, priority, gpus, **spec))

    def make(self, name: str, priority: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
        body = self.reservations.make(name, gpus, **spec)
        body["spec"]["template"]["spec"]["priorityClassName"] = priority
        return body

    def scheduled(self, name: str) -> tuple[str, str, str]:
        return self.cluster.condition(self.reservations.get(name), "Scheduled")

    def is_nominated(self, name: str) -> bool:
        return NOMINATION in (self.reservations.get(name)["metadata"].get("annotations") or {})

    def events(self, name: str, reason: str) -> list[str]:
        """Return the notes of events about a reservation."""
        found = self.cluster.box.client.get("/apis/events.k8s.io/v1/namespaces/default/events")
        return [
            one["note"]
            for one in found["items"]
            if (one["reason"], one["regarding"]["name"]) == (reason, self.reservations.name(name))
        ]


@pytest.fixture
def room(cluster: Cluster) -> Iterator[Room]:
    made = Room(cluster)
    with closing(made.reservations):
        yield made
        made.let_go(*cluster.pods())


def test_a_reservation_takes_the_room_of_lower_pods(room: Room) -> None:
    (node,) = room.cluster.add_nodes(1)
    room.pod("low", LOW)
    room.run("low")
    room.holds("low")
    room.reserve("r", HIGH)
    room.expect(lambda: room.is_leaving("low"), "the victim is deleted")
    assert room.is_nominated("r")
    title = f"reservation/{room.reservations.name('r')}"
    message = room.cluster.condition(room.cluster.get_pod("low"), "DisruptionTarget")[2]
    assert message.startswith(f"{title} (priority 1000000) needs its place (plan ")
    room.expect(lambda: "1 of 1 pod still terminating" in room.scheduled("r")[2], "it says so")
    room.expect(lambda: bool(room.events("r", "Preempting")), "it has an event")
    room.expect(lambda: title in "".join(room.notes("Preempted")), "the victim has one")
    room.pod("thief", MIDDLE)
    room.cluster.expect_pod("thief", "InsufficientNodes")
    room.let_go("low")
    assert room.reservations.expect("r")["nodeName"] == node
    room.cluster.expect_pod("thief", "InsufficientNodes")
    room.pod("owner", LOW, labels={"app": "a"})
    room.cluster.expect_bound("owner")
    assert room.deleted() == ["low"], "who is outside preempts nobody inside"


@pytest.mark.parametrize("ends_by", ["deletion", "expiry"])
def test_an_end_of_the_reservation_ends_the_preemption(room: Room, ends_by: str) -> None:
    room.cluster.add_nodes(1)
    room.pod("low", LOW)
    room.run("low")
    room.holds("low")
    room.reserve("r", HIGH)
    room.expect(lambda: room.is_leaving("low"), "the victim is deleted")
    if ends_by == "deletion":
        room.reservations.delete("r")
    else:
        room.reservations.patch("r", {"spec": {"expires": "2020-01-01T00:00:00Z"}})
        room.reservations.expect("r", "Failed")
    room.pod("next", LOW)
    room.let_go("low")
    room.cluster.expect_bound("next")


def test_only_the_class_counts(room: Room) -> None:
    """Whoever writes numbers into a template preempts nobody, and learns why."""
    room.cluster.add_nodes(1)
    room.pod("low", LOW)
    room.run("low")
    body = room.reservations.make("liar", 8)
    body["metadata"]["labels"] = {"koordinator.sh/priority": "2000000"}
    body["spec"]["template"]["spec"]["priority"] = 2_000_000
    room.reservations.post(body)
    room.reserve("patient", NEVER)
    room.reserve("equal", LOW)
    room.reserve("lost", "no-such-class")
    for name in ("liar", "patient", "equal", "lost"):
        room.expect(lambda name=name: room.scheduled(name)[0] == "False", f"{name} waits")
    room.cluster.delete_pod("low")
    assert not room.deleted()

    def valid(name: str) -> str:
        return room.cluster.condition(room.reservations.get(name), "SpecValid")[2]

    room.expect(lambda: "its priority 2000000 is ignored" in valid("liar"), "it is told")
    room.expect(lambda: "there is no PriorityClass no-such-class" in valid("lost"), "it is told")


def test_the_next_process_goes_on(room: Room) -> None:
    room.cluster.add_nodes(1)
    room.pod("low", LOW)
    room.run("low")
    room.holds("low")
    room.reserve("r", HIGH)
    room.expect(lambda: room.is_leaving("low"), "the victim is deleted")
    room.cluster.operators.kill()
    room.pod("thief", MIDDLE)
    room.cluster.operators.start()
    room.cluster.expect_pod("thief", "InsufficientNodes")
    room.let_go("low")
    room.reservations.expect("r")
    assert room.cluster.bound() == {}


def test_a_reservation_gives_way_and_waits_for_room_again(room: Room) -> None:
    (node,) = room.cluster.add_nodes(1)
    room.reserve("r", LOW)
    assert room.reservations.expect("r")["nodeName"] == node
    room.pod("high", HIGH)
    room.cluster.expect_bound("high")
    status = room.reservations.expect("r", "Pending")
    assert not {"nodeName", "allocatable"} & status.keys()
    note = f"{room.cluster.namespace}/high (priority 1000000) needs its place"
    room.expect(lambda: note in "".join(room.events("r", "Preempted")), "it has an event")
    room.expect(lambda: "lacks 8 free" in room.scheduled("r")[2], "it says why it waits")
    room.cluster.delete_pod("high")
    assert room.reservations.expect("r")["nodeName"] == node
    room.pod("owner", LOW, labels={"app": "a"})
    room.cluster.expect_bound("owner")


def test_a_reservation_that_pods_use_stays(room: Room) -> None:
    """So does one without a class."""
    room.cluster.add_nodes(2)
    room.reserve("used", LOW)
    room.reservations.expect("used")
    room.pod("owner", LOW, labels={"app": "a"}, gpus=4)
    room.cluster.expect_bound("owner")
    room.reservations.post(room.reservations.make("plain", 8))
    room.reservations.expect("plain")
    room.pod("high", HIGH)
    room.cluster.expect_pod("high", "InsufficientNodes")
    time.sleep(2)  # several looks of the controller
    assert not room.deleted()
    for name in ("used", "plain"):
        assert room.reservations.status(name)["phase"] == "Available"


def test_a_gang_takes_a_pod_and_a_reservation_whatever_ends(room: Room) -> None:
    """The pod may not go, so it is deleted first; the process ends before the reservation is."""
    room.cluster.add_nodes(2)
    room.pod("low", LOW)
    room.run("low")
    room.holds("low")
    room.reserve("r", LOW)
    room.reservations.expect("r")
    room.cluster.gang("high", 2, priorityClassName=HIGH)
    room.expect(lambda: room.is_leaving("low"), "the victim is deleted")
    room.cluster.operators.kill()
    room.pod("thief", MIDDLE)
    room.cluster.operators.start()
    waiting = {"InsufficientNodes", "WaitsForTermination"}  # with and without the room of "low"
    room.expect(lambda: room.cluster.pod_reason("thief") in waiting, "the thief waits")
    room.let_go("low")
    room.cluster.expect_bound("high-0", "high-1")
    room.reservations.expect("r", "Pending")
    assert "thief" not in room.cluster.bound()


def test_a_tenant_needs_the_right_to_use_a_class(room: Room) -> None:
    """A ResourceQuota for a PriorityClass counts pods alone."""
    box, name = room.cluster.box, room.cluster.namespace
    groups = ["scheduling.koordinator.sh", "scheduling.k8s.io"]
    role = {
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": groups[:1], "resources": ["reservations"], "verbs": ["create", "patch"]},
            {
                "apiGroups": groups[1:],
                "resources": ["priorityclasses"],
                "resourceNames": [LOW],
                "verbs": ["use"],
            },
        ],
    }
    create_account(box, name, "tenant", ["edit"])
    with closing(Someone(box, name, "tenant")) as tenant:
        box.client.create(ROLES, role)
        account = f"--serviceaccount={name}:tenant"
        box.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
        where = f"{PATH}/{room.reservations.name('mine')}"
        try:
            body = room.make("mine", LOW)
            room.expect(lambda: tenant.send("POST", PATH, body).status == 201, "a class of theirs")
            answer = tenant.send("POST", PATH, room.make("high", HIGH))
            assert answer.status == 403
            assert f"spec.template.spec.priorityClassName: {HIGH}" in answer.message
            raised = {"spec": {"template": {"spec": {"priorityClassName": HIGH}}}}
            assert tenant.send("PATCH", where, raised, MERGE).status == 403
            assert tenant.send("PATCH", where, {"spec": {"ttl": "2h"}}, MERGE).status == 200
        finally:
            box.kubectl("delete", "clusterrolebinding", name)
            box.kubectl("delete", "clusterrole", name)
            box.client.delete(where)
