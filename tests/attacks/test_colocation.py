"""What a tenant may write about batch pods takes no room from others, and stops nobody."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.cases.test_over_commit import CPU, MEMORY, configure, offered, offering, report
from tests.manifests.someone import Someone, create_account
from tests.operators.conftest import make_pod

from koord.api.pod_qos import QOS_ANNOTATIONS, QOS_LABELS

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

__all__ = ["offering"]

HUGE = "9223372036854775807"
BOMBS = ("[" * 50_000, '{"a":' * 9_000 + "1" + "}" * 9_000, "9" * 50_000, '["\\ud800"]', "null", "")
NOT_THEIRS = (
    "/apis/operators.koordinator.sh/v1alpha1/colocationpolicies",
    "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
    "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "/apis/slo.koordinator.sh/v1alpha1/nodeslos",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/namespaces/koordinator-system/configmaps",
)


def list_lies(namespace: str) -> list[dict[str, Any]]:
    """Return pods that say the worst of themselves.

    The kubelets of the sandbox accept whatever names their node, as no real one does: what such
    pods count for is tested without them.
    """
    amounts = [{"cpu": HUGE}, {CPU: HUGE, MEMORY: HUGE}, {"kubernetes.io/mid-cpu": HUGE}]
    bands = ("koord-prod", "koord-mid", "koord-batch", "koord-free", "x")
    named = [
        make_pod(
            namespace,
            f"lie-{at}-{band}",
            resources=amount,
            labels={"koordinator.sh/priority-class": band, "koordinator.sh/qosClass": "LSE"},
        )
        for at, amount in enumerate(amounts)
        for band in bands
    ]
    said = [{annotation.key: bomb} for annotation in QOS_ANNOTATIONS for bomb in BOMBS]
    loud = [
        make_pod(namespace, f"loud-{at}", resources={CPU: "1"}, annotations=annotations)
        for at, annotations in enumerate(said)
    ]
    odd = [
        make_pod(namespace, f"odd-{at}", resources={CPU: "1"}, labels={key: "x" * 60})
        for at, key in enumerate(
            (*QOS_LABELS, "koordinator.sh/priority", "koordinator.sh/qosClass")
        )
    ]
    return [*named, *loud, *odd]


def test_lies_take_no_batch_room_and_stop_nobody(offering: Cluster) -> None:
    (node,) = offering.add_nodes(1)
    configure(offering, json.dumps({"enable": True, "cpuReclaimThresholdPercent": 100}))
    offering.pod("web", resources={"cpu": "8", "memory": "4Gi"})
    offering.expect_bound("web")
    report(offering, node, 20, 4, web=16)
    offering.expect(lambda: offered(offering, node)[CPU] == 44_000, "it offers 64 - 4 - 16 CPUs")

    create_account(offering.box, offering.namespace, "tenant", ["edit", "koord-user"])
    tenant = Someone(offering.box, offering.namespace, "tenant")
    for path in NOT_THEIRS:
        body = {"metadata": {"name": "slo-controller-config"}, "value": 1, "data": {}}
        assert tenant.send("POST", path, body).status == 403, path
    patch = {"metadata": {"annotations": {"node.koordinator.sh/colocation-strategy": "{}"}}}
    media = "application/merge-patch+json"
    assert tenant.send("PATCH", f"/api/v1/nodes/{node}", patch, media).status == 403
    off = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": "{}"}}
    path = f"/api/v1/namespaces/{offering.namespace}/configmaps"
    assert tenant.send("POST", path, off).status == 201
    lies = list_lies(offering.namespace)
    made = [tenant.send("POST", tenant.pods, pod).status for pod in lies]
    assert made.count(201) > len(lies) * 0.8, made

    def rises() -> bool:
        report(offering, node, 10, 4, web=6)
        return offered(offering, node)[CPU] == 54_000

    offering.expect(rises, "it offers 64 - 4 - 6 CPUs, as two reports say")
    log = offering.operators.log.read_text()
    assert "Traceback" not in log, log[-3000:]
