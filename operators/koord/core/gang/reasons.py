"""Why a gang waits or runs below its minimum, and the reasons of its other conditions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from koord.core.model.gangs import BadValue, DeprecatedKey, GangKey, GangMembership, OnMemberFailure
from koord.core.model.reasons import Reason, RefusedByScheduler
from koord.core.model.text import MAX_LISTED, MAX_TEXT, cut, listed, named, plural

_POD_GROUPS: Final = frozenset({"podgroups"})


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

    def text(self, *, is_first: bool) -> str:
        """Return ``3 of 4 members of default/a present``, or shorter: ``default/b: 1 of 2``."""
        numbers = f"{self.present} of {self.min_member}"
        text = f"{self.gang}: {numbers}"
        if is_first:
            members = "member" if self.min_member == 1 else "members"
            state = "waiting" if self.waiting_only else "present"
            text = f"{numbers} {members} of {self.gang} {state}"
        if self.done:
            text += f" ({self.done} succeeded)"
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
            yield f"To count members that already run, use the match policy {policy}."

    def _adopt(self) -> str:
        pods = plural(self.strangers, "pod")
        them = "it" if self.strangers == 1 else "them"
        return (
            f"Add our gate and scheduler name to the pod template of {pods} of {self.gang}; "
            f"without them another scheduler places {them}."
        )


def _counts(gangs: Sequence[GangCount]) -> str:
    return listed((gang.text(is_first=not i) for i, gang in enumerate(gangs)), "; ")


@dataclass(frozen=True, slots=True)
class MissingMembers(Reason):
    """Some gang of the group, or a sub-group, has fewer live members than its minimum."""

    code: ClassVar = "MissingMembers"
    is_incomplete: ClassVar = True
    gangs: tuple[GangCount, ...]
    left_out: str = field(default="", compare=False)
    """The sub-group that waits, if its gang does not."""

    @property
    def about(self) -> str:
        return self.left_out

    def _text(self) -> str:
        counts = _counts(self.gangs)
        strangers = sum(count.strangers for count in self.gangs)
        if strangers:
            verb = "has" if strangers == 1 else "have"
            counts += (
                f"; {plural(strangers, 'more pod')} {verb} neither our gate nor our scheduler "
                "name, so they count only after another scheduler has placed them"
            )
        elif not any(count.present or count.waiting_only for count in self.gangs):
            counts += f"; no live pod belongs to {'it' if len(self.gangs) == 1 else 'them'}"
        return counts

    def upstream(self) -> str:
        return "child pod not collect enough"

    def _advice(self) -> Iterable[str]:
        return (sentence for gang in self.gangs for sentence in gang.advice())


@dataclass(frozen=True, slots=True)
class GangNotStarted(Reason):
    """A complete sub-group is not needed for the start of what it belongs to, and follows it."""

    code: ClassVar = "GangNotStarted"
    sub_group: str
    parent: str

    def _text(self) -> str:
        return f"{self.sub_group} is placed after {self.parent}, which has not started yet"

    def _advice(self) -> Iterable[str]:
        yield f"See why {self.parent} waits."


@dataclass(frozen=True, slots=True)
class MissingPodGroup(Reason):
    """Pods name a PodGroup that does not exist."""

    code: ClassVar = "MissingPodGroup"
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    gang: GangKey

    def _text(self) -> str:
        return f"PodGroup {self.gang} does not exist; create it, or correct the name on the pods"

    def upstream(self) -> str:
        return f"gang has not init, gangName: {self.gang}"

    def _advice(self) -> Iterable[str]:
        yield f"Create the PodGroup {self.gang}, or correct the name on the pods."


@dataclass(frozen=True, slots=True)
class MissingGang(Reason):
    """The group lists gangs that have neither a PodGroup nor pods."""

    code: ClassVar = "MissingGang"
    is_incomplete: ClassVar = True
    rests_on: ClassVar = _POD_GROUPS
    gang: GangKey
    missing: tuple[GangKey, ...]

    def _text(self) -> str:
        gangs, them = "a gang that does not exist", "it"
        if len(self.missing) > 1:
            gangs, them = "gangs that do not exist", "them"
        return (
            f"{self.gang} lists {gangs}: {listed(self.missing)}; create {them}, or remove {them} "
            "from its groups"
        )

    def upstream(self) -> str:
        return f"memberGangs [{listed(self.missing, ' ')}] doesn't exists"

    def _advice(self) -> Iterable[str]:
        them = "them" if len(self.missing) > 1 else "it"
        yield f"Create {named(self.missing)}, or remove {them} from the groups of {self.gang}."


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
        them = "them" if len(self.silent) > 1 else "it"
        yield (
            f"Or remove {silent} from the groups of {self.gang}, which then starts without {them}."
        )


@dataclass(frozen=True, slots=True)
class InvalidAnnotation(Reason):
    """Invalid settings; defaults apply where there are any."""

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
                yield f"Set {value.key} on the pods."


@dataclass(frozen=True, slots=True)
class SpecValid(Reason):
    """All settings are valid; some may use deprecated keys."""

    code: ClassVar = "Valid"
    deprecated: tuple[DeprecatedKey, ...] = ()

    def _text(self) -> str:
        return listed(("all settings are valid", *map(_deprecated, self.deprecated)), "; ")


def describe_settings(claim: GangMembership) -> str:
    """Return the problems of a pod's own gang settings that do not block it; empty if none."""
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
class HeldForReplacements(Reason):
    """Room is reserved for replacements of lost members of running gangs, for a limited time."""

    code: ClassVar = "KeptForReplacements"
    is_capacity: ClassVar = True
    gangs: tuple[GangKey, ...]
    pods: int
    seconds: int

    def _text(self) -> str:
        return (
            f"room for {plural(self.pods, 'pod')} is reserved for replacements of lost members of "
            f"{listed(self.gangs)}, for at most {self.seconds} s more"
        )

    def _advice(self) -> Iterable[str]:
        yield (
            f"Wait, or give the room up: annotate the PodGroups of {listed(self.gangs)} with "
            "operators.koordinator.sh/kept-room: GiveUp."
        )


