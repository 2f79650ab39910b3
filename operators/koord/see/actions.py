"""Actions: holds a waiting unit back, lets it go, and more, as the user would with kubectl.

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
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from koord.core.model.text import format_milliseconds
from koord.kube.client import Media
from koord.kube.config import Credentials
from koord.kube.errors import ApiError, KubeError
from koord.plain_text import escape
from koord.see.action_edits import (
    KINDS,
    ActionQuestion,
    ActionRefused,
    SeenObject,
    UnitAction,
    is_priority,
    make_edit,
)
from koord.see.app import ASKER, BASE
from koord.see.bodies import MOST_FORM, read_body
from koord.see.on_behalf import USER_AGENT, open_as
from koord.see.token_access import GivenToken, TokenAccess

PATH: Final = f"{BASE}/actions/namespaces/{{namespace}}/{{kind}}/{{name}}"
CSRF_HEADER: Final = "X-Koord-Csrf"
_JSON: Final = "application/json"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
log = logging.getLogger(__name__)


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
        offered = sorted(KINDS[kind].actions.intersection(self.on)) if may else []
        body = {"actions": offered, "csrf": self._secret_of(given)}
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def _act(self, request: web.Request) -> web.Response:
        given = self.access.find_token(request)
        self._check_origin(request, given)
        question = await self._read(request)
        status = HTTPStatus.OK
        try:
            body = await self._write(given, question)
        except ActionRefused as error:
            status = HTTPStatus.CONFLICT
            body = {"error": "Refused", "message": escape(str(error)), "retryAfterSeconds": None}
        except ApiError as error:
            # It is the API server that refuses, and it says what is missing.
            status, body = HTTPStatus(_STATUS.get(error.status, 503)), _refusal(error)
        except KubeError as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            body = {"error": "NotReady", "message": escape(str(error)), "retryAfterSeconds": 2}
        self._log(request, question, status)
        return web.json_response(body, status=status, headers={"Cache-Control": "no-store"})

    async def _write(self, given: GivenToken, question: ActionQuestion) -> dict[str, Any]:
        """Try an action, or carry out what was tried.

        Raises ``ActionRefused`` and ``KubeError``.
        """
        path = KINDS[question.kind].path(question.namespace, question.name)
        async with open_as(self.credentials, given.token) as client:
            seen = await client.get(path, SeenObject)
            edit = make_edit(question, seen)
            version = question.version or seen.metadata.resource_version
            params = {"fieldManager": USER_AGENT}
            params |= {"dryRun": "All"} if question.is_trial else {}
            await client.patch(path, edit.patch(version), Media.MERGE_PATCH, params)
        return {
            "action": question.action,
            "kind": question.kind,
            "namespace": question.namespace,
            "name": question.name,
            "dryRun": question.is_trial,
            "changes": edit.changes(seen),
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
        action, offered = request.match_info["action"], KINDS[kind].actions.intersection(self.on)
        if action not in offered:
            raise web.HTTPNotFound(reason=f"{action[:32]} is none of {', '.join(sorted(offered))}")
        try:
            body = json.loads(await read_body(request, MOST_FORM, parse=False))
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest(reason="the body is no JSON") from None
        question = ActionQuestion(
            UnitAction(action), kind, namespace, name, at=format_milliseconds(time.time())
        )
        if question.action is UnitAction.PRIORITY:
            question, body = _take_priority(question, body)
        if body == {"dryRun": True}:
            return question
        version = body.get("resourceVersion") if isinstance(body, dict) and len(body) == 1 else None
        if not isinstance(version, str) or not version.isdecimal() or len(version) > 32:
            raise web.HTTPBadRequest(
                reason='send {"dryRun": true} first, then the "resourceVersion" of its answer'
            )
        return replace(question, version=version)

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


def _take_priority(question: ActionQuestion, body: Any) -> tuple[ActionQuestion, Any]:
    """Return a question with the priority of its body, and the rest of that.

    Raises ``HTTPBadRequest``.
    """
    if not isinstance(body, dict) or not is_priority(body.get("priority", "")):
        raise web.HTTPBadRequest(reason='"priority" is a whole number, or null')
    body_left = {key: value for key, value in body.items() if key != "priority"}
    return replace(question, priority=body["priority"]), body_left


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
