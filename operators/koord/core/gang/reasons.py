"""Why a gang waits, cannot start, or runs below its minimum; and that it has all it needs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.gang_model import BadValue, DeprecatedKey, GangClaim, GangKey, OnMemberFailure
from koord.core.reasons import Reason
from koord.core.text import MAX_LISTED, MAX_TEXT, cut, listed, named, plural

_POD_GROUPS: Final = frozenset({"podgroups"})


@dataclass(frozen=True, slots=True)
class GangCount:
    """Members present of one gang, and how many must be.

    ``waiting_only`` says that members with a node do not count (match policy ``only-waiting``).
    ``strangers`` are alive and neither ours to place nor on a node: they do not count yet.
    """

    gang: GangKey
    present: int
    min_member: int
    waiting_only: bool = False
    strangers: int = 0

    def text(self, *, is_first: bool) -> str:
        """Return ``3 of 4 members of default/a present``, or shorter: ``default/b: 1 of 2``."""
        numbers = f"{self.present} of {self.min_member}"
        text = f"{self.gang}: {numbers}"
        if is_first:
            members = "member" if self.min_member == 1 else "members"
            state = "waiting" if self.waiting_only else "present"
            text = f"{numbers} {members} of {self.gang} {state}"
        if self.waiting_only:
            text += " (only-waiting: bound members do not count)"
        return text

    def advice(self) -> Iterator[str]:
        lacking = self.min_member - self.present
        if self.strangers:
            yield self._adopt()
        if lacking > self.strangers:
            members = plural(lacking - self.strangers, "more member")
            lower = f", or lower its minimum to {self.present}" if self.present else ""
            yield f"Create {members} of {self.gang}{lower}."
        if self.waiting_only:
            policy = "waiting-and-running"
            yield f"To have members count that run already, use the match policy {policy}."

    def _adopt(self) -> str:
        pods = plural(self.strangers, "pod")
        are, them = ("is", "it") if self.strangers == 1 else ("are", "them")
        add = f"add our gate and scheduler name to the template that the owner makes {them} from"
        return (
            f"{pods} of {self.gang} {are} left to another scheduler: to have us place {them}, "
            f"{add}."
        )


def _counts(gangs: Sequence[GangCount]) -> str:
    return listed((gang.text(is_first=not i) for i, gang in enumerate(gangs)), "; ")


@dataclass(frozen=True, slots=True)
class MissingMembers(Reason):
    """Some gang of the group has fewer live members than its minimum."""

    code: ClassVar = "MissingMembers"
    is_incomplete: ClassVar = True
    gangs: tuple[GangCount, ...]

    def _text(self) -> str:
        counts = _counts(self.gangs)
        strangers = sum(count.strangers for count in self.gangs)
        if strangers:
            verb = "has" if strangers == 1 else "have"
            counts += (
                f"; {plural(strangers, 'more pod')} {verb} neither our gate nor our scheduler "
                "name, so they count only once others have placed them"
            )
        elif not any(count.present or count.waiting_only for count in self.gangs):
            counts += f"; no live pod names {'it' if len(self.gangs) == 1 else 'them'}"
        return f"{counts} (child pod not collect enough)"

    def _advice(self) -> Iterable[str]:
        return (sentence for gang in self.gangs for sentence in gang.advice())


@dataclass(frozen=True, slots=True)
class MissingPodGroup(Reason):
    """Pods name a PodGroup that does not exist."""

    code: ClassVar = "MissingPodGroup"
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    gang: GangKey

    def _text(self) -> str:
        return (
            f"PodGroup {self.gang} does not exist; create it, or correct the name on the pods "
            f"(gang has not init, gangName: {self.gang})"
        )

    def _advice(self) -> Iterable[str]:
        yield f"Create the PodGroup {self.gang}, or correct the name on the pods."


@dataclass(frozen=True, slots=True)
class MissingGang(Reason):
    """The group lists gangs of which nothing is known."""

    code: ClassVar = "MissingGang"
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    gang: GangKey
    missing: tuple[GangKey, ...]

    def _text(self) -> str:
        them = "them" if len(self.missing) > 1 else "it"
        return (
            f"{self.gang} starts together with {listed(self.missing)}, of which nothing exists; "
            f"create {them}, or take {them} out of its groups "
            f"(memberGangs [{listed(self.missing, ' ')}] doesn't exists)"
        )

    def _advice(self) -> Iterable[str]:
        yield f"Create {named(self.missing)}, or take it out of the groups of {self.gang}."


@dataclass(frozen=True, slots=True)
class InconsistentGroup(Reason):
    """Gangs of one group do not list each other: ``silent`` ones do not list ``gang`` back."""

    code: ClassVar = "InconsistentGroup"
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    gang: GangKey
    silent: tuple[GangKey, ...]

    def _text(self) -> str:
        silent = listed(self.silent)
        verb = "do" if len(self.silent) > 1 else "does"
        return (
            f"{self.gang} lists {silent} in its groups, but {silent} {verb} not list {self.gang}; "
            "gangs start together only if each lists the other"
        )

    def _advice(self) -> Iterable[str]:
        silent = named(self.silent)
        yield f"Add {self.gang} to the groups of {silent}."
        yield f"Or take {silent} out of the groups of {self.gang}, which then starts without."


@dataclass(frozen=True, slots=True)
class InvalidAnnotation(Reason):
    """Settings that could not be used; defaults are in force where there is one."""

    code: ClassVar = "InvalidAnnotation"
    is_incomplete: ClassVar = True
    values: tuple[BadValue, ...]

    def _text(self) -> str:
        return listed(map(_bad_value, self.values), "; ")

    def _advice(self) -> Iterable[str]:
        for value in self.values:
            if value.value:
                yield f"Correct {value.key}, which {value.problem}."
            else:
                yield f"Give the pods {value.key}."


@dataclass(frozen=True, slots=True)
class SpecValid(Reason):
    """Nothing is wrong with the settings; some may be written under keys that are deprecated."""

    code: ClassVar = "Valid"
    deprecated: tuple[DeprecatedKey, ...] = ()

    def _text(self) -> str:
        return listed(("every setting can be used", *map(_deprecated, self.deprecated)), "; ")


def describe_settings(claim: GangClaim) -> str:
    """Return what is wrong with a pod's own gang settings but holds nothing up, or nothing."""
    notes = (*map(_bad_value, claim.bad_values), *map(_deprecated, claim.deprecated))
    return f"Note: {cut(listed(notes, '; '), MAX_TEXT)}" if notes else ""


