"""One gang that was derived from an owner, and how many pods are in it.

There may be tens of thousands of them, so which pods they are is kept with the branch of each pod,
and here only those that are exceptions.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from koord.core.model.gangs import GangKey, GangMembership
from koord.core.model.pods import OwnerReference
from koord.core.owners.derive import GangId, find_first_stages, make_key
from koord.core.owners.model import HeldBackPods, OwnerObject


@dataclass(frozen=True, slots=True)
class StagedGang:
    """A gang that starts with room for pods that come once it has, as those of gang ``later``."""

    owner: OwnerObject
    held_back: tuple[HeldBackPods, ...]
    later: GangKey
    foreign: Collection[str] = ()
    """Uids of such pods that nobody places through us."""


@dataclass(slots=True, eq=False)
class DerivedGang:
    """A gang: its owner, and the pods that are its members if any is ours.

    ``owner`` is None while what the pods name was not read.
    """

    membership: GangMembership
    owner: OwnerObject | None
    id: GangId
    missing: OwnerReference | None = None
    firsts: tuple[GangKey, ...] = ()
    """The gangs which start with room for others that this one concerns: itself, or before it."""
    count: int = 0
    """Its pods."""
    ours: int = 0
    """Those that we place, or have placed."""
    foreign: set[str] | None = None
    """Uids of those that nobody places through us; None: of none yet."""

    @property
    def key(self) -> GangKey:
        return self.membership.key

    def refresh(self) -> None:
        """Find again what its owner says of gangs that start with room for others."""
        owner = self.owner
        if owner is not None and owner.claim is not None and owner.claim.held_back:
            stages = find_first_stages(owner, self.id)
            self.firsts = tuple(make_key(owner, replace(self.id, stage=at)) for at in stages)
        elif self.firsts:
            self.firsts = ()

    def put(self, uid: str, *, is_new: bool, is_ours: bool) -> None:
        """Count a pod that is new to it, or may be ours or not otherwise than before."""
        if not is_new:
            self.drop(uid)
        self.count += 1
        if is_ours:
            self.ours += 1
        elif self.foreign is None:
            self.foreign = {uid}
        else:
            self.foreign.add(uid)

    def drop(self, uid: str) -> None:
        """Take a pod out."""
        self.count -= 1
        if self.foreign and uid in self.foreign:
            self.foreign.discard(uid)
        else:
            self.ours -= 1
