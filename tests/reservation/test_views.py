"""What is shown of quotas and nodes counts a reservation and the pods in it once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.reservation.make import make_reservation

from koord.answers.quota_view import view_quota, view_quotas
from koord.core.reservation.model import ReservationUse
from koord.core.reservation.plugin import Reservations


def make_used(pods: int) -> FakeCluster:
    """Hold 8 GPUs, of which pods use 4 each, in a state that nobody has looked at yet."""
    cluster = make_cluster().nodes(make_node("n1").gpu(16))
    cluster.quotas(make_quota("team", min={GPU: 16}, max={GPU: 16}))
    reservation = make_reservation(reserved={GPU: 8})
    assert reservation.pod is not None
    plugin = cluster.state.plugin(Reservations)
    plugin.upsert(replace(reservation, pod=replace(reservation.pod, quota="team")))
    for at in range(pods):
        pod = make_pod(f"w-{at}").gpu(4).quota("team").running("n1").build()
        cluster.pods(
            replace(pod, allocations=(ReservationUse(pod.uid, reservation.name, reservation.uid),))
        )
    return cluster


@pytest.mark.parametrize(("pods", "used"), [(0, 8), (1, 8), (2, 8), (3, 12)])
def test_quotas_show_what_they_show_after_a_cycle(pods: int, used: int) -> None:
    (shown,) = view_quotas(make_used(pods).state).quotas
    assert (shown.summary.used, shown.over) == ({GPU: used}, ())
    explained = view_quota(make_used(pods).state, "team", ())
    assert explained is not None
    assert sum(user.amounts.get(GPU, 0) for user in explained.users) == used
