"""Cluster autoscalers: what pods say to them. Read, and never written."""

from typing import Final

CONSUMED_REQUEST: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Pod annotation: the ProvisioningRequest by which nodes for the pod were asked for."""
CONSUMED_REQUEST_DEPRECATED: Final = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
"""Pod annotation: the same, as it was called before."""
