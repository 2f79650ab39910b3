"""The book of gangs: who belongs to which gang, and which gangs changed since last asked.

It is fed one object at a time by a single writer and answers from counters, so that an event costs
the same whether the gang has two members or a thousand. What it answers depends on the objects it
holds and never on the order in which they came: a restart gives the same book. Members are told
apart by uid, so a recreated pod of the same name is another member.

It knows no rule about quorums or phases, and nothing of nodes.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar, cast

from koord.core.gang.group import Group, GroupId, close_group
from koord.core.gang.model import GangKey, GangSource, GangSpec, PodGroup
from koord.core.gang.tally import Tally
from koord.core.pods import Pod

Answer = TypeVar("Answer")
MAX_DEPARTED: Final = 4096
"""Members that went and were not asked about: who asks in time misses none."""

_Order: TypeAlias = tuple[float, str, str]
"""Creation time, name, uid: the order in which members count as first."""


def order_of(pod: Pod) -> _Order:
    """Sort key of members, oldest first; total, so that no tie depends on the order of arrival."""
    return pod.created, pod.name, pod.uid


class _Gang:
    """One gang: its members, its PodGroup if there is one, and what follows from them."""

    __slots__ = ("_declarers", "_queued", "listing", "members", "pod_group", "spec", "tally")

    def __init__(self) -> None:
        self.members: dict[str, Pod] = {}
        self.pod_group: PodGroup | None = None
        self.tally = Tally()
        self.spec: GangSpec | None = None
        self.listing: frozenset[GangKey] | None = None
        self._declarers: list[_Order] = []
        """Heap of members that declare settings; gone ones are dropped when they surface."""
        self._queued: set[_Order] = set()
        """What is in the heap, so that no member is in it twice."""

    @property
    def is_empty(self) -> bool:
        return not self.members and self.pod_group is None

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
        """Take the settings anew; tell whether the gang now lists other gangs than before."""
        spec = self.pod_group.spec if self.pod_group is not None else self._first_declared()
        if spec is self.spec:
            return False
        self.spec = spec
        before = self.listing
        self.listing = None if spec is None else _share(spec.group)
        return self.listing != before

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
    """Return one set for all gangs of a group, which mostly write the same list."""
    return frozenset(group)


def _declared(pod: Pod) -> GangSpec | None:
    return pod.gang.declared if pod.gang is not None else None


_NOBODY = Tally()
_NO_MEMBERS: Mapping[str, Pod] = {}


class GangCache:
    """Every gang that is known, by key. Single writer; what it returns must not be changed."""

    def __init__(self, *, compat: bool = False) -> None:
        self.compat = compat
        """Whether Koordinator's rules are asked for where ours differ."""
        self._gangs: dict[GangKey, _Gang] = {}
        self._home: dict[str, GangKey] = {}
        """Pod uid -> the gang it is a member of."""
        self._listed_by: dict[GangKey, set[GangKey]] = {}
        """Gang -> the gangs whose list names it, known or not."""
        self._groups: dict[GangKey, Group] = {}
        """Gang -> its group, for as long as nothing that decides on it has changed."""
        self._answers: dict[GroupId, dict[object, object]] = {}
        """Group -> question -> answer, for as long as nothing in the group has changed."""
        self._dirty: set[GangKey] = set()
        self._departed: deque[Pod] = deque(maxlen=MAX_DEPARTED)
        """Members on nodes that are gone, for those who ask; nothing here depends on it."""

    # Changes

    def upsert_pod(self, pod: Pod) -> None:
        """Take in a pod as it is now; pods without a gang are forgotten, not kept."""
        key = pod.gang.key if pod.gang is not None else None
        if self._home.get(pod.uid) != key:
            self.remove_pod(pod.uid)
        if key is None:
            return
        gang = self._open(key)
        is_news = gang.members.get(pod.uid) != pod
        self._home[pod.uid] = key
        gang.put(pod)
        if is_news:
            self._settle(key, gang)
        else:
            self._forget_answers(key)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod; unknown ones are no error."""
        key = self._home.pop(uid, None)
        if key is None:
            return
        gang = self._gangs[key]
        pod = gang.members[uid]
        if pod.node and pod.recorded is not None:
            self._departed.append(pod)
        gang.drop(pod)
        self._settle(key, gang)

    def upsert_pod_group(self, pod_group: PodGroup) -> None:
        """Take in a PodGroup as it is now; its settings are in force at once."""
        gang = self._open(pod_group.key)
        if gang.pod_group != pod_group:
            gang.pod_group = pod_group
            self._settle(pod_group.key, gang)

    def remove_pod_group(self, key: GangKey) -> None:
        """Forget a PodGroup; its members become members of a gang without settings."""
        gang = self._gangs.get(key)
        if gang is None or gang.pod_group is None:
            return
        gang.pod_group = None
        self._settle(key, gang)

    def _open(self, key: GangKey) -> _Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = _Gang()
        return gang

    def _settle(self, key: GangKey, gang: _Gang) -> None:
        """Bring everything that follows from a gang up to date."""
        self._dirty.add(key)
        self._forget_answers(key)
        before = gang.listing
        if gang.refresh():
            self._relist(key, before or frozenset(), gang.listing or frozenset())
        if gang.spec is None:
            # Why it has no settings is what those hear that wait for it.
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
        """Forget the group of a gang; all of its gangs learn of it."""
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

    def spec(self, key: GangKey) -> GangSpec | None:
        """Return the settings in force: the PodGroup's, else of the oldest member that has some."""
        gang = self._gangs.get(key)
        return gang.spec if gang is not None else None

    def pod_group(self, key: GangKey) -> PodGroup | None:
        """Return the PodGroup of a gang, if it is one that we write the status of."""
        gang = self._gangs.get(key)
        found = gang.pod_group if gang is not None else None
        return None if found is None or found.spec.source is GangSource.NATIVE else found

    def members(self, key: GangKey) -> Mapping[str, Pod]:
        """Return all members by uid, terminated and terminating ones included."""
        gang = self._gangs.get(key)
        return gang.members if gang is not None else _NO_MEMBERS

    def tally(self, key: GangKey) -> Tally:
        """Return the counts over the members."""
        gang = self._gangs.get(key)
        return gang.tally if gang is not None else _NOBODY

    def group(self, key: GangKey) -> Group:
        """Return the gangs that start together with this one."""
        group = self._groups.get(key)
        if group is None:
            group = close_group(key, self._listing)
            if key in self._gangs:
                self._groups |= dict.fromkeys(group.gangs, group)
        return group

    def _listing(self, key: GangKey) -> frozenset[GangKey] | None:
        gang = self._gangs.get(key)
        return gang.listing if gang is not None else None

    def touched(self) -> set[GangKey]:
        """Hand out the gangs that changed since last asked, with all of their groups."""
        dirty, self._dirty = self._dirty, set()
        touched: set[GangKey] = set()
        for key in dirty:
            if key not in touched:
                touched.add(key)
                touched.update(self.group(key).gangs)
        return touched

    def take_departed(self) -> list[Pod]:
        """Hand out the members with a node that went since last asked, oldest first."""
        departed = list(self._departed)
        self._departed.clear()
        return departed

    def recall(self, key: GangKey, question: Callable[["GangCache", GangKey], Answer]) -> Answer:
        """Ask something about the group of a gang, once until something in the group changes.

        The answer must depend on the group alone, not on which of its gangs is named.
        """
        group = self.group(key)
        if key not in self._gangs:
            return question(self, key)
        answers = self._answers.setdefault(group.id, {})
        if question not in answers:
            answers[question] = question(self, key)
        return cast("Answer", answers[question])
