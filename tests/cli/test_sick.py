"""What ``koord sick`` finds, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cli.test_devices import printed
from tests.cluster import FakeCluster, make_cluster

from koord.answers.encoding import encode
from koord.answers.gaps import NO_TARGET
from koord.answers.health import HealthFinding, find_sick
from koord.answers.reading import Reading
from koord.answers.timeline import make_timeline
from koord.cli.sick_view import make_parts
from koord.core.topology.layers import Layer
from koord.kube.translate.cluster_objects import translate_node
from koord.kube.wire import WireNode

NOW = 1_000_000.0


def find(cluster: FakeCluster) -> list[tuple[str, str, int]]:
    return [
        (str(finding.subject), finding.reason, finding.gpus_out)
        for finding in find_sick(cluster.state, NOW)
    ]


def test_a_healthy_cluster_has_no_findings() -> None:
    cluster = make_cluster(2).pods(make_pod("a").gpu(3).running("n0"))
    assert find(cluster) == []
    assert "Nothing is sick" in printed(make_parts([], NOW))


def test_nodes_that_are_away_come_first_with_their_gpus() -> None:
    down = make_node("down").gpu(8).taint("node.kubernetes.io/unreachable")
    cordoned = make_node("cordoned").gpu(8).unschedulable()
    going = make_node("going").gpu(8).terminating()
    assert find(make_cluster(1).nodes(down, cordoned, going)) == [
        ("node/down", "NotReady", 8),
        ("node/cordoned", "Cordoned", 8),
        ("node/going", "BeingDeleted", 0),
    ]


def stuck(seconds: float, *finalizers: str) -> FakeCluster:
    pod = make_pod("a").gpu(1).running("n0").terminating().build()
    return make_cluster(1).pods(replace(pod, gone_by=NOW - seconds, finalizers=finalizers))


def test_a_pod_that_does_not_end_is_stuck_a_minute_after_its_grace_period() -> None:
    assert find(stuck(60)) == []
    assert find(stuck(61)) == [("pod/default/a", "TerminationStuck", 0)]


def test_the_text_says_what_holds_it_since_when_and_what_to_do() -> None:
    findings = find_sick(stuck(300, "example.com/hold").state, NOW)
    text = printed(make_parts(findings, NOW))
    assert "example.com/hold" in text
    assert "5m" in text
    assert encode(findings[0])["since"] == "1970-01-12T13:41:40Z"


def test_a_gang_below_its_minimum_is_found() -> None:
    cluster = make_cluster(2).pod_groups(make_pod_group("default/train", 2))
    for at in range(2):
        member = make_pod(f"train-{at}").gang("default/train").running(f"n{at}")
        cluster.pods(member.released(f"n{at}", "plan", "default/train", 2, 2))
    assert find(cluster) == []
    cluster.delete_pods("train-0")
    assert [finding[:2] for finding in find(cluster)] == [("podgroup/default/train", "BelowMin")]


def test_invalid_quotas_and_topologies_are_found() -> None:
    cluster = make_cluster(1).quotas(make_quota("team", min={"cpu": 8}, max={"cpu": 4}))
    cluster.topology(Layer("Block", "Spine", ("block",)))
    kinds = {finding[0].partition("/")[0] for finding in find(cluster)}
    assert kinds == {"elasticquota", "clusternetworktopology"}


def test_a_document_names_object_reason_and_way_out() -> None:
    (finding,) = find_sick(make_cluster().nodes(make_node("n").unschedulable()).state, NOW)
    assert isinstance(finding, HealthFinding)
    document = encode(finding)
    assert document["subject"] == {"kind": "Node", "name": "n", "namespace": "", "device": ""}
    assert (document["severity"], document["since"]) == ("Warning", None)
    assert document["doThis"].startswith("kubectl uncordon n")


@pytest.mark.parametrize(("failed", "since"), [(False, 86_400_000), (True, 0)])
def test_since_when_a_node_is_cordoned_is_known(*, failed: bool, since: int) -> None:
    """Of one that has failed, too, that time would be the wrong one."""
    added = "1970-01-02T00:00:00Z"
    cordoned = {"key": "node.kubernetes.io/unschedulable", "timeAdded": added}
    taints = [cordoned, *([{"key": "node.kubernetes.io/not-ready"}] if failed else [])]
    written = {"metadata": {"name": "n"}, "spec": {"unschedulable": True, "taints": taints}}
    node = translate_node(msgspec.json.decode(msgspec.json.encode(written), type=WireNode))
    entries = make_timeline(Reading(make_cluster(0).nodes(node).state), NO_TARGET, ())
    assert [(each.happening.what, each.at) for each in entries] == (
        [] if failed else [("Cordoned", since)]
    )


def test_since_when_a_node_has_failed_is_known() -> None:
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {
            "key": "node.kubernetes.io/not-ready",
            "effect": "NoExecute",
            "timeAdded": "1970-01-12T13:41:40Z",
        },
        {"key": "mine", "effect": "NoExecute", "timeAdded": "1970-01-02T00:00:00Z"},
    ]
    written = {"metadata": {"name": "n"}, "spec": {"taints": taints}}
    node = translate_node(msgspec.json.decode(msgspec.json.encode(written), type=WireNode))
    state = make_cluster(0).nodes(node).state
    (finding,) = find_sick(state, NOW)
    assert encode(finding)["since"] == "1970-01-12T13:41:40Z"
    assert make_timeline(Reading(state), NO_TARGET, ())[0].at == 999_700_000
