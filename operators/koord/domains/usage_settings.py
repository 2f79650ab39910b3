"""Whether it is counted what pods hold: the section ``usage`` of the configuration."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from koord.core.usage.plugin import UsageOptions
from koord.domains.section import Section


class UsageSettings(Section):
    """GPU hours by quota, namespace and model, as counters for Prometheus."""

    metrics: bool = Field(default=False, strict=True)
    """Whether what pods hold is counted in `koord_usage_milligpu_seconds_total`."""
    budgets: dict[str, Annotated[int, Field(ge=0, strict=True)]] = Field(
        default_factory=dict, max_length=1_000
    )
    """GPU hours in 30 days that quotas may use, by quota: above it an alert fires. Nothing is
    refused."""

    @override
    def plan_options(self) -> Iterable[object]:
        yield UsageOptions(self.metrics)
