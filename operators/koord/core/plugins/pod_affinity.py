"""Pods on nodes as inter-pod rules see them in a cycle: counted per selector, weighed per term.

Answers are arrays over node rows. Each is computed on first use and then updated with every pod
that the cycle places, so that members of one gang see each other.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from typing_extensions import override

from koord.caches import MIB, cached_by_text
from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.node_table import NodeTable
from koord.core.engine.steps import Steps
from koord.core.model.constraints import AffinityTerm, PodConstraints, PodLabels, PodSelector
from koord.core.model.pods import PodShape
from koord.core.model.selectors import is_selected
from koord.core.plugins.affinity_terms import HARD_WEIGHT, AffinityTerms, SelectorIndex, TermCounts
from koord.core.plugins.pod_index import Namespaces, PodIndex


@dataclass(frozen=True, slots=True)
class AffinityBase:
    """The cluster before the cycle: all pods on nodes, their terms, the labels of namespaces."""

    namespaces: Namespaces
    pods: PodIndex
    terms: AffinityTerms


@dataclass(frozen=True, slots=True)
class LabelDomains:
    """Nodes by the value of one label; ``of_row`` is 0 for rows without the label."""

    of_row: Ints
    size: int

    @property
    def is_known(self) -> Mask:
        return np.greater(self.of_row, 0)

    def total(self, per_row: Ints) -> Ints:
        """Sum over each domain; rows without a domain count nowhere."""
        sums = np.bincount(self.of_row, weights=per_row, minlength=self.size + 1)
        sums[0] = 0
        return sums.astype(np.int64)

    def of_rows(self, per_domain: Ints) -> Ints:
        """Return the number of each row's domain; 0 for rows without a domain."""
        return per_domain[self.of_row]


class TermKind(StrEnum):
    """The kinds of terms with which pods on nodes affect new pods."""

    ANTI_AFFINITY = "AntiAffinity"
    PREFERRED = "Preferred"


INTER_POD: Final = "inter-pod"
"""The name of the plugin, under which shapes carry the selectors that select them."""

_CountKey: TypeAlias = tuple[tuple[PodSelector, ...], bool]


