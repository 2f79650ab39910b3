"""The paths of Koordinator's diagnosis API: its documents, and its debug flags.

Both are for this machine, and for whoever has the right to the path where that is asked. Knows no
document and no flag.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from koord.runtime.readers import DIAGNOSIS, FLAGS, Readers


class Document(Protocol):
    """A status of HTTP, and JSON."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class DiagnosisSource(Protocol):
    """What answers: ``page`` is the one of whatever is no flag."""

    @property
    def page(self) -> str: ...

    async def diagnose(self, path: str, query: Mapping[str, str]) -> Document:
        """Answer a path below /apis/v1, or raise TimeoutError."""

    def knows_flag(self, name: str) -> bool: ...

    def refuse_flag(self, name: str) -> Document | None:
        """Return why a flag cannot be set in this process."""

    def put_flag(self, name: str, text: str, by: str) -> tuple[int, str]:
        """Set a flag; return a status of HTTP, and a line."""


@dataclass(frozen=True, slots=True)
class DiagnosisPages:
    """Handlers of requests."""

    source: DiagnosisSource
    readers: Readers

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(f"{DIAGNOSIS}{{path:/.*}}", self.document)
        for path in (FLAGS, f"{FLAGS}/{{name:.*}}"):
            app.router.add_route("*", path, self.flag)

    async def document(self, request: web.Request) -> web.Response:
        by = await self.readers.identify(request, DIAGNOSIS)
        if isinstance(by, web.Response):
            return by
        try:
            page = await self.source.diagnose(request.match_info["path"], request.query)
        except TimeoutError:
            return web.Response(status=503, text="a plan takes long; try again\n")
        return _make_json(page)

    async def flag(self, request: web.Request) -> web.Response:
        by = await self.readers.identify(request, FLAGS)
        if isinstance(by, web.Response):
            return by
        name = request.match_info.get("name", "")
        if not self.source.knows_flag(name):
            return web.Response(text=self.source.page, content_type="text/html")
        if request.method != "PUT":
            return _make_text(406, "unsupported http method")
        refusal = self.source.refuse_flag(name)
        if refusal is not None:
            return _make_json(refusal)
        text = (await request.read()).decode(errors="backslashreplace")
        return _make_text(*self.source.put_flag(name, text, by))


def _make_json(page: Document) -> web.Response:
    return web.Response(
        status=page.status, body=page.body, content_type="application/json", charset="utf-8"
    )


def _make_text(status: int, text: str) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, text=f"{text}\n", headers=headers)
