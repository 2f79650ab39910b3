"""Owners of pods, and what they say of the gangs of their pods.

An owner *claims* a gang (a Job), *passes* (it stands between pods and what claims them, as the
StatefulSet of a LeaderWorkerSet), or ends the chain: whatever is above it never makes one gang of
its pods. Which kinds do what, and how a gang is read from an object, is said by rules, which are
data; here are values only, and nothing of expressions, API objects and the planner.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from koord.core.model.gangs import GangSpec
from koord.core.model.pods import OwnerReference, Pod
from koord.core.model.reasons import NoSettings

KindKey: TypeAlias = tuple[str, str]
"""API group and kind, without the version: references may name another one."""
MAX_STEPS: Final = 8
"""Owners above a pod that are looked at."""


def kind_of(reference: OwnerReference) -> KindKey:
    return reference.api_version.rpartition("/")[0], reference.kind


def title_of(key: KindKey) -> str:
    """Return ``PyTorchJob.kubeflow.org``."""
    group, kind = key
    return f"{kind}.{group}" if group else kind


def controller_of(references: Iterable[OwnerReference]) -> OwnerReference | None:
    """Return the owner that controls an object; other owners only keep it alive."""
    for reference in references:  # done for each pod, and faster so
        if reference.is_controller:
            return reference
    return None


def read_number(text: str) -> int | None:
    """Return the number that a label or annotation says; None for none that makes sense."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None


class OwnerRole(NamedTuple):
    """Pods of an owner that are alike: how many it has at once, and how many it needs.

    ``inner`` > 1: its pods are useful in sets of so many only. ``after`` names roles that must have
    started or ended before this one has pods.
    """

    name: str
    size: int
    least: int
    inner: int = 0
    after: tuple[str, ...] = ()


class HeldBackPods(NamedTuple):
    """Pods of one role that are made only once the stage before them has started.

    ``template`` is one of them, of which ``pods`` are needed; ``first`` is the index of the first.
    """

    role: str
    template: Pod
    pods: int
    first: int = 0
    priority_class: str = ""


@dataclass(frozen=True)
class OwnerRoles:
    """The roles of an owner, in the order of the indexes of their pods."""

    roles: tuple[OwnerRole, ...]
    are_separate: bool = False
    """Each role starts for itself."""

    def resized(self, size: int) -> "OwnerRoles":
        """Return the roles of so many pods, of which the last role has more or fewer."""
        before = sum(role.size for role in self.roles[:-1])
        last = max(size - before, 0)
        resized = (role._replace(size=last, least=last) for role in self.roles[-1:])
        return OwnerRoles((*self.roles[:-1], *resized), self.are_separate)

    @cached_property
    def by_name(self) -> Mapping[str, OwnerRole]:
        return {role.name: role for role in self.roles}

    @cached_property
    def stage_of(self) -> Mapping[str, str]:
        """Role -> the name of its stage; empty names if there is one stage only."""
        stages = self._name_stages()
        return stages if len(set(stages.values())) > 1 else dict.fromkeys(stages, "")

    @cached_property
    def first_index(self) -> Mapping[str, int]:
        """Role -> how many pods the roles before it have."""
        firsts, count = dict[str, int](), 0
        for role in self.roles:
            firsts[role.name] = count
            count += role.size
        return firsts

    @cached_property
    def next_stage(self) -> Mapping[str, str]:
        """Stage -> the one that comes after it; without the last one, and those side by side."""
        if self.are_separate:
            return {}
        levels = dict[str, int]()
        for role in self.roles:
            self._find_level(role.name, levels)
        in_order = dict.fromkeys(
            self.stage_of[name] for name in sorted(levels, key=levels.__getitem__)
        )
        return dict(pairwise(in_order))

    @property
    def has_stages(self) -> bool:
        return len(self.least_of) > 1

    @cached_property
    def least_of(self) -> Mapping[str, int]:
        """Stage -> how many pods its roles need together."""
        least = dict.fromkeys(self.stage_of.values(), 0)
        for role in self.roles:
            least[self.stage_of[role.name]] += role.least
        return least

    def in_stage(self, stage: str) -> tuple[OwnerRole, ...]:
        return tuple(role for role in self.roles if self.stage_of[role.name] == stage)

    def _name_stages(self) -> dict[str, str]:
        """Name the stage of each role after the first role that starts with it."""
        if self.are_separate:
            return {role.name: role.name for role in self.roles}
        levels = dict[str, int]()
        for role in self.roles:
            self._find_level(role.name, levels)
        names = dict[int, str]()
        for role in self.roles:
            names.setdefault(levels[role.name], role.name)
        return {name: names[level] for name, level in levels.items()}

    def _find_level(self, name: str, levels: dict[str, int]) -> int:
        """Return how many roles have to start before a role, one after the other."""
        if name not in levels:
            levels[name] = 0  # as such it counts for those in a circle with it
            after = (other for other in self.by_name[name].after if other in self.by_name)
            levels[name] = max((1 + self._find_level(other, levels) for other in after), default=0)
        return levels[name]


