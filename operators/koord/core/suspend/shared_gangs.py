"""Gangs that Jobs which wait name together: they start together.

What such a gang comes to is found once for all of its Jobs: anybody may name one gang in thousands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from koord.core.engine.state_view import StateView
from koord.core.model.gangs import (
    GangKey,
    GangMembership,
    GangMode,
    GangSource,
    GangSpec,
    MatchPolicy,
)
from koord.core.suspend.lines import Lines
from koord.core.suspend.model import QueuedJob


@dataclass(frozen=True, slots=True)
class SharedGang:
    """A gang that Jobs name: ``peers`` are those that are planned, as gangs, in order."""

    peers: tuple[GangKey, ...]
    alive: int = 0
    """Its pods that live already."""
    waiting: int = 0
    """Pods of the Jobs that are planned."""


class SharedGangs:
    """All of them, until they are looked at again."""

    def __init__(self, jobs: Mapping[str, QueuedJob], lines: Lines) -> None:
        self._jobs, self._lines = jobs, lines
        self._of: dict[GangKey, SharedGang] = {}
        self._peers: dict[GangKey, tuple[GangKey, ...]] = {}
        """One value as long as it is the same, for it is compared for each Job."""

    def look_again(self) -> None:
        """Note that Jobs, lines or pods may have changed."""
        self._of = {}

    def of(self, job: QueuedJob, view: StateView) -> SharedGang:
        """Return the gang that the pods of a Job name; its own if they name none."""
        gang = job.gang
        if not gang:
            return SharedGang((job.key,))
        shared = self._of.get(gang)
        if shared is None:
            shared = self._of[gang] = self._find(gang, view)
        if self._lines.is_planned_with(job.uid, gang):
            return shared
        peers = tuple(sorted({job.key, *shared.peers}))
        return SharedGang(peers, shared.alive, max(shared.waiting, job.size))

    def _find(self, gang: GangKey, view: StateView) -> SharedGang:
        jobs = [self._jobs[uid] for uid in self._lines.planned_with(gang)]
        peers = tuple(sorted(job.key for job in jobs))
        if not peers:
            self._peers.pop(gang, None)
        elif self._peers.get(gang) != peers:
            self._peers[gang] = peers
        alive = sum(member.is_alive for member in view.gangs.members(gang).values())
        waiting = sum(job.size for job in jobs)
        return SharedGang(self._peers.get(gang, ()), alive, waiting)


def make_membership(job: QueuedJob, spec: GangSpec | None, shared: SharedGang) -> GangMembership:
    """Return the gang of the stand-ins of a Job: with the settings of the gang that its pods name.

    Jobs that name one gang start together. While they are fewer pods than it needs, the first of
    them lacks members.
    """
    lacking = 0
    if spec is not None and shared.peers[0] == job.key:
        lacking = max(0, spec.min_member - shared.alive - max(shared.waiting, job.size))
    size = job.size + lacking
    declared = replace(
        spec or GangSpec(job.key, size, size),
        key=job.key,
        min_member=size,
        total=size,
        mode=GangMode.STRICT,
        match_policy=MatchPolicy.ONCE_SATISFIED,
        group=shared.peers,
        source=GangSource.ANNOTATION,
        sub_groups=None,
        keeps_room=False,
        is_held=job.is_kept or (spec is not None and spec.is_held),
    )
    return GangMembership(job.key, GangSource.ANNOTATION, declared)
