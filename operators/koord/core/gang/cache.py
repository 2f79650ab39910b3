"""The cache of gangs: their members and settings, and which gangs changed since the last query.

Updated one object at a time by a single writer. Answers come from counters, so an event costs the
same for a gang of two members and one of a thousand. They depend on the objects in the cache, never
on the order of arrival. Members are identified by uid: a recreated pod is another member.

Knows no rules about quorums or phases, and no nodes.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias, TypeVar, cast

from koord.core.gang.group import Group, GroupId, close_group
from koord.core.gang.kueue import leave_topology
from koord.core.gang.tally import Tally
from koord.core.model.gangs import GangKey, GangSource, GangSpec, ObservedPodGroup, RunRecord
from koord.core.model.pods import Pod
from koord.core.model.reasons import NoSettings

Answer = TypeVar("Answer")
MAX_DEPARTED: Final = 4096
"""Deleted members kept for :meth:`GangCache.take_departed`."""

_Order: TypeAlias = tuple[float, str, str]
"""Creation time, name, uid: the order in which members count as first."""


def order_of(pod: Pod) -> _Order:
    """Return the sort key of members, oldest first; no ties, so independent of arrival."""
    return pod.created, pod.name, pod.uid


def sort_members(pods: Iterable[Pod]) -> list[Pod]:
    """Sort waiting members as they are planned: by priority, then the oldest first."""
    return sorted(pods, key=lambda pod: (-pod.priority, *order_of(pod)))


class Gang:
    """One gang: its members, its PodGroup if there is one, and values derived from them."""

    __slots__ = (
        "_bare", "_declarers", "_queued", "derived", "listing", "members", "pod_group", "spec",
        "tally",
    )  # fmt: skip

    def __init__(self) -> None:
        self.members: dict[str, Pod] = {}
        self.pod_group: ObservedPodGroup | None = None
        self.derived: GangSpec | NoSettings | None = None
        """The settings that were found for it, or why there are none."""
        self.tally = Tally()
        self.spec: GangSpec | None = None
        self.listing: frozenset[GangKey] | None = None
        self._declarers: list[_Order] = []
        """Heap of members that declare settings; stale entries are dropped at the top."""
        self._queued: set[_Order] = set()
        """Entries of the heap, so that no member is in it twice."""
        self._bare: tuple[GangSpec, GangSpec] | None = None
        """Settings, and the same without topology: made once, as each event asks for them."""

    @property
    def is_empty(self) -> bool:
        return not self.members and self.pod_group is None and self.derived is None

    @property
    def is_native(self) -> bool:
        """Whether its members name a native PodGroup, that is one of Kubernetes' own."""
        return any(
            pod.gang is not None and pod.gang.source is GangSource.NATIVE
            for pod in islice(self.members.values(), 1)
        )

    @property
    def own_pod_group(self) -> ObservedPodGroup | None:
        """The PodGroup, unless it is a native one, whose status is not ours."""
        pod_group = self.pod_group
        is_native = pod_group is not None and pod_group.spec.source is GangSource.NATIVE
        return None if is_native else pod_group

    @property
    def runs(self) -> RunRecord:
        """What the status of the PodGroup remembers of members that are done."""
        return () if self.pod_group is None else self.pod_group.runs

    def put(self, pod: Pod) -> None:
        old = self.members.get(pod.uid)
        if old is not None:
            self._forget(old)
        self.members[pod.uid] = pod
        self.tally.add(pod)
        if pod.gang is not None:
            self.tally.label_claims += pod.gang.source.has_object
        if _declared(pod) and (order := order_of(pod)) not in self._queued:
            self._queued.add(order)
            heapq.heappush(self._declarers, order)

    def drop(self, pod: Pod) -> None:
        self._forget(pod)
        del self.members[pod.uid]

    def _forget(self, pod: Pod) -> None:
        self.tally.discard(pod)
        if pod.gang is not None:
            self.tally.label_claims -= pod.gang.source.has_object

    def refresh(self) -> bool:
        """Update the settings; return whether the gang lists other gangs than before."""
        spec = self._find_spec()
        if spec is not None and self.tally.by_kueue:
            spec = self._without_topology(spec)
        if spec is self.spec:
            return False
        self.spec = spec
        before = self.listing
        self.listing = None if spec is None else _share(spec.group)
        return self.listing != before

    def _without_topology(self, spec: GangSpec) -> GangSpec:
        if self._bare is None or self._bare[0] is not spec:
            self._bare = spec, leave_topology(spec)
        return self._bare[1]

    def _find_spec(self) -> GangSpec | None:
        if self.pod_group is not None:
            return self.pod_group.spec
        if self.derived is not None:
            return self.derived if isinstance(self.derived, GangSpec) else None
        return self._first_declared()

    def _first_declared(self) -> GangSpec | None:
        while self._declarers:
            order = self._declarers[0]
            pod = self.members.get(order[2])
            if pod is not None and order_of(pod) == order and (declared := _declared(pod)):
                return declared
            self._queued.discard(heapq.heappop(self._declarers))
        return None


