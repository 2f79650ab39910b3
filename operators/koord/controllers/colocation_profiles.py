"""The policies and the status of ClusterColocationProfiles.

All profiles together decide which policies there are to be, so every change is a new set. It is
written at once, and compared with the cluster again from time to time: somebody may have deleted a
policy. Whether a profile is valid is said in the condition ``Accepted``; here ``Published`` says
whether new pods are changed, and ``Complete`` whether all of its fields are.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import msgspec

from koord.api.clustercolocationprofile import ClusterColocationProfileStatus
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.core.profiles.generate import (
    Generation,
    PublishOutcome,
    PublishVerdict,
    generate,
    write_verdict,
)
from koord.core.profiles.model import ClassValue, ColocationProfile
from koord.isolation import Isolation
from koord.kube.admission_policies import PolicyWriter, PublishedPolicies
from koord.kube.errors import KubeError
from koord.kube.status import ConditionPatch

PUBLISHED: Final = "Published"
COMPLETE: Final = "Complete"
AGAIN_SECONDS: Final = 30.0
"""How often the policies in the cluster are compared with those that are to be there."""
RETRY_SECONDS: Final = 5.0
SETTLED_SECONDS: Final = 3.0
"""After how long the API server has seen a new policy: it looks once a second."""
_PAUSE: Final = Pause(0.2, 1.0)
_MAX_PATHS: Final = 8
_NOBODY: Final = ""
"""No profile: only the policies are looked at."""


class HasValue(Protocol):
    """A PriorityClass as the planner knows it."""

    @property
    def value(self) -> int: ...

    @property
    def never_preempts(self) -> bool: ...


@dataclass(slots=True)
class ColocationProfilePolicy:
    """Publishes all profiles, and says of each what has become of it."""

    profiles: Callable[[], Mapping[str, ColocationProfile]]
    classes: Callable[[], Mapping[str, HasValue]]
    writer: PolicyWriter
    author: StatusAuthor[str, ColocationProfile]
    is_enabled: bool
    excluded: Callable[[], tuple[str, ...]]
    """Returns the namespaces whose pods are never changed."""
    clock: Callable[[], float] = time.monotonic
    _inputs: object = None
    _isolated: Isolation = field(default_factory=lambda: Isolation("colocation-profiles"))
    _seen: dict[str, ColocationProfile] = field(default_factory=dict)
    _generation: Generation = field(default_factory=lambda: Generation((), {}))
    _outcome: PublishedPolicies = field(default_factory=PublishedPolicies)
    _due: float = 0.0
    """When the cluster is to be compared again."""
    _settled_at: dict[str, float] = field(default_factory=dict)
    """Name of a policy that was written lately -> when the API server surely follows it."""

    def changed(self) -> list[str]:
        """Return all profiles if any has changed: each may change the policies of others."""
        profiles, classes = dict(self.profiles()), self._read_classes()
        inputs = (profiles, classes)
        if inputs == self._inputs:
            return []
        # Without any profile there may still be policies of an earlier process.
        gone = [_NOBODY] if self._inputs is None else [*(self._seen.keys() - profiles.keys())]
        self._inputs, self._seen = inputs, profiles
        sound = [
            profile
            for name, profile in profiles.items()
            if self._isolated.call(name, self._generate, [profile], classes) is not None
        ]
        self._generation = self._generate(sound, classes)
        self._due = 0.0
        return [*gone, *profiles]

    def _generate(
        self, profiles: list[ColocationProfile], classes: Mapping[str, ClassValue]
    ) -> Generation:
        return generate(profiles, classes, self.excluded())

    def _read_classes(self) -> dict[str, ClassValue]:
        named = {profile.priority_class for profile in self.profiles().values()}
        classes = self.classes()
        return {
            name: ClassValue(classes[name].value, classes[name].never_preempts)
            for name in named
            if name in classes
        }

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        """Have the policies written if that is due, and write the status of a profile.

        Return after how many seconds that is due again.
        """
        await self._publish()
        profile = self._seen.get(name)
        if profile is not None:
            settles_in = self._find_settling(profile)
            if settles_in > 0:
                # Who waits for the condition and makes pods then has them changed.
                return settles_in
            self._write_status(profile)
        if self._outcome.is_pending:
            return SETTLED_SECONDS
        if self._outcome.errors:
            return RETRY_SECONDS
        return AGAIN_SECONDS if profile is not None and self.is_enabled else None

    async def _publish(self) -> None:
        now = self.clock()
        if now < self._due:
            return
        wanted = self._generation.policies if self.is_enabled else ()
        try:
            self._outcome = await self.writer.write(wanted)
        except KubeError as error:
            text = str(error)
            self._outcome = PublishedPolicies({policy.name: text for policy in wanted})
        settled_at = self.clock() + SETTLED_SECONDS
        self._settled_at = {
            **{name: at for name, at in self._settled_at.items() if at > now},
            **dict.fromkeys(self._outcome.changed, settled_at),
        }
        self._due = now + (RETRY_SECONDS if self._outcome.errors else AGAIN_SECONDS) - 1.0
        if self._outcome.is_pending:
            self._due = now + SETTLED_SECONDS - 1.0

    def _find_settling(self, profile: ColocationProfile) -> float:
        """Return in how many seconds the API server follows the policy of a profile."""
        verdict = self._judge(profile)
        if verdict.outcome is not PublishOutcome.PUBLISHED:
            return 0.0
        return self._settled_at.get(verdict.policy, 0.0) - self.clock()

    def _write_status(self, profile: ColocationProfile) -> None:
        verdict = self._judge(profile)
        text = write_verdict(profile, verdict, self._outcome.errors.get(verdict.policy, ""))
        is_published = verdict.outcome is PublishOutcome.PUBLISHED
        fields: dict[str, Any] = {"policy": verdict.policy} if is_published else {}
        if profile.settings:
            fields["last_valid_spec"] = msgspec.json.decode(profile.settings)
        status = ClusterColocationProfileStatus(**fields)
        generation = profile.generation
        conditions = (
            ConditionPatch(PUBLISHED, is_published, str(verdict.outcome), text, generation),
            _make_complete(profile),
        )
        self.author.write_status(profile, status.encode_set(), conditions)

    def _judge(self, profile: ColocationProfile) -> PublishVerdict:
        """Return what has become of a profile, with what the cluster has answered."""
        verdict = self._generation.verdicts.get(
            profile.name, PublishVerdict(PublishOutcome.INVALID)
        )
        if verdict.outcome is not PublishOutcome.PUBLISHED:
            return verdict
        if not self.is_enabled:
            return PublishVerdict(PublishOutcome.DISABLED)
        if not self._outcome.is_served:
            return PublishVerdict(PublishOutcome.NOT_SERVED)
        if verdict.policy in self._outcome.errors:
            return replace(verdict, outcome=PublishOutcome.WRITE_FAILED)
        return verdict


def _make_complete(profile: ColocationProfile) -> ConditionPatch:
    left_out = [f"spec.patch.{path}" for path in profile.left_out]
    if not left_out:
        text = "all fields are written"
        return ConditionPatch(COMPLETE, True, "AllFields", text, profile.generation)
    named = ", ".join(left_out[:_MAX_PATHS])
    more = len(left_out) - _MAX_PATHS
    named += f" and {more} more" if more > 0 else ""
    text = f"not written into pods: {named}; write these into the templates"
    return ConditionPatch(COMPLETE, False, "FieldsLeftOut", text, profile.generation)
