"""The gang of a pod by its owners: its key, its settings, and the place of the pod in it.

Depends on the objects of the chain alone, so a restarted operator finds the same. The key names the
owner for people, and tells runs of it apart by a digest of its uid, its incarnation, and what else
divides its pods: a new run is another gang, and the pods of the old one only drain.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2s
from typing import Final, NamedTuple

from koord.core.model.gangs import (
    ROOT,
    GangKey,
    GangSource,
    GangSpec,
    MatchPolicy,
    OnMemberFailure,
    SubGroup,
    SubGroupTree,
)
from koord.core.model.pods import OwnerReference, Pod
from koord.core.model.reasons import NoSettings, TooLarge
from koord.core.model.text import cut
from koord.core.model.topology_constraint import TopologyConstraint, constrain_by_label
from koord.core.owners.chain import OwnerChain, read_group_size
from koord.core.owners.model import HeldBackPods, OwnerClaim, OwnerObject, OwnerRole, OwnerRoles
from koord.core.owners.reasons import MinAboveSize, OwnerSuspended

MAX_MEMBERS: Final = 10_000
"""Pods that one gang may need; the planner takes no more."""
MAX_INNER: Final = 256
"""Sets of pods of one gang that are told apart; with more of them only roles are."""
MAX_NAME: Final = 253
MAX_KEPT: Final = 256
"""Gangs that are kept for the pods with the same owners."""
_DIGEST: Final = 4


@dataclass(frozen=True, slots=True)
class GangId:
    """What the gangs of one owner differ in."""

    stage: str = ""
    group: str = ""
    incarnation: str = ""
    top_pod: str = ""
    size: int = 0
    """How many pods it has; 0: as many as the owner says."""


_WHOLE: Final = GangId()
"""Of an owner with one gang at a time: most of them."""


class PlaceInGang(NamedTuple):
    """The gang of a pod, and what the pod is in it."""

    key: GangKey
    id: GangId
    sub_group: str
    rank: int
    """Among the members; negative: none."""


class _GangOfRole(NamedTuple):
    """The gang of pods of one role, the role, and the index of the first of them in the gang."""

    key: GangKey
    id: GangId
    role: OwnerRole
    first: int


class PlaceFinder:
    """Finds the places of pods with the same owners; their gangs are found once."""

    __slots__ = (
        "_fixed", "_gangs", "_group_size", "_is_apart", "_labels", "_owner", "_rule", "_top_pod",
    )  # fmt: skip

    def __init__(self, namespace: str, chain: OwnerChain) -> None:
        top_pod = chain.top_pod
        self._top_pod = "" if top_pod is None else top_pod.uid
        self._group_size = 0 if top_pod is None else top_pod.group_size
        self._owner: OwnerObject | None = None
        self._fixed: PlaceInGang | None = None
        """Where all pods are whose gang cannot be told."""
        self._gangs: dict[tuple[str | None, ...], _GangOfRole | None] = {}
        """By the values of labels that tell gangs of the owner apart."""
        if chain.is_opted_out:
            return
        if chain.missing is not None:
            self._fixed = _make_missing_place(namespace, chain.missing)
            return
        owner = chain.claimant
        if owner is None or owner.claim is None:
            return
        if owner.claim.problem is not None:
            self._fixed = PlaceInGang(make_key(owner, GangId()), GangId(), "", -1)
            return
        self._owner = owner
        rule = self._rule = owner.rule.pods
        self._labels = (*rule.role, *rule.group, *rule.incarnation)
        self._is_apart = rule.is_by_top_pod and not self._top_pod

    def find(self, pod: Pod) -> PlaceInGang | None:
        """Return the place of a pod; None if it is no member of any gang."""
        if self._owner is None:
            return self._fixed
        values = tuple(map(pod.profile.labels.get, self._labels))
        if self._is_apart:
            values = (*values, pod.uid)
        try:
            gang = self._gangs[values]
        except KeyError:
            if len(self._gangs) >= MAX_KEPT:
                self._gangs.clear()
            gang = self._gangs[values] = self._find_gang(pod, self._owner)
        if gang is None:
            return None
        key, gang_id, role, first = gang
        rule = self._rule
        at = rule.read_number(pod, rule.index)
        if not rule.inner:
            return PlaceInGang(key, gang_id, role.name, -1 if at is None else first + at)
        inner = rule.read_number(pod, rule.inner)
        rank = -1 if at is None else first + (inner or 0) * role.inner + at
        return PlaceInGang(key, gang_id, _name_inner(role, inner), rank)

    def _find_gang(self, pod: Pod, owner: OwnerObject) -> _GangOfRole | None:
        claim, rule = owner.claim, owner.rule.pods
        name = rule.role_of(pod)
        role = None if claim is None else claim.roles.by_name.get(name)
        if claim is None or role is None:
            return None
        gang = GangId(
            claim.roles.stage_of[name],
            rule.read(pod, rule.group),
            "/".join(pod.profile.labels.get(key, "") for key in rule.incarnation),
            (self._top_pod or pod.uid) if rule.is_by_top_pod else "",
            self._find_size(pod) if rule.group else 0,
        )
        if not is_needed(owner, gang):
            return None
        if gang == _WHOLE:
            gang = _WHOLE
        return _GangOfRole(make_key(owner, gang), gang, role, claim.roles.first_index[name])

    def _find_size(self, pod: Pod) -> int:
        return self._group_size if self._top_pod else read_group_size(pod)


def _make_missing_place(namespace: str, owner: OwnerReference) -> PlaceInGang:
    """Return the place of a pod whose owner was not read."""
    key = _make_key(namespace, (owner.kind.lower(), owner.name), (owner.uid,))
    return PlaceInGang(key, GangId(), "", -1)


def make_key(owner: OwnerObject, gang: GangId) -> GangKey:
    """Return the key of a gang: ``team/pytorchjob:gpt#1f3c9a2b``; no other gang has such a name."""
    names = (owner.rule.key[1].lower(), owner.name, gang.stage, gang.group)
    parts = (owner.uid, gang.stage, gang.group, gang.incarnation, gang.top_pod)
    return _make_key(owner.namespace, names, parts)


