"""The certificate of the server is read again, and who listens where without one."""

from __future__ import annotations

import ssl
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from koord.cli import serve_server
from koord.domains.see_settings import SeeSettings
from koord.runtime.settings import InvalidConfiguration, parse_settings
from koord.see.self_signed import RENEWED_BEFORE, SelfSignedCertificate
from koord.see.tls import CertificateFiles, InvalidCertificate

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: operators.koordinator.sh/v1alpha1\nkind: OperatorConfiguration\n"


def make_certificate(folder: Path, name: str) -> None:
    key, file = folder / "tls.key", folder / "tls.crt"
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = ["-subj", f"/CN={name}", "-keyout", str(key), "-out", str(file)]
    subprocess.run(["openssl", "req", *options, *subject], check=True, capture_output=True)


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    files = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert files.context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert not files.read_again()
    make_certificate(tmp_path, "second")
    assert files.read_again()
    (tmp_path / "tls.crt").write_text("nothing")
    assert not files.read_again()
    with pytest.raises(InvalidCertificate):
        CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    (tmp_path / "tls.crt").unlink()
    assert not files.read_again()


def test_a_certificate_of_its_own_is_for_its_names_and_made_again_before_it_ends() -> None:
    now = [datetime.now(UTC)]
    files = SelfSignedCertificate(("127.0.0.1", "koord-serve.koord-system.svc"), lambda: now[0])
    first = shake_hands(files.context, "koord-serve.koord-system.svc")
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["koord-serve.koord-system.svc"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert not files.read_again()
    assert shake_hands(files.context) == first
    now[0] = files.until - RENEWED_BEFORE
    assert files.read_again()
    assert shake_hands(files.context).not_valid_after_utc > first.not_valid_after_utc


def shake_hands(context: ssl.SSLContext, name: str = "any") -> x509.Certificate:
    """Return the certificate that a client is shown; nothing is sent anywhere."""
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.check_hostname, asks.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asks.wrap_bio(back, there, server_hostname=name)
    server = context.wrap_bio(there, back, server_side=True)
    for end in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def test_without_the_library_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "koord.see.self_signed", None)
    with pytest.raises(InvalidCertificate, match=r"koord-operators\[self-signed\]"):
        serve_server.find_certificate(SeeSettings(selfSigned=True))


@pytest.mark.parametrize(
    ("see", "problem"),
    [
        ("{address: '0.0.0.0:8444'}", "set tls.certFile and tls.keyFile, or behindTlsProxy"),
        ("{address: '[::]:8444'}", "set tls.certFile and tls.keyFile, or behindTlsProxy"),
        ("{tls: {certFile: /a}}", "given together"),
        ("{tls: {certFile: /a, keyFile: /b}, behindTlsProxy: true}", "give one of both"),
        ("{tls: {certFile: /a, keyFile: /b}, selfSigned: true}", "selfSigned: with tls"),
        ("{selfSigned: true, behindTlsProxy: true}", "give one of both"),
        ("{tls: {certFile: a, keyFile: /b}}", "see.tls.certFile"),
        ("{address: '0.0.0.0'}", "ADDRESS:PORT"),
        ("{hosts: ['a b']}", "see.hosts"),
        ("{streams: 0}", "see.streams"),
        ("{verbs: [hold]}", "no such field"),
    ],
)
def test_settings_that_would_show_tokens_or_mean_nothing_are_refused(
    see: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match="see") as refusal:
        parse_settings(f"{HEAD}see: {see}\n", "config")
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("see", "is_secure"),
    [
        ("{}", False),
        ("{address: '[::1]:0'}", False),
        ("{address: '0.0.0.0:8444', behindTlsProxy: true}", True),
        ("{address: '0.0.0.0:8444', selfSigned: true}", True),
        ("{address: '0.0.0.0:8444', tls: {certFile: /a, keyFile: /b}}", True),
    ],
)
def test_cookies_are_for_tls_wherever_there_is_any(see: str, *, is_secure: bool) -> None:
    assert parse_settings(f"{HEAD}see: {see}\n", "config").of(SeeSettings).is_secure == is_secure
