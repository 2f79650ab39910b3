"""The errors of a sandbox, in one tree.

    SandboxError
    ├── BinariesError         no suitable binaries, and none could be built
    │   └── BuildError        the Go compiler refused; carries the end of its log
    ├── StartError            a component ended before the API server was ready
    ├── UnknownSandboxError   no sandbox of that name
    ├── NameTakenError        a sandbox of that name exists
    ├── UnknownShapeError     no node shape of that name
    ├── KubectlError          kubectl ended with an error
    └── SandboxApiError       the API server answered with an error status

Every message is written for the person at the terminal and says what to do next; the command
line prints it as it is.
"""


class SandboxError(Exception):
    """Base of all errors of this package."""


class BinariesError(SandboxError):
    """The components' binaries were not found and cannot be built here."""


class BuildError(BinariesError):
    """The Go compiler refused."""


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
