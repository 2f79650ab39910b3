"""The certificate of the server is read again, and who listens where without one."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

from koord.domains.see_settings import SeeSettings
from koord.runtime.settings import InvalidConfiguration, parse_settings
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


@pytest.mark.parametrize(
    ("see", "problem"),
    [
        ("{address: '0.0.0.0:8444'}", "set tls.certFile and tls.keyFile, or behindTlsProxy"),
        ("{address: '[::]:8444'}", "set tls.certFile and tls.keyFile, or behindTlsProxy"),
        ("{tls: {certFile: /a}}", "given together"),
        ("{tls: {certFile: /a, keyFile: /b}, behindTlsProxy: true}", "give one of both"),
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
        ("{address: '0.0.0.0:8444', tls: {certFile: /a, keyFile: /b}}", True),
    ],
)
def test_cookies_are_for_tls_wherever_there_is_any(see: str, *, is_secure: bool) -> None:
    assert parse_settings(f"{HEAD}see: {see}\n", "config").of(SeeSettings).is_secure == is_secure