@lru_cache(maxsize=512)
def _make_key(namespace: str, names: tuple[str, ...], parts: tuple[str, ...]) -> GangKey:
    digest = blake2s("\0".join(parts).encode(), digest_size=_DIGEST).hexdigest()
    name = ":".join(cut(part, MAX_NAME) for part in names if part)
    # Slashes and commas separate gangs from other things.
    return f"{namespace}/{name.replace(',', '…').replace('/', '…')}#{digest}"


def is_needed(owner: OwnerObject, gang: GangId) -> bool:
    """Whether the pods of an owner need a gang: one that starts pod by pod is none."""
    claim = owner.claim
    if claim is None:
        return False
    is_stopped = claim.problem is not None or claim.is_suspended
    if is_stopped or claim.has_settings:
        return True
    if claim.held_back and find_first_stages(owner, gang):
        return True
    return _find_least(claim, _roles_of(claim, gang), gang.stage) > 1


def find_held_back(owner: OwnerObject, gang: GangId) -> tuple[HeldBackPods, ...]:
    """Return the pods that come once the gang of a stage has started, and need room with it."""
    claim = owner.claim
    if claim is None or not claim.held_back:
        return ()
    roles = _roles_of(claim, gang)
    following = roles.next_stage.get(gang.stage)
    later = []
    for held in claim.held_back:
        role = roles.by_name.get(held.role)
        if role is not None and role.least and roles.stage_of[held.role] == following:
            first = roles.first_index[held.role]
            later.append(held._replace(pods=role.least, first=first))
    return tuple(later)


def find_first_stages(owner: OwnerObject, gang: GangId) -> tuple[str, ...]:
    """Return the stages that start with room for others, and concern a gang: its own, or before."""
    if owner.claim is None or not owner.claim.held_back:
        return ()
    before = [at for at, to in owner.claim.roles.next_stage.items() if to == gang.stage]
    stages = (*before, gang.stage)
    return tuple(at for at in stages if find_held_back(owner, replace(gang, stage=at)))


def find_later_key(owner: OwnerObject, gang: GangId) -> GangKey:
    """Return the key of the gang that comes after one of an earlier stage."""
    if owner.claim is None:
        raise AssertionError("it claims no gang")
    return make_key(owner, replace(gang, stage=owner.claim.roles.next_stage[gang.stage]))


