"""Whether suspended Jobs are resumed: the section ``suspend`` of the configuration."""

from collections.abc import Iterable

from pydantic import Field
from typing_extensions import override

from koord.core.suspend.plugin import SuspendOptions
from koord.domains.section import Section


class SuspendSettings(Section):
    """Jobs that wait suspended, without pods, until they have room.

    Needs the rights of `manifests/overlays/suspend`.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether Jobs that ask for it are resumed once there is room for all of their pods."""

    @override
    def plan_options(self) -> Iterable[object]:
        yield SuspendOptions(self.enabled)
