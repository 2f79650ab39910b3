"""ElasticQuotaProfile: the root quota of a tree, made of the nodes that a selector picks.

The nodes of a profile are the capacity of a tree of its own; every other quota of the tree shares
that. Pods of its quotas have to go to its nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

from koord.core.nodes import Node
from koord.core.quota.capacity import add_up, is_closed
from koord.core.quota.model import QuotaName, QuotaSpec, TreeId
from koord.core.selectors import LabelSelector, SelectorTerm, is_selected
from koord.core.units import Amounts

GENERATED_MAX: Final = 2**53
"""Max of generated quotas, in canonical units: no limit, and exact in whatever anybody counts with,
floating point included. Koordinator writes 4611686018427387, of whole CPUs too."""
DEFAULT_KEYS: Final = ("cpu", "memory")

ProfileKey: TypeAlias = str
"""``namespace/name`` of a profile."""

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


@dataclass(frozen=True, slots=True)
class QuotaProfile:
    """What one ElasticQuotaProfile declares; ``ratio`` above 1 or not above 0 is ignored.

    ``is_owner`` says that the quota is deleted with the profile. ``problems`` tell what cannot be
    read, each with field and value; what was valid last is in force then, if anything was.
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
    """What the object's status remembers of settings that were in force, if these are not."""

    @property
    def key(self) -> ProfileKey:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ProfileVerdict(StrEnum):
    """Whether the quota of a profile is made, and what stands against it."""

    MADE = "Made"
    INVALID = "InvalidSettings"
    NOT_OURS = "QuotaNotOurs"
    """A quota of that name is there, and this profile has not made it."""
    NAME_TAKEN = "QuotaNameTaken"
    """The name, which is the cluster's, is that of a quota in another namespace."""
    CONTESTED = "QuotaContested"
    """An older profile makes a quota of that name."""


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


def find_obstacle(
    profile: QuotaProfile, rivals: Iterable[QuotaProfile], quotas: Iterable[QuotaSpec]
) -> tuple[ProfileVerdict, str]:
    """Return whether a profile may make its quota, and whose object stands in the way.

    ``rivals`` are profiles, ``quotas`` quotas that claim the same name, in any namespace.
    """
    if profile.problems:
        return ProfileVerdict.INVALID, ""
    found = {one.namespace: one for one in quotas}
    ours = found.get(profile.namespace)
    if ours is not None and ours.profile != profile.name:
        return ProfileVerdict.NOT_OURS, ours.profile
    older = [one for one in rivals if _age(one) < _age(profile)]
    if ours is None and found:
        return ProfileVerdict.NAME_TAKEN, min(found)
    if ours is None and older:
        return ProfileVerdict.CONTESTED, min(older, key=_age).key
    return ProfileVerdict.MADE, ""


def make_root_quota(profile: QuotaProfile, nodes: Iterable[Node]) -> GeneratedQuota:
    """Return the quota that a profile stands for on these nodes."""
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


def confine(
    terms: Sequence[SelectorTerm] | None, *selectors: LabelSelector
) -> tuple[SelectorTerm, ...] | None:
    """Return required node affinity terms that hold on the nodes of a tree only.

    ``selectors`` are those of its roots: any of them may select a node. Terms that select no node
    go on doing so.
    """
    if not all(selectors):
        return None if terms is None else tuple(terms)
    written = (SelectorTerm(),) if terms is None else [one for one in terms if _is_any(one)]
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
