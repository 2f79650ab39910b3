"""ElasticQuotaProfile: the root quota of a tree, generated from the nodes that a selector picks.

The nodes of a profile are the capacity of a tree of its own; every other quota of the tree shares
that. Pods of its quotas may run on its nodes only. If the settings of a profile cannot be read, its
last valid settings stay in force.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

from koord.core.model.nodes import Node
from koord.core.model.selectors import LabelSelector, SelectorTerm, is_selected
from koord.core.model.text import named
from koord.core.model.units import Amounts
from koord.core.quota.model import QuotaName, QuotaSpec, TreeId, add_up, is_closed

GENERATED_MAX: Final = 2**53
"""Max of generated quotas, in canonical units: unlimited, and exact even in floating point.
Koordinator writes 4611686018427387, of whole CPUs too."""
DEFAULT_KEYS: Final = ("cpu", "memory")

ProfileKey: TypeAlias = str
"""``namespace/name`` of a profile."""

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class QuotaProfile:
    """The settings of one ElasticQuotaProfile; ``ratio`` above 1 or not above 0 is ignored.

    ``is_owner``: the quota is deleted with the profile. ``problems`` are settings that cannot be
    read, each with field and value; the last valid settings are in force then, if there are any.
    """

    namespace: str
    name: str
    quota_name: QuotaName
    selector: LabelSelector
    tree_id: TreeId = ""
    ratio: Fraction | None = None
    keys: tuple[str, ...] = DEFAULT_KEYS
    labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    created: float = 0.0
    is_owner: bool = False
    problems: tuple[str, ...] = ()
    generation: int = 0
    last_valid: "QuotaProfile | None" = field(default=None, compare=False)
    """The last valid settings, from the object's status, if the current ones are invalid."""

    @property
    def key(self) -> ProfileKey:
        return f"{self.namespace}/{self.name}"


class ProfileOutcome(StrEnum):
    """Whether the quota of a profile is generated, and why not."""

    MADE = "Made"
    INVALID = "InvalidSettings"
    NOT_OURS = "QuotaNotOurs"
    """There is a quota of that name that this profile has not generated."""
    NAME_TAKEN = "QuotaNameTaken"
    """A quota in another namespace has the name; names are unique in the cluster."""
    CONTESTED = "QuotaContested"
    """An older profile generates a quota of that name."""


_OUTCOMES: Final[Mapping[ProfileOutcome, str]] = {
    ProfileOutcome.MADE: "ElasticQuota {quota} has the capacity of the selected nodes",
    ProfileOutcome.INVALID: "{problems}; until that is corrected, {kept}",
    ProfileOutcome.NOT_OURS: "spec.quotaName: {name}: ElasticQuota {quota} exists and {maker}; "
    "choose another name, delete that quota, or hand it over with the label "
    "quota.scheduling.koordinator.sh/profile={profile}",
    ProfileOutcome.NAME_TAKEN: "spec.quotaName: {name}: an ElasticQuota in namespace {other} has "
    "this name, and names are unique in the cluster; choose another",
    ProfileOutcome.CONTESTED: "spec.quotaName: {name}: the older ElasticQuotaProfile {other} "
    "creates a quota of this name; choose another",
}


@dataclass(frozen=True, slots=True)
class GeneratedQuota:
    """The root quota of a profile's tree. ``unschedulable`` is the part on closed nodes."""

    namespace: str
    name: QuotaName
    profile: str
    tree_id: TreeId
    labels: Mapping[str, str]
    min: Amounts
    max: Amounts
    total: Amounts
    unschedulable: Amounts


def find_outcome(
    profile: QuotaProfile, rivals: Iterable[QuotaProfile], quotas: Iterable[QuotaSpec]
) -> tuple[ProfileOutcome, str]:
    """Return whether a profile may generate its quota, and the object that prevents it.

    ``rivals`` are profiles and ``quotas`` quotas of the same name, in any namespace.
    """
    if profile.problems:
        return ProfileOutcome.INVALID, ""
    by_namespace = {quota.namespace: quota for quota in quotas}
    ours = by_namespace.get(profile.namespace)
    if ours is not None and ours.profile != profile.name:
        return ProfileOutcome.NOT_OURS, ours.profile
    older = [rival for rival in rivals if _age(rival) < _age(profile)]
    if ours is None and by_namespace:
        return ProfileOutcome.NAME_TAKEN, min(by_namespace)
    if ours is None and older:
        return ProfileOutcome.CONTESTED, min(older, key=_age).key
    return ProfileOutcome.MADE, ""


