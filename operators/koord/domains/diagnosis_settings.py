"""Koordinator's diagnosis API: the section ``diagnosis`` of the configuration."""

from pydantic import Field

from koord.domains.section import Seconds, Section


class DiagnosisSettings(Section):
    """[Koordinator's diagnosis API](diagnosis.md), for runbooks that use it."""

    enabled: bool = Field(default=False, strict=True)
    """Whether the leader serves it below /apis/v1, and its debug flags below /debug/flags, to this
    machine only."""
    authorization: bool = Field(default=False, strict=True)
    """Whether it also answers other machines, to readers with a token and the right to the path."""
    flags_expire_after: Seconds = Field(default=3600.0, ge=1, le=7 * 24 * 3600)
    """A debug flag that was set ends after so long."""
