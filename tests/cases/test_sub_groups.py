"""Sub-groups that are not complete: nothing of them starts, and everybody says why."""

from __future__ import annotations

import json
import re
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from tests.operators.test_everyday import ask, koord

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster, Operators

SUB_GROUPS = "operators.koordinator.sh/sub-groups"
SUB_GROUP = "operators.koordinator.sh/sub-group"
PAIRS = {
    "minSubGroups": 1,
    "groups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}],
}
REPLICAS = {
    "minSubGroups": 1,
    "groups": [
        {"name": "r0"},
        {"name": "r1"},
        *(
            {"name": f"r{at}{one}", "parent": f"r{at}", "minMember": 1}
            for at in "01"
            for one in "ab"
        ),
    ],
}


def make_gang(cluster: Cluster, sub_groups: dict[str, Any], minimum: int = 2) -> None:
    cluster.pod_group("s", minimum, **{SUB_GROUPS: json.dumps(sub_groups)})


def add(cluster: Cluster, *names: str, gpus: int = 8) -> None:
    """Create members; the name of each is its sub-group and, behind a dash, a number."""
    for name in names:
        sub_group = name.rpartition("-")[0]
        cluster.pod(name, group="s", gpus=gpus, annotations={SUB_GROUP: sub_group})


def table_of(cluster: Cluster) -> dict[str, tuple[int, int, bool]]:
    """Return, by sub-group, the present and placed members in the status, and if it is complete."""
    found = cluster.get_group("s").get("status", {}).get("subGroups", ())
    return {one["name"]: (one["present"], one["placed"], one["complete"]) for one in found}


def is_gated(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get_pod(name)["spec"].get("schedulingGates"))


def explain(cluster: Cluster, target: str) -> str:
    return koord(cluster, "explain", target, "-n", cluster.namespace).stdout