def make_root_quota(profile: QuotaProfile, nodes: Iterable[Node]) -> GeneratedQuota:
    selected = [node for node in nodes if is_selected(node.labels, profile.selector)]
    total = _scale(add_up(node.allocatable for node in selected), profile.ratio)
    closed = add_up(node.allocatable for node in selected if is_closed(node))
    return GeneratedQuota(
        namespace=profile.namespace,
        name=profile.quota_name,
        profile=profile.name,
        tree_id=profile.tree_id or make_tree_id(profile.namespace, profile.name),
        labels=profile.labels,
        min={key: total.get(key, 0) for key in profile.keys},
        max=dict.fromkeys(profile.keys, GENERATED_MAX),
        total=total,
        unschedulable=_scale(closed, profile.ratio),
    )


def make_tree_id(namespace: str, name: str) -> TreeId:
    """Return the id of a profile's tree where it names none: FNV-1a, 64 bits, in decimal."""
    value = _FNV_OFFSET
    for byte in f"{namespace}/{name}".encode():
        value = (value ^ byte) * _FNV_PRIME & (2**64 - 1)
    return str(value)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Nodes of a profile that other profiles select, too, and those profiles; both sorted."""

    nodes: tuple[str, ...] = ()
    profiles: tuple[ProfileKey, ...] = ()

    def describe(self) -> str:
        if not self.nodes:
            return "no other profile selects its nodes"
        return (
            f"{len(self.nodes)} of its nodes ({named(self.nodes, _SHOWN)}) are also selected by "
            f"{', '.join(self.profiles[:_SHOWN])} and counted twice; narrow spec.nodeSelector of "
            "one"
        )


class ProfileCache:
    """All profiles and the nodes that each selects.

    A node is matched when it changes, not whenever a profile does: matching all nodes with each new
    profile would cost their product.
    """

    def __init__(self) -> None:
        self._profiles: dict[ProfileKey, QuotaProfile] = {}
        self._in_force: dict[ProfileKey, QuotaProfile] = {}
        self._nodes: dict[str, Node] = {}
        self._selected: dict[ProfileKey, set[str]] = {}
        self._claims: dict[str, frozenset[ProfileKey]] = {}
        """Node -> the profiles that select it, of nodes that any selects."""
        self._made: dict[ProfileKey, GeneratedQuota] = {}
        self._versions: dict[ProfileKey, int] = {}

    def __iter__(self) -> Iterator[ProfileKey]:
        return iter(self._profiles)

    def get(self, key: ProfileKey) -> QuotaProfile | None:
        return self._profiles.get(key)

    def in_force(self, key: ProfileKey) -> QuotaProfile | None:
        """Return the settings in force: the current ones, or the last valid ones."""
        return self._in_force.get(key)

    def version(self, key: ProfileKey) -> int:
        """Return a number that grows when the nodes of a profile or their overlap change."""
        return self._versions.get(key, 0)

    def count(self, key: ProfileKey) -> int:
        return len(self._selected.get(key, ()))

    def upsert(self, profile: QuotaProfile) -> None:
        before = self._profiles.get(profile.key)
        self._profiles[profile.key] = profile
        if before == profile:
            return
        self._touch(profile.key)
        old = self._in_force.pop(profile.key, None)
        new = _choose(profile, old)
        if new is not None:
            self._in_force[profile.key] = new
        if (old and old.selector) != (new and new.selector):
            for node in self._nodes.values():
                self._claim(node)

    def remove(self, key: ProfileKey) -> None:
        if self._profiles.pop(key, None) is None:
            return
        self._in_force.pop(key, None)
        for name in sorted(self._selected.pop(key, ())):
            self._set_claims(name, self._claims[name] - {key})
        self._made.pop(key, None)
        self._versions.pop(key, None)

    def upsert_node(self, node: Node) -> None:
        """Add or update a node; a terminating one is removed."""
        if node.is_terminating:
            self.remove_node(node.name)
            return
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None or before.labels != node.labels:
            self._claim(node)
        if before != node:
            for key in self._claims.get(node.name, ()):
                self._touch(key)

    def remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._set_claims(name, frozenset())

    def make(self, key: ProfileKey) -> GeneratedQuota:
        made = self._made.get(key)
        if made is None:
            profile = self._in_force[key]
            nodes = (self._nodes[name] for name in self._selected.get(key, ()))
            made = self._made[key] = make_root_quota(profile, nodes)
        return made

    def overlap(self, key: ProfileKey) -> Overlap:
        shared = {
            name: self._claims[name]
            for name in self._selected.get(key, ())
            if len(self._claims[name]) > 1
        }
        other_keys = {claimant for claims in shared.values() for claimant in claims} - {key}
        return Overlap(tuple(sorted(shared)), tuple(sorted(other_keys)))

    def rivals(self, name: QuotaName, key: ProfileKey) -> list[QuotaProfile]:
        """Return the other profiles in force that generate a quota of a name."""
        return [
            quota_profile
            for quota_profile in self._in_force.values()
            if quota_profile.quota_name == name and quota_profile.key != key
        ]

    def _claim(self, node: Node) -> None:
        claims = frozenset(
            key
            for key, quota_profile in self._in_force.items()
            if is_selected(node.labels, quota_profile.selector)
        )
        self._set_claims(node.name, claims)

    def _set_claims(self, name: str, claims: frozenset[ProfileKey]) -> None:
        before = self._claims.get(name, frozenset())
        if before == claims:
            return
        for key in before - claims:
            self._selected.get(key, set()).discard(name)
        for key in claims - before:
            self._selected.setdefault(key, set()).add(name)
        if claims:
            self._claims[name] = claims
        else:
            del self._claims[name]
        for key in before | claims:
            self._touch(key)

    def _touch(self, key: ProfileKey) -> None:
        if key in self._profiles:
            self._made.pop(key, None)
            self._versions[key] = self._versions.get(key, 0) + 1


def restrict_terms(
    terms: Sequence[SelectorTerm] | None, *selectors: LabelSelector
) -> tuple[SelectorTerm, ...] | None:
    """Restrict required node affinity terms to the nodes of a tree.

    ``selectors`` are those of its roots: any of them may select a node. Terms that select no node
    still select none.
    """
    if not all(selectors):
        return None if terms is None else tuple(terms)
    written = (SelectorTerm(),) if terms is None else [term for term in terms if _is_any(term)]
    return tuple(
        SelectorTerm((*term.expressions, *(selector or ())), term.fields)
        for term in written
        for selector in selectors
    )


def _is_any(term: SelectorTerm) -> bool:
    return bool(term.expressions or term.fields)


def _age(profile: QuotaProfile) -> tuple[float, ProfileKey]:
    return (profile.created, profile.key)


def _scale(amounts: Amounts, ratio: Fraction | None) -> dict[str, int]:
    if ratio is None or not 0 < ratio <= 1:
        return dict(amounts)
    return {key: amount * ratio.numerator // ratio.denominator for key, amount in amounts.items()}


def _choose(profile: QuotaProfile, before: QuotaProfile | None) -> QuotaProfile | None:
    """Return the settings to be in force, given those that are."""
    if not profile.problems:
        return profile
    return before if before is not None and before.uid == profile.uid else profile.last_valid


def write_outcome(
    profile: QuotaProfile,
    outcome: ProfileOutcome,
    other: str,
    nodes: int,
    *,
    is_kept: bool = False,
) -> str:
    """Write whether the quota of a profile is made, or what prevents it.

    ``is_kept`` says that the last valid settings stay active in place of invalid ones.
    """
    text = _OUTCOMES[outcome].format(
        name=profile.quota_name,
        quota=f"{profile.namespace}/{profile.quota_name}",
        profile=profile.name,
        other=other,
        maker=f"was made by profile {other}" if other else "was not made by a profile",
        problems="; ".join(profile.problems),
        kept="the last valid settings stay active" if is_kept else "no quota is made or changed",
    )
    if outcome is ProfileOutcome.MADE and not nodes:
        return f"{text}; spec.nodeSelector selects no node, so that is nothing"
    return text
