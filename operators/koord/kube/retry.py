"""How long to wait before trying again: exponential, jittered, and as the server asks, in reason.

One rule for reflectors, writers and everybody else. Nothing here knows what is being retried.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from koord.kube.errors import (
    ApiError,
    ConnectionLost,
    KubeError,
    ServerUnavailable,
    TooManyRequests,
)

T = TypeVar("T")

LONGEST_ASKED_SECONDS: Final = 30.0
"""A server that asks for more is asked again after so long all the same: an API server asks for
seconds, and a page that some proxy shows for an hour says nothing of when the server is back."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: the n-th delay is uniform between 0 and ``min(cap, base * 2**n)`` seconds."""

    base: float = 0.2
    cap: float = 5.0

    def delay(self, attempt: int, error: KubeError | None = None) -> float:
        """Return the seconds to wait after ``attempt`` failures.

        At least what the server asked for, up to ``LONGEST_ASKED_SECONDS``.
        """
        ceiling = min(self.cap, self.base * 2 ** min(attempt, 32))
        jittered = random.uniform(0, ceiling)  # noqa: S311 - spreads load, keeps no secret
        asked = error.retry_after if isinstance(error, ApiError) else 0.0
        return max(jittered, min(asked, LONGEST_ASKED_SECONDS))


def is_transient(error: KubeError) -> bool:
    """Whether the same request may well succeed later: 429, 5xx, no connection."""
    return isinstance(error, TooManyRequests | ServerUnavailable | ConnectionLost)


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    within: float,
    backoff: Backoff = Backoff(),
    is_retryable: Callable[[KubeError], bool] = is_transient,
) -> T:
    """Call until it succeeds, fails for good, or ``within`` seconds are over.

    The last error is raised. Only calls that may be carried out twice belong here.
    """
    deadline = time.monotonic() + within
    attempt = 0
    while True:
        try:
            return await call()
        except KubeError as error:
            delay = backoff.delay(attempt, error)
            if not is_retryable(error) or time.monotonic() + delay > deadline:
                raise
        await asyncio.sleep(delay)
        attempt += 1
