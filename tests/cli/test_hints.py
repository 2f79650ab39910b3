"""Hints name what really exists, and only what is similar."""

from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group
from tests.cli.readings import ask_gang, ask_pod, make_reading

from koord.answers.explain import PlacementState
from koord.api.keys import operators, slo
from koord.api.misspelled_keys import MisspelledKey
from koord.api.pod_qos import find_bad_agent_key
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import MissingMembers
from koord.core.model.pods import OwnerReference

TRAIN, TRIAN = "team/train", "team/trian"
GROUP = make_pod_group(TRAIN, 3).build()
PODS = [make_pod(f"team/w-{i}").gang(TRIAN).build() for i in range(3)]
NODES = [
    make_node(f"n-{i}").gpu(8).label("pool", pool).build() for i, pool in enumerate(("a", "b"))
]


def make_asking(**selector: str):
    return make_pod("w-0").selector(**selector).build()


def test_a_pod_that_breaks_rules_of_qos_is_told_so() -> None:
    pod = make_pod("w-0").labels(**{"koordinator.sh/qosClass": "LSR"}).requests(cpu=2500).build()
    assert ask_pod(make_reading(pod)).advice[-2:] == (
        (
            "QoS LSR cannot be combined with no priority class: set priorityClassName to that of "
            "koord-prod, or choose another QoS."
        ),
        (
            "Pods of QoS LSR get whole CPUs for themselves, and this one requests 2.5: request a "
            "whole number, or choose LS."
        ),
    )


def test_a_misspelled_pod_group_gets_the_nearest_name() -> None:
    advice = ask_pod(make_reading(GROUP, *PODS), "team/w-0").advice
    assert advice[0] == "There is a PodGroup train. Did you mean that?"
    assert "correct the name" in advice[1]


def test_an_empty_group_names_pods_with_a_similar_label() -> None:
    advice = ask_gang(make_reading(GROUP, *PODS), TRAIN).advice
    assert advice[0] == "3 pods name trian, and there is no such PodGroup. Did you mean train?"


def test_an_empty_group_names_the_job_of_its_name_and_misspelled_labels() -> None:
    owners = (OwnerReference("train", "Job"),)
    pods = [make_pod(f"team/train-{at}")._set(owners=owners).build() for at in range(3)]
    slip = MisspelledKey("pod-groups.scheduling.sigs.k8s.io", "is unknown; X may be meant")
    reading = replace(make_reading(GROUP, *pods), ignored=((pods[0], slip), (pods[1], slip)))
    assert ask_gang(reading, TRAIN).advice[:2] == (
        (
            "2 pods of the namespace have the key pod-groups.scheduling.sigs.k8s.io, which is "
            "unknown; X may be meant."
        ),
        (
            "Job train has 3 pods that do not join it: its template lacks the label "
            "pod-group.scheduling.sigs.k8s.io: train."
        ),
    )


def test_settings_for_agents_keep_no_pod_from_its_group() -> None:
    pod = make_pod("team/train-0").build()
    key = find_bad_agent_key({}, {slo.CPU_QOS: "{"})
    assert key is not None
    told = ask_gang(replace(make_reading(GROUP, pod), ignored=((pod, key),)), TRAIN).advice
    assert told == ask_gang(make_reading(GROUP, pod), TRAIN).advice


def test_an_empty_group_names_the_label_to_set() -> None:
    advice = ask_gang(make_reading(GROUP), TRAIN).advice
    assert advice == (
        "Pods join it by their label pod-group.scheduling.sigs.k8s.io: train, in namespace team.",
        "Create 3 more members of team/train.",
    )


def test_a_group_with_a_member_gets_no_label_hint() -> None:
    reading = make_reading(GROUP, *PODS, make_pod("team/x").gang(TRAIN).build())
    assert ask_gang(reading, TRAIN).advice == (
        "Create 2 more members of team/train, or lower its minimum to 1.",
    )


@pytest.mark.parametrize("name", ["decode", "x"])
def test_dissimilar_names_are_not_suggested(name) -> None:
    group = make_pod_group(f"team/{name}", 1).build()
    (advice,) = ask_pod(make_reading(group, *PODS), "team/w-0").advice
    assert advice.startswith("Create the PodGroup")


