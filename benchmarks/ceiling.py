"""Places pods without planning: the maximum that the API server takes from a client like ours.

    python -m benchmarks.ceiling ORDER

It reads what the operators read and does their writes for every waiting pod, with the same
concurrency, to the next node in turn: no gangs, no fitting, no status. No scheduler can be faster,
so the rates of others are given as a share of this one.
"""

import asyncio
import sys
from itertools import cycle
from pathlib import Path

import msgspec

from benchmarks.objects import (
    GROUPS_PATH,
    make_annotations,
    make_binding,
    make_release,
    pods_path,
)
from benchmarks.wire import JSON_PATCH, Caller, Connection, body_of
from koord.kube.config import Access, load_kubeconfig

PODS_PATH = "/api/v1/pods"
PAGE = 500
READY = "ready"


class Order(msgspec.Struct, frozen=True):
    """The pods to place, and their nodes."""

    kubeconfig: str
    namespace: str
    size: int
    """Members per gang; 1 for single pods."""
    gated: bool
    in_flight: int
    nodes: tuple[str, ...]
    has_devices: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "rest": "continue"}):
    resource_version: str = ""
    rest: str = ""


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Pod]


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_page = msgspec.json.Decoder(_Page)
_event = msgspec.json.Decoder(_Event)


def main() -> None:
    order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
    asyncio.run(Placer(order, load_kubeconfig(order.kubeconfig)).run())


class Placer:
    """Reads, and writes with bounded concurrency."""

    def __init__(self, order: Order, access: Access) -> None:
        self._order = order
        self._caller = Caller(access)
        self._nodes = cycle(order.nodes)
        self._seen: asyncio.Queue[_Meta] = asyncio.Queue()
        self._opened = asyncio.Semaphore(0)

    async def run(self) -> None:
        """Place all pods, then wait to be ended."""
        revision = await self._list()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(PODS_PATH, revision))
            group.create_task(self._watch("/api/v1/nodes", ""))
            group.create_task(self._watch(GROUPS_PATH, ""))
            # Opened beforehand, like the connections of the operators.
            for _ in range(self._order.in_flight):
                group.create_task(self._work())
            for _ in range(3 + self._order.in_flight):
                await self._opened.acquire()
            sys.stdout.write(f"{READY}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()  # until it is ended: its usage is read first

    async def _list(self) -> str:
        """List the existing pods; return the resource version to watch from."""
        async with await self._caller.connect() as connection:
            rest = revision = ""
            while True:
                query = f"?limit={PAGE}" + (f"&continue={rest}" if rest else "")
                path = pods_path(self._order.namespace) + query
                answer = await connection.send(self._caller.make_request("GET", path))
                page = _page.decode(body_of(answer))
                for pod in page.items:
                    self._seen.put_nowait(pod.metadata)
                revision, rest = page.metadata.resource_version, page.metadata.rest
                if not rest:
                    return revision

    async def _watch(self, path: str, revision: str) -> None:
        """Read what the operators read; only new pods matter."""
        while True:
            async for lines in self._caller.follow(path, revision):
                if not lines:
                    self._opened.release()
                    continue
                events = _event.decode_lines(lines)
                revision = events[-1].object.metadata.resource_version
                if path == PODS_PATH:
                    self._take(events)

    def _take(self, events: list[_Event]) -> None:
        for event in events:
            if event.type == "ADDED" and event.object.metadata.namespace == self._order.namespace:
                self._seen.put_nowait(event.object.metadata)

    async def _work(self) -> None:
        """Place pods one by one."""
        async with await self._caller.connect() as connection:
            # As the operators do: the server closes connections that were never used.
            await connection.send(self._caller.make_request("GET", "/version"))
            self._opened.release()
            while True:
                await self._place(connection, await self._seen.get())

    async def _place(self, connection: Connection, pod: _Meta) -> None:
        order, node = self._order, next(self._nodes)
        path = f"{pods_path(order.namespace)}/{pod.name}"
        group = f"gang-{pod.name.split('-')[1]}" if order.size > 1 else ""
        annotations = make_annotations(node, group, order.size, has_devices=order.has_devices)
        if order.gated:
            patch = make_release(pod.uid, annotations)
            await connection.send(self._caller.make_request("PATCH", path, patch, JSON_PATCH))
        binding = make_binding(order.namespace, pod.name, pod.uid, node, annotations)
        await connection.send(self._caller.make_request("POST", f"{path}/binding", binding))


if __name__ == "__main__":
    main()
