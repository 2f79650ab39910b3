"""Helm, built once from the Go module that pins it."""

import hashlib
import os
import subprocess
from pathlib import Path

from koord_sandbox.build import ConsoleReporter, find_go, make_go_environment
from koord_sandbox.paths import cache_directory

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "tools" / "helm"
CHART = ROOT / "charts" / "koord-operators"


def find_helm() -> Path:
    """Return the program; builds it if this version of the module has not been built yet."""
    key = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    program = cache_directory() / "helm" / key / "helm"
    if not program.exists():
        report = ConsoleReporter()
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f"{os.getpid()}.partial")
        package = "helm.sh/helm/v4/cmd/helm"
        flags = ["-mod=readonly", "-trimpath", "-ldflags=-s -w"]
        command = [find_go(MODULE, report), "build", *flags, "-o", partial, package]
        with report.step("building helm"):
            subprocess.run(command, cwd=MODULE, env=make_go_environment(), check=True)
        partial.rename(program)
    return program


def run_helm(*arguments: str, kubeconfig: Path = Path(os.devnull), check: bool = True) -> str:
    """Run helm; return what it prints, or its error message where ``check`` is off."""
    command = [find_helm(), *arguments, "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done.stderr


if __name__ == "__main__":
    find_helm()
