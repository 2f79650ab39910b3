"""Edges of answers: clocks that differ, units that are large or cannot be read, order of starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.see.test_worked_examples import HERE, NOW, ending
from tests.support.laws import examples

from koord.answers.encoding import encode
from koord.answers.outlook import limit_time
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.waiting import find_waiting
from koord.answers.why import make_answer
from koord.core.model.pods import ExceededLimit
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import REASONS
from koord.core.model.text import format_time
from koord.see.route import Ask
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

GANG = Target(TargetKind.POD_GROUP, "default", "large")


def ask(cluster: FakeCluster, name: str, **parts: str) -> Any:
    route = next(route for route in ROUTES if route.answer == name)
    snapshot = Snapshot(Reading(cluster.state), HERE, 1, NOW)
    return json.loads(json.dumps(encode(route.compute(snapshot, Ask(parts, {}))), default=str))


@pytest.mark.parametrize("skew", [90, 3600, 10**6])
def test_what_is_created_by_a_clock_ahead_of_ours_has_no_negative_age(skew: int) -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.pods(make_pod("early").gpu(16).created(NOW + skew))
    cluster.state.advance(NOW)
    target = Target(TargetKind.POD, "default", "early")
    told = json.dumps(encode(make_answer(Reading(cluster.state), target, NOW)), default=str)
    assert "-1" not in told.replace("-11-", "").replace("-12-", "")
    (entry,) = find_waiting(Reading(cluster.state), HERE, limit_time(60.0, lambda: 0.0))
    assert encode(entry)["position"] == 1


def test_a_unit_of_thousands_of_equal_pods_is_explained_once_per_shape() -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.pod_groups(make_pod_group("default/large", 2000))
    cluster.pods(*(make_pod(f"large-{at}").gang("default/large").gpu(1) for at in range(2000)))
    answer = encode(make_answer(Reading(cluster.state), GANG, NOW))
    (offers,) = answer["offers"]
    assert (offers["pods"], offers["fit"]) == (2000, 8)
    assert answer["dominant"]["sentence"] == "Room for 8 of 2000 pods."
    (row,) = ask(cluster, "Queue")
    assert (row["names"], row["pods"]) == (["default/large"], 2000)


def test_an_object_that_is_too_large_is_shown_with_its_reason_and_without_its_spec() -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    pod = make_pod("huge").gpu(1)._set(exceeded_limit=ExceededLimit("containers", 9000, 100))
    cluster.pods(pod)
    (row,) = ask(cluster, "Queue")
    assert (row["names"], row["reason"]) == (["default/huge"], "TooLarge")
    assert "9000" in row["message"]


def test_quotas_thirty_layers_deep_with_the_longest_names_are_listed_and_explained() -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    names = [f"{at:02}".rjust(253, "q") for at in range(30)]
    parents = ["", *names]
    for name, parent in zip(names, parents, strict=False):
        settings_ = {"parent": parent} if parent else {}
        is_parent = name != names[-1]
        cluster.quotas(make_quota(name, max={GPU: 4}, is_parent=is_parent, **settings_))
    cluster.pods(make_pod("w").gpu(8).quota(names[-1]))
    cluster.state.refresh()
    (row,) = ask(cluster, "Queue")
    assert row["reason"] == "RequestAboveMax"
    assert {each["name"] for each in ask(cluster, "Quotas")} >= {names[0], names[-1]}


def test_each_reason_of_a_wait_has_a_class_and_each_class_has_reasons() -> None:
    classes = {reason.reason_class for reason in REASONS.values()} - {None}
    assert classes == set(ReasonClass)
    for code, reason in REASONS.items():
        assert reason.says or reason.reason_class is None, f"{code} says nothing"


@settings(max_examples=examples(15))
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=4))
def test_expected_starts_follow_from_what_is_read_and_end_in_order(seconds: list[int]) -> None:
    """The same is expected again; nobody starts before what it waits for has ended."""

    def foresee() -> list[Any]:
        cluster = make_cluster().nodes(make_node("n0").gpu(8))
        cluster.pods(make_pod("eval").gpu(8).created(NOW - 60))
        cluster.pods(make_pod("next").gpu(8).created(NOW - 30))
        for at, left in enumerate(seconds):
            cluster.state.upsert_pod(ending(f"low-{at}", "n0", left))
        cluster.state.advance(NOW)
        found = find_waiting(Reading(cluster.state), HERE, limit_time(60.0, lambda: 0.0))
        return [encode(entry)["turn"] for entry in found]

    first, second = foresee()
    assert foresee() == [first, second]
    latest = first["startNoLaterThan"] or first["expectedStart"]
    assert format_time(NOW) <= first["expectedStart"] <= latest
    assert first["expectedStart"] >= max(each["end"] for each in first["waitsFor"])
    assert second["expectedStart"] is None, "nobody says how long the first one runs"


def test_what_can_start_now_is_told_to_start_and_not_when() -> None:
    cluster = make_cluster().nodes(make_node("n0").gpu(8))
    cluster.pods(make_pod("eval").gpu(8).created(NOW - 60))
    cluster.state.advance(NOW)
    (entry,) = find_waiting(Reading(cluster.state), HERE, limit_time(60.0, lambda: 0.0))
    row = encode(entry)
    assert (row["position"], row["reason"]) == (1, "Planned")