def _roles_of(claim: OwnerClaim, gang: GangId) -> OwnerRoles:
    return claim.roles.resized(gang.size) if gang.size else claim.roles


def make_spec(
    owner: OwnerObject, key: GangKey, gang: GangId, held_back: Iterable[HeldBackPods] = ()
) -> GangSpec | NoSettings:
    """Return the settings of a gang, or why it cannot start; it starts with those ``held_back``."""
    claim = owner.claim
    if claim is None:
        raise AssertionError("it claims no gang")
    if claim.problem is not None:
        return claim.problem
    if claim.is_suspended:
        return OwnerSuspended(owner.title)
    all_roles = _roles_of(claim, gang)
    roles, least = all_roles.in_stage(gang.stage), _find_least(claim, all_roles, gang.stage)
    awaited = tuple(OwnerRole(held.role, held.pods, held.pods) for held in held_back)
    roles, least = (*roles, *awaited), least + sum(role.least for role in awaited)
    size = sum(role.size for role in roles)
    if least > size:
        return MinAboveSize(owner.title, least, size)
    if least > MAX_MEMBERS:
        return TooLarge("gang", owner.title, "pods that start together", least, MAX_MEMBERS)
    settings = claim.settings
    tree = settings.sub_groups or _make_tree(roles, least)
    topology = settings.topology
    if claim.shared_label:
        topology = constrain_by_label(topology, claim.shared_label)
    if topology is None and tree is not None:
        topology = TopologyConstraint(())  # as of a PodGroup with sub-groups
    slots = size if claim.slots is None else claim.slots
    return replace(
        settings,
        key=key,
        min_member=least,
        total=max(slots, least),
        finished=claim.finished,
        group=(key,),
        source=GangSource.OWNER,
        match_policy=_find_policy(claim),
        on_member_failure=_find_on_failure(claim),
        sub_groups=tree,
        topology=topology,
    )


def _find_least(claim: OwnerClaim, roles: OwnerRoles, stage: str) -> int:
    needed = roles.least_of.get(stage, 0)
    if claim.least is None:
        return needed
    return min(claim.least, needed) if roles.has_stages else claim.least


def _find_policy(claim: OwnerClaim) -> MatchPolicy:
    policy = claim.settings.match_policy
    if claim.is_elastic and policy is MatchPolicy.ONCE_SATISFIED:
        return MatchPolicy.WAITING_AND_RUNNING
    return policy


def _find_on_failure(claim: OwnerClaim) -> OnMemberFailure:
    what = claim.settings.on_member_failure
    is_default = what is OnMemberFailure.REPLACE
    return OnMemberFailure.RESTART_GANG if is_default and claim.restarts_whole else what


@lru_cache(maxsize=1024)
def _make_tree(roles: tuple[OwnerRole, ...], least: int) -> SubGroupTree | None:
    """Return the roles as sub-groups; None where the number of pods says it all."""
    roles = tuple(role for role in roles if role.size)
    is_divided = len(roles) > 1 or any(_count_inner(role) for role in roles)
    # Fewer pods than the roles need together may be of any of them.
    if not is_divided or least < sum(role.least for role in roles):
        return None
    return SubGroupTree(SubGroup(ROOT), tuple(_make_sub_groups(roles)))


def _make_sub_groups(roles: Iterable[OwnerRole]) -> Iterator[SubGroup]:
    for role in roles:
        inner = _count_inner(role)
        if not role.name:
            continue
        needed = role.least // role.inner if inner else None
        yield SubGroup(role.name, role.least, min_sub_groups=needed)
        for at in range(inner):
            yield SubGroup(_name_inner(role, at), role.inner, parent=role.name)


def _count_inner(role: OwnerRole) -> int:
    """Return how many sets of pods of a role are told apart."""
    if role.inner < 2 or role.size % role.inner or not role.name:
        return 0
    count = role.size // role.inner
    return count if 1 < count <= MAX_INNER else 0


def _name_inner(role: OwnerRole, at: int | None) -> str:
    return role.name if at is None or at >= _count_inner(role) else f"{role.name}-{at}"
