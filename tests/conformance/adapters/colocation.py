"""Adapters for over-commitment: cases as nodes, pods and reports, computed by the formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.conformance.adapters.load import NOW, read_amounts, read_class

from koord.api.colocation import ColocationStrategy
from koord.core.colocation.formula import BATCH, MID, compute_batch, compute_mid
from koord.core.colocation.measured import RESOURCES, ColocatedNode, CountedPod, add_up_pods
from koord.core.colocation.publishing import find_degradation
from koord.core.colocation.strategy import Strategy
from koord.core.load.model import HostApplicationLoad, NodeLoad, PodLoad
from koord.core.model.koordinator_class import KoordinatorClass
from koord.kube.translate.colocation import read_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDED = {"Succeeded", "Failed"}


def read_strategy(written: Mapping[str, Any]) -> Strategy:
    return Strategy(**read_fields(ColocationStrategy.model_validate({"enable": True, **written})))


def read_node(case: Mapping[str, Any]) -> ColocatedNode:
    written, metric = case["node"], case["nodeMetric"]
    pods = [
        CountedPod(
            pod["name"],
            read_class(pod["priorityClass"]) or KoordinatorClass.PROD,
            read_amounts(pod["requests"]),
            pod.get("qos") == "LSE",
        )
        for pod in case["pods"]
        if pod["phase"] not in ENDED
    ]
    report = NodeLoad(
        "n",
        updated=NOW,
        usage=read_amounts(metric.get("nodeUsage")),
        system=read_amounts(metric["systemUsage"]),
        pods={
            pod["name"]: PodLoad(
                read_amounts(pod["usage"]), read_class(pod.get("priorityClass", ""))
            )
            for pod in metric.get("podsMetric") or ()
        },
        host_applications=tuple(
            HostApplicationLoad(read_amounts(of["usage"]), read_class(of["priorityClass"]))
            for of in metric["hostApplications"]
        ),
        reclaimable=read_amounts(metric.get("prodReclaimable")),
    )
    reserved = (written["reservationAnnotation"] or {}).get("resources")
    return ColocatedNode(
        read_amounts(written["capacity"]),
        read_amounts(written["allocatable"]),
        tuple(pods),
        report,
        read_amounts(reserved),
    )


def batch(case: Mapping[str, Any]) -> Mapping[str, Any]:
    node, strategy = read_node(case), read_strategy(case["strategy"])
    pods = add_up_pods(node)
    return {
        BATCH[name].partition("/")[2]: compute_batch(
            name, node, pods[name], strategy, compat=True
        ).value
        for name in RESOURCES
    }


def mid(case: Mapping[str, Any]) -> Mapping[str, Any]:
    node, strategy = read_node(case), read_strategy(case["strategy"])
    pods = add_up_pods(node)
    return {
        MID[name].partition("/")[2]: compute_mid(
            name, node, pods[name], strategy, compat=True
        ).value
        for name in RESOURCES
    }


def degrade(case: Mapping[str, Any]) -> Mapping[str, Any]:
    strategy = Strategy(degrade_time_minutes=case["degradeTimeMinutes"])
    ago = case.get("updateSecondsAgo")
    report = NodeLoad("n", updated=0.0 if ago is None else NOW - ago)
    found = find_degradation(report, strategy, NOW)
    tier = case["resource"].capitalize()
    return {"reset": found is not None, "message": found.describe(tier) if found else ""}


ADAPTERS = {"batch": batch, "mid": mid, "degrade": degrade}
