"""Pods on nodes as inter-pod rules see them in a cycle: counted per selector, weighed per term.

Answers are arrays over node rows. Each is computed on first use and then updated with every pod
that the cycle places, so that members of one gang see each other.

Terms of pods on nodes count, too: anti-affinity and preferences also affect new pods. To find the
terms that select a pod without trying all of them, each is indexed by the namespaces of selected
pods and by a label that they must have.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import product
from typing import Final, TypeAlias

import numpy as np
from typing_extensions import override

from koord.caches import MIB, cached_by_text
from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.node_table import NodeTable
from koord.core.engine.steps import Steps
from koord.core.model.constraints import AffinityTerm, PodConstraints, PodLabels, PodSelector
from koord.core.model.pods import PodShape
from koord.core.model.selectors import SelectorOperator, is_selected
from koord.core.plugins.pod_index import Namespaces, PodIndex

HARD_WEIGHT: Final = 1
"""The weight of a required affinity term that selects the pod being placed (kube-scheduler)."""
_NEGATIVE: Final = frozenset({SelectorOperator.NOT_IN, SelectorOperator.DOES_NOT_EXIST})
"""With these, pods without the label are selected, too."""
MOST_PLACES: Final = 64
"""Of one selector in the index; with more it is indexed for any namespace."""

_Place: TypeAlias = tuple[str, str, str | None]
"""Namespace (empty: any), key (empty: none is needed), and value (None: any)."""


class SelectorIndex:
    """Finds the selectors that select a pod."""

    def __init__(self) -> None:
        self._uses: dict[PodSelector, int] = {}
        self._at: dict[_Place, dict[PodSelector, None]] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, pods: PodSelector) -> bool:
        return pods in self._uses

    def add(self, pods: PodSelector) -> None:
        """Add a selector; each :meth:`add` needs its own :meth:`remove`."""
        uses = self._uses[pods] = self._uses.get(pods, 0) + 1
        if uses == 1:
            for place in _places_of(pods):
                self._at.setdefault(place, {})[pods] = None

    def remove(self, pods: PodSelector) -> None:
        self._uses[pods] -= 1
        if self._uses[pods]:
            return
        del self._uses[pods]
        for place in _places_of(pods):
            indexed = self._at[place]
            del indexed[pods]
            if not indexed:
                del self._at[place]

    def selecting(self, profile: PodLabels, namespaces: Namespaces) -> Iterator[PodSelector]:
        labels = namespaces.get(profile.namespace, {})
        for indexed in self._candidates(profile):
            for pods in indexed:
                if pods.selects_namespace(profile.namespace, labels) and is_selected(
                    profile.labels, pods.selector
                ):
                    yield pods

    def count_candidates(self, profile: PodLabels) -> int:
        """Return how many selectors have to be tried for such a pod."""
        return sum(map(len, self._candidates(profile)))

    def _candidates(self, profile: PodLabels) -> Iterator[dict[PodSelector, None]]:
        if not self._at:
            return
        labels = (("", None), *profile.labels.items(), *((key, None) for key in profile.labels))
        for namespace, (key, value) in product(("", profile.namespace), labels):
            selectors = self._at.get((namespace, key, value))
            if selectors is not None:
                yield selectors


def _places_of(pods: PodSelector) -> list[_Place]:
    """Return where a selector is indexed: every pod that it selects looks at one of these."""
    labels = _labels_needed(pods)
    namespaces = set(pods.namespaces) if pods.namespace_selector is None else {""}
    if len(namespaces) * len(labels) > MOST_PLACES:
        namespaces = {""}
    return [(namespace, key, value) for namespace in namespaces for key, value in labels]


def _labels_needed(pods: PodSelector) -> set[tuple[str, str | None]]:
    """Return labels, one of which every selected pod has; without a value, any will do."""
    needed = {
        requirement.operator: requirement
        for requirement in pods.selector or ()
        if requirement.operator not in _NEGATIVE
    }
    if (named := needed.get(SelectorOperator.IN)) is not None:
        return {(named.key, value) for value in named.values}
    return next(({(requirement.key, None)} for requirement in needed.values()), {("", None)})


class TermCounts:
    """Terms of one kind: their weight per row, summed over the pods that have them."""

    def __init__(self) -> None:
        self.index = SelectorIndex()
        self._weights: dict[AffinityTerm, Counter[int]] = {}
        self._terms: dict[PodSelector, dict[AffinityTerm, None]] = {}

    def add(self, term: AffinityTerm, row: int, weight: int) -> None:
        """Add to the weight of a term on a row; weights of zero are dropped."""
        weights = self._weights.get(term)
        if weights is None:
            weights = self._weights[term] = Counter()
            self._terms.setdefault(term.pods, {})[term] = None
            self.index.add(term.pods)
        weights[row] += weight
        if not weights[row]:
            del weights[row]
            if not weights:
                self._forget(term)

    def terms_of(self, pods: PodSelector) -> Iterator[AffinityTerm]:
        yield from self._terms.get(pods, ())

    def weights(self, term: AffinityTerm) -> Counter[int]:
        """Return row -> weight of one term; do not write to it."""
        return self._weights.get(term, Counter())

    def totals(self, selectors: Iterable[PodSelector]) -> dict[str, Counter[int]]:
        """Return topology key -> row -> the weight of all terms with these selectors."""
        totals: dict[str, Counter[int]] = {}
        for pods in selectors:
            for term in self._terms.get(pods, ()):
                total = totals.setdefault(term.topology_key, Counter())
                for row, weight in self._weights[term].items():
                    total[row] += weight
        return totals

    def _forget(self, term: AffinityTerm) -> None:
        del self._weights[term]
        self.index.remove(term.pods)
        terms = self._terms[term.pods]
        del terms[term]
        if not terms:
            del self._terms[term.pods]


class AffinityTerms:
    """The terms of pods on nodes that affect pods placed after them."""

    def __init__(self) -> None:
        self.anti_affinity = TermCounts()
        """Required anti-affinity, weighted by the number of pods."""
        self.preferred = TermCounts()
        """Preferred terms by their weight, and required affinity with ``HARD_WEIGHT``."""

    def __bool__(self) -> bool:
        return bool(self.anti_affinity.index) or bool(self.preferred.index)

    def charge(self, row: int, constraints: PodConstraints, count: int) -> None:
        """Count ``count`` more pods with these terms on a row (negative: fewer)."""
        for term in constraints.anti_affinity:
            self.anti_affinity.add(term, row, count)
        for term in constraints.affinity:
            self.preferred.add(term, row, count * HARD_WEIGHT)
        for weighted_term in constraints.preferred:
            self.preferred.add(weighted_term.term, row, count * weighted_term.weight)

    @property
    def indexes(self) -> tuple[SelectorIndex, ...]:
        """The selectors of all terms; some may be in both."""
        return self.anti_affinity.index, self.preferred.index


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
