"""Koordinator's diagnosis API: the forms that its runbooks read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster, make_unit
from tests.device.test_plugin import gpu_cluster, part, settle, whole
from tests.numa.test_plugin import GIB, PINNED, SINGLE, numa_cluster
from tests.numa.test_plugin import pod as numa_pod
from tests.objects import upsert_pod_group, upsert_quota, upsert_reservation
from tests.reservation.make import make_reservation
from tests.runtime.test_debug_flags import Source, serving
from tests.runtime.test_http import Process

from koord.domains.diagnosis_settings import DiagnosisSettings
from koord.runtime.diagnosis import ROUTES, answer

QUANTITIES = ("min", "max", "used", "runtime", "request", "sharedWeight", "selfUsed")
GANG = "/plugins/Coscheduling/gang"
QUOTAS = "/plugins/ElasticQuota/quotas"


@pytest.fixture(scope="module")
def state() -> Any:
    state = make_cluster().state
    state.upsert_node(make_node("n1").gpu(8).cpu(4000).build())
    group = replace(make_pod_group("a/train", min_member=2).build(), created=1764057600.0)
    upsert_pod_group(state, group)
    upsert_quota(state, make_quota("team", min={GPU: 4}, max={GPU: 8}))
    running = make_pod("a/train-0").gang("a/train").gpu(1).quota("team")
    state.upsert_pod(running.running("n1").build())
    state.upsert_pod(make_pod("a/train-1").gang("a/train").gpu(1).quota("team").build())
    state.upsert_pod(make_pod("a/train-2").gang("a/train").gpu(1).build())
    state.assume("uid-a-train-2", "n1")
    state.refresh()
    return state


def ask(state: Any, path: str, **query: str) -> Any:
    page = answer(state, path, query).encode()
    assert page.status == 200, page.body
    return json.loads(page.body)


def test_only_what_is_served_is_listed(state: Any) -> None:
    listed = ask(state, "/__services__")
    assert listed == {"GET": sorted(listed["GET"])}
    assert "/apis/v1/__services__" in listed["GET"]
    assert "/apis/v1/plugins/Coscheduling/gang/:namespace/:name" in listed["GET"]
    assert len(listed["GET"]) == len(ROUTES)


def test_a_gang_has_its_children_as_sets(state: Any) -> None:
    gang = ask(state, f"{GANG}/a/train")
    assert gang == ask(state, "/plugins/Coscheduling/gangs")["a/train"]
    assert gang["waitTime"] == 600_000_000_000, "nanoseconds"
    assert (gang["name"], gang["mode"], gang["gangGroup"]) == ("a/train", "Strict", ["a/train"])
    assert gang["createTime"] == "2025-11-25T08:00:00Z"
    assert (gang["minRequiredNumber"], gang["totalChildrenNum"]) == (2, 2)
    assert gang["children"] == {f"a/train-{at}": {} for at in range(3)}
    assert gang["boundChildren"] == {"a/train-0": {}}
    assert gang["pendingChildren"] == {"a/train-1": {}}
    assert gang["waitingForBindChildren"] == {"a/train-2": {}}
    assert gang["gangFrom"] == "GangFromPodGroupCrd"
    assert set(gang["gangGroupInfo"]) == {
        "Initialized",
        "GangGroupId",
        "GangGroup",
        "OnceResourceSatisfied",
        "WaitingGangIDs",
        "RepresentativePodKey",
        "BindingMemberPods",
    }


def test_quotas_are_in_quantities(state: Any) -> None:
    quota = ask(state, f"{QUOTAS}/team")
    assert quota == ask(state, QUOTAS)["team"]
    assert (quota["min"], quota["max"], quota["used"]) == ({GPU: "4"}, {GPU: "8"}, {GPU: "1"})
    assert all(isinstance(quota[name], dict) for name in QUANTITIES)
    assert "podCache" not in quota
    cache = ask(state, f"{QUOTAS}/team", includePods="true")["podCache"]
    assert cache["a/train-0"] == {"isAssigned": True, "resource": {GPU: "1"}}
    assert cache["a/train-1"]["isAssigned"] is False
    assert ask(state, QUOTAS, tree="none") == {}, "an unknown tree is empty"


def test_quotas_are_those_of_the_moment_when_they_were_asked_for() -> None:
    """Their document is made in another thread, while the main loop goes on."""
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.quotas(*(make_quota(f"q{at}", min={GPU: 2}, max={GPU: 8}) for at in range(3)))
    cluster.pods(make_pod("a/one").gpu(1).quota("q1").running("n"))
    cluster.state.refresh()
    documents = [answer(cluster.state, path, {}) for path in (QUOTAS, f"{QUOTAS}/q1")]
    before = [answer(cluster.state, path, {}).encode() for path in (QUOTAS, f"{QUOTAS}/q1")]
    cluster.quotas(make_quota("q1", min={GPU: 4}, max={GPU: 4}))
    cluster.pods(make_pod("a/two").gpu(2).quota("q1").running("n"))
    cluster.state.refresh()
    assert ask(cluster.state, f"{QUOTAS}/q1")["used"] == {GPU: "3"}
    assert [document.encode() for document in documents] == before


def test_a_node_in_the_names_of_the_scheduler(state: Any) -> None:
    node = ask(state, "/nodes/n1")
    assert node["node"] == {"metadata": {"name": "n1"}}
    assert node["pods"] == ["a/train-0", "a/train-2"], "names only: specs may hold secrets"
    assert node["allocatable"]["MilliCPU"] == 4000
    assert node["requested"]["ScalarResources"] == {GPU: 2}
    assert node["remaining"]["ScalarResources"] == {GPU: 6}


def test_devices_of_a_node() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a", 1))
    settle(cluster, part("b", 30))
    (node,) = ask(cluster.state, "/plugins/DeviceShare/nodeDeviceSummaries")
    summary = ask(cluster.state, f"/plugins/DeviceShare/nodeDeviceSummaries/{node}")
    core = "koordinator.sh/gpu-core"
    cards = len(summary["deviceTotalDetail"]["gpu"])
    assert summary["deviceTotal"][core] == str(100 * cards)
    assert summary["deviceUsed"][core] == "130"
    assert summary["deviceFree"][core] == str(100 * cards - 130)
    assert sorted(summary["deviceFreeDetail"]["gpu"])[:2] == ["0", "1"], "minors are text"
    given = summary["allocateSet"]["gpu"]
    (shared,) = given["default/b"].values()
    (card,) = given["default/a"].values()
    assert (shared[core], card[core]) == ("30", "100")


def test_reservations_of_a_node() -> None:
    cluster = make_cluster().nodes(make_node("n1").cpu(16000))
    upsert_reservation(cluster.state, make_reservation("r", node="n1"))
    cluster.state.refresh()
    (held,) = ask(cluster.state, "/plugins/Reservation/nodeReservations/n1")["items"]
    assert (held["name"], held["kind"], held["assignedPods"]) == ("r", "Reservation", [])
    assert held["allocatable"]["cpu"]
    assert ask(cluster.state, "/plugins/Reservation/nodeReservations/none") == {}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/plugins/DeviceShare/nodeDeviceSummaries/none", "cannot find node none"),
        ("/nodes/none", "cannot find node none"),
        (f"{GANG}/a/none", "cannot find gang a/none"),
        (f"{QUOTAS}/none", "cannot find quota none"),
        ("/plugins/None/x", "cannot find /apis/v1/plugins/None/x"),
        (f"{GANG}//x", f"cannot find /apis/v1{GANG}//x"),
    ],
)
def test_what_is_missing_is_named(state: Any, path: str, message: str) -> None:
    page = answer(state, path, {}).encode()
    assert (page.status, json.loads(page.body)) == (404, {"message": message})


# The server


async def test_it_is_off_by_default() -> None:
    assert DiagnosisSettings().enabled is False
    async with Process().serve() as client:
        assert (await client.request("/apis/v1/__services__"))[0] == 404


async def test_it_is_served_as_json() -> None:
    async with serving(Source()) as session:
        async with session.get("/apis/v1/standby") as page:
            assert page.status == 503
            assert await page.text() == '{"message": "the instance is not leader"}'
            assert page.headers["Content-Type"] == "application/json; charset=utf-8"
        async with session.get("/apis/v1/slow") as page:
            assert page.status == 503
        async with session.put("/apis/v1/nodes/n1") as page:
            assert page.status == 405


# NUMA


NUMA = "/plugins/NodeNUMAResource/nodes"


def test_cpus_and_numa_nodes_of_a_node() -> None:
    cluster = numa_cluster()
    pods = [numa_pod("p", PINNED, cpu=4000), numa_pod("q", SINGLE, cpu=2000, memory=GIB)]
    cluster.pods(*pods)
    cluster.assume(cluster.plan(make_unit("u", pods)))
    node = ask(cluster.state, f"{NUMA}/n0")
    topology = node["cpuTopology"]
    assert {name: topology[name] for name in topology if name != "cpuDetails"} == {
        "numCPUs": 16,
        "numCores": 8,
        "numNodes": 2,
        "numSockets": 2,
    }
    assert len(topology["cpuDetails"]) == 16
    (pinned, aligned) = node["allocatedPods"]
    assert (pinned["name"], pinned["namespace"], pinned["cpuExclusivePolicy"]) == (
        "p",
        "default",
        "",
    )
    assert pinned["cpuset"] == node["allocatedCPUs"]
    cpu = topology["cpuDetails"]["5"]
    assert cpu == {
        "cpuID": 5,
        "coreID": 2,
        "nodeID": 0,
        "socketID": 0,
        "refCount": cpu["refCount"],
        "exclusivePolicy": "",
    }
    assert sum(detail["refCount"] for detail in topology["cpuDetails"].values()) == 4
    (share,) = aligned["numaNodeResources"]
    assert share["resources"] == {"cpu": "2", "memory": "1Gi"}
    totals = {zone["node"]: zone["resources"]["cpu"] for zone in node["numaNodeResources"]}
    assert totals == {0: "8", 1: "8"}
    left = sum(int(zone["resources"]["cpu"]) for zone in node["remainingNUMANodeResources"])
    used = sum(int(zone["resources"]["cpu"]) for zone in node["allocatedNUMANodeResources"])
    assert (left, used) == (10, 6)
    assert (node["numaTopologyPolicy"], node["maxRefCount"], node["reservedCPUs"]) == ("", 1, "")
    assert node["amplificationRatios"] is None


def test_the_oldest_form_has_a_part_of_it() -> None:
    state = numa_cluster().state
    old = ask(state, "/plugins/NodeNUMAResources/cpuTopologyOptions/n0")
    new = ask(state, f"{NUMA}/n0")
    assert old == {name: new[name] for name in old}
    assert next(iter(old)) == "cpuTopology"
    assert list(old)[-1] == "amplificationRatios"


def test_a_node_without_a_report_has_no_topology(state: Any) -> None:
    node = ask(state, f"{NUMA}/n1")
    assert (node["cpuTopology"], node["numaNodeResources"], node["allocatedPods"]) == (None, [], [])


def test_an_unknown_node_is_an_error_of_theirs(state: Any) -> None:
    page = answer(state, f"{NUMA}/none", {}).encode()
    message = 'nodeinfo not found for node name "none"'
    assert (page.status, json.loads(page.body)) == (500, {"message": message})
