"""What pods ask of each other and of their volumes, as values.

Everything that depends on the pod that asks is resolved when these are made: namespaces that are
its own by default, label values that ``matchLabelKeys`` take from it. So equal values mean equal
questions, whoever asks. What the answers are is decided in ``placement``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.core.selectors import LabelSelector, SelectorTerm, is_selected


@dataclass(frozen=True, slots=True)
class PodLabels:
    """What selectors see of a pod. Interned by whoever makes it: many pods share one."""

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
    """Which pods are meant: those that ``selector`` selects, in the namespaces that are named.

    A namespace is named by itself or by its labels; ``namespace_selector`` is None if no namespace
    is named by labels.
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

    def names(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with these labels is among those that are named."""
        return namespace in self.namespaces or is_selected(labels, self.namespace_selector)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One term of pod affinity or anti-affinity: these pods, within one value of a node label."""

    pods: PodSelector
    topology_key: str


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred term; its weight is negative for anti-affinity."""

    term: AffinityTerm
    weight: int


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One topology spread constraint; which of the two kinds it is, its place says.

    ``honors_affinity`` and ``honors_taints`` are the node inclusion policies: whether nodes count
    on which the pod may not run by its node affinity, or by their taints.
    """

    pods: PodSelector
    topology_key: str
    max_skew: int
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """All that one pod asks of the pods around it.

    ``affinity``, ``anti_affinity`` and ``spread`` must hold; ``preferred`` and ``even`` (spread
    that may be violated) decide between nodes that will do.
    """

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    even: tuple[SpreadConstraint, ...] = ()

    @property
    def selectors(self) -> tuple[PodSelector, ...]:
        """Every selector of pods in it."""
        terms = (*self.affinity, *self.anti_affinity, *(one.term for one in self.preferred))
        of_terms = (term.pods for term in terms)
        return (*of_terms, *(one.pods for one in (*self.spread, *self.even)))


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
    """One volume claim that a pod uses (``namespace/name``), and where its spec says so.

    ``is_own`` marks the claim of a generic ephemeral volume, which is made for this pod alone.
    """

    key: str
    volume: int
    is_own: bool = False

    @property
    def field(self) -> str:
        """The field of the pod."""
        sort = "ephemeral" if self.is_own else "persistentVolumeClaim"
        return f"spec.volumes[{self.volume}].{sort}"
