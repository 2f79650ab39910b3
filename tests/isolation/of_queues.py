"""Loops of looks at the queues."""

from typing import Any

from tests.builders import make_pod, make_pod_group
from tests.cluster import SCORING, make_cluster
from tests.isolation.plays import NAMES, Patch, is_bad, play

from koord.controllers.queue_looks import QueueLooks


@play("queue-looks")
def promises(patch: Patch) -> list[str]:
    seen, cluster = list[str](), make_cluster(1).pods(make_pod("runs").gpu(8).running("n0"))
    for name in NAMES:
        cluster.pod_groups(make_pod_group(f"default/{name}", 1))
        cluster.pods(make_pod(name).gang(f"default/{name}").gpu(8))
    looks = QueueLooks(
        cluster.state, cluster.queue, SCORING, lambda: 0.0, lambda: True, lambda: False
    )

    def read(_: object, unit: Any) -> None:
        if is_bad(unit):
            raise ZeroDivisionError
        seen.append(unit.pods[0].name)

    patch.setattr(QueueLooks, "_read_promise", read)
    cluster.step()
    looks.look()
    assert len(looks.standings) == len(NAMES)
    return seen
