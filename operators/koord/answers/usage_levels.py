"""What quotas are guaranteed, use and lend, and what became of all GPUs, at one instant.

In thousandths of GPUs. Computed from a cluster state; knows nothing of time or of where it is kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from koord.answers.fragmentation import NodeGpus, count_gpus_of_nodes, model_of
from koord.answers.gpus import MILLI, count_slices, measure_gpus
from koord.answers.in_steps import Steps, finish
from koord.answers.pod_tallies import tally_pods
from koord.core.engine.arrays import Ints
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import CARDS, GPU_CORE, GPU_MEMORY_RATIO, KOORD_GPU, WHOLE
from koord.core.quota.model import QuotaName
from koord.core.quota.share_terms import find_lent
from koord.core.quota.solve import Solution
from koord.core.usage.cluster_time import GpuState
from koord.core.usage.quota_time import QuotaLevel
from koord.core.usage.slices import SEVENTHS, measure_slices

_SHARES: Final = (KOORD_GPU, GPU_CORE, GPU_MEMORY_RATIO)
_MOST: Final = 1 << 50
"""More than any cluster has; what somebody writes beyond it does not overflow."""
STEP_NODES: Final = 1000
"""That are looked at in one step."""


def find_quota_levels(solutions: Iterable[Solution], at: int = 0) -> Mapping[QuotaName, QuotaLevel]:
    """Return what is guaranteed to each quota that has to do with GPUs, what it uses and lends.

    Each with the quotas below it. ``at`` is the instant, in milliseconds.
    """
    levels: dict[QuotaName, QuotaLevel] = {}
    for solution in solutions:
        tree = solution.inputs.tree
        if not any(_is_of_gpus(key) for key in tree.keys):
            continue
        results = solution.results
        is_scaled = results.is_shared & (results.share < np.minimum(tree.minimum, results.limited))
        guaranteed = np.where(is_scaled, results.minimum, tree.minimum)
        names, used = tree.layout.names, solution.used_with_children
        lent = [find_lent(solution, key) for key in tree.keys]
        tables = (
            np.array([used[key] for key in tree.keys], dtype=np.int64),
            guaranteed,
            results.child_request,
            np.array([[of_key.get(name, 0) for name in names] for of_key in lent], dtype=np.int64),
        )
        columns = [_measure(tree.keys, table) for table in tables]
        for name, *amounts in zip(names, *(column.tolist() for column in columns), strict=True):
            if any(amounts) and tree.spec(name) is not None:
                levels[name] = QuotaLevel(at, *amounts)
    return levels


def _is_of_gpus(key: str) -> bool:
    return key in CARDS or key in _SHARES or bool(count_slices({key: 1}))


def _measure(keys: Iterable[str], table: Ints) -> Ints:
    """Return thousandths of GPUs by quota: whole ones and slices, else the larger share.

    ``table`` has a line for each key.
    """
    whole: Ints | None = None
    share: Ints | None = None
    for key, column in zip(keys, table, strict=True):
        if not _is_of_gpus(key):
            continue
        amounts = np.clip(column, 0, _MOST)
        if key in _SHARES:
            part = amounts * (MILLI // WHOLE)
            share = part if share is None else np.maximum(share, part)
            continue
        sevenths = count_slices({key: 1})
        part = -(-amounts * sevenths * MILLI // SEVENTHS) if sevenths else amounts * MILLI
        whole = part if whole is None else whole + part
    if whole is None or share is None:
        only = share if whole is None else whole
        return np.zeros(0, dtype=np.int64) if only is None else only
    return np.where(whole > 0, whole, share)


def find_cluster_levels(state: ClusterState) -> Mapping[str, Mapping[GpuState, int]]:
    """Return what became of the GPUs of each model; the states of a model add up to its GPUs.

    What pods hold is used wherever it is; what is left of a node that is not ready or cordoned is
    down.
    """
    return finish(find_cluster_levels_in_steps(state))


def find_cluster_levels_in_steps(
    state: ClusterState,
) -> Steps[Mapping[str, Mapping[GpuState, int]]]:
    """Do the same in short steps: of the state as it is at the first one."""
    state.refresh()
    used, reserved = _find_held(state)
    gpus = count_gpus_of_nodes(state)
    nodes = [state.table.node_at(row) for _, row in state.table.live_rows()]
    levels: dict[str, Counter[GpuState]] = {}
    for at, node in enumerate(nodes):
        if at % STEP_NODES == 0:
            yield
        name = node.name
        counted = gpus.get(name) or NodeGpus(name, "", 0, 0, 0, is_down=node.has_failed)
        total = counted.total * MILLI + measure_slices(count_slices(node.allocatable))
        if not total:
            continue
        is_down = counted.is_down or node.is_unschedulable
        wanted = {
            GpuState.USED: used.get(name, 0),
            GpuState.RESERVED: reserved[name],
            GpuState.BROKEN: counted.broken * MILLI,
            GpuState.DOWN: total if is_down else 0,
            GpuState.UNUSABLE: counted.stranded * MILLI,
        }
        levels.setdefault(model_of(node), Counter()).update(divide(total, wanted))
    return levels


def divide(total: int, wanted: Mapping[GpuState, int]) -> Mapping[GpuState, int]:
    """Return how a total is divided, in the order of what is wanted; the rest is idle."""
    parts: dict[GpuState, int] = {}
    left = total
    for state, amount in wanted.items():
        parts[state] = min(max(0, amount), left)
        left -= parts[state]
    return {**parts, GpuState.IDLE: left}


def _find_held(state: ClusterState) -> tuple[Mapping[str, int], Counter[str]]:
    """Return by node what pods hold, and what reservations hold that no pod uses."""
    tallies, reserved = tally_pods(state), Counter[str]()
    for pod in tallies.reserving.values():
        if pod.node and not pod.phase.is_terminal:
            left = measure_gpus(pod).amount - tallies.used_of[pod.uid]
            reserved[pod.node] += max(0, left)
    return dict(tallies.milli_gpus), reserved
