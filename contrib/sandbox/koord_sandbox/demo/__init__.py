"""``koord demo``: gangs on a real API server, which alone decides whether a claim is confirmed."""

from collections.abc import Sequence


class DemoError(Exception):
    """The demo failed; the message is for the person at the terminal."""


class NotSeenError(DemoError):
    """Claims that did not come true."""

    def __init__(self, claims: Sequence[str]) -> None:
        super().__init__("\n  ".join(["this was not seen on the API server:", *claims]))
        self.claims = tuple(claims)


class OperatorsError(DemoError):
    """The operators ended, or were not ready in time."""
