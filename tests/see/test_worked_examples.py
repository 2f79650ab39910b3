"""Worked examples of answers that no other file has: expected starts, groups, words of others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.cluster import make_cluster

from koord.answers.encoding import encode
from koord.answers.outlook import limit_time
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import Sight
from koord.answers.waiting import find_waiting
from koord.answers.why import make_answer
from koord.core.model.text import format_time

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

NOW = 1_795_593_600.0
"""2026-11-25T08:00:00Z."""
HERE = Target(TargetKind.POD, "default", "")


def ending(name: str, node: str, seconds: float) -> Pod:
    pod = make_pod(name).gpu(4).running(node).terminating().build()
    return replace(pod, gone_by=NOW + seconds)


def ask_turn(*pods: Pod) -> dict[str, Any]:
    """Ask when a pod of eight GPUs starts that waits for pods on the only node."""
    cluster = make_cluster().nodes(make_node("n0").gpu(8))
    cluster.pods(make_pod("eval").gpu(8).created(NOW - 60))
    for pod in pods:
        cluster.state.upsert_pod(pod)
    cluster.state.advance(NOW)
    (entry,) = find_waiting(Reading(cluster.state), HERE, limit_time(60.0, lambda: 0.0))
    turn = encode(entry)["turn"]
    assert isinstance(turn, dict)
    return turn


def test_a_start_after_victims_have_ended_is_told_by_the_minute_and_never_too_early() -> None:
    """Two victims end 25 and 40 seconds from now at the latest."""
    turn = ask_turn(ending("low-0", "n0", 25), ending("low-1", "n0", 40))
    assert turn["expectedStart"] == format_time(NOW + 60) == "2026-11-25T08:01:00Z"
    assert [each["name"] for each in turn["waitsFor"]] == ["default/low-0", "default/low-1"]
    assert {each["level"] for each in turn["waitsFor"]} == {"Declared"}


def test_nothing_is_expected_where_nobody_knows_when_the_room_is_free() -> None:
    runs = make_pod("runs").gpu(4).running("n0").build()
    turn = ask_turn(ending("low-1", "n0", 40), runs)
    assert (turn["expectedStart"], turn["certainty"]) == (None, "Unknown")


def test_a_gang_group_over_two_namespaces_is_seen_by_who_sees_one_of_them() -> None:
    cluster = make_cluster(1)
    keys = ("team-a/left", "team-b/right")
    for key in keys:
        namespace, name = key.split("/")
        cluster.pod_groups(make_pod_group(key, 2).group(*keys))
        cluster.pods(*(make_pod(f"{namespace}/{name}-{at}").gang(key).gpu(8) for at in range(2)))
    for sight, names in (
        (Sight(frozenset({"team-a"})), ["team-a/left", None]),
        (Sight(frozenset({"team-c"})), [None]),
        (Sight(), ["team-a/left", "team-b/right"]),
    ):
        (entry,) = find_waiting(Reading(cluster.state, sight=sight), HERE)
        document = encode(entry)
        assert (document["names"], document["pods"], document["gpus"]) == (names, 4, 32)


@pytest.mark.parametrize("compat", [True, False])
def test_the_first_sentence_has_no_words_of_others(*, compat: bool) -> None:
    """With ``compat`` texts end with the words of kube-scheduler."""
    cluster = make_cluster(compat=compat).nodes(make_node("n0").gpu(4))
    cluster.pods(make_pod("large").gpu(8))
    answer = encode(
        make_answer(Reading(cluster.state), Target(TargetKind.POD, "default", "large"), NOW)
    )
    assert ("0/1 nodes are available" in answer["reason"]["message"]) == compat
    assert answer["dominant"]["sentence"] == "No room for default/large."
