"""Why a gang waits or runs below its minimum, and the reasons of its other conditions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from koord.core.gang.native_reasons import NativeProblem
from koord.core.model.gangs import BadValue, DeprecatedKey, GangKey, GangMembership, OnMemberFailure
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason, RefusedByScheduler, TooLarge, UnknownGang
from koord.core.model.templates import fill, fill_all
from koord.core.model.text import MAX_TEXT, cut, listed

_POD_GROUPS: Final = frozenset({"podgroups"})
_COUNT: Final = (
    "{done:? ({done} succeeded)}{waiting_only:? (only-waiting: bound members do not count)}"
)
_COUNT_ADVICE: Final = (
    (
        "{strangers:?Add our gate and scheduler name to the pod template of {strangers:# pod} of "
        "{gang}; without them another scheduler places {strangers:it|them}.}"
    ),
    (
        "{to_create:?Create {to_create:# more member} of {gang}"
        "{present:?, or lower its minimum to {present}}.}"
    ),
    "{waiting_only:?To count members that already run, use the match policy waiting-and-running.}",
)


@dataclass(frozen=True, slots=True)
class GangCount:
    """Members present and required of one gang.

    ``present`` includes the ``done`` ones, which have succeeded. ``waiting_only`` says that members
    with a node do not count (match policy ``only-waiting``). ``strangers`` are live pods of other
    schedulers without a node: they do not count yet.
    """

    gang: GangKey
    present: int
    min_member: int
    waiting_only: bool = False
    strangers: int = 0
    done: int = 0

    def text(self) -> str:
        """Return ``3 of 4 members of default/a present``."""
        members = "{present} of {min_member:# member} of {gang}"
        return fill(f"{members} {{waiting_only:?waiting|present}}{_COUNT}", self)

    def short_text(self) -> str:
        """Return ``default/b: 1 of 2``."""
        return fill(f"{{gang}}: {{present}} of {{min_member}}{_COUNT}", self)

    def advice(self) -> Iterator[str]:
        return fill_all(_COUNT_ADVICE, self)

    @property
    def to_create(self) -> int:
        return max(0, self.min_member - self.present - self.strangers)


@dataclass(frozen=True, slots=True)
class _Quorum(Reason):
    gangs: tuple[GangCount, ...]

    @property
    def counts(self) -> str:
        first = [gang.text() for gang in self.gangs[:1]]
        return listed(first + [gang.short_text() for gang in self.gangs[1:]], "; ")


@dataclass(frozen=True, slots=True)
class MissingMembers(_Quorum):
    """Fewer pods than ``minMember``, in this gang, in one of its group, or in a sub-group."""

    code: ClassVar = "MissingMembers"
    reason_class: ClassVar = ReasonClass.INCOMPLETE
    is_incomplete: ClassVar = True
    way_out: ClassVar = (
        "create them; look at the owner's events (quota of the namespace, a webhook) if it does "
        "not. Pods with neither gate nor scheduler name of ours are counted apart: correct the "
        "template, or let others place them"
    )
    says: ClassVar = (
        "{counts}{strangers:?; {strangers:# more pod} {strangers:has|have} neither our gate nor "
        "our scheduler name, so they count only after another scheduler has placed them"
        "|{is_empty:?; no live pod belongs to {gangs:it|them}}}"
    )
    quotes: ClassVar = "child pod not collect enough"
    left_out: str = field(default="", compare=False)
    """The sub-group that waits, if its gang does not."""

    @property
    def about(self) -> str:
        return self.left_out

    @property
    def strangers(self) -> int:
        return sum(count.strangers for count in self.gangs)

    @property
    def is_empty(self) -> bool:
        return not any(count.present or count.waiting_only for count in self.gangs)

    def _advice(self) -> Iterable[str]:
        return (sentence for gang in self.gangs for sentence in gang.advice())


@dataclass(frozen=True, slots=True)
class GangNotStarted(Reason):
    """A complete sub-group is not needed for the start of what it belongs to, and follows it."""

    code: ClassVar = "GangNotStarted"
    reason_class: ClassVar = ReasonClass.ORDER
    meaning: ClassVar = (
        "its sub-group is complete, and is placed after the gang, or the sub-group above it, has "
        "started without it"
    )
    way_out: ClassVar = "see why the gang waits"
    says: ClassVar = "{sub_group} is placed after {parent}, which has not started yet"
    advises: ClassVar = ("See why {parent} waits.",)
    sub_group: str
    parent: str


@dataclass(frozen=True, slots=True)
class MissingPodGroup(Reason):
    """Pods name a PodGroup that does not exist, in this gang or in one of its group."""

    code: ClassVar = "MissingPodGroup"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    way_out: ClassVar = "create it, or correct the label"
    says: ClassVar = "PodGroup {gang} does not exist; create it, or correct the name on the pods"
    quotes: ClassVar = "gang has not init, gangName: {gang}"
    advises: ClassVar = ("Create the PodGroup {gang}, or correct the name on the pods.",)
    gang: GangKey


@dataclass(frozen=True, slots=True)
class PodGroupsNotServed(Reason):
    """Pods name a PodGroup of Kubernetes' own, and none can be read.

    The API server serves none of the versions that are known, or their role does not allow it.
    """

    code: ClassVar = "PodGroupsNotServed"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    meaning: ClassVar = (
        "pods name a PodGroup of Kubernetes' own, and the API server serves none of the "
        "[versions that are read](native-groups.md#which-version-is-read), or does not allow "
        "the operators to read it"
    )
    way_out: ClassVar = (
        "turn the API on (`--runtime-config` and the feature gate GenericWorkload of the API "
        "server), or upgrade the operators and their roles"
    )
    says: ClassVar = (
        "PodGroup {gang} cannot be read: the API server serves none of {versions:list}, or does "
        "not let the operators list it"
    )
    advises: ClassVar = (
        "{ask:capital} serve podgroups.scheduling.k8s.io in one of these versions.",
    )
    gang: GangKey
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MissingGang(Reason):
    """``groups`` lists a gang that does not exist.

    Those listed that are ``missing`` have neither a PodGroup nor pods.
    """

    code: ClassVar = "MissingGang"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    way_out: ClassVar = "create it, or remove it from the list"
    says: ClassVar = (
        "{gang} lists {missing:a gang that does not exist|gangs that do not exist}: "
        "{missing:list}; create {missing:it|them}, or remove {missing:it|them} from its groups"
    )
    quotes: ClassVar = "memberGangs [{words}] doesn't exists"
    advises: ClassVar = (
        "Create {missing:names}, or remove {missing:it|them} from the groups of {gang}.",
    )
    gang: GangKey
    missing: tuple[GangKey, ...]

    @property
    def words(self) -> str:
        return listed(self.missing, " ")


@dataclass(frozen=True, slots=True)
class InconsistentGroup(Reason):
    """A listed gang does not list this one back.

    The ``silent`` gangs do not list ``gang``.
    """

    code: ClassVar = "InconsistentGroup"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    way_out: ClassVar = "write the same list on both"
    says: ClassVar = (
        "{gang} lists {silent:list} in its groups, but {silent:list} {silent:does|do} not list "
        "{gang}; gangs start together only if each lists the other"
    )
    advises: ClassVar = (
        "Add {gang} to the groups of {silent:names}.",
        (
            "Or remove {silent:names} from the groups of {gang}, which then starts without "
            "{silent:it|them}."
        ),
    )
    gang: GangKey
    silent: tuple[GangKey, ...]


_BAD_VALUE: Final = '{key}{value:? "{value}"} {problem} (in force: {in_force})'
_CORRECT: Final = "{value:?Correct {key}, which {problem}|Set {key} on the pods}."
_DEPRECATED: Final = "{key} is deprecated, use {instead}"


@dataclass(frozen=True, slots=True)
class InvalidAnnotation(Reason):
    """A value cannot be used; the message says what is in force."""

    code: ClassVar = "InvalidAnnotation"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    way_out: ClassVar = "correct the value"
    says: ClassVar = f"{{values:list; {_BAD_VALUE}}}"
    values: tuple[BadValue, ...]

    def _advice(self) -> Iterable[str]:
        return (fill(_CORRECT, value) for value in self.values)


@dataclass(frozen=True, slots=True)
class SpecValid(Reason):
    """All settings are valid.

    Some may use deprecated keys.
    """

    code: ClassVar = "Valid"
    says: ClassVar = "{notes:list;}"
    deprecated: tuple[DeprecatedKey, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return ("all settings are valid", *(fill(_DEPRECATED, key) for key in self.deprecated))


def describe_settings(claim: GangMembership) -> str:
    """Return what there is to say of the gang of a pod besides its reason; empty for nothing.

    That is where it was found, and problems of the pod's own settings that do not block it.
    """
    notes = [claim.found_by] if claim.found_by else []
    notes += [fill(_BAD_VALUE, bad) for bad in claim.bad_values]
    notes += [fill(_DEPRECATED, key) for key in claim.deprecated]
    return f"Note: {cut(listed(notes, '; '), MAX_TEXT)}" if notes else ""


@dataclass(frozen=True, slots=True)
class Reached(_Quorum):
    """Enough members exist."""

    code: ClassVar = "Reached"
    says: ClassVar = "{counts}"


@dataclass(frozen=True, slots=True)
class HeldForReplacements(Reason):
    """Room is reserved for replacements of lost members of running gangs, for a limited time."""

    code: ClassVar = "KeptForReplacements"
    reason_class: ClassVar = ReasonClass.ROOM
    is_capacity: ClassVar = True
    meaning: ClassVar = (
        "there is room, but it is reserved for replacements of lost members of running gangs of "
        "at least the same priority, or that must not be preempted; the message names the gangs "
        "and the longest wait"
    )
    way_out: ClassVar = (
        "wait, or see why these gangs get no replacements; a gang can "
        "[give it up](gang-lifecycle.md#members-that-are-lost)"
    )
    says: ClassVar = (
        "room for {pods:# pod} is reserved for replacements of lost members of {gangs:list}, for "
        "at most {seconds} s more"
    )
    advises: ClassVar = (
        (
            "Wait, or give the room up: annotate the PodGroups of {gangs:list} with "
            "operators.koordinator.sh/kept-room: GiveUp."
        ),
    )
    gangs: tuple[GangKey, ...]
    pods: int
    seconds: int


@dataclass(frozen=True, slots=True)
class AllBound(Reason):
    """The minimum has nodes, and nobody waits."""

    code: ClassVar = "AllBound"
    says: ClassVar = "{bound} of {present:# member} bound; none is waiting for a node"
    bound: int
    present: int


@dataclass(frozen=True, slots=True)
class PartiallyBound(Reason):
    """Some have a node and some do not."""

    code: ClassVar = "PartiallyBound"
    reason_class: ClassVar = ReasonClass.WRITING
    way_out: ClassVar = "nothing, unless it lasts: then look at `Placed` of the pods that wait"
    says: ClassVar = "{bound} of {present:# member} bound"
    bound: int
    present: int


_NEXT: Final = {
    OnMemberFailure.REPLACE: "replacements are placed before all other pods",
    OnMemberFailure.RESTART_GANG: "the others are evicted so that the whole gang restarts",
    OnMemberFailure.IGNORE: "replacements are placed like any other pod",
}


@dataclass(frozen=True, slots=True)
class BelowMin(Reason):
    """A started gang has lost members; their replacements are placed first.

    It, or a sub-group of it, is below its minimum.
    """

    code: ClassVar = "BelowMin"
    reason_class: ClassVar = ReasonClass.INCOMPLETE
    way_out: ClassVar = (
        "see why they died; create replacements if the owner does not. A member that "
        "kube-scheduler was to bind and cannot (its `PodScheduled` says why) is lost, too, unless "
        "it finds a way later: delete it"
    )
    says: ClassVar = (
        "{sub_groups:?{sub_groups:list {gang} has {present} of {min_member:# required member}}"
        "|the started gang has {bound} of {min_member:# required member}} left; "
        "{refused:?{refused.text()}; }{next}"
    )
    advises: ClassVar = (
        "The owner of the pods, such as a Job, is expected to create {lacking:# member} again.",
        "If it does not, its events say why; pods without an owner are created by hand.",
    )
    bound: int
    min_member: int
    policy: OnMemberFailure = OnMemberFailure.REPLACE
    refused: RefusedByScheduler | None = None
    """The first member that was released, and that its scheduler does not bind."""
    sub_groups: tuple[GangCount, ...] = ()
    """Those of it that lack members."""

    @property
    def next(self) -> str:
        return _NEXT[self.policy]

    @property
    def lacking(self) -> int:
        return self.min_member - self.bound

    def _advice(self) -> Iterable[str]:
        return self.refused.advice() if self.refused else fill_all(self.advises, self)


@dataclass(frozen=True, slots=True)
class MemberOnFailedNode(Reason):
    """Members run on nodes that are not ready or gone; they may be lost.

    They count until their pods are removed: a node may come back.
    """

    code: ClassVar = "MemberOnFailedNode"
    reason_class: ClassVar = ReasonClass.ENDING
    meaning: ClassVar = (
        "members are on nodes that are not ready, not reachable or deleted; the gang has its "
        "minimum still"
    )
    way_out: ClassVar = (
        "see to the nodes. Kubernetes evicts the members after five minutes, if they tolerate it "
        "for no longer"
    )
    says: ClassVar = (
        "{members:# member} {members:is|are} on "
        "{nodes:?nodes that are not ready ({nodes:most names}){gone:? and on }}"
        "{gone:?nodes that were deleted ({gone:most names})} "
        "and will be lost if the nodes do not come back"
    )
    members: int
    nodes: tuple[str, ...]
    gone: tuple[str, ...] = ()
    """Nodes that do not exist any more."""


@dataclass(frozen=True, slots=True)
class MemberOnLeavingNode(Reason):
    """Members run on nodes that an autoscaler or the cloud is about to take."""

    code: ClassVar = "MemberOnLeavingNode"
    reason_class: ClassVar = ReasonClass.ENDING
    meaning: ClassVar = (
        "members are on [nodes that are about to go](autoscaling.md#nodes-that-are-about-to-go), "
        "by the decision of an autoscaler or a cloud; the gang has its minimum still"
    )
    way_out: ClassVar = (
        "save the work of the members: their pods end with the nodes. The operators have not "
        "chosen them, and keep no node"
    )
    says: ClassVar = (
        "{members:# member} {members:is|are} on nodes that an autoscaler or the cloud is about to "
        "take ({nodes:most names}; {taint}), and will be lost with them"
    )
    members: int
    nodes: tuple[str, ...]
    taint: str
    """Of the first of them."""


@dataclass(frozen=True, slots=True)
class _Restart(Reason):
    cause: ClassVar = "{lost:?{lost:# member} lost|{unbound:# member} released but not bound}"
    lost: int
    unbound: int
    pods: int
    what: str = "gang"


@dataclass(frozen=True, slots=True)
class RestartingGang(_Restart):
    """The remaining members are evicted: some were lost, or released ones got no node."""

    code: ClassVar = "RestartingGang"
    reason_class: ClassVar = ReasonClass.ENDING
    meaning: ClassVar = (
        "the remaining members [are evicted](gang-lifecycle.md#members-that-are-lost) so that the "
        "whole gang restarts"
    )
    way_out: ClassVar = "see why members were lost"
    says: ClassVar = (
        "{cause:part}: the remaining {pods} are evicted so that the whole {what} restarts"
    )


@dataclass(frozen=True, slots=True)
class RestartProtected(_Restart):
    """The remaining members should be evicted, but a disruption budget does not allow it."""

    code: ClassVar = "RestartProtected"
    reason_class: ClassVar = ReasonClass.INCOMPLETE
    way_out: ClassVar = "relax the budget, or delete them"
    says: ClassVar = (
        "{cause:part}: the remaining {pods} should be evicted so that the whole {what} restarts, "
        "but a disruption budget or the API server does not allow it for all of them; relax the "
        "budget, or delete them"
    )


@dataclass(frozen=True, slots=True)
class AtStrength(Reason):
    """The gang has its minimum, or is not running."""

    code: ClassVar = "AtStrength"
    says: ClassVar = "the gang {has_minimum:?has its minimum|is not running}"
    has_minimum: bool


@dataclass(frozen=True, slots=True)
class ScheduleTimeout(Reason):
    """All members were present for longer than the gang's wait time, and no place was found."""

    code: ClassVar = "ScheduleTimeout"
    reason_class: ClassVar = ReasonClass.ROOM
    meaning: ClassVar = (
        "all members were present for longer than the wait time, and no place was found; attempts "
        "go on"
    )
    way_out: ClassVar = "look at `Placed`"
    says: ClassVar = (
        "all members are present but no place was found for {waited_seconds} s, longer than the "
        "{limit_seconds} s allowed; still trying"
    )
    waited_seconds: int
    limit_seconds: int


@dataclass(frozen=True, slots=True)
class WithinTime(Reason):
    """The gang has waited less than its wait time."""

    code: ClassVar = "WithinTime"
    says: ClassVar = "the wait time of {limit_seconds} s is not over"
    limit_seconds: int


NotReady: TypeAlias = (
    MissingMembers
    | MissingPodGroup
    | PodGroupsNotServed
    | NativeProblem
    | MissingGang
    | InconsistentGroup
    | InvalidAnnotation
    | UnknownGang
    | TooLarge
)
"""Why no unit of a gang's group is planned."""