@dataclass(frozen=True, slots=True)
class OwnerClaim:
    """What an owner says of the gangs of its pods. Numbers are checked: whole, and within bounds.

    ``settings`` are those that its annotations give to its gangs; ``has_settings``: some do.
    """

    roles: OwnerRoles
    settings: GangSpec
    has_settings: bool = False
    least: int | None = None
    """How many pods of all roles start together; None: what the roles need."""
    slots: int | None = None
    """How many pods have to succeed in all; None: as many as there are at once."""
    finished: int = 0
    """How many of them have succeeded, or were given up."""
    is_elastic: bool = False
    """It may run with fewer pods than it has, and keeps its minimum all the time."""
    restarts_whole: bool = False
    """Its controller makes all pods again if one is lost."""
    is_suspended: bool = False
    problem: NoSettings | None = None
    """Why its pods must wait, whatever their number."""
    held_back: tuple[HeldBackPods, ...] = ()
    """Those for which room is held, in the order of roles; one of each role."""
    shared_label: str = ""
    """A label of nodes of which all pods of a gang need the same value."""


class OwnerPart(Enum):
    """What objects of a kind do for the gangs of pods below them."""

    CLAIMS = auto()
    """They say what the gangs are, unless something above them does."""
    PASSES = auto()
    """They say nothing, and what is above them may."""
    ENDS = auto()
    """Nothing above them makes one gang of what is below them."""


@dataclass(frozen=True, slots=True)
class PodRule:
    """Which labels of a pod say what it is among the pods of its owner; the first that is set."""

    role: tuple[str, ...] = ()
    role_names: tuple[tuple[str, str], ...] = ()
    """Value of the label -> role, where these differ."""
    other_role: str | None = None
    """The role of all other values; None: the value itself."""
    index: tuple[str, ...] = ()
    incarnation: tuple[str, ...] = ()
    """All of these labels together tell one run of the owner from the next."""
    group: tuple[str, ...] = ()
    """Pods with different values are never of one gang. The first pod of a group may say how many
    there are."""
    inner: tuple[str, ...] = ()
    """The number of the set of pods within the role."""
    is_by_top_pod: bool = False
    """Pods below different pods, or below none, are never of one gang."""

    def role_of(self, pod: Pod) -> str:
        value = self.read(pod, self.role)
        role = dict(self.role_names).get(value)
        return role if role is not None else value if self.other_role is None else self.other_role

    def read(self, pod: Pod, keys: tuple[str, ...]) -> str:
        labels = pod.profile.labels
        for key in keys:  # done for each pod, and faster so
            if key in labels:
                return labels[key]
        return ""

    def read_number(self, pod: Pod, keys: tuple[str, ...]) -> int | None:
        """Return the number that a label says; None for none that makes sense."""
        return read_number(self.read(pod, keys))


@dataclass(frozen=True, slots=True)
class KindRule:
    """What the planner knows of a kind of owners."""

    key: KindKey
    part: OwnerPart
    pods: PodRule = PodRule()

    @property
    def title(self) -> str:
        """The name of the rule, which is that of the kind."""
        return title_of(self.key)


POD_KEY: Final[KindKey] = ("", "Pod")
POD_RULE: Final = KindRule(POD_KEY, OwnerPart.PASSES)
"""Pods own pods, too: those of a LeaderWorkerSet, and drivers of Spark."""
DRIVER_RULE: Final = KindRule(
    POD_KEY,
    OwnerPart.CLAIMS,
    PodRule(role=("spark-role",), index=("spark-exec-id",), is_by_top_pod=True),
)
"""A driver that spark-submit has made, and that says how many executors it needs."""
EXECUTOR: Final = "executor"


@dataclass(frozen=True, slots=True)
class OwnerObject:
    """An object above pods, as it was read."""

    uid: str
    namespace: str
    name: str
    rule: KindRule
    controller: OwnerReference | None = None
    claim: OwnerClaim | None = None
    is_opted_out: bool = False
    """Its owner wants no gang found from it."""
    group_size: int = 0
    """How many pods are in the group of this one, as a pod says; 0: it says nothing."""

    @property
    def title(self) -> str:
        """As users write it: ``pytorchjob/team/gpt``."""
        return f"{self.rule.key[1].lower()}/{self.namespace}/{self.name}"

    def is_meant_by(self, reference: OwnerReference, namespace: str) -> bool:
        """Whether a reference in a namespace is to this object: anybody may write any uid."""
        return (
            self.namespace == namespace
            and self.uid == reference.uid
            and self.name == reference.name
            and self.rule.key == kind_of(reference)
        )


class DriverHint(NamedTuple):
    """What a driver of Spark says of its executors: how many start together, or what is wrong."""

    least: int
    field: str = ""
    problem: str = ""
    value: str = ""


class GroupSize(NamedTuple):
    """How many pods are in the group of a pod.

    Its owner may say another number by now: an update changes one group after the other.
    """

    pods: int


class GroupHint(NamedTuple):
    """The PodGroup of another scheduler that a pod names, by kind and name."""

    api_version: str
    name: str

    def as_owner(self, namespace: str) -> OwnerReference:
        """Return the PodGroup as what controls the pod."""
        uid = uid_of_group(self.api_version.partition("/")[0], namespace, self.name)
        return OwnerReference(self.name, "PodGroup", self.api_version, uid, True)


NAMED_GROUPS: Final[frozenset[KindKey]] = frozenset(
    {("scheduling.x-k8s.io", "PodGroup"), ("scheduling.volcano.sh", "PodGroup")}
)
"""Kinds that pods name by label or annotation, and not as their controller."""


def uid_of_group(group: str, namespace: str, name: str) -> str:
    """Return what stands for the uid of a PodGroup that is named: no object has such a one."""
    return f"{group}/{namespace}/{name}"


class KindAccess(Enum):
    """How far objects of a kind with a rule can be read."""

    READ = auto()
    NOT_SERVED = auto()
    FORBIDDEN = auto()