def count_cycles(operators: Operators) -> int:
    port = re.findall(r"Serving HTTP .*port=(\d+)", operators.log.read_text())[-1]
    connection = HTTPConnection("127.0.0.1", int(port), timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r"^koord_cycle_seconds_count (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def expect_left_out(cluster: Cluster, name: str, text: str) -> None:
    """Expect that a member waits, gated, and that the pod and ``koord`` say why."""
    cluster.expect_pod(name, "MissingMembers")
    assert is_gated(cluster, name)
    placed = "operators.koordinator.sh/Placed"
    cluster.expect(lambda: text in cluster.condition(cluster.get_pod(name), placed)[2], text)
    for target in (f"pod/{name}", "pg/s"):
        answer = ask(cluster, "explain", target, "-n", cluster.namespace)
        assert answer["reason"]["code"] == "MissingMembers", answer
        assert text in answer["reason"]["message"]


def test_one_of_two_members_of_a_later_sub_group_waits(
    cluster: Cluster, operators: Operators
) -> None:
    cluster.add_nodes(4)
    make_gang(cluster, PAIRS)
    add(cluster, "a-0", "a-1", gpus=1)
    cluster.expect_bound("a-0", "a-1")
    add(cluster, "b-0", gpus=1)
    text = f"1 of 2 members of {cluster.namespace}/s/b present"
    expect_left_out(cluster, "b-0", text)
    assert f"{cluster.namespace}/s/b" in explain(cluster, "pg/s")
    table = {"a": (2, 2, True), "b": (1, 0, False)}
    cluster.expect(lambda: table_of(cluster) == table, "the status counts sub-groups")
    before = count_cycles(operators)
    time.sleep(3)
    assert count_cycles(operators) - before < 30, "nothing changes, so nothing is planned"
    operators.kill()
    operators.start()
    add(cluster, "other-0")  # of no sub-group: it belongs to the gang itself
    cluster.expect_bound("other-0")
    expect_left_out(cluster, "b-0", text)
    add(cluster, "b-1", gpus=1)
    cluster.expect_bound("b-0", "b-1")


def test_half_a_replica_waits(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    make_gang(cluster, REPLICAS)
    add(cluster, "r0a-0", "r0b-0")
    cluster.expect_bound("r0a-0", "r0b-0")
    add(cluster, "r1a-0")
    expect_left_out(cluster, "r1a-0", f"0 of 1 member of {cluster.namespace}/s/r1b present")
    cluster.expect(lambda: table_of(cluster).get("r1") == (1, 0, False), "r1 is not complete")
    add(cluster, "r1b-0")
    cluster.expect_bound("r1a-0", "r1b-0")


def test_replica_does_not_start_with_the_half_that_fits(cluster: Cluster) -> None:
    cluster.add_nodes(3)
    make_gang(cluster, REPLICAS)
    add(cluster, "r0a-0", "r0b-0", "r1a-0", "r1b-0")
    cluster.expect_bound("r0a-0", "r0b-0")
    cluster.expect_pod("r1a-0", "InsufficientNodes")
    assert is_gated(cluster, "r1a-0")
    assert is_gated(cluster, "r1b-0")
    cluster.add_nodes(1)
    cluster.expect_bound("r1a-0", "r1b-0")


def test_incomplete_sub_group_does_not_start_with_the_gang(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    make_gang(cluster, PAIRS)
    add(cluster, "b-0", gpus=1)
    cluster.expect_pod("b-0", "MissingMembers")
    add(cluster, "a-0", "a-1", gpus=1)
    cluster.expect_bound("a-0", "a-1")
    expect_left_out(cluster, "b-0", f"1 of 2 members of {cluster.namespace}/s/b present")
    cluster.expect_group("s", "Planned")


def test_gang_that_lacks_members_names_its_incomplete_sub_groups(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    make_gang(cluster, PAIRS, minimum=3)
    add(cluster, "b-0", "a-0", "a-1", gpus=1)
    name = f"{cluster.namespace}/s"
    text = f"2 of 3 members of {name} present; {name}/b: 1 of 2"
    cluster.expect(lambda: text in cluster.group_message("s", "QuorumReached"), text)
    for pod in ("a-0", "b-0"):
        cluster.expect_pod(pod, "MissingMembers")
        assert is_gated(cluster, pod)
    gang, a, b = ask(cluster, "explain", "pg/s", "-n", cluster.namespace)["gang"]["group"]
    assert (gang["present"], gang["minMember"]) == (2, 3)
    assert (a["present"], a["minMember"], b["present"], b["minMember"]) == (2, 2, 1, 2)


def test_sub_group_below_its_minimum_is_degraded_and_its_room_is_kept(
    cluster: Cluster, operators: Operators
) -> None:
    cluster.add_nodes(4)
    make_gang(cluster, PAIRS)
    add(cluster, "a-0", "a-1", "b-0", "b-1")
    cluster.expect_bound("a-0", "a-1", "b-0", "b-1")
    cluster.delete_pod("b-1")
    cluster.expect_group("s", "BelowMin", "Degraded")
    cluster.expect(lambda: table_of(cluster).get("b") == (1, 1, False), "b has one member left")
    text = f"{cluster.namespace}/s/b has 1 of 2 required members left"
    assert text in cluster.group_message("s", "Degraded")
    cluster.pod("other")
    cluster.expect_pod("other", "KeptForReplacements")
    operators.kill()
    cluster.delete_pod("other")
    operators.start()
    cluster.pod("another")
    cluster.expect_pod("another", "KeptForReplacements")
    assert text in explain(cluster, "pg/s").replace("\n", " ")
    add(cluster, "b-2")
    cluster.expect_bound("b-2")
    cluster.expect_group("s", "AtStrength", "Degraded")


def test_needed_sub_group_is_degraded_although_another_has_a_spare_member(
    cluster: Cluster,
) -> None:
    cluster.add_nodes(5)
    make_gang(cluster, {"groups": PAIRS["groups"]}, minimum=4)
    add(cluster, "a-0", "a-1", "a-2", "b-0", "b-1", gpus=1)
    cluster.expect_bound("a-0", "a-1", "a-2", "b-0", "b-1")
    cluster.delete_pod("b-1")
    cluster.expect_group("s", "BelowMin", "Degraded")
    add(cluster, "b-2", gpus=1)
    cluster.expect_bound("b-2")
    cluster.expect_group("s", "AtStrength", "Degraded")


def test_sub_group_that_is_done_stays_complete_when_its_pods_are_removed(cluster: Cluster) -> None:
    """Pods without a controller, more than the minimum; then the node of the others is deleted."""
    first, second = cluster.add_nodes(2, gpus=2)
    make_gang(cluster, {"groups": PAIRS["groups"]})
    add(cluster, "b-0", "b-1", gpus=1)
    for name in ("a-0", "a-1"):
        annotations = {SUB_GROUP: "a", "operators.koordinator.sh/demo-run-seconds": "1"}
        cluster.pod(name, group="s", gpus=1, annotations=annotations)
    cluster.expect_bound("a-0", "a-1", "b-0", "b-1")
    whole = {"a": (2, 2, True), "b": (2, 2, True)}

    def has_run() -> bool:
        status = cluster.get_group("s").get("status", {})
        runs = [one.get("subGroups") for one in status.get("runs", ())]
        return runs == [[{"name": "a", "succeeded": 2}]] and table_of(cluster) == whole

    cluster.expect(has_run, "a is done, and remembered")
    for name in ("a-0", "a-1"):
        cluster.delete_pod(name)
    cluster.expect(lambda: cluster.get_group("s")["status"]["members"]["succeeded"] == 0, "seen")
    status = cluster.get_group("s")["status"]
    assert (status["phase"], table_of(cluster)) == ("Running", whole)
    cluster.expect_group("s", "AtStrength", "Degraded")
    cluster.box.client.delete(f"/api/v1/nodes/{cluster.bound()['b-0']}")
    cluster.expect_group("s", "MemberOnFailedNode", "Degraded")
    assert "deleted" in cluster.group_message("s", "Degraded")
    assert {first, second} >= set(cluster.bound().values())
