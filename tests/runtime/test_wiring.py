"""The wiring of parts where it is easily done wrong."""

import asyncio

from tests.builders import make_pod
from tests.support.plan_keys import make_keys

from koord.kube.client import Client
from koord.kube.config import Access, Credentials
from koord.kube.objects import ref_of_pod
from koord.kube.status import ConditionPatch, StatusPatch
from koord.operators.names import PLACEMENT
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


async def test_status_of_a_deleted_pod_is_dropped() -> None:
    """What may not be written is tried again and again, as rights come back; pods do not."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked.extend([line.split()[1]] if line.startswith(b"PATCH") else [])
            if line.startswith(b"Content-Length"):
                await reader.readexactly(2 + int(line.split()[1]))
                writer.write(FORBIDDEN)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with Client(Credentials(lambda: access)) as client:
        parts = Parts(client, Settings(), [PLACEMENT], keys=make_keys())
        writer = next(each for plural, each in parts.writers if plural == "pods")
        here, gone = make_pod("here").build(), make_pod("gone").build()
        parts.reader.state.upsert_pod(here)
        for pod in (here, gone):
            writer.submit(
                ref_of_pod(pod), StatusPatch((ConditionPatch("Placed", False, "x", "y"),))
            )
        task = asyncio.create_task(writer.run())
        async with asyncio.timeout(5):
            while not (writer.stats.gone and writer.stats.retried):  # noqa: ASYNC110 - counters
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    server.close()
    assert {path.split(b"/")[-2] for path in asked} == {b"here"}
