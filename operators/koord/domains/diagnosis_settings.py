"""Koordinator's diagnosis API: the section ``diagnosis`` of the configuration."""

from pydantic import Field

from koord.domains.section import Section


class DiagnosisSettings(Section):
    """[Koordinator's diagnosis API](diagnosis.md), for runbooks that use it."""

    enabled: bool = Field(default=False, strict=True)
    """Whether the leader serves it below /apis/v1, to this machine only."""
