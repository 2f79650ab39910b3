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
    QuotaNotAllowed,
    QuotaNotInForce,
    QuotaShortage,
    QuotaUnknown,
    SubmissionExceeded,
)
from koord.core.quota.spec_errors import _TEXTS, InvalidQuota, QuotaProblem

if TYPE_CHECKING:
    from koord.core.model.reasons import Reason

GPU = "nvidia.com/gpu"
NUMBERS = (
    (QuotaShortage(GPU, 8, 6, 4),),
    (("cpu", 1500), (GPU, 8)),
    ((GPU, 6),),
    ((GPU, 4),),
)

EXPECTED = [
    (
        InsufficientEntitlement(("team",), *NUMBERS),
        (
            "quota team is entitled to 8 nvidia.com/gpu, uses 6 and needs 4 more; its share "
            "grows when other quotas request less or nodes are added (Insufficient quotas, "
            "quotaName: team, runtime: cpu:1500m,nvidia.com/gpu:8, used: nvidia.com/gpu:6, "
            "pod's request: nvidia.com/gpu:4, exceedDimensions: [nvidia.com/gpu])"
        ),
    ),
    (
        InsufficientMax(("team",), *NUMBERS),
        (
            "quota team may use at most 8 nvidia.com/gpu, uses 6 and needs 4 more; wait for "
            "its own pods to finish, or ask the administrators to raise its max "
            "(Insufficient quotas, quotaName: team, "
            "runtime: cpu:1500m,nvidia.com/gpu:8, used: nvidia.com/gpu:6, pod's request: "
            "nvidia.com/gpu:4, exceedDimensions: [nvidia.com/gpu])"
        ),
    ),
    (
        AncestorInsufficient(("org", "team"), *NUMBERS),
        (
            "quota org, above team, may use at most 8 nvidia.com/gpu, uses 6 and needs 4 more; "
            "wait for pods below it to finish, or ask the administrators to raise its min or "
            "max (Insufficient quotas, "
            "quotaNameTopo: [org team], runtime: cpu:1500m,nvidia.com/gpu:8, used: "
            "nvidia.com/gpu:6, pod's request: nvidia.com/gpu:4, exceedDimensions: "
            "[nvidia.com/gpu])"
        ),
    ),
    (
        NonPreemptibleOverMin(("team",), *NUMBERS),
        (
            "for non-preemptible pods quota team may use at most its min: 8 nvidia.com/gpu, "
            "uses 6 and needs 4 more; label the pods preemptible: true, or ask the "
            "administrators to raise its min "
            "(Insufficient non-preemptible quotas, quotaName: team, min: "
            "cpu:1500m,nvidia.com/gpu:8, nonPreemptibleUsed: nvidia.com/gpu:6, pod's request: "
            "nvidia.com/gpu:4, exceedDimensions: [nvidia.com/gpu])"
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
        QuotaNotInForce(InvalidQuota(QuotaProblem.PARENT_NOT_FOUND, "team", other="org")),
        (
            "quota team is not active: its parent org does not exist, or is itself not active; "
            "create or correct it, or name another in the label parent"
        ),
    ),
    (
        QuotaNotAllowed("team", "q", "dev", ("q", "lab", "ops"), ("ops",)),
        (
            "pods of namespace dev may not use quota q/team, only those of q, lab, ops may; name "
            "another quota in the label quota.scheduling.koordinator.sh/name, or remove the label, "
            "or ask its owner to share it: kubectl annotate elasticquota -n q team --overwrite "
            """operators.koordinator.sh/shared-with='["ops","dev"]'"""
        ),
    ),
    (
        QuotaNotAllowed("koordinator-system-quota", "", "dev", ("kube-system",)),
        (
            "pods of namespace dev may not use quota koordinator-system-quota, only those of "
            "kube-system may; name another quota in the label "
            "quota.scheduling.koordinator.sh/name, or remove the label, or ask the "
            "administrators to add dev to their setting elasticQuota.builtInNamespaces"
        ),
    ),
    (
        QuotaUnknown("taem", "dev", ("ops", "team")),
        (
            "there is no quota taem, which the label quota.scheduling.koordinator.sh/name names; "
            "pods of namespace dev may name ops, team, or ask the administrators to create it "
            "(elastic quota taem not found)"
        ),
    ),
    (
        QuotaCheckFailed("budget", "no money"),
        "CheckPod failed for hook plugin budget, err: no money",
    ),
    (
        SubmissionExceeded(
            "q/team", (QuotaShortage("kubernetes.io/batch-memory", 4 << 30, 0, 8 << 30),)
        ),
        (
            "quota q/team admits at most 4Gi kubernetes.io/batch-memory, uses 0 and needs 8Gi "
            "more; wait for its own pods to finish, or ask the administrators to raise its "
            "admission limit "
            "(exceeded quota: q/team, requested: kubernetes.io/batch-memory=8Gi, used: , "
            "limited: kubernetes.io/batch-memory=4Gi)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("reason", "text"),
    EXPECTED,
    ids=[f"{at}-{reason.code}" for at, (reason, _) in enumerate(EXPECTED)],
)
def test_texts(reason: Reason, text: str) -> None:
    """The last words, in brackets, are upstream's: they are written for ``compat`` only."""
    assert reason.text(compat=True) == text
    assert reason.text() == text.removesuffix(f" ({reason.upstream()})")


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        (InsufficientEntitlement, "needs 4 more; the nodes that quotas share have"),
        (
            InsufficientMax,
            (
                "ask the administrators to raise its max, which is not enough by itself: the "
                "nodes that"
            ),
        ),
        (AncestorInsufficient, "needs 4 more; the nodes that quotas share have"),
    ],
)
def test_a_shortage_of_capacity_is_named(reason, part: str) -> None:
    text = reason(("team",), (QuotaShortage(GPU, 0, 0, 4, 0),), (), (), ()).text()
    assert part in text
    assert "have only 0 nvidia.com/gpu: ask the administrators to add nodes" in text


def test_waiting_for_own_pods_helps_if_the_unit_alone_fits() -> None:
    shortage = QuotaShortage(GPU, limit=14, used=12, requested=8, offered=14)
    text = InsufficientMax(("team",), (shortage,), (), (), ()).text()
    assert (
        "wait for its own pods to finish, or ask the administrators to raise its max, "
        "which is not enough by itself: "
        "the nodes that quotas share have only 14 nvidia.com/gpu: ask the administrators "
        "to add nodes"
    ) in text


def test_zero_usage_is_formatted_as_by_koordinator() -> None:
    reason = InsufficientMax(("team",), NUMBERS[0], (), (), NUMBERS[3])
    assert "runtime: <empty>, used: <empty>" in reason.text(compat=True)


@pytest.mark.parametrize("fault", QuotaProblem)
def test_every_fault_has_a_text_with_its_details(fault: QuotaProblem) -> None:
    assert set(_TEXTS) == set(QuotaProblem)
    text = InvalidQuota(fault, "team", "other", "cpu", 1500, 1000, "{text}").describe()
    assert "{value}" not in text
    assert "{key}" not in text


def test_a_fault_names_object_key_value_and_limit() -> None:
    fault = InvalidQuota(QuotaProblem.MIN_EXCEEDS_MAX, "team", key="cpu", value=1500, limit=1000)
    assert fault.describe() == "min of cpu is 1500m, above max 1; raise max or lower min"
