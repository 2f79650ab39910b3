"""What users read about quotas: refusals of units, and what is wrong with an ElasticQuota.

A part of ``messages``, which see. Koordinator's words stand in brackets, with its way of writing
amounts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from koord.core import reasons as r
from koord.core.quota.conditions import Finding, QuotaCondition
from koord.core.quota.hooks import Hooks
from koord.core.quota.overuse import Overuse
from koord.core.quota.spec_errors import InvalidQuota, QuotaFault
from koord.core.units import format_amount

_Amounts = tuple[tuple[str, int], ...]


def insufficient_entitlement(reason: r.InsufficientEntitlement) -> str:
    """Say that the fair share is used up."""
    way_out = _offered(reason) or "it gets more when other quotas want less or nodes are added"
    return (
        f"quota {reason.quota} is entitled to {_short(reason)}; {way_out} ({_insufficient(reason)})"
    )


def insufficient_max(reason: r.InsufficientMax) -> str:
    """Say that max would be exceeded."""
    is_waiting_in_vain = any(
        one.asked > one.limit or (one.offered is not None and one.asked > one.offered)
        for one in reason.shortages
    )
    way_out = "raise its max"
    offered = _offered(reason)
    if offered:
        way_out = f"{way_out}, which does not help alone: {offered}"
    if not is_waiting_in_vain:
        way_out = f"wait for its own pods to end, or {way_out}"
    return f"quota {reason.quota} may use {_short(reason)}; {way_out} ({_insufficient(reason)})"


def ancestor_insufficient(reason: r.AncestorInsufficient) -> str:
    """Say which quota above has not enough."""
    topo = " ".join(reason.topo)
    way_out = _offered(reason) or "wait for pods below it to end, or raise its min or max"
    return (
        f"quota {reason.quota}, above {reason.topo[-1]}, may use {_short(reason)}; {way_out} "
        f"(Insufficient quotas, quotaNameTopo: [{topo}], {_details(reason)})"
    )


def non_preemptible_over_min(reason: r.NonPreemptibleOverMin) -> str:
    """Say that what must not be evicted would exceed min."""
    return (
        f"pods of quota {reason.quota} that must not be evicted may use {_short(reason)}, its min; "
        "raise its min, or let these be evicted: label them preemptible: true "
        f"(Insufficient non-preemptible quotas, quotaName: {reason.quota}, "
        f"min: {_write(reason.limit)}, nonPreemptibleUsed: {_write(reason.used)}, "
        f"pod's request: {_write(reason.request)}, exceedDimensions: [{_keys(reason)}])"
    )


def quota_check_failed(reason: r.QuotaCheckFailed) -> str:
    """Say whose check it was."""
    return f"CheckPod failed for hook plugin {reason.check}, err: {reason.error}"


def quota_is_parent(reason: r.QuotaIsParent) -> str:
    """Say that pods must name a quota below."""
    return (
        f"quota {reason.quota} is a parent and takes no pods; label the pods with one of the "
        f"quotas below it (pod can not be linked to a parentQuotaGroup,quota:{reason.quota})"
    )


def quota_not_in_force(reason: r.QuotaNotInForce) -> str:
    """Say why the pods' quota is not known."""
    return f"quota {reason.problem.quota} is not in force: {write_fault(reason.problem)}"


def submission_exceeded(reason: r.SubmissionExceeded) -> str:
    """Say that more was submitted than may wait and run."""
    parts = [("requested", "asked"), ("used", "used"), ("limited", "limit")]
    lists = (
        f"{word}: "
        + ",".join(
            f"{short.resource}={format_amount(short.resource, getattr(short, name))}"
            for short in reason.shortages
            if name != "used" or short.used
        )
        for word, name in parts
    )
    koordinators = f"exceeded quota: {reason.quota}, {', '.join(lists)}"
    return (
        f"to quota {reason.quota} may be submitted {_short(reason)}; wait for its own pods to end, "
        f"or raise its admission ({koordinators})"
    )


def write_fault(problem: InvalidQuota) -> str:
    """Write what is wrong with a quota, and the way out."""
    return _FAULTS[problem.fault].format(
        quota=problem.quota,
        other=problem.other,
        key=problem.key,
        value=_amount(problem, problem.value),
        limit=_amount(problem, problem.limit),
        text=problem.text,
        count=problem.value,
    )


def write_finding(finding: Finding, revoke: str = "") -> str:
    """Write a condition of a quota; ``revoke`` is what becomes of over-use (``write_revoke``)."""
    if finding.problem is not None:
        return write_fault(finding.problem)
    if finding.over:
        return "; ".join(filter(None, (write_overuse(finding.over), revoke)))
    amounts = ", ".join(f"{format_amount(key, n)} {key}" for key, n in finding.amounts)
    holds, absent = _FINDINGS[finding.kind]
    return holds.format(amounts=amounts) if finding.holds else absent


