"""A stand-in for the API server, for what only reads: lists and watches of many objects, reviews.

    python -m benchmarks.api_stand_in --nodes 5000 --pods 50000 --units 10000

Its answers have the form of the real one's: pages, bookmarks, watches that end. Nothing is stored,
checked or written by others. Changes come from itself: ``POST /stand-in`` says how many per second.
Prints its port. Of the pods so many as ``units`` wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TEAMS: Final = 40
ADMIN: Final = "user-0"
"""May list everything; every other user the pods and quotas of the team of her number."""
GPU: Final = "nvidia.com/gpu"
_GROUPS: Final = "scheduling.sigs.k8s.io/v1alpha1"
PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
QUOTAS: Final = f"/apis/{_GROUPS}/elasticquotas"
_REMEMBERED: Final = 100_000
"""Events that a watch may continue from."""
_TICK_SECONDS: Final = 0.05
_BOUND_AFTER: Final = 30
"""How many pods later one that comes and goes has a node."""
_GONE_AFTER: Final = 200
_PROBE_SECONDS: Final = 0.7
_ENV: Final = [{"name": f"SETTING_{at}", "value": "x" * 24} for at in range(12)]
_MANAGED: Final = [{"manager": "kube-controller-manager", "operation": "Update", "time": None}] * 6


@dataclass
class Collection:
    """The objects of one kind as JSON, by key, and what happened to them."""

    revision: int = 1
    objects: dict[str, bytes] = field(default_factory=dict)
    events: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    pages: dict[str, list[bytes]] = field(default_factory=dict)

    def put(self, key: str, document: dict[str, Any]) -> bytes:
        self.revision += 1
        document["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[key] = json.dumps(document, separators=(",", ":")).encode()
        return self.objects[key]

    async def change(self, kind: str, key: str, document: dict[str, Any]) -> None:
        body = self.put(key, document)
        if kind == "DELETED":
            del self.objects[key]
        self.events.append((self.revision, b'{"type":"%s","object":%s}\n' % (kind.encode(), body)))
        async with self.changed:
            self.changed.notify_all()

    def list(self, limit: int, token: str) -> bytes:
        """Return one page, as of its first one."""
        rest = self.pages.pop(token) if token else list(self.objects.values())
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        more = f"{self.revision}-{len(rest)}-{time.monotonic_ns()}" if rest else ""
        if more and limit > 1:
            self.pages[more] = rest
        meta = json.dumps({"resourceVersion": str(self.revision), "continue": more}).encode()
        return b'{"metadata":%s,"items":[%s]}' % (meta, b",".join(page))

    async def follow(self, since: int, seconds: float) -> AsyncIterator[bytes]:
        """Yield events behind a revision, and a bookmark at the end."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left), self.changed:
                    while self.revision <= since:
                        await self.changed.wait()
            except TimeoutError:
                break
            yield b"".join(self._since(since))
            since = self.revision
        meta = {"metadata": {"resourceVersion": str(since)}}
        yield json.dumps({"type": "BOOKMARK", "object": meta}).encode() + b"\n"

    def _since(self, revision: int) -> list[bytes]:
        later = takewhile(lambda event: event[0] > revision, reversed(self.events))
        return [body for _, body in later][::-1]


