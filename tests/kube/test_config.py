"""Server address and credentials from kubeconfigs and service accounts."""

import asyncio
import base64
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.kube.client import Client
from koord.kube.config import (
    Access,
    Credentials,
    find_credentials,
    load_kubeconfig,
    load_service_account,
)
from koord.kube.errors import ConfigError
from koord_sandbox import Sandbox


def write_config(path: Path, *, user: dict[str, Any], **cluster: Any) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one.example:6443/", **cluster}},
            {"name": "two", "cluster": {"server": "http://two.example"}},
        ],
        "users": [{"name": "me", "user": user}, {"name": "nobody", "user": {}}],
        "contexts": [
            {"name": "first", "context": {"cluster": "one", "user": "me", "namespace": "mine"}},
            {"name": "second", "context": {"cluster": "two", "user": "nobody"}},
        ],
        "current-context": "first",
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_the_current_context(tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "config",
        user={"token": "s3cret"},
        **{"tls-server-name": "inside.example", "proxy-url": "http://proxy.example:3128"},
    )
    access = load_kubeconfig(config)
    assert access.server == "https://one.example:6443"
    assert access.authorization == "Bearer s3cret"
    assert (access.namespace, access.server_name) == ("mine", "inside.example")
    assert access.proxy == "http://proxy.example:3128"
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert "s3cret" not in repr(access)
    assert "proxy.example" not in repr(access)


def test_another_context(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config", user={"token": "s3cret"})
    access = load_kubeconfig(config, "second")
    assert access == Access("http://two.example")


def test_insecure_skip_tls_verify_is_followed(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config", user={}, **{"insecure-skip-tls-verify": True})
    tls = load_kubeconfig(config).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_NONE


def test_a_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    config = write_config(tmp_path / "config", user={"tokenFile": "token"})
    assert load_kubeconfig(config).authorization == "Bearer from-file"


async def test_exec_plugin(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"\'"$GIVEN"\'"}}\'\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    call = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "env": [{"name": "GIVEN", "value": "from-plugin"}],
    }
    config = write_config(tmp_path / "config", user={"exec": call})
    # In a thread, because an event loop is running.
    access = await find_credentials(config).current()
    assert access.authorization == "Bearer from-plugin"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "not: [yaml",
        "just text",
        "clusters: []\ncontexts: []\nusers: []\ncurrent-context: x\n",
        "contexts: [{name: x}]\ncurrent-context: x\n",
    ],
)
def test_invalid_file_is_a_config_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match="config"):
        load_kubeconfig(str(tmp_path / "config"))


def test_a_missing_file_context_or_plugin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_kubeconfig(str(tmp_path / "nothing"))
    config = write_config(tmp_path / "config", user={"token": "s3cret"})
    with pytest.raises(ConfigError):
        load_kubeconfig(config, "third")
    call = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "nothing")}
    with pytest.raises(ConfigError):
        load_kubeconfig(write_config(tmp_path / "config", user={"exec": call}))


@pytest.fixture
def account(tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("mounted\n")
    (tmp_path / "namespace").write_text("koord-system")
    (tmp_path / "ca.crt").write_bytes(sandbox.ca_file.read_bytes())
    return tmp_path


def test_a_service_account(account: Path) -> None:
    access = load_service_account(account)
    assert access.server == "https://[fd00::1]:443"
    assert (access.authorization, access.namespace) == ("Bearer mounted", "koord-system")
    assert access.max_age == 60
    (account / "token").unlink()
    with pytest.raises(ConfigError):
        load_service_account(account)


async def test_credentials_are_searched_like_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="no cluster"):
        await find_credentials().current()
    (tmp_path / ".kube").mkdir()
    write_config(tmp_path / ".kube" / "config", user={"token": "home"})
    assert (await find_credentials().current()).authorization == "Bearer home"
    monkeypatch.setenv("KUBECONFIG", write_config(tmp_path / "env", user={"token": "env"}))
    assert (await find_credentials().current()).authorization == "Bearer env"
    given = write_config(tmp_path / "given", user={"token": "given"})
    assert (await find_credentials(given).current()).authorization == "Bearer given"


async def test_concurrent_refusals_renew_credentials_once() -> None:
    loaded = 0

    def load() -> Access:
        nonlocal loaded
        loaded += 1
        return Access(f"http://{loaded}")

    credentials = Credentials(load)
    first = await credentials.current()
    assert await credentials.current() is first
    renewed = await asyncio.gather(*[credentials.renew(first) for _ in range(5)])
    assert {access.server for access in renewed} == {"http://2"}
    assert loaded == 2


async def test_expired_credentials_are_reloaded() -> None:
    servers = iter(["http://1", "http://2"])
    credentials = Credentials(lambda: Access(next(servers), max_age=0))
    assert (await credentials.current()).server == "http://1"
    assert (await credentials.current()).server == "http://2"


async def test_expired_credentials_are_used_while_reloading_fails() -> None:
    loaded = 0

    def load() -> Access:
        nonlocal loaded
        loaded += 1
        if loaded > 1:
            raise ConfigError("in the middle of a change")
        return Access("http://1", max_age=0)

    credentials = Credentials(load)
    first = await credentials.current()
    assert await credentials.current() is first
    assert loaded == 2
    with pytest.raises(ConfigError):
        await credentials.renew(first)


async def test_client_certificates(sandbox: Sandbox) -> None:
    text = await asyncio.to_thread(sandbox.kubeconfig.read_text)
    assert base64.b64decode(yaml.safe_load(text)["users"][0]["user"]["client-certificate-data"])
    async with Client(find_credentials(str(sandbox.kubeconfig))) as client:
        assert (await client.get("/api/v1/namespaces/default", dict))["kind"] == "Namespace"
