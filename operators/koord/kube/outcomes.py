"""What has come of a write, and how long a write is repeated until that is known."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

from koord.core.model.reasons import Reason
from koord.kube.errors import ApiError, KubeError, ServerUnavailable
from koord.kube.retry import Backoff

PATIENCE_SECONDS: Final = 60.0
"""While the API server is busy, restarting or unreachable: nothing else would succeed either."""
PATIENCE_WITH_FAILURES_SECONDS: Final = 5.0
"""While it responds with failures, as a broken admission webhook causes: others are served."""
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Done:
    """The write took effect, by this request or an earlier one."""


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod is no longer ours to place.

    It is deleted, terminating or recreated, or another client removed our gate, which leaves the
    pod to its own scheduler.
    """


@dataclass(frozen=True, slots=True)
class BoundElsewhere:
    """The pod is bound to ``node``, or pinned to it."""

    node: str


@dataclass(frozen=True, slots=True)
class StillGated:
    """The pod has a scheduling gate, so it cannot be bound."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server rejects the write: RBAC, an admission policy, a bug of ours, or its size.

    Or it was without an outcome for long, and is found not to have taken effect.
    """

    status: int
    message: str
    is_too_large: bool = False


@dataclass(frozen=True, slots=True)
class Oversized:
    """A pod would have ``size`` bytes of annotations, ``add`` of them new, which is too much.

    Of a binding the API server does not check that, and nobody could change the pod afterwards.
    """

    size: int
    add: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Nothing was written: the pod has waited for too long, for what the reason says."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome was not known in time; the write may still take effect.

    ``status`` is that of the last error response, 0 if there was none.
    """

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class ObjectChanged:
    """Another object, which has to be written before the pod is bound, is not as it was planned."""

    path: str


Outcome: TypeAlias = (
    Done
    | PodGone
    | BoundElsewhere
    | StillGated
    | Refused
    | Oversized
    | GivenUp
    | ObjectChanged
    | Unknown
)


async def repeat_until_known(
    attempt: Callable[[], Awaitable[Outcome | KubeError]], patience: float, backoff: Backoff
) -> Outcome:
    """Write until the outcome is known, for ``patience`` seconds at most; then it is ``Unknown``.

    An attempt returns an error if the next one may succeed.
    """
    began = time.monotonic()
    for number in count():
        result = await attempt()
        if not isinstance(result, KubeError):
            return result
        delay = backoff.delay(number, result)
        if time.monotonic() + delay > began + min(patience, _patience_with(result)):
            return Unknown(*describe(result))
        await asyncio.sleep(delay)
    raise AssertionError("unreachable: count() does not end")


def _patience_with(error: KubeError) -> float:
    fails = isinstance(error, ServerUnavailable) and error.status != _UNAVAILABLE
    return PATIENCE_WITH_FAILURES_SECONDS if fails else PATIENCE_SECONDS


def describe(error: KubeError) -> tuple[int, str]:
    if isinstance(error, ApiError):
        return error.status, error.message
    return 0, str(error)