@dataclass(frozen=True, slots=True)
class AllBound(Reason):
    """At least the minimum is bound, and no pod that is ours to place waits."""

    code: ClassVar = "AllBound"
    bound: int
    present: int

    def _text(self) -> str:
        return f"{self.bound} of {plural(self.present, 'member')} bound; none is waiting for a node"


@dataclass(frozen=True, slots=True)
class PartiallyBound(Reason):
    """Some members are bound and some still wait."""

    code: ClassVar = "PartiallyBound"
    bound: int
    present: int

    def _text(self) -> str:
        return f"{self.bound} of {plural(self.present, 'member')} bound"


_NEXT: Final = {
    OnMemberFailure.REPLACE: "replacements are placed before all other pods",
    OnMemberFailure.RESTART_GANG: "the others are evicted so that the whole gang restarts",
    OnMemberFailure.IGNORE: "replacements are placed like any other pod",
}


def _required(members: int) -> str:
    return plural(members, "required member")


@dataclass(frozen=True, slots=True)
class BelowMin(Reason):
    """A gang that had started has lost members: it, or a sub-group, is below its minimum."""

    code: ClassVar = "BelowMin"
    bound: int
    min_member: int
    policy: OnMemberFailure = OnMemberFailure.REPLACE
    refused: RefusedByScheduler | None = None
    """The first member that was released, and that its scheduler does not bind."""
    sub_groups: tuple[GangCount, ...] = ()
    """Those of it that lack members."""

    def _text(self) -> str:
        refused = "" if self.refused is None else f"{self.refused.text()}; "
        left = [f"the started gang has {self.bound} of {_required(self.min_member)}"]
        if self.sub_groups:
            parts = self.sub_groups
            left = [
                f"{part.gang} has {part.present} of {_required(part.min_member)}" for part in parts
            ]
        return f"{listed(left)} left; {refused}{_NEXT[self.policy]}"

    @property
    def lacking(self) -> int:
        return self.min_member - self.bound

    def _advice(self) -> Iterable[str]:
        if self.refused is not None:
            yield from self.refused.advice()
            return
        lacking = plural(self.lacking, "member")
        yield f"The owner of the pods, such as a Job, is expected to create {lacking} again."
        yield "If it does not, its events say why; pods without an owner are created by hand."


@dataclass(frozen=True, slots=True)
class MemberOnFailedNode(Reason):
    """Members run on nodes that are not ready or gone; they may be lost.

    They count until their pods are removed: a node may come back.
    """

    code: ClassVar = "MemberOnFailedNode"
    members: int
    nodes: tuple[str, ...]
    gone: tuple[str, ...] = ()
    """Nodes that do not exist any more."""

    def _text(self) -> str:
        are = "is" if self.members == 1 else "are"
        where = []
        if self.nodes:
            where.append(f"nodes that are not ready ({named(self.nodes, MAX_LISTED)})")
        if self.gone:
            where.append(f"nodes that were deleted ({named(self.gone, MAX_LISTED)})")
        return (
            f"{plural(self.members, 'member')} {are} on {' and on '.join(where)} "
            f"and will be lost if the nodes do not come back"
        )


@dataclass(frozen=True, slots=True)
class _Restart(Reason):
    lost: int
    unbound: int
    pods: int
    what: str = "gang"

    @property
    def _cause(self) -> str:
        if self.lost:
            return f"{plural(self.lost, 'member')} lost"
        return f"{plural(self.unbound, 'member')} released but not bound"


@dataclass(frozen=True, slots=True)
class RestartingGang(_Restart):
    """The remaining members are evicted: some were lost, or released ones got no node."""

    code: ClassVar = "RestartingGang"

    def _text(self) -> str:
        return (
            f"{self._cause}: the remaining {self.pods} are evicted so that the whole {self.what} "
            "restarts"
        )


@dataclass(frozen=True, slots=True)
class RestartProtected(_Restart):
    """The remaining members should be evicted, but a disruption budget does not allow it."""

    code: ClassVar = "RestartProtected"

    def _text(self) -> str:
        return (
            f"{self._cause}: the remaining {self.pods} should be evicted so that the whole "
            f"{self.what} restarts, but a disruption budget or the API server does not allow it "
            "for all of them; relax the budget, or delete them"
        )


@dataclass(frozen=True, slots=True)
class AtStrength(Reason):
    """The gang is not running, or has at least its minimum."""

    code: ClassVar = "AtStrength"
    has_minimum: bool

    def _text(self) -> str:
        return "the gang has its minimum" if self.has_minimum else "the gang is not running"


@dataclass(frozen=True, slots=True)
class ScheduleTimeout(Reason):
    """All members were present for longer than the gang's wait time, and no place was found."""

    code: ClassVar = "ScheduleTimeout"
    waited_seconds: int
    limit_seconds: int

    def _text(self) -> str:
        return (
            f"all members are present but no place was found for {self.waited_seconds} s, longer "
            f"than the {self.limit_seconds} s allowed; still trying"
        )


@dataclass(frozen=True, slots=True)
class WithinTime(Reason):
    """The wait time is not over."""

    code: ClassVar = "WithinTime"
    limit_seconds: int

    def _text(self) -> str:
        return f"the wait time of {self.limit_seconds} s is not over"
