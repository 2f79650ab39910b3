"""All profiles of a cluster. The planner does not ask: profiles concern pods before they exist."""

from typing import Final

from koord.core.engine.plugin import Plugin
from koord.core.profiles.model import ColocationProfile

NAME: Final = "profiles"


class ColocationProfiles(Plugin):
    """Profiles by name."""

    name = NAME

    def __init__(self) -> None:
        self.profiles: dict[str, ColocationProfile] = {}

    def upsert(self, profile: ColocationProfile) -> None:
        self.profiles[profile.name] = profile

    def remove(self, profile: ColocationProfile) -> None:
        self.profiles.pop(profile.name, None)
