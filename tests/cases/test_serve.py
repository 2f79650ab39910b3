"""``koord serve`` with the identity that we ship: tenants ask with their own tokens."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
from aiohttp import ClientSession
from tests.manifests.someone import create_account
from tests.operators.conftest import Operators, read_lease
from tests.support.fork_server import start_server

from koord.core.usage.segments import Window
from koord.see.app import BASE
from koord.store.feed import FeedAddress, FeedError, read_page
from koord.store.reading import StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster
    from tests.support.fork_server import ForkedProcess

    from koord.core.usage.segments import Segment
    from koord_sandbox import Sandbox

ROLES = Path(__file__).parents[2] / "manifests/overlays/serve/roles.yaml"
CONFIG = """\
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
see: {address: "127.0.0.1:0"}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  template:
    spec: {{restartPolicy: Never, containers: [{{name: c, image: example.com/c}}]}}
"""


class Serve:
    """A running ``koord serve``."""

    process: ForkedProcess

    def __init__(self, log: Path) -> None:
        self.log = log
        self.address = ""

    def wait_until_listening(self) -> None:
        while not (found := re.search(r"Serving answers.*port=(\d+)", self.log.read_text())):
            assert "Traceback" not in self.log.read_text(), self.log.read_text()
            time.sleep(0.05)
        self.address = f"http://127.0.0.1:{found[1]}"

    def ask(self, path: str, token: str = "", body: Any = None, **headers: str) -> tuple[int, Any]:
        given = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        data = None
        if body is not None:
            given["Content-Type"], data = "application/json", json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, given)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return response.status, json.load(response)
        except HTTPError as error:
            return error.code, json.load(error)

    def get(self, path: str, token: str) -> Any:
        status, document = self.ask(f"{BASE}/{path}", token)
        assert status == 200, document
        return document

    def wait_for_record(self, token: str, story: str) -> None:
        """Wait until a story has something of what the leader has recorded."""
        while not any(
            item["source"] == "Audit" for item in self.get(story, token)["value"]["items"]
        ):
            time.sleep(0.5)

    def act(self, path: str, token: str, **more: Any) -> str:
        """Try an action and carry it out, again if the operators write meanwhile; its version."""
        while True:
            status, answer = self.ask(path, token, {"dryRun": True, **more})
            if status == 200:
                version = answer["resourceVersion"]
                status, answer = self.ask(path, token, {"resourceVersion": version, **more})
                if status == 200:
                    return version
            assert status == 409, answer

    def wait_for_answer(self, token: str) -> None:
        while self.ask(f"{BASE}/queue", token)[0] == 503:
            time.sleep(0.1)

    def wait_for_row(self, token: str, name: str) -> Any:
        """Return the queue once it has a unit."""
        while True:
            status, document = self.ask(f"{BASE}/queue", token)
            if status == 200 and any(name in row["names"] for row in document["value"]["items"]):
                return document
            assert status in {200, 503}, document
            time.sleep(0.1)


@contextmanager
def run_serve(box: Sandbox, directory: Path, see: str = "", ends_with: int = 0) -> Iterator[Serve]:
    box.kubectl("apply", "-f", str(ROLES))
    config, log = directory / "serve.yaml", directory / "serve.log"
    config.write_text(CONFIG.replace("}", f"{see}}}"))
    log.touch()
    kubeconfig = box.kubeconfig_for("koord-system", "koord-serve")
    options = ["serve", "--kubeconfig", str(kubeconfig), "--config", str(config)]
    process = start_server().start(options, log)
    try:
        serve = Serve(log)
        serve.process = process
        serve.wait_until_listening()
        yield serve
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == ends_with, log.read_text()


def make_token(box: Sandbox, namespace: str, name: str, role: str = "view") -> str:
    create_account(box, namespace, name, [role])
    return box.kubectl("create", "token", name, f"--namespace={namespace}").strip()


@pytest.mark.slow
def test_a_token_that_is_revoked_ends_its_stream_within_a_minute(
    cluster: Cluster, tmp_path: Path
) -> None:
    box, name = cluster.box, cluster.namespace
    token = make_token(box, name, "someone")
    with run_serve(box, tmp_path) as serve:
        serve.wait_for_answer(token)
        url = f"{serve.address}{BASE}/stream?topic=queue"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=90) as stream:  # noqa: S310
            while not stream.readline().startswith(b"event: hello"):
                pass
            box.kubectl("delete", "serviceaccount", "someone", f"--namespace={name}")
            revoked_at = time.monotonic()
            while not (line := stream.readline()).startswith(b"event: bye"):
                assert line
            assert b"Unauthorized" in stream.readline()
            assert time.monotonic() - revoked_at <= 60


@pytest.mark.slow
def test_a_role_that_is_taken_away_hides_names_on_a_stream_within_a_minute(
    cluster: Cluster, tmp_path: Path
) -> None:
    box, name = cluster.box, cluster.namespace
    cluster.add_nodes(1)
    cluster.gang("big", 2)
    cluster.expect_group("big", "InsufficientNodes")
    token = make_token(box, name, "someone")
    with run_serve(box, tmp_path) as serve:
        serve.wait_for_row(token, f"{name}/big")
        url = f"{serve.address}{BASE}/stream?topic=queue"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=90) as stream:  # noqa: S310
            told = b""
            while f"{name}/big".encode() not in told:
                told = stream.readline()
            box.kubectl("delete", "rolebinding", "someone-view", f"--namespace={name}")
            taken_at = time.monotonic()
            is_hidden = False
            while not is_hidden:  # who may see other things is told all of it anew
                is_whole = stream.readline() == b"event: hello\n"
                is_hidden = is_whole and f"{name}/big".encode() not in stream.readline()
            assert time.monotonic() - taken_at <= 62  # and the second in which changes are told
        assert serve.ask(f"{BASE}/namespaces/{name}/explanations/podgroup/big", token)[0] == 404


def test_tenants_see_their_own_names_and_the_amounts_of_all(
    cluster: Cluster, tmp_path: Path
) -> None:
    box, name, other = cluster.box, cluster.namespace, f"{cluster.namespace}-b"
    box.create_namespace(other)
    cluster.add_nodes(1)
    cluster.gang("big", 2)
    cluster.expect_group("big", "InsufficientNodes")
    ann, bob = (make_token(box, each, "someone") for each in (name, other))
    with run_serve(box, tmp_path) as serve:
        mine = serve.wait_for_row(ann, f"{name}/big")
        theirs = serve.get("queue", bob)
        assert mine["asOf"]["source"] == "Live"
        assert "Hidden" in {gap["because"] for gap in theirs["gaps"]}
        (own,) = (row for row in mine["value"]["items"] if f"{name}/big" in row["names"])
        position = own["position"]
        (hidden,) = (row for row in theirs["value"]["items"] if row["position"] == position)
        assert hidden["names"] == [None]
        for amount in ("gpus", "pods", "gpusAhead", "priority"):
            assert hidden[amount] == own[amount]
        assert f"{name}/" not in json.dumps(theirs)
        path = f"namespaces/{name}/explanations/podgroup/big"
        assert serve.get(path, ann)["value"]["standing"] == "Waiting"
        serve.wait_for_record(ann, f"namespaces/{name}/stories/podgroup/big")
        status, refusal = serve.ask(f"{BASE}/{path}", bob)
        assert (status, refusal["error"]) == (404, "NotFound")
        none = serve.ask(f"{BASE}/{path}-none", bob)[1]["message"]
        assert refusal["message"] == none.replace("big-none", "big")
        assert serve.ask(f"{BASE}/queue")[0] == 401
        assert serve.ask(f"{BASE}/queue", "x")[0] == 401
        assert ann not in serve.log.read_text()


def test_a_job_is_held_and_released_with_the_rights_of_the_user(
    cluster: Cluster, tmp_path: Path
) -> None:
    box, name = cluster.box, cluster.namespace
    cluster.add_nodes(1)
    cluster.gang("big", 2)
    cluster.expect_group("big", "InsufficientNodes")
    ann = make_token(box, name, "ann", "edit")
    guest = make_token(box, name, "guest", "view")
    path = f"{BASE}/actions/namespaces/{name}/podgroup/big"
    with run_serve(box, tmp_path, ", actions: [hold, release, priority, retry]") as serve:
        serve.wait_for_answer(ann)
        assert serve.ask(path, guest)[1]["actions"] == []
        assert serve.ask(path, ann)[1]["actions"] == ["hold", "priority", "release", "retry"]
        for body in ({"dryRun": True}, {"resourceVersion": "1"}):
            status, refusal = serve.ask(f"{path}/hold", guest, body)
            assert (status, refusal["error"]) == (403, "Forbidden")
            assert f"system:serviceaccount:{name}:guest" in refusal["message"]
        assert serve.ask(f"{path}/hold", ann, {"dryRun": True})[0] == 200
        cluster.expect_group("big", "InsufficientNodes")
        version = serve.act(f"{path}/hold", ann)
        cluster.expect_group("big", "Held")
        stale = {"resourceVersion": version}
        assert serve.ask(f"{path}/release", ann, stale)[1]["error"] == "Conflict"
        serve.act(f"{path}/release", ann)
        cluster.expect_group("big", "InsufficientNodes")
        serve.act(f"{path}/priority", ann, priority=-5)
        while serve.wait_for_row(ann, f"{name}/big")["value"]["items"][-1]["priority"] != -5:
            time.sleep(0.1)
        serve.act(f"{path}/retry", ann)
        cluster.expect_group("big", "InsufficientNodes")
        job = JOB.format(name="sweep", namespace=name)
        box.kubectl("create", "-f", "-", stdin=job)
        for action, is_suspended in (("hold", True), ("release", False)):
            serve.act(f"{BASE}/actions/namespaces/{name}/job/sweep/{action}", ann)
            spec = json.loads(box.kubectl("get", "job", "sweep", "-n", name, "-o", "json"))["spec"]
            assert spec["suspend"] is is_suspended
    assert box.writes(f"system:serviceaccount:{name}:ann")
    writes = box.writes("system:serviceaccount:koord-system:koord-serve")
    assert {write.resource for write in writes} <= {"tokenreviews", "subjectaccessreviews"}


@pytest.mark.timeout(300)
def test_what_was_decided_is_kept_and_told_by_the_rights_of_who_asks(
    cluster: Cluster, tmp_path: Path
) -> None:
    box, name, other = cluster.box, cluster.namespace, f"{cluster.namespace}-b"
    box.create_namespace(other)
    cluster.add_nodes(1)
    cluster.gang("first", 1)
    cluster.expect_bound("first-0")
    cluster.gang("late", 2)
    cluster.expect_group("late", "InsufficientNodes")
    ann, bob = (make_token(box, each, "someone") for each in (name, other))
    path = tmp_path / "see.db"
    with run_serve(box, tmp_path, f', store: "sqlite:{path}"') as serve:
        serve.wait_for_answer(ann)
        story = f"namespaces/{name}/stories/podgroup/late"
        serve.wait_for_record(ann, story)
        assert serve.ask(f"{BASE}/{story}", bob)[0] == 404
        waits = serve.get("auditreport?since=1h", ann)["value"]["waits"]["longest"]
        assert f"{name}/late" in {wait["unit"] for wait in waits}
        theirs = serve.get("auditreport?since=1h", bob)
        assert theirs["value"]["waits"]["units"] >= 1
        assert f"{name}/" not in json.dumps(theirs)
        assert serve.ask(f"{BASE}/auditreport?namespace={name}", bob)[0] == 404
        assert serve.ask(f"{BASE}/auditreport?since=x", ann)[0] == 400
        decided = serve.get(f"decisions?namespace={name}", ann)
        assert "InsufficientNodes" in {row["what"] for row in decided["value"]["items"]}
        where = f"--namespace={name}"
        token = box.kubectl("create", "token", "someone", "--audience=koord-feed", where).strip()
        assert serve.ask(f"{BASE}/queue", token)[0] == 401
        while not any("first-0" in each.holder.pod for each in read_segments(path)):
            time.sleep(0.5)


def test_that_it_is_killed_disturbs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    box, name = cluster.box, cluster.namespace
    cluster.add_nodes(1)
    token = make_token(box, name, "someone")
    terms = read_lease(box)["leaseTransitions"]
    with run_serve(box, tmp_path, ends_with=-signal.SIGKILL) as serve:
        serve.wait_for_answer(token)
        serve.process.send_signal(signal.SIGKILL)
        serve.process.wait(timeout=10)
        for at in range(3):
            cluster.pod(f"after-{at}", gpus=1)
        cluster.expect_bound(*(f"after-{at}" for at in range(3)))
    assert cluster.operators.is_running()
    assert read_lease(box)["leaseTransitions"] == terms


METRICS = ROLES.parents[1] / "metrics"


@pytest.mark.timeout(300)
async def test_the_feed_of_another_machine_is_read_with_a_token_that_is_good_there_alone(
    quiet_cluster: Cluster, tmp_path: Path
) -> None:
    """The leader asks the API server; who may not read its feed, or is unknown, gets nothing."""
    box, address = quiet_cluster.box, find_own_address()
    box.kubectl("apply", "-f", str(ROLES))
    box.kubectl("apply", "-k", str(METRICS))
    leader = ListeningOperators(box, tmp_path, settings=FEED)
    leader.start()
    try:
        port = leader.wait_for_port()
        there = "--namespace=koord-system"
        box.kubectl("create", "serviceaccount", "nosy", there)
        good, plain, nosy = (
            box.kubectl("create", "token", *words, there).strip()
            for words in (
                ("koord-serve", "--audience=koord-feed"),
                ("koord-serve", "--audience=other"),
                ("nosy", "--audience=koord-feed"),
            )
        )
        source = FeedAddress(f"{address}:{port}")
        async with ClientSession() as session:
            for token, status in (("", "401"), ("x", "401"), (plain, "401"), (nosy, "403")):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                with pytest.raises(FeedError, match=f"answers {status}"):
                    await read_page(session, source, term=None, after=0, headers=headers)
            headers = {"Authorization": f"Bearer {good}"}
            page = await read_page(session, source, term=None, after=0, headers=headers)
            assert page.holder == read_lease(box)["holderIdentity"]
            context = ssl.create_default_context(cafile=str(box.ca_file))
            url = f"{box.server}/api/v1/namespaces/koord-system/pods"
            async with session.get(url, headers=headers, ssl=context) as answer:
                assert answer.status == 401
    finally:
        leader.stop()
        box.kubectl("delete", "-k", str(METRICS))
        box.kubectl("delete", "serviceaccount", "nosy", "--namespace=koord-system")


FEED = "metricsAuthorization: true\naudit: {feed: true}\n"


class ListeningOperators(Operators):
    """Operators that other machines reach."""

    def start(self) -> None:
        text = self._config.read_text()
        self._config.write_text(text.replace("127.0.0.1:0", "0.0.0.0:0"))
        super().start()

    def wait_for_port(self) -> int:
        """Return the port once it leads: before, there is no feed to read."""
        while "Ready to plan" not in (log := self.read_log()):
            assert self.is_running(), log
            time.sleep(0.05)
        found = re.search(r"Serving HTTP .*port=(\d+)", log)
        assert found is not None
        return int(found[1])


def find_own_address() -> str:
    """Return an address of this machine that is not its loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its loopback")
        address: str = probe.getsockname()[0]
    return address


def read_segments(path: Path) -> tuple[Segment, ...]:
    return StoreReader(path).segments(Window(0, 1 << 52)).rows