def write_failed_hooks(hooks: Hooks) -> str:
    """Write which hooks failed since the start, and how at last."""
    failed = "; ".join(
        f"hook {name} failed in {operation} ({failure.last})"
        for (name, operation), failure in sorted(hooks.failures.items())
    )
    return f"{failed}: what it checks is let through" if failed else "no hook has failed"


def write_overuse(over: Sequence[Overuse]) -> str:
    """Write what a quota uses too much of."""
    uses = "; ".join(
        f"{format_amount(one.resource, one.used)} {one.resource} and is entitled to "
        f"{format_amount(one.resource, one.entitled)}"
        for one in over
    )
    used = _write(tuple((one.resource, one.used) for one in over))
    runtime = _write(tuple((one.resource, one.entitled) for one in over))
    return f"quota {over[0].quota} uses {uses} (runtime: {runtime}, used: {used})"


def write_revoke(delay: float | None) -> str:
    """Write what becomes of over-use that lasts for ``delay`` seconds; None if nothing does."""
    if delay is None:
        return (
            "it gets no more until it uses less; none of its pods is evicted for it: that takes "
            "elasticQuota.monitorAllQuotas and enableRuntimeQuota"
        )
    return (
        f"it gets no more until it uses less; whenever that has lasted for {delay:g}s, pods of it "
        "are evicted if something that waits is entitled to what they use and could then start, "
        "or if its max is exceeded; those labelled preemptible=false stay"
    )


def _amount(problem: InvalidQuota, amount: int) -> str:
    return format_amount(problem.key, amount)


def _short(reason: r.QuotaExceeded | r.SubmissionExceeded) -> str:
    """Write ``8 nvidia.com/gpu, uses 6 and is asked for 4 more``, for each resource."""
    return "; ".join(
        f"{format_amount(one.resource, one.limit)} {one.resource}, uses "
        f"{format_amount(one.resource, one.used)} and is asked for "
        f"{format_amount(one.resource, one.asked)} more"
        for one in reason.shortages
    )


def _offered(reason: r.QuotaExceeded) -> str:
    """Say that the nodes offer too little, whatever quotas say; empty if they offer enough."""
    scarce = ", ".join(
        f"{format_amount(one.resource, max(one.offered, 0))} {one.resource}"
        for one in reason.shortages
        if one.offered is not None
    )
    return scarce and f"the nodes that quotas share offer {scarce} in all: add nodes"


def _insufficient(reason: r.QuotaExceeded) -> str:
    return f"Insufficient quotas, quotaName: {reason.quota}, {_details(reason)}"


def _details(reason: r.QuotaExceeded) -> str:
    return (
        f"runtime: {_write(reason.limit)}, used: {_write(reason.used)}, "
        f"pod's request: {_write(reason.request)}, exceedDimensions: [{_keys(reason)}]"
    )


def _keys(reason: r.QuotaExceeded) -> str:
    return " ".join(one.resource for one in reason.shortages)


def _write(amounts: _Amounts) -> str:
    texts = ",".join(f"{key}:{format_amount(key, amount)}" for key, amount in amounts)
    return texts or "<empty>"


TEXTS: Final[Mapping[type[r.Reason], Callable[[Any], str]]] = {
    r.InsufficientEntitlement: insufficient_entitlement,
    r.InsufficientMax: insufficient_max,
    r.AncestorInsufficient: ancestor_insufficient,
    r.NonPreemptibleOverMin: non_preemptible_over_min,
    r.QuotaCheckFailed: quota_check_failed,
    r.QuotaIsParent: quota_is_parent,
    r.QuotaNotInForce: quota_not_in_force,
    r.SubmissionExceeded: submission_exceeded,
}

_FINDINGS: Final[Mapping[QuotaCondition, tuple[str, str]]] = {
    QuotaCondition.READY: ("the quota is in force", "the quota is not in force"),
    QuotaCondition.CONFIG_INVALID: ("", "what is written is in force"),
    QuotaCondition.BORROWING: (
        "uses {amounts} beyond what it is guaranteed",
        "uses no more than it is guaranteed",
    ),
    QuotaCondition.LENDING: (
        "does not ask for {amounts} of what it is guaranteed; others may use that meanwhile",
        "asks for all that it is guaranteed, or lends nothing",
    ),
    QuotaCondition.OVER_ENTITLEMENT: (
        "",
        "uses no more than it is entitled to",
    ),
    QuotaCondition.MIN_SCALED: (
        "is guaranteed {amounts} less than its min: there is less than is guaranteed in all",
        "is guaranteed its min",
    ),
    QuotaCondition.UNMANAGED_USAGE: (
        "{amounts} are used by pods that others placed without asking; gate such pods",
        "its pods were placed here",
    ),
}
"""What is said of a condition that holds, and of one that does not."""

