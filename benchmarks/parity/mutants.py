"""Rules broken on purpose, one at a time: a comparison that misses one does not test the rule.

Each mutant replaces one function of the planner by one that forgets a rule. It is found out by a
pod for which it answers otherwise than kube-scheduler. The label keys of terms and constraints
(``matchLabelKeys``) have no mutant: the API server has them in the selectors already.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from benchmarks.parity.ours import Feasible, Sight, find_feasible
from koord.core.engine import labels, node_table
from koord.core.engine.arrays import NO_LIMIT
from koord.core.engine.cause import Cause
from koord.core.model.constraints import PodSelector
from koord.core.model.selectors import SelectorOperator
from koord.core.plugins import (
    inter_pod,
    node_rules,
    topology_spread,
    volumes,
)
from koord.core.plugins.causes import NodeCause
from koord.core.plugins.host_ports import PortsInUse
from koord.core.plugins.pod_affinity import PodAffinityState
from koord.kube.translate import pod_constraints, shapes


@dataclass(frozen=True, slots=True)
class _Patch:
    """A function and its replacement; ``make`` gets the original."""

    owner: Any
    name: str
    make: Callable[[Callable[..., Any]], Callable[..., Any]]


def count_found_out(mutant: str, sight: Sight, theirs: Feasible) -> int:
    """Count the pods for which a mutant is wrong, of those for which we are right."""
    right = find_feasible(sight)
    with _applied(MUTANTS[mutant]):
        broken = find_feasible(sight)
    return sum(right[name] == theirs[name] != broken[name] for name in broken)


@contextmanager
def _applied(change: _Patch) -> Iterator[None]:
    caches = (pod_constraints.parse_constraints, pod_constraints.spread_label_keys)
    true = getattr(change.owner, change.name)
    with ExitStack() as stack:
        for cache in caches:
            cache.cache_clear()
            stack.callback(cache.cache_clear)
        stack.enter_context(patch.object(change.owner, change.name, change.make(true)))
        yield


def _give(value: Any) -> Callable[[Any], Callable[..., Any]]:
    return lambda _: lambda *_args, **_options: value


def _every_row(_: Any) -> Callable[..., Any]:
    return lambda *given: np.ones(len(given[-1].table.nodes), dtype=np.bool_)


def _no_limit(_: Any) -> Callable[..., Any]:
    return lambda *given: np.full(len(given[-1].table.nodes), NO_LIMIT)


def _unsought(true: Callable[..., Any]) -> Callable[..., Any]:
    """Let no rule of a pod select the pod itself."""
    return lambda shape, *rest: true(replace(shape, asks=(), _spec=shape.spec), *rest)


def _term_by_term(true: Callable[..., Any]) -> Callable[..., Any]:
    def near(shape: Any, terms: Any, around: Any) -> Any:
        return np.logical_and.reduce([true(shape, (term,), around) for term in terms])

    return near


def _counted_alone(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda one, _others, shape, around: true(one, (one,), shape, around)


def _changed(**fields: Any) -> Callable[[Any], Callable[..., Any]]:
    """Replace fields of every spread constraint."""
    return lambda true: lambda one, *rest: true(replace(one, **fields), *rest)


def _changed_limit(true: Callable[..., Any]) -> Callable[..., Any]:
    def limits(shape: Any, one: Any, *rest: Any) -> Any:
        return true(shape, replace(one, max_skew=one.max_skew + 1), *rest)

    return limits


def _without(*causes: Cause) -> Callable[[Any], Callable[..., Any]]:
    """Leave out the limits (or checks) of some causes."""

    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (one for one in true(*given) if one[0] not in causes)

    return make


def _swapped(one: SelectorOperator, other: SelectorOperator) -> Callable[[Any], Callable[..., Any]]:
    swap = {one: other, other: one}

    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        def matching(columns: Any, asked: Any) -> Any:
            operator = swap.get(asked.operator, asked.operator)
            return true(columns, replace(asked, operator=operator))

        return matching

    return make


def _alive_or_not(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda around, pods, **_: true(around, pods)


def _selector_if_none(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda wire: () if wire is None else true(wire)


def _none_if_empty(true: Callable[..., Any]) -> Callable[..., Any]:
    return lambda wire: true(wire) or None


def _only_by_name(_: Any) -> Callable[..., Any]:
    return lambda pods, namespace, _labels: namespace in pods.namespaces


MUTANTS: Final[dict[str, _Patch]] = {
    "ignore required affinity": _Patch(inter_pod, "_near", _every_row),
    "ignore that affinity's terms mean the same pods": _Patch(inter_pod, "_near", _term_by_term),
    "ignore that the first of a group waits for nobody": _Patch(inter_pod, "_near", _unsought),
    "ignore required anti-affinity": _Patch(inter_pod, "_apart", _no_limit),
    "ignore the anti-affinity of pods that are there": _Patch(PodAffinityState, "terms", _give(())),
    "ignore namespaceSelector": _Patch(PodSelector, "selects_namespace", _only_by_name),
    "ignore namespaces": _Patch(PodSelector, "selects_namespace", _give(value=True)),
    "take no selector for one of all": _Patch(pod_constraints, "parse_selector", _selector_if_none),
    "take a selector of all for none": _Patch(pod_constraints, "parse_selector", _none_if_empty),
    "ignore hard spread": _Patch(inter_pod, "spread_limits", _give(())),
    "allow a skew of one more": _Patch(topology_spread, "_limits", _changed_limit),
    "ignore minDomains": _Patch(
        topology_spread, "_minima", lambda true: lambda totals, present, _: true(totals, present, 1)
    ),
    "always honor node affinity in spread": _Patch(
        topology_spread, "counting_rows", _changed(honors_affinity=True)
    ),
    "never honor node affinity in spread": _Patch(
        topology_spread, "counting_rows", _changed(honors_affinity=False)
    ),
    "always honor taints in spread": _Patch(
        topology_spread, "counting_rows", _changed(honors_taints=True)
    ),
    "never honor taints in spread": _Patch(
        topology_spread, "counting_rows", _changed(honors_taints=False)
    ),
    "count nodes that lack the keys of other spreads": _Patch(
        topology_spread, "counting_rows", _counted_alone
    ),
    "ignore that the pod counts for its own spread": _Patch(topology_spread, "_limits", _unsought),
    "count pods that are being deleted in spread": _Patch(PodAffinityState, "count", _alive_or_not),
    "ignore the node affinity of volumes": _Patch(
        volumes.VolumesSession, "filter", _without(NodeCause.VOLUME_AFFINITY)
    ),
    "ignore the zones of volumes": _Patch(
        volumes.VolumesSession, "filter", _without(NodeCause.VOLUME_ZONE)
    ),
    "ignore ReadWriteOncePod": _Patch(
        volumes.VolumesSession, "filter", _without(NodeCause.VOLUME_IN_USE)
    ),
    "ignore that a claim cannot be used yet": _Patch(
        volumes.VolumeCache, "blocking_reason", _give(value=None)
    ),
    "ignore host ports": _Patch(PortsInUse, "rows_in_conflict", _give([])),
    "ignore cordons": _Patch(node_rules, "check_node_rules", _without(NodeCause.UNSCHEDULABLE)),
    "ignore taints": _Patch(node_rules, "check_node_rules", _without(NodeCause.TAINT)),
    "ignore node selectors": _Patch(shapes, "parse_selector", _give(())),
    "ignore node affinity": _Patch(shapes, "_relevant_terms", _give(value=None)),
    "take Gt for Lt": _Patch(
        labels.Columns, "matching", _swapped(SelectorOperator.GT, SelectorOperator.LT)
    ),
    "ignore what pods use": _Patch(node_table.NodeTable, "charge", _give(value=None)),
}
"""What the mutant does wrong, as the end of a sentence -> the mutant."""
