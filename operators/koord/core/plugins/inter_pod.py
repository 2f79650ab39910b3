"""The plugin for rules about other pods: affinity, anti-affinity and topology spread.

The plugin indexes the pods of the cluster; a session adds the pods placed in the cycle. A unit
whose members require each other is also tried in one domain after the other. Spread is in
``topology_spread``; the rules of affinity are those of kube-scheduler's plugin InterPodAffinity:

* A domain is the set of nodes with one value of the term's topology key. Nodes without the key are
  in no domain: they fail every affinity term and pass every anti-affinity term.
* Affinity counts pods that *all* required terms select together; each term needs one in the domain.
* The first pod of a group would wait for itself forever. So if no such pod exists in any domain of
  the keys, and the pod is selected by all its own terms, any node with all the keys is feasible.
* Anti-affinity is symmetric: a pod also avoids pods whose anti-affinity selects it.
* Pods that are being deleted count until they are gone.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from typing_extensions import override

from koord.core.engine.arrays import HOSTNAME, NO_LIMIT, Ints, Mask, Rows, choose_tightest
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import FilterReach, Plugin, Reactive, Score
from koord.core.engine.scoring import MAX_SCORE
from koord.core.model.constraints import AffinityTerm, PodConstraints, PodSelector
from koord.core.model.nodes import Namespace
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import Pod, PodShape
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.pod_affinity import (
    INTER_POD,
    AffinityBase,
    AffinityTerms,
    PodAffinityState,
    TermKind,
    selected_by,
)
from koord.core.plugins.pod_index import PodIndex
from koord.core.plugins.topology_spread import score_spread, spread_limits

AFFINITY_WEIGHT: Final = 2
"""kube-scheduler's default weight; the score of resources weighs 1."""
_MANY: Final = 16


def affinity_limits(shape: PodShape, state: PodAffinityState) -> Iterator[tuple[Cause, Ints]]:
    """Yield (cause, limits per row) for each rule that applies to the shape."""
    own = shape.constraints
    if own is not None and own.affinity:
        yield NodeCause.POD_AFFINITY, _unlimited(_near(shape, own.affinity, state))
    if own is not None and own.anti_affinity:
        yield NodeCause.POD_ANTI_AFFINITY, _apart(shape, own.anti_affinity, state)
    mask: Mask | None = None
    terms = state.terms(TermKind.ANTI_AFFINITY, shape)
    if len(terms) > _MANY:
        yield NodeCause.EXISTING_ANTI_AFFINITY, _unlimited(_free_of_all(shape, state))
        return
    for term in terms:
        allowed = _free_of(term, state.weight(TermKind.ANTI_AFFINITY, term), state)
        mask = allowed if mask is None else mask & allowed
    if mask is not None:
        yield NodeCause.EXISTING_ANTI_AFFINITY, _unlimited(mask)


def _near(shape: PodShape, terms: tuple[AffinityTerm, ...], state: PodAffinityState) -> Mask:
    selectors = tuple(term.pods for term in terms)
    counts = state.count(selectors)
    keys = dict.fromkeys(term.topology_key for term in terms)
    is_near: Mask | None = None
    has_keys: Mask | None = None
    exists = False
    for key in keys:
        domains = state.domains(key)
        totals = domains.total(counts)
        exists = exists or bool(totals.any())
        here = domains.of_rows(totals) > 0
        is_near = here if is_near is None else is_near & here
        has_keys = domains.is_known if has_keys is None else has_keys & domains.is_known
    if is_near is None or has_keys is None:
        raise ValueError("affinity has at least one term")
    is_first = not exists and all(pods in selected_by(shape) for pods in selectors)
    return has_keys if is_first else is_near


def _apart(shape: PodShape, terms: tuple[AffinityTerm, ...], state: PodAffinityState) -> Ints:
    limits: Ints | None = None
    for term in terms:
        mask = _free_of(term, state.count((term.pods,)), state)
        limit = _unlimited(mask)
        if term.pods in selected_by(shape):
            # Such a pod excludes the next one of the same shape from its own domain.
            limit[mask & state.domains(term.topology_key).is_known] = 1
        limits = limit if limits is None else np.minimum(limits, limit)
    if limits is None:
        raise ValueError("anti-affinity has at least one term")
    return limits


