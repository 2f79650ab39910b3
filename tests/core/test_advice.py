"""Advice: every reason has one if it can, and only nodes with room are named."""

from __future__ import annotations

import pytest
from tests.builders import GPU, make_node, make_pod
from tests.cluster import make_cluster

from koord.core.engine.reasons import CauseCount, Closed, InsufficientNodes
from koord.core.gang.reasons import (
    AllBound,
    BelowMin,
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    MissingGang,
    MissingMembers,
    MissingPodGroup,
    WithinTime,
)
from koord.core.model.gangs import BadValue
from koord.core.model.kube_scheduler_reasons import LateClaim, NeedsKubeScheduler, PlacementUnknown
from koord.core.model.reasons import (
    MAX_SENTENCES,
    BindFailed,
    PinnedNodeUnfit,
    Planned,
    Reason,
    WaitingForForeignGate,
)
from koord.core.model.selectors import Requirement, SelectorTerm
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.node_diagnosis import NodeDiagnosis, find_closed

A, B = "default/a", "default/b"


def make_shortage(**fields: object) -> InsufficientNodes:
    values: dict[str, object] = {
        "want": 4,
        "fit": 2,
        "nodes": 3,
        "refused": (CauseCount(NodeCause.RESOURCE, 3, GPU),),
        "first": "default/w-2",
        "resource": GPU,
        "request": 8,
        "more_nodes": 2,
    }
    return InsufficientNodes(**(values | fields))  # type: ignore[arg-type]


EXPECTED = [
    (
        MissingMembers((GangCount(A, 3, 4), GangCount(B, 0, 2))),
        (
            "Create 1 more member of default/a, or lower its minimum to 3.",
            "Create 2 more members of default/b.",
        ),
    ),
    (
        MissingMembers((GangCount(A, 1, 4, waiting_only=True),)),
        (
            "Create 3 more members of default/a, or lower its minimum to 1.",
            "To count members that already run, use the match policy waiting-and-running.",
        ),
    ),
    (
        MissingMembers((GangCount(A, 1, 4, strangers=1),)),
        (
            (
                "Add our gate and scheduler name to the pod template of 1 pod of default/a; "
                "without them another scheduler places it."
            ),
            "Create 2 more members of default/a, or lower its minimum to 1.",
        ),
    ),
    (
        MissingMembers((GangCount(A, 1, 4, strangers=3),)),
        (
            (
                "Add our gate and scheduler name to the pod template of 3 pods of default/a; "
                "without them another scheduler places them."
            ),
        ),
    ),
    (
        MissingPodGroup(A),
        ("Create the PodGroup default/a, or correct the name on the pods.",),
    ),
    (
        MissingGang(A, (B,)),
        ("Create default/b, or remove it from the groups of default/a.",),
    ),
    (
        InvalidAnnotation((BadValue("key", "x", "nothing", "is not a number"),)),
        ("Correct key, which is not a number.",),
    ),
    (
        InvalidAnnotation((BadValue("key", "", "nothing", "is missing"),)),
        ("Set key on the pods.",),
    ),
    (
        InconsistentGroup(A, (B, "default/c")),
        (
            "Add default/a to the groups of default/b, default/c.",
            (
                "Or remove default/b, default/c from the groups of default/a, which then "
                "starts without them."
            ),
        ),
    ),
    (
        make_shortage(),
        (
            (
                "Wait until as much is free on existing nodes, or ask the administrators to add "
                "2 nodes as large as the largest one."
            ),
        ),
    ),
    (
        make_shortage(nodes=0, refused=(), more_nodes=0),
        ("Ask the administrators to add nodes: the cluster has none.",),
    ),
    (
        make_shortage(more_nodes=0, request=16),
        (
            (
                "No node that default/w-2 may use has 16 nvidia.com/gpu even if empty: request "
                "less, or ask the administrators to add a larger node."
            ),
        ),
    ),
    (
        make_shortage(more_nodes=0, resource="pods"),
        ("Wait until pods end, or ask the administrators to add nodes that allow more pods.",),
    ),
    (make_shortage(more_nodes=0, resource=""), ()),
    (
        NeedsKubeScheduler("default/w-0", ("spec.resourceClaims",)),
        (
            "Remove spec.resourceClaims from the pod.",
            (
                "Or set spec.schedulerName to default-scheduler and keep the gate: the "
                "operators then plan the pod, and kube-scheduler binds it."
            ),
        ),
    ),
    (
        NeedsKubeScheduler("default/w-0", ("f",), (LateClaim("default/c", "s"),), 2),
        (
            (
                "Let a pod of its own use default/c once, which binds the volume, or use a "
                "StorageClass with volumeBindingMode Immediate."
            ),
            "Or set the minimum of the gang to 1, if its members may start one by one.",
        ),
    ),
    (
        PlacementUnknown("default/w-0", ("f",), (LateClaim("default/c", "s"),), 2),
        (
            (
                "Let a pod of its own use default/c once, which binds the volume, or use a "
                "StorageClass with volumeBindingMode Immediate."
            ),
            "Or set the minimum of the gang to 1, if its members may start one by one.",
        ),
    ),
    (
        PlacementUnknown("default/w-0", ("spec.resourceClaims",), members=2),
        (
            "Remove spec.resourceClaims from default/w-0, or from all that starts with it.",
            "Or set the minimum of the gang to 1, if its members may start one by one.",
        ),
    ),
    (
        WaitingForForeignGate("default/w-0", ("a.example/x", "b.example/y")),
        (
            (
                "The controller that set a.example/x, b.example/y has to remove it; ours is "
                "removed last."
            ),
            "Remove a gate that no controller handles from spec.schedulingGates by hand.",
        ),
    ),
    (
        PinnedNodeUnfit("default/w-0", "n-1"),
        (
            "Delete default/w-0; its replacement may run on another node.",
            (
                "Or ask the administrators to restore on node n-1 the room it had when the pod was "
                "released to it."
            ),
        ),
    ),
    (
        BindFailed("default/w-0", 403, "no"),
        ("Grant the operators the rights of their ClusterRoles; the message names them.",),
    ),
    (BindFailed("default/w-0", 500, "later"), ()),
    (
        BelowMin(2, 4),
        (
            "The owner of the pods, such as a Job, is expected to create 2 members again.",
            "If it does not, its events say why; pods without an owner are created by hand.",
        ),
    ),
    (Planned(4, 2), ()),
    (AllBound(4, 4), ()),
    (WithinTime(600), ()),
]


