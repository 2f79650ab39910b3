"""Affinity terms of pods on nodes, because anti-affinity and preferences also affect new pods.

To find the terms that select a pod without trying all of them, each is indexed by the namespaces of
selected pods and by a label that they must have. Does not know which rows belong to a domain.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final, TypeAlias

from koord.core.model.constraints import AffinityTerm, PodConstraints, PodLabels, PodSelector
from koord.core.model.selectors import SelectorOperator, is_selected
from koord.core.plugins.pod_index import Namespaces

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
