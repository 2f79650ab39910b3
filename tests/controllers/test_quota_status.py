"""When the statuses of quotas are updated: later while more urgent writes go on."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import GPU, make_quota
from tests.cluster import make_cluster

from koord.controllers.quota_status import (
    LONGEST_WHILE_BUSY_SECONDS,
    PAUSE,
    QuotaStatusPolicy,
)
from koord.controllers.status_controller import StatusController


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
    written: dict[str, Any] = {}
    sink: Any = SimpleNamespace(
        write_status=lambda _, fields, *__: written.update(fields),
        write_annotations=lambda *_: None,
        write_finalizer=lambda *_, **__: None,
    )
    cluster = make_cluster(2).quotas(make_quota("idle", min={GPU: 8}, max={GPU: 16}))
    cluster.state.refresh()
    QuotaStatusPolicy(cluster.state, sink).update_all()
    assert (written["used"], written["runtime"]) == ({GPU: "0"}, {GPU: "0"})
    assert written["state"] == "Lending"
