"""Writes before a binding, on a real API server."""

import asyncio
import secrets
from typing import Any

from koord.core.model.plan import ObjectWrite
from koord.kube.client import Client
from koord.kube.object_writer import ObjectWriter
from koord.kube.outcomes import Done, ObjectChanged


async def test_fields_are_set_taken_back_and_not_overwritten(client: Client) -> None:
    writer, name = ObjectWriter(client, asyncio.Semaphore(2)), f"x-{secrets.token_hex(4)}"
    path = f"/api/v1/namespaces/default/configmaps/{name}"

    async def show() -> tuple[Any, Any]:
        found = await client.get(path, dict[str, Any])
        return found.get("data"), found["metadata"].get("annotations")

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await client.post("/api/v1/namespaces/default/configmaps", body)
    change = ObjectWrite(path, {"/data/port": "7", "/metadata/annotations/a.b~1c": "n0"})
    assert await asyncio.gather(writer.write(change), writer.write(change)) == [Done(), Done()]
    assert await show() == ({"port": "7"}, {"a.b/c": "n0"})
    other = ObjectWrite(path, {"/data/port": "8"}, {"/data/port": "6"})
    assert await writer.write(other) == ObjectChanged(path)
    assert await writer.write(change.undone) == Done()
    assert await show() == (None, None)
