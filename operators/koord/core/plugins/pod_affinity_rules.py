"""Filters and scores of inter-pod affinity and anti-affinity.

The rules are those of kube-scheduler's plugin InterPodAffinity:

* A domain is the set of nodes with one value of the term's topology key. Nodes without the key are
  in no domain: they fail every affinity term and pass every anti-affinity term.
* Affinity counts pods that *all* required terms select together; each term needs one in the domain.
* The first pod of a group would wait for itself forever. So if no such pod exists in any domain of
  the keys, and the pod is selected by all its own terms, any node with all the keys is feasible.
* Anti-affinity is symmetric: a pod also avoids pods whose anti-affinity selects it.
* Pods that are being deleted count until they are gone.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from koord.core.engine.arrays import NO_LIMIT, Ints, Mask
from koord.core.engine.cause import Cause
from koord.core.engine.plugin import Score
from koord.core.engine.scoring import MAX_SCORE
from koord.core.model.constraints import AffinityTerm
from koord.core.model.pods import PodShape
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.pod_affinity import PodAffinityState, TermKind, selected_by

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
