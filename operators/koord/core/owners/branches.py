"""The pods with one controller: the owners above them are looked up once for all of them.

Whoever may write an owner may change it all the time, and there may be thousands of pods below it.
So nothing is done when an owner changes: what is above a branch is followed again when somebody
asks for it, if any of the objects there is another one by now. How pods are told apart by their
labels is kept for the branches that were asked about lately: most pods come with those of their
controller, and branches are as many as jobs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from koord.core.model.pods import OwnerReference, Pod
from koord.core.owners.chain import OwnerChain, as_owner, walk
from koord.core.owners.derive import PlaceFinder
from koord.core.owners.derived import DerivedGang
from koord.core.owners.model import KindKey, KindRule, OwnerObject

MAX_FINDERS: Final = 256
"""Branches of which is kept how their pods are told apart."""
Seen: TypeAlias = "OwnerObject | Pod | None"
"""An owner as it was read last; each change of it is another object."""
_NO_CHAIN: Final = OwnerChain()


@dataclass(slots=True, eq=False)
class Branch:
    """The pods with one controller, and the owners above it."""

    namespace: str
    controller: OwnerReference
    pods: dict[str, DerivedGang | None] = field(default_factory=dict)
    """Their uids, and the gang that was derived for each."""
    chain: OwnerChain = _NO_CHAIN
    seen: tuple[Seen, ...] | None = None
    """What each owner of the chain was when it was followed, and then what is missing there; None:
    it has not been followed yet."""
    version: int = -1
    """Of what is above pods, when that of this branch was looked at last."""

    def uids_above(self) -> Iterator[str]:
        """Yield the uids on which the chain depends."""
        yield from (owner.uid for owner in self.chain.owners)
        if self.chain.missing is not None:
            yield self.chain.missing.uid


_NO_BRANCH: Final = Branch("", OwnerReference(""))


class Branches:
    """The branches of pods; ``see`` returns an owner by uid, if it was read."""

    def __init__(self, rules: Mapping[KindKey, KindRule], see: Callable[[str], Seen]) -> None:
        self._rules, self._see = rules, see
        self._branches: dict[str, dict[OwnerReference, Branch]] = {}
        """By namespace and controller."""
        self._branch_of: dict[str, Branch] = {}
        self._below: dict[str, dict[str, Branch | dict[Branch, None]]] = {}
        """Namespace, uid of an owner -> the branches whose chain depends on it, mostly one."""
        self._last = _NO_BRANCH
        """The one that was put to last."""
        self._finders: dict[Branch, PlaceFinder] = {}
        """The last ones that were made."""
        self._version = 0
        """Counts changes of what is above pods."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._branch_of

    def __len__(self) -> int:
        return len(self._branches) + len(self._branch_of) + len(self._below) + len(self._finders)

    def get(self, uid: str) -> Branch | None:
        """Return the branch that a pod is on."""
        return self._branch_of.get(uid)

    def put(self, pod: Pod, controller: OwnerReference) -> Branch:
        """Return the branch of a pod that is on no other one."""
        branch = self._last
        # Pods of one controller share its reference, and come after each other.
        if branch.controller is not controller or branch.namespace != pod.namespace:
            branches = self._branches.setdefault(pod.namespace, {})
            if controller not in branches:
                branches[controller] = Branch(pod.namespace, controller)
            branch = self._last = branches[controller]
        if pod.uid not in branch.pods:
            branch.pods[pod.uid] = None
            self._branch_of[pod.uid] = branch
        return branch

    def drop(self, uid: str) -> None:
        """Take a pod off its branch."""
        branch = self._branch_of.pop(uid)
        del branch.pods[uid]
        if branch.pods:
            return
        branches = self._branches[branch.namespace]
        del branches[branch.controller]
        if not branches:
            del self._branches[branch.namespace]
        self._finders.pop(branch, None)
        self._last = _NO_BRANCH
        for owner in set(branch.uids_above()):
            self._drop_below(branch, owner)

    def is_above(self, namespace: str, owner: str) -> bool:
        """Whether there are pods below an owner, read or not."""
        return owner in self._below.get(namespace, ())

    def find_below(self, namespace: str, owner: str) -> set[str]:
        """Return the uids of the pods below an owner."""
        below = self._below.get(namespace, {}).get(owner, {})
        branches = (below,) if isinstance(below, Branch) else below
        return {uid for branch in branches for uid in branch.pods}

    def refresh(self, branch: Branch) -> PlaceFinder:
        """Have a branch know the owners above it as they are now; return what places its pods."""
        if branch.version != self._version:
            if not self._is_current(branch):
                self._follow(branch)
            branch.version = self._version
        finder = self._finders.get(branch)
        return self._make_finder(branch) if finder is None else finder

    def note_change(self) -> None:
        """Note that what ``see`` returns for something above pods is something else now."""
        self._version += 1

    def walk(self, namespace: str, controller: OwnerReference | None) -> OwnerChain:
        """Follow the controllers of any pod."""
        return walk(namespace, controller, self._rules, self._look_up)

    def _is_current(self, branch: Branch) -> bool:
        seen, see, chain = branch.seen, self._see, branch.chain
        if seen is None:
            return False
        for at, owner in enumerate(chain.owners):
            if see(owner.uid) is not seen[at]:
                return False
        return chain.missing is None or see(chain.missing.uid) is seen[-1]

    def _look_up(self, uid: str) -> OwnerObject | None:
        seen = self._see(uid)
        return as_owner(seen) if isinstance(seen, Pod) else seen

    def _make_finder(self, branch: Branch) -> PlaceFinder:
        if len(self._finders) >= MAX_FINDERS:
            del self._finders[next(iter(self._finders))]
        finder = self._finders[branch] = PlaceFinder(branch.namespace, branch.chain)
        return finder

    def _follow(self, branch: Branch) -> None:
        before = set(branch.uids_above())
        chain = branch.chain = self.walk(branch.namespace, branch.controller)
        self._finders.pop(branch, None)
        uids = list(branch.uids_above())
        seen = tuple(map(self._see, uids))
        # Objects that are no pods are what was seen: most chains are kept once.
        branch.seen = chain.owners if seen == chain.owners else seen
        for uid in before.difference(uids):
            self._drop_below(branch, uid)
        for uid in uids:
            if uid not in before:
                self._add_below(branch, uid)

    def _add_below(self, branch: Branch, owner: str) -> None:
        below = self._below.setdefault(branch.namespace, {})
        entry = below.get(owner)
        if entry is None:
            below[owner] = branch
        elif isinstance(entry, dict):
            entry[branch] = None
        elif entry is not branch:
            below[owner] = {entry: None, branch: None}

    def _drop_below(self, branch: Branch, owner: str) -> None:
        below = self._below[branch.namespace]
        entry = below[owner]
        if isinstance(entry, dict):
            del entry[branch]
        if entry is branch or not entry:
            del below[owner]
            if not below:
                del self._below[branch.namespace]
