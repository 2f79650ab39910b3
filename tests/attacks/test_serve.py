"""A tenant with tokens of her own lies to ``koord serve``, in objects and in requests.

She may edit one namespace, and has made accounts there that may only view it, only get pods, only
list pods. What others own is named so that it is found wherever it is told.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest
from tests.cases.test_serve import ROLES, Serve, make_token, run_serve
from tests.manifests.someone import create_account
from tests.operators.conftest import Cluster, make_pod, open_cluster

from koord.see.app import BASE
from koord.see.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Operators

    from koord_sandbox import Sandbox

pytestmark = pytest.mark.timeout(120)
SECRET = "zz-secret"  # noqa: S105 - no password
QUOTA = "quota.scheduling.koordinator.sh/name"
GROUPS = "gang.scheduling.koordinator.sh/groups"
VERSION = "scheduling.sigs.k8s.io/v1alpha1"
EVIL = "\x1b[31m<script>alert(1)</script>\u202e{{x}}%s"
"""What terminals, browsers, readers from right to left and templates would obey."""
FIND = f"{BASE}/queue?search=evil-gang"
MANY = 120
"""More than a page."""


class Scene:
    """What others have, what the tenant has made, and her tokens."""

    def __init__(self, box: Sandbox, victim: Cluster, serve: Serve) -> None:
        self.box, self.victim, self.serve = box, victim, serve
        self.theirs, self.own = victim.namespace, f"{victim.namespace}-evil"
        box.create_namespace(self.own)
        self.edit = make_token(box, self.own, "mallory", "edit")
        self.view = make_token(box, self.own, "viewer", "view")
        self.get = self._make_role("getter", "get")
        self.list = self._make_role("lister", "list")
        self.other = make_token(box, self.theirs, "ann", "view")

    def _make_role(self, name: str, verb: str) -> str:
        there = f"--namespace={self.own}"
        self.box.kubectl("create", "role", name, f"--verb={verb}", "--resource=pods", there)
        create_account(self.box, self.own, name, [])
        account = f"--serviceaccount={self.own}:{name}"
        self.box.kubectl("create", "rolebinding", name, f"--role={name}", account, there)
        return self.box.kubectl("create", "token", name, there).strip()

    def send(
        self, method: str, path: str, token: str = "", body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Return the status, the body and the headers of the first answer that is not 429."""
        address = urlsplit(self.serve.address).netloc
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        given = {**bearer, **{name.replace("_", "-"): text for name, text in headers.items()}}
        while True:
            with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
                connection.request(method, path, body, given)
                answer = connection.getresponse()
                if answer.status != 429:
                    return answer.status, answer.read(), answer.headers
            time.sleep(0.2)

    def make_account(self, name: str) -> str:
        """Return the token of a new account without any rights."""
        path = f"/api/v1/namespaces/{self.own}/serviceaccounts"
        self.box.client.create(path, {"metadata": {"name": name}})
        made = self.box.client.create(f"{path}/{name}/token", {"spec": {}})
        token: str = made["status"]["token"]
        return token


