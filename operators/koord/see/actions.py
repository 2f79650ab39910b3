"""Actions: holds a waiting unit back or lets it go, as the user would with kubectl.

Off unless the configuration names them. The request carries the token of the user, never that of
this process. It is tried first (a dry run of the API server), and carried out only for the version
of the object that was tried. A page of another origin cannot ask: forms and simple requests are no
JSON, cookies go with requests of this origin alone, and a session has a secret that only its page
reads. Computes no answer.
"""

import hmac
import json
import logging
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from aiohttp import web

from koord.api.keys import operators
from koord.kube.client import Media
from koord.kube.config import Credentials
from koord.kube.errors import ApiError, KubeError
from koord.plain_text import escape
from koord.runtime.reviews import ResourceRight
from koord.see.app import ASKER, BASE
from koord.see.bodies import MOST_FORM, read_body
from koord.see.on_behalf import USER_AGENT, open_as
from koord.see.token_access import GivenToken, TokenAccess

PATH: Final = f"{BASE}/actions/namespaces/{{namespace}}/{{kind}}/{{name}}"
CSRF_HEADER: Final = "X-Koord-Csrf"
_JSON: Final = "application/json"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
log = logging.getLogger(__name__)


class UnitAction(StrEnum):
    """What can be done to a unit."""

    HOLD = "hold"
    RELEASE = "release"


