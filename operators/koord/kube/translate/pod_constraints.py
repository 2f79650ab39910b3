"""Parses pod affinity, anti-affinity and topology spread, once per distinct text and namespace.

Defaults that depend on the pod are filled in: its namespace where a term has none, and its labels
for ``matchLabelKeys`` of spread constraints. For affinity the API server has already merged those
keys into the selector.
"""

from typing import Final

import msgspec
from msgspec import Struct

from koord.caches import cached_by_text
from koord.core.model.constraints import (
    AffinityTerm,
    PodConstraints,
    PodSelector,
    SpreadConstraint,
    WeightedTerm,
)
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HARD: Final = "DoNotSchedule"
_HONOR: Final = "Honor"


class _LabelExpression(Struct, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class WireSelector(Struct, rename="camel", gc=False):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[_LabelExpression] | None = None


class _PodTerm(Struct, rename="camel", gc=False):
    label_selector: WireSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: WireSelector | None = None
    topology_key: str = ""


class _WeightedPodTerm(Struct, rename="camel", gc=False):
    weight: int = 0
    pod_affinity_term: _PodTerm = msgspec.field(default_factory=_PodTerm)


class _PodAffinityRules(Struct, gc=False):
    required: list[_PodTerm] | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[_WeightedPodTerm] | None = msgspec.field(default=None, name=_PREFERRED)


class _PodAffinities(Struct, rename="camel", gc=False):
    pod_affinity: _PodAffinityRules | None = None
    pod_anti_affinity: _PodAffinityRules | None = None


class _Spread(Struct, rename="camel", gc=False):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = _HARD
    label_selector: WireSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


_affinity_decoder = msgspec.json.Decoder(_PodAffinities | None)
_spread_decoder = msgspec.json.Decoder(list[_Spread] | None)

Labels = tuple[tuple[str, str], ...]


@cached_by_text()
def spread_label_keys(raw: bytes) -> tuple[str, ...]:
    """Return the label keys on whose values the spread constraints depend, sorted."""
    wire = (_spread_decoder.decode(raw) if raw else None) or ()
    return tuple(sorted({key for constraint in wire for key in constraint.match_label_keys or ()}))


@cached_by_text()
def parse_constraints(
    affinity: bytes, spread: bytes, namespace: str, labels: Labels
) -> PodConstraints | None:
    """Parse affinity and spread; ``labels`` are the pod's, of :func:`spread_label_keys`."""
    wire = (_affinity_decoder.decode(affinity) if affinity else None) or _PodAffinities()
    near, apart = (
        wire.pod_affinity or _PodAffinityRules(),
        wire.pod_anti_affinity or _PodAffinityRules(),
    )
    spreads = (_spread_decoder.decode(spread) if spread else None) or []
    pod_constraints = PodConstraints(
        affinity=_terms(near, namespace),
        anti_affinity=_terms(apart, namespace),
        preferred=_weighted(near, namespace, 1) + _weighted(apart, namespace, -1),
        spread=_spreads([s for s in spreads if s.when_unsatisfiable == _HARD], namespace, labels),
        even=_spreads([s for s in spreads if s.when_unsatisfiable != _HARD], namespace, labels),
    )
    return None if pod_constraints == PodConstraints() else pod_constraints


def _terms(sort: _PodAffinityRules, namespace: str) -> tuple[AffinityTerm, ...]:
    return tuple(_term(term, namespace) for term in sort.required or ())


def _weighted(sort: _PodAffinityRules, namespace: str, sign: int) -> tuple[WeightedTerm, ...]:
    return tuple(
        WeightedTerm(_term(weighted.pod_affinity_term, namespace), sign * weighted.weight)
        for weighted in sort.preferred or ()
    )


def _term(wire: _PodTerm, namespace: str) -> AffinityTerm:
    names = tuple(sorted(set(wire.namespaces or ())))
    if not names and wire.namespace_selector is None:
        names = (namespace,)
    selector = parse_selector(wire.label_selector)
    by_labels = parse_selector(wire.namespace_selector)
    return AffinityTerm(PodSelector(selector, names, by_labels), wire.topology_key)


def _spreads(wire: list[_Spread], namespace: str, labels: Labels) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            PodSelector(_merged(spread, labels), (namespace,)),
            spread.topology_key,
            spread.max_skew,
            1 if spread.min_domains is None else spread.min_domains,
            (spread.node_affinity_policy or _HONOR) == _HONOR,
            spread.node_taints_policy == _HONOR,
        )
        for spread in wire
    )


def _merged(wire: _Spread, labels: Labels) -> LabelSelector:
    selector = parse_selector(wire.label_selector)
    if selector is None:
        return None
    keys = set(wire.match_label_keys or ())
    own = (Requirement(key, SelectorOperator.IN, (value,)) for key, value in labels if key in keys)
    return tuple(dict.fromkeys((*selector, *own)))


def parse_selector(wire: WireSelector | None) -> LabelSelector:
    """Parse a label selector; an absent one selects nothing."""
    if wire is None:
        return None
    pairs = sorted((wire.match_labels or {}).items())
    return (
        *(Requirement(key, SelectorOperator.IN, (value,)) for key, value in pairs),
        *(
            Requirement(
                match_expression.key,
                SelectorOperator(match_expression.operator),
                tuple(match_expression.values or ()),
            )
            for match_expression in wire.match_expressions or ()
        ),
    )
