"""Reads one kind of object from the API server, from the first list on, as the administrator.

Deliberately not ``koord.kube``: what the demo claims about the operators must not rest on the code
that the operators themselves read with.
"""

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from koord.sandbox import ControlPlane

_CONNECT_TIMEOUT = 10.0
_PAUSE = 0.1  # seconds until the next attempt; a kind may not be served yet
_CHANGES = frozenset({"ADDED", "MODIFIED"})

_T = TypeVar("_T")
_T_contra = TypeVar("_T_contra", contravariant=True)


class Sink(Protocol[_T_contra]):
    """Who takes what was read; called from the watch's own thread."""

    def replace(self, objects: Sequence[_T_contra]) -> None:
        """Take a complete list: what is not in it is gone."""

    def upsert(self, changed: _T_contra) -> None:
        """Take an object that is new or has changed."""

    def remove(self, deleted: _T_contra) -> None:
        """Take the last state of an object that is gone."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _List(msgspec.Struct, Generic[_T]):
    metadata: _ListMeta
    items: list[_T]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Server:
    """Where the API server is, and how to show who we are."""

    address: str
    context: ssl.SSLContext

    @classmethod
    def of(cls, plane: ControlPlane) -> "Server":
        """Return the API server of a sandbox, as its administrator sees it."""
        layout = plane.record.layout
        context = ssl.create_default_context(cafile=plane.ca_file)
        context.load_cert_chain(layout.pki("admin.crt"), layout.pki("admin.key"))
        return cls(urlsplit(plane.server).netloc, context)

    def connect(self) -> http.client.HTTPSConnection:
        """Return a new connection."""
        return http.client.HTTPSConnection(
            self.address, timeout=_CONNECT_TIMEOUT, context=self.context
        )


class Watch(Generic[_T]):
    """Follows one kind in a thread of its own until :meth:`stop`."""

    def __init__(self, server: Server, path: str, kind: type[_T], sink: Sink[_T]) -> None:
        self._server = server
        self._path = path
        self._kind = kind
        self._sink = sink
        self._stopped = threading.Event()
        self._cut: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Cut the connection; return when nothing is delivered any more."""
        self._stopped.set()
        self._cut()
        self._thread.join(_CONNECT_TIMEOUT)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with closing(self._server.connect()) as connection:
                    connection.connect()
                    self._cut = make_cut(connection.sock)
                    self._follow(connection)
            except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError):
                # The list that comes next makes up for whatever was missed.
                self._stopped.wait(_PAUSE)
            finally:
                self._cut()

    def _follow(self, connection: http.client.HTTPSConnection) -> None:
        answer = self._get(connection, self._path)
        listed = msgspec.json.decode(answer.read(), type=_List[self._kind])  # type: ignore[name-defined]
        self._sink.replace(listed.items)
        version = listed.metadata.resource_version
        connection.sock.settimeout(None)  # silence is what a watch mostly consists of
        stream = self._get(connection, f"{self._path}?watch=1&resourceVersion={version}")
        while not self._stopped.is_set() and (line := stream.readline()):
            self._deliver(msgspec.json.decode(line, type=_Event))

    def _get(self, connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(answer.read())
        return answer

    def _deliver(self, event: _Event) -> None:
        if event.type in _CHANGES:
            self._sink.upsert(msgspec.json.decode(event.object, type=self._kind))
        elif event.type == "DELETED":
            self._sink.remove(msgspec.json.decode(event.object, type=self._kind))
        else:
            raise http.client.HTTPException(event.type)


def make_cut(connection: Any) -> Callable[[], None]:
    """Return what ends a connection that another thread reads from.

    Works below TLS, on a descriptor of its own, because an SSL socket is not made for two threads.
    """
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))

    def cut() -> None:
        # It may have ended already, or have been cut before.
        with duplicate, suppress(OSError):
            duplicate.shutdown(socket.SHUT_RDWR)

    return cut
