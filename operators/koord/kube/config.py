"""Server address and credentials: from a kubeconfig or the pod's service account.

kubernetes_asyncio reads kubeconfigs that are not plain (several files, exec plugins, OIDC). It is
imported only then, in a thread, because importing it takes more than a second. The result is an
``Access``; ``Credentials`` renews it when it expires or the server refuses it.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from yaml import YAMLError

from koord.kube.errors import ConfigError
from koord.kube.plain_kubeconfig import PlainConfig, list_contexts, read_plain

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BROKEN: Final = (AssertionError, AttributeError, TypeError, ValueError)

TOKEN_MAX_AGE: Final = 60.0
"""Seconds after which a service account's token file is read again; the kubelet rotates it."""
RETRY_SECONDS: Final = 5.0
"""How long an expired access is used when reloading fails."""
DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Access:
    """All that a request needs to reach the server. Secrets are not in its ``repr``."""

    server: str
    authorization: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str = ""
    proxy: str = field(default="", repr=False)
    namespace: str = DEFAULT_NAMESPACE
    in_pod: bool = False
    """Whether it is the service account of the pod that we run in."""
    ca_file: str = ""
    client_files: tuple[str, str] | None = field(default=None, repr=False)
    """Certificate and key; with ``ca_file`` for libraries that make their own TLS context."""
    max_age: float = float("inf")
    """Seconds after which it should be reloaded."""


class Credentials:
    """The current ``Access``, reloaded when it expires or is refused.

    ``load`` reads files and may run a plugin; it runs in a thread, once at a time.
    """

    def __init__(self, load: Callable[[], Access]) -> None:
        self.load = load
        self._access: Access | None = None
        self._loaded_at = 0.0
        self._lock = asyncio.Lock()

    async def current(self) -> Access:
        """Return an access that has not expired. Raises ``ConfigError``."""
        access = self._access
        if access is None:
            return await self.renew(None)
        if time.monotonic() - self._loaded_at < access.max_age:
            return access
        try:
            return await self.renew(access)
        except ConfigError:
            # The server accepts the old one for a while; the file may be half written.
            self._loaded_at += RETRY_SECONDS
            return access

    async def renew(self, refused: Access | None) -> Access:
        """Reload, unless another request has already replaced ``refused``."""
        async with self._lock:
            if self._access is None or self._access is refused:
                self._access = await asyncio.to_thread(self.load)
                self._loaded_at = time.monotonic()
            return self._access


def find_credentials(kubeconfig: str = "", context: str = "") -> Credentials:
    """Return credentials from where kubectl takes them, read when first needed.

    The order: the given file, ``KUBECONFIG``, ``~/.kube/config`` if it exists, the service account
    of the pod that we run in.
    """
    return Credentials(lambda: _load_found(kubeconfig, context))


def _load_found(kubeconfig: str, context: str) -> Access:
    paths = kubeconfig or os.environ.get("KUBECONFIG", "")
    default = Path("~/.kube/config").expanduser()
    if not paths and default.is_file():
        paths = str(default)
    if paths:
        return load_kubeconfig(paths, context)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return load_service_account()
    raise ConfigError(
        f"no cluster configured: KUBECONFIG is not set, {default} does not exist, and this is not "
        "a pod; `koord sandbox up` starts a cluster to try things on",
    )


def load_service_account(directory: Path = SERVICE_ACCOUNT) -> Access:
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        token = (directory / "token").read_text(encoding="utf-8").strip()
        tls = _trust_only((directory / "ca.crt").read_text(encoding="ascii"))
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"the pod's service account is not usable: {error}") from error
    host = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{host}:{port}",
        authorization=f"Bearer {token}",
        tls=tls,
        namespace=namespace or DEFAULT_NAMESPACE,
        in_pod=True,
        max_age=TOKEN_MAX_AGE,
    )


def load_kubeconfig(paths: str, context: str = "") -> Access:
    """Read kubeconfig files (joined as in ``KUBECONFIG``) and run their exec plugin if any.

    Blocks and runs its own event loop, so it must not be called from one.
    """
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep)):
        raise ConfigError(f"kubeconfig {paths!r} does not exist")
    try:
        plain = read_plain(paths, context)
        if plain is not None:
            return _make_access(plain, plain.authorization, plain.namespace)
        return _load_with_library(paths, context)
    # The library fails in many ways on fields that are missing in a broken file.
    except (YAMLError, OSError, LookupError, *_BROKEN) as error:
        contexts = list_contexts(paths)
        if context and contexts and context not in contexts:
            raise ConfigError(
                f"kubeconfig {paths!r} has no context {context}; there are: {', '.join(contexts)}"
            ) from error
        raise ConfigError(f"kubeconfig {paths!r} is not usable: {error}") from error


def _load_with_library(paths: str, context: str) -> Access:
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 - costs a second
    from kubernetes_asyncio.config import ConfigException, load_kube_config  # noqa: PLC0415

    settings = type.__call__(Configuration)
    try:
        loader = asyncio.run(
            load_kube_config(
                config_file=paths,
                context=context or None,
                client_configuration=settings,
                persist_config=False,
            )
        )
    except ConfigException as error:
        raise ValueError(str(error)) from error
    chosen = (loader.current_context or {}).get("context", {})
    authorization = settings.api_key.get("BearerToken", "")
    return _make_access(settings, authorization, chosen.get("namespace") or "")


def _make_access(
    settings: "Configuration | PlainConfig", authorization: str, namespace: str
) -> Access:
    certificate, key = settings.cert_file, settings.key_file
    return Access(
        server=settings.host or "",
        authorization=authorization,
        tls=_make_tls(settings),
        server_name=settings.tls_server_name or "",
        proxy=settings.proxy or "",
        namespace=namespace or DEFAULT_NAMESPACE,
        ca_file=settings.ssl_ca_cert or "",
        client_files=(certificate, key or "") if certificate else None,
    )


def _make_tls(settings: "Configuration | PlainConfig") -> ssl.SSLContext | None:
    if not (settings.host or "").startswith("https:"):
        return None
    context = _trust(settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@lru_cache(maxsize=1)
def _trust_only(authorities: str) -> ssl.SSLContext:
    """Return the same context for the same authorities, so that connections stay usable."""
    if not authorities.strip():
        raise ValueError("ca.crt is empty")  # an empty text would mean the system's authorities
    return _relax(ssl.create_default_context(cadata=authorities))


def _trust(ca_file: str | None) -> ssl.SSLContext:
    return _relax(ssl.create_default_context(cafile=ca_file))


def _relax(context: ssl.SSLContext) -> ssl.SSLContext:
    # Cluster CAs often lack the key identifiers that strict checking (Python 3.13) requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
