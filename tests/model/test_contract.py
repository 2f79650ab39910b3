"""The model server answers like a real API server: same requests, same statuses.

Requests are drawn at random from everything that anybody sends to the model. After each of them,
the object must look the same on both, and in the end both watches must tell the same story.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.model.objects import (
    GPU,
    NAMESPACE,
    OTHER_GATE,
    OTHER_SCHEDULER,
    PodPlan,
    condition_of,
    gates_of,
    make_node,
    make_pod_group,
    node_of,
)
from tests.model.quotas import PATH as QUOTAS_PATH
from tests.model.quotas import make_quota
from tests.model.server import REQUIRED, Request, Server, parse_path
from tests.model.store import NODES, POD_GROUPS, PODS, QUOTAS, Obj, decode

from koord.api.keys import operators
from koord.domains import gang, placement
from koord.kube.client import Client, Media
from koord.kube.config import find_credentials
from koord.kube.errors import ApiError
from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
REQUESTS = 500
GROUPS = gang.POD_GROUPS.path.replace("podgroups", f"namespaces/{NAMESPACE}/podgroups")
PATHS = {
    PODS: f"/api/v1/namespaces/{NAMESPACE}/pods",
    NODES: placement.NODES.path,
    POD_GROUPS: GROUPS,
    QUOTAS: QUOTAS_PATH,
}
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
ZONE = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}


class ModelSide:
    """The model server, called directly."""

    def __init__(self) -> None:
        self.server = Server(lambda: 1_800_000_000.0)

    async def ask(self, request: Request) -> tuple[int, Any]:
        answer = self.server.handle(request)
        return answer.status, decode(answer.body)

    async def story(self, kind: str, _since: str) -> list[tuple[str, str]]:
        events = self.server.store.since(kind, 1)
        return [(one.type, one.obj["metadata"]["name"]) for one in events or ()]


@dataclass
class RealSide:
    """A real API server, over HTTP."""

    client: Client

    async def ask(self, request: Request) -> tuple[int, Any]:
        try:
            body = await self.client.request(
                request.method,
                request.path,
                body=request.body,
                media=Media(request.media),
                params=request.params,
            )
        except ApiError as error:
            return error.status, {"said": str(error)}
        return 0, json.loads(body)  # the client does not return which 2xx status it was

    async def story(self, kind: str, since: str) -> list[tuple[str, str]]:
        lines = b""
        path = PATHS[kind]
        async with self.client.watch(path, {"resourceVersion": since}, silence=5.0) as read:
            while True:
                try:
                    async with asyncio.timeout(1.0):
                        lines += await read()
                except TimeoutError:
                    break
        events = [json.loads(line) for line in lines.splitlines()]
        return [(one["type"], one["object"]["metadata"]["name"]) for one in events]


@dataclass
class Draw:
    """Draws requests; ``uids`` are those of one server by object name."""

    rng: random.Random
    uids: dict[tuple[str, str], str] = field(default_factory=dict)

    def request(self) -> Callable[[dict[tuple[str, str], str]], Request]:
        """Return a request as a function of the uids of one server."""
        kind = self.rng.choices((PODS, NODES, POD_GROUPS, QUOTAS), (8, 1, 2, 1))[0]
        name = self.rng.choice(("p", "q")) if kind == PODS else "n"
        make = self.rng.choice(_MAKERS[kind])
        state = self.rng.getstate()

        def for_side(uids: dict[tuple[str, str], str]) -> Request:
            rng = random.Random()
            rng.setstate(state)
            return make(rng, f"{PATHS[kind]}/{name}", name, uids.get((kind, name), "none"))

        self.rng.random()
        return for_side


def uid_of(rng: random.Random, uid: str) -> str:
    return rng.choice((uid, uid, uid, "11111111-2222-3333-4444-555555555555"))


def create_pod(rng: random.Random, path: str, name: str, _uid: str) -> Request:
    plan = PodPlan(
        name,
        gated=rng.random() < 0.7,
        other_gate=rng.random() < 0.2,
        scheduler=rng.choice((operators.SCHEDULER_NAME, OTHER_SCHEDULER)),
        finalizer=rng.random() < 0.2,
        node=rng.choice(("", "", "", "n")),
        gang=rng.choice(("", "n")),
    )
    body = plan.render()
    del body["spec"]["priority"]  # needs a PriorityClass
    if rng.random() < 0.3:
        terms = {"nodeSelectorTerms": [ZONE]}
        body["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: terms}}
    return Request("POST", path.rpartition("/")[0], body)


def release(rng: random.Random, path: str, _name: str, uid: str) -> Request:
    """Patch as the binder does, and in invalid ways."""
    operations: list[Obj] = [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(rng, uid)},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": operators.PLACEMENT_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    if rng.random() < 0.5:
        operations += [
            {"op": "test", "path": "/metadata/annotations", "value": None},
            {"op": "add", "path": "/metadata/annotations", "value": {operators.PLAN: "x"}},
        ]
    else:
        key = operators.PLAN.replace("/", "~1")
        operations.append({"op": "add", "path": f"/metadata/annotations/{key}", "value": "y"})
    required = {"nodeSelectorTerms": [PIN]}
    terms = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    operations += rng.choice(
        (
            [],
            [
                {"op": "test", "path": "/spec/affinity", "value": None},
                {
                    "op": "add",
                    "path": "/spec/affinity",
                    "value": {"nodeAffinity": {REQUIRED: required}},
                },
            ],
            [
                {"op": "test", "path": f"{terms}/0/matchFields", "value": None},
                {"op": "add", "path": f"{terms}/0/matchFields", "value": PIN["matchFields"]},
            ],
            [{"op": "add", "path": f"{terms}/0/matchFields/-", "value": PIN["matchFields"][0]}],
        )
    )
    return Request("PATCH", path, operations, Media.JSON_PATCH)


def change_terms(rng: random.Random, path: str, _name: str, _uid: str) -> Request:
    """Change the required affinity without changing the gates."""
    lists = ([], [PIN], [ZONE], [PIN, ZONE], [{**ZONE, **PIN}])
    terms = {"nodeSelectorTerms": rng.choice(lists[1:])}
    body = {"spec": {"affinity": {"nodeAffinity": {REQUIRED: terms}}}}
    return Request("PATCH", path, body, Media.MERGE_PATCH)


def bind(rng: random.Random, path: str, name: str, uid: str) -> Request:
    meta: Obj = {"name": name, "namespace": NAMESPACE}
    if rng.random() < 0.9:
        meta["uid"] = uid_of(rng, uid)
    if rng.random() < 0.5:
        meta["annotations"] = {operators.PLAN: "z"}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": meta,
        "target": {"apiVersion": "v1", "kind": "Node", "name": rng.choice(("n", "m"))},
    }
    return Request("POST", f"{path}/binding", body)


def report(rng: random.Random, path: str, name: str, uid: str) -> Request:
    kind = rng.choice((operators.PLACED, "PodScheduled"))
    condition = {"type": kind, "status": rng.choice(("True", "False")), "reason": "R"}
    status: Obj = {"conditions": [condition]}
    if rng.random() < 0.3:
        status["phase"] = rng.choice(("Running", "Succeeded"))
    meta = {"name": name, "uid": uid_of(rng, uid)}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}
    return Request("PATCH", f"{path}/status", body, Media.STRATEGIC_MERGE_PATCH)


def delete(rng: random.Random, path: str, _name: str, uid: str) -> Request:
    options: Obj = {}
    if rng.random() < 0.5:
        options["preconditions"] = {"uid": uid_of(rng, uid)}
    if rng.random() < 0.5:
        options["gracePeriodSeconds"] = 0
    return Request("DELETE", path, options)


def evict(rng: random.Random, path: str, name: str, uid: str) -> Request:
    options: Obj = {"preconditions": {"uid": uid_of(rng, uid)}}
    if rng.random() < 0.5:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "deleteOptions": options,
    }
    return Request("POST", f"{path}/eviction", body)


def merge_pod(rng: random.Random, path: str, _name: str, _uid: str) -> Request:
    body = rng.choice(
        (
            {"metadata": {"finalizers": None}},
            {"spec": {"nodeName": "n"}},
            {"spec": {"schedulingGates": [{"name": operators.PLACEMENT_GATE}]}},
            {
                "spec": {
                    "schedulingGates": [{"name": OTHER_GATE}, {"name": operators.PLACEMENT_GATE}]
                }
            },
            {"spec": {"schedulingGates": None}},
            {"spec": {"schedulerName": "x"}},
            {"metadata": {"labels": {"l": rng.choice("ab")}}},
            {"metadata": {"annotations": {"a": rng.choice("ab")}}},
            {"metadata": {"annotations": None}},
        )
    )
    return Request("PATCH", path, body, Media.MERGE_PATCH)


def look(_rng: random.Random, path: str, _name: str, _uid: str) -> Request:
    return Request("GET", path)


def create_node(rng: random.Random, path: str, name: str, _uid: str) -> Request:
    return Request("POST", path.rpartition("/")[0], make_node(name, rng.choice((4, 8))))


def merge_node(rng: random.Random, path: str, _name: str, _uid: str) -> Request:
    body = {"spec": {"unschedulable": rng.choice((True, None))}}
    return Request("PATCH", path, body, Media.MERGE_PATCH)


def resize_node(rng: random.Random, path: str, name: str, _uid: str) -> Request:
    body = {"status": make_node(name, rng.choice((4, 8)))["status"]}
    return Request("PATCH", f"{path}/status", body, Media.STRATEGIC_MERGE_PATCH)


def create_group(rng: random.Random, path: str, name: str, _uid: str) -> Request:
    minimum = rng.choice((0, 1, 3))
    policy = rng.choice(("", "only-waiting"))
    return Request("POST", path.rpartition("/")[0], make_pod_group(name, minimum, (), policy))


def merge_group(rng: random.Random, path: str, _name: str, _uid: str) -> Request:
    body = {"spec": {"minMember": rng.choice((0, 2, 5))}}
    return Request("PATCH", path, body, Media.MERGE_PATCH)


def apply_group(rng: random.Random, path: str, name: str, uid: str) -> Request:
    kinds = rng.sample(("A", "B", "C"), rng.randint(0, 2))
    conditions = [
        {"type": kind, "status": rng.choice(("True", "False")), "reason": rng.choice("RS")}
        | {"lastTransitionTime": "2030-01-01T00:00:00Z", "message": "m"}
        for kind in kinds
    ]
    status: Obj = {"conditions": conditions} if conditions else {}
    if rng.random() < 0.5:
        status["phase"] = rng.choice(("Pending", "Running"))
    if rng.random() < 0.5:
        members = rng.sample(("total", "present", "bound"), 2)
        status["members"] = {name: rng.randrange(3) for name in members}
    body = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "uid": uid_of(rng, uid)},
        "status": status,
    }
    params = {"fieldManager": rng.choice(("one", "two")), "force": "true"}
    return Request("PATCH", f"{path}/status", body, Media.APPLY_PATCH, params)


def create_quota(rng: random.Random, path: str, name: str, _uid: str) -> Request:
    body = make_quota(name, 0, rng.choice((4, 8)), {"parent": "q"})
    return Request("POST", path.rpartition("/")[0], body)


def merge_quota(rng: random.Random, path: str, _name: str, _uid: str) -> Request:
    body = {"spec": {"max": {GPU: rng.choice(("4", "8"))}}}
    return Request("PATCH", path, body, Media.MERGE_PATCH)


_MAKERS = {
    PODS: (
        *(create_pod, create_pod, release, release, change_terms, bind, bind, report),
        *(delete, evict, merge_pod, merge_pod, look),
    ),
    NODES: (create_node, create_node, merge_node, resize_node, delete, look),
    POD_GROUPS: (create_group, create_group, merge_group, apply_group, apply_group, delete, look),
    QUOTAS: (create_quota, create_quota, merge_quota, merge_quota, delete, look),
}


def view(kind: str, obj: Obj) -> Obj:
    """Return the fields that are compared."""
    if not obj:
        return {}
    meta, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
    conditions = status.get("conditions") or ()
    seen: Obj = {
        "labels": meta.get("labels"),
        "annotations": meta.get("annotations"),
        "finalizers": meta.get("finalizers"),
        "is deleted": "deletionTimestamp" in meta,
        "conditions": sorted((one["type"], one["status"], one.get("reason")) for one in conditions),
        "phase": status.get("phase"),
        "members": status.get("members"),
    }
    if kind == PODS:
        scheduled = condition_of(obj, "PodScheduled") or {}
        seen |= {
            "gates": gates_of(obj),
            "node": node_of(obj),
            "scheduler": spec["schedulerName"],
            "affinity": spec.get("affinity"),
            "scheduled": scheduled.get("status"),
        }
    elif kind == NODES:
        allocatable = status["allocatable"]
        seen |= {"unschedulable": spec.get("unschedulable"), "allocatable": allocatable}
        del seen["conditions"], seen["phase"], seen["members"]
    elif kind == POD_GROUPS:
        seen |= {"generation": meta["generation"], "min": spec["minMember"]}
    else:
        seen |= {"generation": meta["generation"], "spec": spec}
    return seen


@pytest.fixture(scope="module")
def bare_box() -> Iterator[Sandbox]:
    """An API server for this module only."""
    with Sandbox(components=[]) as box:
        box.apply(ROOT / "crds")
        box.create_namespace(NAMESPACE)
        yield box


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
async def test_same_requests_get_same_answers(bare_box: Sandbox, seed: int) -> None:
    async with Client(find_credentials(str(bare_box.kubeconfig))) as client:
        model, real = ModelSide(), RealSide(client)
        await clear(real)
        since = {kind: await revision(client, PATHS[kind]) for kind in PATHS}
        draw = Draw(random.Random(seed))
        uids: tuple[dict[tuple[str, str], str], ...] = ({}, {})
        for _ in range(REQUESTS):
            made = draw.request()
            requests = tuple(made(side) for side in uids)
            statuses = [
                await side.ask(one) for side, one in zip((model, real), requests, strict=True)
            ]
            said = [status if status >= 300 else 0 for status, _ in statuses]
            assert said[0] == said[1], (requests[1], statuses)
            await compare(model, real, requests, uids)
        for kind in PATHS:
            assert await model.story(kind, "") == await real.story(kind, since[kind]), kind


async def compare(
    model: ModelSide,
    real: RealSide,
    requests: tuple[Request, ...],
    uids: tuple[dict[tuple[str, str], str], ...],
) -> None:
    """Compare the object on both servers, and store its uids."""
    target = parse_path(requests[0].path)
    kind, name = target.kind, target.name or requests[0].body["metadata"]["name"]
    path = f"{PATHS[kind]}/{name}"
    found = [await side.ask(Request("GET", path)) for side in (model, real)]
    objects = [obj if status < 300 else {} for status, obj in found]
    assert view(kind, objects[0]) == view(kind, objects[1]), requests[1]
    for side, obj in zip(uids, objects, strict=True):
        side.pop((kind, name), None)
        if obj:
            side[kind, name] = obj["metadata"]["uid"]


async def revision(client: Client, path: str) -> str:
    return json.loads(await client.list(path))["metadata"]["resourceVersion"]


async def clear(real: RealSide) -> None:
    for path in PATHS.values():
        for name in ("p", "q", "n"):
            finalizers = {"metadata": {"finalizers": None}}
            await real.ask(Request("PATCH", f"{path}/{name}", finalizers, Media.MERGE_PATCH))
            await real.ask(Request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0}))