class PodAffinityState:
    """Pods and terms on nodes, as they are in the middle of a cycle."""

    def __init__(self, base: AffinityBase, table: NodeTable, steps: Steps) -> None:
        self.table = table
        self.steps = steps
        self._base = base
        self._registered = SelectorIndex()
        self._added = AffinityTerms()
        self._placed: Counter[tuple[PodShape, int]] = Counter()
        self._counts: dict[_CountKey, Ints] = {}
        self._weights: dict[tuple[TermKind, AffinityTerm], Ints] = {}
        self._selectors: dict[PodLabels, Selected] = {}
        self._domains: dict[str, LabelDomains] = {}
        self._remembered: dict[Hashable, Mask] = {}
        self._spent_by: dict[str, int] = {}
        """Kind of work -> the unit that has done it last."""

    @property
    def has_no_terms(self) -> bool:
        """Whether no pod, on a node or expected, has terms about other pods."""
        return not self._registered and not self._base.terms

    def register(self, constraints: PodConstraints) -> None:
        """Register the selectors of a pod, before any pod of the cycle is placed."""
        before = len(self._registered)
        for pods in constraints.selectors:
            if pods not in self._registered:
                self._registered.add(pods)
        if len(self._registered) != before:
            self._selectors.clear()

    def selects(self, pods: PodSelector, profile: PodLabels) -> bool:
        labels = self._base.namespaces.get(profile.namespace, {})
        is_named = pods.selects_namespace(profile.namespace, labels)
        return is_named and is_selected(profile.labels, pods.selector)

    def selecting(self, selectors: SelectorIndex, profile: PodLabels) -> Iterator[PodSelector]:
        return selectors.selecting(profile, self._base.namespaces)

    def selectors_of(self, profile: PodLabels) -> "Selected":
        """Return the registered selectors that select such a pod, in a fixed order."""
        selected = self._selectors.get(profile)
        if selected is None:
            self._spend("candidates", self._registered.count_candidates(profile))
            selectors = dict.fromkeys(self.selecting(self._registered, profile))
            own = len(selectors)
            self._spend("order", 8 * own)
            for index in self._base.terms.indexes:
                selectors |= dict.fromkeys(self.selecting(index, profile))
                self.steps.take_for_others(index.count_candidates(profile))
            self.steps.take_for_others(8 * (len(selectors) - own))
            selected = self._selectors[profile] = Selected(sorted(selectors, key=_order_of))
        return selected

    def domains(self, key: str) -> LabelDomains:
        domains = self._domains.get(key)
        if domains is None:
            column = self.table.labels.column(key)
            domains = LabelDomains(column.ids.astype(np.int64) + 1, len(column.values))
            self._domains[key] = domains
        return domains

    def count(self, pods: tuple[PodSelector, ...], *, alive_only: bool = False) -> Ints:
        """Count, per row, the pods that all selectors select; do not write to it."""
        key = (pods, alive_only)
        counts = self._counts.get(key)
        if counts is None:
            rows = len(self.table.nodes)
            self.steps.spend(rows + self._base.pods.size, len(pods))
            self.steps.spend(0, len(self._placed))
            counts = self._base.pods.count(pods, rows, alive_only=alive_only)
            for (shape, row), placed in self._placed.items():
                if _is_selected_by(shape, pods):
                    counts[row] += placed
            self._counts[key] = counts
        return counts

    def weight(self, kind: TermKind, term: AffinityTerm) -> Ints:
        """Return the weight of one term per row of the pods that have it; do not write to it."""
        weights = self._weights.get((kind, term))
        if weights is None:
            weights = np.zeros(len(self.table.nodes), dtype=np.int64)
            for terms in (self._base.terms, self._added):
                for row, weight in _counts_of(terms, kind).weights(term).items():
                    weights[row] += weight
            self._weights[kind, term] = weights
        return weights

    def total_weights(self, kind: TermKind, shape: PodShape) -> dict[str, Ints]:
        """Return topology key -> the sum of :meth:`weight` of all :meth:`terms`."""
        totals: dict[str, Ints] = {}
        for terms in (self._base.terms, self._added):
            for key, total in _counts_of(terms, kind).totals(selected_by(shape)).items():
                self.steps.spend(100 * len(total))
                per_row = totals.setdefault(key, np.zeros(len(self.table.nodes), dtype=np.int64))
                per_row[list(total)] += list(total.values())
        return totals

    def terms(self, kind: TermKind, shape: PodShape) -> dict[AffinityTerm, None]:
        """Return the terms of pods on nodes that select such a pod, each once."""
        selected = selected_by(shape)
        own = min(len(selected), len(self._registered))
        self._spend(kind, own)
        self.steps.take_for_others(len(selected) - own)
        return dict.fromkeys(
            term
            for pods in selected
            for terms in (self._base.terms, self._added)
            for term in _counts_of(terms, kind).terms_of(pods)
        )

    def remember(self, key: Hashable, find: Callable[[], Mask]) -> Mask:
        """Return a memoised mask; only for what no placement changes."""
        mask = self._remembered.get(key)
        if mask is None:
            mask = self._remembered[key] = find()
        return mask

    def spend_apply(self) -> None:
        """Count the work of one :meth:`apply`, and of its opposite."""
        self._spend("apply", len(self._counts))

    def _spend(self, work: str, operations: int) -> None:
        """Count work that rules of all units of the cycle cause: each unit may do it once anyway.

        So an ordinary pod is not too expensive because of the rules of others in its namespace.
        """
        if self._spent_by.get(work) == self.steps.units:
            self.steps.spend(0, operations)
        else:
            self._spent_by[work] = self.steps.units
            self.steps.take_for_others(operations)

    def apply(self, shape: PodShape, row: int, count: int) -> None:
        """Put pods of a shape on a row (negative: take them off again)."""
        self._placed[shape, row] += count
        if not self._placed[shape, row]:
            del self._placed[shape, row]
        for (pods, _), counts in self._counts.items():
            if _is_selected_by(shape, pods):
                counts[row] += count
        if shape.constraints is not None:
            self._add_terms(shape.constraints, row, count)

    def _add_terms(self, constraints: PodConstraints, row: int, count: int) -> None:
        self._added.charge(row, constraints, count)
        for term in constraints.anti_affinity:
            self._weigh(TermKind.ANTI_AFFINITY, term, row, count)
        for term in constraints.affinity:
            self._weigh(TermKind.PREFERRED, term, row, count * HARD_WEIGHT)
        for weighted_term in constraints.preferred:
            self._weigh(TermKind.PREFERRED, weighted_term.term, row, count * weighted_term.weight)

    def _weigh(self, kind: TermKind, term: AffinityTerm, row: int, weight: int) -> None:
        weights = self._weights.get((kind, term))
        if weights is not None:
            weights[row] += weight


class Selected(tuple[PodSelector, ...]):  # noqa: SLOT001 - it caches
    """The registered selectors that select a pod, in a fixed order; there may be thousands."""

    @cached_property
    def _members(self) -> frozenset[PodSelector]:
        return frozenset(iter(self))

    @override
    def __contains__(self, selector: object) -> bool:
        return selector in self._members


@cached_by_text(16 * MIB)
def _order_of(pods: PodSelector) -> str:
    return repr(pods)


def selected_by(shape: PodShape) -> tuple[PodSelector, ...]:
    """Return the registered selectors that select pods of a shape."""
    selected = shape.ask_of(INTER_POD)
    return selected if isinstance(selected, Selected) else ()


def _is_selected_by(shape: PodShape, pods: tuple[PodSelector, ...]) -> bool:
    return all(pod in selected_by(shape) for pod in pods)


def _counts_of(terms: AffinityTerms, kind: TermKind) -> TermCounts:
    return terms.anti_affinity if kind is TermKind.ANTI_AFFINITY else terms.preferred
