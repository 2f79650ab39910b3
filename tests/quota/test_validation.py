"""Every rule that a quota can break, with the numbers in the fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.quota.scene import KOORDINATOR, OURS, quota

from koord.core.quota.model import ROOT, QuotaSpec
from koord.core.quota.registry import NO_FACTS, ActiveQuotas, Facts
from koord.core.quota.spec_errors import InvalidQuota, QuotaProblem
from koord.core.quota.validation import check_create, check_spec, check_unused, check_update

PARENT = quota("p", min=10, max=20, is_parent=True)
CHILD = quota("c", "p", min=4, max=20)
OTHER = quota("o", min=5, max=9, is_parent=True, namespaces=("ns",))
KNOWN = (PARENT, CHILD, OTHER)


@pytest.mark.parametrize(
    ("spec", "used", "expected"),
    [
        (quota("q", max=-1), {}, (QuotaProblem.NEGATIVE_MAX, "cpu", -1, 0)),
        (quota("q", min=-1), {}, (QuotaProblem.NEGATIVE_MIN, "cpu", -1, 0)),
        (
            quota("q", unreadable=(("shared-weight", "{"),)), {},
            (QuotaProblem.INVALID_SHARED_WEIGHT, "shared-weight", 0, 0),
        ),
        (quota("q", weight=-2), {}, (QuotaProblem.NEGATIVE_SHARED_WEIGHT, "cpu", -2, 0)),
        (QuotaSpec("q", min={"x": 1}), {}, (QuotaProblem.MIN_KEY_NOT_IN_MAX, "x", 1, 0)),
        (quota("q", min=9, max=8), {}, (QuotaProblem.MIN_EXCEEDS_MAX, "cpu", 9, 8)),
        (
            quota("q", unreadable=(("max-strict-check-resource-keys", "7"),)), {},
            (QuotaProblem.INVALID_STRICT_KEYS, "max-strict-check-resource-keys", 0, 0),
        ),
        (
            quota("q", strict_keys=("x",)), {"x": 3},
            (QuotaProblem.STRICT_KEY_NOT_IN_MAX, "x", 0, 3),
        ),
        (
            quota("q", max=2, strict_keys=("cpu",)), {"cpu": 3},
            (QuotaProblem.MAX_BELOW_USED, "cpu", 2, 3),
        ),
        (
            quota("q", unreadable=(("namespaces", "ns"),)), {},
            (QuotaProblem.INVALID_ANNOTATION, "namespaces", 0, 0),
        ),
        (quota("q", max=3, strict_keys=("cpu", "x")), {"cpu": 3}, None),
        (quota("q", max=0), {"cpu": 3}, None),
    ],
)  # fmt: skip
def test_rules_of_a_single_quota(spec, used, expected) -> None:
    fault = check_spec(spec, used)
    problem = fault and (fault.rule, fault.key, fault.value, fault.limit)
    assert problem == expected


def test_the_first_broken_rule_is_reported() -> None:
    assert check_spec(quota("q", min=-1, max=-1)).rule is QuotaProblem.NEGATIVE_MAX


@pytest.mark.parametrize(
    ("spec", "fault", "other"),
    [
        (quota("p"), QuotaProblem.ALREADY_EXISTS, ""),
        (quota("n", namespaces=("ns",)), QuotaProblem.NAMESPACE_BOUND, "o"),
        (quota("n", "gone"), QuotaProblem.PARENT_NOT_FOUND, "gone"),
        (quota("n", "c"), QuotaProblem.PARENT_NOT_PARENT, "c"),
        (quota("n", "p", tree_id="t"), QuotaProblem.TREE_ID_MISMATCH_PARENT, "p"),
        (QuotaSpec("n", parent="p", max={"x": 1}), QuotaProblem.MAX_KEYS_NOT_INCLUDED, "p"),
        (quota("n", "p", min=7), QuotaProblem.SIBLING_MIN_SUM_EXCEEDS_PARENT, "p"),
        (quota("n", "p", min=7, is_forced=True), None, ""),
        (quota("n", "p", min=6), None, ""),
        (QuotaSpec("n", parent="p"), None, ""),
        (quota("koordinator-default-quota"), None, ""),
    ],
)
def test_rules_of_a_new_quota(spec, fault, other) -> None:
    problem = check_create(spec, ActiveQuotas(KNOWN), NO_FACTS, OURS)
    assert (problem and (problem.rule, problem.other)) == (fault and (fault, other))


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (quota(ROOT), QuotaProblem.PROTECTED),
        (quota("koordinator-system-quota"), QuotaProblem.PROTECTED),
        (quota("n"), QuotaProblem.NOT_FOUND),
        (replace(CHILD, namespaces=("ns",)), QuotaProblem.NAMESPACE_BOUND),
        (replace(PARENT, is_parent=False), QuotaProblem.IS_PARENT_HAS_CHILDREN),
        (replace(CHILD, is_parent=True), QuotaProblem.IS_PARENT_HAS_PODS),
        (replace(CHILD, tree_id="t"), QuotaProblem.TREE_ID_CHANGED),
        (replace(PARENT, parent="c"), QuotaProblem.CYCLE),
        (replace(PARENT, parent="p"), QuotaProblem.CYCLE),
        (replace(PARENT, max={"x": 1}, min={}), QuotaProblem.MAX_KEYS_NOT_INCLUDED),
        (replace(PARENT, min={"cpu": 3}), QuotaProblem.CHILD_MIN_SUM_EXCEEDS_MIN),
        (replace(PARENT, min={}), QuotaProblem.MIN_KEYS_NOT_INCLUDED),
        (replace(PARENT, min={"cpu": 4}), None),
        (replace(CHILD, parent="o", max={"cpu": 9}), None),
        (CHILD, None),
    ],
)
def test_rules_of_an_edit(spec, fault) -> None:
    problem = check_update(spec, ActiveQuotas(KNOWN), Facts(labels={"c"}), OURS)
    assert (problem and problem.rule) == fault


def test_max_is_compared_strictly_with_what_the_pods_of_all_quotas_below_use() -> None:
    facts = Facts(used={"c": {"cpu": 7}, "p": {"cpu": 2}, "o": {"cpu": 99}})
    spec = replace(PARENT, min={"cpu": 4}, max={"cpu": 8}, strict_keys=("cpu",))
    registry = ActiveQuotas([PARENT, replace(CHILD, max={"cpu": 5}), OTHER])
    problem = check_update(spec, registry, facts, OURS)
    assert (problem.rule, problem.value, problem.limit) == (QuotaProblem.MAX_BELOW_USED, 8, 9)
    assert check_update(replace(spec, max={"cpu": 9}), registry, facts, OURS) is None


def test_unchanged_settings_are_validated_except_by_koordinator() -> None:
    broken = ActiveQuotas([*KNOWN, quota("n", "p", min=9)])
    weight = replace(CHILD, weight={"cpu": -1})
    assert check_update(weight, broken, NO_FACTS, OURS).rule is QuotaProblem.NEGATIVE_SHARED_WEIGHT
    assert check_update(weight, broken, NO_FACTS, KOORDINATOR) is None


def test_koordinator_requires_the_same_resources_at_every_level() -> None:
    spec = QuotaSpec("n", parent="p", max={})
    problem = check_create(spec, ActiveQuotas(KNOWN), NO_FACTS, KOORDINATOR)
    assert (problem.rule, problem.key) == (QuotaProblem.KEYS_NOT_SAME, "cpu")


@pytest.mark.parametrize(
    ("minimum", "expected"),
    [
        (4, None),
        (5, None),
        (6, (QuotaProblem.GUARANTEE_UNSATISFIABLE, "root", 13, 12)),
    ],
)
def test_a_raised_min_must_be_guaranteed_above(minimum, expected) -> None:
    root = quota("root", min=12, max=99, tree_id="t", is_tree_root=True, is_parent=True)
    sibling = quota("s", "root", min=2, max=99, tree_id="t")
    spec = quota("n", "root", min=3, max=99, tree_id="t")
    facts = Facts(guaranteed={"root": {"cpu": 12}, "s": {"cpu": 7}, "n": {"cpu": 4}})
    rules = replace(OURS, guarantees_usage=True)
    registry = ActiveQuotas([root, sibling, spec])
    problem = check_update(replace(spec, min={"cpu": minimum}), registry, facts, rules)
    assert (problem and (problem.rule, problem.other, problem.value, problem.limit)) == expected


@pytest.mark.parametrize(
    ("children", "pods", "expected"),
    [
        (("c", "d"), 3, InvalidQuota(QuotaProblem.HAS_CHILD_QUOTAS, "p", other="c", value=2)),
        ((), 3, InvalidQuota(QuotaProblem.HAS_PODS, "p", value=3)),
        ((), 0, None),
    ],
)
def test_what_delays_a_deletion(children, pods, expected) -> None:
    assert check_unused("p", children, pods) == expected
