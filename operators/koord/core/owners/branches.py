"""The pods with one controller: the owners above them are looked up once for all of them.

Whoever may write an owner may change it all the time, and there may be thousands of pods below it.
So nothing is done when an owner changes: what is above a branch is followed again when somebody
asks for it, if any of the objects there is another one by now.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from koord.core.model.pods import OwnerReference, Pod
from koord.core.owners.chain import OwnerChain, as_owner, walk
from koord.core.owners.derive import PlaceFinder
from koord.core.owners.model import KindKey, KindRule, OwnerObject

Seen: TypeAlias = "OwnerObject | Pod | None"
"""An owner as it was read last; each change of it is another object."""
BranchKey: TypeAlias = tuple[str, OwnerReference]
"""A namespace, and what controls pods in it."""
_NO_CHAIN: Final = OwnerChain()
_NO_PLACES: Final = PlaceFinder("", _NO_CHAIN)


@dataclass(slots=True)
class Branch:
    """The pods with one controller, and the owners above it."""

    key: BranchKey
    pods: dict[str, None] = field(default_factory=dict)
    """Their uids: a small map takes half the memory of a small set."""
    chain: OwnerChain = _NO_CHAIN
    places: PlaceFinder = _NO_PLACES
    seen: tuple[tuple[str, Seen], ...] | None = None
    """The uids on which the chain depends, with what each was when it was followed; None: it has
    not been followed yet."""


class Branches:
    """The branches of pods; ``see`` returns an owner by uid, if it was read."""

    def __init__(self, rules: Mapping[KindKey, KindRule], see: Callable[[str], Seen]) -> None:
        self._rules, self._see = rules, see
        self._branches: dict[BranchKey, Branch] = {}
        self._branch_of: dict[str, Branch] = {}
        self._below: dict[tuple[str, str], dict[BranchKey, Branch]] = {}
        """Namespace and uid of an owner -> the branches there whose chain depends on it."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._branch_of

    def __len__(self) -> int:
        return len(self._branches) + len(self._branch_of) + len(self._below)

    def get(self, uid: str) -> Branch | None:
        """Return the branch that a pod is on."""
        return self._branch_of.get(uid)

    def put(self, pod: Pod, controller: OwnerReference) -> Branch:
        """Return the branch of a pod, which is on this one from now on."""
        key = pod.namespace, controller
        branch = self._branch_of.get(pod.uid)
        if branch is not None and branch.key == key:
            return branch
        if branch is not None:
            self.drop(pod.uid)
        branch = self._branches.get(key)
        if branch is None:
            branch = self._branches[key] = Branch(key)
        branch.pods[pod.uid] = None
        self._branch_of[pod.uid] = branch
        return branch

    def drop(self, uid: str) -> None:
        """Take a pod off its branch."""
        branch = self._branch_of.pop(uid)
        del branch.pods[uid]
        if not branch.pods:
            del self._branches[branch.key]
            for owner in {owner for owner, _ in branch.seen or ()}:
                self._drop_below(branch, owner)

    def is_above(self, namespace: str, owner: str) -> bool:
        """Whether there are pods below an owner, read or not."""
        return (namespace, owner) in self._below

    def find_below(self, namespace: str, owner: str) -> set[str]:
        """Return the uids of the pods below an owner."""
        branches = self._below.get((namespace, owner), {})
        return {uid for branch in branches.values() for uid in branch.pods}

    def refresh(self, pod: Pod, branch: Branch) -> None:
        """Have a branch know the owners above it as they are now; ``pod`` is one of its pods."""
        if not self._is_current(branch):
            self._follow(pod, branch)

    def walk(self, pod: Pod) -> OwnerChain:
        """Follow the controllers of any pod."""
        return walk(pod, self._rules, self._look_up)

    def _is_current(self, branch: Branch) -> bool:
        if branch.seen is None:
            return False
        for uid, seen in branch.seen:  # noqa: SIM110 - done for each pod, and faster so
            if self._see(uid) is not seen:
                return False
        return True

    def _look_up(self, uid: str) -> OwnerObject | None:
        seen = self._see(uid)
        return as_owner(seen) if isinstance(seen, Pod) else seen

    def _follow(self, pod: Pod, branch: Branch) -> None:
        chain = branch.chain = self.walk(pod)
        branch.places = PlaceFinder(pod.namespace, chain)
        uids = [owner.uid for owner in chain.owners]
        if chain.missing is not None:
            uids.append(chain.missing.uid)
        before = {uid for uid, _ in branch.seen or ()}
        branch.seen = tuple((uid, self._see(uid)) for uid in uids)
        for uid in before.difference(uids):
            self._drop_below(branch, uid)
        for uid in uids:
            self._below.setdefault((pod.namespace, uid), {})[branch.key] = branch

    def _drop_below(self, branch: Branch, owner: str) -> None:
        key = branch.key[0], owner
        branches = self._below[key]
        del branches[branch.key]
        if not branches:
            del self._below[key]
