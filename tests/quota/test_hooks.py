"""Hooks check units and see changes; their errors stay isolated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_quota
from tests.quota.scene import charge, make_ledger, quota, wants

from koord.core.engine.queue import find_pending
from koord.core.quota.admission import try_charge
from koord.core.quota.hooks import HookCondition, Hooks, QuotaHook
from koord.core.quota.leftovers import PendingUnit, grant_leftovers
from koord.core.quota.reasons import QuotaCheckFailed
from koord.core.quota.status import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator


class Limit(QuotaHook):
    """Lets a quota use 4 of cpu."""

    def check_unit(self, quota, used, request) -> str:
        return "too much" if used.get("cpu", 0) + request.get("cpu", 0) > 4 else ""


class Broken(QuotaHook):
    """Raises whatever it is asked."""

    def check_unit(self, quota, used, request) -> str:
        raise ZeroDivisionError("by design")

    on_quota_change = on_pod_change = augment_status = check_unit


class Diary(QuotaHook):
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object, object]] = []

    def on_quota_change(self, before, after) -> None:
        self.calls.append(("quota", before and before.max, after and after.max))

    def on_pod_change(self, before, after) -> None:
        self.calls.append(("pod", before and before.is_used, after and after.is_used))

    def augment_status(self, summary) -> Iterator[HookCondition]:
        yield HookCondition("example.com/Diary", True, "Kept", summary.name)


def test_a_check_sees_charges_of_the_same_cycle() -> None:
    ledger = Hooks({"limit": Limit()}).bind(make_ledger([quota("a", max=9)], 9, {"a": 9}))
    assert try_charge(ledger, [charge("a", 3)]) is None
    refusal = try_charge(ledger, [charge("a", 2)])
    assert refusal == QuotaCheckFailed("limit", "too much")
    assert try_charge(ledger, [charge("a", 1)]) is None


def test_a_failing_hook_refuses_nothing_and_is_counted() -> None:
    hooks = Hooks({"broken": Broken(), "limit": Limit()})
    ledger = hooks.bind(make_ledger([quota("a", max=9)], 9, {"a": 9}))
    assert try_charge(ledger, [charge("a", 3)]) is None
    assert isinstance(try_charge(ledger, [charge("a", 2)]), QuotaCheckFailed), "others still hold"
    hooks.notify_pod(None, None)
    hooks.notify_quotas({}, {"a": make_quota("a")})
    assert hooks.augment(Summary("a")) == ()
    counts = {key: failure.count for key, failure in hooks.failures.items()}
    assert counts == {
        ("broken", "check_unit"): 2,
        ("broken", "on_pod_change"): 1,
        ("broken", "on_quota_change"): 1,
        ("broken", "augment_status"): 1,
    }
    text = hooks.describe_failures()
    assert "hook broken failed in check_unit (ZeroDivisionError: by design)" in text


@pytest.mark.parametrize(("name", "count"), [("example.com/Diary", 1), ("Ready", 0)])
def test_a_hook_adds_conditions_of_its_own_domain_only(name: str, count: int) -> None:
    class Says(QuotaHook):
        def augment_status(self, summary) -> Iterator[HookCondition]:
            yield HookCondition(name, True, "X", "")

    hooks = Hooks({"says": Says()})
    assert len(hooks.augment(Summary("a"))) == count
    assert len(hooks.failures) == 1 - count


def test_leftovers_are_not_granted_against_a_check() -> None:
    # Shares are 5 and 5; leftovers would be enough for one unit of 8.
    specs = [quota("a", max=10), quota("b", max=10)]
    units = [PendingUnit("u", (charge("a", 8),), 0.0)]
    for hooks, granted in ((Hooks(), ("u",)), (Hooks({"limit": Limit()}), ())):
        ledger = make_ledger(specs, 10, {"a": wants(8), "b": wants(8)})
        assert grant_leftovers(hooks.bind(ledger), units, {}).granted == granted


def test_hooks_see_quotas_and_pods_and_refuse_units_in_planning() -> None:
    diary = Diary()
    cluster = make_cluster(hooks=Hooks({"diary": diary, "limit": Limit()}))
    state = cluster.state
    state.upsert_node(make_node("n").gpu(8).build())
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8}))
    state.upsert_pod(make_pod("a").gpu(6).quota("t").build())
    state.open_ledger()
    assert diary.calls == [("quota", None, {GPU: 8}), ("pod", None, False)]
    diary.calls.clear()
    state.open_ledger()
    assert not diary.calls, "nothing has changed"
    state.remove_pod("uid-default-a")
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8, "cpu": 9}))
    state.open_ledger()
    assert sorted(diary.calls, key=str) == [
        ("pod", False, None),
        ("quota", {GPU: 8}, {GPU: 8, "cpu": 9}),
    ]
    state.upsert_pod(make_pod("b").requests(cpu=9).quota("t").build())
    units = find_pending(state)
    made = cluster.plan(*units, pending=lambda: units)
    assert [refusal.reason for refusal in made.refusals] == [QuotaCheckFailed("limit", "too much")]
