"""Nodes of 100 CPUs and 120 GB for the tests of over-commitment, and what uses them."""

from __future__ import annotations

from typing import Any

from koord.core.colocation.formula import compute_batch, compute_mid
from koord.core.colocation.measured import ColocatedNode, CountedPod, add_up_pods
from koord.core.colocation.strategy import Strategy
from koord.core.load.model import NodeLoad, PodLoad
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.units import CPU

GB = 10**9
NOW = 1_000_000.0
PROD, MID = KoordinatorClass.PROD, KoordinatorClass.MID
BATCH, FREE = KoordinatorClass.BATCH, KoordinatorClass.FREE


def amounts(cpu: float = 0, memory: float = 0) -> dict[str, int]:
    """Return amounts of whole CPUs and GB."""
    return {"cpu": int(cpu * 1000), "memory": int(memory * GB)}


def pod(
    key: str,
    cpu: float = 0,
    memory: float = 0,
    of: KoordinatorClass = PROD,
    *,
    is_exclusive: bool = False,
    is_accepted: bool = True,
) -> CountedPod:
    return CountedPod(key, of, amounts(cpu, memory), is_exclusive, is_accepted)


def report(
    pods: dict[str, Any] | None = None,
    system: dict[str, int] | None = None,
    used: dict[str, int] | None = None,
    **more: Any,
) -> NodeLoad:
    """Report of this moment; ``pods`` by key: amounts, or amounts and the class in the metric."""
    loads = {
        key: PodLoad(*of) if isinstance(of, tuple) else PodLoad(of, PROD)
        for key, of in (pods or {}).items()
    }
    usage = {} if used is None else used
    return NodeLoad("n", updated=NOW, system=system or {}, usage=usage, pods=loads, **more)


def node(*pods: CountedPod, cpu: float = 100, memory: float = 120, **more: Any) -> ColocatedNode:
    capacity = amounts(cpu, memory)
    return ColocatedNode(capacity, more.pop("allocatable", capacity), pods, **more)


def batch(of: ColocatedNode, resource: str = CPU, *, compat: bool = False, **strategy: Any) -> int:
    settings = Strategy(enable=True, **strategy)
    pods = add_up_pods(of)[resource]
    return compute_batch(resource, of, pods, settings, compat=compat).value


def mid(of: ColocatedNode, resource: str = CPU, *, compat: bool = False, **strategy: Any) -> int:
    settings = Strategy(enable=True, **strategy)
    pods = add_up_pods(of)[resource]
    return compute_mid(resource, of, pods, settings, compat=compat).value
