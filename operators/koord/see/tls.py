"""The certificate of the server: read from files, and again when they have changed.

Whoever renews it, such as cert-manager or the kubelet that mounts a Secret, need not know of us.
Connections that are open keep what they began with.
"""

import logging
import ssl
from pathlib import Path
from typing import ClassVar, Final, Protocol

log = logging.getLogger(__name__)
_LEAST: Final = ssl.TLSVersion.TLSv1_2


def make_server_context() -> ssl.SSLContext:
    """Return a context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _LEAST
    return context


class InvalidCertificate(Exception):  # noqa: N818 - what it says is what is wrong
    """The files are not a certificate and its key."""


class ServerCertificate(Protocol):
    """A certificate and its key; ``context`` has those that count now."""

    context: ssl.SSLContext

    def make_context(self) -> ssl.SSLContext:
        """Return another context that always has the same certificate."""

    def read_again(self) -> bool:
        """Look whether there is another one to be used, and say whether there was."""


class CertificateFiles:
    """A certificate and its key; ``context`` always has the last ones that could be used."""

    LOOK_SECONDS: ClassVar = 10.0
    """How often whoever serves should look whether they have changed."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files. Raises InvalidCertificate."""
        self._files = certificate, key
        self._seen: tuple[bytes, bytes] | None = None
        self.context = make_server_context()
        self._others: list[ssl.SSLContext] = []
        self._read()

    def make_context(self) -> ssl.SSLContext:
        """Return another context; it has the last certificate, too, whenever that changes."""
        context = make_server_context()
        context.load_cert_chain(*self._files)
        self._others.append(context)
        return context

    def read_again(self) -> bool:
        """Use the files if they have changed, and say whether; bad ones change nothing."""
        try:
            return self._read()
        except InvalidCertificate as error:
            log.warning("The certificate cannot be used", extra={"problem": str(error)})
            return False

    def _read(self) -> bool:
        try:
            seen = self._files[0].read_bytes(), self._files[1].read_bytes()
        except OSError as error:
            raise InvalidCertificate(f"{error.filename}: {error.strerror}") from error
        if seen == self._seen:
            return False
        # Tried apart: half of a pair, while it is being written, must not be served.
        for context in (make_server_context(), self.context, *self._others):
            try:
                context.load_cert_chain(*self._files)
            except (ssl.SSLError, OSError) as error:
                raise InvalidCertificate(f"{self._files[0]}: {error}") from error
        is_first, self._seen = self._seen is None, seen
        if not is_first:
            log.info("The certificate has changed")
        return True
