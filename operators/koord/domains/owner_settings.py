"""Whether gangs are found from owners: the section ``owners`` of the configuration."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from koord.api.owner_kinds import WorkloadKind
from koord.core.owners.plugin import OwnerOptions
from koord.domains.owners import OwnerKinds
from koord.domains.section import Section


class OwnerSettings(Section):
    """Gangs of pods that name none, found from the objects that own them.

    Needs the rights of `manifests/overlays/owners`.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether pods of Jobs, JobSets, PyTorchJobs and the like start as their owners need it."""
    kinds: Annotated[tuple[WorkloadKind, ...], Field(max_length=64)] = ()
    """Further kinds, or others in place of those that are known, by group and kind."""

    @override
    def plan_options(self) -> Iterable[object]:
        kinds = OwnerKinds.choose(self.kinds) if self.enabled else OwnerKinds()
        yield kinds
        yield OwnerOptions(self.enabled, kinds.rules)
