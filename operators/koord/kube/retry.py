"""When to retry: exponential backoff with jitter, and the server's ``Retry-After``."""

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

MAX_RETRY_AFTER_SECONDS: Final = 30.0
"""Longest ``Retry-After`` that is followed: API servers send seconds, longer ones come from proxies
and say nothing about when the server is back."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: the n-th delay is uniform between 0 and ``min(cap, base * 2**n)`` seconds."""

    base: float = 0.2
    cap: float = 5.0

    def delay(self, attempt: int, error: KubeError | None = None) -> float:
        """Return the seconds to wait after ``attempt`` failures, at least ``Retry-After``."""
        ceiling = min(self.cap, self.base * 2 ** min(attempt, 32))
        jittered = random.uniform(0, ceiling)  # noqa: S311 - spreads load, keeps no secret
        retry_after = error.retry_after if isinstance(error, ApiError) else 0.0
        return max(jittered, min(retry_after, MAX_RETRY_AFTER_SECONDS))


def is_transient(error: KubeError) -> bool:
    """Whether the same request may succeed later: 429, 5xx, no connection."""
    return isinstance(error, TooManyRequests | ServerUnavailable | ConnectionLost)


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    within: float,
    backoff: Backoff = Backoff(),
    is_retryable: Callable[[KubeError], bool] = is_transient,
) -> T:
    """Call until success, a permanent error, or ``within`` seconds; raises the last error.

    Only for calls that are safe to repeat.
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
