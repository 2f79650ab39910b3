"""Requests, and how they stand on the wire.

The API server's answers are for others; so is how a request gets there.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from koord.kube.config import Access
from koord.kube.errors import Garbled

_TARGET: Final = re.compile(r"/[!-~]*")
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Media(StrEnum):
    """Content types of request bodies."""

    JSON = "application/json"
    JSON_PATCH = "application/json-patch+json"
    MERGE_PATCH = "application/merge-patch+json"
    STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
    APPLY_PATCH = "application/apply-patch+yaml"


class Request(NamedTuple):
    """``target`` is the path with its query; ``content`` of None: there is none."""

    method: str
    target: str
    content: bytes | None = None
    media: Media = Media.JSON

    @property
    def accept(self) -> str:
        """What to answer with: whoever changes an object knows it, and asks for its metadata."""
        return f"{_METADATA}, {Media.JSON}" if self.method == "PATCH" else Media.JSON


class RequestWriter:
    """Writes requests for one access; what is the same in all of them is written once."""

    def __init__(self, access: Access, headers: Mapping[str, str]) -> None:
        self.access = access
        address = urlsplit(access.server)
        self._base = address.path.rstrip("/")
        every = {"Host": address.netloc, **headers}
        if access.authorization:
            every["Authorization"] = access.authorization
        lines = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        self._tail = f" HTTP/1.1\r\n{lines}"

    def write(self, request: Request) -> bytes:
        """Return the request as it is sent. Raises Garbled if its target would break the line."""
        target = f"{self._base}{request.target}"
        if not _TARGET.fullmatch(target):
            raise Garbled(f"not the path of an object: {request.target!r}")
        head = f"{request.method} {target}{self._tail}Accept: {request.accept}\r\n"
        if request.content is None:
            return f"{head}\r\n".encode()
        length = len(request.content)
        entity = f"Content-Type: {request.media}\r\nContent-Length: {length}\r\n\r\n"
        return f"{head}{entity}".encode() + request.content
