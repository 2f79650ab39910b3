"""What the leader reports of its settings, and what `koord` makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from koord.cli.cluster import find_quota_options
from koord.core.engine.queue import Queue
from koord.core.quota.model import QuotaOptions, TerminatingUse
from koord.kube.leader_report import LeaderReport, decode_report, encode_report
from koord.runtime.descriptions import report_queue
from koord.runtime.settings import parse_settings

HEAD = "apiVersion: operators.koordinator.sh/v1alpha1\nkind: OperatorConfiguration\n"


def report(text: str) -> LeaderReport:
    parts: Any = SimpleNamespace(
        placement=SimpleNamespace(queue=Queue()), settings=parse_settings(HEAD + text, "file")
    )
    decoded = decode_report(encode_report(LeaderReport(**report_queue(parts))))
    assert decoded is not None
    return decoded


@pytest.mark.parametrize(
    ("section", "options"),
    [
        ("{}", QuotaOptions()),
        ("{enableRuntimeQuota: false}", QuotaOptions(limits_by_share=False)),
        ("{guaranteeUsage: true}", QuotaOptions(guarantees_usage=True)),
        ("{disableDefaultQuota: true}", QuotaOptions(has_default_quota=False)),
        ("{supportParentQuotaSubmitPod: true}", QuotaOptions(parents_take_pods=True)),
        ("{ignorePodOverhead: true}", QuotaOptions(counts_overhead=False)),
        (
            "{ignoreTerminatingPod: true}",
            QuotaOptions(terminating_use=TerminatingUse.FOR_GRACE_PERIOD),
        ),
        (
            "{ignoreTerminatingPod: true, immediateIgnoreTerminatingPod: true}",
            QuotaOptions(terminating_use=TerminatingUse.NOT),
        ),
    ],
)
def test_quotas_count_on_the_command_line_as_they_do_for_the_leader(section, options) -> None:
    said = report(f"elasticQuota: {section}\n")
    assert not said.compat
    assert find_quota_options(said, ()) == options


def test_compat_is_reported() -> None:
    assert report("compat: koordinator\n").compat


@pytest.mark.parametrize("statuses", [(), ({"guaranteed": {"cpu": "1"}},)])
@pytest.mark.parametrize("said", [None, LeaderReport(version="1")])
def test_a_leader_that_says_nothing_of_quotas_is_judged_by_their_statuses(said, statuses) -> None:
    assert find_quota_options(said, statuses).guarantees_usage == bool(statuses)