@lru_cache(maxsize=64)
def _share(group: tuple[GangKey, ...]) -> frozenset[GangKey]:
    """Return one shared set for equal lists."""
    return frozenset(group)


def _declared(pod: Pod) -> GangSpec | None:
    return pod.gang.declared if pod.gang is not None else None


GangStates: TypeAlias = Mapping[GangKey, Gang]
"""The gangs of a group, at one moment."""

_NO_GANG: Final = Gang()


class GangCache:
    """Every gang that is known, by key. Single writer; what it returns must not be changed."""

    def __init__(self, *, compat: bool = False) -> None:
        self.compat = compat
        """Whether to follow Koordinator's rules where ours differ."""
        self._gangs: dict[GangKey, Gang] = {}
        self._gang_of: dict[str, GangKey] = {}
        """Pod uid -> the gang it is a member of."""
        self._listed_by: dict[GangKey, set[GangKey]] = {}
        """Gang, known or not -> the gangs whose list names it."""
        self._groups: dict[GangKey, Group] = {}
        """Gang -> its group, until a list changes."""
        self._answers: dict[GroupId, dict[object, object]] = {}
        """Group -> function -> its answer, until something in the group changes."""
        self.unread_versions: tuple[str, ...] = ()
        """The versions of native PodGroups that were looked for in vain; empty if one is read."""
        self._dirty: set[GangKey] = set()
        self._departed: deque[Pod] = deque(maxlen=MAX_DEPARTED)
        """Deleted members that had a node; see :meth:`take_departed`."""

    # Changes

    def upsert_pod(self, pod: Pod) -> None:
        """Add or update a pod; a pod without a gang is removed."""
        key = pod.gang.key if pod.gang is not None else None
        if self._gang_of.get(pod.uid) != key:
            self.remove_pod(pod.uid)
        if key is None:
            return
        gang = self._open(key)
        # Before ``put``, which replaces the member. One that compares equal is put all the same:
        # fields that do not affect planning may differ.
        is_news = gang.members.get(pod.uid) != pod
        self._gang_of[pod.uid] = key
        gang.put(pod)
        if is_news:
            self._update(key, gang)
        else:
            self._forget_answers(key)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod; unknown ones are no error."""
        key = self._gang_of.pop(uid, None)
        if key is None:
            return
        gang = self._gangs[key]
        pod = gang.members[uid]
        if pod.node and pod.recorded is not None:
            self._departed.append(pod)
        gang.drop(pod)
        self._update(key, gang)

    def upsert_pod_group(self, pod_group: ObservedPodGroup) -> None:
        gang = self._open(pod_group.key)
        if gang.pod_group != pod_group:
            gang.pod_group = pod_group
            self._update(pod_group.key, gang)

    def remove_pod_group(self, key: GangKey) -> None:
        """Remove a PodGroup; its members become members of a gang without settings."""
        gang = self._gangs.get(key)
        if gang is None or gang.pod_group is None:
            return
        gang.pod_group = None
        self._update(key, gang)

    def note_unread(self, versions: tuple[str, ...]) -> None:
        """Note which versions of native PodGroups are not served; gangs that lack theirs say so."""
        if versions == self.unread_versions:
            return
        self.unread_versions = versions
        for key, gang in self._gangs.items():
            if gang.spec is None and gang.tally.label_claims:
                self._dirty.add(key)
                self._forget_answers(key)

    def declare(self, key: GangKey, derived: GangSpec | NoSettings) -> None:
        """Give a gang the settings that were found for it, or say why there are none."""
        gang = self._open(key)
        if gang.derived != derived:
            gang.derived = derived
            self._update(key, gang)

    def withdraw(self, key: GangKey) -> None:
        """Take back what was found for a gang; unknown ones are no error."""
        gang = self._gangs.get(key)
        if gang is not None and gang.derived is not None:
            gang.derived = None
            self._update(key, gang)

    def _open(self, key: GangKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang()
        return gang

    def _update(self, key: GangKey, gang: Gang) -> None:
        self._dirty.add(key)
        # Before the group may be dropped: answers are found by its id.
        self._forget_answers(key)
        before = gang.listing
        if gang.refresh():
            self._relist(key, before or frozenset(), gang.listing or frozenset())
        if gang.spec is None:
            # The gangs that list it report why it has no settings.
            for lister in self._listed_by.get(key, ()):
                self._dirty.add(lister)
                self._forget_answers(lister)
        if gang.is_empty:
            del self._gangs[key]
            self._groups.pop(key, None)

    def _relist(self, key: GangKey, old: frozenset[GangKey], new: frozenset[GangKey]) -> None:
        for gang in old - new:
            self._listed_by[gang].discard(key)
            if not self._listed_by[gang]:
                del self._listed_by[gang]
        for gang in new - old:
            self._listed_by.setdefault(gang, set()).add(key)
        for gang in {key} | old | new | self._listed_by.get(key, set()):
            self._drop_group(gang)

    def _drop_group(self, key: GangKey) -> None:
        """Drop the cached group of a gang and mark all of its gangs as changed."""
        self._forget_answers(key)
        group = self._groups.get(key)
        for gang in group.gangs if group is not None else (key,):
            self._groups.pop(gang, None)
            self._dirty.add(gang)

    def _forget_answers(self, key: GangKey) -> None:
        group = self._groups.get(key)
        if group is not None:
            self._answers.pop(group.id, None)

    # Answers

    def keys(self) -> tuple[GangKey, ...]:
        """Return every gang with a member or a PodGroup, sorted."""
        return tuple(sorted(self._gangs))

    def __contains__(self, key: GangKey) -> bool:
        return key in self._gangs

    def gang(self, key: GangKey) -> Gang:
        """Return a gang as it is now; an empty one if there is none."""
        return self._gangs.get(key, _NO_GANG)

    def spec(self, key: GangKey) -> GangSpec | None:
        """Return the settings: those of the PodGroup, else of the oldest member that has some."""
        return self.gang(key).spec

    def pod_group(self, key: GangKey) -> ObservedPodGroup | None:
        """Return the PodGroup of a gang, unless it is a native one, whose status is not ours."""
        return self.gang(key).own_pod_group

    def members(self, key: GangKey) -> Mapping[str, Pod]:
        """Return all members by uid, terminated and terminating ones included."""
        return self.gang(key).members

    def tally(self, key: GangKey) -> Tally:
        return self.gang(key).tally

    def group(self, key: GangKey) -> Group:
        group = self._groups.get(key)
        if group is None:
            group = close_group(key, self._listing)
            if key in self._gangs:
                self._groups |= dict.fromkeys(group.gangs, group)
        return group

    def _listing(self, key: GangKey) -> frozenset[GangKey] | None:
        return self.gang(key).listing

    def touched(self) -> set[GangKey]:
        """Return the gangs that changed since the last call, with all of their groups."""
        dirty, self._dirty = self._dirty, set()
        touched: set[GangKey] = set()
        for key in dirty:
            if key not in touched:
                touched.add(key)
                group = self.group(key)
                # Of a group that is too large only lists matter, which mark all of it.
                if group.exceeded_limit is None:
                    touched.update(group.gangs)
        return touched

    def take_departed(self) -> list[Pod]:
        """Return the members with a node deleted since the last call, oldest first."""
        departed = list(self._departed)
        self._departed.clear()
        return departed

    def recall(
        self, key: GangKey, question: Callable[["GangCache", Group, GangStates], Answer]
    ) -> Answer:
        """Return ``question`` of the group of a gang, cached until something in it changes."""
        group = self.group(key)
        is_known = key in self._gangs
        answers = self._answers.setdefault(group.id, {}) if is_known else {}
        if question not in answers:
            states = {gang: self.gang(gang) for gang in group.gangs}
            answers[question] = question(self, group, states)
        return cast("Answer", answers[question])
