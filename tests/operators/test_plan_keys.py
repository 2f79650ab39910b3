"""Keys of plans on a cluster with running operators: rotation, and leaders that cannot annotate."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.kube.test_plan_keys import ROTATION

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

pytestmark = pytest.mark.sandbox

KEYS_PATH = "/api/v1/namespaces/koord-system/secrets/koord-plan-key"
SIGNATURE = "operators.koordinator.sh/plan-signature"
DENIAL = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-marks}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}
  validations:
    - expression: >-
        !('operators.koordinator.sh/taken-over-by' in object.metadata.?annotations.orValue({}))
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-marks}
spec: {policyName: no-marks, validationActions: [Deny]}
"""


def read_keys(cluster: Cluster) -> dict[str, str]:
    data: dict[str, str] = cluster.box.client.get(KEYS_PATH)["data"]
    return data


def read_signatures(cluster: Cluster) -> dict[str, str]:
    pods = cluster.pods().items()
    return {name: pod["metadata"]["annotations"].get(SIGNATURE, "") for name, pod in pods}


def patch_keys(cluster: Cluster, operations: list[dict[str, Any]]) -> None:
    patch = f"--patch={json.dumps(operations)}"
    name = ("secret", "koord-plan-key", "--namespace=koord-system")
    cluster.box.kubectl("patch", *name, "--type=json", patch)


@pytest.mark.timeout(240)
def test_plans_are_signed_again_when_the_key_is_rotated(cluster: Cluster) -> None:
    cluster.patience = 90.0  # the Secret is read every 30 seconds
    cluster.add_nodes(3)
    cluster.gang("a", 3)
    cluster.expect_bound("a-0", "a-1", "a-2")
    before, signatures = read_keys(cluster), read_signatures(cluster)
    patch_keys(cluster, ROTATION)
    cluster.expect(lambda: "current" in read_keys(cluster), "there is a new key")
    assert read_keys(cluster)["previous"] == before["current"]
    cluster.expect(
        lambda: not set(read_signatures(cluster).values()) & set(signatures.values()),
        "all plans are signed again",
    )
    patch_keys(cluster, [{"op": "remove", "path": "/data/previous"}])
    cluster.operators.kill()
    cluster.operators.start()
    # The gang is still known to have started: one replacement of two starts by itself.
    for name in ("a-0", "a-1"):
        cluster.delete_pod(name)
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0", "a-2")
    log = cluster.operators.log.read_text()
    assert not [key for key in (*before.values(), *read_keys(cluster).values()) if key in log]


def test_leader_that_may_annotate_no_pod_plans_on_a_fresh_list(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("first")
    cluster.expect_bound("first")
    cluster.pod("second")
    cluster.expect_pod("second", "InsufficientNodes")
    cluster.operators.kill()
    cluster.box.kubectl("apply", "--filename=-", stdin=DENIAL)
    try:
        time.sleep(2)  # until the policy is in force
        said = len(cluster.operators.log.read_text())
        cluster.operators.start()
        cluster.expect(
            lambda: "Listing all pods again" in cluster.operators.log.read_text()[said:],
            "no pod can be annotated",
        )
        cluster.delete_pod("first")
        cluster.expect_bound("second")
    finally:
        cluster.box.kubectl("delete", "--filename=-", stdin=DENIAL)
