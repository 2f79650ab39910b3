"""Stands in for the author of a status: keeps what a policy says."""

from collections.abc import Callable, Mapping
from typing import Any

from koord.controllers.status_author import Validation
from koord.kube.status import ConditionPatch


class FakeAuthor:
    """Kopf has shown it all objects; ``on_write`` gets each status."""

    def __init__(self, on_write: Callable[..., object] = lambda *_: None) -> None:
        self.on_write = on_write
        self.validations: dict[str, Validation] = {}
        self.metadata: list[tuple[Mapping[str, Any], bool]] = []
        """Annotations and finalizers of each status, and whether it is urgent."""

    def write_status(
        self,
        value: Any,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
        metadata: Mapping[str, Any] | None = None,
        *,
        is_urgent: bool = False,
    ) -> None:
        self.metadata.append((metadata or {}, is_urgent))
        self.on_write(value, fields, conditions)

    def awaits(self, _uid: str) -> bool:
        return False

    def validation_of(self, uid: str) -> Validation | None:
        return self.validations.get(uid, Validation())
