"""A section of the configuration file; each domain that has settings has one.

Knows no section. Fields are written in camel case; their docstrings are what users read.
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from koord.api.model import Documented
from koord.api.quantity import parse_duration_seconds

DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def parse_seconds(text: object) -> float:
    """Parse ``120s`` or ``1m30s``; raise ValueError for anything else."""
    if isinstance(text, float):
        return text
    seconds = parse_duration_seconds(text) if isinstance(text, str) else None
    if seconds is None:
        raise ValueError("is not a duration, such as 120s")
    return float(seconds)


class Section(Documented):
    """Fields that are set together; unknown ones are refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    def plan_options(self) -> Iterable[object]:
        """Return what plugins look up of it, as values by their class; see ``PlanOptions``."""
        return ()


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
