"""What can go wrong with a sandbox, in one tree.

    SandboxError
    ├── BinariesUnavailable   no suitable binaries, and none could be built
    │   └── BuildFailed       the Go compiler refused; carries the end of its log
    ├── StartFailed           a component ended before the API server was ready
    ├── UnknownSandbox        no sandbox of that name
    ├── NameTaken             a sandbox of that name exists
    ├── UnknownShape          no node shape of that name
    ├── KubectlFailed         kubectl ended with an error
    └── ApiError              the API server answered with an error status

Every message is written for the person at the terminal and says what to do next; the command
line prints it as it is.
"""


class SandboxError(Exception):
    """Base of all errors of this package."""


class BinariesUnavailable(SandboxError):  # noqa: N818 - a state, read as such by those who catch it
    """The components' binaries were not found and cannot be built here."""


class BuildFailed(BinariesUnavailable):
    """The Go compiler refused."""


class StartFailed(SandboxError):  # noqa: N818 - same
    """A component ended, or the API server did not become ready in time."""


class UnknownSandbox(SandboxError):  # noqa: N818 - same
    """There is no sandbox of that name."""


class NameTaken(SandboxError):  # noqa: N818 - same
    """There is a sandbox of that name already."""


class UnknownShape(SandboxError):  # noqa: N818 - same
    """There is no node shape of that name."""


class KubectlFailed(SandboxError):  # noqa: N818 - same
    """The command kubectl ended with an error."""


class ApiError(SandboxError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status}: {message}")
        self.status = status
