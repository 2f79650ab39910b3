"""The status and the root quotas of ElasticQuotaProfiles: for the operator ``elasticquotaprofile``.

Whether a profile is valid is said in the condition ``Accepted``; here ``Ready`` says whether its
quota has been written as it should be, and ``NodeOverlap`` whether other profiles select its nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.quotaprofile import ElasticQuotaProfileStatus
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.state import ClusterState
from koord.core.quota.profile import (
    GeneratedQuota,
    ProfileKey,
    ProfileOutcome,
    QuotaProfile,
    find_outcome,
    write_outcome,
)
from koord.kube.errors import KubeError
from koord.kube.quota_objects import RootQuotaWriter
from koord.kube.retry import Backoff
from koord.kube.status import ConditionPatch
from koord.kube.translate.amounts import write_quantities
from koord.kube.translate.quotas import encode_last_valid_profile
from koord.kube.wire import WireObjectMeta

READY: Final = "Ready"
NODE_OVERLAP: Final = "NodeOverlap"
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(slots=True)
class ProfileStatusPolicy:
    """Writes quota and status of profiles that have changed, or whose nodes or quotas have."""

    state: ClusterState
    author: StatusAuthor[ProfileKey, QuotaProfile]
    quotas: RootQuotaWriter
    meta_of: Callable[[str], WireObjectMeta | None]
    """Returns the metadata of a quota by its uid."""
    _inputs: ChangedInputs[ProfileKey] = field(default_factory=ChangedInputs)
    _failures: dict[ProfileKey, int] = field(default_factory=dict)
    """Profile -> writes of its quota that have failed in a row."""
    _backoff: Backoff = field(default_factory=lambda: Backoff(base=0.5))

    def changed(self) -> list[ProfileKey]:
        return self._inputs.compare(self.state.profiles, self._inputs_of)

    def _inputs_of(self, key: ProfileKey) -> object:
        profiles = self.state.profiles
        in_use = profiles.in_force(key) or profiles.get(key)
        name = in_use.quota_name if in_use is not None else ""
        quotas = self.state.quotas.catalog.claimants(name)
        return (
            profiles.get(key),
            profiles.version(key),
            tuple(profiles.rivals(name, key)),
            tuple((quota, quota.profile) for quota in quotas),
        )

    def pause_for(self, _key: ProfileKey) -> Pause:
        return _PAUSE

    async def update(self, key: ProfileKey) -> float | None:
        """Write quota and status; return after how many seconds a failed write is tried again."""
        profiles = self.state.profiles
        profile = profiles.get(key)
        if profile is None:
            self._failures.pop(key, None)
            self.quotas.forget(key)
            return None
        in_force = profiles.in_force(key)
        fields: dict[str, Any] = {}
        error = None
        if in_force is None:
            ready = _make_ready(profile, ProfileOutcome.INVALID, "")
        else:
            fields = _make_fields(profiles.make(key), profiles.count(key), in_force)
            ready, error = await self._make_quota(profile, in_force)
            now = profiles.get(key)
            if now is None or now.uid != profile.uid:
                return None  # deleted meanwhile, which is a change of its own
        overlap = profiles.overlap(key)
        reason = "NodesShared" if overlap.nodes else "NodesOwn"
        shared = _condition(profile, NODE_OVERLAP, bool(overlap.nodes), reason, overlap.describe())
        self.author.write_status(profile, fields, (ready, shared))
        return self._count_failure(key, error)

    def _count_failure(self, key: ProfileKey, error: KubeError | None) -> float | None:
        """Return the seconds until a failed write is tried again."""
        if error is None:
            self._failures.pop(key, None)
            return None
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return max(self._backoff.delay(count, error), _PAUSE.quiet)

    async def _make_quota(
        self, profile: QuotaProfile, in_force: QuotaProfile
    ) -> tuple[ConditionPatch, KubeError | None]:
        """Write the quota of a profile's active settings; return ``Ready`` and what went wrong."""
        book, key = self.state.profiles, profile.key
        quotas = self.state.quotas.catalog.claimants(in_force.quota_name)
        verdict, other = find_outcome(in_force, book.rivals(in_force.quota_name, key), quotas)
        ready = _make_ready(profile, verdict, other, nodes=book.count(key))
        error = None
        if verdict is ProfileOutcome.MADE:
            present = next(
                (quota for quota in quotas if quota.namespace == profile.namespace), None
            )
            meta = None if present is None else self.meta_of(present.uid)
            made = book.make(key)
            try:
                await self.quotas.write(in_force, made, present, meta)
            except KubeError as failure:
                error = failure
                reason = "CreateQuotaFailed" if present is None else "UpdateQuotaFailed"
                name = f"ElasticQuota {made.namespace}/{made.name}"
                text = f"{name} cannot be written, which is tried again: {error}"
                ready = _condition(profile, READY, False, reason, text)
        if profile.problems:
            ready = _make_ready(profile, ProfileOutcome.INVALID, "", is_kept=True)
        return ready, error


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
    verdict: ProfileOutcome,
    other: str,
    *,
    nodes: int = 0,
    is_kept: bool = False,
) -> ConditionPatch:
    text = write_outcome(profile, verdict, other, nodes, is_kept=is_kept)
    return _condition(profile, READY, verdict is ProfileOutcome.MADE, str(verdict), text)


def _make_fields(made: GeneratedQuota, nodes: int, in_force: QuotaProfile) -> dict[str, Any]:
    status = ElasticQuotaProfileStatus(
        tree=made.tree_id,
        nodes=nodes,
        total=write_quantities(made.total),
        unschedulable=write_quantities(made.unschedulable),
        last_valid_spec=encode_last_valid_profile(in_force),
    )
    return status.encode_set()
