"""Adapters for NUMA policies and CPU pinning: cases as the values of our rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from koord.core.engine.scoring import ScoringStrategy
from koord.core.model.zone_hints import NumaHint, NumaNodes
from koord.core.numa.cpu_topology import (
    CpuExclusive,
    CpuPlace,
    Cpus,
    CpusInUse,
    format_cpuset,
    make_topology,
    parse_cpuset,
)
from koord.core.numa.cpus import CpuBind, CpuPool, CpuRequest, take_cpus
from koord.core.numa.policy import NumaExclusive, NumaOccupancy, NumaPolicy, align

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Fields = dict[str, Any]


def make_pool(case: Mapping[str, Any]) -> CpuPool:
    shape = case["topology"]
    per_core = shape["cpus_per_core"]
    per_numa = shape["cores_per_numa_node"]
    per_socket = shape["numa_nodes_per_socket"]
    cores = shape["sockets"] * per_socket * per_numa
    topology = make_topology(
        CpuPlace(
            cpu,
            core=cpu // per_core,
            numa=cpu // per_core // per_numa,
            socket=cpu // per_core // per_numa // per_socket,
        )
        for cpu in range(cores * per_core)
    )
    assert topology is not None
    is_packing = case["numa_allocate_strategy"] == ScoringStrategy.MOST_ALLOCATED
    strategy = ScoringStrategy.MOST_ALLOCATED if is_packing else ScoringStrategy.LEAST_ALLOCATED
    return CpuPool(topology, topology.cpus, strategy, case["max_ref_count"])


def read_exclusive(text: str) -> CpuExclusive | None:
    return CpuExclusive(text) if text not in {"", "None"} else None


def read_cpus(text: str) -> Cpus:
    cpus = parse_cpuset(text)
    assert isinstance(cpus, int)
    return cpus


def take(
    case: Mapping[str, Any], pool: CpuPool, in_use: CpusInUse, step: Mapping[str, Any]
) -> Cpus | str:
    exclusive = read_exclusive(case["exclusive_policy"])
    request = CpuRequest(step["num_cpus"], CpuBind(step["bind_policy"]), exclusive=exclusive)
    taken = take_cpus(pool, in_use, request)
    return taken if isinstance(taken, int) else taken.describe()


def take_cpus_case(case: Fields) -> Fields:
    policy = read_exclusive(case["allocated_exclusive_policy"])
    in_use = CpusInUse().hold(read_cpus(case["allocated_cpus"]), policy)
    taken = take(case, make_pool(case), in_use, case)
    return {"error": taken} if isinstance(taken, str) else {"cpuset": format_cpuset(taken)}


def take_cpus_sequence(case: Fields) -> Fields:
    pool, in_use = make_pool(case), CpusInUse()
    recorded = read_exclusive(case["recorded_exclusive_policy_of_each_step"])
    agree = True
    for step in case["steps"]:
        taken = take(case, pool, in_use, step)
        if not isinstance(taken, int):
            agree = agree and "expected_cpuset" not in step
            continue
        agree = agree and taken == read_cpus(step["expected_cpuset"])
        in_use = in_use.hold(taken, recorded)
    return {"all_steps": agree}


def pack(nodes: Iterable[int]) -> NumaNodes:
    return sum(1 << node for node in nodes)


def unpack(nodes: NumaNodes | None) -> list[int] | None:
    if nodes is None:
        return None
    return [node for node in range(nodes.bit_length()) if nodes >> node & 1]


def read_hint(hint: Mapping[str, Any]) -> NumaHint:
    nodes = hint.get("affinity")
    return NumaHint(
        None if nodes is None else pack(nodes), hint.get("preferred", False), hint.get("score", 0)
    )


def read_occupancy(states: Iterable[str]) -> NumaOccupancy:
    numbered = list(enumerate(states))
    return NumaOccupancy(
        single=pack(node for node, state in numbered if state == "single"),
        shared=pack(node for node, state in numbered if state == "shared"),
    )


def numa_policy_merge(case: Fields) -> Fields:
    hints = [
        (name, None if some is None else [read_hint(one) for one in some])
        for provider in case["providers"]
        for name, some in (provider or {}).items()
    ]
    found = align(
        NumaPolicy(case["policy"]),
        pack(case["numa_nodes"]),
        hints,
        NumaExclusive(case["exclusive"]),
        read_occupancy(case.get("numa_status") or ()),
    )
    return {
        "affinity": unpack(found.hint.nodes),
        "preferred": found.hint.is_preferred,
        "unsatisfied": found.hint.is_unsatisfied,
        "score": found.hint.score,
        "admit": found.cause is None,
        "reasons": [] if found.cause is None else list(found.cause.messages()),
    }


def numa_exclusive_check(case: Fields) -> Fields:
    conflict = read_occupancy(case["numa_status"]).conflict(
        NumaExclusive(case["exclusive"]), pack(case["affinity"])
    )
    return {"allowed": conflict is None}


ADAPTERS: dict[str, Callable[[Fields], Fields]] = {
    "numa_exclusive_check": numa_exclusive_check,
    "numa_policy_merge": numa_policy_merge,
    "take_cpus": take_cpus_case,
    "take_cpus_sequence": take_cpus_sequence,
}
