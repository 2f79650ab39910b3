"""Current settings are in force if valid, else the last valid ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from tests.quota.scene import quota

from koord.core.quota.catalog import QuotaCatalog
from koord.core.quota.model import ROOT
from koord.core.quota.registry import Facts
from koord.core.quota.spec_errors import QuotaProblem

ORG = quota("org", min=10, max=20, is_parent=True, namespace="q", created=1.0)
A = quota("a", "org", min=6, max=20, namespace="q", created=2.0)
B = quota("b", "org", min=6, max=20, namespace="q", created=3.0)


def make_book(*specs) -> QuotaCatalog:
    book = QuotaCatalog()
    for spec in specs:
        book.upsert(spec)
    book.settle()
    return book


def in_force(book: QuotaCatalog) -> set[str]:
    return set(book.registry.specs)


@pytest.mark.parametrize("order", list(permutations([ORG, A, B])))
def test_the_result_does_not_depend_on_the_order_of_events(order) -> None:
    book = make_book(*order)
    assert in_force(book) == {"org", "a"}
    problem = book.problems["q/b"]
    assert (problem.rule, problem.key, problem.value, problem.limit) == (
        QuotaProblem.SIBLING_MIN_SUM_EXCEEDS_PARENT, "cpu", 12, 10,
    )  # fmt: skip


def test_an_invalid_edit_leaves_the_last_valid_settings_in_force() -> None:
    book = make_book(ORG, A)
    book.upsert(quota("a", "org", min=11, max=5, namespace="q", created=2.0))
    book.settle()
    assert book.registry.specs["a"].min == {"cpu": 6}
    assert book.problem_of("a").rule is QuotaProblem.MIN_EXCEEDS_MAX
    book.upsert(A)
    book.settle()
    assert book.problems == {}


def test_an_edit_becomes_valid_when_the_conflicting_quota_is_deleted() -> None:
    book = make_book(ORG, A, B)
    book.remove("q/a")
    book.settle()
    assert in_force(book) == {"org", "b"}
    assert book.problems == {}


def test_edits_that_are_valid_together_are_in_force_together() -> None:
    book = make_book(ORG, A)
    book.upsert(quota("a", "org", min=15, max=20, namespace="q", created=2.0))
    book.upsert(quota("org", min=15, max=20, is_parent=True, namespace="q", created=1.0))
    book.settle()
    assert (book.registry.specs["a"].min, book.problems) == ({"cpu": 15}, {})


def test_quotas_without_their_parent_are_not_in_force() -> None:
    book = make_book(ORG, A, quota("a-1", "a", min=1, max=2, namespace="q", created=9.0))
    assert book.problem_of("a-1").rule is QuotaProblem.PARENT_NOT_PARENT
    book = make_book(ORG, A)
    book.remove("q/org")
    book.settle()
    assert in_force(book) == set()
    assert book.problem_of("a").rule is QuotaProblem.PARENT_NOT_FOUND
    assert book.is_written("a")
    book.upsert(ORG)
    book.settle()
    assert in_force(book) == {"org", "a"}


def test_a_quota_cannot_be_below_itself() -> None:
    middle = quota("m", "org", min=1, max=9, is_parent=True, namespace="q", created=2.0)
    book = make_book(ORG, middle)
    book.upsert(replace(ORG, parent="m"))
    book.settle()
    assert book.problem_of("org").rule is QuotaProblem.CYCLE
    assert book.registry.specs["org"].parent != "m"


def test_of_two_objects_of_one_name_the_older_is_in_force() -> None:
    other = quota("org", max=1, namespace="other", created=0.5)
    book = make_book(ORG, other)
    assert book.registry.specs["org"].namespace == "other"
    assert book.problems["q/org"].rule is QuotaProblem.ALREADY_EXISTS
    book.remove("other/org")
    book.settle()
    assert book.registry.specs["org"] == replace(ORG, weight={"cpu": 20})


def test_last_valid_settings_survive_a_restart() -> None:
    broken = quota("a", "org", min=30, max=20, namespace="q", created=2.0)
    book = QuotaCatalog()
    book.upsert(replace(broken, last_valid=A))
    book.upsert(ORG)
    book.settle()
    assert book.registry.specs["a"].min == {"cpu": 6}
    assert book.problem_of("a").rule is QuotaProblem.MIN_EXCEEDS_MAX


SMALL = quota("b", "org", min=4, max=20, namespace="q", created=3.0)


@pytest.mark.parametrize(
    "edited",
    [
        pytest.param(replace(ORG, min={"cpu": 2}), id="a parent below its children"),
        pytest.param(replace(ORG, is_parent=False), id="a parent that is to have none"),
        pytest.param(replace(A, min={"cpu": 10}), id="more than siblings leave"),
    ],
)
def test_an_edit_that_was_refused_is_not_in_force_after_a_restart(edited) -> None:
    written = {spec.name: spec for spec in (ORG, A, SMALL)}
    book = make_book(*written.values())
    book.upsert(edited)
    book.settle()
    assert [*book.problems] == [f"q/{edited.name}"]
    kept = replace(edited, last_valid=written[edited.name])
    after = make_book(*(written | {edited.name: kept}).values())
    assert after.registry.specs == book.registry.specs
    assert after.problems == book.problems


def test_a_valid_edit_during_downtime_replaces_invalid_last_valid_settings() -> None:
    moved = quota("a", min=6, max=20, namespace="q", created=2.0)
    book = make_book(replace(moved, last_valid=A))
    assert book.registry.specs["a"].parent == ROOT
    assert book.problems == {}


def test_settings_in_force_win_over_older_ones_from_the_status() -> None:
    """A status is written some seconds after an edit."""
    book = make_book(ORG, replace(A, min={"cpu": 7}))
    book.upsert(replace(A, min={"cpu": 30}, last_valid=A))
    book.remove("q/org")
    book.settle()
    assert in_force(book) == set()
    assert book.standing_of("q/a").valid.min == {"cpu": 7}
    book.upsert(ORG)
    book.settle()
    assert book.registry.specs["a"].min == {"cpu": 7}


ROOTED = quota("pool", min=20, max=40, is_parent=True, namespace="q", created=1.0, tree_id="t",
               is_tree_root=True, total={"cpu": 20})  # fmt: skip
HALVES = tuple(
    quota(name, "pool", min=10, max=20, namespace="q", created=age)
    for name, age in (("a", 2.0), ("b", 3.0))
)


@pytest.mark.parametrize(
    ("written", "edit"),
    [
        pytest.param(
            (ROOTED, *HALVES),
            replace(ROOTED, min={"cpu": 10}, total={"cpu": 10}),
            id="a pool shrinks",
        ),
        pytest.param(
            (ORG, replace(A, min={"cpu": 4}), replace(B, min={"cpu": 4})),
            replace(A, min={"cpu": 9}, is_forced=True),
            id="forced",
        ),
    ],
)
@pytest.mark.parametrize("follows", [False, True], ids=["restart", "standby"])
def test_a_restart_restores_quotas_that_would_be_refused_as_new_ones(
    written, edit, *, follows: bool
) -> None:
    book, other = make_book(*written), QuotaCatalog()
    book.upsert(edit)
    book.settle()
    assert book.problems == {}
    for spec in (*(written if follows else ()), *book.written.values()):
        other.upsert(spec)
    for key, spec in book.written.items():
        other.upsert(replace(spec, last_valid=book.standing_of(key).valid))
    other.settle()
    assert other.registry.specs == book.registry.specs
    assert other.problems == {}


def test_a_recreated_parent_with_a_smaller_min_readmits_only_children_that_fit() -> None:
    book = make_book(ORG, A, SMALL)
    book.remove("q/org")
    book.settle()
    book.upsert(replace(ORG, min={"cpu": 6}, uid="new"))
    book.settle()
    assert in_force(book) == {"org", "a"}
    assert book.problems["q/b"].rule is QuotaProblem.SIBLING_MIN_SUM_EXCEEDS_PARENT


def test_a_strict_key_is_compared_with_counted_usage_only() -> None:
    limited = quota("a", max=8, namespace="q", created=2.0, strict_keys=("cpu", "memory"))
    book = make_book(limited)
    book.upsert(replace(limited, max={"cpu": 16}))
    book.settle(Facts(used={"a": {"cpu": 4, "memory": 5}}))
    assert book.problems == {}


def test_a_quota_with_pods_does_not_become_a_parent() -> None:
    book = make_book(ORG, A)
    book.upsert(replace(A, is_parent=True))
    book.settle(Facts(labels={"a"}))
    assert book.problem_of("a").rule is QuotaProblem.IS_PARENT_HAS_PODS
    book.settle(Facts())
    assert book.problems == {}


def test_trees_follow_edits_and_unchanged_trees_stay_the_same_object() -> None:
    book = make_book(ORG, A)
    tree = book.trees()[""]
    assert book.trees()[""] is tree
    book.upsert(quota("a", "org", min=6, max=12, namespace="q", created=2.0))
    book.settle()
    changed = book.trees()[""]
    assert changed.layout is tree.layout
    assert changed.spec("a").max == {"cpu": 12}
    book.remove("q/a")
    book.settle()
    assert book.trees()[""].layout.names[1:] == ("org",)


def test_a_child_is_in_the_tree_of_its_parent() -> None:
    root = replace(ORG, tree_id="t1", is_tree_root=True)
    book = make_book(root, A)
    assert set(book.trees()) == {"t1"}
    assert book.registry.specs["a"].tree_id == "t1"


def test_a_negative_weight_of_a_resource_that_max_does_not_name_is_refused() -> None:
    """Weights are filled in for the resources of max before they are checked."""
    book = make_book(quota("a", max=8))
    book.upsert(replace(quota("a", max=8), weight={"x.com/y": -2}))
    book.settle()
    problem = book.problem_of("a")
    assert problem is not None
    assert (problem.rule, problem.key) == (QuotaProblem.NEGATIVE_SHARED_WEIGHT, "x.com/y")
    assert book.registry.specs["a"].weight == {"cpu": 8}
