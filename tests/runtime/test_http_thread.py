"""The HTTP server of a process, in a thread of its own."""

import asyncio
import threading
import time
import urllib.request

import pytest

from koord.kube.config import Access, Credentials
from koord.runtime.address import Address
from koord.runtime.http import CannotListen, Sources
from koord.runtime.http_thread import HttpThread

ANY_PORT = Address("127.0.0.1", 0)


async def nothing() -> bytes:
    return b""


SOURCES = Sources(problem=str, unsynced=list, metrics=nothing, state=nothing)


def make_thread() -> HttpThread:
    return HttpThread(Credentials(lambda: Access("https://127.0.0.1:1")))


def is_over() -> bool:
    return "http" not in {thread.name for thread in threading.enumerate()}


async def test_it_answers_while_the_main_loop_is_blocked() -> None:
    async with make_thread().run(ANY_PORT, SOURCES) as address:
        with urllib.request.urlopen(f"http://127.0.0.1:{address.port}/healthz") as answer:  # noqa: ASYNC210 - it blocks the main loop
            assert answer.status == 200
    assert is_over()


async def test_the_main_loop_is_asked_in_its_own_thread() -> None:
    thread = make_thread()

    async def state() -> bytes:
        return str(await thread.ask(threading.get_ident, 5)).encode()

    sources = Sources(problem=str, unsynced=list, metrics=nothing, state=state)
    async with thread.run(ANY_PORT, sources) as address:
        url = f"http://127.0.0.1:{address.port}/debug/state"
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
    assert int(answer) == threading.get_ident()


async def test_a_main_loop_that_does_not_answer_is_not_waited_for() -> None:
    thread, asked = make_thread(), threading.Event()

    async def state() -> bytes:
        asked.set()
        return str(await thread.ask(int, 0.05)).encode()

    sources = Sources(problem=str, unsynced=list, metrics=nothing, state=state)
    async with thread.run(ANY_PORT, sources) as address:
        url = f"http://127.0.0.1:{address.port}/debug/state"
        reading = asyncio.get_running_loop().run_in_executor(None, read_status, url)
        assert asked.wait(20)
        time.sleep(0.2)  # noqa: ASYNC251
        assert await reading == 503


def read_status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_address_in_use_ends_the_thread() -> None:
    async with make_thread().run(ANY_PORT, SOURCES) as taken:
        with pytest.raises(CannotListen):
            async with make_thread().run(taken, SOURCES):
                pass
    assert is_over()
