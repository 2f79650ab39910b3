"""The owners that were read, and the gangs that are derived from them.

Pods come completed: with the gang that their owners say, where they name none themselves. Owners
change later than their pods, and are read by other watches, so the pods that a change may concern
are found by the uids of the chain. Changes of numbers alone, the most frequent ones, reach the gang
and no pod. There may be many thousands of pods, so what is above them is kept once for all with one
controller, and of a pod itself only what cannot be read from the completed one.

Pods that nobody placed through us make no gang. They are members of one that has pods of ours: the
launcher that somebody else places counts once it has its node.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Final

from typing_extensions import override

from koord.core.engine.plugin import Plugin
from koord.core.model.gangs import GangKey, GangMembership, GangSource, GangSpec
from koord.core.model.pods import Handling, OwnerReference, Pod, fast_init
from koord.core.model.reasons import NoSettings
from koord.core.model.text import listed, plural
from koord.core.owners.backlog import Backlog, Recheck
from koord.core.owners.branches import Branch, Branches
from koord.core.owners.chain import OwnerChain, as_owner
from koord.core.owners.derive import (
    GangId,
    PlaceInGang,
    find_held_back,
    find_later_key,
    is_needed,
    make_spec,
)
from koord.core.owners.derived import DerivedGang, StagedGang
from koord.core.owners.model import (
    NAMED_GROUPS,
    GroupHint,
    HeldBackPods,
    KindAccess,
    KindKey,
    KindRule,
    OwnerObject,
    controller_of,
    kind_of,
    title_of,
)
from koord.core.owners.reasons import BehindGroups, OwnerNotFound, OwnerUnreadable

NAME: Final = "owners"
OPTED_OUT: Final = "opted-out"
"""The hint of a pod that wants no gang of its owners."""
_NO_PODS: Final = frozenset({Handling.RESERVE, Handling.STAND_IN})
_NOTHING_OWN: Final = ("", -1)


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """Whether gangs are derived from owners, and by which rules."""

    is_on: bool = False
    rules: tuple[KindRule, ...] = ()
    holds_room: bool = True
    """Whether gangs start with room for pods that come later."""


class OwnerGangs(Plugin):
    """Owners by uid, and the gangs that are derived from them."""

    name = NAME

    def __init__(self, options: OwnerOptions) -> None:
        self.rules: Mapping[KindKey, KindRule] = {rule.key: rule for rule in options.rules}
        self._has_named_groups = not NAMED_GROUPS.isdisjoint(self.rules)
        self.owners: dict[str, OwnerObject] = {}
        self.access: dict[KindKey, KindAccess] = {}
        """Kinds that cannot be read now; the others can."""
        self._derived: dict[GangKey, DerivedGang] = {}
        self._by_owner: dict[str, DerivedGang | dict[GangKey, DerivedGang]] = {}
        """Owner uid -> the gangs that were derived from it; most owners have one."""
        self._branches = Branches(self.rules, self._see)
        """The pods for which a gang may be derived."""
        self._own: dict[str, tuple[str, int]] = {}
        """Pod uid -> the sub-group and index that the pod says itself, where it says any."""
        self._completing: Pod | None = None
        """The pod that is being completed: the state has an older one, or none."""
        self._unknown_of: dict[str, str] = {}
        """Uid of a waiting pod of ours -> its owner, of a kind without a rule."""
        self._backlog = Backlog(self._do)
        self._holds_room = options.holds_room
        self._starts_with: dict[GangKey, tuple[HeldBackPods, ...] | NoSettings] = {}
        """Gang that starts with room for others -> for whom now, or why it does not start."""
        self._staged_news: set[GangKey] = set()

    def count_unknown(self) -> Counter[str]:
        """Count waiting pods of ours by the kind of their owner, where no rule is about it."""
        return Counter(self._unknown_of.values())

    # Owners

    def upsert(self, owner: OwnerObject) -> None:
        if owner.claim is not None and owner.claim.held_back and not self._holds_room:
            owner = replace(owner, claim=replace(owner.claim, held_back=()))
        before = self.owners.get(owner.uid)
        if before == owner:
            return
        self.owners[owner.uid] = owner
        self._branches.note_change()
        if before is None or _layout_of(before) != _layout_of(owner):
            self._look_again(owner.namespace, owner.uid)
        if owner.uid in self._by_owner:
            self._backlog.put(owner.namespace, Recheck.GANGS_OF, (owner.uid,))

    def remove(self, owner: OwnerObject) -> None:
        if self.owners.pop(owner.uid, None) is not None:
            self._branches.note_change()
            self._look_again(owner.namespace, owner.uid)

    def note_access(self, key: KindKey, access: KindAccess) -> None:
        """Note whether the objects of a kind can be read."""
        if self.access.get(key, KindAccess.READ) is access:
            return
        self.access[key] = access
        for derived in self._derived.values():
            if derived.missing is not None and kind_of(derived.missing) == key:
                self._declare(derived)

    def _look_again(self, namespace: str, owner: str) -> None:
        """Find the gangs of the pods below an owner again."""
        if self._branches.is_above(namespace, owner):
            self._backlog.put(namespace, Recheck.PODS_BELOW, (owner,))

    def _do(self, namespace: str, look: Recheck, target: str) -> None:
        match look:
            case Recheck.PODS_BELOW:
                below = self._branches.find_below(namespace, target)
                self._backlog.put(namespace, Recheck.POD, sorted(below))
            case Recheck.GANGS_OF:
                gangs = self._by_owner.get(target, {})
                keys = (gangs.key,) if isinstance(gangs, DerivedGang) else gangs
                self._backlog.put(namespace, Recheck.GANG, sorted(keys))
            case Recheck.OTHERS_IN:
                derived = self._derived.get(target)
                foreign = (derived and derived.foreign) or ()
                self._backlog.put(namespace, Recheck.POD, sorted(foreign))
            case Recheck.POD:
                self._apply_pod(target)
            case Recheck.GANG:
                self._apply_gang(target)

    def _apply_pod(self, uid: str) -> None:
        """Apply a pod again if its place is another one by now."""
        branch, seen = self._branches.get(uid), self.view.pods.get(uid)
        pod = self.view.observed(uid)
        if branch is None or seen is None or pod is None or self._is_completing(uid):
            return
        place = self._find(pod, branch)
        derived = None if place is None else self._derived.get(place.key)
        is_same = derived is not None and derived is branch.pods[uid]
        is_member = derived is not None and derived.ours > 0
        if (
            place is None
            or derived is None
            or derived.id != place.id
            or not is_same
            or is_member != (seen.gang is not None)
            or not _is_at(seen, place)
        ):
            self.view.upsert_pod(self._strip(pod))

    def _apply_gang(self, key: GangKey) -> None:
        derived = self._derived.get(key)
        if derived is None or derived.owner is None:
            return
        derived.owner = self.owners.get(derived.owner.uid, derived.owner)
        self._staged_news.update(derived.firsts)
        derived.refresh()
        self._staged_news.update(derived.firsts)
        self._declare(derived)

    @override
    def absorb(self) -> None:
        self._backlog.limit()

    @override
    def advance(self, now: float) -> Collection[str]:
        self._backlog.begin_turn(now)
        return ()

    @override
    def next_due(self) -> float | None:
        return self._backlog.next_due()

    # Pods

    @override
    def complete(self, pod: Pod) -> Pod:
        if pod.handling in _NO_PODS:
            return pod
        if pod.gang is not None and pod.gang.source is GangSource.OWNER:
            pod = self._strip(pod)  # it comes out of a state
        is_free = pod.gang is None
        controller = self._controller_of(pod) if is_free else None
        branch = self._branches.get(pod.uid)
        if branch is not None and branch.controller != controller:
            self._unfollow(pod.uid, branch)
        if controller is None:
            return pod
        before, self._completing = self._completing, pod
        try:
            return self._complete(pod, controller)
        finally:
            self._completing = before

    def _controller_of(self, pod: Pod) -> OwnerReference | None:
        """Return what controls a pod; a pod that nothing controls may name a PodGroup instead."""
        controller = controller_of(pod.owners)
        if controller is not None or not pod.extensions or not self._has_named_groups:
            return controller
        hints = (hint for _, hint in pod.extensions if isinstance(hint, GroupHint))
        named = (hint.as_owner(pod.namespace) for hint in hints)
        return next((group for group in named if kind_of(group) in self.rules), None)

    def _complete(self, pod: Pod, controller: OwnerReference) -> Pod:
        branch = self._branches.put(pod, controller)
        place = self._find(pod, branch)
        self._note_unknown(pod, branch.chain)
        own = (pod.sub_group, pod.index)
        if own != _NOTHING_OWN:
            self._own[pod.uid] = own
        elif self._own:
            self._own.pop(pod.uid, None)
        if place is None:
            self._leave(pod.uid, branch)
            return pod
        return self._join(pod, place, branch)

    def _strip(self, pod: Pod) -> Pod:
        """Return a completed pod as it was observed."""
        sub_group, index = self._own.get(pod.uid, _NOTHING_OWN)
        return replace(pod, gang=None, sub_group=sub_group, index=index)

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        if not self._branches.is_above(pod.namespace, pod.uid):
            return
        self._branches.note_change()
        # Pods own pods, and those may have come first.
        if before is None or as_owner(before) != as_owner(pod):
            self._look_again(pod.namespace, pod.uid)

    @override
    def forget(self, uid: str) -> None:
        # The state still has it among its pods, and observes it no longer.
        pod, branch = self.view.pods.get(uid), self._branches.get(uid)
        if branch is not None:
            self._unfollow(uid, branch)
        if pod is not None:
            self._branches.note_change()
            self._look_again(pod.namespace, uid)

    def chain_of(self, pod: Pod) -> OwnerChain:
        """Return the owners above a pod."""
        return self._branches.walk(pod.namespace, self._controller_of(pod))

    def owner_of(self, gang: GangKey) -> OwnerObject | None:
        """Return the owner that a gang was derived from; None for another gang."""
        derived = self._derived.get(gang)
        return None if derived is None else derived.owner

    # Gangs that start with room for others

    def take_staged_news(self) -> set[GangKey]:
        """Return the gangs that start, or started, with room for others and that changed."""
        news, self._staged_news = self._staged_news, set()
        return news

    def staged(self, gang: GangKey) -> StagedGang | None:
        """Return what a gang starts with room for; None if it does not, or is no more."""
        derived = self._derived.get(gang)
        if derived is None or derived.owner is None or gang not in derived.firsts:
            return None
        owner, held_back = derived.owner, find_held_back(derived.owner, derived.id)
        later = find_later_key(owner, derived.id)
        following = self._derived.get(later)
        foreign = (following and following.foreign) or ()
        return StagedGang(owner, held_back, later, foreign)

    def start_with(self, gang: GangKey, what: tuple[HeldBackPods, ...] | NoSettings | None) -> None:
        """Let a gang start with room for these pods, or not; None: nobody decides about it."""
        if self._starts_with.get(gang) == what:
            return
        if what is None:
            del self._starts_with[gang]
        else:
            self._starts_with[gang] = what
        derived = self._derived.get(gang)
        if derived is not None:
            self._declare(derived)

    def _see(self, uid: str) -> OwnerObject | Pod | None:
        completing = self._completing
        if completing is not None and completing.uid == uid:
            return completing
        owner = self.owners.get(uid)
        return self.view.observed(uid) if owner is None else owner

    def _is_completing(self, uid: str) -> bool:
        return self._completing is not None and self._completing.uid == uid

    def _find(self, pod: Pod, branch: Branch) -> PlaceInGang | None:
        """Return the place of a pod in the gang of its owners; None: it is in none."""
        places = self._branches.refresh(branch)
        is_out = bool(pod.extensions) and (NAME, OPTED_OUT) in pod.extensions
        return None if is_out else places.find(pod)

    def _note_unknown(self, pod: Pod, chain: OwnerChain) -> None:
        if chain.unknown is not None and chain.claimant is None and pod.is_plannable:
            self._unknown_of[pod.uid] = title_of(kind_of(chain.unknown))
        elif self._unknown_of:
            self._unknown_of.pop(pod.uid, None)

    def _unfollow(self, uid: str, branch: Branch) -> None:
        self._leave(uid, branch)
        self._branches.drop(uid)
        self._unknown_of.pop(uid, None)
        self._own.pop(uid, None)

    # Gangs

    def _join(self, pod: Pod, place: PlaceInGang, branch: Branch) -> Pod:
        uid = pod.uid
        before = derived = branch.pods[uid]
        if before is None or before.key != place.key:
            self._leave(uid, branch)
            derived = self._derived.get(place.key) or self._open(place, branch.chain)
        if derived is None:
            raise AssertionError("it was opened")
        had_ours = derived.ours > 0
        if derived.id is not place.id and derived.id != place.id:
            # Its first pod says another size by now.
            derived.id = place.id
            derived.refresh()
            self._declare(derived)
        if derived.firsts:
            self._staged_news.update(derived.firsts)
        derived.put(uid, is_new=derived is not before, is_ours=_is_ours(pod))
        branch.pods[uid] = derived
        has_ours = derived.ours > 0
        if had_ours != has_ours:
            self._settle(derived)
        return _put(pod, place, derived.membership) if has_ours else pod

    def _open(self, place: PlaceInGang, chain: OwnerChain) -> DerivedGang:
        owner = None if chain.missing is not None else chain.claimant
        membership = GangMembership(
            place.key, GangSource.OWNER, found_by="" if owner is None else describe(owner, place.id)
        )
        derived = self._derived[place.key] = DerivedGang(membership, owner, place.id, chain.missing)
        if owner is not None:
            self._add_to(owner.uid, derived)
            derived.refresh()
        return derived

    def _add_to(self, owner: str, derived: DerivedGang) -> None:
        """Add a gang to those of an owner."""
        gangs = self._by_owner.get(owner)
        if gangs is None:
            self._by_owner[owner] = derived
        elif isinstance(gangs, DerivedGang):
            self._by_owner[owner] = {gangs.key: gangs, derived.key: derived}
        else:
            gangs[derived.key] = derived

    def _leave(self, uid: str, branch: Branch) -> None:
        derived = branch.pods[uid]
        if derived is None:
            return
        had_ours = derived.ours > 0
        self._staged_news.update(derived.firsts)
        branch.pods[uid] = None
        derived.drop(uid)
        if not derived.count:
            self._close(derived)
        elif had_ours and not derived.ours:
            self._settle(derived)

    def _close(self, derived: DerivedGang) -> None:
        del self._derived[derived.key]
        if derived.owner is not None:
            gangs = self._by_owner[derived.owner.uid]
            if isinstance(gangs, dict):
                del gangs[derived.key]
            if gangs is derived or not gangs:
                del self._by_owner[derived.owner.uid]
        self.view.gangs.withdraw(derived.key)

    def _settle(self, derived: DerivedGang) -> None:
        """Make pods members of a gang that has its first pod of ours, or none any more."""
        if derived.ours:
            self._declare(derived)
        if derived.foreign:
            namespace = derived.key.partition("/")[0]
            self._backlog.put(namespace, Recheck.OTHERS_IN, (derived.key,))
        if not derived.ours:
            self.view.gangs.withdraw(derived.key)

    def _declare(self, derived: DerivedGang) -> None:
        if derived.ours:
            self.view.gangs.declare(derived.key, self._make_spec(derived))

    def _make_spec(self, derived: DerivedGang) -> GangSpec | NoSettings:
        if derived.owner is not None:
            starts_with = self._starts_with.get(derived.key, BehindGroups())
            held_back = starts_with if isinstance(starts_with, tuple) else ()
            spec = make_spec(derived.owner, derived.key, derived.id, held_back)
            is_staged = derived.key in derived.firsts and isinstance(spec, GangSpec)
            return starts_with if is_staged and not isinstance(starts_with, tuple) else spec
        if derived.missing is None:
            raise AssertionError("a gang has an owner, or lacks one")
        key = kind_of(derived.missing)
        owner = f"{derived.missing.kind.lower()}/{derived.missing.name}"
        access = self.access.get(key, KindAccess.READ)
        if access is KindAccess.READ:
            return OwnerNotFound(owner)
        return OwnerUnreadable(owner, title_of(key), access is KindAccess.FORBIDDEN)


def describe(owner: OwnerObject, gang: GangId) -> str:
    """Say from what a gang was derived, by which rule, and for whom it starts with room."""
    held_back = find_held_back(owner, gang)
    roles = listed([f"{plural(held.pods, 'pod')} of role {held.role}" for held in held_back])
    starts = f"; it starts with room for {roles}, which come later" if held_back else ""
    return f"the gang is that of {owner.title}, by the rule for {owner.rule.title}{starts}"


def _is_ours(pod: Pod) -> bool:
    return pod.handling is not Handling.NOT_OURS or pod.recorded is not None


_NAMES: Final = tuple(field.name for field in fields(Pod))
_GANG, _SUB_GROUP, _INDEX = map(_NAMES.index, ("gang", "sub_group", "index"))
_read_all: Final = attrgetter(*_NAMES)
_make_pod: Final = fast_init(Pod)


def _put(pod: Pod, place: PlaceInGang, membership: GangMembership) -> Pod:
    """Return a pod at its place; done for every pod, so faster than ``replace``."""
    values = [*_read_all(pod)]
    values[_GANG] = membership
    values[_SUB_GROUP] = pod.sub_group or place.sub_group
    values[_INDEX] = place.rank if pod.index < 0 else pod.index
    return _make_pod(*values)


def _is_at(pod: Pod, place: PlaceInGang) -> bool:
    """Whether a pod is seen at a place."""
    return pod.gang is None or (pod.sub_group, pod.index) == (place.sub_group, place.rank)


def _layout_of(owner: OwnerObject) -> Hashable:
    """Return what of an owner decides which pods are members of which gangs."""
    claim = owner.claim
    place = (owner.name, owner.rule.key, owner.controller, owner.is_opted_out)
    if claim is None:
        return place
    stages = dict.fromkeys(claim.roles.stage_of.values())
    needed = tuple(is_needed(owner, GangId(stage)) for stage in stages)
    held_back = tuple(held.role for held in claim.held_back)
    roles = tuple(role._replace(least=0) for role in claim.roles.roles)
    return (*place, roles, claim.roles.are_separate, needed, held_back, claim.problem)
