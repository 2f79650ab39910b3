"""Balancing by load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from koord.api.quantity import NANO_PER_UNIT, parse_quantity
from koord.core.balance.decide import decide
from koord.core.balance.detectors import (
    AnomalyCondition,
    Detector,
    DetectorKind,
    Detectors,
    make_condition,
)
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import (
    BalanceNode,
    BalancePod,
    BalancePool,
    BalanceRules,
    Thresholds,
)
from koord.core.balance.order import sort_pods, weigh_usage
from koord.core.balance.outcome import MoveRefusal
from koord.core.balance.thresholds import find_hot_usage, find_limits, floor_percentages
from koord.core.model.units import CPU

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    return {
        name: parse_quantity(text).nano * (1000 if name == CPU else 1) // NANO_PER_UNIT
        for name, text in quantities.items()
    }


class _Given:
    """Evictable pods, and where they fit, as a case says it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._pods = {pod["name"]: pod for pod in case["pods"]}

    def refuse(self, pod: BalancePod) -> MoveRefusal | None:
        return None if self._pods[pod.name]["evictable"] else MoveRefusal("E-5", "")

    def find_node(self, pod: BalancePod, nodes: Sequence[str]) -> str | None:
        fits = self._pods[pod.name].get("fitsNodes", nodes)
        return next((node for node in nodes if node in fits), None)

    def note(self, pod: BalancePod, node: str) -> None:
        pass


def _read_nodes(case: dict[str, Any]) -> list[BalanceNode]:
    pods = [
        BalancePod(
            uid=pod["name"],
            namespace="default",
            name=pod["name"],
            node=pod["node"],
            usage=pod["usage"],
            is_prod=pod["prod"],
            rank=(int(pod["prod"]),),
        )
        for pod in case["pods"]
    ]
    return [
        BalanceNode(
            node["name"],
            node["allocatable"],
            {},
            tuple(pod for pod in pods if pod.node == node["name"]),
            not node["unschedulable"],
        )
        for node in case["nodes"]
    ]


def balance(case: dict[str, Any]) -> Mapping[str, Any]:
    thresholds = Thresholds(
        case["lowThresholds"],
        case["highThresholds"],
        case["prodLowThresholds"],
        case["prodHighThresholds"],
        case["useDeviationThresholds"],
    )
    condition = make_condition(case["anomalyCondition"]["consecutiveAbnormalities"], 3, 60)
    rules = BalanceRules(
        (BalancePool("default", thresholds, condition=condition),),
        number_of_nodes=case["numberOfNodes"],
        compat=True,
    )
    outcome = decide(rules, _read_nodes(case), BalancePast(), _Given(case), 0)
    return {"evicted": len(outcome.moves)}


def describe_reason(case: dict[str, Any]) -> Mapping[str, Any]:
    capacity = _amounts(case["rawAllocatable"])
    high = case["highThresholds"]
    low = dict.fromkeys(high, 0)
    thresholds = Thresholds(low, high, low, high)
    kind = DetectorKind.PROD if case["prod"] else DetectorKind.NODE
    limits = find_limits(thresholds, [BalanceNode("n1", capacity, {}, ())])["n1"].of(kind)
    overuse = find_hot_usage(_amounts(case["usage"]), limits, capacity, is_prod=case["prod"])
    return {"reason": overuse.text()}


def find_percentages(case: dict[str, Any]) -> Mapping[str, Any]:
    used, capacity = _amounts(case["usage"]), _amounts(case["allocatable"])
    return {"floorPercent": floor_percentages(used, capacity)}


def sort_nodes(case: dict[str, Any]) -> Mapping[str, Any]:
    capacity = _amounts(case["allocatable"])
    scores = {
        name: weigh_usage(_amounts(used), capacity, case["weights"])
        for name, used in case["usage"].items()
    }
    is_descending = case["order"] != "ascending"
    return {"nodes": sorted(scores, key=lambda name: scores[name], reverse=is_descending)}


def order_pods(case: dict[str, Any]) -> Mapping[str, Any]:
    used, high = _amounts(case["nodeUsage"]), _amounts(case["highThreshold"])
    excess = {name: used[name] - high[name] for name in used if used[name] > high[name]}
    pods = [
        BalancePod(name, "default", name, "n1", _amounts(usage))
        for name, usage in case["podUsage"].items()
    ]
    return {"pods": [pod.name for pod in sort_pods(pods, excess, case["weights"])]}


def _from(when: dict[str, Any]) -> int:
    return int(when["n"]) + (when["op"] == ">")


def mark(case: dict[str, Any]) -> Mapping[str, Any]:
    condition = AnomalyCondition(_from(case["abnormalWhen"]), _from(case["normalWhen"]), 1e9)
    detector = Detector()
    states = []
    for is_good in case["marks"]:
        detector = detector.mark(condition, 0, is_bad=not is_good)
        states.append("anomaly" if detector.is_anomalous else "ok")
    return {"states": states}


def find_abnormal(case: dict[str, Any]) -> Mapping[str, Any]:
    condition = make_condition(case["consecutiveAbnormalities"], case["consecutiveNormalities"], 60)
    detectors = Detectors()
    rounds = [case["alreadyAbnormal"]] * case["previousRoundsOnlyAlreadyAbnormal"]
    rounds += [case["sourceNodes"]] * (case["previousRoundsAll"] + 1)
    abnormal: frozenset[str] = frozenset()
    for names in rounds:
        keys = [("default", DetectorKind.NODE, name) for name in names]
        abnormal = detectors.mark_bad(keys, condition, 0)
    return {"nodes": sorted(abnormal)}


ADAPTERS = {
    "lownodeload": balance,
    "lownodeload_reason": describe_reason,
    "usage_percent": find_percentages,
    "sort_nodes": sort_nodes,
    "sort_pods": order_pods,
    "anomaly": mark,
    "real_abnormal": find_abnormal,
}
