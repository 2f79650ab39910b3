"""How the demo can fail, in one tree; the command line prints the message as it is.

DemoError
├── NotSeenError        claims that did not come true on the API server
├── OperatorsError      the operators ended, or did not get ready
├── CommandError        a command of the play ended with an error
└── MissingFilesError   this is an installation without the manifests
"""

from collections.abc import Sequence


class DemoError(Exception):
    """Base of all errors of this package."""


class NotSeenError(DemoError):
    """Claims that did not come true."""

    def __init__(self, claims: Sequence[str]) -> None:
        super().__init__("\n  ".join(["this was not seen on the API server:", *claims]))
        self.claims = tuple(claims)


class OperatorsError(DemoError):
    """The operators ended, or did not get ready."""


class CommandError(DemoError):
    """A command of the play ended with an error."""


class MissingFilesError(DemoError):
    """The manifests are not there."""
