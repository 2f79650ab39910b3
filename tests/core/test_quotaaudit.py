"""What is kept of quotas is what their pods add up to, or the audit says where it is not."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_quota

from koord.answers.quota_audit import QuotaDrift, find_drift
from koord.controllers.quota_status import QuotaAudit

if TYPE_CHECKING:
    from koord.core.engine.state import ClusterState


def make_state() -> ClusterState:
    cluster = make_cluster().nodes(make_node("n").gpu(16))
    cluster.quotas(
        make_quota("org", is_parent=True, min={GPU: 16}, max={GPU: 16}),
        make_quota("team", parent="org", min={GPU: 8}, max={GPU: 16}),
    )
    cluster.pod_groups(make_pod_group("default/g", 2))
    cluster.pods(
        make_pod("a").gpu(4).quota("team").running("n"),
        make_pod("b").gpu(2).quota("team"),
        make_pod("g-0").gpu(1).quota("team").gang("default/g"),
        make_pod("outside").gpu(1).running("n"),
    )
    cluster.state.open_ledger()
    return cluster.state


def make_audit(state: ClusterState) -> QuotaAudit:
    return QuotaAudit(state, is_synced=lambda: True, is_busy=lambda: False)


def test_without_a_defect_there_is_no_drift() -> None:
    state = make_state()
    assert find_drift(state) == ()
    state.upsert_pod(make_pod("g-1").gpu(1).quota("team").gang("default/g").build())
    state.remove_pod("uid-default-b")
    upsert_quota(state, make_quota("team", parent="org", min={GPU: 1}, max={GPU: 3}))
    assert find_drift(state) == ()


def test_a_use_that_is_lost_is_found_and_mended(caplog: pytest.LogCaptureFixture) -> None:
    state = make_state()
    state.quotas.usage.remove("uid-default-a")
    audit = make_audit(state)
    with caplog.at_level(logging.ERROR):
        audit.look()
    assert audit.drift["used"] == 8, "4 in the quota, 4 in the one above"
    assert audit.repairs == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert state.open_ledger().account("team").used == {GPU: 4}
    audit.look()
    assert (audit.repairs, sum(audit.drift.values())) == (1, 0)


def test_a_gang_that_is_counted_wrongly_is_found() -> None:
    state = make_state()
    state.quotas.count_pod(state.pods["uid-default-g-0"], is_whole=True)
    found = find_drift(state)
    assert QuotaDrift("team", "demand", GPU, 7, 6) in found
    assert not [one for one in found if one.field == "used"]


def test_a_sum_that_is_wrong_above_is_found() -> None:
    state = make_state()
    (solution,) = state.quotas.solutions.values()
    object.__setattr__(solution, "used_with_children", {GPU: [3, 3, 4]})
    assert find_drift(state) == (QuotaDrift("org", "used", GPU, 3, 4),)


def test_a_capacity_that_is_lost_is_found() -> None:
    state = make_state()
    for spec in list(state.quotas.catalog.written.values()):
        upsert_quota(state, replace(spec, min={}))
    assert find_drift(state) == ()
    state.quotas.supply.remove_node("n")
    audit = make_audit(state)
    audit.look()
    assert audit.drift["runtime"] > 0
    assert find_drift(state) == ()


@pytest.mark.isolates
def test_a_defect_of_the_audit_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state()
    audit = make_audit(state)
    monkeypatch.setattr(state, "open_ledger", lambda: 1 / 0)
    audit.look()
    assert audit.repairs == 0
