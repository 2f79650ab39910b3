"""Scores of what a pod prefers of other pods: preferred affinity and even spread.

Each part scores feasible nodes from 0 to 100, with kube-scheduler's default weight beside the score
of resources, which weighs 1. Sources: the plugins PodTopologySpread and InterPodAffinity. A part
that does not tell nodes apart is left out.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np

from koord.core.constraints import SpreadConstraint
from koord.core.framework.arrays import HOSTNAME, Ints, Mask
from koord.core.framework.plugin import Score
from koord.core.framework.scoring import MAX_SCORE
from koord.core.plugins.pod_affinity import PodAffinityState, TermKind, selected_by
from koord.core.plugins.topology_spread import counting_rows, matching_pods
from koord.core.pods import PodShape

SPREAD_WEIGHT: Final = 2
COMPANY_WEIGHT: Final = 2

_ONE: Final = 1 << 20
"""Logarithms are kept as multiples of 1/``_ONE``: what is decided is decided by integers."""


def score_pods(state: PodAffinityState, shape: PodShape, rows: Ints) -> Iterator[Score]:
    """Score feasible rows by what the pod prefers of other pods; nothing if all are the same."""
    constraints = shape.constraints
    if constraints is not None and constraints.even:
        yield Score(_evenness(shape, constraints.even, state, rows), SPREAD_WEIGHT)
    if selected_by(shape) or (constraints is not None and constraints.preferred):
        company = _company(shape, state)
        if company is not None:
            yield Score(_between_least_and_most(company[rows]), COMPANY_WEIGHT)


def _between_least_and_most(scores: Ints) -> Ints:
    least, most = int(scores.min()), int(scores.max())
    return (scores - least) * MAX_SCORE // max(most - least, 1)


def _company(shape: PodShape, state: PodAffinityState) -> Ints | None:
    """Sum the weights of all terms that speak for or against each row, both ways."""
    total: Ints | None = None
    others = state.terms(TermKind.PREFERRED, shape)
    found = [(term, state.weight(TermKind.PREFERRED, term)) for term in others]
    own = () if shape.constraints is None else shape.constraints.preferred
    found += [(one.term, one.weight * state.count((one.term.pods,))) for one in own]
    for term, per_row in found:
        domains = state.domains(term.topology_key)
        part = domains.of_rows(domains.total(per_row))
        total = part if total is None else total + part
    return total


def _evenness(
    shape: PodShape, constraints: tuple[SpreadConstraint, ...], state: PodAffinityState, rows: Ints
) -> Ints:
    """Score high where few pods are; rows without one of the keys get nothing."""
    scored = np.ones(rows.size, dtype=np.bool_)
    for constraint in constraints:
        scored &= state.domains(constraint.topology_key).is_known[rows]
    if not scored.any():
        return np.zeros(rows.size, dtype=np.int64)
    among = rows[scored]
    crowd = np.zeros(among.size, dtype=np.int64)
    for constraint in constraints:
        crowd += _crowd(shape, constraint, constraints, state, among)
    crowd = (crowd + _ONE // 2) // _ONE
    least, most = int(crowd.min()), int(crowd.max())
    scores = np.zeros(rows.size, dtype=np.int64)
    scores[scored] = (most + least - crowd) * MAX_SCORE // most if most else MAX_SCORE
    return scores


def _crowd(
    shape: PodShape,
    constraint: SpreadConstraint,
    constraints: tuple[SpreadConstraint, ...],
    state: PodAffinityState,
    among: Ints,
) -> Ints:
    """Return how crowded the domain of each row is, times ``_ONE``.

    Pods count for more where there are more domains, so that a few zones do not outweigh many
    hosts.
    """
    domains = state.domains(constraint.topology_key)
    pods = matching_pods(constraint, state)
    if constraint.topology_key == HOSTNAME:
        here, size = pods[among], among.size
    else:
        counting: Mask = counting_rows(constraint, constraints, shape, state)
        here = domains.of_rows(domains.total(np.where(counting, pods, 0)))[among]
        size = np.unique(domains.of_row[among]).size
    return here * _log(size + 2) + (constraint.max_skew - 1) * _ONE


@lru_cache(maxsize=1024)
def _log(number: int) -> int:
    return round(math.log(number) * _ONE)
