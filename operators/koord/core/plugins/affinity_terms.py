"""Affinity terms of pods on nodes, because anti-affinity and preferences also affect new pods.

To find the terms that select a pod without trying all of them, each is indexed by a label that
selected pods must have. Does not know which rows belong to a domain.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from koord.core.constraints import AffinityTerm, PodConstraints, PodLabels, PodSelector
from koord.core.plugins.pod_index import Namespaces
from koord.core.selectors import Operator, is_selected

HARD_WEIGHT: Final = 1
"""The weight of a required affinity term that selects the pod being placed (kube-scheduler)."""


class SelectorIndex:
    """Finds the selectors that select a pod."""

    def __init__(self) -> None:
        self._uses: dict[PodSelector, int] = {}
        self._by_label: dict[tuple[str, str], dict[PodSelector, None]] = {}
        self._others: dict[str, dict[PodSelector, None]] = {}
        """Namespace (empty: any) -> selectors that need no label."""

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, pods: PodSelector) -> bool:
        return pods in self._uses

    def add(self, pods: PodSelector) -> None:
        """Add a selector; each :meth:`add` needs its own :meth:`remove`."""
        uses = self._uses[pods] = self._uses.get(pods, 0) + 1
        if uses == 1:
            labels = _labels_needed(pods)
            for label in labels:
                self._by_label.setdefault(label, {})[pods] = None
            if labels:
                return
            for namespace in _namespaces_of(pods):
                self._others.setdefault(namespace, {})[pods] = None

    def remove(self, pods: PodSelector) -> None:
        self._uses[pods] -= 1
        if self._uses[pods]:
            return
        del self._uses[pods]
        for namespace in _namespaces_of(pods):
            others = self._others.get(namespace, {})
            others.pop(pods, None)
            if not others:
                self._others.pop(namespace, None)
        for label in _labels_needed(pods):
            indexed = self._by_label[label]
            indexed.pop(pods, None)
            if not indexed:
                del self._by_label[label]

    def selecting(self, profile: PodLabels, namespaces: Namespaces) -> Iterator[PodSelector]:
        labels = namespaces.get(profile.namespace, {})
        for pods in self._candidates(profile):
            if pods.selects_namespace(profile.namespace, labels) and is_selected(
                profile.labels, pods.selector
            ):
                yield pods

    def _candidates(self, profile: PodLabels) -> Iterator[PodSelector]:
        for namespace in ("", profile.namespace):
            yield from self._others.get(namespace, ())
        if self._by_label:
            for label in profile.labels.items():
                yield from self._by_label.get(label, ())


def _namespaces_of(pods: PodSelector) -> tuple[str, ...]:
    """Return the namespaces of selected pods; an empty one stands for any."""
    return pods.namespaces if pods.namespace_selector is None else ("",)


def _labels_needed(pods: PodSelector) -> tuple[tuple[str, str], ...]:
    """Return labels, one of which every selected pod has; empty if there are none."""
    for one in pods.selector or ():
        if one.operator is Operator.IN:
            return tuple((one.key, value) for value in set(one.values))
    return ()


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
        for one in constraints.preferred:
            self.preferred.add(one.term, row, count * one.weight)

    def selecting(self, profile: PodLabels, namespaces: Namespaces) -> Iterator[PodSelector]:
        """Yield the selectors of all terms that select a pod; some may come twice."""
        yield from self.anti_affinity.index.selecting(profile, namespaces)
        yield from self.preferred.index.selecting(profile, namespaces)
