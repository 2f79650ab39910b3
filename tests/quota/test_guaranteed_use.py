"""What a quota uses is guaranteed to it where ``elasticQuota.guaranteeUsage`` is on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_unit
from tests.preemption.test_search import running, search
from tests.quota.scene import KOORDINATOR, OURS, make_ledger, quota, settle, wants
from tests.quota.trees import KEY, forests, usages

from koord.core.eviction.model import Preemption
from koord.core.quota.leftovers import PendingUnit, grant_leftovers
from koord.core.quota.model import QuotaCharge, QuotaOptions, QuotaRules
from koord.core.quota.reclaim import find_overuse
from koord.core.quota.registry import ActiveQuotas, Facts
from koord.core.quota.share_terms import find_loans
from koord.core.quota.spec_errors import QuotaProblem
from koord.core.quota.validation import check_create, check_update

ON = replace(OURS, guarantees_usage=True)
COMPATIBLE = replace(KOORDINATOR, guarantees_usage=True)


@given(st.data(), st.integers(-3, 60), st.sampled_from([ON, COMPATIBLE]))
def test_no_share_falls_below_the_guarantee_and_nothing_used_is_over(
    data: st.DataObject, total: int, rules: QuotaRules
) -> None:
    specs = data.draw(forests())
    usage = data.draw(usages(specs))
    solution = settle(specs, {KEY: total}, usage, rules)
    for spec in specs:
        allocated = solution.allocated(spec.name).get(KEY, 0)
        guaranteed = solution.guaranteed(spec.name).get(KEY, 0)
        assert guaranteed == max(allocated, spec.min[KEY])
        assert guaranteed >= solution.used_with_children[KEY][row_of(solution, spec.name)]
        assert solution.share(spec.name)[KEY] >= guaranteed
    assert find_overuse(make_ledger(specs, {KEY: total}, usage, rules=rules)) == ()
    assert find_loans(solution) == ()


@given(st.data(), st.integers(0, 60))
def test_others_share_what_is_not_guaranteed(data: st.DataObject, total: int) -> None:
    specs = data.draw(forests())
    solution = settle(specs, {KEY: total}, data.draw(usages(specs)), ON)
    top = [spec.name for spec in specs if not spec.parent.startswith("q")]
    guaranteed = sum(solution.guaranteed(name).get(KEY, 0) for name in top)
    assert sum(solution.share(name)[KEY] for name in top) <= max(total, guaranteed)


def row_of(solution, name: str) -> int:
    return solution.inputs.tree.layout.row_of[name]


BORROWER, OWNER = quota("a", min=4, max=16), quota("b", min=8, max=16)


@pytest.mark.parametrize(("rules", "expected"), [(OURS, {"a": 8, "b": 8}), (ON, {"a": 12, "b": 8})])
def test_borrowed_use_stays_when_the_capacity_shrinks(rules, expected) -> None:
    """The owner keeps its idle min; what the borrower uses beyond its own is not reclaimed."""
    solution = settle([BORROWER, OWNER], 16, {"a": wants(16, used=12), "b": wants(8)}, rules)
    assert {name: solution.share(name)["cpu"] for name in expected} == expected


@pytest.mark.parametrize(("rules", "granted"), [(OURS, ("a/1",)), (ON, ())])
def test_idle_guarantees_are_no_leftovers(rules, granted) -> None:
    specs = [quota("a", max=16), OWNER, quota("c", max=16)]
    ledger = make_ledger(specs, 16, {"a": 16, "c": 16}, rules=rules)
    unit = PendingUnit("a/1", (QuotaCharge("a", {"cpu": 16}),), 0.0)
    assert grant_leftovers(ledger, [unit], {}).granted == granted


@pytest.mark.parametrize("is_on", [False, True])
def test_use_beyond_min_is_not_preempted_by_other_quotas(*, is_on: bool) -> None:
    cluster = FakeCluster(quota_options=QuotaOptions(guarantees_usage=is_on)).nodes(
        make_node("n").cpu(16_000)
    )
    for name in "ab":
        cluster.quotas(make_quota(name, min={"cpu": 8_000}, max={"cpu": 16_000}))
    cluster.pods(*(running(name, "n", 4).quota("a") for name in ("x", "y", "z")))
    pod = make_pod("hp").requests(cpu=8_000).quota("b").priority(10).build()
    cluster.pods(pod)
    assert isinstance(search(cluster, make_unit("hp", [pod])), Preemption) != is_on


def test_a_raised_min_is_compared_with_what_its_tree_guarantees() -> None:
    root = quota("root", min=12, max=99, tree_id="t", is_tree_root=True, is_parent=True)
    sibling = quota("s", "root", min=2, max=99, tree_id="t")
    registry = ActiveQuotas([root, sibling])
    facts = Facts(used={"s": {"cpu": 7}})

    def check(least: int):
        return check_create(quota("n", "root", min=least, max=99, tree_id="t"), registry, facts, ON)

    assert check(5) is None
    fault = check(6)
    assert fault is not None
    assert (fault.rule, fault.value, fault.limit) == (QuotaProblem.GUARANTEE_UNSATISFIABLE, 13, 12)
    assert check_update(sibling, registry, facts, ON) is None
