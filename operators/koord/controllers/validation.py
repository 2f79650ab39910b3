"""Validates the custom resources of one kind as Kopf shows them: whether spec and annotations hold.

Where a result is written is decided by its sink: in the condition ``Accepted``, or, for PodGroups,
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
class Validation:
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


class ValidationSink(Protocol):
    """Where validations go. All methods but ``is_news`` are called in the main event loop."""

    def is_news(self, body: Mapping[str, Any], validation: Validation) -> bool:
        """Whether the validation has to be written. Called in Kopf's thread."""

    def write(self, body: Mapping[str, Any], validation: Validation) -> None:
        """Write the validation on an object."""

    def forget(self, body: Mapping[str, Any]) -> None:
        """Drop what is remembered of a deleted object."""

    def forget_all(self) -> None:
        """Drop what is remembered of all objects: Kopf starts again and shows all of them."""


def judge(resource: type[Resource], body: Mapping[str, Any]) -> Validation:
    """Validate what a user has written: spec and annotations, not the status."""
    parsed = parse(resource, {key: value for key, value in body.items() if key != "status"})
    if isinstance(parsed, InvalidObject):
        return Validation(parsed.problems)
    annotations = parsed.metadata.annotations
    is_profile = resource is ElasticQuotaProfile
    return Validation(
        (*find_problems(annotations), *(find_policy_problems(annotations) if is_profile else ()))
    )


class Validator:
    """Validates each version of an object once: most events only change its status.

    While the generation stays, a user can only have changed labels and annotations.
    """

    def __init__(self, resource: type[Resource]) -> None:
        self._resource = resource
        self._validations: dict[str, tuple[object, Validation]] = {}
        """Object uid -> the version that was validated last, and its validation."""

    def judge(self, body: Mapping[str, Any]) -> Validation:
        meta = body["metadata"]
        version = meta.get("generation"), _digest(meta.get("labels"), meta.get("annotations"))
        cached = self._validations.get(meta["uid"])
        if cached is None or version[0] is None or cached[0] != version:
            cached = self._validations[meta["uid"]] = (version, judge(self._resource, body))
        return cached[1]

    def forget(self, uid: str) -> None:
        self._validations.pop(uid, None)


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
        sink: ValidationSink,
        hand_over: Callable[..., object],
    ) -> None:
        self._resource = resource
        self._judge = Validator(resource)
        self._sink = sink
        self._hand_over = hand_over
        self._isolated = Isolation("validation")

    def register(self, registry: "kopf.OperatorRegistry") -> None:
        """Add the handler to a registry for another start of Kopf, which then shows all objects.

        It does not show deletions that happened while it did not run.
        """
        # Imported late: that takes longer than reading a cluster, and planning need not wait.
        import kopf  # noqa: PLC0415

        self._judge = Validator(self._resource)
        self._hand_over(self._sink.forget_all)
        names = self._resource.names
        # A low-level handler, because Kopf writes nothing to the objects of such handlers.
        register = kopf.on.event(
            names.group, names.version, names.plural, registry=registry, id=names.plural
        )
        register(self.on_event)

    async def on_event(self, event: Mapping[str, Any], body: Mapping[str, Any], **_: Any) -> None:
        """Validate an object and hand the validation over if it is news."""
        meta = body["metadata"]
        self._isolated.call(
            f"{meta.get('namespace', '')}/{meta.get('name', '')}", self._look, event, body
        )

    def _look(self, event: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        if event["type"] == "DELETED":
            self._judge.forget(body["metadata"]["uid"])
            self._hand_over(self._sink.forget, dict(body))
            return
        validation = self._judge.judge(body)
        if self._sink.is_news(body, validation):
            self._hand_over(self._sink.write, dict(body), validation)
