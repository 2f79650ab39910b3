"""Whether ScheduleExplanations are answered: the section ``explanations`` of the configuration."""

from pydantic import Field

from koord.domains.section import Section


class ExplanationSettings(Section):
    """Koordinator's ScheduleExplanations: objects that ask why something waits.

    Needs the CRD and the rights of `manifests/overlays/explanations`.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether the leader answers them, 100 at most, each once a minute."""
