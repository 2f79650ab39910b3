"""Placed pods that their kubelet rejects are counted once."""

from pathlib import Path

from tests.operators.conftest import Cluster
from tests.support.operators import RunningOperators, run_operators

SERIES = "koord_kubelet_rejections_total{"


def end(cluster: Cluster, name: str, reason: str, **status: str) -> None:
    """Let a pod fail as a kubelet does.

    It runs first, or kwok, which has seen the pod without an end, would let it run afterwards.
    """
    cluster.expect(lambda: phase(cluster, name) in ("Running", "Failed"), f"{name} runs")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/status"
    cluster.box.client.patch(path, {"status": {"phase": "Failed", "reason": reason, **status}})


def phase(cluster: Cluster, name: str) -> str:
    return str(cluster.get_pod(name)["status"]["phase"])


def count(operators: RunningOperators) -> float:
    """Return the number of rejections, for all reasons."""
    _, text = operators.get("/metrics")
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(SERIES))


def test_pod_rejected_by_a_kubelet_is_counted_once(quiet_cluster: Cluster, tmp_path: Path) -> None:
    cluster = quiet_cluster
    cluster.add_nodes(1)
    kubeconfig = cluster.box.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path) as operators:
        for name in ("refused", "failed"):
            cluster.pod(name, gpus=1)
        cluster.expect_bound("refused", "failed")
        end(cluster, "failed", "Evicted")
        end(cluster, "refused", "OutOfcpu")
        cluster.expect(lambda: count(operators) == 1.0, "it is counted")
        end(cluster, "refused", "OutOfcpu", message="said again")
        cluster.pod("last", gpus=1)
        cluster.expect_bound("last")
        assert count(operators) == 1.0
    # Who starts later finds it as it is.
    with run_operators(kubeconfig, tmp_path) as operators:
        assert count(operators) == 0.0


def test_node_that_rejects_pods_is_avoided_for_a_while_that_doubles(cluster: Cluster) -> None:
    (bad,) = cluster.add_nodes(1)
    for at in range(4):
        cluster.pod(f"refused-{at}")
        cluster.expect_bound(f"refused-{at}")
        end(cluster, f"refused-{at}", "UnexpectedAdmissionError")
    cluster.pod("smaller", gpus=1)
    cluster.expect_bound("smaller")
    cluster.delete_pod("smaller")
    cluster.pod("next")

    def message(name: str) -> str:
        return cluster.condition(cluster.get_pod(name), "operators.koordinator.sh/Placed")[2]

    cluster.expect(lambda: "rejected such pods 4 times" in message("next"), "it says why")
    (good,) = cluster.add_nodes(1)
    cluster.expect_bound("next")
    assert cluster.bound()["next"] == good
    end(cluster, "refused-3", "UnexpectedAdmissionError", message="said again")
    cluster.pod("last")
    cluster.expect(lambda: "rejected such pods" in message("last"), "others wait, too")
    cluster.box.client.patch(f"/api/v1/nodes/{bad}", {"metadata": {"labels": {"mended": "yes"}}})
    cluster.expect_bound("last")
    assert cluster.bound()["last"] == bad
