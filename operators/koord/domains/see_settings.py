"""Answers and the page for everybody: the section ``see`` of the configuration."""

from ipaddress import ip_address
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from koord.api.quantity import parse_age_seconds
from koord.domains.section import DNS_SUBDOMAIN, Section
from koord.store.size import parse_store_size

DEFAULT_ADDRESS: Final = "127.0.0.1:8444"
_HostName = Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)]
_SQLITE: Final = "sqlite:"
_MEMORY: Final = "memory"
_STORE: Final = rf"^$|^{_MEMORY}$|^{_SQLITE}/[^\x00]*[^\x00/]$"
_LEAST_KEPT: Final = 86_400
_MOST_KEPT: Final = 3650 * 86_400
_LABEL: Final = r"^$|^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_PATH: Final = r"^$|^/[^\x00]*[^\x00/]$"


def _parse_address(text: object) -> str:
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not (port.isascii() and port.isdigit() and int(port[:6]) < 1 << 16):
        raise ValueError("is not ADDRESS:PORT, such as 0.0.0.0:8444")
    ip_address(_strip(host))
    return f"{host}:{port}"


def _parse_optional_address(text: object) -> str:
    return "" if text == "" else _parse_address(text)


def _parse_keep(text: object) -> float:
    seconds = parse_age_seconds(text) if isinstance(text, str) else None
    if seconds is None or not _LEAST_KEPT <= seconds <= _MOST_KEPT:
        raise ValueError("is not an age from 1d to 3650d, such as 30d")
    return float(seconds)


def _strip(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


class TlsSettings(Section):
    """The certificate of the server; both files are read again when they have changed."""

    cert_file: str = Field(default="", max_length=4096, pattern=_PATH)
    """Absolute path of the certificate, and those that vouch for it, as PEM."""
    key_file: str = Field(default="", max_length=4096, pattern=_PATH)
    """Absolute path of its key."""


class SeeSettings(Section):
    """Answers and the page for everybody, [served in the cluster](serve.md).

    Read by `koord serve` only.
    """

    address: Annotated[str, BeforeValidator(_parse_address)] = DEFAULT_ADDRESS
    """Where it listens. Any other address than those of the loopback needs `tls` or
    `behindTlsProxy`."""
    tls: TlsSettings = TlsSettings()
    self_signed: bool = Field(default=False, strict=True)
    """Whether it makes a certificate for itself, [for tests](serve.md#install): nobody vouches for
    it, and its digest is in the log."""
    behind_tls_proxy: bool = Field(default=False, strict=True)
    """Whether a proxy before it speaks TLS to browsers, and plain HTTP to it."""
    aggregation_address: Annotated[str, BeforeValidator(_parse_optional_address)] = ""
    """Where it listens for [the API server](serve-aggregation.md) alone, with the same certificate.
    Empty: nowhere."""
    hosts: tuple[_HostName, ...] = Field(default=(), max_length=64)
    """Names, without a port, by which it may be asked, beside those of its Service and the
    loopback."""
    streams: int = Field(default=100, ge=1, le=10_000, strict=True)
    """How many streams may be open, three of them of one user."""

    hide_others: bool = Field(default=False, strict=True)
    """Whether who may not list all pods learns [neither positions nor exact
    amounts](serve.md#hide-amounts) of others."""

    store: str = Field(default=_MEMORY, max_length=4096, pattern=_STORE)
    """Where it keeps what was decided: `memory`, the last 50,000 records in 64 MiB, until it ends;
    or `sqlite:` and the absolute path of a file, with what pods held, too. Empty: nowhere."""
    keep: Annotated[float, BeforeValidator(_parse_keep)] = 30.0 * 86_400
    """Days of the store that are older are removed, whole."""
    keep_bytes: Annotated[int, BeforeValidator(parse_store_size)] = 5 << 30
    """If the store takes more, its oldest days are removed."""
    user_label: str = Field(default="", max_length=317, pattern=_LABEL)
    """The label of pods that names their user, for usage by user; whoever may write pods can write
    any name there. Empty: nobody is named."""

    actions: tuple[Literal["hold", "release", "priority", "retry"], ...] = Field(
        default=(), max_length=4
    )
    """What people may do to their jobs from the page, [with their own rights](serve.md#actions):
    `hold` keeps one from starting, `release` takes that back, `priority` lets others go first, and
    `retry` has it tried at once. Empty: nothing."""

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if bool(self.tls.cert_file) != bool(self.tls.key_file):
            raise ValueError("tls: certFile and keyFile are given together")
        if self.self_signed and self.tls.cert_file:
            raise ValueError("selfSigned: with tls it has a certificate; give one of both")
        if self.speaks_tls and self.behind_tls_proxy:
            raise ValueError("behindTlsProxy: with tls it speaks TLS itself; give one of both")
        if self.aggregation_address and not self.speaks_tls:
            raise ValueError("aggregationAddress: needs tls.certFile and tls.keyFile")
        if not (self.is_local or self.is_secure):
            raise ValueError(
                f"address: {self.address} is reached from elsewhere, so tokens would be read on "
                "the way: set tls.certFile and tls.keyFile, or behindTlsProxy: true"
            )
        return self

    @property
    def store_file(self) -> str:
        """The path of the store; empty if it is no file."""
        return self.store.removeprefix(_SQLITE) if self.store.startswith(_SQLITE) else ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(_strip(self.address.rpartition(":")[0])).is_loopback

    @property
    def is_secure(self) -> bool:
        """Whether browsers talk to it by TLS."""
        return self.speaks_tls or self.behind_tls_proxy

    @property
    def speaks_tls(self) -> bool:
        """Whether it has a certificate itself."""
        return bool(self.tls.cert_file) or self.self_signed
