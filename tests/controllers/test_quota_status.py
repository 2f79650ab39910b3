"""When the statuses of quotas are updated: later while more urgent writes go on."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import GPU, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.support.authors import FakeAuthor

from koord.controllers.quota_status import (
    LONGEST_WHILE_BUSY_SECONDS,
    PAUSE,
    QuotaStatusPolicy,
)
from koord.controllers.status_controller import StatusController
from koord.core.quota.profile import GENERATED_MAX
from koord.kube.translate.quotas import QuotaTranslator


@pytest.mark.parametrize(
    ("busy", "least", "most"),
    [(0.0, PAUSE.quiet, PAUSE.quiet), (3.0, 3.0, 4.0), (60.0, LONGEST_WHILE_BUSY_SECONDS, 11.0)],
    ids=["not busy", "busy for a while", "busy all the time"],
)
async def test_update_waits_for_the_end_of_a_burst_but_not_forever(
    monkeypatch: pytest.MonkeyPatch, busy: float, least: float, most: float
) -> None:
    now, updates = [0.0], []
    monkeypatch.setattr(QuotaStatusPolicy, "update_all", lambda _: updates.append(now[0]))
    policy = QuotaStatusPolicy(
        make_cluster().state,
        None,  # type: ignore[arg-type]
        QuotaTranslator(),
        clock=lambda: now[0],
        is_busy=lambda: now[0] < busy,
    )
    controller = StatusController(policy, lambda: now[0])
    controller.look()
    while not updates:
        now[0] += 0.1
        await controller.flush()
    assert least - 0.01 <= updates[0] <= most + 0.11


def test_no_column_of_an_idle_quota_is_blank() -> None:
    cluster = make_cluster(2).quotas(make_quota("idle", min={GPU: 8}, max={GPU: 16}))
    written = write_status(cluster)
    assert (written["used"], written["runtime"]) == ({GPU: "0"}, {GPU: "0"})
    assert written["state"] == "Lending"
    assert written["max"] == {GPU: "16"}


@pytest.mark.parametrize("most", [GENERATED_MAX, 10**15])
def test_a_limit_that_is_none_says_so(most: int) -> None:
    quota = make_quota("root", max={GPU: most, "cpu": 4000, "memory": 300 << 40})
    assert write_status(make_cluster(2).quotas(quota))["max"] == {
        GPU: "unlimited",
        "cpu": "4",
        "memory": "300Ti",
    }


def test_what_users_have_used_is_kept_once_per_tick() -> None:
    cluster = make_cluster(2).quotas(make_quota("team", queue={"user_fairness": "Decayed"}))
    assert "queueMemory" not in write_status(cluster, wall=300)
    pod = make_pod("p").quota("team").gpu(2).running("n0").build()
    cluster.pods(replace(pod, started=350.0))
    kept = [write_status(cluster, wall=wall)["queueMemory"] for wall in (600, 899, 900)]
    assert [one["usedUntil"] for one in kept] == [600, 600, 900]
    assert [one["used"][0]["user"] for one in kept] == ["default"] * 3
    assert int(kept[0]["used"][0]["amounts"][GPU]) < int(kept[2]["used"][0]["amounts"][GPU])


def write_status(cluster: FakeCluster, wall: float = 0) -> dict[str, Any]:
    written: dict[str, Any] = {}
    author: Any = FakeAuthor(lambda _, fields, __: written.update(fields))
    cluster.state.refresh()
    QuotaStatusPolicy(cluster.state, author, QuotaTranslator(), wall=lambda: wall).update_all()
    return written
