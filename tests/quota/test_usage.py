"""Requests and usage of pods, and the quota that they count for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.quota.scene import GI, GPU, KOORDINATOR, OURS, quota, settle, shape, shares

from koord.core.model.nodes import Node, Taint
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.quota.model import (
    DEFAULT,
    ROOT,
    SYSTEM,
    QuotaSpec,
    Usage,
    is_counted,
    shared_out,
    tree_totals,
)
from koord.core.quota.profile import QuotaProfile, make_root_quota, make_tree_id
from koord.core.quota.registry import (
    ActiveQuotas,
    PodQuotaKey,
    find_inactive,
    find_quota,
    takes_pods,
)
from koord.core.quota.usage import PodUse, UsageTracker, count_devices, sum_pods

ONE = shape(cpu=1)


def test_pods_of_an_incomplete_gang_are_submitted_but_no_demand() -> None:
    pods = [PodUse(f"{n}", "q", ONE, is_ready=n < 2) for n in range(5)]
    usage = sum_pods(pods, OURS)["q"]
    assert (usage.submitted["cpu"], usage.demand["cpu"], usage.used) == (5, 2, {})
    specs = [quota("q"), quota("other")]
    assert shares(settle(specs, 4, {"q": usage, "other": 4}))["other"] == 2


def test_an_incomplete_gang_does_not_inflate_a_share() -> None:
    pods = [PodUse(f"{n}", "q", ONE, is_ready=False) for n in range(5)]
    usage = sum_pods(pods, OURS)["q"]
    specs = [quota("q"), quota("other")]
    assert shares(settle(specs, 4, {"q": usage, "other": 4})) == {"q": 0, "other": 4}
    assert shares(settle(specs, 4, {"q": usage, "other": 4}, KOORDINATOR)) == {"q": 2, "other": 2}


def test_a_pod_with_a_node_counts_once() -> None:
    book = UsageTracker(OURS)
    pod = PodUse("uid", "q", shape(cpu=2), is_non_preemptible=True)
    for state in (pod, pod._replace(is_used=True), pod._replace(is_used=True, is_ready=False)):
        book.upsert(state)
    twice = {"cpu": 2, "pods": 1}
    assert book.of("q") == Usage(twice, twice, twice, twice, twice)
    book.upsert(pod._replace(quota="other"))
    assert set(book.usage()) == {"other"}
    book.remove("uid")
    assert book.usage() == {}


def test_a_recreated_pod_of_the_same_name_is_another_pod() -> None:
    book = UsageTracker(OURS, [PodUse("old", "q", ONE, is_used=True)])
    book.upsert(PodUse("new", "q", ONE))
    book.remove("old")
    assert (book.of("q").submitted["cpu"], book.of("q").used) == (1, {})


def test_quotas_without_change_keep_their_sums() -> None:
    book = UsageTracker(OURS, [PodUse("a", "q1", ONE), PodUse("b", "q2", ONE)])
    before = book.of("q1")
    book.remove("b")
    assert book.of("q1") is before


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({GPU: 2}, {GPU: 2, "koordinator.sh/gpu": 200, "koordinator.sh/gpu-core": 200,
                    "koordinator.sh/gpu-memory-ratio": 200}),
        ({"koordinator.sh/gpu": 50},
         {"koordinator.sh/gpu": 50, "koordinator.sh/gpu-core": 50,
          "koordinator.sh/gpu-memory-ratio": 50, GPU: 1, "amd.com/gpu": 1, "dcu.com/gpu": 1}),
        ({"kubernetes.io/gpu-core": 50, "kubernetes.io/gpu-memory": 4 * GI},
         {"kubernetes.io/gpu-core": 50, "kubernetes.io/gpu-memory": 4 * GI,
          "koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": 4 * GI,
          "koordinator.sh/gpu": 50, GPU: 1, "amd.com/gpu": 1, "dcu.com/gpu": 1}),
        ({"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 120},
         {"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 120,
          "koordinator.sh/gpu": 120, GPU: 2, "amd.com/gpu": 2, "dcu.com/gpu": 2}),
        ({"koordinator.sh/rdma": 1}, {"koordinator.sh/rdma": 1}),
        ({"cpu": 1}, {"cpu": 1}),
    ],
)  # fmt: skip
def test_a_device_counts_under_each_of_its_names(requests, expected) -> None:
    assert count_devices(requests, OURS) == expected
    assert count_devices(requests, KOORDINATOR) == requests


def test_two_half_devices_count_as_one() -> None:
    half = shape(**{"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": 8 * GI})
    usage = sum_pods([PodUse("a", "q", half), PodUse("b", "q", half)], OURS)["q"]
    assert usage.demand["koordinator.sh/gpu-core"] == 100
    assert usage.demand["koordinator.sh/gpu-memory"] == 16 * GI


def test_halves_are_halves_in_a_quota_that_is_written_in_shares_and_whole_ones_in_cards() -> None:
    half = shape(**{"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50})
    pods = [PodUse("a", "q", half), PodUse("b", "q", half), PodUse("c", "q", shape(**{GPU: 1}))]
    demand = sum_pods(pods, OURS)["q"].demand
    assert (demand["koordinator.sh/gpu"], demand[GPU]) == (200, 3)


REGISTRY = ActiveQuotas(
    [
        quota("team", namespace="q", namespaces=("dev",), shared_with=("lab",)),
        quota("like", namespace="like", shared_with=()),
        quota("elsewhere", namespace="q", shared_with=()),
        quota("open", namespace="q"),
    ]
)


ABSENT = find_inactive(
    [
        quota("broken", namespace="q", namespaces=("dev", "lost", "broken-too"), shared_with=()),
        quota("broken-too", namespace="broken-too", shared_with=()),
    ]
)


@pytest.mark.parametrize(
    ("label", "namespace", "theirs", "ours"),
    [
        ("", "like", ("like", "NamespaceName"), ""),
        ("", "elsewhere", (DEFAULT, "Default"), ""),
        ("", "dev", ("team", "Namespaces"), ""),
        ("", "lab", (DEFAULT, "Default"), ""),
        ("", "other", (DEFAULT, "Default"), ""),
        ("team", "q", ("team", "Label"), ""),
        ("team", "dev", ("team", "Label"), ""),
        ("team", "lab", ("team", "Label"), ""),
        ("team", "other", ("team", "Label"), "QuotaNotAllowed"),
        ("team", "like", ("team", "Label"), "QuotaNotAllowed"),
        ("open", "other", ("open", "Label"), ""),
        ("gone", "other", (DEFAULT, "Default"), ""),
        ("gone", "dev", (DEFAULT, "Default"), "QuotaUnknown"),
        ("gone", "lab", (DEFAULT, "Default"), "QuotaUnknown"),
        ("gone", "lost", (DEFAULT, "Default"), "QuotaUnknown"),
        ("broken", "dev", ("broken", "Label"), ""),
        ("broken", "lab", ("broken", "Label"), "QuotaNotAllowed"),
        ("", "lost", ("broken", "Namespaces"), ""),
        ("", "broken-too", ("broken-too", "NamespaceName"), ""),
        (SYSTEM, "kube-system", (SYSTEM, "Label"), ""),
        (DEFAULT, "kube-system", (DEFAULT, "Label"), ""),
        (ROOT, "kube-system", (DEFAULT, "Default"), ""),
        (SYSTEM, "dev", (SYSTEM, "Label"), "QuotaNotAllowed"),
        (DEFAULT, "dev", (DEFAULT, "Label"), "QuotaNotAllowed"),
        (ROOT, "dev", ("team", "Namespaces"), "QuotaNotAllowed"),
    ],
)
def test_a_label_chooses_among_the_quotas_that_a_namespace_may_use(
    label, namespace, theirs, ours
) -> None:
    upstream = find_quota(PodQuotaKey(label, namespace), REGISTRY, KOORDINATOR, ABSENT)
    assert upstream is not None
    assert (*upstream,) == (*theirs, None)
    binding = find_quota(PodQuotaKey(label, namespace), REGISTRY, OURS, ABSENT)
    assert binding is not None
    assert (binding.reason.code if binding.reason else "") == ours
    # A pod that is refused counts as if it had no label.
    assert (
        binding[:2]
        == (find_quota(PodQuotaKey("", namespace), REGISTRY, OURS, ABSENT) if ours else theirs)[:2]
    )


@pytest.mark.parametrize(("label", "expected"), [("team", "team"), ("", None), ("gone", None)])
def test_without_default_quota_only_labels_count(label, expected) -> None:
    rules = replace(KOORDINATOR, has_default_quota=False)
    binding = find_quota(PodQuotaKey(label, "dev"), REGISTRY, rules)
    assert (binding and binding[0]) == expected


def test_parents_take_no_pods() -> None:
    parent = quota("p", is_parent=True)
    assert not takes_pods(parent, OURS)
    assert takes_pods(parent, replace(OURS, parents_take_pods=True))
    assert takes_pods(quota("q"), OURS)
    assert takes_pods(None, OURS)


@pytest.mark.parametrize(
    ("node", "ours", "koordinators"),
    [
        (Node("n"), True, True),
        (Node("n", is_terminating=True), False, False),
        (Node("n", is_unschedulable=True), False, True),
        (Node("n", taints=(Taint("node.kubernetes.io/not-ready"),)), False, True),
        (Node("n", taints=(Taint("gpu"),)), True, True),
    ],
)
def test_only_open_nodes_are_capacity(node, ours, koordinators) -> None:
    assert (is_counted(node, OURS), is_counted(node, KOORDINATOR)) == (ours, koordinators)


def test_trees_reduce_the_capacity_of_the_default_tree() -> None:
    def root(tree: str, cpu: int, **more: bool) -> QuotaSpec:
        return QuotaSpec(tree, tree_id=tree, is_tree_root=True, total={"cpu": cpu}, **more)

    roots = [root("a", 30), root("b", 50, ignores_default_tree=True), quota("no-root", tree_id="c")]
    assert tree_totals({"cpu": 100, "memory": 7}, roots) == {
        "": {"cpu": 70, "memory": 7},
        "a": {"cpu": 30},
        "b": {"cpu": 50},
    }


def test_usage_outside_quotas_is_not_divided() -> None:
    assert shared_out({"cpu": 10, GPU: 8}, {GPU: 9, "x": 1}) == {"cpu": 10, GPU: -1}
    solution = settle([quota("a", min=2, key=GPU)], {GPU: -1}, {"a": Usage(demand={GPU: 5})})
    assert shares(solution, GPU) == {"a": 0}


def test_a_profile_generates_the_root_of_its_tree() -> None:
    zone = (Requirement("zone", SelectorOperator.IN, ("a",)),)
    nodes = [
        Node("n1", labels={"zone": "a"}, allocatable={"cpu": 15, "memory": 10}),
        Node("n2", labels={"zone": "a"}, allocatable={"cpu": 10}, is_unschedulable=True),
        Node("n3", labels={"zone": "b"}, allocatable={"cpu": 99}),
    ]
    profile = QuotaProfile("ns", "pool", "pool-root", zone, ratio=Fraction("0.9"))
    quota = make_root_quota(profile, nodes)
    assert (quota.total, quota.unschedulable) == ({"cpu": 22, "memory": 9}, {"cpu": 9})
    assert (quota.min, set(quota.max)) == ({"cpu": 22, "memory": 9}, {"cpu", "memory"})
    assert make_root_quota(replace(profile, ratio=Fraction(2)), nodes).total["cpu"] == 25
    assert make_tree_id("kube-system", "cn-hangzhou-k-nodepool") == "18340441938858026940"
