"""Events where people look: on the PodGroup, a single pod, or the quota; and what they cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.operators.conftest import SERVICE_ACCOUNT
from tests.operators.test_everyday import events_of, history_of
from tests.operators.test_quotas import Quotas

from koord.controllers.wait_reports import EVENT_SECONDS

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster, Operators

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"

GANGS, SIZE = 10, 4
QUOTA = "quota.scheduling.koordinator.sh/name"


def describe(cluster: Cluster, kind: str, name: str) -> str:
    """What ``kubectl describe`` shows below ``Events:``."""
    text = cluster.box.kubectl("describe", kind, name, "-n", cluster.namespace)
    return text.partition("\nEvents:")[2]


def expect_event(cluster: Cluster, kind: str, name: str, *words: str) -> None:
    def is_shown() -> bool:
        shown = describe(cluster, kind, name)
        return all(word in shown for word in words)

    cluster.expect(is_shown, f"events of {kind} {name} say {words}")


def test_a_gang_that_lacks_members(cluster: Cluster) -> None:
    cluster.pod_group("half", 2)
    cluster.pod("half-0", group="half")
    kind = "podgroup.scheduling.sigs.k8s.io"
    expect_event(cluster, kind, "half", "MissingMembers", "koord explain")


def test_there_is_one_event_per_reason_and_gang(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.gang("wide", 12)
    expect_event(cluster, "podgroup.scheduling.sigs.k8s.io", "wide", "InsufficientNodes")
    time.sleep(EVENT_SECONDS + 2)
    events = cluster.box.client.get(EVENTS.format(cluster.namespace))["items"]
    said = [one["regarding"]["name"] for one in events if one["reason"] == "InsufficientNodes"]
    assert said == ["wide"]


def test_what_is_placed_is_one_line_of_the_log(cluster: Cluster, operators: Operators) -> None:
    cluster.add_nodes(2)
    cluster.gang("pair", 2)
    cluster.expect(lambda: cluster.running("pair") == 2, "they run")
    unit = f"unit={cluster.namespace}/pair"
    lines = [one for one in operators.log.read_text("utf-8").splitlines() if unit in one]
    assert len(lines) == 1
    assert " Placed " in lines[0]
    assert "pods=2" in lines[0]


def test_a_gang_that_times_out(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    body = cluster.make_group("late", 2)
    body["spec"]["scheduleTimeoutSeconds"] = 2
    cluster.box.client.create(cluster.groups_path, body)
    for at in range(2):
        cluster.pod(f"late-{at}", group="late")
    expect_event(cluster, "podgroup.scheduling.sigs.k8s.io", "late", "TimedOut")
    cluster.expect(lambda: "TimedOut" in history_of(cluster, "late"), "the history says so")


def test_a_quota_that_does_not_exist(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("research", 8, 8)
    try:
        cluster.add_nodes(1)
        name = f"{quotas.name('research')}x"
        cluster.pod("p", labels={QUOTA: name})
        expect_event(cluster, "pod", "p", name, "koord explain")
    finally:
        quotas.delete_by_force("research")


def test_an_invalid_quota(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    quotas.create("child", 8, 8, {"parent": "nobody"})
    try:
        expect_event(cluster, "elasticquota.scheduling.sigs.k8s.io", quotas.name("child"), "nobody")
    finally:
        quotas.delete_by_force("child")


def test_a_misspelled_key_of_a_gated_pod(cluster: Cluster) -> None:
    cluster.pod("p", labels={"pod-group.scheduling.sigs.k8s.oi": "train"})
    expect_event(cluster, "pod", "p", "KeyIgnored", "pod-group.scheduling.sigs.k8s.io")


def test_bad_settings_for_the_agent_of_a_node_keep_no_pod_from_starting(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("p", annotations={"koordinator.sh/cpuQOS": '{"groupIdentity":7}'})
    cluster.expect_bound("p")
    expect_event(cluster, "pod", "p", "QosSettingInvalid", "groupIdentity: 7")


def test_events_cost_a_burst_nothing(cluster: Cluster) -> None:
    """While others wait, gangs that fit cost two writes per pod and three per gang."""
    cluster.add_nodes(GANGS * SIZE)
    cluster.gang("large", GANGS * SIZE + 1)
    expect_event(cluster, "podgroup.scheduling.sigs.k8s.io", "large", "InsufficientNodes")
    before = len(cluster.box.writes(SERVICE_ACCOUNT))
    for gang in range(GANGS):
        cluster.gang(f"fits-{gang}", SIZE)
    for gang in range(GANGS):
        cluster.expect(lambda gang=gang: cluster.running(f"fits-{gang}") == SIZE, "they run")
    time.sleep(5)
    ours = [
        (one.resource, one.name)
        for one in cluster.box.writes(SERVICE_ACCOUNT)[before:]
        if one.namespace == cluster.namespace and not one.name.startswith("large")
    ]
    pods = [name for resource, name in ours if resource == "pods"]
    assert len(pods) <= 2 * GANGS * SIZE
    assert len(ours) - len(pods) <= 3 * GANGS, ours
    for gang in range(GANGS):
        assert not events_of(cluster, "Pod", f"fits-{gang}-0")