class ApiStandIn:
    """Serves the collections, and changes pods."""

    def __init__(self, nodes: int, pods: int, units: int) -> None:
        self.collections: dict[str, Collection] = {}
        self.per_second = 0.0
        self.probes = False
        self._nodes = nodes
        for at in range(nodes):
            self.of(NODES).put(f"n{at:05}", make_node(at))
        for at in range(TEAMS):
            self.of(QUOTAS).put(f"team-{at:02}", make_quota(at))
        for at in range(pods - units):
            pod = make_pod(f"runs-{at:06}", at, gpus=int(at < 7 * nodes), node=at % nodes)
            self.of(PODS).put(f"runs-{at:06}", pod)
        for at in range(units):
            self.of(PODS).put(f"waits-{at:05}", make_pod(f"waits-{at:05}", at, gpus=8))

    def of(self, path: str) -> Collection:
        return self.collections.setdefault(path, Collection())

    def make_app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/stand-in", self._control)
        app.router.add_post("/apis/{group}/v1/{reviews}", self._review)
        app.router.add_get("/{path:.*}", self._read)
        return app

    async def _control(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        self.per_second, self.probes = wanted["changes"], wanted["probes"]
        return web.Response()

    async def _review(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        token = spec.get("token", "")
        if token:
            user = {"username": token, "groups": ["system:authenticated"]}
            return web.json_response({"status": {"authenticated": True, "user": user}})
        asked = spec.get("resourceAttributes", {})
        team = f"team-{int(spec['user'].rpartition('-')[2]) % TEAMS:02}"
        own = asked.get("namespace") == team and asked["resource"] in {"pods", "elasticquotas"}
        return web.json_response({"status": {"allowed": spec["user"] == ADMIN or own}})

    async def _read(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        if "watch" not in query and "limit" not in query:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        collection = self.of(request.path)
        if "watch" not in query:
            body = collection.list(int(query["limit"]), query.get("continue", ""))
            return web.Response(body=body, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since, seconds = int(query.get("resourceVersion") or 0), float(query["timeoutSeconds"])
        with suppress(ConnectionError):  # who watches has gone
            async for lines in collection.follow(since, seconds):
                await response.write(lines)
        return response

    async def run_changes(self) -> None:
        """Let pods come, get nodes and go, as often as was asked for."""
        changes, due = self._make_changes(), 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            due = due + self.per_second * _TICK_SECONDS if self.per_second else 0.0
            while due >= 1:
                await self.of(PODS).change(*next(changes))
                due -= 1

    def _make_changes(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for at in count():
            name = f"comes-{at:07}"
            yield "ADDED", name, make_pod(name, at)
            for before, kind in ((_BOUND_AFTER, "MODIFIED"), (_GONE_AFTER, "DELETED")):
                then = at - before
                if then >= 0:
                    name = f"comes-{then:07}"
                    yield kind, name, make_pod(name, then, node=then % self._nodes)

    async def run_probes(self) -> None:
        """Let a pod come whose name says when, and the one before it go."""
        last: tuple[str, dict[str, Any]] | None = None
        for at in count():
            await asyncio.sleep(_PROBE_SECONDS)
            if not self.probes:
                continue
            name = f"probe-{int(time.time() * 1000)}"
            pod = make_pod(name, at, gpus=8)
            await self.of(PODS).change("ADDED", name, pod)
            if last is not None:
                await self.of(PODS).change("DELETED", *last)
            last = name, pod


def make_node(at: int) -> dict[str, Any]:
    room = {"cpu": "128", "memory": "1024Gi", "pods": "110", GPU: "8"}
    labels = {"kubernetes.io/hostname": f"n{at:05}", "rack": f"r{at // 16}"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": f"n{at:05}", "uid": f"node-{at}", "labels": labels},
        "spec": {},
        "status": {"allocatable": room, "capacity": room, "conditions": [ready]},
    }


def make_quota(at: int) -> dict[str, Any]:
    name = f"team-{at:02}"
    return {
        "metadata": {"name": name, "namespace": name, "uid": f"quota-{at}", "generation": 1},
        "spec": {"min": {GPU: "100"}, "max": {GPU: "40000"}},
    }


def make_pod(name: str, at: int, *, gpus: int = 0, node: int | None = None) -> dict[str, Any]:
    """Make a pod of a team, of the size that pods have; without a node it waits."""
    team = f"team-{at % TEAMS:02}"
    requests = {"cpu": "100m", "memory": "64Mi", **({GPU: str(gpus)} if gpus else {})}
    resources = {"requests": requests, "limits": requests}
    container = {"name": "worker", "image": "registry.example.com/train:1", "resources": resources}
    gate = {"schedulingGates": [{"name": "operators.koordinator.sh/placement"}]}
    running = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return {
        "metadata": {
            "name": name,
            "namespace": team,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-25T08:00:00Z",
            "labels": {"quota.scheduling.koordinator.sh/name": team, "app": "train"},
            "managedFields": _MANAGED,
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{**container, "env": _ENV}],
            **(gate if node is None else {"nodeName": f"n{node:05}"}),
        },
        "status": {"phase": "Pending"} if node is None else running,
    }


async def serve(stand_in: ApiStandIn) -> None:
    runner = web.AppRunner(stand_in.make_app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.gather(stand_in.run_changes(), stand_in.run_probes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--units", type=int, default=10_000)
    options = parser.parse_args()

    async def run() -> None:
        await serve(ApiStandIn(options.nodes, options.pods, options.units))

    asyncio.run(run())


if __name__ == "__main__":
    main()
