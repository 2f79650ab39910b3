"""What ``koord lint --server`` finds by looking at the cluster, as typed."""

from pathlib import Path

from tests.operators.conftest import Cluster
from tests.operators.test_everyday import koord

FILES = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: wide, namespace: HERE}
spec: {minMember: 200}
---
apiVersion: batch/v1
kind: Job
metadata: {name: wide, namespace: HERE}
spec:
  parallelism: 200
  completions: 200
  template:
    metadata: {labels: {pod-group.scheduling.sigs.k8s.io: wide}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: GPUS}}}]
"""


def test_what_cannot_fit_and_what_does_not_opt_in(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_nodes(1)
    path = tmp_path / "wide.yaml"
    path.write_text(FILES.replace("HERE", cluster.namespace).replace("GPUS", "16"))
    assert koord(cluster, "lint", str(path)).exit_code in {0, 1}
    done = koord(cluster, "lint", str(path), "--server")
    assert done.exit_code == 1
    assert "the largest node has 8" in done.stdout
    assert "200 pods that start together ask for 3200 of it, the cluster has" in done.stdout
    assert "do not opt in" in done.stdout