def _free_of(term: AffinityTerm, per_row: Ints, state: PodAffinityState) -> Mask:
    """Return the rows whose domain has none of the counted pods, and rows without a domain."""
    state.steps.spend(per_row.size, 4)
    domains = state.domains(term.topology_key)
    return np.equal(domains.of_rows(domains.total(per_row)), 0)


def _free_of_all(shape: PodShape, state: PodAffinityState) -> Mask:
    """Return :func:`_free_of` all of many terms: one sum per topology key instead of per term."""
    mask = np.ones(len(state.table.nodes), dtype=np.bool_)
    for key, per_row in state.total_weights(TermKind.ANTI_AFFINITY, shape).items():
        domains = state.domains(key)
        mask &= np.equal(domains.of_rows(domains.total(per_row)), 0)
    return mask


def _unlimited(mask: Mask) -> Ints:
    return np.where(mask, NO_LIMIT, 0)


def score_affinity(shape: PodShape, state: PodAffinityState, rows: Ints) -> Iterator[Score]:
    """Score feasible rows by preferred terms; nothing if no term applies."""
    constraints = shape.constraints
    if not selected_by(shape) and (constraints is None or not constraints.preferred):
        return
    weights = _sum_weights(shape, state, rows)
    if weights is not None:
        yield Score(_normalise(weights[rows]), AFFINITY_WEIGHT)


def _sum_weights(shape: PodShape, state: PodAffinityState, rows: Ints) -> Ints | None:
    """Sum, per row, the weights of preferred terms of the pod and of pods on nodes."""
    total: Ints | None = None
    preferred = state.terms(TermKind.PREFERRED, shape)
    if len(preferred) > _MANY:  # an array for each would take too much memory
        weights = list(state.total_weights(TermKind.PREFERRED, shape).items())
    else:
        weights = [
            (term.topology_key, state.weight(TermKind.PREFERRED, term)) for term in preferred
        ]
    own = () if shape.constraints is None else shape.constraints.preferred
    weights += [
        (
            weighted_term.term.topology_key,
            weighted_term.weight * state.count((weighted_term.term.pods,)),
        )
        for weighted_term in own
    ]
    state.steps.spend(rows.size, 4 * len(weights))
    for key, per_row in weights:
        domains = state.domains(key)
        part = domains.of_rows(domains.total(per_row))
        total = part if total is None else total + part
    return total


def _normalise(scores: Ints) -> Ints:
    least, most = int(scores.min()), int(scores.max())
    return (scores - least) * MAX_SCORE // max(most - least, 1)


_NO_CONSTRAINTS: Final = PodConstraints()


class InterPod(Plugin):
    """The pods of the cluster, their terms, and the labels of namespaces."""

    name = INTER_POD

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._pods = PodIndex(self.namespaces)
        self._terms = AffinityTerms()
        self._slots: dict[str, int] = {}

    def upsert_namespace(self, namespace: Namespace) -> None:
        if self.namespaces.get(namespace.name) != namespace.labels:
            self.namespaces[namespace.name] = namespace.labels
            self.view.note_relabelled()

    def remove_namespace(self, namespace: Namespace) -> None:
        if self.namespaces.pop(namespace.name, None) is not None:
            self.view.note_relabelled()

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if row < 0:
            return
        if count < 0:
            self._pods.remove(self._slots.pop(charge.uid))
        else:
            slot = self._pods.add(charge.profile, row, is_terminating=charge.is_terminating)
            self._slots[charge.uid] = slot
        if charge.constraints is not None:
            self._terms.charge(row, charge.constraints, count)

    @override
    def open(self, cycle: Cycle) -> "InterPodSession":
        base = AffinityBase(self.namespaces, self._pods, self._terms)
        return InterPodSession(PodAffinityState(base, cycle.table, cycle.steps), cycle)


