"""Texts about quotas: numbers and names first, Koordinator's words in brackets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from koord.core.quota.reasons import (
    AncestorInsufficient,
    InsufficientEntitlement,
    InsufficientMax,
    NonPreemptibleOverMin,
    QuotaCheckFailed,
    QuotaIsParent,
    QuotaNotInForce,
    QuotaShortage,
    SubmissionExceeded,
)
from koord.core.quota.spec_errors import _FAULTS, InvalidQuota, QuotaFault

if TYPE_CHECKING:
    from koord.core.reasons import Reason

GPU = "nvidia.com/gpu"
NUMBERS = (
    (QuotaShortage(GPU, 8, 6, 4),),
    (("cpu", 1500), (GPU, 8)),
    ((GPU, 6),),
    ((GPU, 4),),
)
DETAILS = (
    "runtime: cpu:1500m,nvidia.com/gpu:8, used: nvidia.com/gpu:6, "
    "pod's request: nvidia.com/gpu:4, exceedDimensions: [nvidia.com/gpu]"
)
SHORT = "8 nvidia.com/gpu, uses 6 and is asked for 4 more"

EXPECTED = [
    (
        InsufficientEntitlement(("team",), *NUMBERS),
        (
            f"quota team is entitled to {SHORT}; it gets more when other quotas want less or nodes "
            f"are added (Insufficient quotas, quotaName: team, {DETAILS})"
        ),
    ),
    (
        InsufficientMax(("team",), *NUMBERS),
        (
            f"quota team may use {SHORT}; wait for its own pods to end, or raise its max "
            f"(Insufficient quotas, quotaName: team, {DETAILS})"
        ),
    ),
    (
        AncestorInsufficient(("org", "team"), *NUMBERS),
        (
            f"quota org, above team, may use {SHORT}; wait for pods below it to end, or raise its "
            f"min or max (Insufficient quotas, quotaNameTopo: [org team], {DETAILS})"
        ),
    ),
    (
        NonPreemptibleOverMin(("team",), *NUMBERS),
        (
            f"pods of quota team that must not be evicted may use {SHORT}, its min; raise its min, "
            "or let these be evicted: label them preemptible: true (Insufficient "
            "non-preemptible quotas, quotaName: team, min: cpu:1500m,nvidia.com/gpu:8, "
            "nonPreemptibleUsed: nvidia.com/gpu:6, pod's request: nvidia.com/gpu:4, "
            "exceedDimensions: [nvidia.com/gpu])"
        ),
    ),
    (
        QuotaIsParent("org"),
        (
            "quota org is a parent and takes no pods; label the pods with one of the quotas below "
            "it (pod can not be linked to a parentQuotaGroup,quota:org)"
        ),
    ),
    (
        QuotaNotInForce(InvalidQuota(QuotaFault.PARENT_NOT_FOUND, "team", other="org")),
        (
            "quota team is not in force: its parent org does not exist, or is not in force itself; "
            "create or correct that one, or name another in the label parent"
        ),
    ),
    (
        QuotaCheckFailed("budget", "no money"),
        "CheckPod failed for hook plugin budget, err: no money",
    ),
    (
        SubmissionExceeded("q/team", (QuotaShortage("memory", 4 << 30, 0, 8 << 30),)),
        (
            "to quota q/team may be submitted 4Gi memory, uses 0 and is asked for 8Gi more; wait "
            "for its own pods to end, or raise its admission "
            "(exceeded quota: q/team, requested: memory=8Gi, used: , limited: memory=4Gi)"
        ),
    ),
]


@pytest.mark.parametrize(("reason", "text"), EXPECTED, ids=[one.code for one, _ in EXPECTED])
def test_texts(reason: Reason, text: str) -> None:
    assert reason.text() == text


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        (InsufficientEntitlement, "asked for 4 more; the nodes that quotas share offer"),
        (InsufficientMax, "raise its max, which does not help alone: the nodes that quotas"),
        (AncestorInsufficient, "asked for 4 more; the nodes that quotas share offer"),
    ],
)
def test_a_shortage_of_capacity_is_named(reason, part: str) -> None:
    text = reason(("team",), (QuotaShortage(GPU, 0, 0, 4, 0),), (), (), ()).text()
    assert part in text
    assert "offer 0 nvidia.com/gpu in all: add nodes" in text


def test_own_pods_that_end_are_a_way_out_where_the_nodes_offer_enough_for_one_more() -> None:
    shortage = QuotaShortage(GPU, limit=14, used=12, asked=8, offered=14)
    text = InsufficientMax(("team",), (shortage,), (), (), ()).text()
    assert (
        "wait for its own pods to end, or raise its max, which does not help alone: the nodes "
        "that quotas share offer 14 nvidia.com/gpu in all: add nodes"
    ) in text


def test_zero_usage_is_formatted_as_by_koordinator() -> None:
    reason = InsufficientMax(("team",), NUMBERS[0], (), (), NUMBERS[3])
    assert "runtime: <empty>, used: <empty>" in reason.text()


@pytest.mark.parametrize("fault", QuotaFault)
def test_every_fault_has_a_text_with_its_details(fault: QuotaFault) -> None:
    assert set(_FAULTS) == set(QuotaFault)
    text = InvalidQuota(fault, "team", "other", "cpu", 1500, 1000, "{text}").describe()
    assert "{value}" not in text
    assert "{key}" not in text


def test_a_fault_names_object_key_value_and_limit() -> None:
    fault = InvalidQuota(QuotaFault.MIN_EXCEEDS_MAX, "team", key="cpu", value=1500, limit=1000)
    assert fault.describe() == "min of cpu is 1500m, above max 1; raise max or lower min"
