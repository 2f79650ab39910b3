"""Building and finding binaries, with fakes of Go and of the binaries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from koord_sandbox import Component
from koord_sandbox.binaries import KUBECTL, BinarySource, find_binaries
from koord_sandbox.build import (
    ConsoleReporter,
    build_missing,
    find_cache,
    find_caches,
    find_go,
    list_kubernetes,
    read_required_version,
)
from koord_sandbox.errors import BinariesError, BuildError

# Notes each build and writes an empty program to where -o points.
_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go1.99.0 linux/amd64"; exit; fi
echo "$@" >> {log}
sleep "${{DELAY:-0}}"
while [ "$1" != -o ]; do shift; done
echo "#!/bin/sh" > "$2"
chmod +x "$2"
"""
_BROKEN_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go1.99.0 linux/amd64"; exit; fi
echo "main.go:1: this does not compile" >&2
exit 1
"""
_BUILD = """
from koord_sandbox.build import build_missing, find_cache
from koord_sandbox.build import ConsoleReporter
build_missing(find_cache(), ["etcd", "kwok"], ConsoleReporter())
"""
_VERSIONS = {
    "kube-apiserver": "Kubernetes v1.34.2",
    "kube-controller-manager": "Kubernetes v1.34.0",
    "kube-scheduler": "Kubernetes v1.34.2",
    "etcd": "etcd Version: 3.6.5",
    "kwok": "kwok version v0.8.0 go1.26.8 (linux/amd64)",
    KUBECTL: "Client Version: v1.35.1",
}


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Put a fake Go on PATH, with an empty cache; it logs each build."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    log = tmp_path / "log"
    _write_program(tmp_path / "bin" / "go", _GO.format(log=log))
    return log


@pytest.fixture
def assets(tmp_path, log, monkeypatch):
    """Fill the directory of KUBEBUILDER_ASSETS."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    for name, version in _VERSIONS.items():
        _write_program(tmp_path / "assets" / name, f"#!/bin/sh\necho '{version}'\n")
    return tmp_path / "assets"


def test_two_processes_build_each_binary_once(log, monkeypatch):
    monkeypatch.setenv("DELAY", "0.3")
    builders = [subprocess.Popen([sys.executable, "-c", _BUILD]) for _ in range(2)]
    assert [builder.wait() for builder in builders] == [0, 0]
    assert len(log.read_text().splitlines()) == 2
    assert find_cache().find_missing(["etcd", "kwok"]) == []


def test_the_api_server_is_built_with_its_version(log):
    cache = find_cache()
    build_missing(cache, ["kube-apiserver"], ConsoleReporter())
    version = cache.read_version("kube-apiserver")
    assert f"component-base/version.gitVersion={version} " in log.read_text()


def test_an_older_version_has_its_own_servers_and_the_other_programs_of_the_default(log):
    before = find_binaries(Component, ConsoleReporter())
    binaries = find_binaries(Component, ConsoleReporter(), "1.30")
    own = {name for name in binaries.by_name if binaries.path(name) != before.path(name)}
    assert own == {name for name in _VERSIONS if name.startswith("kube-")}
    assert all(binaries.by_name[name].version.startswith("v1.30.") for name in own)
    assert "component-base/version.gitMinor=30" in log.read_text()


def test_the_version_may_come_from_the_environment(log, monkeypatch):
    monkeypatch.setenv("KOORD_KUBERNETES", "1.33")
    binaries = find_binaries([Component.APISERVER], ConsoleReporter())
    assert binaries.by_name["kube-apiserver"].version.startswith("v1.33.")


def test_the_default_is_a_version_too():
    *older, default = list_kubernetes()
    assert find_caches(default) == [find_cache()]
    assert older == sorted(set(older) - {default})


def test_assets_of_another_version_are_skipped(assets):
    binaries = find_binaries(Component, ConsoleReporter(), "1.33")
    assert {binary.source for binary in binaries.by_name.values()} == {BinarySource.BUILT}
    assert "kube-apiserver v1.34.2 is not of 1.33" in binaries.remarks[0]
    kept = find_binaries(Component, ConsoleReporter(), "1.34")
    assert {binary.source for binary in kept.by_name.values()} == {BinarySource.ASSETS}


def test_a_failed_build_shows_the_end_of_its_log(tmp_path, log):
    _write_program(tmp_path / "bin" / "go", _BROKEN_GO)
    with pytest.raises(BuildError, match="this does not compile"):
        build_missing(find_cache(), ["etcd"], ConsoleReporter())
    assert find_cache().find_missing(["etcd"]) == ["etcd"]


def test_an_old_go_is_skipped(tmp_path, log, monkeypatch):
    _write_program(tmp_path / "bin" / "go", "#!/bin/sh\necho 'go version go1.22.1 linux/amd64'\n")
    fetched = tmp_path / "fetched"
    monkeypatch.setattr("koord_sandbox.build._fetch_go", lambda *_: fetched)
    module = find_cache().module
    assert read_required_version(module) > (1, 22)
    assert find_go(module, ConsoleReporter()) == fetched


def test_the_error_without_a_source_checkout_says_what_to_do(log, monkeypatch):
    monkeypatch.setattr("koord_sandbox.build.controlplane_module", lambda: None)
    with pytest.raises(BinariesError, match=r"source checkout.*KUBEBUILDER_ASSETS"):
        find_binaries(Component, ConsoleReporter())


def test_all_binaries_come_from_the_assets(assets, log):
    binaries = find_binaries(Component, ConsoleReporter())
    assert {binary.source for binary in binaries.by_name.values()} == {BinarySource.ASSETS}
    assert binaries.path("etcd") == assets / "etcd"
    assert not log.exists()


def test_assets_may_lack_unneeded_binaries(assets):
    (assets / "kube-scheduler").unlink()
    (assets / "kwok").unlink()
    binaries = find_binaries([Component.ETCD, Component.APISERVER], ConsoleReporter())
    assert {binary.source for binary in binaries.by_name.values()} == {BinarySource.ASSETS}


@pytest.mark.parametrize(
    ("name", "version", "remark"),
    [
        ("kube-apiserver", "Kubernetes v1.29.9", "kube-apiserver v1.29.9 is older than 1.30"),
        ("etcd", "etcd Version: 3.4.1", "etcd v3.4.1 is older than 3.5"),
        ("kwok", "kwok version v0.7.0", "kwok v0.7.0 is older than 0.8"),
        ("kube-scheduler", "Kubernetes v1.33.2", "kube-scheduler v1.33.2 is not compatible with"),
        ("kubectl", "Client Version: v1.32.4-dispatcher", "kubectl v1.32.4 is not compatible with"),
        ("kubectl", "nonsense", "kubectl unknown is not compatible with"),
        ("kwok", None, "no kwok"),
    ],
)
def test_unsuitable_assets_are_skipped_with_a_remark(assets, name, version, remark):
    (assets / name).unlink()
    if version is not None:
        _write_program(assets / name, f"#!/bin/sh\necho '{version}'\n")
    binaries = find_binaries(Component, ConsoleReporter())
    assert {binary.source for binary in binaries.by_name.values()} == {BinarySource.BUILT}
    assert remark in binaries.remarks[0]