class InterPodSession(Reactive):
    """The rules in one cycle, which include the pods it has placed."""

    name = InterPod.name
    reach = FilterReach.CLUSTER

    def __init__(self, state: PodAffinityState, cycle: Cycle) -> None:
        self.state = state
        self._cycle = cycle

    @override
    def expect(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.shape.constraints is not None:
                self.state.register(pod.shape.constraints)

    @override
    def ask(self, pod: Pod, shape: PodShape) -> tuple[PodSelector, ...] | None:
        if shape.constraints is not None:
            self.state.register(shape.constraints)
        elif self.state.has_no_terms:
            return None
        return self.state.selectors_of(pod.profile) or None

    @override
    def ask_all(self, pods: Sequence[Pod]) -> Sequence[Hashable | None] | None:
        return None if self.state.has_no_terms else super().ask_all(pods)

    @override
    def concerns(self, shape: PodShape) -> bool:
        return shape.constraints is not None or bool(shape.asks and selected_by(shape))

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        if shape.constraints is not None:
            for cause, limits in spread_limits(shape, self.state):
                yield cause, limits[rows]
        if self.concerns(shape):
            for cause, limits in affinity_limits(shape, self.state):
                yield cause, limits[rows]

    @override
    def most_when_empty(self, shape: PodShape) -> int | None:
        if not self.concerns(shape):
            return NO_LIMIT
        return 1 if _is_one_per_node(shape) else None

    @override
    def may_fit_later(self, shape: PodShape) -> bool:
        return shape.constraints is not None

    @override
    def is_reactive(self, shape: PodShape) -> bool:
        constraints = shape.constraints
        return constraints is not None and any(
            pods in selected_by(shape) for pods in constraints.selectors
        )

    @override
    def retry_within(self, shapes: Mapping[PodShape, int]) -> Iterator[Mapping[PodShape, Mask]]:
        return find_affinity_seeds(self._cycle, self.state, shapes)

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        if self.concerns(shape):
            yield from score_spread(shape, self.state, rows)
            yield from score_affinity(shape, self.state, rows)

    @override
    def apply(self, shape: PodShape, row: int, count: int) -> None:
        self.state.apply(shape, row, count)

    @override
    def spend_apply(self, shape: PodShape) -> None:
        self.state.spend_apply()


def _is_one_per_node(shape: PodShape) -> bool:
    """Whether such pods only require that each node runs at most one of them."""
    constraints = shape.constraints or _NO_CONSTRAINTS
    if constraints.affinity or constraints.spread:
        return False
    return any(
        term.topology_key == HOSTNAME and term.pods in selected_by(shape)
        for term in constraints.anti_affinity
    ) and all(term.topology_key == HOSTNAME for term in constraints.anti_affinity)


def find_affinity_seeds(
    cycle: Cycle, state: PodAffinityState, pods: Mapping[PodShape, int]
) -> Iterator[dict[PodShape, Mask]]:
    """Yield restrictions to one domain with room for all members, the tightest first.

    The first pod of members that require each other may go anywhere, and all others have to follow.
    If it goes where there is no room for them, the whole unit fails although it would fit
    elsewhere. So a unit that failed is tried again, restricted to one domain after the other that
    has room for every member.
    """
    keys, members = _find_dependent(state, pods)
    if not members:
        return
    domain, size = _combine_domains(cycle, state, keys)
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


def _combine_domains(cycle: Cycle, state: PodAffinityState, keys: list[str]) -> tuple[Ints, int]:
    """Return, per row, the number of its combination of values, 0 for none; and an upper bound."""
    combined = np.zeros(len(cycle.table.nodes), dtype=np.int64)
    is_known = cycle.table.is_live.copy()
    for key in keys:
        domains = state.domains(key)
        is_known &= domains.is_known
        _, combined = np.unique(combined * (domains.size + 1) + domains.of_row, return_inverse=True)
    numbers = np.where(is_known, combined + 1, 0)
    return numbers, int(numbers.max(initial=0)) + 1
