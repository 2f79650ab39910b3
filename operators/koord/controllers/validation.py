"""Validates the custom resources of one kind as Kopf shows them: whether spec and annotations hold.

Where a verdict is written is decided by its sink: in the condition ``Accepted``, or, for PodGroups,
in a condition of their own status. What valid resources *do* is decided elsewhere.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Final, Protocol

from koord.api.annotations import find_problems
from koord.api.parse import InvalidObject, Problem, parse
from koord.api.quotaprofile import ElasticQuotaProfile, find_policy_problems
from koord.api.resource import Resource
from koord.isolation import Isolation

if TYPE_CHECKING:
    import kopf

ACCEPTED: Final = "Accepted"
VALID: Final = "Valid"
INVALID: Final = "Invalid"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an object is valid; ``problems`` say why not, field first."""

    problems: tuple[Problem, ...] = ()

    @property
    def reason(self) -> str:
        """The reason of the condition."""
        return INVALID if self.problems else VALID

    @property
    def message(self) -> str:
        """The message of the condition."""
        return "; ".join(map(str, self.problems)) or "the object is valid"


class VerdictSink(Protocol):
    """Where verdicts go. All methods but ``is_news`` are called in the main event loop."""

    def is_news(self, body: Mapping[str, Any], verdict: Verdict) -> bool:
        """Whether the verdict has to be written. Called in Kopf's thread."""

    def write(self, body: Mapping[str, Any], verdict: Verdict) -> None:
        """Write the verdict on an object."""

    def forget(self, body: Mapping[str, Any]) -> None:
        """Drop what is remembered of a deleted object."""

    def forget_all(self) -> None:
        """Drop what is remembered of all objects: Kopf starts again and shows all of them."""


def judge(resource: type[Resource], body: Mapping[str, Any]) -> Verdict:
    """Validate what a user has written: spec and annotations, not the status."""
    parsed = parse(resource, {key: value for key, value in body.items() if key != "status"})
    if isinstance(parsed, InvalidObject):
        return Verdict(parsed.problems)
    annotations = parsed.metadata.annotations
    is_profile = resource is ElasticQuotaProfile
    return Verdict(
        (*find_problems(annotations), *(find_policy_problems(annotations) if is_profile else ()))
    )


class Judge:
    """Validates each version of an object once: most events only change its status.

    While the generation stays, a user can only have changed labels and annotations.
    """

    def __init__(self, resource: type[Resource]) -> None:
        self._resource = resource
        self._verdicts: dict[str, tuple[object, Verdict]] = {}
        """Object uid -> the version that was validated last, and its verdict."""

    def judge(self, body: Mapping[str, Any]) -> Verdict:
        meta = body["metadata"]
        version = meta.get("generation"), _digest(meta.get("labels"), meta.get("annotations"))
        cached = self._verdicts.get(meta["uid"])
        if cached is None or version[0] is None or cached[0] != version:
            cached = self._verdicts[meta["uid"]] = (version, judge(self._resource, body))
        return cached[1]

    def forget(self, uid: str) -> None:
        self._verdicts.pop(uid, None)


def _digest(*texts: Mapping[str, str] | None) -> bytes:
    """Return what tells texts apart; annotations may have a quarter of a megabyte per object."""
    items = [sorted((text or {}).items()) for text in texts]
    return blake2s(json.dumps(items).encode(), digest_size=16).digest()


class ValidationController:
    """The Kopf operator of one kind.

    Its handler runs in Kopf's thread; ``hand_over`` calls a function in the main event loop.
    """

    def __init__(
        self,
        resource: type[Resource],
        sink: VerdictSink,
        hand_over: Callable[..., object],
    ) -> None:
        self._resource = resource
        self._judge = Judge(resource)
        self._sink = sink
        self._hand_over = hand_over
        self._isolated = Isolation("validation")

    def register(self, registry: "kopf.OperatorRegistry") -> None:
        """Add the handler to a registry for another start of Kopf, which then shows all objects.

        It does not show deletions that happened while it did not run.
        """
        # Imported late: that takes longer than reading a cluster, and planning need not wait.
        import kopf  # noqa: PLC0415

        self._judge = Judge(self._resource)
        self._hand_over(self._sink.forget_all)
        names = self._resource.names
        # A low-level handler, because Kopf writes nothing to the objects of such handlers.
        register = kopf.on.event(
            names.group, names.version, names.plural, registry=registry, id=names.plural
        )
        register(self.on_event)

    async def on_event(self, event: Mapping[str, Any], body: Mapping[str, Any], **_: Any) -> None:
        """Validate an object and hand the verdict over if it is news."""
        meta = body["metadata"]
        self._isolated.call(
            f"{meta.get('namespace', '')}/{meta.get('name', '')}", self._look, event, body
        )

    def _look(self, event: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        if event["type"] == "DELETED":
            self._judge.forget(body["metadata"]["uid"])
            self._hand_over(self._sink.forget, dict(body))
            return
        verdict = self._judge.judge(body)
        if self._sink.is_news(body, verdict):
            self._hand_over(self._sink.write, dict(body), verdict)
