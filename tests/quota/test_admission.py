"""A unit is charged to its quota and all ancestors, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.quota.scene import KOORDINATOR, OURS, charge, make_ledger, quota, wants

from koord.core.quota.admission import try_charge
from koord.core.quota.model import QuotaCharge, QuotaSpec, Usage
from koord.core.quota.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    NonPreemptibleOverMin,
    QuotaShortage,
    RequestAboveMax,
)

TREE = [
    quota("org", min=10, max=20, is_parent=True),
    quota("a", "org", min=4, max=15),
    quota("b", "org", min=4, max=15),
]


def test_a_charge_counts_in_the_quota_and_all_its_ancestors() -> None:
    ledger = make_ledger(TREE, 100, {"a": 15, "b": wants(5, 2)})
    assert try_charge(ledger, [charge("a", 5)]) is None
    used = {name: ledger.account(name).used.get("cpu", 0) for name in ledger.names()}
    assert used == {"org": 7, "a": 5, "b": 2}


def test_rollback_undoes_all_charges_since_the_mark() -> None:
    ledger = make_ledger(TREE, 100, {"a": 15})
    assert try_charge(ledger, [charge("a", 5, is_non_preemptible=False)]) is None
    mark = ledger.checkpoint()
    assert try_charge(ledger, [charge("a", 4, is_non_preemptible=True)]) is None
    ledger.rollback(mark)
    account = ledger.account("org")
    assert (account.used, account.non_preemptible_used) == ({"cpu": 5}, {})


def test_a_unit_of_several_quotas_is_charged_completely_or_not_at_all() -> None:
    ledger = make_ledger(TREE, 100, {"a": 10, "b": 5})
    refusal = try_charge(ledger, [charge("a", 10), charge("b", 16)])
    assert refusal is not None
    assert ledger.account("a").used.get("cpu", 0) == 0
    assert ledger.account("org").used.get("cpu", 0) == 0


@pytest.mark.parametrize(
    ("total", "usage", "code", "topo", "short"),
    [
        pytest.param(
            12, {"a": wants(12, 3), "b": wants(12)}, InsufficientEntitlement.code,
            ("a",), QuotaShortage("cpu", 6, 3, 4), id="share",
        ),
        pytest.param(
            100, {"a": wants(20, 12)}, InsufficientMax.code,
            ("a",), QuotaShortage("cpu", 15, 12, 4), id="max",
        ),
        pytest.param(
            100, {"a": wants(15, 5), "b": wants(4, 14)}, AncestorInsufficient.code,
            ("org", "a"), QuotaShortage("cpu", 19, 19, 2), id="above",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_the_quota_and_the_amounts(total, usage, code, topo, short) -> None:
    refusal = try_charge(make_ledger(TREE, total, usage), [charge("a", short.requested)])
    assert (refusal.code, refusal.topo, refusal.shortages) == (code, topo, (short,))


def test_non_preemptible_usage_stays_within_min() -> None:
    usage = {"a": Usage({}, {"cpu": 15}, {"cpu": 3}, {"cpu": 15}, {"cpu": 3})}
    ledger = make_ledger(TREE, 100, usage)
    refusal = try_charge(ledger, [charge("a", 2, is_non_preemptible=True)])
    assert refusal.code == NonPreemptibleOverMin.code
    assert refusal.shortages == (QuotaShortage("cpu", 4, 3, 2),)
    assert try_charge(ledger, [charge("a", 2)]) is None


def test_non_preemptible_pods_are_limited_by_min_not_by_the_scaled_share() -> None:
    ledger = make_ledger([quota("a", min=10), quota("b", min=10)], 10, {"a": 10, "b": 10})
    assert ledger.account("a").share == {"cpu": 5}
    assert try_charge(ledger, [charge("a", 5, is_non_preemptible=True)]) is None


@pytest.mark.parametrize(("rules", "passes"), [(OURS, False), (KOORDINATOR, True)])
def test_ancestors_are_always_checked(rules, passes) -> None:
    ledger = make_ledger(TREE, 100, {"a": wants(15, 5), "b": wants(4, 14)}, rules=rules)
    assert (try_charge(ledger, [charge("a", 2)]) is None) is passes


@pytest.mark.parametrize(("rules", "passes"), [(OURS, True), (KOORDINATOR, False)])
def test_only_requested_resources_are_checked(rules, passes) -> None:
    spec = QuotaSpec("a", max={"cpu": 10, "memory": 10})
    usage = Usage({"cpu": 5, "memory": 20}, {"cpu": 5, "memory": 20}, {"memory": 20})
    ledger = make_ledger([spec], {"cpu": 10, "memory": 10}, {"a": usage}, rules=rules)
    assert (try_charge(ledger, [charge("a", 5)]) is None) is passes


def test_a_resource_outside_max_is_neither_counted_nor_limited() -> None:
    ledger = make_ledger([quota("a", max=10)], 10, {"a": 10})
    assert try_charge(ledger, [QuotaCharge("a", {"cpu": 1, "nvidia.com/gpu": 99})]) is None
    assert ledger.account("a").used == {"cpu": 1}


def test_a_resource_that_no_node_offers_is_refused() -> None:
    ledger = make_ledger([quota("a", key="x")], {"cpu": 9}, {"a": wants(1, key="x")})
    assert try_charge(ledger, [charge("a", 1, "x")]).shortages == (QuotaShortage("x", 0, 0, 1, 0),)


@pytest.mark.parametrize(
    ("total", "requested", "code", "offered"),
    [
        (0, 20, InsufficientEntitlement.code, 0),
        (0, 5, InsufficientEntitlement.code, 0),
        (15, 20, RequestAboveMax.code, 15),
        (30, 20, RequestAboveMax.code, None),
    ],
)
def test_a_missing_resource_is_refused_by_entitlement(total, requested, code, offered) -> None:
    ledger = make_ledger([quota("a", max=10)], total, {"a": wants(requested)})
    refusal = try_charge(ledger, [charge("a", requested)])
    assert (refusal.code, refusal.shortages[0].offered) == (code, offered)


def test_who_exceeds_max_is_told_max_although_the_share_is_smaller() -> None:
    ledger = make_ledger(
        [quota("a", max=12), quota("b", min=8, max=20)], 16, {"a": wants(20), "b": wants(20)}
    )
    ledger.charge(charge("a", 5))
    share = ledger.account("a").limit(OURS)
    assert share["cpu"] < 12
    refusal = try_charge(ledger, [charge("a", 10)])
    assert isinstance(refusal, InsufficientMax)
    assert refusal.shortages == (QuotaShortage("cpu", share["cpu"], 5, 10, max=12),)
    assert "may use at most 12m cpu, uses 5m and needs 10m more" in refusal.text()
    assert dict(refusal.limit) == share, "Koordinator names the share"


def test_a_parent_takes_no_pods_unless_allowed() -> None:
    assert try_charge(make_ledger(TREE, 9, {}), [charge("org", 1)]).quota == "org"
    rules = replace(OURS, parents_take_pods=True)
    ledger = make_ledger(TREE, 9, {"org": 1}, rules=rules)
    assert try_charge(ledger, [charge("org", 1)]) is None


def test_the_limit_may_be_max_alone() -> None:
    rules = replace(OURS, limits_by_share=False)
    ledger = make_ledger(TREE, 1, {}, rules=rules)
    assert try_charge(ledger, [charge("a", 15)]) is None
    assert try_charge(ledger, [charge("a", 1)]).code == InsufficientMax.code


def test_a_quota_without_account_limits_nothing() -> None:
    assert try_charge(make_ledger(TREE, 0, {}), [charge("koordinator-default-quota", 99)]) is None