def test_a_group_in_another_namespace_is_named() -> None:
    group = make_pod_group("other/trian", 1).build()
    advice = ask_pod(make_reading(group, *PODS), "team/w-0").advice
    assert advice[0] == (
        "There is a PodGroup trian in other: it must be in the namespace of its pods."
    )


@pytest.mark.parametrize(
    ("gate", "is_hinted"),
    [
        ("operators.koordinator.sh/placment", True),
        ("operators.koordinators.sh/placement", True),
        ("example.com/approval", False),
    ],
)
def test_a_misspelled_gate_gets_a_hint(gate, is_hinted) -> None:
    expected = f"Nobody removes the gate {gate}. Did you mean {operators.PLACEMENT_GATE}?"
    ours, theirs = make_pod("w-0").foreign_gates(gate), make_pod("w-0").foreign_gates(gate)
    for pod in (ours, theirs.not_ours()):
        advice = ask_pod(make_reading(pod.build())).advice
        assert (advice[0] == expected) is is_hinted
        text = " ".join(advice)
        assert ("has to remove it" in text or "places it" in text) is not is_hinted


def test_members_with_a_misspelled_gate_get_a_hint_only() -> None:
    gate = "operators.koordinator.sh/placment"
    pods = [
        make_pod(f"team/w-{at}").gang(TRAIN).foreign_gates(gate).not_ours().build()
        for at in range(2)
    ]
    assert ask_gang(make_reading(GROUP, *pods), TRAIN).advice == (
        f"Nobody removes the gate {gate}. Did you mean {operators.PLACEMENT_GATE}?",
        "Correct it in the pod template and create the pods again: no gate can be added later.",
    )


@pytest.mark.parametrize(
    ("pod", "hint"),
    [
        (
            make_pod("w-0").resource("nvidia.com/gpus", 8).build(),
            f"No node has any nvidia.com/gpus. Did you mean {GPU}?",
        ),
        (
            make_pod("w-0").resource("kubernetes.io/batch-cpu", 4000).build(),
            (
                "No node offers any kubernetes.io/batch-cpu. Nodes do once over-commit is on: ask "
                "the administrators for a ColocationPolicy."
            ),
        ),
        (
            make_pod("w-0").resource("example.com/fpga", 1).build(),
            "No node has any example.com/fpga: look whether the device plugin that offers it runs.",
        ),
        (make_asking(pol="a"), "No node has a label pol. Did you mean pool?"),
        (make_asking(zone="a"), "No node has a label zone."),
        (make_asking(pool="c"), "No node has the label pool=c; its values are a, b."),
    ],
)
def test_unknown_resources_and_labels_get_a_hint(pod, hint) -> None:
    answer = ask_pod(make_reading(*NODES, pod))
    assert answer.standing is PlacementState.WAITING
    assert answer.advice[0] == hint


def test_the_nodes_say_how_much_is_asked_of_a_resource_that_none_has() -> None:
    answer = ask_pod(make_reading(*NODES, make_pod("w-0").resource("gpus", 8).build()))
    assert answer.offers[0].nodes[0].short == (("gpus", 8, 0),)
    assert answer.advice[0] == f"No node has any gpus. Did you mean {GPU}?"


def test_a_short_resource_gets_no_spelling_hint() -> None:
    answer = ask_pod(make_reading(*NODES, make_pod("w-0").gpu(16).build()))
    assert answer.reason is not None
    assert isinstance(answer.reason.reason, InsufficientNodes)
    assert all(sentence.startswith("No node that") for sentence in answer.advice)


def test_foreign_members_get_the_missing_yaml() -> None:
    strangers = [make_pod(f"team/s-{i}").gang(TRAIN).not_ours().build() for i in range(3)]
    answer = ask_gang(make_reading(GROUP, *strangers), TRAIN)
    assert answer.advice[0].startswith(
        "Add our gate and scheduler name to the pod template of 3 pods"
    )
    assert operators.PLACEMENT_GATE in answer.add


def test_a_member_behind_a_foreign_gate_gets_the_reason_of_its_gang() -> None:
    behind = make_pod("team/w-0").gang(TRAIN).foreign_gates("example.com/approval").build()
    answer = ask_pod(make_reading(GROUP, behind), "team/w-0")
    assert answer.reason is not None
    assert answer.reason.reason.code == MissingMembers.code
