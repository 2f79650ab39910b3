"""Whether profiles are published: the section ``profiles`` of the configuration."""

from pydantic import Field

from koord.domains.section import Section


class ProfileSettings(Section):
    """ClusterColocationProfiles, which write labels, QoS, priority and more into new pods.

    Needs the rights of `manifests/overlays/profiles`, and Kubernetes 1.36.
    """

    enabled: bool = Field(default=False, strict=True)
    """Whether MutatingAdmissionPolicies are made of the profiles."""
