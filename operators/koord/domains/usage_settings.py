"""Whether it is counted what pods hold: the section ``usage`` of the configuration."""

from collections.abc import Iterable

from pydantic import Field
from typing_extensions import override

from koord.core.usage.plugin import UsageOptions
from koord.domains.section import Section


class UsageSettings(Section):
    """GPU hours by quota, namespace and model, as counters for Prometheus."""

    metrics: bool = Field(default=False, strict=True)
    """Whether what pods hold is counted in `koord_usage_milligpu_seconds_total`."""

    @override
    def plan_options(self) -> Iterable[object]:
        yield UsageOptions(self.metrics)
