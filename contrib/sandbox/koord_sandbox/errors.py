"""The errors of a sandbox.

Every message is written for the person at the terminal and says what to do next; the command
line prints it as it is.
"""


class SandboxError(Exception):
    """Base of all errors of this package."""


class BinariesError(SandboxError):
    """The components' binaries were not found and cannot be built here."""


class BuildError(BinariesError):
    """The Go compiler failed; the message has the end of its log."""


class StartError(SandboxError):
    """A component ended, or the API server did not become ready in time."""


class UnknownSandboxError(SandboxError):
    """There is no sandbox of that name."""


class NameTakenError(SandboxError):
    """There is a sandbox of that name already."""


class UnknownShapeError(SandboxError):
    """There is no node shape of that name."""


class KubectlError(SandboxError):
    """The command kubectl ended with an error."""


class SandboxApiError(SandboxError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status}: {message}")
        self.status = status
