"""A quota that lets one unit run at a time, and a gang that its owner holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operators.test_quotas import Quotas

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

QUEUE = "operators.koordinator.sh/queue"
HOLD = "operators.koordinator.sh/queue-hold"


def test_limits_of_a_queue_and_a_held_gang(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    cluster.add_nodes(2)
    quotas.create("team", 0, 16)
    quota = ("annotate", "--overwrite", f"--namespace={cluster.namespace}", "elasticquota")
    cluster.box.kubectl(*quota, quotas.name("team"), f'{QUEUE}={{"maxRunning": 1}}')
    cluster.expect(
        lambda: quotas.status("team").get("observedGeneration") is not None, "the quota is seen"
    )
    label = quotas.label("team")
    cluster.pod_group("held", 2, **{HOLD: "true"})
    cluster.gang("first", 2, labels=label, gpus=1)
    cluster.expect_bound("first-0", "first-1")
    cluster.gang("second", 2, labels=label, gpus=1)
    cluster.expect_group("second", "MaxRunning")

    cluster.box.kubectl(*quota, quotas.name("team"), f'{QUEUE}={{"maxRunning": -1}}')
    cluster.expect(
        lambda: "maxRunning" in cluster.condition(quotas.get("team"), "ConfigInvalid")[2],
        "the quota says what is wrong",
    )
    assert cluster.group_reason("second") == "MaxRunning", "the last valid limit stays"

    for name in ("held-0", "held-1"):
        cluster.pod(name, labels={**label, "pod-group.scheduling.sigs.k8s.io": "held"}, gpus=1)
    cluster.expect_group("held", "Held")
    cluster.box.kubectl(*quota, quotas.name("team"), f'{QUEUE}={{"maxRunning": 2}}')
    cluster.expect_bound("second-0", "second-1")
    cluster.box.kubectl(*quota, quotas.name("team"), f"{QUEUE}-")
    group = (
        "annotate",
        f"--namespace={cluster.namespace}",
        "podgroups.scheduling.sigs.k8s.io",
        "held",
        f"{HOLD}-",
    )
    cluster.box.kubectl(*group)
    cluster.expect_bound("held-0", "held-1")
