"""When the statuses of quotas are looked at: not while what would be said has to wait anyway."""

import asyncio
import time

import pytest
from tests.cluster import make_cluster

from koord.controllers import quota_status
from koord.controllers.quota_status import QuotaStatusController


@pytest.mark.parametrize(
    ("busy", "least"),
    [(0.0, 0.01), (0.3, 0.3), (60.0, 0.6)],
    ids=["calm", "busy for a while", "busy for good"],
)
async def test_a_look_waits_for_the_end_of_a_burst_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, busy: float, least: float
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(quota_status, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(quota_status, "LONGEST_SECONDS", 0.1)
    monkeypatch.setattr(quota_status, "LONGEST_WHILE_BUSY_SECONDS", 0.6)
    monkeypatch.setattr(
        QuotaStatusController, "look", lambda _: looks.append(time.monotonic() - began)
    )
    began = time.monotonic()
    controller = QuotaStatusController(
        make_cluster().state,
        None,  # type: ignore[arg-type]
        lambda: True,
        is_busy=lambda: time.monotonic() - began < busy,
    )
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(0)
    controller.wake()
    async with asyncio.timeout(5):
        while len(looks) < 2:  # noqa: ASYNC110 - looked at by the clock
            await asyncio.sleep(0.01)
    running.cancel()
    assert looks[1] >= least
