"""The conditions of a quota, and its status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.objects import remove_quota, upsert_quota
from tests.quota.scene import make_ledger, quota, wants
from tests.support.authors import FakeAuthor

from koord.controllers.quota_status import QuotaStatusPolicy
from koord.core.model.pods import Handling
from koord.core.quota.reclaim import Overuse, find_overuse, write_overuse
from koord.core.quota.spec_errors import InvalidQuota, QuotaProblem
from koord.core.quota.status import REASON_IF_FALSE, QuotaCondition, find_conditions, summarise
from koord.kube.translate.quotas import QuotaTranslator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.quota.model import QuotaSpec
    from koord.kube.status import ConditionPatch


def conditions_of(ledger, name: str, over=(), problem=None, revoke: str = "") -> dict[str, str]:
    """Return the conditions that hold, with what is said."""
    findings = find_conditions(summarise(ledger, name), over, problem, lends=True)
    assert [finding.kind for finding in findings] == [*QuotaCondition][:-1]
    return {finding.kind.value: finding.text(revoke) for finding in findings if finding.holds}


READY = {"Ready": "the quota is active"}


def test_conditions_of_a_borrower_and_a_lender() -> None:
    specs = [quota("a", min=2, max=9), quota("b", min=8, max=9)]
    ledger = make_ledger(specs, 10, {"a": wants(6, 6), "b": wants(3, 3)})
    assert conditions_of(ledger, "a") == {
        **READY,
        "Borrowing": "uses 4m cpu more than its guaranteed amount",
    }
    assert conditions_of(ledger, "b") == {
        **READY,
        "Lending": (
            "does not request 5m cpu of its guaranteed amount; other quotas may use it meanwhile"
        ),
    }


def test_conditions_of_over_use_and_of_a_scaled_min() -> None:
    ledger = make_ledger([quota("a", min=6), quota("b", min=6)], 6, {"a": wants(6, 6), "b": 6})
    conditions = conditions_of(
        ledger, "a", find_overuse(ledger), revoke="nothing is evicted for it"
    )
    assert conditions["OverEntitlement"] == (
        "quota a uses 6m cpu but is entitled to 3m; nothing is evicted for it"
    )
    assert conditions["MinScaled"] == (
        "is guaranteed 3m cpu less than its min, since all min together exceed the capacity"
    )


def test_koordinators_words_for_over_use_follow_with_compat() -> None:
    over = (Overuse("a", "cpu", 6, 3),)
    plain = "quota a uses 6m cpu but is entitled to 3m"
    assert write_overuse(over, compat=False) == plain
    assert write_overuse(over, compat=True) == f"{plain} (runtime: cpu:3m, used: cpu:6m)"


@pytest.mark.parametrize(
    ("delay", "part"),
    [
        (None, "over-use is not reclaimed: that needs elasticQuota.reclaim"),
        (90.5, "after 90.5s its pods are evicted"),
    ],
)
def test_the_over_use_condition_says_what_will_happen(delay: float | None, part: str) -> None:
    state, sink = make_cluster().state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator(), reclaim_delay=delay)
    state.upsert_node(make_node("n").gpu(8).build())
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 4}))
    state.upsert_pod(make_pod("a").gpu(6).quota("t").running("n").build())
    policy.update_all()
    assert sink.written["t"][1]["OverEntitlement"]
    text = sink.texts["t", "OverEntitlement"]
    assert text.startswith("quota t uses 6 nvidia.com/gpu but is entitled to 4")
    assert part in text


def test_a_quota_that_is_not_in_force_says_why() -> None:
    problem = InvalidQuota(QuotaProblem.PARENT_NOT_FOUND, "a", other="p")
    findings = find_conditions(None, (), problem, lends=False)
    assert [(finding.kind, finding.holds, finding.reason) for finding in findings] == [
        ("Ready", False, "ParentNotFound"),
        ("ConfigInvalid", True, "ParentNotFound"),
    ]
    assert set(REASON_IF_FALSE) == set(QuotaCondition)


class Sink(FakeAuthor):
    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, tuple[Mapping[str, Any], dict[str, bool]]] = {}
        self.count = 0
        self.texts: dict[tuple[str, str], str] = {}
        self.recorded: list[tuple[str, Mapping[str, str]]] = []
        self.used: dict[str, bool] = {}

    def write_status(
        self,
        quota: QuotaSpec,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
        metadata: Mapping[str, Any] | None = None,
        *,
        is_urgent: bool = False,
    ) -> None:
        assert metadata is not None
        self.count += 1
        self.recorded.append((quota.name, metadata["annotations"]))
        self.used[quota.name] = bool(metadata["finalizers"])
        self.written[quota.name] = (
            fields,
            {condition.type: condition.status for condition in conditions},
        )
        self.texts |= {(quota.name, condition.type): condition.message for condition in conditions}


def test_a_status_is_written_only_when_it_changes() -> None:
    state, sink = make_cluster().state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator())
    state.upsert_node(make_node("n").gpu(8).build())
    upsert_quota(state, make_quota("t", namespace="q", min={GPU: 4}, max={GPU: 8}))
    upsert_quota(state, make_quota("lost", namespace="q", parent="gone", max={GPU: 8}))
    state.upsert_pod(make_pod("a").gpu(6).quota("t").running("n").build())
    policy.update_all()
    fields, conditions = sink.written["t"]
    kept = fields["lastValidSpec"]
    assert (kept["min"], kept["max"]) == ({GPU: "4"}, {GPU: "8"})
    uses = {"used": {GPU: "6"}, "runtime": {GPU: "6"}, "request": {GPU: "6"}}
    same = {"max": {GPU: "8"}, "lastValidSpec": kept}
    assert fields == uses | same | {"state": "Borrowing"}
    assert [name for name, holds in conditions.items() if holds] == ["Ready", "Borrowing"]
    not_active = {"Ready": False, "ConfigInvalid": True, "Terminating": False}
    assert sink.written["lost"] == ({"state": "Invalid"}, not_active)
    policy.update_all()
    assert sink.count == 2
    state.remove_pod("uid-default-a")
    policy.update_all()
    assert sink.count == 3
    idle = {"used": {GPU: "0"}, "runtime": {GPU: "0"}}
    assert sink.written["t"][0] == idle | same | {"state": "Lending"}


def test_the_status_keeps_the_last_valid_settings_while_current_ones_are_invalid() -> None:
    state, sink = make_cluster().state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator())
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8}))
    policy.update_all()
    upsert_quota(state, make_quota("t", namespace="q", min={GPU: 9}, max={GPU: 8}))
    policy.update_all()
    fields, conditions = sink.written["t"]
    assert fields["lastValidSpec"]["max"] == {GPU: "8"}
    assert [name for name, holds in conditions.items() if holds] == ["Ready", "ConfigInvalid"]


def test_annotations_are_written_when_a_number_other_than_zero_changes() -> None:
    state, sink = make_cluster().state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator())
    state.upsert_node(make_node("n").gpu(8).build())
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8}))
    upsert_quota(state, make_quota("lost", namespace="q", parent="gone", max={GPU: 8}))
    policy.update_all()
    assert sink.recorded[-1] == ("lost", {})
    state.upsert_pod(make_pod("a").gpu(6).quota("t").running("n").build())
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8, "cpu": 0}))
    policy.update_all()
    name, amounts = sink.recorded[-1]
    prefix = "quota.scheduling.koordinator.sh/"
    assert (name, json.loads(amounts[f"{prefix}runtime"])[GPU]) == ("t", "6")
    assert json.loads(amounts[f"{prefix}child-request"]) == {GPU: "6"}
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8}))
    policy.update_all()
    assert sink.recorded[-1] == (name, amounts), "a zero more or less is no change"


def test_usage_by_pods_of_other_schedulers_is_a_condition() -> None:
    state, sink = make_cluster().state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator())
    state.upsert_node(make_node("n").gpu(8).build())
    upsert_quota(state, make_quota("t", namespace="q", min={GPU: 8}, max={GPU: 8}))
    state.upsert_pod(make_pod("a").gpu(6).quota("t").running("n").build())
    policy.update_all()
    assert not sink.written["t"][1]["UnmanagedUsage"]
    foreign = make_pod("b").gpu(2).quota("t").running("n").build()
    state.upsert_pod(replace(foreign, handling=Handling.NOT_OURS))
    policy.update_all()
    assert sink.written["t"][1]["UnmanagedUsage"]


def test_a_satisfied_quota_is_not_reported_as_scaled() -> None:
    """What a parent does not ask for is not taken from its children."""
    state, sink = make_cluster().state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator())
    state.upsert_node(make_node("n").gpu(8).build())
    org = make_quota("org", namespace="q", min={GPU: 8}, max={GPU: 8}, is_parent=True)
    upsert_quota(state, org)
    for name in ("a", "b"):
        spec = make_quota(name, namespace="q", parent="org", min={GPU: 4}, max={GPU: 8})
        upsert_quota(state, spec)
    state.upsert_pod(make_pod("p").gpu(2).quota("a").running("n").build())
    policy.update_all()
    for name in ("a", "b"):
        conditions = sink.written[name][1]
        assert [kind for kind, holds in conditions.items() if holds] == ["Ready", "Lending"]


def test_a_quota_that_gets_pods_in_the_same_batch_does_not_become_a_parent() -> None:
    state = make_cluster().state
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8}))
    state.open_ledger()
    state.upsert_pod(make_pod("a").gpu(6).quota("t").running("n").build())
    upsert_quota(state, make_quota("t", namespace="q", max={GPU: 8}, is_parent=True))
    state.open_ledger()
    assert state.quotas.catalog.problems["q/t"].rule is QuotaProblem.IS_PARENT_HAS_PODS


def test_a_quota_is_used_as_long_as_it_has_pods_or_children() -> None:
    state, sink = make_cluster(1).state, Sink()
    policy = QuotaStatusPolicy(state, sink, QuotaTranslator())
    upsert_quota(state, make_quota("org", namespace="q", is_parent=True, max={GPU: 8}))
    team = make_quota("team", namespace="q", parent="org", max={GPU: 8})
    upsert_quota(state, team)
    upsert_quota(state, make_quota("broken", namespace="q", parent="gone", max={GPU: 8}))
    for name, label in (("a", "team"), ("b", "team"), ("c", "broken")):
        state.upsert_pod(make_pod(name).gpu(4).quota(label).build())
    state.upsert_pod(make_pod("a").gpu(4).quota("team").running("n0").build())

    def used() -> list[str]:
        policy.update_all()
        return sorted(name for name, is_used in sink.used.items() if is_used)

    assert used() == ["broken", "org", "team"]
    upsert_quota(state, replace(team, is_terminating=True))
    used()
    assert sink.written["team"][1]["Ready"]
    assert sink.written["team"][1]["Terminating"]
    assert sink.texts["team", "Terminating"] == (
        "it is being deleted, and stays active for its pods (2): wait for them to end, or delete "
        "them; pods that wait may be labelled with another quota instead"
    )
    state.remove_pod("uid-default-a")
    assert "stays active for its pods (1)" in (used(), sink.texts["team", "Terminating"])[1]
    state.remove_pod("uid-default-b")
    assert used() == ["broken", "org"]
    remove_quota(state, "q/team")
    assert used() == ["broken"]
