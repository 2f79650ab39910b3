"""Whether gangs are found from owners: the section ``owners`` of the configuration."""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError
from typing_extensions import override

from koord.api.owner_kinds import WorkloadKind
from koord.core.owners.plugin import OwnerOptions
from koord.domains.owners import OwnerKinds
from koord.domains.section import Section

MAX_REPORTED: Final = 8 * 1024
"""Bytes of kinds that the leader reports; more of them are known to it alone."""


class OwnerSettings(Section):
    """Gangs of pods that name none, found from the objects that own them.

    Needs the rights of `manifests/overlays/owners`.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether pods of Jobs, JobSets, PyTorchJobs and the like start as their owners need it."""
    kinds: Annotated[tuple[WorkloadKind, ...], Field(max_length=64)] = ()
    """Further kinds, or others in place of those that are known, by group and kind."""

    def report(self) -> tuple[Mapping[str, Any], ...] | None:
        """Return what others have to know to find the same gangs; None: none are found."""
        if not self.enabled:
            return None
        kinds = tuple(
            kind.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            for kind in self.kinds
        )
        return kinds if len(json.dumps(kinds)) <= MAX_REPORTED else ()

    @override
    def plan_options(self) -> Iterable[object]:
        kinds = OwnerKinds.choose(self.kinds) if self.enabled else OwnerKinds()
        yield kinds
        yield OwnerOptions(self.enabled, kinds.rules)


def read_reported(kinds: tuple[Mapping[str, Any], ...] | None) -> OwnerSettings:
    """Return the settings that a leader reports; the defaults for what is not known here."""
    try:
        return OwnerSettings.model_validate({"enabled": kinds is not None, "kinds": kinds or ()})
    except ValidationError:
        return OwnerSettings(enabled=True)  # of a later release
