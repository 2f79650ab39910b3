"""Whether nodes are over-committed: the section ``colocation`` of the configuration."""

from pydantic import Field

from koord.domains.section import Section


class ColocationSettings(Section):
    """Batch and mid resources that nodes offer beside what others use of them.

    Needs the rights of `manifests/overlays/colocation`. What is offered, ColocationPolicies say, or
    the ConfigMap `koordinator-system/slo-controller-config`, which `overlays/slo-config` lets read.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether they are computed and published."""
