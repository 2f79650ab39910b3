"""The operator ``elasticquotaprofile``: keeps the root quotas of trees in line with their nodes.

Nodes, profiles and quotas come through the state; a burst of changes is looked at once, and nothing
is done while nothing changes. Whether a profile is valid at all is said by the operator of that
name in the condition ``Accepted``; here ``Ready`` says whether its quota is as it should be.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from koord.controllers.coalescing import Agenda, Pause, rest
from koord.core.profiletexts import write_overlap, write_verdict
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import (
    GeneratedQuota,
    ProfileKey,
    ProfileVerdict,
    QuotaProfile,
    find_obstacle,
)
from koord.core.state import ClusterState
from koord.core.units import format_amount
from koord.kube.errors import KubeError
from koord.kube.retry import Backoff
from koord.kube.status import ConditionPatch
from koord.kube.translate.last_valid_profile import encode_kept_profile

READY: Final = "Ready"
NODE_OVERLAP: Final = "NodeOverlap"
_PAUSE: Final = Pause(0.5, 1.5)


class ProfileSink(Protocol):
    """Where quotas and statuses go; writes only what differs from what is there."""

    async def write_quota(
        self, profile: QuotaProfile, quota: GeneratedQuota, present: QuotaSpec | None
    ) -> None:
        """Make the quota, or bring it in line. Raises the errors of ``koord.kube.errors``."""

    def forget(self, key: ProfileKey) -> None:
        """Drop what is remembered of a profile that is gone."""

    def write_status(
        self,
        profile: QuotaProfile,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        """Set these fields and conditions of the status, and no others."""


class _Seen(NamedTuple):
    """What decides on a quota and on the status of its profile."""

    profile: QuotaProfile
    version: int
    rivals: tuple[QuotaProfile, ...]
    quotas: tuple[tuple[QuotaSpec, str], ...]


@dataclass(slots=True)
class ProfileController:
    """Makes quotas of profiles that have changed, or whose nodes or quotas have.

    ``is_synced`` tells whether all of those are known. ``clock`` never goes back.
    """

    state: ClusterState
    sink: ProfileSink
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    _seen: dict[ProfileKey, _Seen] = field(default_factory=dict)
    _due: Agenda[ProfileKey] = field(default_factory=Agenda)
    _failures: dict[ProfileKey, int] = field(default_factory=dict)
    _backoff: Backoff = field(default_factory=lambda: Backoff(base=0.5))
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Say that the state has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Keep quotas in line until cancelled."""
        while True:
            if not self.is_synced():
                await asyncio.sleep(_PAUSE.quiet)
                continue
            self.look()
            await self.flush()
            await rest(self._woken, self._due.first(), self.clock())

    def look(self) -> None:
        """Find out what has changed since it was looked at."""
        now = self.clock()
        for key in self._seen.keys() - set(self.state.profiles):
            del self._seen[key]
            self._due.drop(key)
            self._failures.pop(key, None)
            self.sink.forget(key)
        for key in self.state.profiles:
            seen = self._see(key)
            if self._seen.get(key) != seen:
                self._seen[key] = seen
                self._due.put_off(key, now, _PAUSE)

    async def flush(self) -> None:
        """Settle those profiles whose time has come."""
        now = self.clock()
        for key in self._due.take(now):
            await self._settle(key)

    async def _settle(self, key: ProfileKey) -> None:
        profile = self.state.profiles.get(key)
        if profile is None:
            return
        book = self.state.profiles
        in_force = book.in_force(key)
        fields: dict[str, Any] = {}
        if in_force is None:
            ready = _make_ready(profile, ProfileVerdict.INVALID, "")
        else:
            fields = _make_fields(book.make(key), book.count(key))
            fields["lastValidSpec"] = encode_kept_profile(in_force)
            ready = await self._make(profile, in_force)
            now = book.get(key)
            if now is None or now.uid != profile.uid:
                return  # deleted meanwhile; another of its name is settled in its turn
        overlap = book.overlap(key)
        reason = "NodesShared" if overlap.nodes else "NodesOwn"
        shared = _condition(
            profile, NODE_OVERLAP, bool(overlap.nodes), reason, write_overlap(overlap)
        )
        self.sink.write_status(profile, fields, (ready, shared))

    async def _make(self, profile: QuotaProfile, in_force: QuotaProfile) -> ConditionPatch:
        """Make the quota of what is in force of a profile; return what is to be said of it."""
        book, name = self.state.profiles, in_force.quota_name
        quotas = self.state.quotas.book.claimants(name)
        verdict, other = find_obstacle(in_force, book.rivals(name, profile.key), quotas)
        failed = None
        if verdict is ProfileVerdict.MADE:
            present = next((one for one in quotas if one.namespace == profile.namespace), None)
            failed = await self._write(in_force, book.make(profile.key), present)
        if profile.problems:
            return _make_ready(profile, ProfileVerdict.INVALID, "", is_kept=True)
        return failed or _make_ready(profile, verdict, other, nodes=book.count(profile.key))

    async def _write(
        self, profile: QuotaProfile, made: GeneratedQuota, present: QuotaSpec | None
    ) -> ConditionPatch | None:
        """Write a quota; return what is to be said if that fails, and try again later."""
        try:
            await self.sink.write_quota(profile, made, present)
        except KubeError as error:
            count = self._failures[profile.key] = self._failures.get(profile.key, 0) + 1
            at = self.clock() + max(self._backoff.delay(count, error), _PAUSE.quiet)
            self._due.look_at(profile.key, at)
            reason = "CreateQuotaFailed" if present is None else "UpdateQuotaFailed"
            name = f"ElasticQuota {made.namespace}/{made.name}"
            text = f"{name} cannot be written, which is tried again: {error}"
            return _condition(profile, READY, False, reason, text)
        self._failures.pop(profile.key, None)
        return None

    def _see(self, key: ProfileKey) -> _Seen:
        profile = self.state.profiles.get(key)
        assert profile is not None, "it was listed just now"  # noqa: S101 - for the type checker
        name = (self.state.profiles.in_force(key) or profile).quota_name
        quotas = self.state.quotas.book.claimants(name)
        return _Seen(
            profile,
            self.state.profiles.version(key),
            tuple(self.state.profiles.rivals(name, key)),
            tuple((one, one.profile) for one in quotas),
        )


def _condition(
    profile: QuotaProfile,
    kind: str,
    holds: bool,  # noqa: FBT001 - reads as the condition's status
    reason: str,
    text: str,
) -> ConditionPatch:
    return ConditionPatch(kind, holds, reason, text, profile.generation)


def _make_ready(
    profile: QuotaProfile,
    verdict: ProfileVerdict,
    other: str,
    *,
    nodes: int = 0,
    is_kept: bool = False,
) -> ConditionPatch:
    text = write_verdict(profile, verdict, other, nodes, is_kept=is_kept)
    return _condition(profile, READY, verdict is ProfileVerdict.MADE, str(verdict), text)


def _make_fields(made: GeneratedQuota, nodes: int) -> dict[str, Any]:
    amounts = {"total": made.total, "unschedulable": made.unschedulable}
    return {
        "tree": made.tree_id,
        "nodes": nodes,
        **{
            name: {key: format_amount(key, amount) for key, amount in sorted(one.items())}
            for name, one in amounts.items()
        },
    }
