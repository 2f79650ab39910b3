"""Records when pods are created and when they get a node, by a watch like any user's."""

import http.client
import threading
import time
from typing import Final
from urllib.parse import urlsplit

import msgspec

from benchmarks.objects import NAMESPACE, pods_path
from benchmarks.processes import Failed
from koord.kube.config import Access

_READ_BYTES: Final = 1 << 16


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class _List(msgspec.Struct):
    metadata: _Meta


_event = msgspec.json.Decoder(_Event)
_list = msgspec.json.Decoder(_List)


class Observer(threading.Thread):
    """Watches the pods of the benchmark until it is closed.

    Times are seconds since the epoch, by uid of the pod, taken when the event arrives.
    """

    def __init__(self, access: Access, expected: int) -> None:
        super().__init__(name="observer", daemon=True)
        self.seen: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._expected = expected
        self._all_bound = threading.Event()
        self._address = urlsplit(access.server).netloc
        self._access = access
        self._failure = ""
        self._revision = self._read_revision()
        self._stream = self._watch()
        self.start()

    def run(self) -> None:
        """Process events until all pods are bound."""
        try:
            while not self._all_bound.is_set():
                self._follow()
                # The API server closes watches that fall behind; continue from the last version.
                self._stream = self._watch()
        except (Failed, OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            self._failure = repr(error)

    def _follow(self) -> None:
        rest = b""
        while not self._all_bound.is_set():
            data = self._stream.read1(_READ_BYTES)
            if not data:
                return
            lines, _, rest = (rest + data).rpartition(b"\n")
            if lines:
                self._take(lines, time.time())

    def is_done(self, seconds: float) -> bool:
        """Wait a while; return whether all pods are bound."""
        if self._failure:
            raise Failed(self._failure)
        return self._all_bound.wait(seconds)

    def latencies(self, began: float | None = None) -> list[float]:
        """Return how long each pod took to be bound: since its creation, or since a given time."""
        return sorted(
            bound - (self.seen[uid] if began is None else began)
            for uid, bound in self.bound.items()
        )

    def _watch(self) -> http.client.HTTPResponse:
        query = f"watch=true&timeoutSeconds=3600&resourceVersion={self._revision}"
        return self._get(f"{pods_path(NAMESPACE)}?{query}")

    def _read_revision(self) -> str:
        page = self._get(f"{pods_path(NAMESPACE)}?limit=1").read()
        return _list.decode(page).metadata.resource_version

    def _get(self, path: str) -> http.client.HTTPResponse:
        # A connection for each; it lasts until its answer has been read.
        connection = http.client.HTTPSConnection(self._address, context=self._access.tls)
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise Failed(f"{path}: {answer.read()!r}")
        return answer

    def _take(self, lines: bytes, now: float) -> None:
        for event in _event.decode_lines(lines):
            if event.type == "ERROR":
                raise Failed("the watch of the benchmark is too far behind")
            pod = event.object
            self._revision = pod.metadata.resource_version
            self.seen.setdefault(pod.metadata.uid, now)
            if pod.spec.node_name:
                self.bound.setdefault(pod.metadata.uid, now)
        if len(self.bound) >= self._expected:
            self._all_bound.set()