@pytest.fixture(scope="module")
def scene(
    operators_box: Sandbox, operators: Operators, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    box = operators_box
    if not operators.is_running():
        operators.start()
    with (
        open_cluster(box, operators) as victim,
        run_serve(box, tmp_path_factory.mktemp("serve")) as serve,
    ):
        victim.add_nodes(1)
        victim.gang(f"{SECRET}-gang", 2)
        victim.expect_group(f"{SECRET}-gang", "InsufficientNodes")
        made = Scene(box, victim, serve)
        lie(made)
        serve.wait_for_row(made.other, f"{made.theirs}/{SECRET}-gang")
        while b"evil-gang" not in made.send("GET", FIND, made.edit)[1]:
            time.sleep(0.2)
        yield made


def lie(scene: Scene) -> None:
    """Write all that the role ``edit`` lets her write, and that may mislead somebody."""
    client, own = scene.box.client, scene.own
    groups = f"/apis/{VERSION}/namespaces/{own}/podgroups"
    evil = {"example.com/a": EVIL, "operators.koordinator.sh/expected-runtime": EVIL}
    foreign = json.dumps([f"{own}/evil-gang", f"{scene.theirs}/{SECRET}-gang"])
    for name, says in (("evil-gang", evil), ("joins", {GROUPS: foreign})):
        meta = {"name": name, "namespace": own, "annotations": says}
        body = {"apiVersion": VERSION, "kind": "PodGroup", "metadata": meta}
        client.create(groups, {**body, "spec": {"minMember": 2}})
    maps = f"/api/v1/namespaces/{own}/configmaps"
    uid = client.create(maps, {"metadata": {"name": SECRET}})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": SECRET, "uid": uid}
    for name, options in (
        ("evil-0", {"group": "evil-gang", "annotations": evil}),
        ("joins-0", {"group": "joins"}),
        ("quota-0", {"labels": {QUOTA: f"{SECRET}-quota"}}),
        ("named-0", {"group": f"{SECRET}-gang"}),
    ):
        pod = make_pod(own, name, gpus=1, **options)
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        client.create(f"/api/v1/namespaces/{own}/pods", pod)
    forged = {"kind": "PodGroup", "namespace": own, "name": "evil-gang"}
    meta = {"name": "forged", "namespace": own}
    event = {"metadata": meta, "involvedObject": forged, "reason": "Forged", "message": EVIL}
    times = {"firstTimestamp": "0001-01-01T00:00:00Z", "lastTimestamp": "9999-12-31T23:59:59Z"}
    client.create(f"/api/v1/namespaces/{own}/events", {**event, **times})
    for at in range(MANY):
        body = {"apiVersion": VERSION, "kind": "PodGroup", "metadata": {"name": f"many-{at}"}}
        client.create(groups, {**body, "spec": {"minMember": 1 + at}})


def list_paths(namespace: str, kind: str, name: str) -> list[str]:
    """Return the paths of all answers to a GET, about what others have."""
    names = {"namespace": namespace, "kind": kind, "name": name}
    routes = (route.path for route in ROUTES if route.method == "GET")
    lists = [path.format(**names) for path in routes]
    filters = [f"{path}?namespace={namespace}" for path in ("queue", "decisions", "auditreport")]
    return [
        *lists,
        *filters,
        f"queue?quota={name}",
        f"queue?search={name}",
        f"auditreport?quota={name}",
    ]


def test_no_answer_names_what_others_have(scene: Scene) -> None:
    for token in (scene.edit, scene.view, scene.get, scene.list):
        for path in list_paths(scene.own, "podgroup", "joins"):
            status, body, headers = scene.send("GET", f"{BASE}/{path}", token)
            assert status in {200, 404}, (path, body)
            # What she has written herself stands in the conditions of her own objects.
            text = body.decode().replace(f"{scene.theirs}/{SECRET}-gang ", "")
            assert scene.theirs + "/" not in text.replace(scene.own + "/", ""), path
            assert b"\x1b" not in body
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "no-store" in headers["Cache-Control"]
            assert headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("kind", ["podgroup", "pod", "reservation"])
def test_what_exists_of_others_is_refused_as_what_does_not(scene: Scene, kind: str) -> None:
    there = f"{SECRET}-gang" if kind == "podgroup" else f"{SECRET}-gang-0"
    for token in (scene.edit, scene.get):
        told = []
        for name in (there, "x" * len(there)):
            answers = (
                scene.send("GET", f"{BASE}/{path}", token)
                for path in list_paths(scene.theirs, kind, name)
                if name in path
            )
            told.append(
                [(status, body.replace(name.encode(), b"NAME")) for status, body, _ in answers]
            )
        assert [each[0] for each in told[0]] == [each[0] for each in told[1]]
        of_objects = [[body for status, body in each if status == 404] for each in told]
        assert of_objects[0] == of_objects[1]


def test_an_account_sees_what_its_own_rights_let_it_see(scene: Scene) -> None:
    own = f"{BASE}/namespaces/{scene.own}"
    for token, lists, gets in (
        (scene.edit, True, True),
        (scene.view, True, True),
        (scene.list, True, True),
        (scene.get, False, True),
        (scene.other, False, False),
    ):
        _, body, _ = scene.send("GET", FIND, token)
        assert (f"{scene.own}/evil-gang" in body.decode()) == lists
        status, _, _ = scene.send("GET", f"{own}/explanations/pod/evil-0", token)
        assert (status == 200) == gets
    for token, sees_events in ((scene.view, True), (scene.list, False), (scene.get, False)):
        status, body, _ = scene.send("GET", f"{own}/stories/pod/evil-0", token)
        assert (status, "Forged" in body.decode()) == (200, sees_events)


def test_an_answer_for_one_is_not_taken_for_that_of_another(scene: Scene) -> None:
    _, _, headers = scene.send("GET", f"{BASE}/queue", scene.other)
    for tag in (headers["ETag"], f'{headers["ETag"].rpartition("-")[0]}"', "*"):
        status, body, _ = scene.send("GET", f"{BASE}/queue", scene.edit, If_None_Match=tag)
        assert (status, scene.theirs + "/" in body.decode()) == (200, False)


def test_only_a_token_for_the_api_server_tells_who_asks(scene: Scene) -> None:
    box, there = scene.box, f"--namespace={scene.own}"
    feed = box.kubectl("create", "token", "mallory", "--audience=koord-feed", there).strip()
    parts = scene.edit.split(".")
    made_up = ".".join([*parts[:2], parts[2][::-1]])
    for token in (feed, made_up, scene.edit + "x", "x" * 7000):
        assert scene.send("GET", f"{BASE}/queue", token)[0] == 401
    names = ("X_Remote_User", "X_Forwarded_User", "Impersonate_User")
    told = dict.fromkeys(names, "system:admin")
    assert scene.send("GET", f"{BASE}/queue", "", **told)[0] == 401
    assert scene.own in scene.send("GET", f"{BASE}/queue", scene.edit, **told)[1].decode()
    status, body, _ = scene.send("GET", "/session", scene.edit, **told)
    assert (status, json.loads(body)["user"]) == (200, f"system:serviceaccount:{scene.own}:mallory")
    address = urlsplit(scene.serve.address).netloc
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.putrequest("GET", f"{BASE}/queue")
        for token in (scene.edit, scene.other):
            connection.putheader("Authorization", f"Bearer {token}")
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_a_cookie_that_somebody_gives_is_nobody_s_session(scene: Scene) -> None:
    form = {"Content_Type": "application/x-www-form-urlencoded", "Cookie": "koord=fixed"}
    sent = f"token={quote(scene.other)}".encode()
    status, _, headers = scene.send("POST", "/session", "", sent, **form)
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert (status, cookie.startswith("koord="), "fixed" in cookie) == (303, True, False)
    assert scene.send("GET", f"{BASE}/queue", Cookie="koord=fixed")[0] == 401
    assert scene.send("GET", f"{BASE}/queue", Cookie=cookie)[0] == 200
    for origin in ("https://evil.example", "null", "http://["):
        assert scene.send("POST", "/session", "", sent, **form, Origin=origin)[0] == 403
        whatif = scene.send("POST", f"{BASE}/whatifs", "", b"{}", Cookie=cookie, Origin=origin)
        assert whatif[0] == 403
    sibling = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"}
    assert scene.send("GET", f"{BASE}/queue", Cookie=cookie, **sibling)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/queue?limit=" + "9" * 5000,
        f"{BASE}/queue?continue=" + "A" * 5000,
        f"{BASE}/queue?" + "&".join(f"a{at}=1" for at in range(900)),
        f"{BASE}/auditreport?since=" + "9" * 5000 + "d",
        f"{BASE}/stream?topic=queue(a%0Ab=1)",
        f"{BASE}/stream?" + "&".join(["topic=queue"] * 9),
        f"{BASE}/namespaces/%2e%2e%2f%2e%2e/stories/pod/..",
        f"{BASE}/namespaces/%00/explanations/pod/%ff",
        f"{BASE}/nodes/..%2f..%2f..%2fetc/passwd",
        "/" + "a/" * 3000,
    ],
    ids=lambda path: path[-24:],
)  # fmt: skip
def test_paths_that_make_no_sense_are_refused(scene: Scene, path: str) -> None:
    status, body, _ = scene.send("GET", path, scene.edit)
    assert status in {400, 401, 404, 414, 431}, body
    page = scene.send("GET", f"/page/{path.removeprefix(BASE)[:4000]}", scene.edit)[1]
    assert b"root:" not in page
    assert "Traceback" not in scene.serve.log.read_text()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join(['*' + chr(97 + at)] * 9)}]\n" for at in range(12)
)


