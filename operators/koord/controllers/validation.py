"""Validates custom resources as the API server shows them: whether spec and annotations hold.

The result is a part of the status: the condition ``Accepted``, or, of a PodGroup, ``SpecValid``.
What valid resources *do* is decided elsewhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, Final

from koord.api.annotations import find_problems
from koord.api.parse import InvalidObject, Problem, parse
from koord.api.quotaprofile import ElasticQuotaProfile, find_policy_problems
from koord.api.resource import Resource

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


def is_said(body: Mapping[str, Any], validation: Validation) -> bool:
    """Whether the status of an object has this validation of its present generation."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == ACCEPTED
        and condition.get("reason") == validation.reason
        and condition.get("message") == validation.message
        and condition.get("observedGeneration") == body["metadata"].get("generation")
        for condition in conditions
    )
