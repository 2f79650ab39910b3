"""A ServiceAccount that sends arbitrary requests, to test what is refused."""

import http.client
import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from koord_sandbox import Sandbox

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    """By their names in lower case."""
    body: Any

    @property
    def message(self) -> str:
        return self.body.get("message", "") if isinstance(self.body, dict) else ""


class Someone:
    """Sends requests as an existing ServiceAccount."""

    def __init__(self, box: Sandbox, namespace: str, account: str) -> None:
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        kubeconfig = box.kubeconfig_for(namespace, account).read_text(encoding="utf-8")
        self._token = yaml.safe_load(kubeconfig)["users"][0]["user"]["token"]
        context = ssl.create_default_context(cafile=str(box.ca_file))
        address = urlsplit(box.server).netloc
        self._connection = http.client.HTTPSConnection(address, timeout=30, context=context)

    def send(
        self, method: str, path: str, body: Any = None, media: str = JSON, **headers: str
    ) -> Answer:
        self._connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Authorization": f"Bearer {self._token}", "Content-Type": media, **headers},
        )
        answer = self._connection.getresponse()
        raw = answer.read()
        # The API server closes what was idle for 90 s, and the tests of one module can leave a
        # user idle for longer: the next request opens a connection of its own.
        self._connection.close()
        try:
            decoded = json.loads(raw)
        except ValueError:
            decoded = raw.decode()
        received = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, received, decoded)

    def get_pod(self, name: str) -> dict[str, Any]:
        return self.send("GET", f"{self.pods}/{name}").body

    def close(self) -> None:
        self._connection.close()


def create_account(box: Sandbox, namespace: str, name: str, roles: Iterable[str]) -> None:
    """Create a ServiceAccount that holds these ClusterRoles in its namespace."""
    there = f"--namespace={namespace}"
    box.kubectl("create", "serviceaccount", name, there)
    for role in roles:
        binding = ("rolebinding", f"{name}-{role}", f"--clusterrole={role}")
        box.kubectl("create", *binding, f"--serviceaccount={namespace}:{name}", there)
