"""Which pods may be moved: each rule, its number, and what switches it off."""

from dataclasses import replace
from typing import Any

import pytest

from koord.core.migration.eligibility import EXPECTED_REPLICAS, find_ineligible
from koord.core.migration.model import JobMode, MigrationOptions, MovedPod, NamespaceChoice
from koord.core.migration.workload import Workload
from koord.core.model.pods import OwnerReference
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.domains.migration_settings import MigrationSettings, read_reported
from koord.kube.leader_report import LeaderReport, decode_report, encode_report

OWNER = OwnerReference("web", "ReplicaSet", "apps/v1", "r", is_controller=True)
POD = MovedPod(
    "ml", "web-1", "u1", node="n1", owners=(OWNER,), is_ours=True, node_labels={"pool": "a"}
)
WEB = Workload("d", "Deployment web", 6)


def number(options: MigrationOptions = MigrationOptions(), /, **fields: Any) -> int:  # noqa: B008
    broken = find_ineligible(replace(POD, **fields), options, workload=WEB)
    return 0 if broken is None else broken.number


@pytest.mark.parametrize(
    ("fields", "rule", "allowing"),
    [
        ({"is_ours": False, "scheduler": "other"}, 2, {"schedulers": frozenset({"other"})}),
        ({"namespace": "x"}, 3, {"skipped": frozenset({"Namespaces"})}),
        ({"eviction_cost": 2147483647}, 4, None),
        ({"owners": (replace(OWNER, kind="DaemonSet"),)}, 5, None),
        ({"is_static": True}, 5, None),
        ({"is_terminating": True}, 5, None),
        ({"owners": ()}, 6, {"evicts_all_bare": True}),
        ({"owners": ()}, 6, {"skipped": frozenset({"BarePods"})}),
        ({"owners": (), "phase": "Failed"}, 6, {"evicts_failed_bare": True}),
        ({"priority": 2_000_000_000}, 7, {"evicts_critical": True}),
        ({"priority": 500}, 7, {"skipped": frozenset({"PriorityThreshold"})}),
        ({"has_local_storage": True}, 8, {"evicts_local_storage": True}),
        ({"node_labels": {"pool": "b"}}, 10, {"skipped": frozenset({"LabelSelector"})}),
        ({"has_claims": True}, 9, {"skipped": frozenset({"PVC"})}),
    ],
    ids=str,
)
def test_the_first_rule_that_is_broken(
    fields: dict[str, Any], rule: int, allowing: dict[str, Any] | None
) -> None:
    options = MigrationOptions(
        namespaces=NamespaceChoice(exclude=frozenset({"x"})),
        priority_threshold=500,
        ignores_claims=True,
        node_selector=(Requirement("pool", SelectorOperator.IN, ("a",)),),
    )
    assert number(options) == 0
    assert number(options, **fields) == rule
    if allowing is not None:
        assert number(replace(options, **allowing), **fields) == 0


def test_the_annotation_evict_skips_all_but_the_scheduler() -> None:
    protected = {"has_local_storage": True, "eviction_cost": 2147483647, "evicts_protected": True}
    assert number(**protected) == 0
    assert number(**protected, is_ours=False) == 2


def test_memory_is_no_local_storage_but_for_koordinator() -> None:
    assert number(has_memory_storage=True) == 0
    assert number(MigrationOptions(compat=True), has_memory_storage=True) == 8
    assert number(has_memory_storage=True, has_local_storage=True) == 8


def test_a_pod_of_another_scheduler_is_evicted_directly_only() -> None:
    pod = replace(POD, is_ours=False, scheduler="default-scheduler")
    assert find_ineligible(pod, MigrationOptions()) is not None
    assert find_ineligible(pod, MigrationOptions(), mode=JobMode.EVICT_DIRECTLY) is None


def test_two_jobs_do_not_move_one_pod() -> None:
    broken = find_ineligible(POD, MigrationOptions(), has_job=True)
    assert broken is not None
    assert str(broken) == "rule 1 (Duplicate): another job moves it"


def test_none_would_remain() -> None:
    broken = find_ineligible(POD, MigrationOptions(), workload=replace(WEB, replicas=1))
    assert broken is not None
    assert broken.number == EXPECTED_REPLICAS
    assert "has 1 replicas" in broken.text
    skips = MigrationOptions(skipped=frozenset({"ExpectedReplicas"}))
    assert find_ineligible(POD, skips, workload=replace(WEB, replicas=1)) is None


def test_commands_plan_with_the_settings_that_the_leader_reports() -> None:
    settings = MigrationSettings(
        evictLocalStoragePods=True,
        priorityThreshold={"value": 7},
        maxMigratingPerWorkload="30%",
        namespaces={"exclude": ["a"]},
        schedulerNames=["x"],
    )
    report = decode_report(encode_report(LeaderReport(migration=settings.as_reported)))
    assert report is not None
    options = settings.make_options(compat=False)
    assert read_reported(report.migration, compat=False) == options
    assert options.evicts_local_storage
    names = [f"namespace-{at:04}" for at in range(1024)]
    assert MigrationSettings(namespaces={"exclude": names}).as_reported is None


@pytest.mark.parametrize("section", [None, {}, {"later": 1}, {"evictQPS": "x"}])
def test_settings_of_another_release_are_not_guessed(section: dict[str, object] | None) -> None:
    assert read_reported(section, compat=False) == MigrationOptions()
