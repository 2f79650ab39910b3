"""Why members of a native PodGroup of Kubernetes are not released."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from koord.core.model.gangs import GangKey
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class MixedGates(Reason):
    """Some members of a native PodGroup have our gate, and others wait without it."""

    code: ClassVar = "MixedGates"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    meaning: ClassVar = (
        "some members of [a PodGroup of Kubernetes' own](native-groups.md) have our gate, and "
        "others wait without it: kube-scheduler would wait for the first ones, and they for it"
    )
    way_out: ClassVar = "put the gate on all pod templates of the group, or on none"
    says: ClassVar = (
        "{gated:# member} of {gang} {gated:has|have} our gate, and {ungated:# other} "
        "{ungated:waits|wait} for kube-scheduler without it ({pod}), which starts the whole group "
        "or nothing: none is released"
    )
    advises: ClassVar = ("Put our gate on all pod templates of the group, or on none.",)
    gang: GangKey
    gated: int
    ungated: int
    pod: str

    @property
    def culprit(self) -> str:
        return self.pod


@dataclass(frozen=True, slots=True)
class MixedSchedulers(Reason):
    """Members of a native PodGroup name different schedulers; ``pod`` is one of the ``theirs``."""

    code: ClassVar = "MixedSchedulers"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    meaning: ClassVar = (
        "members of [a PodGroup of Kubernetes' own](native-groups.md) name different schedulers, "
        "for which kube-scheduler refuses all of them"
    )
    way_out: ClassVar = "write the same `schedulerName` into all pod templates of the group"
    says: ClassVar = (
        "{ours:# member} of {gang} {ours:names|name} our scheduler, and {theirs} "
        "{theirs:names|name} another one ({pod}): kube-scheduler refuses a group of which not all "
        "pods name the same"
    )
    advises: ClassVar = ("Write the same schedulerName into all pod templates of the group.",)
    gang: GangKey
    ours: int
    theirs: int
    pod: str


@dataclass(frozen=True, slots=True)
class PriorityDiffers(Reason):
    """A native PodGroup says a priority, and ``pod`` has another one."""

    code: ClassVar = "PriorityDiffers"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_incomplete: ClassVar = True
    meaning: ClassVar = (
        "[a PodGroup of Kubernetes' own](native-groups.md) has a priority that its pods do not "
        "have; the pods' own is what counts here, and kube-scheduler refuses such groups"
    )
    way_out: ClassVar = "name the same PriorityClass in the PodGroup and in its pods"
    says: ClassVar = "{gang} has the priority {priority}, and its pod {pod} has {of_pod}"
    advises: ClassVar = ("Name the same PriorityClass in the PodGroup and in its pods.",)
    gang: GangKey
    priority: int
    pod: str
    of_pod: int

    @property
    def culprit(self) -> str:
        return self.pod


@dataclass(frozen=True, slots=True)
class GroupClaims(Reason):
    """Members of a native PodGroup use resource claims that the whole group shares."""

    code: ClassVar = "GroupClaims"
    reason_class: ClassVar = ReasonClass.ELSEWHERE
    is_incomplete: ClassVar = True
    meaning: ClassVar = (
        "[a PodGroup of Kubernetes' own](native-groups.md) has resource claims that are given to "
        "the group as a whole; only kube-scheduler can do that"
    )
    way_out: ClassVar = "leave our gate out of the pods of the group, or the claims"
    says: ClassVar = (
        "{gang} has resource claims for the whole group ({claims:list}), which {pod} uses: only "
        "kube-scheduler can give them, and a pod that is released cannot be held again"
    )
    advises: ClassVar = (
        "Leave our gate out of the pods of {gang}: kube-scheduler then places the group.",
        "Or give each pod claims of its own, or devices by extended resources.",
    )
    gang: GangKey
    claims: tuple[str, ...]
    pod: str


@dataclass(frozen=True, slots=True)
class NativeQuorumMissing(Reason):
    """A member of a native PodGroup was released, and kube-scheduler waits for others.

    ``present`` members are there, behind gates or not; it starts none of fewer than ``min_member``.
    """

    code: ClassVar = "NativeQuorumMissing"
    reason_class: ClassVar = ReasonClass.ELSEWHERE
    rests_on: ClassVar = frozenset({"podgroups"})
    meaning: ClassVar = (
        "a pod of [a PodGroup of Kubernetes' own](native-groups.md) was released, and others of "
        "the group have gone since: kube-scheduler binds none of fewer than the minimum, and says "
        "nothing"
    )
    way_out: ClassVar = "create the missing members, or lower `minCount`"
    says: ClassVar = (
        "{pod} was released, and kube-scheduler binds none of {gang} before {min_member:# member} "
        "{min_member:is|are} there: there {present:is|are} {present}"
    )
    advises: ClassVar = ("Create {_lacking:# more member} of {gang}, or lower its minCount.",)
    gang: GangKey
    pod: str
    present: int
    min_member: int

    @property
    def _lacking(self) -> int:
        return self.min_member - self.present


NativeProblem: TypeAlias = MixedGates | MixedSchedulers | PriorityDiffers | GroupClaims
"""Why no unit of a native PodGroup is planned."""
