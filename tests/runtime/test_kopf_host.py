"""Kopf is restarted after any end, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import aiohttp
import kopf
import pytest

from koord.kube.reflector import WatchTimes
from koord.runtime import kopf_host
from koord.runtime.kopf_host import KopfHost


class ApiError(Exception):
    """As Kopf's, which has the status of the response too."""

    status = 429


@pytest.mark.parametrize(
    ("error", "is_traced"),
    [
        (asyncio.CancelledError(), False),
        (RuntimeError("gone"), True),
        (ApiError("storage is (re)initializing", {"code": 429}), False),
        (aiohttp.ServerDisconnectedError(), False),
    ],
)
async def test_kopf_is_restarted_after_any_error(
    error: BaseException,
    is_traced: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    starts: list[bool] = []
    is_back = threading.Event()

    async def operate(*, ready_flag: threading.Event, **_: Any) -> None:
        starts.append(ready_flag.is_set())
        ready_flag.set()
        if len(starts) == 1:
            raise error
        is_back.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(kopf, "operator", operate)
    monkeypatch.setattr(kopf_host, "_KOPF_LOG", logging.getLogger("koord.test"))  # it is silenced
    host = KopfHost(kopf.OperatorRegistry, WatchTimes())
    host.start()
    host.operate()
    assert await asyncio.to_thread(is_back.wait, 5.0)
    assert starts == [False, False], "its state says that it does not run"
    await host.stop()
    assert not host._thread.is_alive()
    assert len(starts) == 2
    said = [one for one in caplog.records if "restarting" in one.message]
    assert [bool(one.exc_info) for one in said] == [is_traced]
    assert [one.levelname for one in said] == ["ERROR" if is_traced else "INFO"]
