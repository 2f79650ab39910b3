"""Answers through the API server itself, for an ordinary user, with the roles that we ship."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
import yaml
from cryptography import x509
from tests.cases.test_serve import make_token, run_serve

from koord.see.app import BASE
from koord_sandbox.credentials import Authority, User
from koord_sandbox.errors import KubectlError

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

    from koord_sandbox import Sandbox

OVERLAY = Path(__file__).parents[2] / "manifests/overlays/aggregation"
SERVICE = "koord-answers"


def make_objects(port: int, authority: Authority) -> list[dict[str, Any]]:
    """Return the APIService that we ship, and the way to a process of this machine."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": "koord-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }
    api_service = yaml.safe_load((OVERLAY / "api-service.yaml").read_text())
    api_service["spec"]["service"]["port"] = port
    api_service["spec"]["caBundle"] = base64.b64encode(authority.certificate).decode()
    return [service, api_service]


def write_certificate(folder: Path, authority: Authority) -> str:
    """Write what cert-manager would; return the setting that names it."""
    names = [x509.DNSName(f"{SERVICE}.koord-system.svc")]
    pair = authority.issue(User(SERVICE), names)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return f'tls: {{certFile: "{folder}/tls.crt", keyFile: "{folder}/tls.key"}}'


def find_port(log: Path) -> int:
    while not (found := re.search(r"Serving the aggregation layer.*port=(\d+)", log.read_text())):
        assert "Traceback" not in log.read_text(), log.read_text()
        time.sleep(0.05)
    return int(found[1])


def ask(box: Sandbox, path: str, token: str, **headers: str) -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(box.ca_file))
    given = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
    request = urllib.request.Request(f"{box.server}{path}", headers=given)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as response:  # noqa: S310
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, error.read()


@pytest.mark.timeout(300)
def test_an_ordinary_user_asks_the_api_server(cluster: Cluster, tmp_path: Path) -> None:
    box, name, other = cluster.box, cluster.namespace, f"{cluster.namespace}-b"
    box.create_namespace(other)
    cluster.add_nodes(1)
    cluster.gang("big", 2)
    cluster.expect_group("big", "InsufficientNodes")
    ann, bob = (make_token(box, each, "someone") for each in (name, other))
    authority = Authority("answers")
    settings = write_certificate(tmp_path, authority)
    box.kubectl("apply", "-f", str(OVERLAY / "roles.yaml"))
    with run_serve(box, tmp_path, f', {settings}, aggregationAddress: "127.0.0.1:0"') as serve:
        port = find_port(serve.log)
        objects = tmp_path / "objects.yaml"
        objects.write_text(yaml.safe_dump_all(make_objects(port, authority)))
        box.kubectl("apply", "-f", str(objects))
        try:
            box.kubectl(
                *("wait", "apiservice", "v1alpha1.answers.operators.koordinator.sh"),
                *("--for=condition=Available", "--timeout=60s"),
            )
            check_answers(box, (name, ann), bob)
            # Whoever goes through all that there is finds nothing, and can delete namespaces.
            assert "answers.operators" not in box.kubectl("api-resources")
            box.kubectl("delete", "namespace", other, "--timeout=60s")
        finally:
            box.kubectl("delete", "-f", str(objects), "--ignore-not-found")
            box.kubectl("delete", "-f", str(OVERLAY / "roles.yaml"), "--ignore-not-found")


def check_answers(box: Sandbox, own: tuple[str, str], bob: str) -> None:
    name, ann = own
    queue = f"{BASE}/queue"
    while ask(box, queue, ann)[0] != 200:
        time.sleep(0.1)
    kubeconfig = box.kubeconfig_for(name, "someone")
    told = json.loads(box.kubectl("--kubeconfig", str(kubeconfig), "get", "--raw", queue))
    assert any(f"{name}/big" in row["names"] for row in told["value"]["items"])
    explanation = f"{BASE}/namespaces/{name}/explanations/podgroup/big"
    assert ask(box, explanation, ann)[1]["value"]["standing"] == "Waiting"
    assert ask(box, explanation, bob)[0] == 404
    theirs = ask(box, queue, bob)[1]
    assert [None] in [row["names"] for row in theirs["value"]["items"]]
    # Who writes the headers of the API server is still who she is.
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    assert ask(box, explanation, bob, **forged)[0] == 404
    assert ask(box, queue, "")[0] in {401, 403}
    with pytest.raises(KubectlError, match="cannot delete"):
        box.kubectl("--kubeconfig", str(kubeconfig), "delete", "--raw", queue)
