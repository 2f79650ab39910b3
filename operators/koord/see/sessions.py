"""Sessions of browsers: a random cookie stands for a token that no script sees.

Tokens are kept in memory alone, for half a day at most and no longer than they live by their own
words; whether one is still good is asked of the API server again and again, by whoever uses this.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from koord.runtime.reviews import expiry_of

LONGEST_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 1000


class BrowserSession(NamedTuple):
    """A token, and until when the cookie stands for it, in seconds since the epoch."""

    token: str
    until: float


class Sessions:
    """All sessions of a process; ``clock`` tells seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_cookie: OrderedDict[str, BrowserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_cookie)

    def begin(self, token: str) -> tuple[str, float]:
        """Return a new cookie, and for how many seconds it stands for the token.

        Of too many sessions the one that began first ends.
        """
        now, cookie = self._clock(), secrets.token_urlsafe(32)
        until = min(now + LONGEST_SECONDS, expiry_of(token))
        self._by_cookie[cookie] = BrowserSession(token, until)
        if len(self._by_cookie) > MOST_SESSIONS:
            self._by_cookie.popitem(last=False)
        return cookie, max(0.0, until - now)

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie, if it lasts."""
        session = self._by_cookie.get(cookie)
        if session is not None and self._clock() >= session.until:
            self.end(cookie)
            return None
        return session

    def end(self, cookie: str) -> None:
        self._by_cookie.pop(cookie, None)
