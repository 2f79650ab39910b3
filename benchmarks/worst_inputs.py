"""The worst that a tenant may write, for every extension point of the planner and every decoder.

Each is as large as the operators plan (docs/security.md has the bounds), or as large as the API
server lets it be, and there are as many as a namespace easily has. New kinds of input belong into
the table at the end.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from koord.api.keys import device, gang, operators, reservation
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import CLAIMS, PODS
from koord.domains.reservation import RESERVATIONS
from koord.kube.kind import AnyKind

Body = dict[str, Any]
Objects: TypeAlias = Iterable[tuple[AnyKind, Body]]

NAMESPACE: Final = "hostile"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME: Final = "kubernetes.io/hostname"
GPU_MEMORY, SHARED = "koordinator.sh/gpu-memory", "koordinator.sh/gpu.shared"


@dataclass(frozen=True, slots=True)
class Input:
    """``point``: the extension point or decoder that it is meant for. ``size``: how many."""

    name: str
    point: str
    size: int
    make: Callable[[int], Objects]


def pod(  # noqa: PLR0913 - one argument per part of a pod
    name: str,
    requests: Mapping[str, str] | None = None,
    *,
    group: str = "",
    node: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    is_gated: bool = True,
    **spec: Any,
) -> tuple[AnyKind, Body]:
    """Make a pod that opts in; with ``node`` it runs there."""
    amounts = {"cpu": "10m", **(requests or {})}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    own = {"pod-group.scheduling.sigs.k8s.io": group} if group else {}
    gates = [{"name": operators.PLACEMENT_GATE}] if is_gated and not node else []
    body: Body = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**own, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": operators.SCHEDULER_NAME,
            "schedulingGates": gates,
            "containers": [container],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }
    return PODS, body


def pod_group(
    name: str, members: int, annotations: Mapping[str, str] | None = None
) -> tuple[AnyKind, Body]:
    meta = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations or {})}
    return POD_GROUPS, {"metadata": meta, "spec": {"minMember": members}}


def job(name: str, members: int, **form: Any) -> Objects:
    """Make a gang of equal pods."""
    yield pod_group(name, members)
    for at in range(members):
        yield pod(f"{name}-{at}", group=name, **form)


def ports(count: int, first: int, network: str = "") -> Body:
    """Make a container with different host ports, each of an address of its own if in a network."""
    listed = [
        {
            "containerPort": 1,
            "hostPort": 1024 + (first + at) % 60_000,
            "hostIP": f"{network}{at % 250}" if network else "",
        }
        for at in range(count)
    ]
    return {"name": "ports", "ports": listed}


def term(key: str, topology: str = HOSTNAME) -> Body:
    """Make a term that differs from all others and selects all pods of the namespace."""
    lacking = {"key": f"no-{key}", "operator": "DoesNotExist"}
    return {"topologyKey": topology, "labelSelector": {"matchExpressions": [lacking]}}


def apart(terms: Sequence[Body]) -> Body:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


# --- inputs ---------------------------------------------------------------------------------------


def many_ports(size: int) -> Objects:
    for at in range(size):
        ported = ports(256, 256 * at, f"10.0.{at % 250}.")
        yield pod(f"ports-{at}", containers=[ported])


def pods_of_all_ports(size: int) -> Objects:
    for at in range(size):
        yield pod(f"all-{at}", containers=[ports(15_000, at)])


def device_of_150_bytes(size: int) -> Objects:
    for at in range(size):
        yield pod(f"tiny-{at}", {GPU_MEMORY: "150"})


def devices_without_memory(size: int) -> Objects:
    for at in range(size):
        yield pod(f"none-{at}", {SHARED: "2", GPU_MEMORY: "1"})


def devices_all_different(size: int) -> Objects:
    yield pod_group("devices", size)
    for at in range(size):
        yield pod(f"device-{at}", {GPU_MEMORY: str(1_000_000 + at)}, group="devices")


def devices_with_nics(size: int) -> Objects:
    joint = json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
    yield pod_group("joint", size)
    for at in range(size):
        asked = {GPU_MEMORY: str(1_000_000 + at), "koordinator.sh/rdma": str(1 + at % 99)}
        yield pod(f"joint-{at}", asked, group="joint", annotations={device.JOINT_ALLOCATE: joint})


def numa_all_different(size: int) -> Objects:
    aligned = json.dumps({"numaTopologyPolicy": "SingleNUMANode"})
    yield pod_group("numa", size)
    for at in range(size):
        asked = {"cpu": str(1 + at % 60), GPU_MEMORY: str(1_000_000 + at)}
        yield pod(
            f"numa-{at}", asked, group="numa", annotations={device.NUMA_TOPOLOGY_SPEC: aligned}
        )


def numa_pinned(size: int) -> Objects:
    """A gang of which every pod pins another number of CPUs, in other ways."""
    yield pod_group("pinned", size)
    for at in range(size):
        bind = ("FullPCPUs", "SpreadByPCPUs")[at % 2]
        spec = json.dumps({"preferredCPUBindPolicy": bind})
        yield pod(
            f"pinned-{at}",
            {"cpu": str(2 + 2 * (at % 40)), "memory": f"{at + 1}Mi"},
            group="pinned",
            labels={"koordinator.sh/qosClass": "LSR"},
            annotations={device.RESOURCE_SPEC: spec},
            priority=9500,
        )


def made_up_resources(size: int) -> Objects:
    for at in range(size):
        yield pod(f"made-up-{at}", {f"example.com/r{at}-{n}": "1" for n in range(60)})


def node_affinity(size: int) -> Objects:
    for at in range(size):
        terms = [
            {
                "matchExpressions": [
                    {"key": f"k{at}-{n}-{m}", "operator": "Exists"} for m in range(20)
                ]
            }
            for n in range(250)
        ]
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        yield pod(f"affine-{at}", affinity=affinity)


def preferred_nodes(size: int) -> Objects:
    for at in range(size):
        preferred = [
            {
                "weight": 1 + n % 100,
                "preference": {
                    "matchExpressions": [
                        {"key": HOSTNAME, "operator": "NotIn", "values": [f"{at}-{n}"]}
                    ]
                },
            }
            for n in range(250)
        ]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        yield pod(f"prefers-{at}", affinity=affinity)


def tolerations(size: int) -> Objects:
    for at in range(size):
        listed = [{"key": f"t{at}-{n}", "operator": "Exists"} for n in range(256)]
        yield pod(f"tolerant-{at}", tolerations=listed)


def apart_64(size: int) -> Objects:
    for at in range(size):
        terms = [
            {"labelSelector": {"matchLabels": {f"k{n}": f"v{at % 11}"}}, "topologyKey": HOSTNAME}
            for n in range(64)
        ]
        labels = {f"k{n}": f"v{at % 7}" for n in range(20)}
        yield pod(f"apart-{at}", labels=labels, affinity=apart(terms))


def apart_in_a_gang(size: int) -> Objects:
    yield pod_group("hog", size)
    for at in range(size):
        terms = [
            {"labelSelector": {"matchLabels": {f"k{n}": f"v{at}"}}, "topologyKey": HOSTNAME}
            for n in range(64)
        ]
        yield pod(f"hog-{at}", group="hog", labels={"me": f"x{at}"}, affinity=apart(terms))


def apart_from_all(size: int) -> Objects:
    yield pod_group("terms", size)
    for at in range(size):
        terms = [term(f"{at}-{n}") for n in range(64)]
        yield pod(f"terms-{at}", group="terms", affinity=apart(terms))


def apart_and_gated(size: int) -> Objects:
    """Many that wait for a gate of others, and a small gang beside them."""
    gates = [{"name": operators.PLACEMENT_GATE}, {"name": "example.com/not-yet"}]
    for at in range(size):
        terms = [term(f"{at}-{n}") for n in range(60)]
        yield pod(f"gated-{at}", affinity=apart(terms), schedulingGates=gates)
    yield from job("small", 4)


def apart_in_a_flood(size: int) -> Objects:
    """Many pods that wait for us, each of which all others would keep from its node."""
    for at in range(size):
        terms = [term(f"{at}-{n}") for n in range(60)]
        yield pod(f"flood-{at}", affinity=apart(terms))


def large_gang_apart(size: int) -> Objects:
    yield pod_group("large", size)
    for at in range(size):
        terms = [term(f"{at % 50}-{n}") for n in range(64)]
        yield pod(f"large-{at}", group="large", labels={"me": f"x{at}"}, affinity=apart(terms))


def devices_on_different_nodes(size: int) -> Objects:
    """Every node gets other parts of GPUs, and then different parts are asked of all of them."""
    for at in range(min(1000, 20 * size)):
        only = {"nodeSelector": {HOSTNAME: f"h100x8-{at:04d}"}}
        yield pod(f"differs-{at}", {GPU_MEMORY: str(10_000_000 + at)}, **only)
    yield from devices_all_different(size)


def apart_and_running(size: int) -> Objects:
    for at in range(size):
        terms = [term(f"{at}-{n}") for n in range(60)]
        yield pod(f"runs-{at}", node=f"h100x8-{at % 1000:04d}", affinity=apart(terms))


def near_each_other(size: int) -> Objects:
    """A gang whose pods all require each other, by terms of different topologies."""
    yield pod_group("near", size)
    keys = ("h100x8", HOSTNAME, "topology.kubernetes.io/zone", "network.topology.nvidia.com/block")
    for at in range(size):
        terms = [term(f"{at}-{n}", keys[n % len(keys)]) for n in range(50)]
        yield pod(f"near-{at}", group="near", affinity={"podAffinity": {REQUIRED: terms}})


def spread(size: int) -> Objects:
    yield pod_group("spread", size)
    for at in range(size):
        constraints = [
            {
                "maxSkew": 1,
                "topologyKey": f"made-up/{at}-{n}" if n % 2 else HOSTNAME,
                "whenUnsatisfiable": "DoNotSchedule" if n % 3 else "ScheduleAnyway",
                "labelSelector": term(f"{at}-{n}")["labelSelector"],
            }
            for n in range(64)
        ]
        yield pod(f"spread-{at}", group="spread", topologySpreadConstraints=constraints)


def volumes(size: int) -> Objects:
    for n in range(256):
        meta = {"name": f"claim-{n}", "namespace": NAMESPACE}
        yield CLAIMS, {"metadata": meta, "spec": {}, "status": {"phase": "Pending"}}
    for at in range(size):
        listed = [
            {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"claim-{n}"}}
            for n in range(256)
        ]
        yield pod(f"volumes-{at}", volumes=listed)


def sub_groups(size: int) -> Objects:
    """Groups with as many sub-groups as may be, each with one pod."""
    listed = {"groups": [{"name": f"g{n}"} for n in range(1024)]}
    for at in range(size):
        listed["groups"][1] = {"name": f"x{at}"}
        text = json.dumps(listed)
        yield pod_group(f"sub-{at}", 1, {operators.SUB_GROUPS: text})
        yield pod(f"sub-{at}", group=f"sub-{at}", annotations={operators.SUB_GROUP: "g7"})


def one_tree(size: int) -> Objects:
    """Pods that all carry the same large tree themselves, each a gang of its own."""
    tree = {"groups": [{"name": f"g{n}", "minMember": 1} for n in range(1024)]}
    for at in range(size):
        said = {
            gang.NAME: f"own-{at}",
            gang.MIN_AVAILABLE: "1",
            operators.SUB_GROUPS: json.dumps(tree),
            operators.SUB_GROUP: "g7",
        }
        yield pod(f"own-{at}", annotations=said)


def deep_tree(size: int) -> Objects:
    groups = [
        {"name": f"g{n}", "parent": f"g{n - 1}" if n % 8 else "", "minMember": 1, "layer": "block"}
        for n in range(1000)
    ]
    spec = {"gatherStrategy": [{"layer": "block", "strategy": "MustGather"}]}
    said = {
        operators.SUB_GROUPS: json.dumps({"groups": groups}),
        gang.NETWORK_TOPOLOGY_SPEC: json.dumps(spec),
    }
    yield pod_group("tree", 1, said)
    for at in range(size):
        yield pod(f"tree-{at}", group="tree", annotations={operators.SUB_GROUP: f"g{at % 1000}"})


def network(*layers: tuple[str, str], **more: Any) -> dict[str, str]:
    """Make the annotation of a gang that wants to be close together."""
    listed = [{"layer": layer, "strategy": strategy, **more} for layer, strategy in layers]
    return {gang.NETWORK_TOPOLOGY_SPEC: json.dumps({"gatherStrategy": listed})}


PREFER, MUST = "PreferGather", "MustGather"
EVERYWHERE: Final = (("spine", PREFER), ("block", PREFER), ("NodeTopologyLayer", PREFER))


def network_gang(size: int) -> Objects:
    """A gang of many small members that may be divided in many ways."""
    yield pod_group("close", size, network(*EVERYWHERE))
    for at in range(size):
        yield pod(f"close-{at}", {"cpu": "700m"}, group="close")


def network_all_different(size: int) -> Objects:
    yield pod_group("close", size, network(("block", PREFER)))
    for at in range(size):
        yield pod(f"close-{at}", {"cpu": f"{1000 + at}m"}, group="close")


def network_multiples(size: int) -> Objects:
    yield pod_group("close", size, network(*EVERYWHERE, podCountMultiple=7))
    for at in range(size):
        yield pod(f"close-{at}", {"cpu": "300m"}, group="close")


def network_sub_groups(size: int) -> Objects:
    """Hundreds of sub-groups that each want a block of their own."""
    groups = [{"name": f"g{n}", "minMember": 4, "layer": "block"} for n in range(size // 4)]
    said = {operators.SUB_GROUPS: json.dumps({"groups": groups})} | network(("spine", PREFER))
    yield pod_group("parts", size, said)
    for at in range(size):
        own = {operators.SUB_GROUP: f"g{at // 4}"}
        yield pod(f"parts-{at}", {"cpu": "20"}, group="parts", annotations=own)


def network_many_gangs(size: int) -> Objects:
    """Gangs that fit in no block, and are planned again and again."""
    for at in range(size):
        yield pod_group(f"close-{at}", 20, network(("block", MUST)))
        for n in range(20):
            yield pod(f"close-{at}-{n}", {"cpu": f"{100 + at % 20}"}, group=f"close-{at}")


def closure(size: int) -> Objects:
    names = json.dumps([f"{NAMESPACE}/closure-{at:03}" for at in range(size)])
    for at in range(size):
        yield pod_group(f"closure-{at:03}", 1, {gang.GROUPS: names})
        yield pod(f"closure-{at:03}", group=f"closure-{at:03}")


def huge_gang(size: int) -> Objects:
    yield from job("huge", size, requests={"cpu": "120"})


def tiny_gangs(size: int) -> Objects:
    for at in range(size):
        yield pod_group(f"small-{at}", 1)
        yield pod(f"small-{at}", {"nvidia.com/gpu": "99"}, group=f"small-{at}")


def all_different(size: int) -> Objects:
    """A gang of pods of which no two request the same."""
    yield pod_group("different", size)
    for at in range(size):
        yield pod(f"different-{at}", {"cpu": f"{100 + at}m"}, group="different")


def quantities(size: int) -> Objects:
    names = (
        "nvidia.com/gpu",
        "koordinator.sh/gpu-core",
        GPU_MEMORY,
        "koordinator.sh/rdma",
        "memory",
    )
    values = ("9223372036854775807", "8Ei", "1n", "1e-9", "0", "100e15")
    for at in range(size):
        yield pod(f"amount-{at}", {names[at % 5]: values[at % 6], SHARED: str(10 ** (at % 12))})


def reservations(size: int) -> Objects:
    for at in range(size):
        owners = [{"labelSelector": {"matchLabels": {f"k{n}": f"v{at}"}}} for n in range(100)]
        template = {
            "metadata": {"namespace": NAMESPACE},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }
        yield (
            RESERVATIONS,
            {"metadata": {"name": f"r-{at}"}, "spec": {"owners": owners, "template": template}},
        )
    for at in range(size):
        yield pod(f"owner-{at}", labels={f"k{n}": f"v{at}" for n in range(100)})


def annotations(size: int) -> Objects:
    deep = "[" * 20_000
    for at in range(size):
        keys = (device.ALLOCATE_HINT, device.JOINT_ALLOCATE, reservation.AFFINITY, gang.GROUPS)
        wide = json.dumps([f"{at}-{n}" for n in range(5_000)])
        yield pod(f"said-{at}", annotations=dict.fromkeys(keys, deep if at % 2 else wide))


INPUTS: Final = (
    Input("pods with 60 made-up resources", "filter: resources", 500, made_up_resources),
    Input("a gang of which no two pods are equal", "filter: resources", 1000, all_different),
    Input("256 requirements about nodes per pod", "filter: node affinity", 300, node_affinity),
    Input("250 preferences per pod", "score: node affinity", 300, preferred_nodes),
    Input("256 tolerations per pod", "filter: taints", 300, tolerations),
    Input("256 host ports with addresses per pod", "filter: host ports", 300, many_ports),
    Input("15,000 host ports per pod", "filter: host ports", 20, pods_of_all_ports),
    Input("150 bytes of GPU memory", "filter: devices", 300, device_of_150_bytes),
    Input("shares of GPUs without memory", "filter: devices", 300, devices_without_memory),
    Input("a gang of different parts of GPUs", "reserve: devices", 250, devices_all_different),
    Input("different parts, on nodes that all differ", "budget", 60, devices_on_different_nodes),
    Input("a gang of different parts, each with a NIC", "reserve: devices", 250, devices_with_nics),
    Input("a gang of different requests on one NUMA node", "align: NUMA", 250, numa_all_different),
    Input("a gang that pins different CPUs", "filter: NUMA", 2000, numa_pinned),
    Input("64 terms of anti-affinity per pod", "filter: pod affinity", 500, apart_64),
    Input("a gang with 64 terms per pod", "filter: pod affinity", 60, apart_in_a_gang),
    Input("a gang with 64 terms that select all", "apply: pod affinity", 30, apart_from_all),
    Input("60 terms per pod, waiting for a gate", "expect: pod affinity", 1400, apart_and_gated),
    Input("60 terms per pod that select all", "queue: costly units", 1400, apart_in_a_flood),
    Input("a gang of 1,000 with 64 terms per pod", "budget", 1000, large_gang_apart),
    Input("60 terms per running pod", "ask: pod affinity", 500, apart_and_running),
    Input("a gang whose pods require each other", "retry_within", 20, near_each_other),
    Input("64 spread constraints per pod", "filter: spread", 30, spread),
    Input("256 claims per pod", "filter: volumes", 100, volumes),
    Input("groups of 1,024 sub-groups", "decoder: PodGroup", 400, sub_groups),
    Input("pods with 1,024 sub-groups each", "decoder: pod", 400, one_tree),
    Input("a tree of sub-groups, each in one block", "strategy", 1000, deep_tree),
    Input("a gang of 5,000 close together", "strategy", 5000, network_gang),
    Input("a gang of different pods close together", "strategy", 1000, network_all_different),
    Input("a gang in multiples of 7", "strategy", 5000, network_multiples),
    Input("250 sub-groups, each in one block", "strategy", 1000, network_sub_groups),
    Input("gangs of which none fits in a block", "strategy", 200, network_many_gangs),
    Input("gangs that all list each other", "units", 250, closure),
    Input("a gang of 5,000 that just does not fit", "pre_filter, filter", 5000, huge_gang),
    Input("gangs of one that fit nowhere", "queue", 3000, tiny_gangs),
    Input("quantities at the limits", "decoder: amounts", 300, quantities),
    Input("100 owners per reservation", "holders: reservations", 500, reservations),
    Input("annotations of 200 KB that cannot be read", "decoder: pod", 100, annotations),
)


def find_inputs(words: str) -> Iterator[Input]:
    """Yield the inputs whose name or point contains any of some words."""
    for one in INPUTS:
        if not words or any(word in f"{one.name} {one.point}" for word in words.split(",")):
            yield one