@pytest.mark.parametrize(("reason", "sentences"), EXPECTED)
def test_advice(reason: Reason, sentences: tuple[str, ...]) -> None:
    assert reason.advice() == sentences


@pytest.mark.parametrize(
    ("closed", "start"),
    [
        (
            Closed(NodeCause.TAINT, "{team: b}", ("n-1",)),
            (
                "Tolerate the taint {team: b} in the pods, or ask the administrators to remove it "
                "from the nodes: "
                "it excludes 1 node with room (n-1)."
            ),
        ),
        (
            Closed(NodeCause.TAINT, "{node.kubernetes.io/not-ready: }", ("n-1",)),
            (
                "Check the conditions of 1 node with room (n-1), "
                "tainted {node.kubernetes.io/not-ready: }."
            ),
        ),
        (
            Closed(NodeCause.UNSCHEDULABLE, "", tuple(f"n-{i}" for i in range(6))),
            "Ask the administrators to uncordon 6 nodes with room (n-0, n-1, n-2, n-3 and 2 more).",
        ),
        (
            Closed(NodeCause.SELECTOR, "", ("n-1", "n-2")),
            (
                "Relax node selector and affinity of the pods, or ask the administrators to label "
                "nodes to match: "
            ),
        ),
        (
            Closed(NodeCause.HOST_PORT, "", ("n-1",)),
            "Remove the host port, or delete the pods that use it on 1 node with room (n-1).",
        ),
    ],
)
def test_node_with_room_is_named_with_its_cause(closed: Closed, start: str) -> None:
    sentences = make_shortage().advice((closed,))
    assert any(sentence.startswith(start) for sentence in sentences)


def test_feasible_changes_of_nodes_come_before_new_nodes_if_enough() -> None:
    few = Closed(NodeCause.UNSCHEDULABLE, "", ("n-1",))
    enough = Closed(NodeCause.UNSCHEDULABLE, "", ("n-1", "n-2"))
    assert make_shortage().advice((few,))[0].startswith("Wait until as much is free")
    assert (
        make_shortage()
        .advice((enough,))[0]
        .startswith("Ask the administrators to uncordon 2 nodes")
    )