def _bad_value(bad: BadValue) -> str:
    written = f' "{bad.value}"' if bad.value else ""
    return f"{bad.key}{written} {bad.problem} (in force: {bad.in_force})"


def _deprecated(used: DeprecatedKey) -> str:
    return f"{used.key} is deprecated, use {used.instead}"


@dataclass(frozen=True, slots=True)
class Reached(Reason):
    """Every gang of the group has its quorum."""

    code: ClassVar = "Reached"
    gangs: tuple[GangCount, ...]

    def _text(self) -> str:
        return _counts(self.gangs)


@dataclass(frozen=True, slots=True)
class KeptForReplacements(Reason):
    """There is room, and it is kept for lost members of gangs that run; for so long at most."""

    code: ClassVar = "KeptForReplacements"
    gangs: tuple[GangKey, ...]
    pods: int
    seconds: int

    def _text(self) -> str:
        return (
            f"room for {plural(self.pods, 'pod')} is kept for lost members of "
            f"{listed(self.gangs)}, for {self.seconds} s more at most"
        )


@dataclass(frozen=True, slots=True)
class AllBound(Reason):
    """At least the minimum is bound, and nothing that is ours to place waits."""

    code: ClassVar = "AllBound"
    bound: int
    present: int

    def _text(self) -> str:
        return f"{self.bound} of {plural(self.present, 'member')} bound; none waits for a node"


