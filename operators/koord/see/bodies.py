"""The bodies of requests: objects as JSON or YAML, of bounded size, time and depth.

Whoever sends one may be anybody. JSON is decoded quickly; YAML, and the texts of manifests inside
of a body, take seconds, so they are decoded where nobody else waits, and without what its aliases
would expand to. Knows no answer.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Literal, overload

import msgspec
from aiohttp import web

from koord.api.manifest_text import UnreadableError, read_documents

MOST_BODY: Final = 256 * 1024
MOST_FORM: Final = 32 * 1024
"""Of what is sent before it is known who asks: a token."""
MOST_YAML: Final = 64 * 1024
"""Of what is written as YAML: decoding takes a second for each 10 or 20 KiB."""
BODY_SECONDS: Final = 10.0
"""How long it may take to arrive."""


class InvalidBody(ValueError):  # noqa: N818 - says what is wrong
    """A body cannot be read; ``status`` is that of HTTP."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


async def read_form(request: web.Request) -> Mapping[str, Any]:
    """Return the fields of a form. Raises ``InvalidBody``."""
    await _receive(request, MOST_FORM)
    return await request.post()


@overload
async def read_body(
    request: web.Request, most: int, *, parse: Literal[True] = True
) -> Mapping[str, Any]: ...
@overload
async def read_body(request: web.Request, most: int, *, parse: Literal[False]) -> bytes: ...


async def read_body(
    request: web.Request, most: int, *, parse: bool = True
) -> Mapping[str, Any] | bytes:
    """Return the object of a body of so many bytes, or these. Raises ``InvalidBody``."""
    raw = await _receive(request, most)
    return _parse_json(raw) if parse else raw


def parse_body(raw: bytes) -> Mapping[str, Any]:
    """Return an object that is written as JSON or YAML; this may take long.

    Raises ``InvalidBody``.
    """
    try:
        return _parse_json(raw)
    except InvalidBody:
        pass
    if len(raw) > MOST_YAML:
        message = f"YAML of more than {MOST_YAML} bytes is not read here: send JSON"
        raise InvalidBody(message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        documents = list(read_documents(raw.decode()))
    except (UnreadableError, UnicodeDecodeError):
        raise InvalidBody("the body is neither JSON nor YAML") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InvalidBody("the body is no object")
    return {str(key): value for key, value in documents[0].items()}


def _parse_json(raw: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise InvalidBody("the body is no JSON object") from None


async def _receive(request: web.Request, most: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            raw = await request.read()
    except TimeoutError:
        message = f"the body did not arrive within {BODY_SECONDS:.0f} s"
        raise InvalidBody(message, HTTPStatus.REQUEST_TIMEOUT) from None
    if len(raw) > most:
        raise InvalidBody(
            f"a body of at most {most} bytes is read here", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        )
    return raw
