"""Over-use that reservations hold: what nobody uses gives way, and of the rest it is said."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest
from tests.operators.conftest import Cluster, Operators
from tests.operators.test_everyday import explain_text
from tests.operators.test_quotas import Quotas
from tests.operators.test_reservations import Reservations

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = """
elasticQuota:
  delayEvictTime: 3s
  revokePodInterval: 1s
"""


class Scene:
    """Quota ``ra`` is guaranteed 8 of 32 GPUs, ``rb`` 24; reservations of ``ra`` hold 16."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.quotas = cluster, Quotas(cluster)
        self.reservations = Reservations(cluster)
        cluster.add_nodes(4)
        self.quotas.create("ra", 8, 32)
        self.quotas.create("rb", 24, 32)
        for name in ("hold", "hold2"):
            self.reservations.create(name, 8, self.quotas.label("ra"))
            self.reservations.expect(name)

    def want(self) -> None:
        """Ask for all that is guaranteed to ``rb``."""
        self.cluster.gang("b", 3, labels=self.quotas.label("rb"))

    def phases(self) -> list[str]:
        return sorted(self.reservations.status(one).get("phase", "") for one in ("hold", "hold2"))


@pytest.fixture
def scene(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Scene]:
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    made = Scene(cluster)
    with closing(made.reservations):
        yield made
    for pod in cluster.pods():
        cluster.delete_pod(pod)
    for name in ("ra", "rb"):
        with suppress(SandboxApiError):
            made.quotas.delete(name)
    cluster.remove_nodes()
    assert running.is_running(), running.log.read_text()[-3000:]
    running.stop()


def test_a_reservation_that_nobody_uses_gives_way(scene: Scene) -> None:
    scene.want()
    scene.cluster.expect_bound("b-0", "b-1", "b-2")
    assert scene.phases() == ["Available", "Pending"]
    (lost,) = [
        one for one in ("hold", "hold2") if scene.reservations.status(one)["phase"] == "Pending"
    ]

    def why() -> str:
        return scene.cluster.condition(scene.reservations.get(lost), "Scheduled")[2]

    scene.cluster.expect(lambda: "entitled to 8" in why(), "it says why it waits again")


def use(scene: Scene, **labels: str) -> None:
    """Let a pod run in each of the reservations."""
    label = {"app": "a", **scene.quotas.label("ra"), **labels}
    for at in range(2):
        scene.cluster.pod(f"in-{at}", gpus=8, labels=label)
    scene.cluster.expect_bound("in-0", "in-1")


def test_one_that_a_pod_uses_goes_with_it(scene: Scene) -> None:
    use(scene)
    scene.want()
    scene.cluster.expect_bound("b-0", "b-1", "b-2")
    scene.cluster.expect(lambda: scene.phases() == ["Available", "Pending"], "one gave way")
    left = [name for name in scene.cluster.bound() if name.startswith("in-")]
    assert len(left) == 1


def test_those_of_protected_pods_stay_and_nothing_is_promised(scene: Scene) -> None:
    allow = "operators.koordinator.sh/allow-disable-preemptible=true"
    scene.cluster.box.kubectl("label", "namespace", scene.cluster.namespace, allow)
    use(scene, **{"scheduling.koordinator.sh/disable-preemptible": "true"})
    scene.want()
    scene.cluster.expect(
        lambda: "Nothing of it can be reclaimed" in scene.cluster.group_message("b"),
        "it says that nothing is reclaimed",
    )
    told = " ".join(explain_text(scene.cluster, "b").split())
    assert "labelled as not preemptible" in told
    assert "Reclaim acts" not in told
    assert "Wait until over-use" not in told
    assert scene.phases() == ["Available", "Available"]
