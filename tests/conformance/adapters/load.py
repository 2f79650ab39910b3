"""Adapters for load-aware placement: cases as reports, pods and options, judged in a cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.load.load_cluster import LoadCluster, make_pod, node_of, of_daemon_set, saying

from koord.core.load.estimate import deadline, estimate
from koord.core.load.model import Aggregation, LoadHints, NodeLoad, PodLoad
from koord.core.load.options import (
    DEFAULT_THRESHOLDS,
    DEFAULT_WEIGHTS,
    Basis,
    LoadOptions,
    LoadThresholds,
    OwnLimits,
)
from koord.core.load.plugin import Loads
from koord.core.model.koordinator_class import KoordinatorClass
from koord.kube.translate.amounts import parse_amount, write_amounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.builders import PodBuilder

NOW = 100_000.0
"""That of ``LoadCluster``."""


def read_amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: parse_amount(name, text) for name, text in (quantities or {}).items()}


def read_class(name: str) -> KoordinatorClass | None:
    return KoordinatorClass(f"koord-{name}") if name else None


def read_hints(pod: Mapping[str, Any], **more: Any) -> LoadHints:
    limits = tuple(read_amounts(pod.get("limits")).items())
    of_class = read_class(pod["priorityClass"]) or KoordinatorClass.PROD
    return LoadHints(of_class, limits, **more)


def estimate_pod(case: Mapping[str, Any]) -> Mapping[str, Any]:
    custom = case["customFactors"] if case["allowCustomizeEstimation"] else None
    hints = read_hints(case, factors=tuple((custom or {}).items()))
    return estimate(read_amounts(case["requests"]), hints, case["scalingFactors"], compat=True)


def estimate_node(case: Mapping[str, Any]) -> Mapping[str, Any]:
    raw = tuple(read_amounts(case["rawAllocatable"]).items())
    cluster = LoadCluster(LoadOptions(is_on=True), compat=True)
    node = node_of("n", OwnLimits(raw_allocatable=raw), **read_amounts(case["allocatable"]))
    cluster.nodes(node)
    columns = cluster.aware.columns
    amounts = dict(zip(columns.options.resources, columns.capacity_of(node), strict=True))
    return {"allocatable": write_amounts({key: n for key, n in amounts.items() if n})}


def estimate_deadline(case: Mapping[str, Any]) -> Mapping[str, Any]:
    times = {
        condition["type"]: -condition["secondsAgo"]
        for condition in case["conditions"]
        if condition["status"] == "True"
    }
    custom = case["custom"] or {}
    hints = LoadHints(
        after_scheduled=custom.get("afterPodScheduled"),
        after_initialized=custom.get("afterInitialized"),
        initialized=NOW + times["Initialized"] if "Initialized" in times else 0.0,
    )
    end = deadline(
        hints,
        NOW - case["scheduledSecondsAgo"],
        case["estimatedSecondsAfterPodScheduled"] or 0,
        case["estimatedSecondsAfterInitialized"] or 0,
    )
    return {"deadlineSecondsFromNow": end - NOW if end else None}


def read_basis(args: Mapping[str, Any] | None, prefix: str) -> Basis:
    args = args or {}
    kind = args.get(f"{prefix}AggregationType")
    seconds = args.get(f"{prefix}AggregatedDurationSeconds") or 0
    return Basis(Aggregation(kind) if kind else None, float(seconds))


def read_thresholds(
    args: Mapping[str, Any], key: str, default: Mapping[str, int]
) -> LoadThresholds:
    aggregated = args.get(key) or {}
    plain = args.get("usageThresholds")
    return LoadThresholds(
        default if plain is None else plain,
        args.get("prodUsageThresholds") or {},
        aggregated.get("usageThresholds") or {},
        read_basis(aggregated, "usage"),
    )


def read_options(args: Mapping[str, Any]) -> LoadOptions:
    weights = args.get("resourceWeights")
    return LoadOptions(
        is_on=True,
        thresholds=read_thresholds(args, "aggregated", DEFAULT_THRESHOLDS),
        filters_expired=args.get("filterExpiredNodeMetrics", True),
        admits_expired=args.get("enableScheduleWhenNodeMetricsExpired", False),
        expiration=args.get("nodeMetricExpirationSeconds", 180),
        weights=DEFAULT_WEIGHTS if weights is None else weights,
        dominant=args.get("dominantResourceWeight", 0),
        scores_prod=args.get("scoreAccordingProdUsage", False),
        prod_includes_system=args.get("prodUsageIncludeSys", False),
        score_basis=read_basis(args.get("aggregated"), "score"),
    )


def read_report(metric: Mapping[str, Any]) -> NodeLoad:
    ago = metric.get("updateSecondsAgo")
    aggregates: dict[Aggregation, dict[float, dict[str, int]]] = {}
    for aggregated in metric.get("aggregatedNodeUsages") or ():
        for kind, usage in aggregated["usage"].items():
            by_seconds = aggregates.setdefault(Aggregation(kind), {})
            by_seconds[float(aggregated["durationSeconds"])] = read_amounts(usage)
    return NodeLoad(
        "n",
        updated=0.0 if ago is None else NOW - ago,
        interval=float(metric.get("reportIntervalSeconds") or 60),
        usage=read_amounts(metric.get("nodeUsage")),
        system=read_amounts(metric.get("systemUsage")),
        aggregates=aggregates,
        pods={
            f"{pod['namespace']}/{pod['name']}": PodLoad(
                read_amounts(pod["usage"]), read_class(pod["priorityClass"])
            )
            for pod in metric.get("podsMetric") or ()
        },
    )


def read_pod(pod: Mapping[str, Any], name: str) -> PodBuilder:
    builder = make_pod(name)
    for resource, amount in read_amounts(pod["requests"]).items():
        builder.resource(resource, amount)
    ago = pod.get("scheduledSecondsAgo")
    scheduled = NOW - ago if ago is not None else 0.0
    hints = read_hints(pod)
    return saying(
        builder,
        koordinator_class=hints.koordinator_class,
        limits=hints.limits,
        scheduled=scheduled,
    )


def make_cluster(case: Mapping[str, Any]) -> LoadCluster:
    cluster = LoadCluster(read_options(case["args"]), compat=True)
    custom = case["node"].get("customUsage")
    own = None if custom is None else OwnLimits(read_thresholds(custom, "aggregatedUsage", {}))
    cluster.nodes(node_of("n", own, **read_amounts(case["node"].get("allocatable"))))
    if case["nodeMetric"] is not None:
        cluster.state.plugin(Loads).upsert(read_report(case["nodeMetric"]))
    for pod in case["existingPods"]:
        cluster.pods(read_pod(pod, f"{pod['namespace']}/{pod['name']}").running("n"))
    return cluster


def loadaware_filter(case: Mapping[str, Any]) -> Mapping[str, Any]:
    pod = read_pod(case["pod"], "subject")
    subject = of_daemon_set(pod) if case["pod"].get("daemonSet") else pod
    causes = make_cluster(case).causes(subject, "n")
    return {"ok": not causes, "reason": causes[0] if causes else None}


def loadaware_score(case: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"score": make_cluster(case).score(read_pod(case["pod"], "subject"), "n")}


ADAPTERS = {
    "estimate_pod": estimate_pod,
    "estimate_node": estimate_node,
    "estimate_deadline": estimate_deadline,
    "loadaware_filter": loadaware_filter,
    "loadaware_score": loadaware_score,
}
