"""Isolates objects from each other in loops over what many tenants write.

A loop calls a function for each object. If that fails for one, because of a defect that only this
object shows, the others are served all the same: the failure is counted, reported to the log, and
the object rests before it is tried again, longer each time. Without this one object would end the
process, and that of every later leader.

Here nothing reads a clock or writes a log, so that every layer may use it. Who runs the process
sets ``FAILURES.report``.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from typing_extensions import ParamSpec

FIRST_REST_SECONDS: Final = 1.0
LONGEST_REST_SECONDS: Final = 300.0
MAX_RESTING: Final = 4096
"""Objects of one loop whose failures are remembered; of more the oldest are forgotten."""

T = TypeVar("T")
P = ParamSpec("P")


class EndsProcess(Exception):  # noqa: N818 - it is no error of an object
    """What no loop may swallow, because the process must end."""


@dataclass(slots=True)
class Failures:
    """All failures of the process: ``counts`` by loop; ``report`` gets loop, object and error."""

    counts: Counter[str] = field(default_factory=Counter)
    report: Callable[[str, str, Exception], None] = field(default=lambda *_: None)

    def note(self, loop: str, key: Hashable, error: Exception) -> None:
        self.counts[loop] += 1
        self.report(loop, str(key), error)


FAILURES: Final = Failures()


def must_end(error: Exception) -> bool:
    """Whether an error, or one of its group, is to end the process."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(EndsProcess) is not None
    return isinstance(error, EndsProcess)


@dataclass(slots=True)
class _FailureBackoff:
    failures: int = 0
    until: float = 0.0
    error: str = ""


class Isolation:
    """One loop. Objects that never fail cost it nothing; ``now`` is the clock of the loop."""

    def __init__(self, loop: str) -> None:
        self.loop = loop
        self._resting: dict[Hashable, _FailureBackoff] = {}
        FAILURES.counts.setdefault(loop, 0)

    @contextmanager
    def of(self, key: Hashable, now: float = 0.0) -> Iterator[None]:
        """Run a block for one object; whatever it raises concerns this object alone."""
        try:
            yield
        except Exception as error:
            if must_end(error):
                raise
            self.note(key, error, now)
        else:
            self._resting.pop(key, None)

    def call(
        self, key: Hashable, function: Callable[P, T], *args: P.args, **more: P.kwargs
    ) -> T | None:
        """Call a function for one object; None if that fails."""
        with self.of(key):
            return function(*args, **more)
        return None

    def note(self, key: Hashable, error: Exception, now: float = 0.0) -> None:
        """Count a failure of an object; it rests from ``now`` on."""
        backoff = self._resting.pop(key, None) or _FailureBackoff()
        backoff.until = now + min(FIRST_REST_SECONDS * 2.0**backoff.failures, LONGEST_REST_SECONDS)
        backoff.failures = min(backoff.failures + 1, 16)
        backoff.error = type(error).__name__
        self._resting[key] = backoff
        if len(self._resting) > MAX_RESTING:
            del self._resting[next(iter(self._resting))]
        FAILURES.note(self.loop, key, error)

    def again_at(self, key: Hashable) -> float | None:
        """Return when an object that failed last time is to be tried again; None if it did not."""
        backoff = self._resting.get(key)
        return None if backoff is None else backoff.until

    def error_of(self, key: Hashable) -> str:
        """Return the type of the error of an object that failed last time; else empty."""
        backoff = self._resting.get(key)
        return "" if backoff is None else backoff.error

    def rests(self, key: Hashable, now: float) -> bool:
        """Whether an object has failed, and is not to be tried again yet."""
        backoff = self._resting.get(key)
        return backoff is not None and now < backoff.until
