"""Keys, certificates and kubeconfig files of one sandbox; deleted with it.

Elliptic-curve keys, because a dozen RSA keys would take longer to make than the control plane
takes to start. Three authorities, as in any cluster: clients of the API server have no access to
etcd, and cannot say for other users to the servers of the aggregation layer that they are they.
"""

import base64
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koord_sandbox.components import FRONT_PROXY
from koord_sandbox.paths import write_privately

_LIFETIME = timedelta(days=365)
_CLOCK_SKEW = timedelta(minutes=5)
_LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
_SERVER_NAMES = (
    _LOOPBACK,
    x509.IPAddress(ipaddress.ip_address("10.96.0.1")),
    x509.DNSName("localhost"),
    x509.DNSName("kubernetes"),
    x509.DNSName("kubernetes.default"),
    x509.DNSName("kubernetes.default.svc"),
    x509.DNSName("kubernetes.default.svc.cluster.local"),
)


@dataclass(frozen=True, slots=True)
class User:
    """The subject of a client certificate."""

    name: str
    group: str | None = None


USERS = {
    "admin": User("admin", "system:masters"),
    "kwok": User("kwok", "system:masters"),
    "controller-manager": User("system:kube-controller-manager"),
    "scheduler": User("system:kube-scheduler"),
}
"""File name -> subject of the client certificate."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = _make_key()
        self._name = _make_name(User(name))
        self._certificate = (
            self._start(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """In PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, user: User, names: Iterable[x509.GeneralName] = ()) -> Credential:
        """Issue a client certificate; with ``names`` it is a server certificate too."""
        key = _make_key()
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._start(_make_name(user), key.public_key())
        alternatives = list(names)
        if alternatives:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Credential(certificate.public_bytes(serialization.Encoding.PEM), _encode_key(key))

    def _start(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _LIFETIME)
            # Python 3.13 verifies strictly by default, which requires these.
            .add_extension(_identify(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(_make_key_usage(key, self._key.public_key()), critical=True)
        )


def write_pki(directory: Path) -> dict[str, Credential]:
    """Write all keys and certificates of a sandbox; return those of `USERS`."""
    directory.mkdir(mode=0o700)
    authority, etcd_authority = Authority("koord-sandbox"), Authority("koord-sandbox-etcd")
    write_privately(directory / "ca.crt", authority.certificate)
    write_privately(directory / "etcd-ca.crt", etcd_authority.certificate)
    front_proxy_authority = Authority("koord-sandbox-front-proxy")
    write_privately(directory / "front-proxy-ca.crt", front_proxy_authority.certificate)
    _write_pair(directory, "front-proxy", front_proxy_authority.issue(User(FRONT_PROXY)))
    _write_pair(directory, "server", authority.issue(User("kube-apiserver"), _SERVER_NAMES))
    _write_pair(directory, "etcd", etcd_authority.issue(User("etcd"), [_LOOPBACK]))
    _write_pair(directory, "etcd-client", etcd_authority.issue(User("kube-apiserver")))
    _write_service_account_keys(directory)
    credentials = {file: authority.issue(user) for file, user in USERS.items()}
    for file, credential in credentials.items():
        _write_pair(directory, file, credential)
    return credentials


def _write_service_account_keys(directory: Path) -> None:
    key = _make_key()
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_privately(directory / "service-account.key", _encode_key(key))
    write_privately(directory / "service-account.pub", public)


def _write_pair(directory: Path, file: str, credential: Credential) -> None:
    write_privately(directory / f"{file}.crt", credential.certificate)
    write_privately(directory / f"{file}.key", credential.key)


def _make_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _make_name(user: User) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user.name)]
    if user.group is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, user.group))
    return x509.Name(attributes)


def _identify(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _make_key_usage(
    key: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> x509.KeyUsage:
    is_authority = key == issuer
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """The API server of a kubeconfig."""

    name: str
    server: str
    ca: bytes


def write_certificate_kubeconfig(
    path: Path, cluster: ClusterEntry, user: str, credential: Credential
) -> None:
    secret = {
        "client-certificate-data": _encode(credential.certificate),
        "client-key-data": _encode(credential.key),
    }
    _write(path, cluster, user, secret)


def write_token_kubeconfig(path: Path, cluster: ClusterEntry, user: str, token: str) -> None:
    _write(path, cluster, user, {"token": token})


def _write(path: Path, cluster: ClusterEntry, user: str, secret: dict[str, str]) -> None:
    context = cluster.name if user == "admin" else f"{user}@{cluster.name}"
    address = {"server": cluster.server, "certificate-authority-data": _encode(cluster.ca)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster.name, "cluster": address}],
        "users": [{"name": user, "user": secret}],
        "contexts": [{"name": context, "context": {"cluster": cluster.name, "user": user}}],
        "current-context": context,
    }
    write_privately(path, yaml.safe_dump(document, sort_keys=False).encode())


def _encode(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
