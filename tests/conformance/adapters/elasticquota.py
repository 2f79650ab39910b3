"""Adapters for ElasticQuota: cases as values of the core, with the rules of Koordinator."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import compress
from typing import TYPE_CHECKING, Any

import msgspec
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.conformance.cases import UnsupportedCaseError
from tests.conformance.compare import IGNORED, Exact
from tests.objects import upsert_quota
from tests.quota.trees import Level, scale_level, share_level

from koord.api.keys import quota as keys
from koord.core.eviction.model import Preemption
from koord.core.eviction.reasons import PreemptionNever, WaitsForTermination
from koord.core.eviction.search import plan_preemption
from koord.core.model.budgets import Budget, split_by_budgets
from koord.core.model.nodes import Node, Taint
from koord.core.model.plan import Demand, Unit
from koord.core.model.pod_requests import InitContainer, effective_requests
from koord.core.model.pods import PodPhase, PodShape
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.model.units import format_amount
from koord.core.quota import validation
from koord.core.quota.admission import (
    Balance,
    check_ancestor,
    check_limit,
    check_non_preemptible,
    check_submission,
    find_blocking_reason,
    try_charge,
)
from koord.core.quota.catalog import fill_in
from koord.core.quota.ledger import Account, Ledger
from koord.core.quota.model import (
    BUILT_IN,
    DEFAULT,
    KOORDINATOR,
    ROOT,
    SYSTEM,
    QuotaCharge,
    QuotaOptions,
    QuotaRules,
    QuotaSpec,
    Usage,
    add_up,
    is_counted,
    shared_out,
    tree_totals,
)
from koord.core.quota.profile import (
    QuotaProfile,
    make_root_quota,
    make_tree_id,
    restrict_terms,
)
from koord.core.quota.reclaim import RunningUnit, choose_victims
from koord.core.quota.registry import ActiveQuotas, Facts, PodQuotaKey, find_quota, takes_pods
from koord.core.quota.solve import ShareInput, Solution, solve
from koord.core.quota.spec_errors import InvalidQuota, QuotaProblem
from koord.core.quota.status import Summary, is_current, measure, recorded, summarise
from koord.core.quota.tree import make_tree
from koord.core.quota.usage import PodUse, UsageTracker, sum_pods
from koord.core.quota.validation import check_spec
from koord.kube.quota_objects import make_body
from koord.kube.translate.quotas import translate_quota
from koord.kube.wire import WireCustomResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.builders import PodBuilder

    from koord.core.engine.state import ClusterState
    from koord.core.model.reasons import Reason

Fields = dict[str, Any]

ERROR_KINDS = {
    QuotaProblem.ALREADY_EXISTS: "QuotaAlreadyExists",
    QuotaProblem.NEGATIVE_MAX: "MaxNegative",
    QuotaProblem.NEGATIVE_MIN: "MinNegative",
    QuotaProblem.NEGATIVE_SHARED_WEIGHT: "SharedWeightNegative",
    QuotaProblem.STRICT_KEY_NOT_IN_MAX: "UsedKeyNotInMax",
    QuotaProblem.TREE_ID_MISMATCH_PARENT: "TreeIDMismatch",
    QuotaProblem.TREE_ID_MISMATCH_CHILD: "TreeIDMismatch",
    QuotaProblem.KEYS_NOT_SAME: "MaxKeysMismatch",
    QuotaProblem.SIBLING_MIN_SUM_EXCEEDS_PARENT: "SiblingsMinExceedParentMin",
    QuotaProblem.CHILD_MIN_SUM_EXCEEDS_MIN: "ChildrenMinExceedMin",
    QuotaProblem.NAMESPACE_BOUND: "NamespaceAlreadyBound",
    QuotaProblem.PROTECTED: "ForbiddenQuota",
    QuotaProblem.NOT_FOUND: "QuotaNotFound",
    QuotaProblem.PARENT_NOT_PARENT: "ParentNotIsParent",
    QuotaProblem.IS_PARENT_HAS_CHILDREN: "HasChildren",
    QuotaProblem.IS_PARENT_HAS_PODS: "HasBoundPods",
}
"""Our codes -> codes of the cases, where they differ."""

REASONS = {
    "InsufficientEntitlement": "InsufficientQuota",
    "InsufficientMax": "InsufficientQuota",
    "RequestAboveMax": "InsufficientQuota",
    "NonPreemptibleOverMin": "InsufficientNonPreemptibleQuota",
}


def make_spec(quota: Mapping[str, Any]) -> QuotaSpec:
    """Read a quota with our decoder, from the object that a case is about."""
    labels = {
        keys.PARENT: quota.get("parent"),
        keys.TREE_ID: quota.get("treeId"),
        keys.IS_PARENT: quota.get("isParent"),
        keys.ALLOW_LENT_RESOURCE: quota.get("allowLent"),
        keys.IS_ROOT: quota.get("isRoot"),
        keys.ALLOW_FORCE_UPDATE: quota.get("allowForceUpdate"),
    }
    annotations = {
        keys.SHARED_WEIGHT: _write(quota.get("sharedWeight")),
        keys.ADMISSION: _write(quota.get("admission")),
        keys.NAMESPACES: quota.get("namespaces"),
        keys.MAX_STRICT_CHECK_RESOURCE_KEYS: quota.get("maxStrictCheckResourceKeys"),
    }
    manifest = {
        "metadata": {
            "name": quota.get("name", ""),
            "namespace": quota.get("namespace", ""),
            "labels": {
                key: str(value).lower() if isinstance(value, bool) else value
                for key, value in labels.items()
                if value is not None
            },
            "annotations": {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in annotations.items()
                if value is not None
            },
        },
        "spec": {"min": _write(quota.get("min")), "max": _write(quota.get("max"))},
    }
    wire = msgspec.json.decode(json.dumps(manifest), type=WireCustomResource)
    return translate_quota(wire)


def _write(amounts: Any) -> Any:
    """Write amounts in the units of the cases as quantities; what is none stays as it is."""
    if not isinstance(amounts, dict):
        return amounts
    return {
        key: format_amount(key, amount) if isinstance(amount, int) else amount
        for key, amount in amounts.items()
    }


def make_rules(options: Mapping[str, bool] | None) -> QuotaRules:
    options = options or {}
    return replace(
        KOORDINATOR,
        scales_min=options.get("scaleMin", KOORDINATOR.scales_min),
        guarantees_usage=options.get("guaranteeUsage", False),
        has_default_quota=not options.get("disableDefaultQuota", False),
        spares_default_quota=options.get("disableDefaultQuotaPreemption", True),
    )


def make_usage(quota: Mapping[str, Any]) -> Usage:
    return Usage(
        submitted=quota.get("selfRequest") or {},
        demand=quota.get("selfRequest") or {},
        used=quota.get("selfUsed") or {},
        non_preemptible_demand=quota.get("selfNonPreemptibleRequest") or {},
        non_preemptible_used=quota.get("selfNonPreemptibleUsed") or {},
    )


def make_solution(case: Mapping[str, Any], usage: Mapping[str, Usage] | None = None) -> Solution:
    tree = make_tree(make_spec(quota) for quota in case["quotas"])
    if usage is None:
        usage = {quota["name"]: make_usage(quota) for quota in case["quotas"]}
    total = shared_out(
        case["total"], add_up((case.get("systemUsed") or {}, case.get("defaultUsed") or {}))
    )
    return solve(ShareInput(tree, total, usage, make_rules(case.get("options"))))


def adapt_runtime_level(case: Mapping[str, Any]) -> Fields:
    nodes = sorted(case["nodes"], key=lambda node: node["name"])
    level = Level(
        floors=[max(node["min"], node.get("guarantee", 0)) for node in nodes],
        wants=[node["request"] for node in nodes],
        weights=[node["sharedWeight"] for node in nodes],
        lends=[node["allowLent"] for node in nodes],
    )
    shares = share_level(case["total"], level)
    names = [node["name"] for node in nodes]
    return {
        "runtime": dict(zip(names, shares, strict=True)),
        "properties": {
            "sum_runtime": sum(shares),
            "each_borrower_at_least_min": all(
                share >= node["min"]
                for share, node in zip(shares, nodes, strict=True)
                if node["request"] > node["min"]
            ),
            **dict(zip(names, shares, strict=True)),
        },
    }


def adapt_runtime_tree(case: Mapping[str, Any]) -> Fields:
    solution = make_solution(case)
    ledger = Ledger([solution], solution.inputs.rules)
    names, own = ledger.names(), solution.inputs.usage
    return {
        "runtime": {name: solution.share(name) for name in names},
        "autoScaleMin": {name: solution.minimum(name) for name in names},
        "request": {name: solution.request(name) for name in (*names, ROOT)},
        "childRequest": {name: solution.child_request(name) for name in names},
        "limitedRequest": {name: solution.limited(name) for name in names},
        "used": {name: ledger.account(name).used for name in names},
        "nonPreemptibleRequest": dict(solution.non_preemptible_demand_with_children),
        "nonPreemptibleUsed": {name: ledger.account(name).non_preemptible_used for name in names},
        "allocated": {name: solution.allocated(name) for name in names},
        "guaranteed": {name: solution.guaranteed(name) for name in names},
        "selfRequest": {name: one.submitted for name, one in own.items()},
        "selfUsed": {name: one.used for name, one in own.items()},
        "selfNonPreemptibleRequest": {
            name: one.non_preemptible_demand for name, one in own.items()
        },
        "selfNonPreemptibleUsed": {name: one.non_preemptible_used for name, one in own.items()},
    }


def adapt_root_totals(case: Mapping[str, Any]) -> Fields:
    if "defaultMax" in case:
        return {"defaultRuntime": case["defaultMax"]}
    solution = make_solution({"quotas": [], **case})
    root = {
        "Request": solution.child_request(ROOT),
        "Used": {key: rows[0] for key, rows in solution.used_with_children.items()},
        "NonPreemptibleRequest": solution.non_preemptible_demand_with_children.get(ROOT, {}),
        "NonPreemptibleUsed": solution.non_preemptible_used_with_children.get(ROOT, {}),
    }
    outside = {
        field: [case.get(f"{name}{field}") or {} for name in ("system", "default")]
        for field in root
    }
    return {
        **{f"root{field}": add_up((own, *outside[field])) for field, own in root.items()},
        "rootRuntime": solution.inputs.total,
        "totalExceptSystemAndDefaultUsed": solution.inputs.total,
    }


def adapt_node_totals(case: Mapping[str, Any]) -> Fields:
    nodes: dict[str, Node] = {}
    for event, name, *allocatable in case["events"]:
        if event == "delete":
            nodes.pop(name, None)
        else:
            nodes[name] = Node(
                name, allocatable=allocatable[0], is_terminating=event == "add-deleting"
            )
    counted = (node.allocatable for node in nodes.values() if is_counted(node, KOORDINATOR))
    return {"total": Exact(add_up(counted))}


def adapt_tree_capacity(case: Mapping[str, Any]) -> Fields:
    roots = [
        QuotaSpec(
            name=root["treeId"],
            tree_id=root["treeId"],
            is_tree_root=True,
            ignores_default_tree=root["ignoreDefaultTree"],
            total=root["totalResource"],
        )
        for root in case["treeRoots"]
    ]
    return {"treeTotals": tree_totals(add_up(case["nodesAllocatable"]), roots)}


def adapt_scale_min(case: Mapping[str, Any]) -> Fields:
    children = case["children"]
    scaled: dict[str, Any] = {
        child["name"]: {} if child["scalable"] else None for child in children
    }
    scalable = [child["scalable"] for child in children]
    for key in sorted({key for child in children for key in child["min"]}):
        minimum = [child["min"].get(key, 0) for child in children]
        if key in case["total"]:
            minimum = scale_scalable(case["total"][key], minimum, scalable)
        for child, amount in zip(children, minimum, strict=True):
            if child["scalable"]:
                scaled[child["name"]][key] = amount
    return {"scaledMin": scaled}


def scale_scalable(total: int, minimum: list[int], scalable: list[bool]) -> list[int]:
    """Scale some guarantees to what the others leave."""
    left = max(0, total - sum(n for n, scales in zip(minimum, scalable, strict=True) if not scales))
    elastic = iter(scale_level(left, [*compress(minimum, scalable)]) if any(scalable) else ())
    return [next(elastic) if scales else n for n, scales in zip(minimum, scalable, strict=True)]


def say(fault: InvalidQuota | None) -> Fields:
    kind = None if fault is None else ERROR_KINDS.get(fault.rule, fault.rule.value)
    return {"allowed": fault is None, "errorKind": kind, "httpCode": 400, "message": IGNORED}


def adapt_validation_self(case: Mapping[str, Any]) -> Fields:
    return say(check_spec(make_spec(case["quota"]), case["quota"].get("used") or {}))


def make_edit(case: Mapping[str, Any]) -> validation.QuotaEdit:
    others = [case.get(name) for name in ("parentQuota", "childQuota", "siblingQuota", "oldQuota")]
    registry = ActiveQuotas(make_spec(quota) for quota in others if quota)
    spec = make_spec(case["quota"])
    guaranteed = {
        quota["name"]: quota["guaranteed"]
        for quota in (*others, case["quota"])
        if quota and "guaranteed" in quota
    }
    rules = replace(
        KOORDINATOR,
        requires_same_keys=not case.get("enableUpdateResourceKey", False),
        guarantees_usage=True,
    )
    before = registry.get(spec.name)
    return validation.QuotaEdit(spec, before, registry, Facts(guaranteed=guaranteed), rules)


def adapt_defaulting(case: Mapping[str, Any]) -> Fields:
    registry = ActiveQuotas(make_spec(quota) for quota in case["existing"])
    declared = make_spec(case["quota"])
    filled = fill_in(declared, registry)
    return {
        "parent": filled.parent,
        "treeId": filled.tree_id,
        "sharedWeight": Exact(filled.weight or {}),
        "effectiveSharedWeight": declared.share_weight(),
    }


def adapt_validation_parent(case: Mapping[str, Any]) -> Fields:
    registry = ActiveQuotas(make_spec(quota) for quota in case["existing"])
    spec = make_spec(case["quota"])
    edit = validation.QuotaEdit(spec, registry.get(spec.name), registry, Facts(), KOORDINATOR)
    return say(validation.check_parent(edit))


def adapt_validation_sequence(case: Mapping[str, Any]) -> Fields:
    registry = ActiveQuotas()
    results = []
    for step in case["steps"]:
        pods = step.get("pods") or ()
        facts = Facts(
            labels={pod["quotaLabel"] for pod in pods if pod.get("quotaLabel")},
            namespaces={pod["namespace"] for pod in pods},
        )
        spec = make_spec(step["quota"])
        if step["op"] == "delete":
            fault = delete_quota(spec.name, registry, facts)
            if fault is None:
                registry.drop(spec.name)
        else:
            check = validation.check_create if step["op"] == "create" else validation.check_update
            filled = spec if step.get("skipDefaulting") else fill_in(spec, registry)
            fault = check(filled, registry, facts, KOORDINATOR)
            if fault is None:
                registry.put(filled)
        owner_of = {namespace: owner for namespace, (owner,) in registry.owners.items()}
        results.append({**say(fault), "namespaceMap": Exact(owner_of)})
    return {"results": results}


def delete_quota(name: str, registry: ActiveQuotas, facts: Facts) -> InvalidQuota | None:
    if name in BUILT_IN:
        return InvalidQuota(
            QuotaProblem.PROTECTED, name
        )  # it needs no object that could be deleted
    if name not in registry.specs:
        return InvalidQuota(QuotaProblem.NOT_FOUND, name)  # the API server says so
    children = [child.name for child in registry.children(name)]
    return validation.check_unused(name, children, int(name in facts.labels))


def adapt_validation_pod(case: Mapping[str, Any]) -> Fields:
    registry = ActiveQuotas(make_spec(quota) for quota in case["quotas"])
    rules = replace(KOORDINATOR, parents_take_pods=case["supportParentQuotaSubmitPod"])
    found = find_quota(PodQuotaKey(case.get("newQuotaLabel") or "", ""), registry, rules)
    allowed = found is None or takes_pods(registry.get(found[0]), rules)
    return {"allowed": allowed, "errorKind": None if allowed else "PodOnParentQuota"}


def adapt_quota_resolution(case: Mapping[str, Any]) -> Fields:
    if "quotaCreatedLater" in case:
        return adapt_later_quota(case)
    registry = ActiveQuotas(make_spec(quota) for quota in case["quotas"])
    pod = case["pod"]
    rules = make_rules(case.get("options"))
    found = find_quota(PodQuotaKey(pod.get("quotaLabel") or "", pod["namespace"]), registry, rules)
    return {"quotaName": found[0] if found else None, "counted": found is not None}


def adapt_later_quota(case: Mapping[str, Any]) -> Fields:
    """Count pods as the operators do, before and after their quota is created."""
    state = make_cluster(compat=True).quotas(QuotaSpec("other")).state
    for at in range(case["pods"]):
        pod = make_pod(f"p-{at}").requests(**case["eachRequests"]).quota(case["podQuotaLabel"])
        state.upsert_pod(pod.build())
    before = count_by_quota(state)
    upsert_quota(state, QuotaSpec(case["quotaCreatedLater"]))
    return {"before": before, "after": count_by_quota(state)}


def count_by_quota(state: ClusterState) -> Fields:
    state.refresh()
    book = state.quotas.usage
    pods = Counter(use.quota for uid in state.pods if (use := book.get(uid)))
    return {
        name: {"request": usage.submitted, "used": usage.used, "pods": pods[name]}
        for name, usage in book.usage().items()
    }


def describe_refusal(refusal: Any) -> Fields:
    if refusal is None:
        return {"admitted": True, "reason": None, "exceedDimensions": []}
    return {
        "admitted": False,
        "reason": REASONS.get(refusal.code, refusal.code),
        "rejectedBy": refusal.quota,
        "exceedDimensions": [short.resource for short in refusal.shortages],
        "runtime": dict(refusal.limit),
        "min": dict(refusal.limit),
        "used": dict(refusal.used),
        "nonPreemptibleUsed": dict(refusal.used),
        "message": refusal.text(compat=True),
    }


def adapt_admission_leaf(case: Mapping[str, Any]) -> Fields:
    largest = {key: case["limit"].get(key, 0) for key in case["maxKeys"]}
    account = Account(
        QuotaSpec(case["quota"], min=case.get("min") or {}, max=largest),
        share=case["limit"],
        used=dict(case["used"]),
        non_preemptible_used=dict(case.get("nonPreemptibleUsed") or {}),
        path=(case["quota"],),
    )
    request = {key: n for key, n in case["podRequest"].items() if key in case["maxKeys"]}
    refusal = check_limit(account, request, KOORDINATOR)
    if refusal is None and case.get("podNonPreemptible"):
        return describe_refusal(check_non_preemptible(account, request))
    return describe_refusal(refusal)


def adapt_admission_parent(case: Mapping[str, Any]) -> Fields:
    names = [quota["quota"] for quota in case["path"]]
    for depth, above in enumerate(case["path"]):
        topo = tuple(reversed(names[: depth + 1]))
        balance = Balance(above["limit"], above["used"], case["podRequest"])
        refusal = check_ancestor(topo, balance)
        if refusal is not None:
            return describe_refusal(refusal)
    return describe_refusal(None)


def make_use(pod: Mapping[str, Any], *, is_used: bool) -> PodUse:
    return PodUse(
        uid=str(pod.get("name")),
        quota=pod["quota"],
        shape=PodShape(tuple(sorted(pod["request"].items()))),
        is_used=is_used,
        is_non_preemptible=pod.get("nonPreemptible", False),
    )


def adapt_admission_nonpreemptible(case: Mapping[str, Any]) -> Fields:
    pod = case["pod"]
    uses = [make_use(one, is_used=True) for one in case["runningPods"]]
    usage = sum_pods([*uses, make_use(pod, is_used=False)], KOORDINATOR)
    solution = make_solution(case, usage)
    fixed = pod["request"] if pod["nonPreemptible"] else {}
    ledger = Ledger([solution], solution.inputs.rules)
    return describe_refusal(
        find_blocking_reason(ledger, QuotaCharge(pod["quota"], pod["request"], fixed))
    )


def adapt_accounting(case: Mapping[str, Any]) -> Fields:
    if "pods" in case:
        return adapt_namespace_accounting(case)
    if "boundPods" not in case:
        spec = QuotaSpec("quota", max=dict.fromkeys(case["maxKeys"], 1 << 60))
        usage = {"quota": Usage(used=case["usedBefore"])}
        rules = replace(KOORDINATOR, limits_by_share=False)
        ledger = Ledger([solve(ShareInput(make_tree([spec]), {}, usage, rules))], rules)
        assert try_charge(ledger, [QuotaCharge("quota", case["podRequest"])]) is None
        return {"used": Exact(ledger.account("quota").used)}
    uses = [
        make_use({"name": at, "quota": pod["quotaLabel"], **pod}, is_used=True)
        for at, pod in enumerate(case["boundPods"])
    ]
    usage = sum_pods(uses, KOORDINATOR)
    solution = make_solution({"total": add_up(case["nodes"]), **case}, usage)
    names = [quota["name"] for quota in case["quotas"]]
    ledger = Ledger([solution], KOORDINATOR)
    default = usage.get(DEFAULT, Usage())
    return {
        "request": {
            **{name: solution.request(name) for name in names},
            DEFAULT: default.submitted,
        },
        "used": {**{name: ledger.account(name).used for name in names}, DEFAULT: default.used},
        "quotaCountIncludingBuiltins": len({*ledger.names(), ROOT, SYSTEM, DEFAULT}),
    }


def adapt_namespace_accounting(case: Mapping[str, Any]) -> Fields:
    cluster = make_cluster(1, compat=True).quotas(make_spec(case["quota"]))
    for at, given in enumerate(case["pods"]):
        phase = PodPhase(given["phase"])
        pod = make_pod(f"{given['namespace']}/p-{at}").requests(**given["request"]).phase(phase)
        cluster.pods(pod if phase is PodPhase.PENDING else pod.bound("n0"))
    cluster.state.refresh()
    summary = summarise(cluster.state.open_ledger(), case["quota"]["name"])
    return {"request": summary.request, "used": summary.used}


def adapt_pod_request(case: Mapping[str, Any]) -> Fields:
    ignores = case.get("ignorePodOverhead", False)
    requests = effective_requests(
        case["containers"],
        [
            InitContainer(init, is_sidecar=init.get("restartPolicy") == "Always")
            for init in case["initContainers"]
        ],
        overhead={} if ignores else case.get("overhead") or {},
    )
    return {"request": {key: amount for key, amount in requests if key != "pods"}}


def adapt_pod_lifecycle(case: Mapping[str, Any]) -> Fields:
    """Replay the events of one pod; it counts for its quota only if that exists."""
    options = case.get("options") or {}
    book = UsageTracker(KOORDINATOR)
    use = make_use({"name": "pod", "quota": "quota", "request": case["podRequest"]}, is_used=False)
    quota_exists, is_reserved, is_bound = True, False, False
    after = []
    for event in case["events"]:
        kind = event["event"]
        quota_exists = event.get("quotaExists", quota_exists or kind == "createQuota")
        is_reserved = kind == "reserve" or (is_reserved and kind != "unreserve")
        is_bound = is_bound or bool(event.get("nodeName"))
        if kind == "delete" or has_left(event, options):
            book.remove("pod")
        elif kind in {"add", "update", "reserve", "unreserve", "changeQuota"} and quota_exists:
            if kind == "changeQuota":
                use = use._replace(quota=relabel(is_bound=is_bound))
            book.upsert(use._replace(is_used=is_reserved or is_bound))
        usage = book.of("quota")
        counters = {
            "request": usage.submitted,
            "used": usage.used,
            "nonPreemptibleRequest": usage.non_preemptible_demand,
            "nonPreemptibleUsed": usage.non_preemptible_used,
            "pods": int(book.get("pod") is not None),
        }
        after.append(counters if quota_exists else None)
    return {"after": after}


def relabel(*, is_bound: bool) -> str:
    """Return the quota of a pod once its label names another one."""
    pod = make_pod("p").quota("quota")
    cluster = make_cluster(1, compat=True).quotas(QuotaSpec("quota"), QuotaSpec("another"))
    cluster.pods(pod.running("n0") if is_bound else pod)
    cluster.state.refresh()
    cluster.pods(pod.quota("another"))
    return cluster.state.quotas.quota_of(cluster.pod("p"))


def has_left(event: Mapping[str, Any], options: Mapping[str, bool]) -> bool:
    if event["event"] != "terminating":
        return False
    if options.get("immediateIgnoreTerminatingPod"):
        return True
    age, grace = event["deletionTimestampAgeSeconds"], event["gracePeriodSeconds"]
    return bool(options.get("ignoreTerminatingPod")) and age > grace


def decide_preemption(
    preemptor: Mapping[str, Any], running: Iterable[Mapping[str, Any]], **limit: int
) -> Preemption | Reason:
    """Search victims for a pod among the pods of one node; quotas have a ``limit`` as their max."""
    cluster = make_cluster(compat=True, quota_options=QuotaOptions(limits_by_share=False)).nodes(
        make_node("n0").cpu(1 << 20)
    )
    every = [preemptor, *running]
    for name in {pod["quota"] for pod in every} - {DEFAULT}:
        cluster.quotas(QuotaSpec(name, max=limit))
    for at, pod in enumerate(every[1:]):
        made = make_quota_pod(f"p{at}", pod).released("n0", "p").running("n0")
        cluster.pods(made.terminating() if pod.get("terminating") else made)
    waits = make_quota_pod("waits", preemptor).build()
    cluster.pods(waits)
    waits = replace(waits, never_preempts=preemptor.get("preemptionPolicy") == "Never")
    return plan_preemption(cluster.state, Unit(waits.uid, (Demand("", (waits,), 1),)))


def make_quota_pod(name: str, pod: Mapping[str, Any]) -> PodBuilder:
    built = make_pod(name).priority(pod["priority"]).requests(**pod.get("request") or {"cpu": 1000})
    return built.quota(pod["quota"], is_non_preemptible=pod.get("nonPreemptible", False))


def adapt_can_preempt(case: Mapping[str, Any]) -> Fields:
    # Room for one of the two.
    found = decide_preemption(case["preemptor"], [case["victim"]], cpu=1000)
    return {"canPreempt": isinstance(found, Preemption) and bool(found.victims)}


def adapt_preempt_eligibility(case: Mapping[str, Any]) -> Fields:
    pods = case.get("podsOnNode") if case.get("nominatedNode") else None
    preemptor = {"quota": DEFAULT, "priority": 0, **case, "request": {"cpu": 1000}}
    found = decide_preemption(preemptor, pods or (), cpu=10_000)
    is_refused = isinstance(found, PreemptionNever | WaitsForTermination)
    return {"eligible": not is_refused, "message": found.text(compat=True) if is_refused else ""}


class LabelledPod:
    def __init__(self, pod: Mapping[str, Any]) -> None:
        self.namespace = pod["namespace"]
        self.name = pod["name"]
        self.labels = pod.get("labels") or {}


def adapt_pdb_split(case: Mapping[str, Any]) -> Fields:
    budgets = []
    for budget in case["pdbs"]:
        disrupted = frozenset(budget.get("disruptedPods") or ())
        selector = make_selector(budget.get("selector"))
        budgets.append(
            Budget(budget["namespace"], selector, budget["disruptionsAllowed"], disrupted)
        )
    split = split_by_budgets(map(LabelledPod, case["pods"]), budgets)
    return {"violating": len(split.violating), "nonViolating": len(split.permitted)}


def make_selector(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...] | None:
    if selector is None:
        return None
    equal = (
        Requirement(key, SelectorOperator.IN, (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    try:
        others = [make_requirement(one) for one in selector.get("matchExpressions") or ()]
    except ValueError:
        return None
    return (*equal, *others)


def make_requirement(one: Mapping[str, Any]) -> Requirement:
    return Requirement(
        one["key"], SelectorOperator(one["operator"]), tuple(one.get("values") or ())
    )


def adapt_select_victims(case: Mapping[str, Any]) -> Fields:
    if not case["nodeFits"]:
        raise UnsupportedCaseError("whether a pod fits is a question of its node")
    found = decide_preemption(case["preemptor"], case["podsOnNode"], **case["quotaLimit"])
    if not isinstance(found, Preemption) or not found.victims:
        return {"victims": 0, "pdbViolations": 0, "status": "UnschedulableAndUnresolvable"}
    return {
        "victims": len(found.pods),
        "pdbViolations": found.cost.violations,
        "status": "Success",
    }


def adapt_revoke(case: Mapping[str, Any]) -> Fields:
    quotas = case.get("quotas") or [case]
    revoked = []
    for quota in quotas:
        units = [
            RunningUnit(
                key=pod["name"],
                request=pod["request"],
                priority=pod["priority"],
                is_non_preemptible=pod.get("nonPreemptible", False),
            )
            for pod in quota["assignedPods"]
        ]
        used = add_up(unit.request for unit in units)
        revoked += choose_victims(units, used, quota["runtime"], KOORDINATOR)
    names = [unit.key for unit in revoked]
    return {"revoke": names, "revokeSet": names, "revokeCount": len(names)}


def adapt_pod_quota_admission(case: Mapping[str, Any]) -> Fields:
    if "maxRetries" in case:
        raise UnsupportedCaseError("nothing is written when a pod is submitted, nor retried")
    spec, request = make_spec(case["quota"]), case["podRequest"]
    before = case["quota"]["childRequest"] or {}
    options = case["options"]
    is_checked = options.get("enableQuotaAdmission", False)
    if case["operation"] == "UPDATE":
        moved = case.get("oldPodQuotaLabel") != case["podQuotaLabel"]
        is_checked = is_checked and options.get("enableQuotaAdmissionOnUpdate", False) and moved
    label = case["podQuotaLabel"] or DEFAULT
    if not is_checked or label in BUILT_IN:
        return {"allowed": True, "childRequestAfter": before}
    found = find_quota(PodQuotaKey(label, spec.namespace), ActiveQuotas([spec]), QuotaRules())
    unknown = found and found.reason
    refusal = unknown or check_submission(spec, before, request)
    if refusal is not None:
        return {"allowed": False, "message": refusal.text(compat=True), "childRequestAfter": before}
    return {"allowed": True, "childRequestAfter": add_up((before, request))}


def adapt_limit_request(case: Mapping[str, Any]) -> Fields:
    if "delta" in case:
        after = {"request": clamp(case["requestBefore"], case["delta"])}
        return {**after, "used": clamp(case["usedBefore"], case["delta"])}
    spec = QuotaSpec("quota", max=case["max"])
    if "runtimeInternal" in case:
        total = case["runtimeInternal"]
        others = QuotaSpec("others", max=total)
        usage = {"quota": Usage(submitted=total)}
        solution = solve(ShareInput(make_tree([spec, others]), total, usage, KOORDINATOR))
        return {"runtime": Exact(solution.share("quota"))}
    usage = {"quota": Usage(submitted=case["request"])}
    solution = solve(ShareInput(make_tree([spec]), {}, usage, KOORDINATOR))
    return {"limitedRequest": solution.limited("quota")}


def clamp(*requests: Mapping[str, int]) -> Mapping[str, int]:
    uses = [
        make_use({"name": at, "quota": "quota", "request": request}, is_used=True)
        for at, request in enumerate(requests)
    ]
    return sum_pods(uses, KOORDINATOR)["quota"].used


def make_summary(case: Mapping[str, Any]) -> Summary:
    given = case["summary"]
    return Summary(
        name=given.get("name", ""),
        parent=given.get("parent", ""),
        tree=given.get("tree", ""),
        is_parent=given.get("isParent", False),
        min=given.get("min") or {},
        max=given.get("max") or {},
        weight=given.get("sharedWeight") or {},
        share=given.get("runtime") or {},
        request=given.get("request") or {},
        child_request=given.get("childRequest") or {},
        used=given.get("used") or {},
        non_preemptible_request=given.get("nonPreemptibleRequest") or {},
        non_preemptible_used=given.get("nonPreemptibleUsed") or {},
        allocated=given.get("allocated") or {},
        guaranteed=given.get("guaranteed") or {},
    )


def adapt_status_sync(case: Mapping[str, Any]) -> Fields:
    summary = make_summary(case)
    annotations = {
        key.removeprefix(keys.PREFIX): amounts for key, amounts in case["annotations"].items()
    }
    if is_current(summary, annotations, case["statusUsed"]):
        return {"patched": False}
    return {
        "patched": True,
        "annotations": {f"{keys.PREFIX}{name}": n for name, n in recorded(summary).items()},
        "statusUsed": summary.used,
    }


def adapt_metrics(case: Mapping[str, Any]) -> Fields:
    closed = case["unschedulableResource"] if case["isTreeRoot"] else {}
    summary = replace(make_summary(case), unschedulable=closed)
    series = measure(summary)
    return {
        "labels": {
            "name": summary.name,
            "parent": summary.parent,
            "is_parent": str(summary.is_parent).lower(),
            "tree": summary.tree,
        },
        "series": [
            {"field": field, "resource": key, "value": n} for (field, key), n in series.items()
        ],
        "afterDelete": 0,
    }


def adapt_hook(case: Mapping[str, Any]) -> Fields:
    solution = solve(ShareInput(make_tree([QuotaSpec("quota")]), {}, {}, KOORDINATOR))
    checks = {case["hookKey"]: lambda _: case["hookError"] or ""}
    ledger = Ledger([solution], KOORDINATOR, checks)
    refusal = try_charge(ledger, [QuotaCharge("quota", {})])
    return {"admitted": refusal is None, "message": refusal.text(compat=True) if refusal else ""}


def adapt_path(case: Mapping[str, Any]) -> Fields:
    tree = make_tree(QuotaSpec(name, parent=parent) for name, parent in case["parents"].items())
    return {"paths": [list(tree.path(name)) for name in case["queries"]]}


def adapt_profile(case: Mapping[str, Any]) -> Fields:
    if "pairs" in case:
        return {"treeIds": [make_tree_id(*pair.split("/")) for pair in case["pairs"]]}
    given = case["profile"]
    resource_keys = given["annotations"].get(keys.RESOURCE_KEYS)
    profile = QuotaProfile(
        namespace=given["namespace"],
        name=given["name"],
        quota_name=given["quotaName"],
        selector=make_selector(given["nodeSelector"]),
        tree_id=given["labels"].get(keys.TREE_ID, ""),
        ratio=Fraction(given["resourceRatio"]) if given["resourceRatio"] else None,
        labels=given["quotaLabels"],
        **({"keys": tuple(json.loads(resource_keys))} if resource_keys else {}),
    )
    nodes = [
        Node(
            node["name"],
            labels=node["labels"],
            allocatable=node["allocatable"],
            is_unschedulable=node.get("unschedulable", False),
            taints=() if node["ready"] else (Taint("node.kubernetes.io/not-ready"),),
        )
        for node in case["nodes"]
    ]
    quota = make_root_quota(profile, nodes)
    # A server-side apply leaves labels of others as they are.
    labels = (case.get("existingQuota") or {}).get("labels") or {}
    return {
        "min": Exact(quota.min),
        "max": Exact(quota.max),
        "totalResource": Exact(quota.total),
        "unschedulableResource": Exact(quota.unschedulable),
        "labels": {**labels, **make_body(profile, quota)["metadata"]["labels"]},
    }


def adapt_tree_affinity(case: Mapping[str, Any]) -> Fields:
    registry = ActiveQuotas(make_spec(quota) for quota in case["quotas"])
    pod = case["pod"]
    terms = [
        SelectorTerm(tuple(make_requirement(one) for one in term))
        for term in pod["requiredNodeSelectorTerms"]
    ]
    found = find_quota(
        PodQuotaKey(pod.get("quotaLabel") or "", pod["namespace"]), registry, KOORDINATOR
    )
    spec = registry.get(found[0]) if found and case["multiQuotaTree"] else None
    selectors = [
        make_selector(profile["nodeSelector"])
        for profile in case["profiles"]
        if spec and spec.tree_id and profile["treeId"] == spec.tree_id
    ]
    confined = restrict_terms(terms or None, *selectors[:1]) if selectors else terms
    return {
        "requiredNodeSelectorTerms": [
            [
                {"key": one.key, "operator": one.operator.value, "values": list(one.values)}
                for one in term.expressions
            ]
            for term in confined
        ]
    }


ADAPTERS = {
    "runtime_level": adapt_runtime_level,
    "runtime_tree": adapt_runtime_tree,
    "request_aggregation": adapt_runtime_tree,
    "guarantee": adapt_runtime_tree,
    "root_totals": adapt_root_totals,
    "node_totals": adapt_node_totals,
    "tree_capacity": adapt_tree_capacity,
    "scale_min": adapt_scale_min,
    "defaulting": adapt_defaulting,
    "validation_self": adapt_validation_self,
    "validation_keys": lambda case: say(validation.check_keys(make_edit(case))),
    "validation_tree_id": lambda case: say(validation.check_tree_id(make_edit(case))),
    "validation_min_sum": lambda case: say(validation.check_min_sum(make_edit(case))),
    "validation_guarantee": lambda case: say(validation.check_guarantee(make_edit(case))),
    "validation_parent": adapt_validation_parent,
    "validation_sequence": adapt_validation_sequence,
    "validation_pod": adapt_validation_pod,
    "quota_resolution": adapt_quota_resolution,
    "admission_leaf": adapt_admission_leaf,
    "admission_parent": adapt_admission_parent,
    "admission_nonpreemptible": adapt_admission_nonpreemptible,
    "accounting": adapt_accounting,
    "pod_request": adapt_pod_request,
    "pod_lifecycle": adapt_pod_lifecycle,
    "can_preempt": adapt_can_preempt,
    "preempt_eligibility": adapt_preempt_eligibility,
    "pdb_split": adapt_pdb_split,
    "select_victims": adapt_select_victims,
    "revoke": adapt_revoke,
    "pod_quota_admission": adapt_pod_quota_admission,
    "status_sync": adapt_status_sync,
    "metrics": adapt_metrics,
    "hook": adapt_hook,
    "limit_request": adapt_limit_request,
    "path": adapt_path,
    "profile": adapt_profile,
    "tree_affinity": adapt_tree_affinity,
}
