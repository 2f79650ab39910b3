"""Who stands where, for the rules about other pods, together with what a plan adds and takes back.

Answers are arrays over node rows. They are made when first asked for and from then on kept in step
with every pod that the plan places, so that members of one gang see each other: what the second
member may do follows from where the first one went.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from koord.core.constraints import AffinityTerm, PodConstraints, PodLabels, PodSelector
from koord.core.framework.arrays import Ints, Mask
from koord.core.framework.node_table import NodeTable
from koord.core.plugins.affinity_terms import HARD_WEIGHT, AffinityTerms, SelectorIndex, TermCounts
from koord.core.plugins.pod_index import Namespaces, PodIndex
from koord.core.pods import PodShape
from koord.core.selectors import is_selected


@dataclass(frozen=True, slots=True)
class AffinityBase:
    """What a snapshot starts from: all pods on nodes, what they carry, and their namespaces."""

    namespaces: Namespaces
    residents: PodIndex
    carriers: AffinityTerms


@dataclass(frozen=True, slots=True)
class LabelDomains:
    """The nodes by the value of one label. ``of_row`` is 0 for rows without it."""

    of_row: Ints
    size: int

    @property
    def is_known(self) -> Mask:
        """Rows that belong to a domain."""
        return np.greater(self.of_row, 0)

    def total(self, per_row: Ints) -> Ints:
        """Sum over each domain; what rows without a domain have counts nowhere."""
        sums = np.bincount(self.of_row, weights=per_row, minlength=self.size + 1)
        sums[0] = 0
        return sums.astype(np.int64)

    def spread_out(self, per_domain: Ints) -> Ints:
        """Return each row's domain's number; 0 for rows without a domain."""
        return per_domain[self.of_row]


class Sort(StrEnum):
    """Sorts of terms that pods carry."""

    REPELLING = "Repelling"
    PREFERRING = "Preferring"


INTER_POD: Final = "inter-pod"
"""The name of the plugin, under which shapes carry the selectors that select them."""

_Question: TypeAlias = tuple[tuple[PodSelector, ...], bool]


class PodAffinityState:
    """The neighbourhood as it is in the middle of a plan."""

    def __init__(self, base: AffinityBase, table: NodeTable) -> None:
        self.table = table
        self._base = base
        self._noted = SelectorIndex()
        self._added = AffinityTerms()
        self._placed: Counter[tuple[PodShape, int]] = Counter()
        self._counts: dict[_Question, Ints] = {}
        self._weights: dict[tuple[Sort, AffinityTerm], Ints] = {}
        self._sought: dict[PodLabels, tuple[PodSelector, ...]] = {}
        self._domains: dict[str, LabelDomains] = {}
        self._remembered: dict[Hashable, Mask] = {}

    @property
    def is_quiet(self) -> bool:
        """Whether nobody asks anything of other pods."""
        return not self._noted and not self._base.carriers

    def note(self, constraints: PodConstraints) -> None:
        """Learn what is going to be asked. To be done for all pods before one of them is placed."""
        before = len(self._noted)
        for pods in constraints.selectors:
            if pods not in self._noted:
                self._noted.add(pods)
        if len(self._noted) != before:
            self._sought.clear()

    def means(self, pods: PodSelector, profile: PodLabels) -> bool:
        """Whether a selector means such a pod."""
        labels = self._base.namespaces.get(profile.namespace, {})
        is_named = pods.names(profile.namespace, labels)
        return is_named and is_selected(profile.labels, pods.selector)

    def meaning(self, selectors: SelectorIndex, profile: PodLabels) -> Iterator[PodSelector]:
        """Yield those of many selectors that mean such a pod."""
        return selectors.meaning(profile, self._base.namespaces)

    def sought_by(self, profile: PodLabels) -> tuple[PodSelector, ...]:
        """Return the selectors, of all that matter, that mean such a pod, in a fixed order."""
        known = self._sought.get(profile)
        if known is None:
            namespaces = self._base.namespaces
            found = dict.fromkeys(self._noted.meaning(profile, namespaces))
            found |= dict.fromkeys(self._base.carriers.meaning(profile, namespaces))
            known = self._sought[profile] = tuple(sorted(found, key=repr))
        return known

    def domains(self, key: str) -> LabelDomains:
        """Return the nodes by one label."""
        domains = self._domains.get(key)
        if domains is None:
            column = self.table.labels.column(key)
            domains = LabelDomains(column.ids.astype(np.int64) + 1, len(column.values))
            self._domains[key] = domains
        return domains

    def count(self, pods: tuple[PodSelector, ...], *, alive_only: bool = False) -> Ints:
        """Count, per row, the pods that all of the selectors mean; do not write to it."""
        question = (pods, alive_only)
        counts = self._counts.get(question)
        if counts is None:
            rows = len(self.table.nodes)
            counts = self._base.residents.count(pods, rows, alive_only=alive_only)
            for (shape, row), placed in self._placed.items():
                if _is_sought(shape, pods):
                    counts[row] += placed
            self._counts[question] = counts
        return counts

    def weight(self, sort: Sort, term: AffinityTerm) -> Ints:
        """Return what one term weighs, per row of its carriers; do not write to it."""
        weights = self._weights.get((sort, term))
        if weights is None:
            weights = np.zeros(len(self.table.nodes), dtype=np.int64)
            for carriers in (self._base.carriers, self._added):
                for row, weight in _counts_of(carriers, sort).weights(term).items():
                    weights[row] += weight
            self._weights[sort, term] = weights
        return weights

    def terms(self, sort: Sort, shape: PodShape) -> Iterable[AffinityTerm]:
        """Return the terms that pods carry and that mean such a pod, each once."""
        return dict.fromkeys(
            term
            for pods in selected_by(shape)
            for carriers in (self._base.carriers, self._added)
            for term in _counts_of(carriers, sort).terms_of(pods)
        )

    def remember(self, key: Hashable, find: Callable[[], Mask]) -> Mask:
        """Return what was found for a key before; only for what no placement changes."""
        known = self._remembered.get(key)
        if known is None:
            known = self._remembered[key] = find()
        return known

    def apply(self, shape: PodShape, row: int, count: int) -> None:
        """Put pods of a shape on a row (negative: take them off again)."""
        self._placed[shape, row] += count
        if not self._placed[shape, row]:
            del self._placed[shape, row]
        for (pods, _), counts in self._counts.items():
            if _is_sought(shape, pods):
                counts[row] += count
        if shape.constraints is not None:
            self._carry(shape.constraints, row, count)

    def _carry(self, constraints: PodConstraints, row: int, count: int) -> None:
        self._added.charge(row, constraints, count)
        for term in constraints.anti_affinity:
            self._weigh(Sort.REPELLING, term, row, count)
        for term in constraints.affinity:
            self._weigh(Sort.PREFERRING, term, row, count * HARD_WEIGHT)
        for one in constraints.preferred:
            self._weigh(Sort.PREFERRING, one.term, row, count * one.weight)

    def _weigh(self, sort: Sort, term: AffinityTerm, row: int, weight: int) -> None:
        weights = self._weights.get((sort, term))
        if weights is not None:
            weights[row] += weight


def selected_by(shape: PodShape) -> tuple[PodSelector, ...]:
    """Return the selectors, of all that matter, that select pods of a shape."""
    found = shape.asked(INTER_POD)
    return found if isinstance(found, tuple) else ()


def _is_sought(shape: PodShape, pods: tuple[PodSelector, ...]) -> bool:
    return all(one in selected_by(shape) for one in pods)


def _counts_of(carriers: AffinityTerms, sort: Sort) -> TermCounts:
    return carriers.repelling if sort is Sort.REPELLING else carriers.preferring
