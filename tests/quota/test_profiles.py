"""Profiles: selected nodes, generated quotas, and conflicts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from koord.core.model.nodes import Node, Taint
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.quota.model import KOORDINATOR, QuotaSpec, tree_totals
from koord.core.quota.profile import (
    GENERATED_MAX,
    Overlap,
    ProfileCache,
    ProfileOutcome,
    QuotaProfile,
    find_outcome,
    make_tree_id,
    write_outcome,
)

ZONE = "topology.kubernetes.io/zone"


def make_node(name: str, zone: str, gpus: int = 8, *, closed: bool = False) -> Node:
    return Node(
        name,
        labels={ZONE: zone},
        allocatable={"cpu": 64000, "nvidia.com/gpu": gpus},
        is_unschedulable=closed,
    )


def make_profile(name: str, *zones: str, quota: str = "", **settings: object) -> QuotaProfile:
    selector = (Requirement(ZONE, SelectorOperator.IN, zones),) if zones else ()
    made = QuotaProfile(
        "ns", name, quota or f"{name}-root", selector, keys=("cpu", "nvidia.com/gpu")
    )
    return replace(made, **settings)  # type: ignore[arg-type]


def make_book(*profiles: QuotaProfile, nodes: tuple[Node, ...] = ()) -> ProfileCache:
    book = ProfileCache()
    for profile in profiles:
        book.upsert(profile)
    for node in nodes:
        book.upsert_node(node)
    return book


def test_the_default_tree_id_is_koordinators_hash() -> None:
    assert make_tree_id("kube-system", "cn-hangzhou-k-nodepool") == "18340441938858026940"


def test_a_generated_quota_does_not_depend_on_the_order_of_nodes() -> None:
    profile = make_profile("a", "a", ratio=Fraction("0.9"), labels={"x": "y"})
    nodes = (make_node("1", "a"), make_node("2", "a", closed=True), make_node("3", "b"))
    late = make_book(nodes=nodes)
    late.upsert(profile)
    made = late.make("ns/a")
    assert made == make_book(profile, nodes=nodes).make("ns/a")
    assert made.total == {"cpu": 115200, "nvidia.com/gpu": 14}
    assert made.unschedulable == {"cpu": 57600, "nvidia.com/gpu": 7}
    assert (made.min, made.max) == (made.total, dict.fromkeys(made.total, GENERATED_MAX))
    assert (made.namespace, made.name, made.labels) == ("ns", "a-root", {"x": "y"})


@pytest.mark.parametrize(
    ("change", "total"),
    [
        (lambda book: book.upsert_node(make_node("1", "b")), 8),
        (lambda book: book.upsert_node(make_node("3", "a")), 24),
        (lambda book: book.upsert_node(make_node("1", "a", gpus=4)), 12),
        (lambda book: book.remove_node("2"), 8),
        (lambda book: book.upsert_node(replace(make_node("2", "a"), is_terminating=True)), 8),
        (lambda book: book.upsert(make_profile("a", "a", "b")), 24),
        (lambda book: book.upsert(make_profile("a")), 24),
        (lambda book: book.remove("ns/other"), 16),
    ],
)
def test_the_quota_follows_nodes_and_profile(change, total: int) -> None:
    nodes = (make_node("1", "a"), make_node("2", "a"), make_node("3", "b"))
    book = make_book(make_profile("a", "a"), nodes=nodes)
    assert book.make("ns/a").total["nvidia.com/gpu"] == 16
    change(book)
    assert book.make("ns/a").total.get("nvidia.com/gpu", 0) == total


def test_an_irrelevant_change_of_a_node_keeps_the_version() -> None:
    book = make_book(make_profile("a", "a"), nodes=(make_node("1", "a"),))
    version = book.version("ns/a")
    book.upsert_node(replace(make_node("1", "a"), resource_version="2"))
    book.upsert_node(make_node("9", "b"))
    book.remove_node("9")
    assert book.version("ns/a") == version
    book.upsert_node(replace(make_node("1", "a"), taints=(Taint("x"),)))
    assert book.version("ns/a") > version


def test_nodes_of_two_profiles_are_reported_on_both() -> None:
    nodes = (make_node("1", "a"), make_node("2", "b"))
    book = make_book(make_profile("a", "a"), make_profile("all"), nodes=nodes)
    assert book.overlap("ns/a") == Overlap(("1",), ("ns/all",))
    assert book.overlap("ns/all") == Overlap(("1",), ("ns/a",))
    version = book.version("ns/a")
    book.upsert(make_profile("all", "b"))
    assert book.overlap("ns/a") == book.overlap("ns/all") == Overlap()
    assert book.version("ns/a") > version, "it has to be looked at, too"
    book.upsert(make_profile("all"))
    book.remove("ns/all")
    assert book.overlap("ns/a") == Overlap()


def test_last_valid_settings_still_select_nodes() -> None:
    valid = make_profile("a", "a", uid="u")
    broken = make_profile("a", uid="u", quota="other", problems=("spec: no",))
    book = make_book(valid, nodes=(make_node("1", "a"), make_node("2", "b")))
    book.upsert(broken)
    assert (book.get("ns/a"), book.in_force("ns/a")) == (broken, valid)
    assert (book.count("ns/a"), book.make("ns/a").name) == (1, "a-root")
    assert book.rivals("a-root", "ns/b") == [valid], "it still makes the quota of that name"
    book.upsert_node(make_node("3", "a"))
    assert book.make("ns/a").total["nvidia.com/gpu"] == 16
    book.upsert(make_profile("a", "b", uid="u"))
    assert book.in_force("ns/a") == book.get("ns/a")
    assert book.make("ns/a").total["nvidia.com/gpu"] == 8


def test_last_valid_settings_of_a_profile_survive_a_restart_but_not_recreation() -> None:
    valid = make_profile("a", "a", uid="u")
    broken = make_profile("a", uid="u", problems=("spec: no",))
    nodes = (make_node("1", "a"),)
    assert make_book(broken, nodes=nodes).in_force("ns/a") is None
    assert make_book(broken, nodes=nodes).count("ns/a") == 0, "it selects nothing, not all"
    assert make_book(replace(broken, last_valid=valid), nodes=nodes).in_force("ns/a") == valid
    book = make_book(valid, nodes=nodes)
    book.upsert(replace(broken, uid="another"))
    assert book.in_force("ns/a") is None
    book.remove("ns/a")
    book.upsert(broken)
    assert book.in_force("ns/a") is None


OURS = QuotaSpec("root", "ns", profile="a")


@pytest.mark.parametrize(
    ("quotas", "rivals", "expected"),
    [
        ((), (), (ProfileOutcome.MADE, "")),
        ((OURS,), (), (ProfileOutcome.MADE, "")),
        ((replace(OURS, profile=""),), (), (ProfileOutcome.NOT_OURS, "")),
        ((replace(OURS, profile="b"),), (), (ProfileOutcome.NOT_OURS, "b")),
        ((replace(OURS, namespace="x"),), (), (ProfileOutcome.NAME_TAKEN, "x")),
        ((OURS, replace(OURS, namespace="x")), (), (ProfileOutcome.MADE, "")),
        ((), (1.0,), (ProfileOutcome.CONTESTED, "ns/b")),
        ((), (3.0,), (ProfileOutcome.MADE, "")),
        ((OURS,), (1.0,), (ProfileOutcome.MADE, "")),
    ],
)
def test_quotas_of_others_are_not_overwritten(quotas, rivals, expected) -> None:
    profile = make_profile("a", quota="root", created=2.0)
    other_profiles = [make_profile("b", quota="root", created=created) for created in rivals]
    assert find_outcome(profile, other_profiles, quotas) == expected


def test_unreadable_settings_are_reported_with_field_and_value() -> None:
    profile = make_profile("a", problems=('spec.resourceRatio: "2": must be less',))
    verdict, other = find_outcome(profile, (), (OURS,))
    assert verdict is ProfileOutcome.INVALID
    text = write_outcome(profile, verdict, other, 0)
    assert text.startswith('spec.resourceRatio: "2": must be less; ')


def test_texts_name_the_conflicting_object_and_the_fix() -> None:
    profile = make_profile("a", quota="root")
    text = write_outcome(profile, ProfileOutcome.NOT_OURS, "b", 3)
    assert "spec.quotaName: root: ElasticQuota ns/root exists and was made by profile b" in text
    assert "quota.scheduling.koordinator.sh/profile=a" in text
    assert "selects no node" in write_outcome(profile, ProfileOutcome.MADE, "", 0)
    description = Overlap(tuple("12345"), ("ns/b",)).describe()
    assert description.startswith("5 of its nodes (1, 2, 3 and 2 more) are also selected by ns/b")


def test_nodes_of_a_tree_that_take_no_pods_are_not_taken_from_the_default_tree() -> None:
    # Of 4 nodes with 8 each one of the tree's two is cordoned: it is in nobody's sum of open ones.
    root = QuotaSpec(
        "root", tree_id="t", is_tree_root=True, total={"gpu": 16}, unschedulable={"gpu": 8}
    )
    assert tree_totals({"gpu": 24}, [root])[""] == {"gpu": 16}
    assert tree_totals({"gpu": 32}, [root], KOORDINATOR)[""] == {"gpu": 16}
