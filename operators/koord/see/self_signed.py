"""A certificate that the server makes for itself, for tests: nobody vouches for it.

Whoever asks has to compare its digest, which is logged, or to trust it by hand. Key and certificate
are in memory alone. Needs the library ``cryptography``, which is not imported otherwise.
"""

import ipaddress
import logging
import os
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koord.see.tls import make_server_context

log = logging.getLogger(__name__)
LIFETIME: Final = timedelta(days=30)
RENEWED_BEFORE: Final = timedelta(days=10)
_CLOCK_SKEW: Final = timedelta(minutes=5)
_COMMON_NAME: Final = "koord serve"


def _now() -> datetime:
    return datetime.now(UTC)


class SelfSignedCertificate:
    """A certificate for ``names``; ``context`` always has one that is good for ten days or more."""

    def __init__(self, names: Collection[str], clock: Callable[[], datetime] = _now) -> None:
        self._names = names
        self._clock = clock
        self.context = make_server_context()
        self._others: list[ssl.SSLContext] = []
        self._make()

    def make_context(self) -> ssl.SSLContext:
        """Return another context; it has the last certificate, too, whenever that changes."""
        context = make_server_context()
        _load(context, self._pem)
        self._others.append(context)
        return context

    def read_again(self) -> bool:
        """Make another one if this one ends soon, and say whether."""
        if self._clock() < self.until - RENEWED_BEFORE:
            return False
        self._make()
        return True

    def _make(self) -> None:
        now, key = self._clock(), ec.generate_private_key(ec.SECP256R1())
        self.until = now + LIFETIME
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _COMMON_NAME)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(self.until)
            .add_extension(x509.SubjectAlternativeName(list(_read_names(self._names))), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .sign(key, hashes.SHA256())
        )
        self._pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        for context in (self.context, *self._others):
            _load(context, self._pem)
        digest = certificate.fingerprint(hashes.SHA256()).hex()
        log.warning("Nobody vouches for the certificate, made for tests", extra={"sha256": digest})


def _read_names(names: Collection[str]) -> Iterator[x509.GeneralName]:
    for name in sorted(names):
        try:
            yield x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            yield x509.DNSName(name)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key, which OpenSSL takes from files only, from none on a disk."""
    file: BinaryIO
    with closing(os.fdopen(os.memfd_create("tls", os.MFD_CLOEXEC), "wb")) as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
