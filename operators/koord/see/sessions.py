"""Sessions of browsers: a random cookie stands for a token that no script sees.

Tokens are kept in memory alone, for half a day at most and no longer than they live by their own
words; whether one is still good is asked of the API server again and again, by whoever uses this.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from koord.runtime.reviews import expiry_of

LONGEST_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 1000
MOST_EACH: Final = 20
"""Of one user."""
MOST_OF_CROWD: Final = 200
"""Of users who can be made as many as somebody likes."""


class BrowserSession(NamedTuple):
    """A token, and until when the cookie stands for it, in seconds since the epoch."""

    token: str
    until: float
    owner: Hashable = None
    crowd: Hashable = None


class Sessions:
    """All sessions of a process; ``clock`` tells seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_cookie: dict[str, BrowserSession] = {}
        """The oldest first."""

    def __len__(self) -> int:
        return len(self._by_cookie)

    def begin(
        self, token: str, owner: Hashable = None, crowd: Hashable = None
    ) -> tuple[str, float]:
        """Return a new cookie, and for how many seconds it stands for the token.

        Of too many sessions the oldest ends: of those of the owner or the crowd, or else of
        whoever has most. So nobody logs others out by logging in again and again.
        """
        now, cookie = self._clock(), secrets.token_urlsafe(32)
        until = min(now + LONGEST_SECONDS, expiry_of(token))
        self._by_cookie[cookie] = BrowserSession(token, until, owner, crowd)
        of_owner = [key for key, each in self._by_cookie.items() if each.owner == owner]
        of_crowd = [key for key, each in self._by_cookie.items() if each.crowd == crowd]
        if len(of_owner) > MOST_EACH:
            self.end(of_owner[0])
        elif crowd is not None and len(of_crowd) > MOST_OF_CROWD:
            self.end(of_crowd[0])
        elif len(self) > MOST_SESSIONS:
            self.end(self._find_oldest_of_most())
        return cookie, max(0.0, until - now)

    def _find_oldest_of_most(self) -> str:
        counts = Counter(each.owner for each in self._by_cookie.values())
        return max(self._by_cookie, key=lambda key: counts[self._by_cookie[key].owner])

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie, if it lasts."""
        session = self._by_cookie.get(cookie)
        if session is not None and self._clock() >= session.until:
            self.end(cookie)
            return None
        return session

    def end(self, cookie: str) -> None:
        self._by_cookie.pop(cookie, None)
