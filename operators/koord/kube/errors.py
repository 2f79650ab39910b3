# ruff: noqa: N818 - the names are the API's own reasons
"""The errors of talking to the API server, in one tree.

::

    KubeError
    ├── ConfigError             no usable kubeconfig, context or service account
    ├── ConnectionLost          no response; ``sent``: the request may have taken effect
    ├── Garbled                 a response or a request that is not valid in the API
    └── ApiError                an error response of the server
        ├── Unauthorized        401
        ├── Forbidden           403
        ├── NotFound            404
        ├── Conflict            409
        ├── Gone                410, the resourceVersion or continue token is too old
        ├── Invalid             422
        ├── TooManyRequests     429
        ├── RequestTooLarge     no write makes the object larger, whatever the status
        └── ServerUnavailable   5xx

Only this module turns HTTP responses into exceptions.
"""

from typing import Final

import msgspec

from koord.kube.wire import WireStatus

MAX_MESSAGE: Final = 1024
"""Longer messages of the server are truncated; they are shown in conditions and logs."""


class KubeError(Exception):
    """Base of all errors here."""


class ConfigError(KubeError):
    """No usable kubeconfig or service account."""


class ConnectionLost(KubeError):
    """No response. ``sent`` is False only if the request cannot have taken effect."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Garbled(KubeError):
    """A response or a request that is not valid in the API."""


class ApiError(KubeError):
    """An error response; ``retry_after`` in seconds."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """401, even after the credentials were renewed."""


class Forbidden(ApiError):
    """403: denied by RBAC or an admission policy."""


class NotFound(ApiError):
    """404: no such object, or the resource is not served."""


class Conflict(ApiError):
    """409: a precondition failed, or the object's state does not allow the operation."""


class Gone(ApiError):
    """410: the revision is too old; list again."""


class Invalid(ApiError):
    """422: validation or a JSON-patch ``test`` failed."""


class TooManyRequests(ApiError):
    """429: flow control, or a disruption budget."""


class ServerUnavailable(ApiError):
    """Any 5xx."""


class RequestTooLarge(ApiError):
    """The object would be larger than the API server or etcd takes: repeating that is of no use.

    Statuses do not tell: etcd's answer is passed on as 500, and as 409 where a binding failed.
    """


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_TOO_LARGE: Final = 413
_SAY_TOO_LARGE: Final = (
    "etcdserver: request is too large",
    "trying to send message larger than max",
    "metadata.annotations: Too long",
)
"""Of etcd, of the API server's own client of it, and of the validation of annotations."""
_decoder = msgspec.json.Decoder(WireStatus)


def error_of_answer(status: int, body: bytes, retry_after: str | None) -> ApiError:
    try:
        answer = _decoder.decode(body)
    except msgspec.DecodeError:
        answer = WireStatus(message=body[:MAX_MESSAGE].decode(errors="replace"))
    answer.code = status
    return error_of(answer, _parse_seconds(retry_after))


def error_of(answer: WireStatus, retry_after: float = 0.0) -> ApiError:
    fallback = ServerUnavailable if answer.code >= 500 else ApiError
    kind = _BY_STATUS.get(answer.code, fallback)
    if answer.code == _TOO_LARGE or any(text in answer.message for text in _SAY_TOO_LARGE):
        kind = RequestTooLarge
    hinted = float(answer.details.retry_after_seconds) if answer.details else 0.0
    message = answer.message[:MAX_MESSAGE]
    return kind(answer.code, answer.reason, message, max(retry_after, hinted))


def _parse_seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdecimal() else 0.0
