"""Builds the binaries of the control plane from the Go module that pins them.

Each binary is built once per content of the module and platform, and appears in the cache by an
atomic rename: whoever finds the file finds it whole. A file lock keeps two builds of the same
module from running at once; the second one waits and then finds everything there.
"""

import fcntl
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from koord.sandbox.errors import BinariesError, BuildError
from koord.sandbox.paths import cache_directory, controlplane_module
from koord.sandbox.progress import Reporter
from koord.sandbox.toolchain import find_go, make_go_environment

_KUBERNETES = "k8s.io/kubernetes"
_LOG_TAIL = 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which package becomes a binary, and whose version is the binary's."""

    package: str
    module: str


RECIPES = {
    "etcd": Recipe("go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Recipe("k8s.io/kubernetes/cmd/kube-apiserver", _KUBERNETES),
    "kubectl": Recipe("k8s.io/kubernetes/cmd/kubectl", _KUBERNETES),
    "kwok": Recipe("sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok"),
    "kube-controller-manager": Recipe("k8s.io/kubernetes/cmd/kube-controller-manager", _KUBERNETES),
    "kube-scheduler": Recipe("k8s.io/kubernetes/cmd/kube-scheduler", _KUBERNETES),
}


@dataclass(frozen=True, slots=True)
class Cache:
    """The binaries of one state of the module."""

    module: Path
    directory: Path

    def find_missing(self, names: Iterable[str]) -> list[str]:
        """Return which of these binaries are not built yet, in the order of building."""
        wanted = set(names)
        return [name for name in RECIPES if name in wanted and not self.path(name).exists()]

    def path(self, name: str) -> Path:
        """Where a binary stands once it is built."""
        return self.directory / name

    def read_version(self, name: str) -> str:
        """Return the version that the module pins, such as v1.36.3."""
        module = re.escape(RECIPES[name].module)
        text = (self.module / "go.mod").read_text()
        found = re.search(rf"^\s+{module} (v\S+)", text, re.MULTILINE)
        if found is None:
            raise BinariesError(f"{self.module / 'go.mod'} does not pin {name}")
        return found[1]


def find_cache() -> Cache:
    """Return the cache of the module as it is now."""
    module = controlplane_module()
    if module is None:
        raise BinariesError(
            "The sandbox builds its control plane from tools/controlplane, which is part of the "
            "source checkout and not of the installed package. Run from a checkout, or set "
            "KUBEBUILDER_ASSETS to a directory that holds the binaries."
        )
    key = hashlib.sha256(f"{platform.system()}/{platform.machine()}".encode())
    for file in ("go.mod", "go.sum"):
        key.update((module / file).read_bytes())
    return Cache(module, cache_directory() / "controlplane" / key.hexdigest()[:16])


def build_missing(cache: Cache, names: Iterable[str], report: Reporter) -> None:
    """Build what is missing of these binaries."""
    wanted = list(names)
    if not cache.find_missing(wanted):
        return
    cache.directory.mkdir(parents=True, exist_ok=True)
    with _lock(cache.directory / "lock", report):
        missing = cache.find_missing(wanted)  # another process may have built them meanwhile
        if not missing:
            return
        go = find_go(cache.module, report)
        for number, name in enumerate(missing, 1):
            title = f"building {name} {cache.read_version(name)} ({number} of {len(missing)})"
            with report.step(title):
                _build(cache, name, go)


def _build(cache: Cache, name: str, go: Path) -> None:
    partial = cache.directory / f".{name}.{os.getpid()}.partial"
    log = cache.directory / f"{name}.log"
    flags = ["-mod=readonly", "-trimpath", "-ldflags", _make_linker_flags(cache)]
    command = [str(go), "build", *flags, "-o", str(partial), RECIPES[name].package]
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            check=False,
            cwd=cache.module,
            env=make_go_environment(),
            stdout=output,
            stderr=output,
        )
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        raise BuildError(f"{name} could not be built; the end of {log}:\n{_read_tail(log)}")
    partial.rename(cache.path(name))


def _make_linker_flags(cache: Cache) -> str:
    # Without these the API server calls itself v0.0.0-master, and clients decide by its version.
    version = cache.read_version("kube-apiserver")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for key, value in values.items())])


def _read_tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])


@contextmanager
def _lock(path: Path, report: Reporter) -> Iterator[None]:
    # The kernel releases the lock when the process ends, however it ends.
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with report.step("waiting for another process that builds the same binaries"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