def test_advice_is_limited_to_a_few_sentences() -> None:
    many = [Closed(NodeCause.TAINT, f"{{team: {i}}}", ("n-1",)) for i in range(9)]
    sentences = make_shortage().advice(many)
    assert len(sentences) == MAX_SENTENCES
    assert any(sentence.startswith("Wait ") for sentence in sentences)
    values = tuple(BadValue(f"key-{i}", "x", "nothing", "is bad") for i in range(9))
    assert len(InvalidAnnotation(values).advice()) == MAX_SENTENCES


def find_for(pod, *nodes, others=()):
    cluster = make_cluster().nodes(*nodes).pods(*others)
    return find_closed(diagnose(cluster, pod))


def diagnose(cluster, pod):
    built = pod.build()
    return NodeDiagnosis(cluster.open_cycle(), (built,), built.shape)


NEEDS_GPU = make_pod("w").gpu(8)


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        (NEEDS_GPU, make_node("n").gpu(8), None),
        (NEEDS_GPU, make_node("n").gpu(4), None),
        (NEEDS_GPU, make_node("n").gpu(8).taint("team", "b"), (NodeCause.TAINT, "{team: b}")),
        (NEEDS_GPU, make_node("n").gpu(8).taint("x", effect="PreferNoSchedule"), None),
        (
            NEEDS_GPU,
            make_node("n").gpu(8).taint("a", "1").taint("b", "2"),
            (NodeCause.TAINT, "{a: 1} {b: 2}"),
        ),
        (
            make_pod("w").tolerates("a", "1"),
            make_node("n").taint("a", "1").taint("b", "2"),
            (NodeCause.TAINT, "{b: 2}"),
        ),
        # Two causes: removing one would not help.
        (NEEDS_GPU, make_node("n").gpu(4).taint("team", "b"), None),
        (NEEDS_GPU, make_node("n").gpu(8).taint("team", "b").unschedulable(), None),
        (NEEDS_GPU, make_node("n").gpu(8).unschedulable(), (NodeCause.UNSCHEDULABLE, "")),
        # Cordoning also sets a taint; uncordoning removes both.
        (
            NEEDS_GPU,
            make_node("n").gpu(8).unschedulable().taint("node.kubernetes.io/unschedulable"),
            (NodeCause.UNSCHEDULABLE, ""),
        ),
        (make_pod("w").selector(zone="a"), make_node("n"), (NodeCause.SELECTOR, "")),
        (make_pod("w").selector(zone="a"), make_node("n").label("zone", "a"), None),
        (
            make_pod("w").terms(SelectorTerm(expressions=(Requirement("zone", "Exists"),))),
            make_node("n"),
            (NodeCause.SELECTOR, ""),
        ),
    ],
)
def test_node_is_named_if_only_one_check_fails(pod, node, expected) -> None:
    wanted = () if expected is None else (Closed(*expected, ("n",)),)
    assert find_for(pod, node) == wanted


def test_used_host_port_is_named_as_the_only_cause() -> None:
    taken = make_pod("other").host_port(80).running("n")
    found = find_for(make_pod("w").host_port(80), make_node("n"), others=[taken])
    assert found == (Closed(NodeCause.HOST_PORT, "", ("n",)),)


def test_largest_group_of_nodes_comes_first() -> None:
    nodes = [make_node(f"a-{i}").gpu(8).taint("team", "a") for i in range(2)]
    nodes += [make_node(f"b-{i}").gpu(8).taint("team", "b") for i in range(3)]
    assert [(one.detail, one.nodes) for one in find_for(NEEDS_GPU, *nodes)] == [
        ("{team: b}", ("b-0", "b-1", "b-2")),
        ("{team: a}", ("a-0", "a-1")),
    ]


def test_deleted_nodes_are_not_named() -> None:
    cluster = make_cluster()
    cluster.nodes(make_node("n").taint("team", "b"))
    cluster.state.remove_node("n")
    assert find_closed(diagnose(cluster, make_pod("w"))) == ()
