"""Many pods are written to when what stands for them is none: what it costs, and what may fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord.cli.queue_hold import _AT_ONCE, _annotate_pods
from koord.kube.errors import Forbidden, NotFound

NAMES = [f"p{at:03}" for at in range(3 * _AT_ONCE + 1)]


class Server:
    """Takes writes to pods, each in its time; some pods are gone, of some it is forbidden."""

    def __init__(self, *, gone: str = "", forbidden: str = "") -> None:
        self._gone, self._forbidden = gone, forbidden
        self.held: dict[str, str | None] = {}
        self.at_once = self.most_at_once = 0

    async def patch(self, path: str, body: Any, _: Any) -> None:
        name = path.rpartition("/")[2]
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if name == self._gone:
            raise NotFound(404, "NotFound", name)
        if name == self._forbidden:
            raise Forbidden(403, "Forbidden", "no")
        (self.held[name],) = body["metadata"]["annotations"].values()


def write(server: Server, value: str | None) -> None:
    asyncio.run(_annotate_pods(server, "team", NAMES, value))  # type: ignore[arg-type]


def test_all_pods_are_held_a_few_at_a_time_but_those_that_are_gone() -> None:
    server = Server(gone="p005")
    write(server, "true")
    assert server.held == dict.fromkeys([name for name in NAMES if name != "p005"], "true")
    assert server.most_at_once == _AT_ONCE


def test_who_may_not_write_is_told_so_and_may_go_on_later() -> None:
    """The writes that are under way are finished: none of them is left to chance."""
    server = Server(forbidden=NAMES[_AT_ONCE + 1])
    with pytest.raises(Forbidden):
        write(server, "true")
    assert server.held.keys() == {*NAMES[: 2 * _AT_ONCE]} - {NAMES[_AT_ONCE + 1]}
    server._forbidden = ""
    write(server, None)
    assert set(server.held.values()) == {None}
