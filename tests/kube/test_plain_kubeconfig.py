"""Plain kubeconfigs give the same access as the library, without importing it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.kube import config as kube_config
from koord.kube.config import load_kubeconfig
from koord.kube.plain_kubeconfig import read_plain
from koord_sandbox import Sandbox


def make_config(**changes: Any) -> dict[str, Any]:
    user = changes.pop("user", {"token": "s3cret"})
    context = {"cluster": "one", "user": "me", **changes.pop("context", {})}
    cluster = {"server": "https://one.example:6443/", **changes}
    return {
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [
            {"name": "plugin", "user": {"exec": {"command": "ours"}}},
            {"name": "me", "user": user},
        ],
        "contexts": [
            {"name": "first", "context": context},
            {"name": "other", "context": {"cluster": "one", "user": "plugin"}},
        ],
        "current-context": "first",
    }


def write_config(directory: Path, config: dict[str, Any]) -> str:
    path = directory / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize(
    "config",
    [
        make_config(),
        make_config(context={"namespace": "mine"}),
        make_config(user={}),
        make_config(server="http://one.example/"),
        make_config(**{"insecure-skip-tls-verify": True}),
        make_config(**{"tls-server-name": "inside.example"}),
        make_config(**{"proxy-url": "http://proxy.example:3128"}),
    ],
)
def test_access_equals_the_one_of_the_library(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path, config)
    assert read_plain(path) is not None
    ours = load_kubeconfig(path)
    monkeypatch.setattr(kube_config, "read_plain", lambda *_: None)
    theirs = load_kubeconfig(path)
    fields = ("server", "authorization", "server_name", "proxy", "namespace", "client_files")
    for field in (*fields, "ca_file"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert (ours.tls is None) == (theirs.tls is None)
    if ours.tls is not None and theirs.tls is not None:
        assert ours.tls.verify_mode is theirs.tls.verify_mode


@pytest.mark.parametrize(
    ("config", "context"),
    [
        (make_config(), "other"),
        (make_config(), "third"),
        (make_config(user={"tokenFile": "token"}), ""),
        (make_config(user={"username": "me", "password": "x"}), ""),
        (make_config(user={"token": "s3cret", "as": "somebody"}), ""),
        (make_config(user={"client-certificate": "nothing.crt"}), ""),
        (make_config(user={"client-certificate-data": "no base64"}), ""),
        (make_config(server=17), ""),
        ({"clusters": []}, ""),
    ],
)
def test_other_kubeconfigs_are_left_to_the_library(
    config: dict[str, Any], context: str, tmp_path: Path
) -> None:
    assert read_plain(write_config(tmp_path, config), context) is None


@pytest.mark.parametrize("path", ["nothing", "a:b"])
def test_no_file_or_several_are_left_to_the_library(path: str, tmp_path: Path) -> None:
    assert read_plain(str(tmp_path / path)) is None


def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    config = make_config(**{"proxy-url": "http://me:pass@proxy.example"})
    text = repr(read_plain(write_config(tmp_path, config)))
    assert "s3cret" not in text
    assert "pass" not in text


def test_inline_certificates_are_written_once_to_private_files(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    plain = [read_plain(str(sandbox.kubeconfig)) for _ in range(2)]
    assert plain[0] == plain[1]
    assert plain[0] is not None
    for name in (plain[0].ssl_ca_cert, plain[0].cert_file, plain[0].key_file):
        assert name is not None
        assert Path(name).stat().st_mode & 0o077 == 0
        assert b"-----BEGIN" in Path(name).read_bytes()


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path, sandbox: Sandbox) -> None:
    (tmp_path / "ca.crt").write_bytes(sandbox.ca_file.read_bytes())
    plain = read_plain(write_config(tmp_path, make_config(**{"certificate-authority": "ca.crt"})))
    assert plain is not None
    assert plain.ssl_ca_cert == str(tmp_path / "ca.crt")


def test_files_are_removed_at_exit_without_importing_the_library(sandbox: Sandbox) -> None:
    code = (
        "import sys; from koord.kube.config import load_kubeconfig;"
        f"access = load_kubeconfig({str(sandbox.kubeconfig)!r});"
        "assert 'kubernetes_asyncio' not in sys.modules; print(access.client_files[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    assert not Path(done.stdout.strip()).exists()
