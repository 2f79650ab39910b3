"""Nodes, pods and permissions that tests of balancing share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from koord.core.balance.decide import decide
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import (
    BalanceNode,
    BalancePod,
    BalancePool,
    BalanceRules,
    MoveCaps,
    Thresholds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from koord.core.balance.outcome import MoveRefusal, RoundOutcome

GI = 2**30
SIMPLE = Thresholds({"cpu": 30}, {"cpu": 60})


def make_pod(
    name: str,
    node: str,
    cpu: int | None = 400,
    *,
    prod: bool = False,
    workload: str = "",
    namespace: str = "default",
    created: float = 0.0,
    rank: tuple[int, ...] = (),
) -> BalancePod:
    usage = None if cpu is None else {"cpu": cpu}
    return BalancePod(f"uid-{name}", namespace, name, node, usage, prod, workload, rank, created)


def make_node(
    name: str,
    *pods: BalancePod,
    cpu: int = 4000,
    capacity: Mapping[str, int] | None = None,
    system: Mapping[str, int] | None = None,
    cordoned: bool = False,
) -> BalanceNode:
    return BalanceNode(
        name,
        capacity or {"cpu": cpu, "memory": 64 * GI, "pods": 110},
        system or {},
        pods,
        not cordoned,
    )


def make_rules(
    thresholds: Thresholds = SIMPLE, caps: MoveCaps | None = None, *, compat: bool = False
) -> BalanceRules:
    return BalanceRules((BalancePool("default", thresholds),), caps or MoveCaps(), compat=compat)


@dataclass
class Permission:
    """Allows all but what is listed; every node takes every pod but where it is listed."""

    refused: Mapping[str, MoveRefusal] = field(default_factory=dict)
    fits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    noted: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, pod: BalancePod) -> MoveRefusal | None:
        return self.refused.get(pod.name)

    def find_node(self, pod: BalancePod, nodes: Sequence[str]) -> str | None:
        fits = self.fits.get(pod.name, nodes)
        return next((node for node in nodes if node in fits), None)

    def note(self, pod: BalancePod, node: str) -> None:
        self.noted.append((pod.name, node))


def run(
    *nodes: BalanceNode,
    rules: BalanceRules | None = None,
    past: BalancePast | None = None,
    permission: Permission | None = None,
    now: float = 0.0,
) -> RoundOutcome:
    return decide(
        rules or make_rules(), nodes, past or BalancePast(), permission or Permission(), now
    )


def moved(outcome: RoundOutcome) -> list[tuple[str, str]]:
    return [(move.pod.name, move.target) for move in outcome.moves]
