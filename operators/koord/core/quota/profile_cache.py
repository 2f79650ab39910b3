"""Profiles and the nodes that they select, kept up as both change.

What is written is in force if it can be read; if not, what was valid last stays in force.

A node is looked at when it changes, not whenever a quota is made: selecting among all nodes anew
for every one that comes would cost their product.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from koord.core.nodes import Node
from koord.core.quota.model import QuotaName
from koord.core.quota.profile import GeneratedQuota, ProfileKey, QuotaProfile, make_root_quota
from koord.core.selectors import is_selected


@dataclass(frozen=True, slots=True)
class Overlap:
    """Nodes of a profile that others select, too, and those others; both sorted."""

    nodes: tuple[str, ...] = ()
    profiles: tuple[ProfileKey, ...] = ()


class ProfileCache:
    """All profiles, and which nodes are whose."""

    def __init__(self) -> None:
        self._profiles: dict[ProfileKey, QuotaProfile] = {}
        self._in_force: dict[ProfileKey, QuotaProfile] = {}
        self._nodes: dict[str, Node] = {}
        self._selected: dict[ProfileKey, set[str]] = {}
        self._claims: dict[str, frozenset[ProfileKey]] = {}
        """Node -> the profiles that select it, of nodes that any selects."""
        self._made: dict[ProfileKey, GeneratedQuota] = {}
        self._versions: dict[ProfileKey, int] = {}

    def __iter__(self) -> Iterator[ProfileKey]:
        return iter(self._profiles)

    def get(self, key: ProfileKey) -> QuotaProfile | None:
        """Return a profile as written."""
        return self._profiles.get(key)

    def in_force(self, key: ProfileKey) -> QuotaProfile | None:
        """Return what is in force of a profile: as written, or as it was valid last."""
        return self._in_force.get(key)

    def version(self, key: ProfileKey) -> int:
        """Grows whenever the nodes of a profile change, or those that it shares with others."""
        return self._versions.get(key, 0)

    def count(self, key: ProfileKey) -> int:
        """Return how many nodes a profile selects."""
        return len(self._selected.get(key, ()))

    def upsert(self, profile: QuotaProfile) -> None:
        """Take in a profile as observed."""
        before = self._profiles.get(profile.key)
        self._profiles[profile.key] = profile
        if before == profile:
            return
        self._touch(profile.key)
        old = self._in_force.pop(profile.key, None)
        new = _choose(profile, old)
        if new is not None:
            self._in_force[profile.key] = new
        if (old and old.selector) != (new and new.selector):
            for node in self._nodes.values():
                self._claim(node)

    def remove(self, key: ProfileKey) -> None:
        """Forget a profile that is gone."""
        if self._profiles.pop(key, None) is None:
            return
        self._in_force.pop(key, None)
        for name in sorted(self._selected.pop(key, ())):
            self._set_claims(name, self._claims[name] - {key})
        self._made.pop(key, None)
        self._versions.pop(key, None)

    def upsert_node(self, node: Node) -> None:
        """Take in a node as observed; one that is going away counts no more."""
        if node.is_terminating:
            self.remove_node(node.name)
            return
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None or before.labels != node.labels:
            self._claim(node)
        if before != node:
            for key in self._claims.get(node.name, ()):
                self._touch(key)

    def remove_node(self, name: str) -> None:
        """Forget a node that is gone."""
        if self._nodes.pop(name, None) is not None:
            self._set_claims(name, frozenset())

    def make(self, key: ProfileKey) -> GeneratedQuota:
        """Return the quota that a profile in force stands for now."""
        made = self._made.get(key)
        if made is None:
            profile = self._in_force[key]
            nodes = (self._nodes[name] for name in self._selected.get(key, ()))
            made = self._made[key] = make_root_quota(profile, nodes)
        return made

    def overlap(self, key: ProfileKey) -> Overlap:
        """Return which nodes of a profile count for others, too."""
        shared = {
            name: self._claims[name]
            for name in self._selected.get(key, ())
            if len(self._claims[name]) > 1
        }
        others = {other for claims in shared.values() for other in claims} - {key}
        return Overlap(tuple(sorted(shared)), tuple(sorted(others)))

    def rivals(self, name: QuotaName, key: ProfileKey) -> list[QuotaProfile]:
        """Return the other profiles in force that make a quota of a name."""
        return [one for one in self._in_force.values() if one.quota_name == name and one.key != key]

    def _claim(self, node: Node) -> None:
        claims = frozenset(
            key for key, one in self._in_force.items() if is_selected(node.labels, one.selector)
        )
        self._set_claims(node.name, claims)

    def _set_claims(self, name: str, claims: frozenset[ProfileKey]) -> None:
        before = self._claims.get(name, frozenset())
        if before == claims:
            return
        for key in before - claims:
            self._selected.get(key, set()).discard(name)
        for key in claims - before:
            self._selected.setdefault(key, set()).add(name)
        if claims:
            self._claims[name] = claims
        else:
            del self._claims[name]
        for key in before | claims:
            self._touch(key)

    def _touch(self, key: ProfileKey) -> None:
        if key in self._profiles:
            self._made.pop(key, None)
            self._versions[key] = self._versions.get(key, 0) + 1


def _choose(profile: QuotaProfile, before: QuotaProfile | None) -> QuotaProfile | None:
    """Return what is to be in force of a profile, given what is."""
    if not profile.problems:
        return profile
    return before if before is not None and before.uid == profile.uid else profile.last_valid