@dataclass(frozen=True, slots=True)
class PartiallyBound(Reason):
    """Some members are bound and some still wait."""

    code: ClassVar = "PartiallyBound"
    bound: int
    present: int

    def _text(self) -> str:
        return f"{self.bound} of {plural(self.present, 'member')} bound"


_NEXT: Final = {
    OnMemberFailure.REPLACE: "replacements go before all other pods",
    OnMemberFailure.RESTART_GANG: "the remaining members are evicted, and the gang restarts",
    OnMemberFailure.IGNORE: "replacements come like any other pod",
}


@dataclass(frozen=True, slots=True)
class BelowMin(Reason):
    """A gang that had started has lost members and runs below its minimum."""

    code: ClassVar = "BelowMin"
    bound: int
    min_member: int
    policy: OnMemberFailure = OnMemberFailure.REPLACE

    def _text(self) -> str:
        return (
            f"the gang has started and has {plural(self.bound, 'member')} left of the "
            f"{self.min_member} it needs; {_NEXT[self.policy]}"
        )

    def _advice(self) -> Iterable[str]:
        lacking = plural(self.min_member - self.bound, "member")
        yield f"Have the owner of the gang create {lacking} in place of those that were lost."


@dataclass(frozen=True, slots=True)
class MemberOnFailedNode(Reason):
    """Members run on nodes of which nothing is heard; they may be lost."""

    code: ClassVar = "MemberOnFailedNode"
    members: int
    nodes: tuple[str, ...]

    def _text(self) -> str:
        are = "is" if self.members == 1 else "are"
        return (
            f"{plural(self.members, 'member')} {are} on nodes that are not ready "
            f"({named(self.nodes, MAX_LISTED)}), and lost if those do not come back"
        )


@dataclass(frozen=True, slots=True)
class _Restart(Reason):
    lost: int
    unbound: int
    pods: int

    @property
    def _cause(self) -> str:
        return f"{self.lost} lost" if self.lost else f"{self.unbound} released and not bound"


@dataclass(frozen=True, slots=True)
class RestartingGang(_Restart):
    """What is left of a gang is evicted: members were lost, or released ones got no node."""

    code: ClassVar = "RestartingGang"

    def _text(self) -> str:
        return f"members {self._cause}: the {self.pods} left are evicted, and the gang restarts"


@dataclass(frozen=True, slots=True)
class RestartProtected(_Restart):
    """What is left of a gang is to be evicted, and may not be: a disruption budget keeps it."""

    code: ClassVar = "RestartProtected"

    def _text(self) -> str:
        return (
            f"members {self._cause}: the {self.pods} left should be evicted to restart the gang, "
            "but a disruption budget or the API server does not allow all evictions; relax the "
            "budget, or delete the pods"
        )


@dataclass(frozen=True, slots=True)
class AtStrength(Reason):
    """The gang does not run, or has its minimum or more."""

    code: ClassVar = "AtStrength"
    has_minimum: bool

    def _text(self) -> str:
        return "the gang has its minimum or more" if self.has_minimum else "the gang does not run"


@dataclass(frozen=True, slots=True)
class ScheduleTimeout(Reason):
    """All members were present longer than the gang's wait time and no place was found."""

    code: ClassVar = "ScheduleTimeout"
    waited_seconds: int
    limit_seconds: int

    def _text(self) -> str:
        return (
            f"all members present and no place found for {self.waited_seconds} s, "
            f"longer than the {self.limit_seconds} s allowed; still trying"
        )


@dataclass(frozen=True, slots=True)
class WithinTime(Reason):
    """The wait time has not run out."""

    code: ClassVar = "WithinTime"
    limit_seconds: int

    def _text(self) -> str:
        return f"the gang has not waited for a place longer than the {self.limit_seconds} s allowed"
