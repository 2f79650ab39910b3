"""Translation from JSON to the values of the core, as table tests."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.support.plan_keys import make_keys, sign_plan

from koord.api.gang import UPSTREAM_DEFAULTS
from koord.api.keys import gang, operators, slo
from koord.core.eviction.protection import is_foreign
from koord.core.gang.cache import GangCache
from koord.core.model.gangs import Bond, BondRecord, GangMode, GangPhase, GangSource
from koord.core.model.nodes import Taint
from koord.core.model.pods import Handling, HostPort, MoveHints, PodPhase, RecordedPlan, Toleration
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.model.units import AMOUNT_LIMIT
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.amounts import parse_amount
from koord.kube.translate.cluster_objects import translate_node
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.native_groups import translate_native
from koord.kube.translate.pods import PodTranslator
from koord.kube.wire import WireCustomResource, WireNativePodGroup, WireNode, WirePod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GATE = {"name": operators.PLACEMENT_GATE}
FOREIGN = {"name": "kueue.x-k8s.io/admission"}
OURS = {"schedulerName": operators.SCHEDULER_NAME}


def wire(
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **meta: Any,
) -> WirePod:
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", **meta},
        "spec": {"containers": [{"name": "main"}], "schedulerName": "default-scheduler"}
        | (spec or {}),
        "status": status or {},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=WirePod)


def container(name: str = "main", **requests: str) -> dict[str, Any]:
    named = {key.replace("_", "-"): text for key, text in requests.items()}
    return {"name": name, "resources": {"requests": named}}


@pytest.fixture
def translator() -> PodTranslator:
    return make_pod_translator(TranslatorOptions(plans=make_keys()))


def test_plain_fields(translator: PodTranslator) -> None:
    pod = translator.translate(
        wire(
            {"priority": 7, "nodeName": "n1"},
            {"phase": "Running", "startTime": "2025-01-01T00:00:30Z"},
            creationTimestamp="2025-01-01T00:00:00Z",
            deletionTimestamp="2025-01-01T00:01:00Z",
            resourceVersion="12",
            ownerReferences=[
                {"kind": "Job", "name": "b", "uid": "1"},
                {"kind": "Job", "name": "a", "uid": "2"},
            ],
        )
    )
    assert (pod.key, pod.uid, pod.priority, pod.node) == ("ns/p", "u", 7, "n1")
    assert (pod.phase, pod.is_terminating) == (PodPhase.RUNNING, True)
    assert (pod.created, pod.resource_version) == (1735689600.0, "12")
    assert pod.started == pod.created + 30
    assert pod == replace(pod, started=0.0), "when it started changes nothing for planning"
    assert [owner.name for owner in pod.owners] == ["a", "b"]


def test_the_binding_and_what_ends_a_pod_are_in_its_conditions(translator: PodTranslator) -> None:
    """The API server writes the one, and whoever evicts the other."""
    status = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2025-01-01T00:00:10Z",
            },
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        ]
    }
    pod = translator.translate(wire({"nodeName": "n1"}, status))
    assert (pod.bound, pod.disruption) == (1735689610.0, "EvictionByEvictionAPI")
    assert translator.translate(wire({}, status)).bound == 0.0


@pytest.mark.parametrize("deleted", [None, "2025-01-01T00:01:00Z"])
def test_reclaimed_pod_is_known_until_it_is_gone(
    translator: PodTranslator, deleted: str | None
) -> None:
    mark = {"type": operators.OVER_ENTITLEMENT, "status": "True"}
    found = wire({"nodeName": "n1"}, {"conditions": [mark]}, deletionTimestamp=deleted)
    pod = translator.translate(found)
    assert (pod.is_reclaimed, pod.is_terminating) == (True, True)
    assert pod.is_eviction_pending == (deleted is None)


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        ("Failed", "OutOfcpu", "OutOfcpu"),
        ("Failed", "OutOfnvidia.com/gpu", "OutOfnvidia.com/gpu"),
        ("Failed", "UnexpectedAdmissionError", "UnexpectedAdmissionError"),
        ("Failed", "NodeAffinity", "NodeAffinity"),
        ("Failed", "Evicted", ""),
        ("Failed", "", ""),
        ("Running", "OutOfcpu", ""),
    ],
)
def test_pods_rejected_by_the_kubelet(
    translator: PodTranslator, phase: str, reason: str, expected: str
) -> None:
    pod = translator.translate(wire(status={"phase": phase, "reason": reason}))
    assert pod.rejection == expected


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("", PodPhase.PENDING),
        ("Succeeded", PodPhase.SUCCEEDED),
        ("Unknown", PodPhase.UNKNOWN),
        ("Novel", PodPhase.UNKNOWN),
    ],
)
def test_phases(translator: PodTranslator, phase: str, expected: PodPhase) -> None:
    assert translator.translate(wire(status={"phase": phase})).phase is expected


@pytest.mark.parametrize(
    ("spec", "expected", "foreign"),
    [
        (OURS | {"schedulingGates": [GATE]}, Handling.RELEASE_AND_BIND, ()),
        ({"schedulingGates": [GATE]}, Handling.RELEASE_PINNED, ()),
        (OURS, Handling.BIND, ()),
        (OURS | {"schedulingGates": []}, Handling.BIND, ()),
        (OURS | {"schedulingGates": [FOREIGN, GATE]}, Handling.FOREIGN_GATE, (FOREIGN["name"],)),
        ({"schedulingGates": [GATE, FOREIGN]}, Handling.FOREIGN_GATE, (FOREIGN["name"],)),
        (OURS | {"schedulingGates": [FOREIGN]}, Handling.FOREIGN_GATE, (FOREIGN["name"],)),
        ({"schedulingGates": [FOREIGN]}, Handling.NOT_OURS, (FOREIGN["name"],)),
        ({}, Handling.NOT_OURS, ()),
    ],
)
def test_handling(
    translator: PodTranslator, spec: dict[str, Any], expected: Handling, foreign: tuple[str, ...]
) -> None:
    pod = translator.translate(wire(spec))
    assert (pod.handling, pod.foreign_gates) == (expected, foreign)
    assert pod.is_gated is bool(spec.get("schedulingGates"))


def test_another_scheduler_name() -> None:
    pod = make_pod_translator(TranslatorOptions("mine")).translate(wire({"schedulerName": "mine"}))
    assert pod.handling is Handling.BIND


REQUESTS = {
    "nothing": ({}, {}),
    "cpu in milli, rounded up": (
        {"containers": [container(cpu="1.5", memory="1Gi"), container("b", cpu="100u")]},
        {"cpu": 1501, "memory": 1 << 30},
    ),
    "limits do not count": (
        {"containers": [{"name": "main", "resources": {"limits": {"cpu": "4"}}}]},
        {},
    ),
    "sidecars and init containers": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [
                container("side", cpu="2") | {"restartPolicy": "Always"},
                container("init", cpu="5"),
            ],
        },
        {"cpu": 7000},
    ),
    "overhead": ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    "pod level": (
        {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}},
        {"cpu": 3000},
    ),
    "devices": (
        {"containers": [{"name": "m", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]},
        {"nvidia.com/gpu": 8},
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(translator: PodTranslator, name: str) -> None:
    spec, expected = REQUESTS[name]
    assert dict(translator.translate(wire(spec)).shape.requests) == expected | {"pods": 1}


def test_the_part_that_is_overhead_is_known(translator: PodTranslator) -> None:
    spec, _ = REQUESTS["overhead"]
    assert translator.translate(wire(spec)).shape.overhead == (("cpu", 250),)
    assert not translator.translate(wire(REQUESTS["devices"][0])).shape.overhead


def resized(allocated: str, actual: str, **more: Any) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": actual}},
            }
        ],
        **more,
    }


ON_N1 = {
    "nodeAffinity": {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        }
    }
}
WITH_CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.mark.parametrize(
    ("spec", "reason", "expected"),
    [
        ({}, "Unschedulable", True),
        ({}, "SchedulingGated", False),
        ({"nodeName": "n1"}, "Unschedulable", False),
        ({"volumes": []}, "Unschedulable", False),
    ],
)
def test_released_pod_that_kube_scheduler_cannot_bind(
    translator: PodTranslator, spec: dict[str, Any], reason: str, *, expected: bool
) -> None:
    left = {"affinity": ON_N1, "volumes": WITH_CLAIM} | spec
    status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]}
    plan = sign_plan("u", '{"node":"n1","plan":"p"}')
    pod = translator.translate(wire(left, status, annotations=plan))
    assert pod.is_unschedulable is expected


DAEMON_SET = [
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
]


@pytest.mark.parametrize(
    ("spec", "owners", "reserved_node"),
    [
        ({}, DAEMON_SET, "n1"),
        ({"nodeName": "n1"}, DAEMON_SET, ""),
        ({"schedulingGates": [FOREIGN]}, DAEMON_SET, ""),
        (OURS, DAEMON_SET, ""),
        ({"affinity": {}}, DAEMON_SET, ""),
        ({}, [], ""),
        ({}, [{**DAEMON_SET[0], "controller": False}], ""),
        ({}, [{**DAEMON_SET[0], "kind": "ReplicaSet"}], ""),
        ({}, [{**DAEMON_SET[0], "apiVersion": "example.com/v1"}], ""),
        ({"schedulerName": "nobody"}, DAEMON_SET, ""),
    ],
)
def test_room_is_kept_for_daemon_pods_of_other_schedulers(
    translator: PodTranslator, spec: dict[str, Any], owners: list[Any], reserved_node: str
) -> None:
    pod = translator.translate(wire({"affinity": ON_N1} | spec, ownerReferences=owners))
    assert pod.reserved_node == reserved_node


@pytest.mark.parametrize(("priority", "reserved_node"), [(0, ""), (2_000_001_000, "n1")])
def test_room_is_kept_for_no_daemon_that_kube_scheduler_has_refused(
    translator: PodTranslator, priority: int, reserved_node: str
) -> None:
    """Anybody can write such an owner on a pod that fits nowhere."""
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    spec = {"affinity": ON_N1, "priority": priority}
    pod = translator.translate(wire(spec, {"conditions": [refused]}, ownerReferences=DAEMON_SET))
    assert pod.reserved_node == reserved_node


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("spec", "status", "cpu"),
    [
        ({"nodeName": "n"}, resized("2", "1"), 4000),
        ({"nodeName": "n"}, resized("5", "1"), 5000),
        ({"nodeName": "n"}, resized("2", "6"), 6000),
        ({"nodeName": "n"}, resized("2", "1", conditions=INFEASIBLE), 2000),
        ({}, resized("9", "9"), 4000),
    ],
)
def test_resized_in_place(
    translator: PodTranslator, spec: dict[str, Any], status: dict[str, Any], cpu: int
) -> None:
    pod = translator.translate(wire({"containers": [container(cpu="4")]} | spec, status))
    assert dict(pod.shape.requests)["cpu"] == cpu


def test_resized_at_pod_level(translator: PodTranslator) -> None:
    spec = {"nodeName": "n", "resources": {"requests": {"cpu": "2"}}}
    status = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}}
    assert dict(translator.translate(wire(spec, status)).shape.requests)["cpu"] == 3000


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "0.1m", 1),
        ("cpu", "-1", 0),
        ("memory", "1.5", 2),
        ("memory", "128Mi", 128 << 20),
        ("memory", "9E", AMOUNT_LIMIT),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", 8, 8),
        ("pods", "110", 110),
    ],
)
def test_amounts(resource: str, text: str | int, amount: int) -> None:
    assert parse_amount(resource, text) == amount


def test_node_affinity_and_tolerations(translator: PodTranslator) -> None:
    terms = [
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]},
        {
            "matchExpressions": [{"key": "b", "operator": "Gt", "values": ["5"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}],
        },
        {},
    ]
    shape = translator.translate(
        wire(
            {
                "nodeSelector": {"z": "1", "a": "2"},
                "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
                "tolerations": [
                    {"key": "k", "operator": "Exists", "tolerationSeconds": 3},
                    {"key": "a", "value": "v", "effect": "NoSchedule"},
                    {"operator": "Exists"},
                ],
                "containers": [
                    {"name": "m", "ports": [{"containerPort": 1}, {"hostPort": 80}]},
                    {"name": "n", "ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "::1"}]},
                ],
                "initContainers": [
                    {"name": "i", "ports": [{"hostPort": 1}]},
                    {"name": "s", "ports": [{"hostPort": 2}], "restartPolicy": "Always"},
                ],
            }
        )
    ).shape
    assert shape.node_selector == (("a", "2"), ("z", "1"))
    assert shape.terms == (
        SelectorTerm((Requirement("a", SelectorOperator.IN, ("1", "2")),)),
        SelectorTerm(
            (Requirement("b", SelectorOperator.GT, ("5",)),),
            (Requirement("metadata.name", SelectorOperator.NOT_IN, ("x",)),),
        ),
        SelectorTerm(),
    )
    assert shape.tolerations == (
        Toleration("", "Exists"),
        Toleration("a", "Equal", "v", "NoSchedule"),
        Toleration("k", "Exists"),
    )
    assert shape.host_ports == (HostPort(2), HostPort(53, "UDP", "::1"), HostPort(80))


BEYOND = {
    "nothing": ({"volumes": [{"name": "v", "emptyDir": {}}]}, ()),
    "claims of volumes": ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, ()),
    "claims of resources": ({"resourceClaims": [{"name": "gpu"}]}, ("spec.resourceClaims",)),
    "no claims": ({"resourceClaims": []}, ()),
    "disks that pods may not always share": (
        {"volumes": [{"emptyDir": {}}, {"rbd": {"image": "i"}}, {"iscsi": {"iqn": "q"}}]},
        ("spec.volumes[1].rbd", "spec.volumes[2].iscsi"),
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_fields_that_need_kube_scheduler(translator: PodTranslator, name: str) -> None:
    spec, expected = BEYOND[name]
    assert translator.translate(wire(spec)).shape.needs_kube_scheduler == expected


def pin(node: str, *more: dict[str, Any]) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}, {}, *more]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


NOTE = '{"node":"n1","plan":"x1","group":"ns/a","members":2}'


@pytest.mark.parametrize(
    ("text", "spec", "recorded", "pinned"),
    [
        (None, pin("n1"), None, False),
        (NOTE, {}, RecordedPlan("n1", "x1", "ns/a", 2), False),
        (NOTE, pin("n1"), RecordedPlan("n1", "x1", "ns/a", 2), True),
        (
            NOTE[:-1] + ',"youngest":9,"start":"f00d","quota":"team"}',
            {},
            RecordedPlan("n1", "x1", "ns/a", 2, youngest=9.0, start_id="f00d", quota="team"),
            False,
        ),
        (NOTE, pin("n2"), RecordedPlan("n1", "x1", "ns/a", 2), False),
        (
            NOTE,
            pin("n1", {"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            RecordedPlan("n1", "x1", "ns/a", 2),
            False,
        ),
        ('{"node":"","plan":"x1"}', {}, RecordedPlan("", "x1", "", 1), False),
        ('{"node":"","plan":"x1"}', pin("n1"), RecordedPlan("", "x1", "", 1), False),
        ("{}", {}, None, False),
        ("not json", {}, None, False),
        ('{"node":"n1","plan":"x1","members":0}', {}, None, False),
        ('{"node":7,"plan":"x1"}', {}, None, False),
    ],
)
def test_recorded_plans(
    translator: PodTranslator,
    text: str | None,
    spec: dict[str, Any],
    recorded: RecordedPlan | None,
    pinned: bool,  # noqa: FBT001
) -> None:
    annotations = {} if text is None else sign_plan("u", text)
    pod = translator.translate(wire(spec, annotations=annotations))
    assert (pod.recorded, pod.pinned) == (recorded, pinned)


@pytest.mark.parametrize("annotations", [{}, {operators.PLAN: NOTE}, {operators.PLAN: "{"}])
def test_a_plan_that_is_removed_while_its_pod_runs_counts_on(
    translator: PodTranslator, annotations: dict[str, str]
) -> None:
    running = {"nodeName": "n1"}
    planned = translator.translate(wire(running, annotations=sign_plan("u", NOTE)))
    assert planned.recorded is not None
    edited = translator.translate(wire(running, annotations=annotations))
    assert edited.recorded == planned.recorded
    assert not is_foreign(edited)
    assert bool(translator.ignored) is bool(annotations), "its owner is told"
    # It is the plan of this pod on this node.
    assert translator.translate(wire(running, uid="v")).recorded is None
    assert translator.translate(wire({"nodeName": "n2"})).recorded is None
    assert translator.translate(wire()).recorded is None
    translator.forget(edited)
    assert translator.translate(wire(running)).recorded is None


@pytest.mark.parametrize(
    ("spec", "kind", "expected"),
    [
        ({"nodeName": "n1"}, "", True),
        (OURS | {"nodeName": "n1"}, "", False),
        (pin("n1") | {"nodeName": "n1"}, "", False),
        (pin("n1") | {"nodeName": "n1"}, "ReplicaSet", False),
        (pin("n1") | {"nodeName": "n1"}, "DaemonSet", True),
        (pin("n2") | {"nodeName": "n1"}, "", True),
        (pin("n1"), "", True),
    ],
)
def test_without_a_plan_the_spec_says_who_has_placed_a_pod(
    translator: PodTranslator, spec: dict[str, Any], kind: str, expected: object
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": True}
    pod = translator.translate(wire(spec, ownerReferences=[owner] if kind else []))
    assert is_foreign(pod) is expected


def test_equal_shapes_are_one_object(translator: PodTranslator) -> None:
    first = translator.translate(wire({"containers": [container("a", cpu="1")]}))
    same = translator.translate(wire({"containers": [container("a", cpu="1")]}, name="q"))
    other_name = translator.translate(wire({"containers": [container("b", cpu="1000m")]}))
    other = translator.translate(wire({"containers": [container("a", cpu="2")]}))
    assert first.shape is same.shape
    assert first.shape is other_name.shape
    assert first.shape is not other.shape


def test_bound_pods_pinned_to_their_nodes_share_a_shape(translator: PodTranslator) -> None:
    bound = [
        translator.translate(wire(pin(node) | {"nodeName": node})).shape for node in ("n1", "n2")
    ]
    assert bound[0] is bound[1]
    assert bound[0].terms is None
    waiting = translator.translate(wire(pin("n1")))
    assert waiting.shape.terms is not None


def test_forms_are_kept_while_a_pod_is_pending(translator: PodTranslator) -> None:
    ours = OURS | {"schedulingGates": [GATE]}
    translator.translate(wire(ours))
    form = translator.form_of("u")
    assert form is not None
    assert not form.has_annotations
    translator.translate(wire(ours, annotations={"a": "b"}))
    form = translator.form_of("u")
    assert form is not None
    assert form.has_annotations
    translator.translate(wire(ours | {"nodeName": "n"}))
    assert translator.form_of("u") is None
    pod = translator.translate(wire(ours))
    translator.forget(pod)
    assert translator.form_of("u") is None
    translator.translate(wire({}))
    assert translator.form_of("u") is None


def test_wait_reason(translator: PodTranslator) -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
        {"type": operators.PLACED, "status": "False", "reason": "MissingMembers"},
    ]
    assert translator.translate(wire(status={"conditions": conditions})).wait_reason == (
        "MissingMembers"
    )


def test_gang_claims(translator: PodTranslator) -> None:
    assert translator.translate(wire()).gang is None
    by_label = translator.translate(wire(labels={gang.POD_GROUP: "g"})).gang
    assert by_label is not None
    assert (by_label.key, by_label.source) == ("ns/g", GangSource.POD_GROUP)
    assert by_label.declared is None
    annotations = {gang.NAME: "h", gang.MIN_AVAILABLE: "2", gang.MODE: "Odd"}
    declared = translator.translate(wire(annotations=annotations)).gang
    again = translator.translate(wire(annotations=annotations, name="q")).gang
    assert declared is again
    assert declared is not None
    assert declared.source is GangSource.ANNOTATION
    assert declared.declared is not None
    assert (declared.declared.min_member, declared.declared.mode) == (2, GangMode.STRICT)
    assert [bad.key for bad in declared.bad_values] == [gang.MODE]
    unusable = translator.translate(wire(annotations={gang.NAME: "h"})).gang
    assert unusable is not None
    assert unusable.declared is None
    assert [bad.key for bad in unusable.bad_values] == [gang.MIN_AVAILABLE]
    elsewhere = translator.translate(wire(annotations=annotations, namespace="other")).gang
    assert elsewhere is not None
    assert elsewhere.key == "other/h"


def test_nodes() -> None:
    body = {
        "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "3"},
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "z", "effect": "NoExecute", "timeAdded": "2025-01-01T00:00:00Z"},
                {"key": "a", "value": "v", "effect": "NoSchedule"},
            ],
        },
        "status": {"allocatable": {"cpu": "7910m", "memory": "1Gi", "pods": "110"}},
    }
    node = translate_node(msgspec.json.decode(msgspec.json.encode(body), type=WireNode))
    assert (node.name, node.uid, node.labels) == ("n", "u", {"a": "b"})
    assert node.taints == (Taint("a", "v", "NoSchedule"), Taint("z", "", "NoExecute"))
    assert (node.is_unschedulable, node.is_terminating) == (True, False)
    assert node.allocatable == {"cpu": 7910, "memory": 1 << 30, "pods": 110}
    bare = translate_node(msgspec.json.decode(b'{"metadata":{"name":"n"}}', type=WireNode))
    assert (bare.taints, bare.allocatable, bare.is_unschedulable) == ((), {}, False)


def wire_group(spec: dict[str, Any], status: Any = None, **meta: Any) -> WireCustomResource:
    body = {
        "metadata": {"name": "g", "namespace": "ns", "uid": "u", "generation": 4, **meta},
        "spec": spec,
        "status": status if status is not None else {},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=WireCustomResource)


def test_pod_groups() -> None:
    translator = PodGroupTranslator()
    group = translator.translate(
        wire_group(
            {"minMember": 3, "scheduleTimeoutSeconds": 60},
            {
                "phase": "Scheduling",
                "occupiedBy": "ns/job",
                "scheduleStartTime": "2025-01-01T00:00:00Z",
                "conditions": [{"type": "Placed"}],
            },
            annotations={gang.GROUPS: '["ns/g","ns/h"]', gang.TOTAL_NUMBER: "1"},
        )
    )
    assert (group.key, group.uid, group.generation) == ("ns/g", "u", 4)
    assert (group.spec.min_member, group.spec.wait_seconds, group.spec.total) == (3, 60, 3)
    assert group.spec.group == ("ns/g", "ns/h")
    assert [bad.key for bad in group.spec.bad_values] == [gang.TOTAL_NUMBER]
    assert (group.phase, group.occupied_by) == (GangPhase.SCHEDULING, "ns/job")
    assert group.schedule_start == 1735689600.0
    status = translator.status_of("u")
    assert status is not None
    assert status["conditions"] == [{"type": "Placed"}]
    translator.forget(group)
    assert translator.status_of("u") is None


@pytest.mark.parametrize("minimum", [0, -1, 2**31])
def test_minimum_out_of_bounds_is_kept(minimum: int) -> None:
    assert PodGroupTranslator().translate(wire_group({"minMember": minimum})).spec.min_member == (
        minimum
    )


def test_reported_state_of_a_gang_survives_a_restart() -> None:
    told = {
        "attempts": 3,
        "conditions": [
            {"type": "Bound", "status": "False", "reason": "PartiallyBound"},
            {"type": "Placed", "status": "False", "reason": "InsufficientNodes"},
        ],
        "runs": [{"controller": "c", "start": "s", "size": 3, "succeeded": 2}, {"size": 1}],
    }
    group = PodGroupTranslator().translate(wire_group({"minMember": 1}, told))
    assert group.runs == (BondRecord(Bond("c", "s", 3), 2), BondRecord(Bond("", "", 1), 0))
    assert (group.attempts, group.wait_reason) == (3, "InsufficientNodes")
    told["conditions"] = [{"type": "Placed", "status": "True", "reason": "Planned"}]
    group = PodGroupTranslator().translate(wire_group({"minMember": 1}, told))
    assert group.wait_reason == ""


@pytest.mark.parametrize("status", [{}, {"phase": "Novel"}, {"phase": 7}, "nonsense", None])
def test_invalid_status_is_ignored(status: Any) -> None:
    group = PodGroupTranslator().translate(wire_group({"minMember": 1}, status))
    assert group.phase in {GangPhase.UNSET, GangPhase.UNKNOWN}
    assert group.schedule_start is None


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(cpu="lots")]},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": 3}]}}}},
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Resembles"}]}
                        ]
                    }
                }
            }
        },
    ],
)
def test_invalid_object_is_a_value_error(translator: PodTranslator, spec: dict[str, Any]) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        translator.translate(wire(spec))


NATIVE = {"schedulingGroup": {"podGroupName": "train"}}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "train"}
KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"


@pytest.mark.parametrize(
    ("spec", "meta", "key"),
    [
        (NATIVE, {}, "ns/scheduling.k8s.io:train"),
        ({}, {"labels": KUEUE}, "ns/kueue.x-k8s.io:train"),
        (NATIVE, {"labels": KUEUE}, "ns/scheduling.k8s.io:train"),
        (NATIVE, {"labels": {gang.POD_GROUP: "a"}}, "ns/a"),
        ({}, {"labels": KUEUE, "annotations": {gang.NAME: "a"}}, "ns/a"),
        ({"schedulingGroup": {}}, {}, None),
    ],
)
def test_gangs_of_other_projects(
    translator: PodTranslator, spec: dict[str, Any], meta: dict[str, Any], key: str | None
) -> None:
    pod = translator.translate(wire(spec, **meta))
    assert (pod.gang.key if pod.gang is not None else None) == key


def test_native_pod_group(translator: PodTranslator) -> None:
    body = {
        "metadata": {"name": "train", "namespace": "ns", "uid": "u"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    native = msgspec.json.decode(msgspec.json.encode(body), type=WireNativePodGroup)
    group = translate_native(native, UPSTREAM_DEFAULTS)
    pod = translator.translate(wire(NATIVE))
    assert pod.gang is not None
    assert group.key == pod.gang.key
    assert (group.spec.min_member, group.spec.source) == (3, GangSource.NATIVE)
    book = GangCache()
    book.upsert_pod_group(group)
    assert book.spec(group.key) == group.spec
    assert book.pod_group(group.key) is None, "whoever writes a status does not see it"


def test_native_group_without_gang_policy_is_not_a_gang() -> None:
    native = WireNativePodGroup()
    assert translate_native(native, UPSTREAM_DEFAULTS).spec.min_member == 0


@pytest.mark.parametrize(("count", "minimum"), [("3", 3), ("x", None), (None, None)])
def test_kueue_groups_need_all_their_pods(
    translator: PodTranslator, count: str | None, minimum: int | None
) -> None:
    annotations = {} if count is None else {KUEUE_TOTAL: count}
    claim = translator.translate(wire(labels=KUEUE, annotations=annotations)).gang
    assert claim is not None
    assert (claim.declared.min_member if claim.declared else None) == minimum
    assert [bad.key for bad in claim.bad_values] == ([] if minimum else [KUEUE_TOTAL])


def test_a_gated_pod_with_a_misspelled_key_is_noted_until_it_is_gone(
    translator: PodTranslator,
) -> None:
    labels = {"gang.scheduling.koordinator.sh/nmae": "a"}
    plain = translator.translate(wire(OURS, labels=labels))
    assert not translator.ignored
    pod = translator.translate(wire({**OURS, "schedulingGates": [GATE]}, labels=labels))
    assert plain.uid == pod.uid
    ((told, key),) = translator.ignored.values()
    assert (told.key, key.key) == ("ns/p", "gang.scheduling.koordinator.sh/nmae")
    translator.forget(pod)
    assert not translator.ignored


@pytest.mark.parametrize(
    ("labels", "annotations", "told"),
    [
        ({}, {slo.CPU_QOS: '{"groupIdentity":7}'}, f"[{slo.CPU_QOS}].groupIdentity: 7: "),
        ({}, {slo.RESCTRL: '{"llc":'}, f"[{slo.RESCTRL}]: "),
        ({}, {slo.MEMORY_QOS: "[" * 50_000}, f"[{slo.MEMORY_QOS}]: "),
        ({}, {slo.OOM_SCORE_ADJ_SPEC: f'{{"{"c" * 4000}":5000}}'}, "[koordinator.sh/oom-score"),
        ({slo.CORE_SCHED_POLICY: "shared"}, {}, f"labels[{slo.CORE_SCHED_POLICY}]: shared: must"),
        ({slo.OOM_SCORE_ADJ: "5"}, {slo.CPU_QOS: '{"groupIdentity":2}'}, ""),
    ],
)
def test_a_gated_pod_with_bad_settings_for_its_agent_is_noted_and_planned_all_the_same(
    translator: PodTranslator, labels: dict[str, str], annotations: dict[str, str], told: str
) -> None:
    gated = {**OURS, "schedulingGates": [GATE]}
    plain = translator.translate(wire(gated))
    pod = translator.translate(wire(gated, labels=labels, annotations=annotations))
    assert (pod.handling, pod.shape, pod.extensions) == (plain.handling, plain.shape, ())
    texts = [key.problem for _, key in translator.ignored.values()]
    assert len(texts) == bool(told)
    for text in texts:
        assert told in text
        assert len(text) < 640


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ('{"deadline": "1970-01-01T00:01:30Z", "reason": "x"}', 90.0),
        ('{"deadline": "soon"}', 0.0),
        ("{}", 0.0),
        ("[", 0.0),
        ("", 0.0),
    ],
)
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_marked_pod_may_end_until_its_deadline(
    translator: PodTranslator,
    text: str,
    until: float,
    is_marked: bool,  # noqa: FBT001
) -> None:
    mark = {"type": "operators.koordinator.sh/OverEntitlement", "status": str(is_marked)}
    annotations = {"scheduling.koordinator.sh/soft-eviction": text}
    pod = translator.translate(wire(status={"conditions": [mark]}, annotations=annotations))
    assert pod.ends_until == (until if is_marked else 0.0)


@pytest.mark.parametrize(
    ("volumes", "annotations", "hints"),
    [
        ([], {}, MoveHints()),
        ([{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}], {}, MoveHints()),
        ([{"name": "a", "emptyDir": None}], {}, MoveHints()),
        ([{"name": "a", "emptyDir": {}}], {}, MoveHints(has_local_storage=True)),
        ([{"name": "a", "hostPath": {"path": "/x"}}], {}, MoveHints(has_local_storage=True)),
        (
            [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
            {},
            MoveHints(has_memory_storage=True),
        ),
        (
            [{"name": "huge", "emptyDir": {"medium": "HugePages"}}],
            {},
            MoveHints(has_local_storage=True),
        ),
        (
            [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "a", "emptyDir": {}}],
            {},
            MoveHints(has_local_storage=True, has_memory_storage=True),
        ),
        ([], {"kubernetes.io/config.source": "file"}, MoveHints(is_static=True)),
        ([], {"kubernetes.io/config.source": "api"}, MoveHints()),
        ([], {"scheduling.koordinator.sh/eviction-cost": "7"}, MoveHints(eviction_cost=7)),
        ([], {"scheduling.koordinator.sh/eviction-cost": "9" * 40}, MoveHints()),
        (
            [{"name": "a", "emptyDir": {}}],
            {"descheduler.alpha.kubernetes.io/evict": ""},
            MoveHints(has_local_storage=True, evicts_protected=True),
        ),
    ],
)
def test_what_a_manifest_says_of_moving_its_pod(
    translator: PodTranslator,
    volumes: list[Any],
    annotations: dict[str, str],
    hints: MoveHints,
) -> None:
    seen = translator.translate(wire({"volumes": volumes}, annotations=annotations))
    assert seen.move_hints == hints
