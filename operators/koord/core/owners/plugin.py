"""The owners that were read, and the gangs that are derived from them.

Pods come completed: with the gang that their owners say, where they name none themselves. Owners
change later than their pods, and are read by other watches, so the pods that a change may concern
are found by the uids of the chain. Changes of numbers alone, the most frequent ones, reach the gang
and no pod.

Pods that nobody placed through us make no gang. They are members of one that has pods of ours: the
launcher that somebody else places counts once it has its node.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final

from typing_extensions import override

from koord.core.engine.plugin import Plugin
from koord.core.model.gangs import GangKey, GangMembership, GangSource, GangSpec
from koord.core.model.pods import Handling, OwnerReference, Pod, fast_init
from koord.core.model.reasons import NoSettings
from koord.core.owners.backlog import Backlog, Recheck
from koord.core.owners.chain import OwnerChain, as_owner, walk
from koord.core.owners.derive import (
    GangId,
    PlaceInGang,
    find_place,
    is_needed,
    make_missing_place,
    make_spec,
)
from koord.core.owners.model import (
    KindAccess,
    KindKey,
    KindRule,
    OwnerObject,
    controller_of,
    kind_of,
    title_of,
)
from koord.core.owners.reasons import OwnerNotFound, OwnerUnreadable

NAME: Final = "owners"
OPTED_OUT: Final = "opted-out"
"""The hint of a pod that wants no gang of its owners."""
_NO_PODS: Final = frozenset({Handling.RESERVE, Handling.STAND_IN})


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """Whether gangs are derived from owners, and by which rules."""

    is_on: bool = False
    rules: tuple[KindRule, ...] = ()


@dataclass(slots=True)
class DerivedGang:
    """One gang that was derived: its owner, and the pods that are its members if any is ours.

    ``owner`` is None while what the pods name was not read.
    """

    membership: GangMembership
    owner: OwnerObject | None
    id: GangId
    missing: OwnerReference | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    """Uid -> the pod as it was observed."""
    ours: int = 0

    @property
    def key(self) -> GangKey:
        return self.membership.key


class OwnerGangs(Plugin):
    """Owners by uid, and the gangs that are derived from them."""

    name = NAME

    def __init__(self, options: OwnerOptions) -> None:
        self.rules: Mapping[KindKey, KindRule] = {rule.key: rule for rule in options.rules}
        self.owners: dict[str, OwnerObject] = {}
        self.access: dict[KindKey, KindAccess] = {}
        """Kinds that cannot be read now; the others can."""
        self._derived: dict[GangKey, DerivedGang] = {}
        self._gang_of: dict[str, GangKey] = {}
        """Pod uid -> the gang that was derived for it."""
        self._by_owner: dict[str, set[GangKey]] = {}
        """Owner uid -> the gangs that were derived from it."""
        self._chains: dict[str, tuple[str, ...]] = {}
        """Pod uid -> the uids of the owners that its gang depends on, read or not."""
        self._below: dict[tuple[str, str], set[str]] = {}
        """Namespace and uid of an owner -> uids of the pods there whose gang depends on it."""
        self._observed: dict[str, Pod] = {}
        """Uid -> a pod with a controller, as it was observed."""
        self._leaving = ""
        """The pod that is being forgotten."""
        self._unknown_of: dict[str, str] = {}
        """Uid of a waiting pod of ours -> its owner, of a kind without a rule."""
        self._backlog = Backlog(self._do)

    def count_unknown(self) -> Counter[str]:
        """Count waiting pods of ours by the kind of their owner, where no rule is about it."""
        return Counter(self._unknown_of.values())

    # Owners

    def upsert(self, owner: OwnerObject) -> None:
        before = self.owners.get(owner.uid)
        if before == owner:
            return
        self.owners[owner.uid] = owner
        if before is None or _layout_of(before) != _layout_of(owner):
            self._look_again(owner.namespace, owner.uid)
        if owner.uid in self._by_owner:
            self._backlog.put(owner.namespace, Recheck.GANGS_OF, (owner.uid,))

    def remove(self, owner: OwnerObject) -> None:
        if self.owners.pop(owner.uid, None) is not None:
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
        if (namespace, owner) in self._below:
            self._backlog.put(namespace, Recheck.PODS_BELOW, (owner,))

    def _do(self, namespace: str, look: Recheck, target: str) -> None:
        match look:
            case Recheck.PODS_BELOW:
                below = self._below.get((namespace, target), ())
                self._backlog.put(namespace, Recheck.POD, sorted(below))
            case Recheck.GANGS_OF:
                gangs = self._by_owner.get(target, ())
                self._backlog.put(namespace, Recheck.GANG, sorted(gangs))
            case Recheck.OTHERS_IN:
                derived = self._derived.get(target)
                pods = {} if derived is None else derived.pods
                uids = sorted(uid for uid, pod in pods.items() if not _is_ours(pod))
                self._backlog.put(namespace, Recheck.POD, uids)
            case Recheck.POD:
                self._apply_pod(target)
            case Recheck.GANG:
                self._apply_gang(target)

    def _apply_pod(self, uid: str) -> None:
        """Apply a pod again if its place is another one by now."""
        pod, seen = self._observed.get(uid), self.view.pods.get(uid)
        if pod is None or seen is None:
            return
        place, _ = self._find(pod)
        derived = None if place is None else self._derived.get(place.key)
        is_same = place is not None and place.key == self._gang_of.get(uid)
        is_member = derived is not None and derived.ours > 0
        if (
            place is None
            or not is_same
            or is_member != (seen.gang is not None)
            or not _is_at(seen, place)
        ):
            self.view.upsert_pod(pod)

    def _apply_gang(self, key: GangKey) -> None:
        derived = self._derived.get(key)
        if derived is None or derived.owner is None:
            return
        derived.owner = self.owners.get(derived.owner.uid, derived.owner)
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
        is_free = pod.gang is None and pod.handling not in _NO_PODS
        if not is_free or controller_of(pod.owners) is None:
            if pod.uid in self._observed:
                self._unfollow(pod.uid)
            return pod
        self._observed[pod.uid] = pod
        place, chain = self._find(pod)
        self._follow(pod, chain)
        if place is None:
            self._leave(pod.uid)
            return pod
        return self._join(pod, place, chain)

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        if before is None:
            # Pods own pods, and those may have come first.
            self._look_again(pod.namespace, pod.uid)

    @override
    def forget(self, uid: str) -> None:
        # The state knows it until this call has returned.
        pod = self.view.pods.get(uid)
        if uid in self._observed:
            self._unfollow(uid)
        if pod is not None:
            self._leaving = uid
            self._look_again(pod.namespace, uid)
            self._leaving = ""

    def chain_of(self, pod: Pod) -> OwnerChain:
        """Return the owners above a pod."""
        return walk(pod, self.rules, self._look_up)

    def owner_of(self, gang: GangKey) -> OwnerObject | None:
        """Return the owner that a gang was derived from; None for another gang."""
        derived = self._derived.get(gang)
        return None if derived is None else derived.owner

    def _look_up(self, uid: str) -> OwnerObject | None:
        owner = self.owners.get(uid)
        if owner is not None:
            return owner
        pod = self._observed.get(uid) or self.view.pods.get(uid)
        return None if pod is None or uid == self._leaving else as_owner(pod)

    def _find(self, pod: Pod) -> tuple[PlaceInGang | None, OwnerChain]:
        """Return the place of a pod in the gang of its owners; None: it is in none."""
        chain = self.chain_of(pod)
        is_out = chain.is_opted_out or (NAME, OPTED_OUT) in pod.extensions
        if is_out:
            return None, chain
        if chain.missing is not None:
            return make_missing_place(pod.namespace, chain.missing), chain
        owner = chain.claimant
        place = None if owner is None else find_place(pod, chain, owner)
        is_in = owner is not None and place is not None and is_needed(owner, place.id)
        return place if is_in else None, chain

    def _follow(self, pod: Pod, chain: OwnerChain) -> None:
        uids = [owner.uid for owner in chain.owners]
        if chain.missing is not None:
            uids.append(chain.missing.uid)
        followed = tuple(uids)
        if self._chains.get(pod.uid) != followed:
            self._unfollow_chain(pod)
            self._chains[pod.uid] = followed
            for uid in followed:
                self._below.setdefault((pod.namespace, uid), set()).add(pod.uid)
        if chain.unknown is not None and chain.claimant is None and pod.is_plannable:
            self._unknown_of[pod.uid] = title_of(kind_of(chain.unknown))
        else:
            self._unknown_of.pop(pod.uid, None)

    def _unfollow_chain(self, pod: Pod) -> None:
        for uid in self._chains.pop(pod.uid, ()):
            below = self._below[pod.namespace, uid]
            below.discard(pod.uid)
            if not below:
                del self._below[pod.namespace, uid]

    def _unfollow(self, uid: str) -> None:
        self._unfollow_chain(self._observed[uid])
        self._unknown_of.pop(uid, None)
        self._leave(uid)
        del self._observed[uid]

    # Gangs

    def _join(self, pod: Pod, place: PlaceInGang, chain: OwnerChain) -> Pod:
        if self._gang_of.get(pod.uid) != place.key:
            self._leave(pod.uid)
        derived = self._derived.get(place.key) or self._open(place, chain)
        before, had_ours = derived.pods.get(pod.uid), derived.ours > 0
        derived.pods[pod.uid] = pod
        derived.ours += _is_ours(pod) - (before is not None and _is_ours(before))
        self._gang_of[pod.uid] = place.key
        if had_ours != (derived.ours > 0):
            self._settle(derived)
        return _put(pod, place, derived.membership) if derived.ours else pod

    def _open(self, place: PlaceInGang, chain: OwnerChain) -> DerivedGang:
        owner = None if chain.missing is not None else chain.claimant
        membership = GangMembership(
            place.key, GangSource.OWNER, found_by="" if owner is None else describe(owner)
        )
        derived = self._derived[place.key] = DerivedGang(membership, owner, place.id, chain.missing)
        if owner is not None:
            self._by_owner.setdefault(owner.uid, set()).add(place.key)
        return derived

    def _leave(self, uid: str) -> None:
        key = self._gang_of.pop(uid, None)
        if key is None:
            return
        derived = self._derived[key]
        pod = derived.pods.pop(uid)
        derived.ours -= _is_ours(pod)
        if not derived.pods:
            self._close(derived)
        elif not derived.ours and _is_ours(pod):
            self._settle(derived)

    def _close(self, derived: DerivedGang) -> None:
        del self._derived[derived.key]
        if derived.owner is not None:
            gangs = self._by_owner[derived.owner.uid]
            gangs.discard(derived.key)
            if not gangs:
                del self._by_owner[derived.owner.uid]
        self.view.gangs.withdraw(derived.key)

    def _settle(self, derived: DerivedGang) -> None:
        """Make pods members of a gang that has its first pod of ours, or none any more."""
        if derived.ours:
            self._declare(derived)
        self._backlog.put(derived.key.partition("/")[0], Recheck.OTHERS_IN, (derived.key,))
        if not derived.ours:
            self.view.gangs.withdraw(derived.key)

    def _declare(self, derived: DerivedGang) -> None:
        if derived.ours:
            self.view.gangs.declare(derived.key, self._make_spec(derived))

    def _make_spec(self, derived: DerivedGang) -> GangSpec | NoSettings:
        if derived.owner is not None:
            return make_spec(derived.owner, derived.key, derived.id)
        if derived.missing is None:
            raise AssertionError("a gang has an owner, or lacks one")
        key = kind_of(derived.missing)
        owner = f"{derived.missing.kind.lower()}/{derived.missing.name}"
        access = self.access.get(key, KindAccess.READ)
        if access is KindAccess.READ:
            return OwnerNotFound(owner)
        return OwnerUnreadable(owner, title_of(key), access is KindAccess.FORBIDDEN)


def describe(owner: OwnerObject) -> str:
    """Say from what a gang was derived, and by which rule."""
    return f"the gang is that of {owner.title}, by the rule for {owner.rule.title}"


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
    values[_INDEX] = place.index if pod.index < 0 else pod.index
    return _make_pod(*values)


def _is_at(pod: Pod, place: PlaceInGang) -> bool:
    """Whether a pod is seen at a place."""
    return pod.gang is None or (pod.sub_group, pod.index) == (place.sub_group, place.index)


def _layout_of(owner: OwnerObject) -> Hashable:
    """Return what of an owner decides which pods are members of which gangs."""
    claim = owner.claim
    place = (owner.name, owner.rule.key, owner.controller, owner.is_opted_out)
    if claim is None:
        return place
    stages = dict.fromkeys(claim.roles.stage_of.values())
    needed = tuple(is_needed(owner, GangId(stage)) for stage in stages)
    roles = tuple(role._replace(least=0) for role in claim.roles.roles)
    return (*place, roles, claim.roles.are_separate, needed, claim.problem)
