"""A small synchronous client for the sandbox's own requests to the API server.

Not for operators and measurements, which use `koord.kube`. Safe to use from several threads;
connections are kept open and reused.
"""

import http.client
import ssl
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from koord_sandbox.components import SandboxLayout
from koord_sandbox.errors import SandboxApiError

_TIMEOUT = 30.0
_IDLE_LIMIT = 30.0  # seconds; the server closes idle connections after a while
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOT_YET = {404, 429, 503}
_SERVED_SECONDS = 30.0
_INTERVAL = 0.05


class AdminClient:
    """Sends JSON to the API server as the cluster's administrator."""

    def __init__(self, layout: SandboxLayout) -> None:
        self._address = urlsplit(layout.server).netloc
        self._context = ssl.create_default_context(cafile=layout.pki("ca.crt"))
        self._context.load_cert_chain(layout.pki("admin.crt"), layout.pki("admin.key"))
        # Appending to a deque and popping from it are atomic; no lock is needed.
        self._idle: deque[tuple[float, http.client.HTTPSConnection]] = deque()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a JSON merge patch; return the patched object."""
        return self.request("PATCH", path, body, content_type=_MERGE_PATCH)

    def delete(self, path: str) -> Any:
        """Delete an object, or all of a collection."""
        return self.request("DELETE", path)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = _JSON,
    ) -> Any:
        """Send a request and decode the answer; raise `SandboxApiError` with its status."""
        status, payload = self._exchange(method, path, body, content_type)
        if status >= 400:
            raise SandboxApiError(status, _explain(payload))
        return msgspec.json.decode(payload)

    def is_ready(self) -> bool:
        try:
            status, _ = self._exchange("GET", "/readyz", None, _JSON)
        except (OSError, http.client.HTTPException):
            return False
        return status == 200

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, bytes]:
        connection = self._take_connection()
        payload = None if body is None else msgspec.json.encode(body)
        try:
            connection.request(method, path, payload, {"Content-Type": content_type})
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append((time.monotonic(), connection))
        return answer

    def _take_connection(self) -> http.client.HTTPSConnection:
        with suppress(IndexError):
            while True:
                used, connection = self._idle.pop()
                if time.monotonic() - used < _IDLE_LIMIT:
                    return connection
                connection.close()
        return http.client.HTTPSConnection(self._address, timeout=_TIMEOUT, context=self._context)


def _explain(payload: bytes) -> str:
    try:
        status = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload[:200].decode(errors="replace")
    return str(status.get("message", status)) if isinstance(status, dict) else str(status)


def wait_until_served(client: AdminClient, name: str) -> None:
    """Return when the objects of a CustomResourceDefinition can be listed in every version.

    Before, lists are answered with 404 while the API server installs the kind, and then with 429
    while it fills its cache. A list of a page (``limit``) would be answered without the cache.
    """
    spec = client.get(f"{_DEFINITIONS}/{name}")["spec"]
    for version in spec["versions"]:
        if version["served"]:
            _wait_for_list(client, _make_path(spec, version["name"]))


def _make_path(spec: dict[str, Any], version: str) -> str:
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _wait_for_list(client: AdminClient, path: str) -> None:
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            client.get(path)
        except SandboxApiError as error:
            if error.status not in _NOT_YET or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(_INTERVAL)
