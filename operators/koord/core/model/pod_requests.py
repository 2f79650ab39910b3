"""Effective requests of a pod, computed from its containers as kube-scheduler does.

Containers run together, so their requests add up. Init containers run one after the other, so only
the maximum counts; a restartable one (a *sidecar*) keeps running, so it is added to all that start
after it. Requests at pod level replace the sum, overhead is added, and every pod uses one pod slot
of the node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from koord.core.model.units import AMOUNT_LIMIT, CPU, MEMORY, PODS, Amounts

_NOTHING: Final[Amounts] = {}
_HUGE_PAGES: Final = "hugepages-"


@dataclass(frozen=True, slots=True)
class InitContainer:
    """One init container; a sidecar runs as long as the pod."""

    requests: Amounts
    is_sidecar: bool = False


def effective_requests(
    containers: Iterable[Amounts],
    init_containers: Iterable[InitContainer] = (),
    *,
    overhead: Amounts = _NOTHING,
    pod_level: Amounts = _NOTHING,
) -> tuple[tuple[str, int], ...]:
    """Return the effective requests, sorted by resource name, without zeros.

    ``pod_level`` applies to CPU, memory and huge pages only. Amounts are cut at ``AMOUNT_LIMIT``;
    negative ones count as zero.
    """
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for requests in containers:
        _add(running, requests)
    for init in init_containers:
        if init.is_sidecar:
            _add(running, init.requests)
            _add(sidecars, init.requests)
            _raise_to(peak, sidecars)
        else:
            alone = dict(sidecars)
            _add(alone, init.requests)
            _raise_to(peak, alone)
    _raise_to(running, peak)
    running.update({name: max(0, n) for name, n in pod_level.items() if _is_at_pod_level(name)})
    _add(running, overhead)
    running[PODS] = 1
    return tuple(sorted((name, min(n, AMOUNT_LIMIT)) for name, n in running.items() if n > 0))


@lru_cache(maxsize=1024)
def subtract_overhead(
    requests: tuple[tuple[str, int], ...], overhead: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int], ...]:
    """Return effective requests as they were before overhead was added."""
    less = dict(overhead)
    bare = ((name, amount - less.get(name, 0)) for name, amount in requests)
    return tuple((name, amount) for name, amount in bare if amount > 0)


def simple_requests(
    containers: Iterable[Amounts], init_containers: Iterable[InitContainer] = ()
) -> dict[str, int]:
    """Return the maximum of all that run together and of each other init container.

    This is what Koordinator's scoring plugins count: the order of init containers plays no part.
    """
    running: dict[str, int] = {}
    alone: dict[str, int] = {}
    for requests in containers:
        _add(running, requests)
    for init in init_containers:
        count = _add if init.is_sidecar else _raise_to
        count(running if init.is_sidecar else alone, init.requests)
    _raise_to(running, alone)
    return running


def resized_requests(
    spec: Amounts, allocated: Amounts, actual: Amounts, *, is_infeasible: bool = False
) -> Amounts:
    """Return the requests of a container during an in-place resize: the maximum of all three.

    If the node has rejected the resize as infeasible, ``spec`` does not count.
    """
    held: dict[str, int] = {}
    for amounts in (allocated, actual) if is_infeasible else (spec, allocated, actual):
        _raise_to(held, amounts)
    return held


def _is_at_pod_level(resource: str) -> bool:
    return resource in {CPU, MEMORY} or resource.startswith(_HUGE_PAGES)


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + max(0, amount)


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)
