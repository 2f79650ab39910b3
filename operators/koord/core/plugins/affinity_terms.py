"""Terms that pods on nodes carry: affinity works both ways, so those who came first are asked, too.

To find the terms that mean a given pod without trying all of them, each is filed under a label that
the pods it means must have. Which rows count as near is not known here.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from koord.core.constraints import AffinityTerm, PodConstraints, PodLabels, PodSelector
from koord.core.plugins.pod_index import Namespaces
from koord.core.selectors import Operator, is_selected

HARD_WEIGHT: Final = 1
"""How much a pod counts whose required affinity means the one that is placed (kube-scheduler)."""


class SelectorIndex:
    """Finds the selectors that mean a pod, among many."""

    def __init__(self) -> None:
        self._uses: dict[PodSelector, int] = {}
        self._by_label: dict[tuple[str, str], dict[PodSelector, None]] = {}
        self._others: dict[PodSelector, None] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, pods: PodSelector) -> bool:
        return pods in self._uses

    def add(self, pods: PodSelector) -> None:
        """File a selector; as often as it is added it must be removed to be gone."""
        uses = self._uses[pods] = self._uses.get(pods, 0) + 1
        if uses == 1:
            for label in _labels_needed(pods):
                self._by_label.setdefault(label, {})[pods] = None
            if not _labels_needed(pods):
                self._others[pods] = None

    def remove(self, pods: PodSelector) -> None:
        """Take back one :meth:`add`."""
        self._uses[pods] -= 1
        if self._uses[pods]:
            return
        del self._uses[pods]
        self._others.pop(pods, None)
        for label in _labels_needed(pods):
            filed = self._by_label[label]
            filed.pop(pods, None)
            if not filed:
                del self._by_label[label]

    def meaning(self, profile: PodLabels, namespaces: Namespaces) -> Iterator[PodSelector]:
        """Yield the selectors that mean a pod, each once."""
        labels = namespaces.get(profile.namespace, {})
        for pods in self._candidates(profile):
            if pods.names(profile.namespace, labels) and is_selected(profile.labels, pods.selector):
                yield pods

    def _candidates(self, profile: PodLabels) -> Iterator[PodSelector]:
        yield from self._others
        if self._by_label:
            for label in profile.labels.items():
                yield from self._by_label.get(label, ())


def _labels_needed(pods: PodSelector) -> tuple[tuple[str, str], ...]:
    """Return labels of which a pod must have one (so it has just one) to be meant."""
    for one in pods.selector or ():
        if one.operator is Operator.IN:
            return tuple((one.key, value) for value in set(one.values))
    return ()


class TermCounts:
    """Terms of one sort: how much they weigh on which row, summed over their carriers."""

    def __init__(self) -> None:
        self.index = SelectorIndex()
        self._weights: dict[AffinityTerm, Counter[int]] = {}
        self._terms: dict[PodSelector, dict[AffinityTerm, None]] = {}

    def add(self, term: AffinityTerm, row: int, weight: int) -> None:
        """Add to what a term weighs on a row; what comes to nothing is forgotten."""
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
        """Yield the terms that mean these pods."""
        yield from self._terms.get(pods, ())

    def weights(self, term: AffinityTerm) -> Counter[int]:
        """Return row -> weight of one term; do not write to it."""
        return self._weights.get(term, Counter())

    def _forget(self, term: AffinityTerm) -> None:
        del self._weights[term]
        self.index.remove(term.pods)
        terms = self._terms[term.pods]
        del terms[term]
        if not terms:
            del self._terms[term.pods]


class AffinityTerms:
    """What pods on nodes ask of those that come after them."""

    def __init__(self) -> None:
        self.repelling = TermCounts()
        """Required anti-affinity: how many carry it."""
        self.preferring = TermCounts()
        """Preferred terms by their weight, and required affinity with ``HARD_WEIGHT``."""

    def __bool__(self) -> bool:
        return bool(self.repelling.index) or bool(self.preferring.index)

    def charge(self, row: int, constraints: PodConstraints, count: int) -> None:
        """Count ``count`` more pods on a row that carry these terms (negative: fewer)."""
        for term in constraints.anti_affinity:
            self.repelling.add(term, row, count)
        for term in constraints.affinity:
            self.preferring.add(term, row, count * HARD_WEIGHT)
        for one in constraints.preferred:
            self.preferring.add(one.term, row, count * one.weight)

    def meaning(self, profile: PodLabels, namespaces: Namespaces) -> Iterator[PodSelector]:
        """Yield the selectors of all terms that mean a pod; one may come twice."""
        yield from self.repelling.index.meaning(profile, namespaces)
        yield from self.preferring.index.meaning(profile, namespaces)