_FAULTS: Final[Mapping[QuotaFault, str]] = {
    QuotaFault.ALREADY_EXISTS: "another ElasticQuota is called {quota}; names are unique in the "
    "cluster: rename one",
    QuotaFault.NAMESPACE_BOUND: "annotation namespaces: {key} already belongs to quota {other}; "
    "take it out of one of the two",
    QuotaFault.PROTECTED: "{quota} is built in and cannot be changed",
    QuotaFault.NOT_FOUND: "there is no quota {quota}",
    QuotaFault.NEGATIVE_MAX: "max of {key} is {value}; it must not be negative",
    QuotaFault.NEGATIVE_MIN: "min of {key} is {value}; it must not be negative",
    QuotaFault.INVALID_SHARED_WEIGHT: "annotation {key} is no list of amounts, none negative: "
    '{text}; write it like {{"cpu":"40","memory":"40Gi"}}',
    QuotaFault.NEGATIVE_SHARED_WEIGHT: "the shared weight of {key} is {value}; it must not be "
    "negative",
    QuotaFault.MIN_KEY_NOT_IN_MAX: "min names {key} and max does not; name it in max, too",
    QuotaFault.MIN_EXCEEDS_MAX: "min of {key} is {value}, above max {limit}; raise max or "
    "lower min",
    QuotaFault.INVALID_ANNOTATION: "annotation {key} cannot be read: {text}; docs/quota.md shows "
    "its form",
    QuotaFault.INVALID_STRICT_KEYS: "annotation {key} is no list of resources: {text}; write it "
    'like ["cpu","memory"]',
    QuotaFault.STRICT_KEY_NOT_IN_MAX: "{limit} of {key} are used and max does not name it, "
    "although it is to be checked strictly; name it there, or take it out of the annotation "
    "max-strict-check-resource-keys",
    QuotaFault.MAX_BELOW_USED: "max of {key} is {value}, below the {limit} in use, although it is "
    "to be checked strictly; raise it, or end pods first",
    QuotaFault.IS_PARENT_HAS_CHILDREN: "it has children, {other} among them, and must stay a "
    'parent; move them first, or put the label is-parent "true" back',
    QuotaFault.IS_PARENT_HAS_PODS: "it has pods and cannot become a parent; move them to another "
    "quota first",
    QuotaFault.TREE_ID_CHANGED: 'label tree-id is "{key}", and the tree of a quota does not '
    'change; put back "{text}", or make another quota',
    QuotaFault.TREE_ID_MISMATCH_PARENT: 'label tree-id is "{key}", and its parent {other} is in '
    'tree "{text}"; write that, or name another parent',
    QuotaFault.TREE_ID_MISMATCH_CHILD: 'label tree-id is "{key}", and its child {other} is in '
    'tree "{text}"; write that, or move the child',
    QuotaFault.PARENT_NOT_FOUND: "its parent {other} does not exist, or is not in force itself; "
    "create or correct that one, or name another in the label parent",
    QuotaFault.PARENT_NOT_PARENT: "its parent {other} takes no children; label that one with "
    'is-parent "true"',
    QuotaFault.CYCLE: "its parent {other} is below itself; name another in the label parent",
    QuotaFault.KEYS_NOT_SAME: "max of it and of {other} do not name the same resources: {key}; "
    "name it in both",
    QuotaFault.MAX_KEYS_NOT_INCLUDED: "max names {key}, which is not in the max above it "
    "({other}); name it there, too, or take it out",
    QuotaFault.MIN_KEYS_NOT_INCLUDED: "min names {key}, which is not in the min above it "
    "({other}); name it there, too, or take it out",
    QuotaFault.SIBLING_MIN_SUM_EXCEEDS_PARENT: "min of {key} adds up to {value} below {other}, "
    "which is guaranteed {limit}; raise the min of {other}, or lower one below it",
    QuotaFault.CHILD_MIN_SUM_EXCEEDS_MIN: "min of {key} of its children adds up to {value}, above "
    "its own {limit}; raise that, or lower theirs first",
    QuotaFault.GUARANTEE_UNSATISFIABLE: "the root of its tree, {other}, can guarantee {limit} of "
    "{key}, not {value}; raise the min of that, or lower this one",
    QuotaFault.HAS_CHILD_QUOTAS: "it has {count} child quotas, {other} among them",
    QuotaFault.HAS_PODS: "pods are labelled with it",
    QuotaFault.INTERNAL_ERROR: "a defect of the operators keeps it from being checked ({text}); "
    "what was valid last stays in force; report it, with the operators' log",
}