@pytest.mark.parametrize(
    "body",
    [
        BOMB,
        "[" * 100_000,
        json.dumps({"edits": [{"submit": {"manifest": BOMB}}] * 32}),
        json.dumps({"edits": [{"patch": {"ref": f"quota/{SECRET}", "merge": {}}}] * 32}),
        json.dumps({"edits": [{"addNodes": {"like": "x", "count": 10**18}}]}),
        json.dumps({"shape": "9" * 100_000}),
        '{"edits": "\\ud800"}',
        "\xff",
    ],
    ids=["aliases", "depth", "texts", "patches", "nodes", "digits", "half a pair", "bytes"],
)
def test_bodies_that_make_no_sense_are_refused(scene: Scene, body: str) -> None:
    for path in ("whatifs", "room"):
        status, told, _ = scene.send("POST", f"{BASE}/{path}", scene.edit, body.encode("latin-1"))
        assert status in {400, 404, 413}, told
    assert scene.send("POST", "/session", "", body.encode("latin-1"))[0] in {400, 401, 413}
    assert scene.send("GET", f"{BASE}/queue", scene.other)[0] == 200


def test_a_tenant_with_many_accounts_and_connections_leaves_room_for_others(scene: Scene) -> None:
    address = urlsplit(scene.serve.address)
    opened: list[socket.socket] = []
    try:
        for at in range(300):
            idle = socket.create_connection((address.hostname, address.port), timeout=10)
            opened.append(idle)
            idle.sendall(b"GET /session HTTP/1.1\r\nHost: x\r\nX-A: "[: at % 40])
        statuses = []
        for at in range(10):
            token = scene.make_account(f"robot-{at}")
            for _ in range(4):
                follow = socket.create_connection((address.hostname, address.port), timeout=10)
                opened.append(follow)
                head = f"GET {BASE}/stream?topic=queue HTTP/1.1\r\nHost: {address.netloc}\r\n"
                follow.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
                statuses.append(follow.recv(12).decode().split()[1])
        assert statuses.count("200") == 25
        assert set(statuses[-3:]) == {"429"}
        assert scene.send("GET", f"{BASE}/queue", scene.other)[0] == 200
        assert scene.send("GET", "/readyz")[0] == 200
    finally:
        for each in opened:
            each.close()


def test_without_the_right_to_review_tokens_it_says_so(scene: Scene) -> None:
    """Last of all: afterwards the role is whole again."""
    box = scene.box
    token = scene.make_account("new")
    rules = json.loads(box.kubectl("get", "clusterrole", "koord-serve", "-o", "json"))["rules"]
    left = [rule for rule in rules if "tokenreviews" not in rule.get("resources", ())]
    patch: Any = json.dumps({"rules": left})
    box.kubectl("patch", "clusterrole", "koord-serve", "--type=merge", "-p", patch)
    try:
        status, at = 401, 0
        while status == 401:  # the API server has not heard of it yet
            status, body, _ = scene.send("GET", f"{BASE}/queue", f"{token}{(at := at + 1)}")
        assert (status, json.loads(body)["error"]) == (503, "NotReady")
        assert "tokenreviews" in json.loads(body)["message"]
    finally:
        box.kubectl("apply", "-f", str(ROLES))