class ActionKind(NamedTuple):
    """Where objects of a kind are."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str, name: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"namespaces/{quote(namespace, safe='')}"
        return f"{root}/{where}/{self.plural}/{quote(name, safe='')}"

    def right(self, namespace: str, name: str) -> ResourceRight:
        return ResourceRight("patch", self.group, self.plural, namespace, name)


KINDS: Final = {
    "podgroup": ActionKind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups"),
    "pod": ActionKind("", "v1", "pods"),
}


class _ObjectVersion(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _VersionedObject(msgspec.Struct):
    metadata: _ObjectVersion


@dataclass(frozen=True, slots=True)
class ActionQuestion:
    """What is to be done to what; ``version`` is that of the trial, empty for the trial itself."""

    action: UnitAction
    kind: str
    namespace: str
    name: str
    version: str = ""

    @property
    def is_trial(self) -> bool:
        return not self.version


@dataclass(slots=True)
class Actions:
    """The actions that are on, with the access of those who ask."""

    on: Collection[UnitAction]
    credentials: Credentials
    access: TokenAccess
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    """Makes the secrets of sessions, which end with this process as they do."""

    def add_to(self, app: web.Application) -> None:
        if self.on:
            app.router.add_get(PATH, self._offer)
            app.router.add_post(PATH + "/{action}", self._act)

    async def _offer(self, request: web.Request) -> web.Response:
        """Say what the user may do to an object, and the secret that an action needs."""
        kind, namespace, name = _parts_of(request)
        may = await request[ASKER].may(KINDS[kind].right(namespace, name))
        given = self.access.find_token(request)
        body = {"actions": sorted(self.on) if may else [], "csrf": self._secret_of(given)}
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def _act(self, request: web.Request) -> web.Response:
        given = self.access.find_token(request)
        self._check_origin(request, given)
        question = await self._read(request)
        status = HTTPStatus.OK
        try:
            body = await self._write(given, question)
        except ApiError as error:
            # It is the API server that refuses, and it says what is missing.
            status, body = HTTPStatus(_STATUS.get(error.status, 503)), _refusal(error)
        except KubeError as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            body = {"error": "NotReady", "message": escape(str(error)), "retryAfterSeconds": 2}
        self._log(request, question, status)
        return web.json_response(body, status=status, headers={"Cache-Control": "no-store"})

    async def _write(self, given: GivenToken, question: ActionQuestion) -> dict[str, Any]:
        """Try an action, or carry out what was tried. Raises ``KubeError``."""
        value = "true" if question.action is UnitAction.HOLD else None
        path = KINDS[question.kind].path(question.namespace, question.name)
        async with open_as(self.credentials, given.token) as client:
            version, changes = question.version, True
            if question.is_trial:
                seen = (await client.get(path, _VersionedObject)).metadata
                version = seen.resource_version
                changes = (seen.annotations or {}).get(operators.QUEUE_HOLD) != value
            metadata = {
                "resourceVersion": version,
                "annotations": {operators.QUEUE_HOLD: value},
            }
            params = {"fieldManager": USER_AGENT}
            params |= {"dryRun": "All"} if question.is_trial else {}
            await client.patch(path, {"metadata": metadata}, Media.MERGE_PATCH, params)
        return {
            "action": question.action,
            "kind": question.kind,
            "namespace": question.namespace,
            "name": question.name,
            "dryRun": question.is_trial,
            "changes": changes,
            "resourceVersion": version,
        }

    def _check_origin(self, request: web.Request, given: GivenToken) -> None:
        """Refuse what a page of another origin could have sent. Raises ``HTTPForbidden``.

        A proxy may add a token to whatever a browser sends, so tokens are no proof of intent.
        """
        if request.content_type != _JSON:
            raise web.HTTPUnsupportedMediaType(reason=f"send {_JSON}")
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        is_browser = bool(given.cookie) or origin is not None or site is not None
        if not is_browser:
            return
        is_own = origin is not None and urlsplit(origin).netloc == request.host
        if not is_own or site != "same-origin":
            raise web.HTTPForbidden(reason="the request does not come from this page")
        secret = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(
            secret.encode(errors="replace"), self._secret_of(given).encode()
        ):
            raise web.HTTPForbidden(reason=f"{CSRF_HEADER} is not that of this session")

    def _secret_of(self, given: GivenToken) -> str:
        return hmac.new(self._key, (given.cookie or given.token).encode(), sha256).hexdigest()

    async def _read(self, request: web.Request) -> ActionQuestion:
        kind, namespace, name = _parts_of(request)
        action = request.match_info["action"]
        if action not in self.on:
            raise web.HTTPNotFound(reason=f"{action[:32]} is none of {', '.join(sorted(self.on))}")
        try:
            body = json.loads(await read_body(request, MOST_FORM, parse=False))
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest(reason="the body is no JSON") from None
        if body == {"dryRun": True}:
            return ActionQuestion(UnitAction(action), kind, namespace, name)
        version = body.get("resourceVersion") if isinstance(body, dict) and len(body) == 1 else None
        if not isinstance(version, str) or not version.isdecimal() or len(version) > 32:
            raise web.HTTPBadRequest(
                reason='send {"dryRun": true} first, then the "resourceVersion" of its answer'
            )
        return ActionQuestion(UnitAction(action), kind, namespace, name, version)

    @staticmethod
    def _log(request: web.Request, question: ActionQuestion, status: HTTPStatus) -> None:
        """Say who did what: the audit log of Kubernetes has it, too."""
        log.info(
            "Action",
            extra={
                "user": request[ASKER].name,
                "action": str(question.action),
                "object": f"{question.kind}/{question.namespace}/{question.name}",
                "trial": question.is_trial,
                "status": int(status),
            },
        )


def _parts_of(request: web.Request) -> tuple[str, str, str]:
    """Return kind, namespace and name of a path. Raises ``HTTPNotFound``."""
    kind, namespace, name = (request.match_info[part] for part in ("kind", "namespace", "name"))
    if kind not in KINDS or not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        raise web.HTTPNotFound(reason=f"give one of {', '.join(KINDS)}, its namespace and its name")
    return kind, namespace, name


_STATUS: Final = {401: 401, 403: 403, 404: 404, 409: 409, 422: 400, 429: 429}
_NAMES: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
    429: "TooBusy",
}


def _refusal(error: ApiError) -> dict[str, Any]:
    again = 2 if error.status == HTTPStatus.TOO_MANY_REQUESTS else None
    return {
        "error": _NAMES.get(error.status, "NotReady"),
        "message": escape(error.message),
        "retryAfterSeconds": again,
    }
