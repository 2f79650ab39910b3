"""Requests that the OpenAPI document allows, and many that it does not: answers are as it says."""

import asyncio
import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.see.test_app import KEY, Client, open_server
from tests.support.json_schema import Schemas
from tests.support.laws import examples

from koord.see.app import BASE
from koord.see.openapi import make_document
from koord.see.routes import ROUTES

DOCUMENT = make_document(ROUTES, BASE)
SCHEMAS = Schemas(DOCUMENT)
OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
NAMES = st.one_of(
    st.sampled_from(["default", "train", "train-0", "w1", "runs", "n0", "a", "podgroup", "pod"]),
    st.text(min_size=1, max_size=20),
    st.sampled_from(["..", "%2e%2e", "\x1b[31m", "<b>", "\u202e", "x" * 300, "null", "-1"]),
)
VALUES = st.one_of(
    NAMES, st.sampled_from(["1", "0", "-1", "1000", "1001", "9" * 30, "1e3", "Room", "position"])
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
EDITS = st.fixed_dictionaries(
    {},
    optional={
        "cordon": st.fixed_dictionaries({"nodes": st.lists(NAMES, max_size=2) | JSON}),
        "drain": st.fixed_dictionaries({"nodes": st.lists(NAMES, max_size=2)}),
        "addNodes": st.fixed_dictionaries({"like": NAMES, "count": st.integers(-1, 3) | JSON}),
        "delete": st.fixed_dictionaries({"ref": NAMES | JSON}),
        "patch": st.fixed_dictionaries({"ref": NAMES, "merge": JSON}),
        "submit": st.fixed_dictionaries({"manifest": NAMES | JSON}),
    },
)
BODIES = st.one_of(
    JSON,
    st.fixed_dictionaries({"shape": VALUES | st.sampled_from(["8", "4x8", "1x1"])}),
    st.fixed_dictionaries({"edits": st.lists(EDITS, max_size=3)}),
)


class Unlimited:
    """Lets all requests pass: how many may come is another test's."""

    def take(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def client(loop: asyncio.Runner) -> Iterator[Client]:
    opened = open_server()
    client = loop.run(opened.__aenter__())
    client.server._rates = Unlimited()  # type: ignore[assignment]
    yield client
    loop.run(opened.__aexit__(None, None, None))


async def send(client: Client, method: str, path: str, body: bytes | None) -> tuple[int, object]:
    headers = {"Authorization": f"Bearer {KEY}"}
    url = f"{client.root}{path}"
    async with client.session.request(method, url, data=body, headers=headers) as response:
        text = await response.text()
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return response.status, json.loads(text)


def check(operation: dict, status: int, document: object, *, is_sparse: bool) -> None:
    described = operation["responses"].get(str(status))
    assert described is not None, (status, document)
    schema = described["content"]["application/json"]["schema"]
    problems = list(SCHEMAS.problems(document, schema))
    if is_sparse:  # fields that nobody asked for
        problems = [problem for problem in problems if ": no " not in problem]
    assert problems == [], document


fuzz = settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize(
    "request_form", OPERATIONS, ids=[each[2]["operationId"] for each in OPERATIONS]
)
@given(data=st.data())
@settings(fuzz, max_examples=examples(25))
def test_answers_are_as_the_document_says(loop, client, request_form, data):
    path, method, operation = request_form
    query = {}
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            value = data.draw(NAMES, name)
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        elif data.draw(st.booleans(), f"with {name}"):
            allowed = parameter["schema"].get("enum")
            values = VALUES if allowed is None else st.sampled_from(allowed) | VALUES
            query[name] = data.draw(values, name)
    body = None
    if "requestBody" in operation:
        body = json.dumps(data.draw(BODIES, "body")).encode()
    path += f"?{urlencode(query, errors='surrogatepass')}" if query else ""
    status, document = loop.run(send(client, method, path, body))
    check(operation, status, document, is_sparse="fields" in query)


EXISTING = {
    "Explanation": {"namespace": "default", "kind": "podgroup", "name": "train"},
    "Remedies": {"namespace": "default", "kind": "pod", "name": "w1"},
    "Quota": {"name": "a"},
    "Node": {"name": "n0"},
}
ROOM = {"shape": "4x8", "namespace": "default", "quota": "a"}
DRAIN = {"edits": [{"drain": {"nodes": ["n0"]}}, {"addNodes": {"like": "n0", "count": 2}}]}


@pytest.mark.parametrize(
    "request_form", OPERATIONS, ids=[each[2]["operationId"] for each in OPERATIONS]
)
def test_answers_about_what_exists_are_as_the_document_says(loop, client, request_form):
    path, method, operation = request_form
    names = EXISTING.get(operation["operationId"], {})
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    if "{" in path:
        return  # not of this cluster
    body = ROOM if path.endswith("room") else DRAIN
    sent = json.dumps(body).encode() if method == "post" else None
    status, document = loop.run(send(client, method, path, sent))
    assert status == 200, document
    check(operation, status, document, is_sparse=False)


@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@fuzz
def test_bodies_that_are_no_documents_are_refused(loop, client, body):
    for path in ("room", "whatifs"):
        status, document = loop.run(send(client, "post", f"{BASE}/{path}", body))
        assert status in {200, 400}, document


@given(st.lists(EDITS, max_size=3))
@settings(fuzz, max_examples=examples(25))
def test_what_if_changes_nothing(loop, client, edits):
    before = loop.run(client.get(f"{BASE}/queue"))[1]["value"]
    loop.run(send(client, "post", f"{BASE}/whatifs", json.dumps({"edits": edits}).encode()))
    client.source.cluster.state.refresh()
    loop.run(client.server.snapshots.read_once())
    assert loop.run(client.get(f"{BASE}/queue"))[1]["value"] == before


def test_the_checker_finds_what_is_wrong():
    schema = {"$ref": "#/components/schemas/Error"}
    good = {"error": "X", "message": "m", "retryAfterSeconds": None}
    assert list(SCHEMAS.problems(good, schema)) == []
    assert list(SCHEMAS.problems({**good, "error": 1}, schema)) == ["$.error: 1 is no string"]
    assert list(SCHEMAS.problems({"error": "X", "message": "m"}, schema)) == [
        "$: no retryAfterSeconds"
    ]
    assert list(SCHEMAS.problems(True, {"type": "integer"}))
    assert list(SCHEMAS.problems("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]}))
    with pytest.raises(NotImplementedError):
        list(SCHEMAS.problems(1, {"multipleOf": 2}))
