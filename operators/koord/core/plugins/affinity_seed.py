"""Seeds inter-pod affinity: where members that require each other can start, all in one domain.

The first pod of such a set may go anywhere, and all others have to follow. If it goes where there
is no room for them, the whole unit fails although it would fit elsewhere. So a unit that failed is
tried again, restricted to one domain after the other that has room for every member.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.tightest_domain import choose_tightest
from koord.core.model.constraints import AffinityTerm
from koord.core.model.pods import PodShape
from koord.core.plugins.pod_affinity import PodAffinityState, selected_by


def find_affinity_seeds(
    cycle: Cycle, state: PodAffinityState, pods: Mapping[PodShape, int]
) -> Iterator[dict[PodShape, Mask]]:
    """Yield restrictions to one domain with room for all members, the tightest first."""
    keys, members = _find_dependent(state, pods)
    if not members:
        return
    domain, size = _combine(cycle, state, keys)
    fits = np.arange(size) > 0
    spare = np.full(size, np.iinfo(np.int64).max)
    for shape in members:
        room = np.bincount(domain, weights=cycle.capacity(shape), minlength=size)
        fits &= room >= pods[shape]
        spare = np.minimum(spare, room.astype(np.int64) - pods[shape])
    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, domain, cycle.table.name_rank)
    for number in choose_tightest(fits, spare, first)[0]:
        yield dict.fromkeys(members, np.equal(domain, number))


def _find_dependent(
    state: PodAffinityState, pods: Mapping[PodShape, int]
) -> tuple[list[str], list[PodShape]]:
    """Return the topology keys of affinity that only members can satisfy, and those members."""
    keys: dict[str, None] = {}
    members: dict[PodShape, None] = {}
    for shape in pods:
        terms = () if shape.constraints is None else shape.constraints.affinity
        wanted = [other for other in pods if _is_selected(other, terms)]
        if not wanted or state.count(tuple(term.pods for term in terms)).any():
            continue
        keys |= dict.fromkeys(term.topology_key for term in terms)
        members |= dict.fromkeys([shape, *wanted])
    return list(keys), list(members)


def _is_selected(shape: PodShape, terms: tuple[AffinityTerm, ...]) -> bool:
    return bool(terms) and all(term.pods in selected_by(shape) for term in terms)


def _combine(cycle: Cycle, state: PodAffinityState, keys: list[str]) -> tuple[Ints, int]:
    """Return, per row, the number of its combination of values, 0 for none; and an upper bound."""
    combined = np.zeros(len(cycle.table.nodes), dtype=np.int64)
    is_known = cycle.table.is_live.copy()
    for key in keys:
        domains = state.domains(key)
        is_known &= domains.is_known
        _, combined = np.unique(combined * (domains.size + 1) + domains.of_row, return_inverse=True)
    numbers = np.where(is_known, combined + 1, 0)
    return numbers, int(numbers.max(initial=0)) + 1
