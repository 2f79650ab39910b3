"""Rules of pods about other pods and about their volumes, as values.

They do not depend on the pod that has them: its default namespace and the label values for
``matchLabelKeys`` are filled in. So equal values are equal rules; ``plugins`` evaluates them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.core.model.selectors import LabelSelector, SelectorTerm, is_selected


@dataclass(frozen=True, slots=True)
class PodLabels:
    """Namespace and labels of a pod, as selectors see them. Interned by its maker."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        labels = tuple(sorted(self.labels.items()))
        object.__setattr__(self, "_hash", hash((self.namespace, labels)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Selects pods by their labels, in namespaces selected by name or by labels.

    ``namespace_selector`` None selects no namespace.
    """

    selector: LabelSelector
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        parts = (self.selector, self.namespaces, self.namespace_selector)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    def selects_namespace(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with these labels is selected."""
        return namespace in self.namespaces or is_selected(labels, self.namespace_selector)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One term of pod affinity or anti-affinity: these pods, in one domain of a node label."""

    pods: PodSelector
    topology_key: str


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred term; its weight is negative for anti-affinity."""

    term: AffinityTerm
    weight: int


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One topology spread constraint.

    ``honors_affinity`` and ``honors_taints`` are the node inclusion policies: nodes that the pod's
    node affinity, or their taints, exclude do not count.
    """

    pods: PodSelector
    topology_key: str
    max_skew: int
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """All rules of one pod about other pods.

    ``affinity``, ``anti_affinity`` and ``spread`` are required; ``preferred`` and ``even`` (spread
    that may be violated) only score nodes.
    """

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    even: tuple[SpreadConstraint, ...] = ()

    @property
    def selectors(self) -> tuple[PodSelector, ...]:
        terms = (
            *self.affinity,
            *self.anti_affinity,
            *(weighted_term.term for weighted_term in self.preferred),
        )
        of_terms = (term.pods for term in terms)
        return (
            *of_terms,
            *(spread_constraint.pods for spread_constraint in (*self.spread, *self.even)),
        )


@dataclass(frozen=True, slots=True)
class VolumeConstraints:
    """Where the bound volumes of a pod can be used.

    ``terms`` holds the ORed node selector terms of each volume that has some; ``zones`` the values
    that each zone or region label may have; ``exclusive`` the claims (``namespace/name``) that one
    pod at a time may use.
    """

    terms: tuple[tuple[SelectorTerm, ...], ...] = ()
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclusive: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """One volume claim that a pod uses (``namespace/name``), by the volume of its spec.

    ``is_own`` marks the claim of a generic ephemeral volume, which is created for this pod.
    """

    key: str
    volume: int
    is_own: bool = False

    @property
    def field(self) -> str:
        """The field of the pod."""
        sort = "ephemeral" if self.is_own else "persistentVolumeClaim"
        return f"spec.volumes[{self.volume}].{sort}"
